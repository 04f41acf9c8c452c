"""The `.properties` format, as java.util.Properties reads it.

A logical line is `key`, then white space, `=` or `:`, then `value`; `#` or `!` first makes a comment; a line end
after an odd number of backslashes continues the line; `\\t \\n \\r \\f` and `\\uXXXX` are escapes, any other escaped
character stands for itself. Bytes are ISO-8859-1. The last of equal keys wins. White space at the end of a value
belongs to it.
"""
import re
from collections.abc import Iterator, Mapping

_WHITE = " \t\f"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = frozenset("0123456789abcdefABCDEF")


class PropertiesError(ValueError):
    """A text that is no `.properties` text: `line` is where, from 1.

    Java: java.lang.IllegalArgumentException
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


class JavaProperties(dict[str, str]):
    """Key -> value in the file's order; `lines`: the line, from 1, on which a key was set last.

    Java: java.util.Properties
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


def load(data: bytes) -> JavaProperties:
    """Parse a file's bytes. Raises PropertiesError for a malformed \\uXXXX."""
    return loads(data.decode("iso-8859-1"))


def loads(text: str) -> JavaProperties:
    """Parse a text. Raises PropertiesError for a malformed \\uXXXX."""
    properties = JavaProperties()
    for line_number, _last, line in _logical_lines(text):
        key, value = _split(line)
        try:
            name = _unescape(key)
            properties[name] = _unescape(value)
        except ValueError as failure:
            raise PropertiesError(str(failure), line_number) from None
        properties.lines[name] = line_number
    return properties


def edited(text: str, values: Mapping[str, str]) -> str:
    """`text` with these keys set to these values: comments, order, line ends and all other keys stay.

    A key is set where it stood last, which is where it counted; one that was not there is added at the end.
    Raises PropertiesError for a malformed \\uXXXX.
    """
    places: dict[str, tuple[int, int]] = {}
    for first, last, line in _logical_lines(text):
        try:
            key, _value = (_unescape(part) for part in _split(line))
        except ValueError as failure:
            raise PropertiesError(str(failure), first) from None
        places[key] = first - 1, last
    lines = _LINE.findall(text)
    end = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    added: list[str] = []
    for key, value in values.items():
        said = f"{escape(key, is_key=True)}={escape(value)}{end}"
        if key not in places:
            added.append(said)
            continue
        first, last = places[key]
        lines[first:last] = [said, *[""] * (last - first - 1)]  # as many elements: the other places stay right
    result = "".join(lines)
    if added and result and not result.endswith(("\r", "\n")):
        result += end
    if added and _continues(_natural_lines(result.removesuffix(end))[-1]):
        result += end  # what a backslash continues is empty
    return result + "".join(added)


def _natural_lines(text: str) -> list[str]:
    # not splitlines(), which also splits at other characters
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """(numbers of the first and the last natural line, joined line): no blank lines, no comments, no leading white
    space."""
    parts: list[str] = []
    start = number = 0
    for number, natural in enumerate(_natural_lines(text), 1):
        line = natural.lstrip(_WHITE)
        if not parts:
            start = number
            if not line or line[0] in "#!":
                continue
        if _continues(line):
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield from _joined(start, number, parts)
        parts = []
    yield from _joined(start, number, parts)


def _joined(start: int, last: int, parts: list[str]) -> Iterator[tuple[int, int, str]]:
    line = "".join(parts)
    if line:
        yield start, last, line


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Cut at the first separator that no backslash precedes: white space with at most one `=` or `:` in it."""
    position, length = 0, len(line)
    while position < length and line[position] not in "=:" + _WHITE:
        position += 2 if line[position] == "\\" else 1
    position = min(position, length)
    rest = line[position:].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return line[:position], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    result: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            result.append(character)
            continue
        escaped = next(characters, "")
        result.append(_unicode(characters) if escaped == "u" else _ESCAPES.get(escaped, escaped))
    return _join_surrogates("".join(result))


def _unicode(characters: Iterator[str]) -> str:
    digits = "".join(next(characters, "") for _ in range(4))
    if len(digits) != 4 or not _HEX.issuperset(digits):
        raise ValueError("Malformed \\uxxxx encoding.")
    return chr(int(digits, 16))


def _join_surrogates(text: str) -> str:
    """Java's characters are UTF-16 units: two escapes may make one character; a lone one becomes `?`."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace").replace("\ufffd", "?") \
        if any("\ud800" <= character <= "\udfff" for character in text) else text


def escape(text: str, is_key: bool = False) -> str:
    """`text` so that `loads` and Java give it back; a plain ASCII text stays as it is."""
    result = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\f", "\\f")
    if is_key:
        result = "".join("\\" + character if character in "=: \t#!" else character for character in result)
    elif result[:1] in (" ", "\t"):
        result = "\\" + result
    if result.isascii():
        return result
    units = result.encode("utf-16-be", "surrogatepass")
    codes = (high << 8 | low for high, low in zip(units[::2], units[1::2]))
    return "".join(chr(code) if code < 128 else f"\\u{code:04X}" for code in codes)
