"""The threads that the running test has started, not those that an earlier test or a shared server starts beside it.

    note_starts() --> every start: thread -> (number, who started it)
    begin_test()      numbers from here on are the test's
    own_threads() --> alive, of the test's numbers, and the line of starters ends at the main thread
"""
import itertools
import threading
from typing import NamedTuple
from weakref import WeakKeyDictionary


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
