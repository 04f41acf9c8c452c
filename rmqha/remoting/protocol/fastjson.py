"""JSON as fastjson 1.2.69 reads and writes it: the text of RocketMQ's bodies and config files.

Standard JSON, and what fastjson does beyond it: integer keys without quotes (`{0:100}`), objects as keys
(`{{"topic":"T"}:1}`), names without quotes, single quotes, trailing commas, raw control characters in strings, and
references to earlier values (`{"$ref":"$.a[0]"}`).
"""
import itertools
import json
import re
from collections.abc import Iterable
from typing import Any

from rmqha.common.garbage_pause import no_garbage_collection
from rmqha.remoting.protocol.fastjson_parser import (
    MAX_DEPTH,
    MAX_WIDE_KEYS,
    FastjsonError,
    FrozenList,
    FrozenObject,
    parse,
)
from rmqha.remoting.protocol.fastjson_writer import MAX_WRITTEN_DEPTH, dumps

__all__ = ["MAX_DEPTH", "FastjsonError", "FrozenList", "FrozenObject", "dumps", "loads"]

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"  # a pair
                     r"|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL | re.ASCII)
_REF_STEP = re.compile(r"\.([^.\[]++)|\[([0-9]{1,9})\]")
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
    return _ESCAPE.sub(_whole_escape, text) if _SURROGATE.search(text) else text


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
        for name, index in _REF_STEP.findall(path):
            root = root[name] if name else root[int(index)]  # type: ignore[index]  # TypeError: no container
    except (KeyError, IndexError, TypeError) as error:
        raise FastjsonError(f"nothing at {path:.100}", 0) from error
    if isinstance(root, dict) and "$ref" in root:
        raise FastjsonError(f"a reference to a reference at {path:.100}", 0)
    return root
