"""JSON as fastjson 1.2.69 reads and writes it: the text of RocketMQ's bodies and config files.

`loads` reads standard JSON, and fastjson's extensions of it: integer keys without quotes (`{0:100}`), objects as keys
(`{{"topic":"T"}:1}`), names without quotes, single quotes, trailing commas, raw control characters in strings, and
references to earlier values (`{"$ref":"$.a[0]"}`). `parse` is its slow path, one token at a time and without recursion,
for the texts that the standard library refuses: those with unquoted or object keys, and malformed ones.

`dumps` writes byte for byte like fastjson with its default features. Objects (dataclasses): fields sorted by name, None
omitted, enums by name. Maps: the map's own order, None omitted, keys that are not strings without quotes. Pretty: tabs,
`"key":value` without a space; entries whose keys are not strings stay on one line, and so do sets and tuples. Control
characters (also 0x7f to 0x9f, U+2028, U+2029) as \\uXXXX.
"""
import binascii
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum
from typing import Any

from rmqha.common.futures import AtomicBoolean, AtomicLong
from rmqha.common.garbage_pause import no_garbage_collection
from rmqha.common.lazy_dataclasses import fields, is_dataclass
from rmqha.common.texts import cached

MAX_DEPTH = 512
# Integers hash to themselves: whoever chooses many can choose those that a dict or a set looks for in the same places.
# Those of 16 bits are too few for that.
MAX_WIDE_KEYS = 1024  # numbers that are keys of one object, and not within 0 to 65535

# Possessive wherever a run may be long: nothing is remembered for each character, and nothing tried again. (Groups that
# can fail in their midst are not: Python 3.11.0 to 3.11.4 forget to go back to where such a group began.)
# Patterns of what is rare are compiled at their first use.
_TOKEN = (
    r"""(?xs)[ \t\r\n\f\b]*+(?:
        ([{}\[\],:])                                           # 1 structure
      | "([^"\\]*+(?:\\.[^"\\]*+)*+)"                          # 2 text
      | '([^'\\]*+(?:\\.[^'\\]*+)*+)'                          # 3 text in single quotes
      | ([+-]?\d++)(?![.\w])                                   # 4 integer
      | ([+-]?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?)(?![\w.])      # 5 number
      | ([A-Za-z_$][\w$]*+)                                    # 6 name
      | (\Z)                                                   # 7 end
    )""")
_ESCAPE = r"(?s)\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))"
_SURROGATE = "[\ud800-\udfff]"
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "'": "'", "\\": "\\", "/": "/", "v": "\v",
            **{str(digit): chr(digit) for digit in range(8)}}
_CONSTANTS = {"true": True, "false": False, "null": None}
_STRUCTURE, _NAME, _END = 1, 6, 7
_LONG = 1 << 63
# What may come next.
_VALUE, _AFTER_VALUE, _KEY, _COLON = range(4)


def brief(value: object, most: int = 50) -> str:
    """A value that was read, for an error: of megabytes nothing is made but their beginning."""
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return f"{value[:most]!r:.{most}}" if isinstance(value, str) else f"{value!r:.{most}}"


class FastjsonError(ValueError):
    """A text that is not JSON, or not of the wanted shape. `position` counts characters.

    Java: com.alibaba.fastjson.JSONException
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message}, pos {position}")
        self.position = position


class FrozenObject(dict[object, object]):
    """An object that is a key of another one, or stands in one. Hashable, so not to be changed.

    Its hash is made once, of the hashes of what it holds: a key pays for its own length, however deep it is.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]  # a dict has none
        try:
            return self._hash
        except AttributeError:
            pairs = [(_text_hash(key), _text_hash(item)) for key, item in self.items()]
            self._hash = hash(f"{{{hash(frozenset(pairs))}")
            return self._hash


