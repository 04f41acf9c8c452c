"""Writing JSON byte for byte like fastjson 1.2.69 with its default features.

Objects (dataclasses): fields sorted by name, None omitted, enums by name. Maps: the map's own order, None omitted, keys
that are no strings without quotes. Pretty: tabs, `"key":value` without a space; entries with other than string keys
stay on one line, and so do sets and tuples. Control characters (also 0x7f to 0x9f, U+2028, U+2029) as \\uXXXX.
"""
import base64
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Set
from decimal import Decimal
from enum import Enum
from typing import Any

from rmqha.common.futures import AtomicBoolean, AtomicLong
from rmqha.common.texts import cached
from rmqha.remoting.protocol.fastjson_parser import FastjsonError

# Differs: fastjson writes values of any depth
MAX_WRITTEN_DEPTH = 128  # levels; what is deeper came from a stranger, and each Python would stop elsewhere

SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_OR_FOREIGN = re.compile('["\\\\/\x00-\x1f]|[^\x00-\x7e]')
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
    return f'"{_SPECIAL_OR_FOREIGN.sub(_escape, text)}"'


def java_double(number: float) -> str:
    """A float as Java's Double.toString; `null` for NaN and infinities, as fastjson writes them."""
    if not math.isfinite(number):
        return "null"
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
    names = [f.name for f in dataclasses.fields(cls) if f.metadata.get("json", True) and not f.name.startswith("_")]
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
            self.parts.append(f'"{base64.b64encode(value).decode()}"')
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
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
