"""Dataclasses whose methods are generated when the first of them is needed.

The standard library's decorator generates the source of `__init__`, `__repr__` and `__eq__` and compiles it, which
takes a quarter of a millisecond for each class. A program imports two hundred such classes and uses a few. This
decorator puts a `_Later` in place of each method. The first access to one lets the standard library generate them all,
and puts them into the class. From then on the class is the one that `dataclasses.dataclass` would have made, and as
fast. `dataclasses.fields`, `replace` and the others accept such classes too. mypy knows them by `dataclass_transform`.

| at the decorator | at the first use                                                                             |
|------------------|----------------------------------------------------------------------------------------------|
| slots, frozen    | `__init__`, `__repr__`, `__eq__`, `__lt__` ..., `__hash__`, `__match_args__`, `__replace__`, |
|                  | `__dataclass_fields__`, class attributes that are the defaults of a `field(...)`             |
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from dataclasses import Field

T = TypeVar("T")

_METHODS = ("__init__", "__repr__", "__dataclass_fields__", "__dataclass_params__", "__match_args__")
_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")


class _Options(dict[str, Any]):
    """The arguments of a `field`, kept until the field is made from them."""


@overload
def field(*, default: T, init: bool = True, repr: bool = True, compare: bool = True,
          metadata: Mapping[str, Any] | None = None, kw_only: bool = False) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], init: bool = True, repr: bool = True, compare: bool = True,
          metadata: Mapping[str, Any] | None = None, kw_only: bool = False) -> T: ...
@overload
def field(*, init: bool = True, repr: bool = True, compare: bool = True,
          metadata: Mapping[str, Any] | None = None, kw_only: bool = False) -> Any: ...
def field(**options: Any) -> Any:
    """Declare a field, like dataclasses.field."""
    return _Options(options)


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(*, eq: bool = True, order: bool = False, frozen: bool = False,
              slots: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Any = None, /, **options: bool) -> Any:
    """Make a class a dataclass, like dataclasses.dataclass; its methods are generated on first use."""
    if cls is None:
        return lambda decorated: _Maker(options).postpone(decorated)
    return _Maker(options).postpone(cls)


def fields(of: Any) -> tuple[Field[Any], ...]:
    """Return the fields of a class of either kind, or of its instance, like dataclasses.fields."""
    # Imported late: with inspect, which it imports, it takes as long as all classes of a program together.
    import dataclasses

    return dataclasses.fields(of)


def replace(instance: T, **changes: Any) -> T:
    """Return a changed copy of an instance of either kind, like dataclasses.replace."""
    import dataclasses  # as above

    given: Any = instance
    changed: T = dataclasses.replace(given, **changes)
    return changed


def is_dataclass(cls: type) -> bool:
    """Return whether a class is a dataclass of either kind."""
    return hasattr(cls, "__dataclass_fields__")


class _Maker:
    """Generates the methods of one class."""

    __slots__ = ("cls", "made", "namespace", "options")

    cls: Any

    def __init__(self, options: dict[str, bool]) -> None:
        self.options = options
        self.made = False

    def postpone(self, cls: type) -> Any:
        """Return the class with a `_Later` in place of each method."""
        frozen, eq = self.options.get("frozen", False), self.options.get("eq", True)
        self.namespace = dict(vars(cls))
        for name in ("__dict__", "__weakref__"):
            self.namespace.pop(name, None)
        names = [*_METHODS, *(("__eq__",) if eq else ()), *(_ORDER if self.options.get("order") else ()),
                 *(("__hash__",) if eq and frozen else ())]
        later: dict[str, Any] = {name: _Later(self, name) for name in names if name not in self.namespace}
        if frozen:
            later.update(_frozen(self))
        if self.options.get("slots"):
            self.cls = _slotted(cls, self.namespace, later, frozen)
            return self.cls
        self.cls = cls
        if "__eq__" in later and "__hash__" not in later and "__hash__" not in self.namespace:
            # As Python does for a class that defines __eq__.
            later["__hash__"] = None
        for name, value in later.items():
            setattr(cls, name, value)
        return cls

    def make(self) -> None:
        """Put the methods into the class. Two threads may do this at once, because both generate the same methods."""
        if self.made:
            return
        import dataclasses  # as above

        cls = self.cls
        namespace = {name: dataclasses.field(**value) if type(value) is _Options else value
                     for name, value in self.namespace.items()}
        options = {name: value for name, value in self.options.items() if name != "slots"}
        template = type(cls)(cls.__name__, cls.__bases__, {**namespace, "__qualname__": cls.__qualname__})
        made = vars(dataclasses.dataclass(**options)(template))
        if not self.options.get("slots"):
            self._set_defaults(made)
        for name, value in made.items():
            if name not in namespace and name not in ("__dict__", "__weakref__", "__setattr__", "__delattr__"):
                setattr(cls, name, value)
        self.made = True


    def _set_defaults(self, made: Mapping[str, object]) -> None:
        """Put the defaults of fields into the class, in place of the arguments of `field`."""
        for name, value in self.namespace.items():
            if type(value) is _Options:
                if name in made:
                    setattr(self.cls, name, made[name])
                else:
                    with contextlib.suppress(AttributeError):  # another thread was here
                        delattr(self.cls, name)


class _Later:
    """A placeholder for a method. Accessing it generates all methods of the class."""

    __slots__ = ("_maker", "_name")

    def __init__(self, maker: _Maker, name: str) -> None:
        self._maker = maker
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._maker.make()
        made = vars(self._maker.cls)[self._name]
        return made.__get__(instance, owner) if hasattr(made, "__get__") else made


def _slotted(cls: type, namespace: dict[str, Any], later: dict[str, Any], frozen: bool) -> type:
    """Return a copy of the class with a slot for each field."""
    inherited = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    own = [name for name, kind in namespace.get("__annotations__", {}).items()
           if getattr(kind, "__origin__", kind) is not ClassVar and name not in inherited]
    kept = {name: value for name, value in namespace.items() if name not in own}
    if frozen:
        kept = {"__getstate__": _state, "__setstate__": _set_state, **kept}
    made = type(cls)(cls.__name__, cls.__bases__, {**kept, **later, "__slots__": tuple(own)})
    made.__qualname__ = cls.__qualname__
    return made


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__dataclass_fields__, state):
        object.__setattr__(self, name, value)


def _frozen(maker: _Maker) -> dict[str, Callable[..., None]]:
    """Return the methods that refuse to change an instance."""
    def refuse(self: object, name: str, verb: str) -> None:
        if type(self) is maker.cls or name in maker.cls.__dataclass_fields__:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {verb} field {name!r}")

    def __setattr__(self: object, name: str, value: object) -> None:
        refuse(self, name, "assign to")
        object.__setattr__(self, name, value)

    def __delattr__(self: object, name: str) -> None:
        refuse(self, name, "delete")
        object.__delattr__(self, name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}
