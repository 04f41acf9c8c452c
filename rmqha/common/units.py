"""Sizes, durations and times as people write and read them, with one grammar and one meaning everywhere.

| | |
|---|---|
| size | bytes, or with a unit: `B`; `K` `M` `G` `T`, also `KiB` `MiB` `GiB` `TiB`, are powers of 1024; `KB` `MB` `GB` \
`TB` are powers of 1000 |
| duration | seconds, or with a unit: `ms`, `s`, `m` or `min`, `h`, `d` |
| time | ms since 1970; `2026-03-01` or `2026-03-01T12:00:00` in local time, with `Z` or `+01:00` in another zone; \
`20260301120000000`; or a duration with its unit, counted back from now (`10m`, `30d`) |

Case matters for one letter only: `m` is minutes, `M` is MiB. All other units may be in upper or lower case.
"""
import math
import re
import time
from collections.abc import Sequence
from datetime import datetime

from rmqha.common.texts import real

_AMOUNT = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z]{0,8})", re.ASCII)
BYTES = {"b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "M": 1 << 20, "mib": 1 << 20, "mb": 10**6, "g": 1 << 30,
         "gib": 1 << 30, "gb": 10**9, "t": 1 << 40, "tib": 1 << 40, "tb": 10**12}
MILLIS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
DELAY_LEVELS = {unit: MILLIS[unit] for unit in ("s", "m", "h", "d")}  # of a broker's messageDelayLevel, ms
_SECONDS = {unit: millis / 1000 for unit, millis in MILLIS.items()}
_SIZE_NAMES, _COUNT_NAMES = ("B", "KiB", "MiB", "GiB", "TiB"), ("", "k", "M", "G", "T")
UNKNOWN = "-"
_MILLIS = re.compile(r"\d{1,19}", re.ASCII)
_HUMAN_TIME = 17  # digits of yyyyMMddHHmmssSSS
_MOST = (1 << 63) - 1
_SHOWN = 80

SIZES = "bytes, or with a unit: 64KiB, 16MiB or 16M, 2GiB, 1TB"
DURATIONS = "seconds, or with a unit: 250ms, 30s, 5m, 2h, 1d"
TIMES = ("ms since 1970, 2026-03-01 or 2026-03-01T12:30:00 in local time (with Z or +01:00 in another), or how long "
         "ago: 10m, 30d")


class UnitError(ValueError):
    """A text that is not a valid amount or time; the message says what is valid."""


def _refused(text: str, what: str, known: str) -> UnitError:
    return UnitError(f"{text[:_SHOWN]!r} is not a valid {what}: give {known}")


def _amount(text: str) -> tuple[float, str] | None:
    """Return the number and the unit as spelled in the tables; None when the text has another form."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"]
    return float(match["number"]), unit if unit == "M" else unit.lower()


def _bytes(number: float, unit: str, text: str) -> int:
    size = number * BYTES[unit or "b"]
    if size > _MOST:
        raise UnitError(f"{text[:_SHOWN]!r} is too large: a size must fit in 64 bits")
    return int(text) if not unit and text.strip().isdigit() else int(size)


def parse_size(text: str) -> int:
    """Return a size in bytes. UnitError."""
    found = _amount(text)
    if found is not None and found[1] in _SECONDS:
        raise UnitError(f"{text[:_SHOWN]!r} is a duration, not a size" + ("; MiB is M" if found[1] == "m" else "")
                        + f": give {SIZES}")
    if found is None or found[1] and found[1] not in BYTES:
        raise _refused(text, "size", SIZES)
    return _bytes(*found, text)


def parse_duration(text: str) -> float:
    """Return a duration in seconds. UnitError."""
    found = _amount(text)
    if found is not None and found[1] in BYTES:
        raise UnitError(f"{text[:_SHOWN]!r} is a size, not a duration" + ("; minutes are m" if found[1] == "M" else "")
                        + f": give {DURATIONS}")
    if found is None or found[1] and found[1] not in _SECONDS:
        raise _refused(text, "duration", DURATIONS)
    return found[0] * _SECONDS[found[1] or "s"]


def parse_limit(text: str) -> tuple[int | None, float | None]:
    """Return (bytes, None) for a size, (None, seconds) for a duration. A bare number is bytes. UnitError."""
    found = _amount(text)
    if found is not None and found[1] in _SECONDS:
        return None, parse_duration(text)
    if found is not None and (found[1] in BYTES or not found[1]):
        return parse_size(text), None
    raise UnitError(f"{text[:_SHOWN]!r} is neither a size nor a duration: give {SIZES}; or a duration with its unit: "
                    "250ms, 30s, 5m, 2h, 1d")


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Return a time in ms since 1970, at least 0. UnitError."""
    text = text.strip()
    found = _amount(text)
    if found is not None and found[1]:
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return max(now - round(parse_duration(text) * 1000), 0)
    try:
        if _MILLIS.fullmatch(text) and len(text) != _HUMAN_TIME:
            if int(text) > _MOST:
                raise _refused(text, "time", TIMES)
            return int(text)
        moment = datetime.strptime(text + "000", "%Y%m%d%H%M%S%f") if text.isascii() and text.isdigit() \
            else datetime.fromisoformat(text)
        return max(math.floor(moment.timestamp() * 1000 + 0.5), 0)
    except UnitError:
        raise
    except (ValueError, OverflowError):
        raise _refused(text, "time", TIMES) from None


# ---- texts for people


def size_text(size: int) -> str:
    """Return a size as people read it: `1.5 MiB`."""
    value, unit = _scaled(size, 1024, _SIZE_NAMES)
    return f"{size} B" if unit == _SIZE_NAMES[0] else f"{value:.1f} {unit}"


def rate_text(rate: float | None) -> str:
    """Return a rate in bytes a second as people read it; "?" for unknown."""
    return "?" if rate is None else f"{size_text(round(rate))}/s"


def seconds_text(seconds: float | None) -> str:
    """Return a duration as people read it; "?" for unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def count_text(value: float | None) -> str:
    """Return a number in at most six characters: `0`, `0.5`, `12`, `1,234`, `12.3k`, `4.56M`; `-` for unknown."""
    value = real(value)
    if value is None:
        return UNKNOWN
    sign, size = "-" if value < 0 else "", abs(value)
    if size < 10:
        return sign + (f"{size:.1f}".removesuffix(".0"))
    if round(size) < 10_000:
        return f"{sign}{size:,.0f}"
    size, unit = _scaled(size, 1000, _COUNT_NAMES)
    return f"{sign}{size:.2f}"[:len(sign) + 4].rstrip(".") + unit


def bytes_text(value: float | None) -> str:
    """Return a number of bytes as people read it: `1.5 MiB`; `-` for unknown."""
    value = real(value, -2.0**64, 2.0**64)
    return UNKNOWN if value is None else size_text(round(value))


def percent_text(ratio: float | None) -> str:
    """Return a ratio as a percentage: `17 %`; `-` for unknown."""
    ratio = real(ratio)
    return UNKNOWN if ratio is None else f"{ratio:.0%}".replace("%", " %")


def span_text(seconds: float | None) -> str:
    """Return a duration in its largest fitting unit: `0`, `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`; `-` for unknown."""
    seconds = real(seconds)
    if seconds is None:
        return UNKNOWN
    if seconds <= 0:
        return "0"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} d"


def _scaled(value: float, base: int, names: Sequence[str]) -> tuple[float, str]:
    """Return the value in the largest unit that it reaches, and the unit's name."""
    number = 0
    while value >= base and number < len(names) - 1:
        value, number = value / base, number + 1
    return value, names[number]
