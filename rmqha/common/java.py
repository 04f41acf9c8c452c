"""Rules of Java, and RocketMQ's version numbers, that are visible in files, in the environment and on the wire.

- `int32`, `string_hash_code`, `hash_map_order`: integer overflow, String.hashCode and the iteration order of HashMap.
- `load`, `loads`, `edited`: the `.properties` format, as java.util.Properties reads it. A logical line is `key`, then
  white space, `=` or `:`, then `value`. A line that begins with `#` or `!` is a comment. A line end after an odd number
  of backslashes continues the line. `\\t \\n \\r \\f` and `\\uXXXX` are escapes; any other escaped character means
  itself. Bytes are ISO-8859-1. The last of equal keys wins. White space at the end of a value belongs to the value.
- `get_property`: Java's system properties in a process that is not a JVM: `-Dname=value` in JAVA_OPT or JAVA_OPT_EXT,
  which the original's start scripts concatenate in this order; the last one wins. Without one, the environment variable
  named like the property in capitals with underscores: `rocketmq.serialize.type` is ROCKETMQ_SERIALIZE_TYPE,
  `tls.server.keyPath` is TLS_SERVER_KEYPATH.
- `Version`: the version numbers that clients and servers put into each command.
"""
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import overload

# Longer texts are not cached: they come from peers, which could fill the cache's memory with them.
_CACHED_LENGTH = 128  # characters
_CACHED_KEYS_LENGTH = 1024  # characters of all keys together


def int32(value: int) -> int:
    """Return `value` wrapped to a signed 32-bit integer."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def int64(value: int) -> int:
    """Return `value` wrapped to a signed 64-bit integer."""
    return ((value + 0x8000_0000_0000_0000) & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000


def string_of(text: str | None) -> str:
    """Return a text as Java's string concatenation writes it: "null" for None."""
    return "null" if text is None else text


def uncached_hash_code(text: str) -> int:
    """Return `string_hash_code` without the cache, for texts that occur once."""
    result = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            result = (31 * result + unit) & 0xFFFF_FFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2]):
            result = (31 * result + (high << 8 | low)) & 0xFFFF_FFFF
    return result - 0x1_0000_0000 if result & 0x8000_0000 else result


_cached_hash_code = lru_cache(maxsize=8192)(uncached_hash_code)


def string_hash_code(text: str) -> int:
    """Return Java's String.hashCode: signed 32 bits over the UTF-16 units.

    Short texts are cached, because tags and names repeat.

    Java: java.lang.String#hashCode
    """
    return _cached_hash_code(text) if len(text) <= _CACHED_LENGTH else uncached_hash_code(text)


def _spread(text: str) -> int:
    unsigned = string_hash_code(text) & 0xFFFF_FFFF
    return unsigned ^ (unsigned >> 16)


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return the distinct `keys` in the order in which Java iterates over a new HashMap that they were put into.

    The order is by bucket, which the spread hash decides, and within a bucket by insertion. The table starts with 16
    buckets and doubles when it is more than 3/4 full. A split keeps the order within a bucket, so the final table
    decides. Not modelled: in tables of 64 buckets and more, a bucket of 8 entries and more becomes a tree, whose root
    moves to the front. Property names do not collide that often.

    Java: java.util.HashMap
    """
    distinct = tuple(dict.fromkeys(keys))
    if sum(map(len, distinct)) <= _CACHED_KEYS_LENGTH:
        return list(_cached_hash_map_order(distinct))
    return list(_hash_map_order(distinct))


def _hash_map_order(keys: tuple[str, ...]) -> tuple[str, ...]:
    capacity = 16
    while len(keys) > capacity * 3 // 4:
        capacity *= 2
    return tuple(sorted(keys, key=lambda key: _spread(key) & (capacity - 1)))


_cached_hash_map_order = lru_cache(maxsize=4096)(_hash_map_order)


_WHITE = " \t\f"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = frozenset("0123456789abcdefABCDEF")


class PropertiesError(ValueError):
    """A text that is not valid `.properties` text; `line` is the line of the error, from 1.

    Java: java.lang.IllegalArgumentException
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


