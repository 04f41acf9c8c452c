"""Limits for checks: an amount of bytes, a time, or both."""
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqha.common import units


@dataclass(frozen=True)
class Limits:
    """None where there is no limit."""

    bytes: int | None = None
    seconds: float | None = None

    def exceeded(self, lag_bytes: int | None, lag_seconds: float | None) -> bool:
        """Whether one of the amounts is above its limit; one that is unknown is not."""
        return (self.bytes is not None and lag_bytes is not None and lag_bytes > self.bytes
                or self.seconds is not None and lag_seconds is not None and lag_seconds > self.seconds)

    def text(self, name: str) -> str:
        """One of the limits as monitoring writes it."""
        value = getattr(self, name)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


if TYPE_CHECKING:
    _LimitsParam = click.ParamType[Limits]
else:
    _LimitsParam = click.ParamType  # generic from click 8.4 on; 8.1 will do


class LimitsType(_LimitsParam):
    """A size, a duration with its unit, or both: `64MiB,30s`. A bare number is bytes."""

    name = "limits"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Limits:
        """The limits of a text."""
        if isinstance(value, Limits):
            return value
        size: int | None = None
        seconds: float | None = None
        for part in str(value).split(","):
            try:
                in_bytes, in_seconds = units.parse_limit(part)
            except units.UnitError as error:
                self.fail(f"{error}; both go with a comma", param, ctx)
            if in_bytes is not None and size is not None or in_seconds is not None and seconds is not None:
                self.fail(f"{value!r} gives {'bytes' if in_bytes is not None else 'seconds'} twice", param, ctx)
            size = in_bytes if in_bytes is not None else size
            seconds = in_seconds if in_seconds is not None else seconds
        return Limits(size, seconds)
