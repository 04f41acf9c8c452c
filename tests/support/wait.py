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

    Time that the hypervisor takes from the cores extends the limit by four times as much. A pause in which this
    process did not run at all does not count.
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
    """Check `fact` for `for_ms`: AssertionError as soon as it is false. For events that must not happen; a busy
    machine checks less often, and finds no fault where there is none."""
    end = time.monotonic() + for_ms / 1000
    while True:
        is_last = time.monotonic() >= end
        assert fact(), f"no longer true: {what or fact}"
        if is_last:
            return
        time.sleep(_STEP_S)


def at_least(seconds: float) -> None:
    """Let time pass that the tested code measures itself: a server's timeout that has to expire, a clock in
    milliseconds that has to advance. More time must not matter to the test."""
    time.sleep(seconds)


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    """Check that the block takes at least this long: AssertionError if it ends sooner.

    The block includes the code that starts the time and the code that ends it, so that a pause anywhere only makes it
    longer.
    """
    begin = time.monotonic()
    yield
    taken_s = time.monotonic() - begin
    assert taken_s >= seconds, f"over after {taken_s:.3f} s, not after {seconds} s at least"


def _stolen_s() -> float:
    """Return the seconds that the hypervisor has kept from each core since the machine started; 0 if they are not
    counted."""
    try:
        fields = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()
        return int(fields[_STOLEN]) / _TICKS_S / (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return 0.0


# The threads that the running test has started, but not those that an earlier test or a shared server starts meanwhile.
#
#     note_starts() --> every start: thread -> (number, the thread that started it)
#     begin_test()      numbers from here on are the test's
#     own_threads() --> alive, with one of the test's numbers, and a chain of starters that ends at the main thread


class _Start(NamedTuple):
    number: int
    by: threading.Thread


_numbers = itertools.count()
_starts: WeakKeyDictionary[threading.Thread, _Start] = WeakKeyDictionary()
_first = 0


def note_starts() -> None:
    """Record the starter of each thread from now on."""
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        _starts[thread] = _Start(next(_numbers), threading.current_thread())
        start(thread)
    threading.Thread.start = noted


def begin_test() -> None:
    """Begin a test: threads that were started before are not the test's, nor are those that they start."""
    global _first
    _first = next(_numbers)


def own_threads() -> set[threading.Thread]:
    """Return the test's threads that run."""
    return {thread for thread in threading.enumerate() if _is_own(thread)}


def running_clients() -> set[threading.Thread]:
    """Return one thread of each client instance that is not shut down."""
    return {thread for thread in threading.enumerate() if thread.name == "MQClientFactoryScheduledThread"}


def _is_own(thread: threading.Thread) -> bool:
    start = _starts.get(thread)
    return start is not None and start.number > _first and (
        start.by is threading.main_thread() or _is_own(start.by))


# The CPU that this process and the processes that it started have used.


def used_s() -> float:
    """Return user and system seconds of this process, of children that have ended, and of running descendants.

    A process that leaves its parent counts only until then.
    """
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                used += sum(child.cpu_times()[:4])
    return used


class Laps:
    """The CPU time between two samples: the cost of a test file, if a sample is taken at the end of each."""

    def __init__(self) -> None:
        self._before = used_s()

    def lap(self) -> float:
        """Return the CPU seconds since the last sample, at least 0."""
        now = used_s()
        took, self._before = max(0.0, now - self._before), now
        return took
