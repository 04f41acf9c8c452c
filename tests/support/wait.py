"""Waiting for a fact instead of sleeping; the threads and the CPU of the running test."""
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import psutil

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


# The threads that the running test has started, not those that an earlier test or a shared server starts beside it.
#
#     note_starts() --> every start: thread -> (number, who started it)
#     begin_test()      numbers from here on are the test's
#     own_threads() --> alive, of the test's numbers, and the line of starters ends at the main thread


class _Start(NamedTuple):
    number: int
    by: threading.Thread


_numbers = itertools.count()
_starts: WeakKeyDictionary[threading.Thread, _Start] = WeakKeyDictionary()
_first = 0


def note_starts() -> None:
    """From now on, note who starts a thread."""
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        _starts[thread] = _Start(next(_numbers), threading.current_thread())
        start(thread)
    threading.Thread.start = noted


def begin_test() -> None:
    """Threads that were started before are not the test's, nor are those that they start."""
    global _first
    _first = next(_numbers)


def own_threads() -> set[threading.Thread]:
    """Those that run."""
    return {thread for thread in threading.enumerate() if _is_own(thread)}


def running_clients() -> set[threading.Thread]:
    """One thread of each client instance that is not shut down."""
    return {thread for thread in threading.enumerate() if thread.name == "MQClientFactoryScheduledThread"}


def _is_own(thread: threading.Thread) -> bool:
    start = _starts.get(thread)
    return start is not None and start.number > _first and (
        start.by is threading.main_thread() or _is_own(start.by))


# The CPU that this process took, with the processes that it started.


def used_s() -> float:
    """User and system time in seconds: of this process, of children that ended, of descendants that run.

    A process that left its parent counts until then only.
    """
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                used += sum(child.cpu_times()[:4])
    return used


class Laps:
    """The CPU between two looks: what a test file took, when one looks at the end of each."""

    def __init__(self) -> None:
        self._before = used_s()

    def lap(self) -> float:
        """Seconds since the last look, 0 at least."""
        now = used_s()
        took, self._before = max(0.0, now - self._before), now
        return took
