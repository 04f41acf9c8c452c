"""Conversion of bodies and config files: dataclasses to JSON and back, typed by their annotations."""
import binascii
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from rmqha.common.futures import AtomicLong
from rmqha.common.java import int64
from rmqha.common.lazy_dataclasses import fields, is_dataclass
from rmqha.common.texts import cached
from rmqha.remoting.protocol import fastjson
from rmqha.remoting.protocol.fastjson import MAX_WIDE_KEYS, FastjsonError, brief, is_wide

T = TypeVar("T")
Converter = Callable[[Any], Any]

# For example, the hash codes of a subscription's tags.
MAX_NUMBERS_OF_SET = 4096


def to_json(obj: object, pretty: bool = False) -> str:
    """Return the text that fastjson writes for `obj`.

    Java: org.apache.rocketmq.remoting.protocol.RemotingSerializable#toJson (4.9.8)
    """
    return fastjson.dumps(obj, pretty)


def encode(obj: object) -> bytes:
    """Return `to_json` in UTF-8. Half a surrogate pair becomes `?`, as in Java.

    Java: org.apache.rocketmq.remoting.protocol.RemotingSerializable#encode (4.9.8)
    """
    return fastjson.dumps(obj).encode("utf-8", "replace")


def from_json(cls: type[T], source: str | bytes | bytearray | memoryview) -> T:
    """Return the `cls` (a dataclass, or a type such as dict[str, int]) that a JSON text represents.

    Unknown fields are ignored; an absent or null field keeps its default. As in fastjson, numbers may be in quotes.
    Raises FastjsonError if the text is malformed or a value has the wrong type.

    Java: org.apache.rocketmq.remoting.protocol.RemotingSerializable#fromJson (4.9.8)
    """
    return from_value(cls, fastjson.loads(source))


decode = from_json


def from_value(cls: type[T], value: object) -> T:
    """Return the `cls` that a result of `fastjson.loads` represents."""
    try:
        made: T = _converter(cls)(value)
        return made
    except RecursionError:
        raise FastjsonError("too many levels") from None


@cached
def _converter(annotation: Any) -> Converter:
    """Return the function that converts to the annotated type. TypeError for a type without a JSON representation."""
    simple = _SIMPLE.get(annotation)
    if simple is not None:
        return simple
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _optional(args)
    if origin is typing.Annotated or origin in (typing.ClassVar, typing.Final):
        return _converter(args[0])
    if origin is not None:
        return _container(origin, args)
    if isinstance(annotation, (TypeVar, typing.NewType)):
        return _converter(getattr(annotation, "__supertype__", Any))
    if isinstance(annotation, type):
        return _class_converter(annotation)
    raise TypeError(f"{annotation} has no JSON representation")


def _class_converter(cls: type) -> Converter:
    if issubclass(cls, Enum):
        return functools.partial(_enum, cls)
    if is_dataclass(cls):
        return functools.partial(_bean, cls)
    if issubclass(cls, AtomicLong):
        return lambda value: cls(_integer(value))
    if cls in (list, dict, set, tuple):
        return _container(cls, ())
    raise TypeError(f"{cls.__name__} has no JSON representation")


def _optional(args: tuple[Any, ...]) -> Converter:
    inner = [_converter(arg) for arg in args if arg is not type(None)]
    if len(inner) != 1:
        return _any
    convert = inner[0]
    return lambda value: None if value is None else convert(value)


def _container(origin: Any, args: tuple[Any, ...]) -> Converter:
    if issubclass(origin, Mapping):
        key, item = (_converter(arg) for arg in args) if args else (_any, _any)
        return lambda value: _map(value, key, item)
    if issubclass(origin, (Sequence, set, frozenset)):
        item = _converter(args[0]) if args else _any
        build = origin if origin in (set, frozenset, tuple) else list
        if origin in (set, frozenset) and item in (_integer, _double):
            return lambda value: build([item(each) for each in _few(_sequence(value))])
        return lambda value: build([item(each) for each in _sequence(value)])
    raise TypeError(f"{origin} has no JSON representation")


