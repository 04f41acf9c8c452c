"""Limits for checks: an amount of bytes, a time, or both."""
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

_PART = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)", re.ASCII | re.IGNORECASE)
_BYTES = {"b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "mib": 1 << 20, "mb": 10**6, "gib": 1 << 30, "gb": 10**9,
          "tib": 1 << 40, "tb": 10**12, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


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
    """`64MiB`, `30s`, or both: `64MiB,30s`. A bare number is bytes; M is MiB, and minutes are `min`."""

    name = "limits"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Limits:
        """The limits of a text."""
        if isinstance(value, Limits):
            return value
        found: dict[str, float] = {}
        for part in str(value).split(","):
            kind, amount = self._part(part.strip(), param, ctx)
            if kind in found:
                self.fail(f"{value!r} gives {kind} twice", param, ctx)
            found[kind] = amount
        size = found.get("bytes")
        return Limits(None if size is None else int(size), found.get("seconds"))

    def _part(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        match = _PART.fullmatch(text)
        if match is None:
            self.fail(f"{text!r} is neither an amount of bytes (64MiB) nor a time (30s); both go with a comma", param,
                      ctx)
        number, unit = float(match["number"]), match["unit"].lower()
        if unit in _SECONDS:
            return "seconds", number * _SECONDS[unit]
        if unit == "m":
            unit = "mib"
        if unit and unit not in _BYTES:
            self.fail(f"{match['unit']!r} in {text!r} is no unit: B, KiB, MiB, GiB, TiB, or ms, s, min, h, d", param,
                      ctx)
        return "bytes", number * _BYTES[unit or "b"]
