"""Texts for people and for programs: times, sizes, progress. More of the kind: rmqha/tools/dialect/output.py."""
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import click

from rmqha.tools.dialect.options import output_option as output_option
from rmqha.tools.dialect.output import cell as cell
from rmqha.tools.dialect.output import emit as emit
from rmqha.tools.dialect.output import put as put

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def time_text(timestamp: int) -> str:
    """ms as local time; the number itself when it is beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp // 1000)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03d}"


def size_text(size: int) -> str:
    """Bytes as people read them."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_SIZE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_SIZE_UNITS[unit]}"


def counted(count: int, what: str) -> str:
    """`1 slave`, `2 slaves`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def seconds_text(seconds: float | None) -> str:
    """Seconds as people read them; "?" for unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error when that is a terminal. What it gives is told how far the work has come."""
    if not sys.stderr.isatty() or total <= 0:
        yield lambda position: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        def come_to(position: int) -> None:
            bar.update(max(min(position, total) - bar.pos, 0))
        yield come_to
