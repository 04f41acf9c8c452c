"""Named tuples whose methods are generated when the first of them is needed, as in `lazy_dataclasses`.

The standard library compiles a `__new__` for each class, which takes a quarter of a millisecond; a broker has fifty
such classes. After its first use a class is the one that `typing.NamedTuple` would have made.
"""
from __future__ import annotations

import collections
import sys
from typing import TYPE_CHECKING, Any

# Makes an item of a tuple an attribute, as in the standard library.
_item = sys.modules["_collections"]._tuplegetter
_namedtuple: Any = collections.namedtuple

_METHODS = ("__new__", "_make", "_replace", "_asdict", "__repr__", "__getnewargs__")


class _Later:
    """A placeholder for a method. Accessing it generates all methods of the class."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: Any) -> Any:
        kind = next(cls for cls in owner.__mro__ if "_field_defaults" in vars(cls))
        # Two threads may do this at once, because both generate the same methods.
        made = _namedtuple(kind.__name__, kind._fields, defaults=kind._field_defaults.values())
        made.__new__.__annotations__ = dict(kind.__annotations__)
        for name in _METHODS:
            if vars(kind)[name] is _LATER[name]:
                setattr(kind, name, vars(made)[name])
        return vars(kind)[self._name].__get__(instance, owner)


_LATER = {name: _Later(name) for name in _METHODS}


class _Kind(type):
    """Turns each subclass of NamedTuple into a tuple class, which then has no metaclass of its own."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """Return the tuple class."""
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