class FrozenList(tuple[object, ...]):
    """A list that is a key of an object, or stands in one. Its hash is made once."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash("[" + ",".join([str(_text_hash(item)) for item in self]))
            return self._hash


def _text_hash(value: object) -> int:
    """The hash of a value's text, which nobody can foresee: numbers with equal hashes can be chosen at will.

    It differs for 1 and "1"; else all objects of these two would have one hash.
    """
    return hash(value) if isinstance(value, (FrozenObject, FrozenList)) else hash(repr(value))


def is_wide(number: float) -> bool:
    """Whether a number counts among those of MAX_WIDE_KEYS."""
    return not 0 <= number <= 0xFFFF or type(number) is not int


def parse(text: str, most_wide: int | None = MAX_WIDE_KEYS) -> object:
    """The value of a text in fastjson's dialect; FastjsonError with the position of what is wrong.

    `most_wide`: numbers beyond 16 bits that are keys of one object; None for a text that no stranger has written.
    """
    return _Parser(text, most_wide).run()


class _Parser:
    """A stack of open containers, a pending key for each, and what may come next."""

    def __init__(self, text: str, most_wide: int | None) -> None:
        self.text = text
        self.match = re.compile(_TOKEN).match
        self.most_wide = most_wide
        self.position = 0
        self.containers: list[dict[Any, Any] | list[Any]] = []
        self.keys: list[object] = []  # the key a value is awaited for, per container
        self.wide_keys: list[int] = []  # numbers beyond 16 bits among the keys, per container
        self.as_key: list[bool] = []  # the container itself is a key of the one around it
        self.keys_open = 0  # of these; what is closed within one is frozen
        self.expected = _VALUE
        self.result: object = None

    def run(self) -> object:
        """Consume all tokens."""
        while True:
            match = self.match(self.text, self.position)
            if match is None:
                raise FastjsonError("syntax error", self.position)
            kind = match.lastindex
            if kind == _END:
                if self.containers or self.expected == _VALUE:
                    raise FastjsonError("unclosed text", len(self.text))
                return self.result
            self.take(kind, match.group(kind))  # type: ignore[arg-type]  # each alternative is a group
            self.position = match.end()

    def take(self, kind: int, token: str) -> None:
        """One token, of any kind but the end."""
        if self.expected == _COLON:
            self.require(kind == _STRUCTURE and token == ":", "expect :")
            self.expected = _VALUE
        elif self.expected == _AFTER_VALUE:
            self.take_after_value(kind, token)
        elif kind == _STRUCTURE:
            self.take_structure(token)
        elif self.expected == _KEY:
            self.set_key(token if kind == _NAME else self.key(kind, token))
        else:
            self.place(self.scalar(kind, token))

    def take_structure(self, token: str) -> None:
        """A bracket where a value or a key may stand."""
        if token == "{" or token == "[":
            self.require(len(self.containers) < MAX_DEPTH, f"more than {MAX_DEPTH} levels")
            self.as_key.append(self.expected == _KEY)
            self.keys_open += self.as_key[-1]
            self.containers.append({} if token == "{" else [])
            self.keys.append(None)
            self.wide_keys.append(0)
            self.expected = _KEY if token == "{" else _VALUE
        elif token == "}" and self.expected == _KEY:
            self.close()
        elif token == "]" and self.containers and isinstance(self.containers[-1], list):
            self.close()
        else:
            self.require(False, f"unexpected {token}")

    def take_after_value(self, kind: int, token: str) -> None:
        """A comma, or the end of the container."""
        self.require(bool(self.containers) and kind == _STRUCTURE, "not close json text")
        inside = self.containers[-1]
        if token == ",":
            self.expected = _KEY if isinstance(inside, dict) else _VALUE
        else:
            self.require(token == ("}" if isinstance(inside, dict) else "]"), f"unexpected {token}")
            self.close()

    def close(self) -> None:
        """The innermost container is complete: it is a value, or a key."""
        container = self.containers.pop()
        self.keys.pop()
        self.wide_keys.pop()
        value = _frozen(container) if self.keys_open else container
        if self.as_key.pop():
            self.keys_open -= 1
            self.set_key(value)
        else:
            self.place(value)

    def place(self, value: object) -> None:
        """A complete value goes into the container around it."""
        self.expected = _AFTER_VALUE
        if not self.containers:
            self.result = value
        elif isinstance(self.containers[-1], dict):
            self.containers[-1][self.keys[-1]] = value
        else:
            self.containers[-1].append(value)

    def set_key(self, key: object) -> None:
        """A complete key waits for its value."""
        self.keys[-1] = key
        self.expected = _COLON

    def key(self, kind: int, token: str) -> object:
        """A text or a number as a key. Integers are a Long's: beyond, any number of them have the same hash."""
        # Differs: fastjson makes a BigInteger of a longer one, and takes any number of numbers as keys
        value = self.scalar(kind, token)
        if isinstance(value, (int, float)):
            self.require(isinstance(value, float) or -_LONG <= value < _LONG, "a key beyond 64 bits")
            if is_wide(value):
                self.wide_keys[-1] += 1
                self.require(self.most_wide is None or self.wide_keys[-1] <= self.most_wide,
                             f"more than {self.most_wide} keys of an object beyond 16 bits")
        return value

    def scalar(self, kind: int, token: str) -> object:
        """The value of a text, a number or a constant."""
        if kind in (2, 3):
            return self.text_of(token) if "\\" in token else token
        if kind == 4:
            return self.integer(token)
        if kind == 5:
            return float(token)
        self.require(token in _CONSTANTS, f"{token:.50} is no value")
        return _CONSTANTS[token]

    def text_of(self, token: str) -> str:
        """The text of a token with escapes."""
        text = re.sub(_ESCAPE, self.unescape, token)
        if re.search(_SURROGATE, text) is None:
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins the pairs

    def integer(self, token: str) -> int:
        """An int; Python takes 4300 digits."""
        try:
            return int(token)
        except ValueError as error:
            raise FastjsonError(str(error), self.position) from None

    def unescape(self, match: re.Match[str]) -> str:
        """The character of one escape."""
        code = match[1] or match[2]
        if code:
            return chr(int(code, 16))
        self.require(match[3] in _ESCAPES, f"unclosed string : {match[3]}")
        return _ESCAPES[match[3]]

    def require(self, condition: bool, message: str) -> None:
        """Raise FastjsonError at the current token unless `condition`."""
        if not condition:
            raise FastjsonError(f"syntax error, {message}", self.position)


