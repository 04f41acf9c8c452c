"""Sizes, durations and times as people write them: one grammar and one meaning, for every option that takes one.

| | |
|---|---|
| size | bytes, or with a unit: `B`; `K` `M` `G` `T`, also `KiB` `MiB` `GiB` `TiB`, are powers of 1024; `KB` `MB` `GB` \
`TB` are powers of 1000 |
| duration | seconds, or with a unit: `ms`, `s`, `m` or `min`, `h`, `d` |
| time | ms since 1970; `2026-03-01` or `2026-03-01T12:00:00` in local time, with `Z` or `+01:00` in another zone; \
`20260301120000000`; or a duration with its unit: so long ago (`10m`, `30d`) |

Case counts for one letter alone: `m` are minutes, `M` are MiB. All else may be in capitals or not.
"""
import math
import re
import time
from datetime import datetime

_AMOUNT = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z]{0,8})", re.ASCII)
_SIZES = {"b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "M": 1 << 20, "mib": 1 << 20, "mb": 10**6, "g": 1 << 30,
          "gib": 1 << 30, "gb": 10**9, "t": 1 << 40, "tib": 1 << 40, "tb": 10**12}
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MILLIS = re.compile(r"\d{1,19}", re.ASCII)
_HUMAN_TIME = 17  # digits of yyyyMMddHHmmssSSS
_MOST = (1 << 63) - 1
_SHOWN = 80

SIZES = "bytes, or with a unit: 64KiB, 16MiB or 16M, 2GiB, 1TB"
DURATIONS = "seconds, or with a unit: 250ms, 30s, 5m, 2h, 1d"
TIMES = ("ms since 1970, 2026-03-01 or 2026-03-01T12:30:00 in local time (with Z or +01:00 in another), or how long "
         "ago: 10m, 30d")


class UnitError(ValueError):
    """A text that is not what it should be; says what would do."""


def _refused(text: str, what: str, known: str) -> UnitError:
    return UnitError(f"{text[:_SHOWN]!r} is not a valid {what}: give {known}")


def _amount(text: str) -> tuple[float, str] | None:
    """The number, and the unit as the tables have it; None when it has another form."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"]
    return float(match["number"]), unit if unit == "M" else unit.lower()


def _bytes(number: float, unit: str, text: str) -> int:
    size = number * _SIZES[unit or "b"]
    if size > _MOST:
        raise UnitError(f"{text[:_SHOWN]!r} is more bytes than 64 bits hold")
    return int(text) if not unit and text.strip().isdigit() else int(size)


def parse_size(text: str) -> int:
    """Bytes. UnitError."""
    found = _amount(text)
    if found is not None and found[1] in _SECONDS:
        raise UnitError(f"{text[:_SHOWN]!r} is a duration, not a size" + ("; MiB are M" if found[1] == "m" else "")
                        + f": give {SIZES}")
    if found is None or found[1] and found[1] not in _SIZES:
        raise _refused(text, "size", SIZES)
    return _bytes(*found, text)


def parse_duration(text: str) -> float:
    """Seconds. UnitError."""
    found = _amount(text)
    if found is not None and found[1] in _SIZES:
        raise UnitError(f"{text[:_SHOWN]!r} is a size, not a duration" + ("; minutes are m" if found[1] == "M" else "")
                        + f": give {DURATIONS}")
    if found is None or found[1] and found[1] not in _SECONDS:
        raise _refused(text, "duration", DURATIONS)
    return found[0] * _SECONDS[found[1] or "s"]


def parse_limit(text: str) -> tuple[int | None, float | None]:
    """(bytes, None), or (None, seconds): whichever a text is; a bare number is bytes. UnitError."""
    found = _amount(text)
    if found is not None and found[1] in _SECONDS:
        return None, parse_duration(text)
    if found is not None and (found[1] in _SIZES or not found[1]):
        return parse_size(text), None
    raise UnitError(f"{text[:_SHOWN]!r} is neither a size nor a duration: give {SIZES}; or a duration with its unit: "
                    "250ms, 30s, 5m, 2h, 1d")


def parse_time(text: str, now_ms: int | None = None) -> int:
    """ms since 1970, 0 at least. UnitError."""
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
