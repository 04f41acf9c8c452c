"""JSON as fastjson 1.2.69 reads and writes it: the text of RocketMQ's bodies and config files.

Standard JSON, and what fastjson does beyond it: integer keys without quotes (`{0:100}`), objects as keys
(`{{"topic":"T"}:1}`), names without quotes, single quotes, trailing commas, raw control characters in strings, and
references to earlier values (`{"$ref":"$.a[0]"}`).
"""
import json
import re

from rmqha.remoting.protocol.fastjson_parser import MAX_DEPTH, FastjsonError, FrozenObject, parse
from rmqha.remoting.protocol.fastjson_writer import dumps

__all__ = ["MAX_DEPTH", "FastjsonError", "FrozenObject", "dumps", "loads"]

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_REF_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


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
    more digits than Python takes, and for an empty text.
    """
    text = source if isinstance(source, str) else str(source, "utf-8", "replace")
    try:
        value = _decoder.decode(text)
        if text.count("{") + text.count("[") > MAX_DEPTH:
            _check_depth(value)
    except json.JSONDecodeError:
        value = parse(text)  # fastjson's dialect, or an error with its position
    except RecursionError:
        raise FastjsonError(f"more than {MAX_DEPTH} levels", 0) from None
    except ValueError as error:
        raise error if isinstance(error, FastjsonError) else FastjsonError(str(error), 0) from None
    value = encodable(value, text)
    return _resolve_references(value, value) if '"$ref"' in text else value


def encodable(value: object, text: str) -> object:
    """`value`, read from `text`, with `?` for half a surrogate pair: what Java writes for it where bytes are needed."""
    return _encodable(value) if _SURROGATE.search(text) else value


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, FrozenObject):
        return FrozenObject({_encodable(key): _encodable(item) for key, item in value.items()})
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise FastjsonError(f"more than {MAX_DEPTH} levels", 0)
        level = [child for parent in level if isinstance(parent, (dict, list))
                 for child in (parent.values() if isinstance(parent, dict) else parent)
                 if isinstance(child, (dict, list))]


def _resolve_references(value: object, root: object) -> object:
    if isinstance(value, list):
        return [_resolve_references(item, root) for item in value]
    if not isinstance(value, dict) or isinstance(value, FrozenObject):
        return value
    path = value.get("$ref")
    if len(value) == 1 and isinstance(path, str) and path.startswith("$"):
        return _lookup(root, path)
    return {key: _resolve_references(item, root) for key, item in value.items()}


def _lookup(root: object, path: str) -> object:
    """The value at a path such as `$.a.b[0]`; FastjsonError when there is none, or it is a reference itself."""
    try:
        for name, index in _REF_STEP.findall(path):
            root = root[name] if name else root[int(index)]  # type: ignore[index]
    except (KeyError, IndexError, TypeError) as error:
        raise FastjsonError(f"nothing at {path}", 0) from error
    if isinstance(root, dict) and "$ref" in root:
        raise FastjsonError(f"a reference to a reference at {path}", 0)
    return root
