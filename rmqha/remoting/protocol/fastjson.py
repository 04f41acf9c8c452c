"""JSON as fastjson 1.2.69 reads and writes it: the text of RocketMQ's bodies and config files.

The dialect
-----------
RocketMQ serializes Java maps with fastjson, and fastjson writes a map's keys like values. A map from broker ids to
addresses becomes `{0:"10.0.0.1:10911"}`, and one from queues to offsets `{{"topic":"T"}:1}`. Neither is JSON, and a
standard parser refuses it, yet brokers, clients and `mqadmin` exchange such texts all the time. Java clients parse ours
the same way, and files that were written here must remain readable by Java. So both directions follow fastjson:

- `loads` reads standard JSON and fastjson's extensions: integer keys without quotes, objects as keys, names without
  quotes, single quotes, trailing commas, raw control characters in strings, and references to earlier values
  (`{"$ref":"$.a[0]"}`). Most texts are standard JSON, so the standard library, which is much faster, tries first.
  `parse` is the slow path for what it refuses. It takes one token at a time and does not recurse.
- `dumps` writes byte for byte like fastjson with its default features. Objects (dataclasses): fields sorted by name,
  None omitted, enums by name. Maps: in the map's own order, None omitted, keys that are not strings without quotes.
  Pretty: tabs, `"key":value` without a space; entries whose keys are not strings stay on one line, and so do sets and
  tuples. Control characters (also 0x7f to 0x9f, U+2028, U+2029) as \\uXXXX.

The texts come from the network, and the dialect makes attacks possible that plain JSON does not know: integer keys that
all collide in a dict (MAX_WIDE_KEYS), objects as keys whose hashes are expensive or equal (FrozenObject), references
that expand a short text into a huge value (_References), and depth that exhausts the stack (MAX_DEPTH). In each case
the rule is the same: reading a text costs at most time and memory in proportion to its length, and a text that would
cost more is refused.
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
# The limit of numeric keys of one object that are not integers from 0 to 65535. Integers hash to themselves, so a peer
# that chooses many of them can choose those that collide in a dict or a set. There are too few of 16 bits for that.
MAX_WIDE_KEYS = 1024

# Quantifiers are possessive wherever a run may be long: the matcher then stores nothing per character, and does not
# backtrack. Groups that can fail half-way are not, because Python 3.11.0 to 3.11.4 do not return to where such a group
# began. Patterns for rare cases are compiled at their first use.
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
# The tokens that may come next.
_VALUE, _AFTER_VALUE, _KEY, _COLON = range(4)


def brief(value: object, most: int = 50) -> str:
    """Return the beginning of a value for an error text. It does not format the rest, which may be megabytes."""
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return f"{value[:most]!r:.{most}}" if isinstance(value, str) else f"{value!r:.{most}}"


class FastjsonError(ValueError):
    """A text is not JSON, or does not have the expected structure. `position` is in characters.

    Java: com.alibaba.fastjson.JSONException
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message}, pos {position}")
        self.position = position


class FrozenObject(dict[object, object]):
    """An object that is a key of another object, or part of such a key. It is hashable and must not be changed.

    Its hash is computed once, from the hashes of its items, so a key costs time in proportion to its length, whatever
    its depth.
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
    """A list that is part of an object's key, or the key itself. Its hash is computed once."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash("[" + ",".join([str(_text_hash(item)) for item in self]))
            return self._hash


def _text_hash(value: object) -> int:
    """Return the hash of a value's text. A peer can't predict it, whereas it can choose numbers with equal hashes.

    It differs for 1 and "1"; otherwise all objects made of these two would have the same hash.
    """
    return hash(value) if isinstance(value, (FrozenObject, FrozenList)) else hash(repr(value))


def is_wide(number: float) -> bool:
    """Return whether a number counts towards MAX_WIDE_KEYS."""
    return not 0 <= number <= 0xFFFF or type(number) is not int


def parse(text: str, most_wide: int | None = MAX_WIDE_KEYS) -> object:
    """Return the value of a text in fastjson's dialect. Raises FastjsonError with the position of the fault.

    `most_wide`: the limit of wide numeric keys per object; None for a text from a trusted source.
    """
    return _Parser(text, most_wide).run()