def _frozen(container: dict[Any, Any] | list[Any]) -> FrozenObject | FrozenList:
    """A container in a key, whose own containers are frozen. Its hash is made now: none is made of several levels."""
    frozen = FrozenObject(container) if isinstance(container, dict) else FrozenList(container)
    hash(frozen)
    return frozen


# Differs: fastjson writes values of any depth
MAX_WRITTEN_DEPTH = 128  # levels; what is deeper came from a stranger, and each Python would stop elsewhere

SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_OR_FOREIGN = '["\\\\/\x00-\x1f]|[^\x00-\x7e]'
_EXACT_IN_DOUBLE = (1 << 53) - 1
_SCALARS = (bool, Enum, int, float, str, AtomicLong, AtomicBoolean)
_SHORT = {"/": "\\/", '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def dumps(value: object, pretty: bool = False, quote_field_names: bool = False, browser_compatible: bool = False,
          sort_keys: bool = False) -> str:
    """`value` as fastjson's text. `quote_field_names`: other than string keys become strings, as in standard JSON.

    `browser_compatible` quotes them too, escapes what is not ASCII, and quotes integers that a double does not hold.
    `sort_keys` sorts maps, too.
    Raises TypeError for a type that has no JSON, FastjsonError for more than MAX_WRITTEN_DEPTH levels.
    """
    writer = _Writer(pretty, quote_field_names or browser_compatible, browser_compatible, sort_keys)
    writer.write(value)
    return "".join(writer.parts)


