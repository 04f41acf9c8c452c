"""Waiting for a fact instead of sleeping."""
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_STEP_S = 0.01
_PAUSE_S = 5.0
"""A step that took so long was a pause."""
_TICKS_S = os.sysconf("SC_CLK_TCK")
_STOLEN = 8  # its place in the line of /proc/stat


def wait_until(predicate: Callable[[], object], timeout_ms: int = 240_000, what: str = "") -> object:
    """Poll `predicate` until it is true and return its value; AssertionError after `timeout_ms`.

    A machine whose cores are given to others now and then has longer: four times what it had to do without. So has
    one that stands still: a pause of this process, in which it did nothing at all, does not count.
    """
    begin, stolen_s, paused_s = time.monotonic(), _stolen_s(), 0.0
    while True:
        value = predicate()
        if value:
            return value
        looked = time.monotonic()
        spent_s = looked - begin - paused_s
        if spent_s > timeout_ms / 1000 and spent_s > timeout_ms / 1000 + 4 * (_stolen_s() - stolen_s):
            raise AssertionError(f"not within {timeout_ms} ms: {what or predicate}")
        time.sleep(_STEP_S)
        pause_s = time.monotonic() - looked
        paused_s += pause_s if pause_s > _PAUSE_S else 0


def stays(fact: Callable[[], object], for_ms: int, what: str = "") -> None:
    """Look at `fact` for so long: AssertionError as soon as it is false. For what must not happen; a machine that is
    busy looks less often, and finds no fault where there is none.
    """
    end = time.monotonic() + for_ms / 1000
    while True:
        is_last = time.monotonic() >= end
        assert fact(), f"it did not stay: {what or fact}"
        if is_last:
            return
        time.sleep(_STEP_S)


def at_least(seconds: float) -> None:
    """Let time pass that what is tested counts itself: a time-out of a server's that has to run out, a clock in
    milliseconds that has to go on. That more passes may not matter to the test."""
    time.sleep(seconds)


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    """The block takes at least so long: AssertionError if it is over sooner.

    The block holds what starts the time and what ends it, so that a pause anywhere makes it longer only.
    """
    begin = time.monotonic()
    yield
    taken_s = time.monotonic() - begin
    assert taken_s >= seconds, f"over after {taken_s:.3f} s, not after {seconds} s at least"


def _stolen_s() -> float:
    """Seconds that the hypervisor has kept from each core since the machine started; 0 where nobody counts."""
    try:
        fields = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()
        return int(fields[_STOLEN]) / _TICKS_S / (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return 0.0