class _Parser:
    """The parser's state: a stack of open containers, a pending key for each, and what may come next."""

    def __init__(self, text: str, most_wide: int | None) -> None:
        self.text = text
        self.match = re.compile(_TOKEN).match
        self.most_wide = most_wide
        self.position = 0
        self.containers: list[dict[Any, Any] | list[Any]] = []
        # Per open container: the key whose value comes next.
        self.keys: list[object] = []
        # Per open container: the number of its wide numeric keys.
        self.wide_keys: list[int] = []
        # Per open container: it is a key of the one around it.
        self.as_key: list[bool] = []
        # The number of open containers that are keys. Containers closed within one are frozen.
        self.keys_open = 0
        self.expected = _VALUE
        self.result: object = None

    def run(self) -> object:
        """Parse all tokens and return the value."""
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
        """Process one token, of any kind except the end."""
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
        """Process a bracket in place of a value or a key."""
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
        """Process a comma or the end of the container."""
        self.require(bool(self.containers) and kind == _STRUCTURE, "not close json text")
        inside = self.containers[-1]
        if token == ",":
            self.expected = _KEY if isinstance(inside, dict) else _VALUE
        else:
            self.require(token == ("}" if isinstance(inside, dict) else "]"), f"unexpected {token}")
            self.close()

    def close(self) -> None:
        """Complete the innermost container, which is a value or a key."""
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
        """Put a complete value into the container around it."""
        self.expected = _AFTER_VALUE
        if not self.containers:
            self.result = value
        elif isinstance(self.containers[-1], dict):
            self.containers[-1][self.keys[-1]] = value
        else:
            self.containers[-1].append(value)

    def set_key(self, key: object) -> None:
        """Set a complete key, whose value comes next."""
        self.keys[-1] = key
        self.expected = _COLON

    def key(self, kind: int, token: str) -> object:
        """Return a key that is a text or a number. Integers must fit a Long: longer ones can all have the same hash."""
        # Differs: a key of a map that is an integer has at most 64 bits, and the number of numeric keys is limited;
        # fastjson reads a longer integer as a BigInteger, and accepts any number of numeric keys
        value = self.scalar(kind, token)
        if isinstance(value, (int, float)):
            self.require(isinstance(value, float) or -_LONG <= value < _LONG, "a key of more than 64 bits")
            if is_wide(value):
                self.wide_keys[-1] += 1
                self.require(self.most_wide is None or self.wide_keys[-1] <= self.most_wide,
                             f"more than {self.most_wide} numeric keys beyond 16 bits in one object")
        return value

    def scalar(self, kind: int, token: str) -> object:
        """Return the value of a text, a number or a constant."""
        if kind in (2, 3):
            return self.text_of(token) if "\\" in token else token
        if kind == 4:
            return self.integer(token)
        if kind == 5:
            return float(token)
        self.require(token in _CONSTANTS, f"{token:.50} is not a valid value")
        return _CONSTANTS[token]

    def text_of(self, token: str) -> str:
        """Return the text of a token with escapes."""
        text = re.sub(_ESCAPE, self.unescape, token)
        if re.search(_SURROGATE, text) is None:
            return text
        # Join surrogate pairs.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def integer(self, token: str) -> int:
        """Return an int. Python reads at most 4300 digits."""
        try:
            return int(token)
        except ValueError as error:
            raise FastjsonError(str(error), self.position) from None

    def unescape(self, match: re.Match[str]) -> str:
        """Return the character of an escape."""
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
    """Freeze a container in a key; its inner ones are frozen already. It is hashed now, level by level."""
    frozen = FrozenObject(container) if isinstance(container, dict) else FrozenList(container)
    hash(frozen)
    return frozen


# Differs: the depth of written JSON is limited; fastjson writes values of any depth. Deeper ones are refused, because
# only an untrusted peer sends them and each version of Python has a limit of its own
MAX_WRITTEN_DEPTH = 128

SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_OR_FOREIGN = '["\\\\/\x00-\x1f]|[^\x00-\x7e]'
_EXACT_IN_DOUBLE = (1 << 53) - 1
_SCALARS = (bool, Enum, int, float, str, AtomicLong, AtomicBoolean)
_SHORT = {"/": "\\/", '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def dumps(value: object, pretty: bool = False, quote_field_names: bool = False, browser_compatible: bool = False,
          sort_keys: bool = False) -> str:
    """Return the text that fastjson writes for `value`.

    `quote_field_names` converts keys that are not strings to strings, as in standard JSON. `browser_compatible` does
    so, too, escapes characters that are not ASCII, and quotes integers that a double can't represent. `sort_keys` sorts
    maps as well. Raises TypeError for a type without a JSON representation, FastjsonError for more than
    MAX_WRITTEN_DEPTH levels.
    """
    writer = _Writer(pretty, quote_field_names or browser_compatible, browser_compatible, sort_keys)
    writer.write(value)
    return "".join(writer.parts)


class WrittenEntries:
    """A stand-in for a map: the texts of its entries, as returned by `entry_text`, in the map's order."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts


def entry_text(key: str, value: object, depth: int) -> str:
    """Return a map's entry as pretty text, with the new line before it. `depth` is the number of tabs."""
    writer = _Writer(True, False, False, False)
    writer.depth = depth
    writer.write_key(key)
    writer.parts.append(":")
    writer.write(value)
    return "".join(writer.parts)


def quote(text: str) -> str:
    """Return a string in quotes."""
    return f'"{text}"' if SPECIAL.search(text) is None else f'"{SPECIAL.sub(_escape, text)}"'


def quote_ascii(text: str) -> str:
    """Return a string in quotes for browsers: ASCII only, others as \\uXXXX of their UTF-16 units; `/` as `\\/`."""
    return f'"{re.sub(_SPECIAL_OR_FOREIGN, _escape, text)}"'


def java_double(number: float) -> str:
    """Return a float as Java's Double.toString does; `null` for NaN and infinities, as fastjson writes them."""
    if not math.isfinite(number):
        return "null"
    # Imported late: it takes a millisecond, and few bodies have such numbers.
    from decimal import Decimal

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
    """Return (name, `"name":`) of everything that is written of a dataclass, in fastjson's order.

    These are all fields, except for those with `metadata={"json": False}` and those whose names begin with an
    underscore, and the names in the class's JSON_GETTERS: properties that Java writes because they look like getters.
    """
    names = [f.name for f in fields(cls) if f.metadata.get("json", True) and not f.name.startswith("_")]
    return tuple((name, f'"{name}":') for name in sorted([*names, *getattr(cls, "JSON_GETTERS", ())]))


class _Writer:
    """The writer's state for one value. `parts` is the text so far."""

    def __init__(self, pretty: bool, quote_keys: bool, ascii_only: bool, sort_keys: bool) -> None:
        self.parts: list[str] = []
        self.pretty = pretty
        self.quote_keys = quote_keys
        self.sort_keys = sort_keys
        self.quote: Callable[[str], str] = quote_ascii if ascii_only else quote
        self.max_integer = _EXACT_IN_DOUBLE if ascii_only else None
        self.depth = 0  # tabs
        self.level = 0  # open containers, including keys

    def line(self) -> None:
        """Begin a new line at the current depth, if pretty."""
        if self.pretty:
            self.parts.append("\n" + "\t" * self.depth)

    def write(self, value: object) -> None:
        """Write any value."""
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
        """Write a value that is neither a text nor a scalar."""
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
            raise TypeError(f"{type(value).__name__} has no JSON representation")

    def scalar(self, value: object) -> str:
        """Return the text of None, a flag, an enum or a number."""
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
        """Write a dataclass: its fields by name, one per line if pretty, without None values."""
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
        """Write a map: string keys one per line if pretty, other keys all on one line."""
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
        """Write a map whose entries are already texts."""
        self.parts.append("{")
        self.parts.append(",".join(value.texts))
        if value.texts:
            self.line()
        self.parts.append("}")

    def write_key(self, key: object) -> None:
        """Write a map's key."""
        if isinstance(key, str):
            self.line()
            self.parts.append(self.quote(key))
        elif self.quote_keys and not isinstance(key, Enum):
            self.parts.append(self.quote(dumps(key)))
        else:
            self.write(key)

    def write_list(self, value: list[Any]) -> None:
        """Write a list, one item per line if pretty."""
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
        """Write a set or an array, without new lines of its own."""
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
# The greatest depth of a text with references, including the values that the references lead through.
MAX_DEPTH_OF_REFERENCES = MAX_WRITTEN_DEPTH
# References may copy this many values, however short the text is.
_FREE_COPIES = 256
_CONTAINERS = (dict, list, FrozenList)
_LARGE = 64 << 10  # characters
# A copied text counts as one value per this many characters.
_CHARACTERS_PER_VALUE = 16


