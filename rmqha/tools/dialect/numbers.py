"""Numbers that others send, as text or in JSON: each has a range, and what is outside is as if it were not there."""
import math

LONG = (-(1 << 63), (1 << 63) - 1)  # what Java's long takes
_LONGEST = 64  # characters


def whole(text: str | int | None, default: int, least: int = LONG[0], most: int = LONG[1]) -> int:
    """An integer from `least` to `most`; `default` for anything else."""
    if text is None or isinstance(text, str) and len(text) > _LONGEST:
        return default
    try:
        value = int(text)
    except ValueError:
        return default
    return value if least <= value <= most else default


def real(text: str | float | None, least: float = -1e18, most: float = 1e18) -> float | None:
    """A finite number from `least` to `most`; None for anything else: NaN, too, compares with nothing."""
    if text is None or isinstance(text, str) and len(text) > _LONGEST:
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and least <= value <= most else None


def first_real(text: str | None) -> float:
    """The first of several that are separated by blanks, as brokers report rates; 0 for none."""
    return real((text or "").split(maxsplit=1)[0] if (text or "").strip() else None) or 0.0