class WrittenEntries:
    """A map in whose place the texts of its entries are there: what `entry_text` gave, in the map's order."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts


def entry_text(key: str, value: object, depth: int) -> str:
    """An entry of a map as pretty text, with the new line before it; `depth` is the number of tabs."""
    writer = _Writer(True, False, False, False)
    writer.depth = depth
    writer.write_key(key)
    writer.parts.append(":")
    writer.write(value)
    return "".join(writer.parts)


def quote(text: str) -> str:
    """A string in quotes."""
    return f'"{text}"' if SPECIAL.search(text) is None else f'"{SPECIAL.sub(_escape, text)}"'


def quote_ascii(text: str) -> str:
    """A string in quotes for browsers: ASCII only, others as the \\uXXXX of their UTF-16 units; `/` as `\\/`."""
    return f'"{re.sub(_SPECIAL_OR_FOREIGN, _escape, text)}"'


def java_double(number: float) -> str:
    """A float as Java's Double.toString; `null` for NaN and infinities, as fastjson writes them."""
    if not math.isfinite(number):
        return "null"
    from decimal import Decimal  # a millisecond, and few bodies have such numbers

    exact = Decimal(repr(number))
    exponent = exact.adjusted() if number else 0
    if -3 <= exponent < 7:
        text = format(exact, "f")
        return text if "." in text else text + ".0"
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code > 0xFFFF:
        code -= 0x1_0000
        return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
    return f"\\u{code:04X}"


@cached
def json_fields(cls: type) -> tuple[tuple[str, str], ...]:
    """(name, `"name":`) of what is written of a dataclass, in fastjson's order.

    All fields but those with `metadata={"json": False}` and those that begin with an underscore, and the names in the
    class's JSON_GETTERS: properties that Java writes because they look like getters.
    """
    names = [f.name for f in fields(cls) if f.metadata.get("json", True) and not f.name.startswith("_")]
    return tuple((name, f'"{name}":') for name in sorted([*names, *getattr(cls, "JSON_GETTERS", ())]))


class _Writer:
    """One run over a value; `parts` is the text so far."""

    def __init__(self, pretty: bool, quote_keys: bool, ascii_only: bool, sort_keys: bool) -> None:
        self.parts: list[str] = []
        self.pretty = pretty
        self.quote_keys = quote_keys
        self.sort_keys = sort_keys
        self.quote: Callable[[str], str] = quote_ascii if ascii_only else quote
        self.max_integer = _EXACT_IN_DOUBLE if ascii_only else None
        self.depth = 0  # tabs
        self.level = 0  # containers that are open, keys counted

    def line(self) -> None:
        """A new line at the current depth, when pretty."""
        if self.pretty:
            self.parts.append("\n" + "\t" * self.depth)

    def write(self, value: object) -> None:
        """Any value."""
        if type(value) is str:
            self.parts.append(self.quote(value))
        elif value is None or isinstance(value, _SCALARS):
            self.parts.append(self.scalar(value))
        elif self.level == MAX_WRITTEN_DEPTH:
            raise FastjsonError(f"more than {MAX_WRITTEN_DEPTH} levels to write")
        else:
            self.level += 1
            self.write_container(value)
            self.level -= 1

    def write_container(self, value: object) -> None:
        """What is neither a text nor a scalar."""
        if isinstance(value, Mapping):
            self.write_map(value)
        elif isinstance(value, list):
            self.write_list(value)
        elif isinstance(value, (Set, tuple)):
            self.write_collection(value)
        elif isinstance(value, WrittenEntries):
            self.write_written(value)
        elif isinstance(value, (bytes, bytearray)):
            self.parts.append(f'"{binascii.b2a_base64(value, newline=False).decode()}"')
        elif is_dataclass(type(value)):
            self.write_bean(value)
        else:
            raise TypeError(f"{type(value).__name__} has no JSON")

    def scalar(self, value: object) -> str:
        """None, a flag, an enum or a number."""
        if isinstance(value, (AtomicLong, AtomicBoolean)):
            value = value.get()
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Enum):
            return f'"{value.name}"'
        if isinstance(value, str):
            return self.quote(value)
        if isinstance(value, float):
            return java_double(value)
        plain = self.max_integer is None or abs(value) <= self.max_integer  # type: ignore[arg-type]  # an int is left
        return str(value) if plain else f'"{value}"'

    def write_bean(self, value: object) -> None:
        """A dataclass: its fields by name, one per line when pretty, without those that are None."""
        self.parts.append("{")
        self.depth += 1
        self.line()
        first = True
        for name, prefix in json_fields(type(value)):
            item = getattr(value, name)
            if item is None:
                continue
            if not first:
                self.parts.append(",")
                self.line()
            first = False
            self.parts.append(prefix)
            self.write(item)
        self.depth -= 1
        self.line()
        self.parts.append("}")

    def write_map(self, value: Mapping[Any, object]) -> None:
        """A map: string keys one per line when pretty, other keys all on one line."""
        self.parts.append("{")
        self.depth += 1
        first = True
        for key in sorted(value) if self.sort_keys else value:
            item = value[key]
            if item is None:
                continue
            if not first:
                self.parts.append(",")
            first = False
            self.write_key(key)
            self.parts.append(":")
            self.write(item)
        self.depth -= 1
        if value:
            self.line()
        self.parts.append("}")

    def write_written(self, value: WrittenEntries) -> None:
        """A map whose entries have their texts."""
        self.parts.append("{")
        self.parts.append(",".join(value.texts))
        if value.texts:
            self.line()
        self.parts.append("}")

    def write_key(self, key: object) -> None:
        """A map's key."""
        if isinstance(key, str):
            self.line()
            self.parts.append(self.quote(key))
        elif self.quote_keys and not isinstance(key, Enum):
            self.parts.append(self.quote(dumps(key)))
        else:
            self.write(key)

    def write_list(self, value: list[Any]) -> None:
        """A list: one item per line when pretty."""
        if not value:
            self.parts.append("[]")
            return
        self.parts.append("[")
        self.depth += 1
        for index, item in enumerate(value):
            if index:
                self.parts.append(",")
            self.line()
            self.write(item)
        self.depth -= 1
        self.line()
        self.parts.append("]")

    def write_collection(self, value: Set[object] | tuple[object, ...]) -> None:
        """A set or an array: no new lines of its own."""
        self.parts.append("[")
        for index, item in enumerate(value):
            if index:
                self.parts.append(",")
            self.write(item)
        self.parts.append("]")


