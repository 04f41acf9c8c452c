"""Results that one thread will want in order, worked out beside it by others.

    begin --> pool --> a thread: the call      take: the result; a call that nobody has begun is done by who takes it

For calls that release the GIL and change nothing, so that it does not matter if a result is never taken.
"""
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from rmqha.common.thread_pool import NamedThreadPool, RejectedExecutionError

T = TypeVar("T")

_MOST_CORES = 8  # more bring nothing: the one thread that takes the results can't keep up


def usable_cores() -> int:
    """How many cores this process may keep busy."""
    return min(len(os.sched_getaffinity(0)), _MOST_CORES)


class Ahead(Generic[T]):
    """One call: done once, by the pool or by who takes its result."""

    __slots__ = ("_call", "_begun", "_done", "_result", "_error")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call  # of the thread that has _begun
        self._begun = threading.Lock()  # never given back
        self._done = threading.Event()
        self._result: T
        self._error: BaseException | None = None

    def work(self) -> None:
        """Do it, unless somebody does."""
        if not self._begun.acquire(blocking=False):
            return
        assert self._call is not None
        try:
            self._result = self._call()
        except BaseException as error:  # for who takes it
            self._error = error
        self._call = None
        self._done.set()

    def take(self) -> T:
        """What the call gave, or raised."""
        self.work()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


class WorkAhead:
    """A pool of `threads` that live as long as the `with` statement; at its end nothing works any more.

    With no threads, or none to be had, each call is done when its result is taken.
    """

    def __init__(self, name_prefix: str, threads: int) -> None:
        self.threads = threads
        self._pool = NamedThreadPool(name_prefix, threads) if threads > 0 else None
        self._closed = False  # what has not been begun by then is left alone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(int(threading.TIMEOUT_MAX) * 1000 - 1000)

    def begin(self, call: Callable[[], T]) -> Ahead[T]:
        """Have a thread do it when one is free. It may begin further ones."""
        ahead = Ahead(call)
        if self._pool is not None and not self._closed:
            try:
                self._pool.submit(self._work, ahead)
            except RejectedExecutionError:
                return ahead  # no thread to be had, or the end: who takes it does it
        return ahead

    def _work(self, ahead: Ahead[T]) -> None:
        if not self._closed:
            ahead.work()
