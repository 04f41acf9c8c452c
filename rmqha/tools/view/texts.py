"""Rates, sizes and times as short texts for narrow columns."""
from rmqha.tools.dialect.numbers import real
from rmqha.tools.store.output import size_text

_UNITS = ("", "k", "M", "G", "T")
UNKNOWN = "-"


def count_text(value: float | None) -> str:
    """`0`, `0.5`, `12`, `1,234`, `12.3k`, `4.56M`: at most six characters; `-` for unknown."""
    value = real(value)
    if value is None:
        return UNKNOWN
    sign, size, unit = "-" if value < 0 else "", abs(value), 0
    if size < 10:
        return sign + (f"{size:.1f}".removesuffix(".0"))
    if round(size) < 10_000:
        return f"{sign}{size:,.0f}"
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{sign}{size:.2f}"[:len(sign) + 4].rstrip(".") + _UNITS[unit]


def bytes_text(value: float | None) -> str:
    """`1.5 MiB`."""
    value = real(value, -2.0**64, 2.0**64)
    return UNKNOWN if value is None else size_text(round(value))


def percent_text(ratio: float | None) -> str:
    """`17 %`."""
    ratio = real(ratio)
    return UNKNOWN if ratio is None else f"{ratio:.0%}".replace("%", " %")


def span_text(seconds: float | None) -> str:
    """`0`, `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`: two places at most; `-` for unknown."""
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