__all__ = ["MAX_DEPTH", "FastjsonError", "FrozenList", "FrozenObject", "dumps", "loads"]

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_KEPT_ESCAPE = (r"(?as)\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"  # a pair
                r"|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)")
_REF_STEP = r"\.([^.\[]++)|\[([0-9]{1,9})\]"
MAX_DEPTH_OF_REFERENCES = MAX_WRITTEN_DEPTH  # of a text with them, the values that they lead through counted
_FREE_COPIES = 256  # values that references may copy, however short the text is
_CONTAINERS = (dict, list, FrozenList)
_LARGE = 64 << 10  # characters
_CHARACTERS_PER_VALUE = 16  # a text that is copied counts as a value for each of these


# Differs: fastjson reads NaN and undefined as null, any depth, and an empty text as null; and it writes an object that
# occurs twice as a reference, which is read here but never written.
def refuse_constant(name: str) -> object:
    """For json decoders: NaN and infinities are refused."""
    raise FastjsonError(f"{name} is no value", 0)


_decoder = json.JSONDecoder(strict=False, parse_constant=refuse_constant)


def loads(source: str | bytes | bytearray | memoryview) -> object:
    """The value of a JSON text: dict, list, str, int, float, bool or None.

    Integer keys become int, object keys FrozenObject. Bytes are UTF-8; wrong sequences become U+FFFD as in Java.
    Raises FastjsonError for anything else, for NaN and infinities, for more than MAX_DEPTH levels, for integers of
    more digits than Python takes, and for an empty text. Bytes come from others: they may have MAX_WIDE_KEYS.
    """
    text, most_wide = (source, None) if isinstance(source, str) else (str(source, "utf-8", "replace"),
                                                                      MAX_WIDE_KEYS)
    try:
        value = _parse(encodable(text), most_wide)
        return _References(value, text).resolve(value) if '"$ref"' in text else value
    except RecursionError:
        raise FastjsonError(f"more than {MAX_DEPTH} levels", 0) from None


def _parse(text: str, most_wide: int | None) -> object:
    try:
        value = _decode(text)
        if text.count("{") + text.count("[") > MAX_DEPTH:
            check_depth(value)
        return value
    except json.JSONDecodeError:
        return parse(text, most_wide)  # fastjson's dialect, or an error with its position
    except ValueError as error:
        raise error if isinstance(error, FastjsonError) else FastjsonError(str(error), 0) from None


