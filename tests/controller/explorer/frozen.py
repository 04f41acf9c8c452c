"""Objects of rmqha as values: their fields, frozen, so that a state of the model can hold and hash them.

    Frozen --thaw--> a real object --one call--> its result, and the object frozen again

Times count from now: an int above `A_TIME` is one, and `aged` lets the clock go on.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

NOW_NS = 1 << 60
A_TIME = 1 << 58
OLD_NS = 20_000_000_000  # what is older than this is all the same
_KEPT_OUT = ("_lock", "_clock", "_max_offset")


class Time(NamedTuple):
    """A moment, in ns from now."""

    from_now_ns: int


class Frozen:
    """The frozen fields of an object, one for each content: compared and hashed as what it is, not by its content.

    States are hashed at each step, and this is most of what they have.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = fields


@cache
def _frozen(fields: tuple[tuple[str, Any], ...]) -> Frozen:
    return Frozen(fields)


def freeze_value(value: Any) -> Any:
    """Hashable, and the same for equal content."""
    if isinstance(value, int) and value > A_TIME:
        return Time(max(value - NOW_NS, -OLD_NS))
    if isinstance(value, dict):
        return ("dict", *sorted(((freeze_value(key), freeze_value(each)) for key, each in value.items()), key=repr))
    if isinstance(value, (set, frozenset)):
        return ("set", type(value), *sorted(map(freeze_value, value), key=repr))
    if hasattr(value, "heard_ns"):
        return ("info", type(value), *sorted((key, freeze_value(each)) for key, each in vars(value).items()))
    return value


def _thaw_value(value: Any) -> Any:
    if isinstance(value, Time):
        return NOW_NS + value.from_now_ns
    if isinstance(value, tuple) and value and value[0] == "dict":
        return {_thaw_value(key): _thaw_value(each) for key, each in value[1:]}
    if isinstance(value, tuple) and value and value[0] == "set":
        return value[1](map(_thaw_value, value[2:]))
    if isinstance(value, tuple) and value and value[0] == "info":
        return value[1](**{key: _thaw_value(each) for key, each in value[2:]})
    return value


def freeze(obj: object) -> Frozen:
    """The fields of an object, but for its lock and what it was given to ask."""
    return _frozen(tuple((name, freeze_value(value)) for name, value in sorted(vars(obj).items())
                         if name not in _KEPT_OUT))


def thaw(frozen: Frozen, make: Callable[[], Any]) -> Any:
    """An object as it was when it was frozen."""
    obj = make()
    for name, value in frozen.fields:
        setattr(obj, name, _thaw_value(value))
    return obj


@cache
def aged(value: Any, passed_ns: int) -> Any:
    """The same, so much later."""
    if isinstance(value, Time):
        return Time(max(value.from_now_ns - passed_ns, -OLD_NS))
    if isinstance(value, Frozen):
        return _frozen(aged(value.fields, passed_ns))
    if type(value) is tuple:
        return tuple([aged(each, passed_ns) for each in value])
    return value