# Differs: fastjson reads NaN, undefined and an empty text as null, and reads any depth; it writes an object that occurs
# twice as a reference, which is read here but never written
def refuse_constant(name: str) -> object:
    """Refuse NaN and infinities, as a json decoder's `parse_constant`."""
    raise FastjsonError(f"{name} is not a valid value", 0)


_decoder = json.JSONDecoder(strict=False, parse_constant=refuse_constant)


def loads(source: str | bytes | bytearray | memoryview) -> object:
    """Return the value of a JSON text: a dict, list, str, int, float, bool or None.

    Integer keys become int, object keys FrozenObject. Bytes are UTF-8; invalid sequences become U+FFFD as in Java.
    Raises FastjsonError for any other text, for NaN and infinities, for more than MAX_DEPTH levels, for integers of
    more digits than Python reads, and for an empty text. Bytes are untrusted, so MAX_WIDE_KEYS applies to them.
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
    # The decoder holds the GIL. With the garbage collector it takes up to five times as long.
    with no_garbage_collection:
        return _decoder.decode(text)


def encodable(text: str) -> str:
    """Return `text` with `?` for half a surrogate pair, which is what Java encodes it as."""
    return re.sub(_KEPT_ESCAPE, _whole_escape, text) if _SURROGATE_ESCAPE.search(text) else text


def _whole_escape(match: re.Match[str]) -> str:
    return "?" if match.lastgroup == "half" else match[0]


def check_depth(value: object, most: int = MAX_DEPTH) -> None:
    """Raise FastjsonError if a value that was read has more than `most` levels, including those of its keys."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > most:
            raise FastjsonError(f"more than {most} levels", 0)
        level = [child for parent in level for child in _children(parent) if isinstance(child, _CONTAINERS)]


def _children(value: object) -> Iterable[object]:
    """Return a container's keys and items, keys first."""
    if isinstance(value, dict):
        return itertools.chain(value, value.values())
    return value if isinstance(value, _CONTAINERS) else ()


# Differs: referenced JSON values are copied, up to a limit; fastjson shares them instead, without a limit
class _References:
    """Replaces each reference by a copy of its target, as long as the text has two characters for each copied value.

    Processing the result therefore costs time in proportion to the text's length, however often a value is referenced.
    A reference to a value that contains it stays as it is.
    """

    def __init__(self, root: object, text: str) -> None:
        self._root = root
        # The number of values that may still be copied.
        self._left = _FREE_COPIES + len(text) // 2
        # The paths whose values are being copied.
        self._open: list[str] = []
        # The depth of the value being copied, including the values that the paths lead through.
        self._depth = 0

    def resolve(self, value: object) -> object:
        """Return `value` without references. FastjsonError if one has no target, or if they expand to too much."""
        if self._open:
            self._pay(value)
        if not isinstance(value, (list, dict)):
            return value
        if self._depth == MAX_DEPTH_OF_REFERENCES:
            raise FastjsonError(f"references through more than {MAX_DEPTH_OF_REFERENCES} levels", 0)
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
        """Charge for a copied value. Its items are charged on their own, except for the names in an object."""
        price = 1 + _length(value) // _CHARACTERS_PER_VALUE
        if isinstance(value, dict):
            price += sum(map(_length, value)) // _CHARACTERS_PER_VALUE
        self._left -= price
        if self._left < 0:
            raise FastjsonError("references expand to too many values")


def _length(value: object) -> int:
    """Return a text's number of characters; for an object that is a key, each of its values counts as several."""
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
    """Return the value at a path such as `$.a.b[0]`. FastjsonError if it leads nowhere or to another reference."""
    try:
        for name, index in re.findall(_REF_STEP, path):
            root = root[name] if name else root[int(index)]  # type: ignore[index]  # TypeError: not a container
    except (KeyError, IndexError, TypeError) as error:
        raise FastjsonError(f"reference without a target: {path:.100}", 0) from error
    if isinstance(root, dict) and "$ref" in root:
        raise FastjsonError(f"reference to another reference: {path:.100}", 0)
    return root
