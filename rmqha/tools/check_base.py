"""Shared parts of the checks: one line of output and an exit code, as Nagios and similar systems expect.

Also the limits that checks take: a size, a time, or both.
"""
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import click

from rmqha.common import units
from rmqha.tools.terminal import put


class Status(IntEnum):
    """Exit codes of a check."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class CheckCommand(click.Command):
    """A command whose every failure is reported as UNKNOWN, with exit code 3."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        """Parse the command line."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise self._unknown(info_name, error.format_message()) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the check."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        # A fault in the check itself says nothing about the cluster: UNKNOWN, too.
        except Exception as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            raise self._unknown(ctx.info_name, text) from error

    @staticmethod
    def _unknown(name: str | None, text: str) -> SystemExit:
        put(f"{(name or '').upper()} UNKNOWN - {text}")
        return SystemExit(int(Status.UNKNOWN))


@dataclass(frozen=True)
class Limits:
    """Limits for a lag; None means unlimited."""

    bytes: int | None = None
    seconds: float | None = None

    def exceeded(self, lag_bytes: int | None, lag_seconds: float | None) -> bool:
        """Return whether a value is above its limit. An unknown value (None) is not."""
        return (self.bytes is not None and lag_bytes is not None and lag_bytes > self.bytes
                or self.seconds is not None and lag_seconds is not None and lag_seconds > self.seconds)

    def text(self, name: str) -> str:
        """Return one of the limits as performance data shows it; "" when there is none."""
        value = getattr(self, name)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


if TYPE_CHECKING:
    _LimitsParam = click.ParamType[Limits]
else:
    # generic since click 8.4; 8.1 works too
    _LimitsParam = click.ParamType


class LimitsType(_LimitsParam):
    """A size, a duration with its unit, or both: `64MiB,30s`. A bare number is bytes."""

    name = "limits"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Limits:
        """Parse a text into limits."""
        if isinstance(value, Limits):
            return value
        size: int | None = None
        seconds: float | None = None
        for part in str(value).split(","):
            try:
                in_bytes, in_seconds = units.parse_limit(part)
            except units.UnitError as error:
                self.fail(f"{error}; separate a size and a time by a comma", param, ctx)
            if in_bytes is not None and size is not None or in_seconds is not None and seconds is not None:
                self.fail(f"{value!r} gives {'bytes' if in_bytes is not None else 'seconds'} twice", param, ctx)
            size = in_bytes if in_bytes is not None else size
            seconds = in_seconds if in_seconds is not None else seconds
        return Limits(size, seconds)
