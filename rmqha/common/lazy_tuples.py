"""Named tuples whose methods are made when the first of them is needed, as in `lazy_dataclasses`.

The standard library compiles a `__new__` for each class: a quarter of a millisecond, and a broker has fifty of them.
From the first use on such a class is what `typing.NamedTuple` gives.
"""
from __future__ import annotations

import collections
import sys
from typing import TYPE_CHECKING, Any

_item = sys.modules["_collections"]._tuplegetter  # an item as an attribute, as the standard library's have it
_namedtuple: Any = collections.namedtuple

_METHODS = ("__new__", "_make", "_replace", "_asdict", "__repr__", "__getnewargs__")


class _Later:
    """The place of a method: looking for it has all of them made."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: Any) -> Any:
        kind = next(cls for cls in owner.__mro__ if "_field_defaults" in vars(cls))
        # Two threads may do this at once: both make the same.
        made = _namedtuple(kind.__name__, kind._fields, defaults=kind._field_defaults.values())
        made.__new__.__annotations__ = dict(kind.__annotations__)
        for name in _METHODS:
            if vars(kind)[name] is _LATER[name]:
                setattr(kind, name, vars(made)[name])
        return vars(kind)[self._name].__get__(instance, owner)


_LATER = {name: _Later(name) for name in _METHODS}


class _Kind(type):
    """Makes a class of tuples of each class below NamedTuple, which then has no metaclass of its own."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """The class."""
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        fields = tuple(namespace.get("__annotations__", {}))
        defaults = {field: namespace[field] for field in fields if field in namespace}
        items = {field: _item(index, f"Alias for field number {index}") for index, field in enumerate(fields)}
        others = [base for base in bases if base is not _NamedTuple]  # Generic
        return type(name, (tuple, *others), {**_LATER, **namespace, **items, "__slots__": (), "_fields": fields,
                                             "_field_defaults": defaults, "__match_args__": fields})


class _NamedTuple(metaclass=_Kind):
    pass


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _NamedTuple