class JavaProperties(dict[str, str]):
    """Key -> value, in the file's order; `lines` has the line, from 1, on which each key was last set.

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
    """Return `text` with these keys set to these values. Comments, order, line ends and all other keys stay.

    A key is set at its last occurrence, which is the one that counts. A new key is added at the end.
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
        # The number of elements stays the same, so the other places stay valid.
        lines[first:last] = [said, *[""] * (last - first - 1)]
    result = "".join(lines)
    if added and result and not result.endswith(("\r", "\n")):
        result += end
    if added and _continues(_natural_lines(result.removesuffix(end))[-1]):
        # The last line's backslash continues it with an empty line.
        result += end
    return result + "".join(added)


def _natural_lines(text: str) -> list[str]:
    # not splitlines(), which also splits at other characters
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (number of the first natural line, number of the last, joined line).

    Blank lines, comments and leading white space are left out.
    """
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
    """Split at the first unescaped separator: white space with at most one `=` or `:` in it."""
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
    """Join pairs of surrogates: two `\\uXXXX` escapes may make one character. A lone surrogate becomes `?`."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace").replace("\ufffd", "?") \
        if any("\ud800" <= character <= "\udfff" for character in text) else text


def escape(text: str, is_key: bool = False) -> str:
    """Escape `text` so that `loads` and Java read it back. Plain ASCII text stays as it is."""
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


JAVA_OPTIONS = ("JAVA_OPT", "JAVA_OPT_EXT")


@overload
def get_property(name: str, default: str) -> str: ...


@overload
def get_property(name: str, default: None = None) -> str | None: ...


def get_property(name: str, default: str | None = None) -> str | None:
    """Return the property's value; `default` when it is not set.

    Java: java.lang.System#getProperty
    """
    flag = f"-D{name}"
    for variable in reversed(JAVA_OPTIONS):
        for option in reversed(_words(os.environ.get(variable, ""))):
            if option == flag or option.startswith(flag + "="):
                return option[len(flag) + 1:]
    return os.environ.get(name.upper().replace(".", "_"), default)


def parse_boolean(text: str | None) -> bool:
    """Return True for `true` in upper or lower case, False for everything else.

    Java: java.lang.Boolean#parseBoolean
    """
    return text is not None and text.lower() == "true"


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        # An unclosed quote: split at white space.
        return options.split()


def _version_names() -> list[str]:
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", *(f"V3_0_0_BETA{n}" for n in range(1, 6))]
    for beta in range(6, 10):
        names += [f"V3_0_0_BETA{beta}_SNAPSHOT", f"V3_0_0_BETA{beta}"]
    names.append("V3_0_0_FINAL")
    for major, minor, first, last in _series():
        for patch in range(first, last + 1):
            names += [f"V{major}_{minor}_{patch}_SNAPSHOT", f"V{major}_{minor}_{patch}"]
    return [*names, "HIGHER_VERSION"]


def _series() -> list[tuple[int, int, int, int]]:
    """Return (major, minor, first patch, last patch). 3.0 ran to 3.0.15; 3.3 to 3.9 have no patch 0."""
    series = [(3, 0, 1, 15), (3, 1, 0, 9), (3, 2, 0, 9)]
    series += [(3, minor, 1, 9) for minor in range(3, 10)]
    series += [(major, minor, 0, 9) for major in (4, 5) for minor in range(10)]
    return series


_NAMES = _version_names()
Version = {name: number for number, name in enumerate(_NAMES)}
"""Every version that 4.9.8 knows: name -> number on the wire (V4_9_8 is 409). A dict: an enum takes 7 ms to create."""

CURRENT_VERSION = Version["V4_9_8"]


def get_version_desc(value: int) -> str:
    """Return the name of a version number; HIGHER_VERSION for a number above all known ones.

    Java: org.apache.rocketmq.common.MQVersion (4.9.8)
    """
    return _NAMES[value2version(value)]


def value2version(value: int) -> int:
    """Return the number of a known version; that of HIGHER_VERSION for one above them. ValueError for a negative one.

    Java: org.apache.rocketmq.common.MQVersion$Version (4.9.8)
    """
    if value < 0:
        raise ValueError(f"{value} is not a valid version number")
    return min(value, len(_NAMES) - 1)
