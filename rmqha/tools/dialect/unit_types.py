"""Types of options that take a size, a duration or a time; all read them by `rmqha.common.units`."""
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import click

from rmqha.common import units

T = TypeVar("T", int, float)

if TYPE_CHECKING:
    _Param = click.ParamType[T]
else:
    class _Param(click.ParamType, Generic[T]):
        """click.ParamType is generic from 8.4 on; 8.1 will do."""


class UnitType(_Param[T]):
    """A text with a unit; numbers are what they are. A range: `low` to `high`, both included."""

    def __init__(self, name: str, parse: Callable[[str], T], low: T, high: T | None, shown: Callable[[T], str]) -> None:
        self.name = name
        self._parse: Callable[[str], T] = parse
        self._low: T = low
        self._high: T | None = high
        self._shown: Callable[[T], str] = shown

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """The amount of a text; a usage error for anything else."""
        if isinstance(value, (int, float)):
            return value  # type: ignore[return-value]  # a default
        try:
            amount: T = self._parse(str(value))
        except units.UnitError as error:
            self.fail(str(error), param, ctx)
        if amount < self._low or self._high is not None and amount > self._high:
            most = "" if self._high is None else f" and at most {self._shown(self._high)}"
            self.fail(f"{value!r}: at least {self._shown(self._low)}{most}", param, ctx)
        return amount


def size_type(low: int = 0, high: int | None = None) -> UnitType[int]:
    """Bytes."""
    return UnitType("SIZE", units.parse_size, low, high, lambda amount: f"{amount} bytes")


def duration_type(low: float = 0.0, high: float | None = None) -> UnitType[float]:
    """Seconds."""
    return UnitType("DURATION", units.parse_duration, low, high, lambda amount: f"{amount:g} s")


def time_type() -> UnitType[int]:
    """ms since 1970."""
    return UnitType("TIME", units.parse_time, 0, None, str)