def _map(value: object, key: Converter, item: Converter) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise FastjsonError(f"expect an object, actual {type(value).__name__}")
    # Keys that are numbers were counted by the parser; here those that are numbers in quotes.
    if key in (_integer, _double) and len(value) > MAX_WIDE_KEYS:
        wide = sum(is_wide(key(name)) for name in value if isinstance(name, str))
        if wide > MAX_WIDE_KEYS:
            raise FastjsonError(f"{wide} numeric keys beyond 16 bits in one object, the limit is {MAX_WIDE_KEYS}")
    return {key(name): item(each) for name, each in value.items() if each is not None}


# Differs: a set of numbers and the numeric keys of a map are limited; fastjson accepts any number of numbers in a set,
# and any numbers as keys
def _few(numbers: Sequence[Any]) -> Sequence[Any]:
    """Return the numbers of a set. FastjsonError for too many, which may be chosen so that they all collide."""
    if len(numbers) > MAX_NUMBERS_OF_SET:
        raise FastjsonError(f"a set of {len(numbers)} numbers, the limit is {MAX_NUMBERS_OF_SET}")
    return numbers


def _sequence(value: object) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise FastjsonError(f"expect a list, actual {type(value).__name__}")
    return value


@cached
def _bean_plan(cls: type) -> dict[str, tuple[Converter, bool]]:
    """Return, for each field that JSON may set, its converter and whether null is a valid value."""
    hints = typing.get_type_hints(cls)
    plan = {}
    for item in fields(cls):
        if item.init and item.metadata.get("json", True) and not item.name.startswith("_"):
            hint = hints[item.name]
            nullable = hint is Any or type(None) in typing.get_args(hint)
            plan[item.name] = (_converter(hint), nullable)
    return plan


def _bean(cls: type, value: object) -> object:
    if not isinstance(value, dict):
        raise FastjsonError(f"expect an object for {cls.__name__}, actual {type(value).__name__}")
    plan = _bean_plan(cls)
    arguments = {}
    for name, item in value.items():
        known = plan.get(name)
        if known is None:
            continue
        convert, nullable = known
        if item is not None:
            arguments[name] = _field(cls, name, convert, item)
        elif nullable:
            arguments[name] = None
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise FastjsonError(f"{cls.__name__}: {error}") from error


def _field(cls: type, name: str, convert: Converter, item: object) -> object:
    try:
        return convert(item)
    except FastjsonError as error:
        raise FastjsonError(f"{cls.__name__}.{name}: {error}") from None


def _enum(cls: type[Enum], value: object) -> Enum | None:
    if isinstance(value, str):
        return cls.__members__.get(value)  # an unknown name is null, as in fastjson
    members = list(cls)
    if type(value) is int and 0 <= value < len(members):
        return members[value]
    raise FastjsonError(f"parse enum {cls.__name__} error, value : {brief(value)}")


def _integer(value: object) -> int:
    if type(value) is int or isinstance(value, (str, float, bool)):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            raise FastjsonError(f"parseLong error, {brief(value)}") from None
        if number == int64(number):
            return number
    raise FastjsonError(f"parseLong error, {type(value).__name__}")


def _double(value: object) -> float:
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            raise FastjsonError(f"parseDouble error, {brief(value)}") from None
    raise FastjsonError(f"parseDouble error, {type(value).__name__}")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value == 1
    word = value[:len("false") + 1].lower() if isinstance(value, str) else ""
    if word in ("true", "false", "1", "0", "y", "n", "t", "f"):
        return word in ("true", "1", "y", "t")
    raise FastjsonError(f"can not cast to boolean, {brief(value)}")


def _string(value: object) -> str:
    return value if isinstance(value, str) else fastjson.dumps(value)


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        try:
            return binascii.a2b_base64(value)
        except (binascii.Error, ValueError):
            raise FastjsonError("invalid base64") from None
    raise FastjsonError(f"expect base64, actual {type(value).__name__}")


def _any(value: object) -> object:
    return value


_SIMPLE: dict[Any, Converter] = {
    int: _integer, float: _double, bool: _boolean, str: _string, bytes: _bytes, Any: _any, object: _any,
    type(None): lambda _value: None,
}