def _decode(text: str) -> object:
    if len(text) < _LARGE:
        return _decoder.decode(text)
    with no_garbage_collection:  # the decoder holds the interpreter; with the collector up to five times as long
        return _decoder.decode(text)


def encodable(text: str) -> str:
    """`text` with `?` for half a surrogate pair: what Java writes for it where bytes are needed."""
    return re.sub(_KEPT_ESCAPE, _whole_escape, text) if _SURROGATE_ESCAPE.search(text) else text


def _whole_escape(match: re.Match[str]) -> str:
    return "?" if match.lastgroup == "half" else match[0]


def check_depth(value: object, most: int = MAX_DEPTH) -> None:
    """FastjsonError when a value that was read has more than `most` levels, those of its keys counted."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > most:
            raise FastjsonError(f"more than {most} levels", 0)
        level = [child for parent in level for child in _children(parent) if isinstance(child, _CONTAINERS)]


def _children(value: object) -> Iterable[object]:
    """What a container holds, keys first."""
    if isinstance(value, dict):
        return itertools.chain(value, value.values())
    return value if isinstance(value, _CONTAINERS) else ()


# Differs: fastjson shares what is referred to, and never tires of it.
class _References:
    """Copies what each reference points to into its place, as long as the text has two bytes for each value copied.

    So whoever walks over the result pays for the text's length, however often a value is referred to. A reference
    that leads to what it stands in stays as it is.
    """

    def __init__(self, root: object, text: str) -> None:
        self._root = root
        self._left = _FREE_COPIES + len(text) // 2  # values that may be copied yet
        self._open: list[str] = []  # the paths whose values are being copied
        self._depth = 0  # of what is being copied, in the values that the paths lead through

    def resolve(self, value: object) -> object:
        """`value` without references. FastjsonError for one that leads nowhere, or when they lead to too much."""
        if self._open:
            self._pay(value)
        if not isinstance(value, (list, dict)):
            return value
        if self._depth == MAX_DEPTH_OF_REFERENCES:
            raise FastjsonError(f"references in more than {MAX_DEPTH_OF_REFERENCES} levels", 0)
        self._depth += 1
        try:
            return self._resolved(value)
        finally:
            self._depth -= 1

    def _resolved(self, value: list[Any] | dict[Any, Any]) -> object:
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        path = value.get("$ref")
        if len(value) == 1 and isinstance(path, str) and path.startswith("$"):
            return self._copy(path, value)
        return {key: self.resolve(item) for key, item in value.items()}

    def _copy(self, path: str, reference: dict[Any, Any]) -> object:
        if path in self._open:
            return reference
        target = _lookup(self._root, path)
        self._open.append(path)
        try:
            return self.resolve(target)
        finally:
            self._open.pop()

    def _pay(self, value: object) -> None:
        """Take the price of a value that is copied; what it holds pays for itself, but for the names in an object."""
        price = 1 + _length(value) // _CHARACTERS_PER_VALUE
        if isinstance(value, dict):
            price += sum(map(_length, value)) // _CHARACTERS_PER_VALUE
        self._left -= price
        if self._left < 0:
            raise FastjsonError("references to more than the text holds")


def _length(value: object) -> int:
    """Characters of a text; those of an object that is a key, each of its values counted as several."""
    length, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            length += len(value)
        elif isinstance(value, (FrozenObject, FrozenList)):
            values += _children(value)
            length += (1 + len(value)) * _CHARACTERS_PER_VALUE
    return length


def _lookup(root: object, path: str) -> object:
    """The value at a path such as `$.a.b[0]`; FastjsonError when there is none, or it is a reference itself."""
    try:
        for name, index in re.findall(_REF_STEP, path):
            root = root[name] if name else root[int(index)]  # type: ignore[index]  # TypeError: no container
    except (KeyError, IndexError, TypeError) as error:
        raise FastjsonError(f"nothing at {path:.100}", 0) from error
    if isinstance(root, dict) and "$ref" in root:
        raise FastjsonError(f"a reference to a reference at {path:.100}", 0)
    return root
