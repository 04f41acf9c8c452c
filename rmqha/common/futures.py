"""Concurrency primitives: futures, work at the end of a thread's round, work ahead of its use, and atomic values.

A `Round` runs each act once at its end, however often `at_round_end` asked for it; there is one phase for each effect:

    REPLICATE  send the slaves what was appended   | in the order in which they were asked for
    ANSWER     write what channels have queued     |
    COUNT      statistics of what was answered       | after all of those, in the order in which they were asked for
    WAKE       services that would compete with      |
               this thread while it writes answers

`WorkAhead` computes results on other threads that one thread takes in order. It is for calls that release the GIL and
change nothing, so that a result may be left untaken.

    begin --> pool --> a thread: the call      take: the result; a call not yet begun runs in the thread that takes it

Reads of the atomic values take no lock: one attribute load is atomic under the GIL.
"""
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from rmqha.common.java import int32, int64
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError

log = logging.getLogger("RocketmqCommon")

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

_PENDING = object()


class Completable(Generic[T]):
    """Completed once, by the first `complete`; callbacks run in the completing thread, or at once when done already.

    Cheap while nobody blocks on it: one lock, no Condition. `get` is for callers that may wait.

    Java: java.util.concurrent.CompletableFuture
    """

    __slots__ = ("_value", "_callbacks", "_lock")

    def __init__(self) -> None:
        self._value: object = _PENDING  # guarded by _lock; never changes once set
        self._callbacks: list[Callable[[T], object]] | None = None  # guarded by _lock
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Completable({'pending' if self._value is _PENDING else self._value})"

    @staticmethod
    def completed(value: U) -> "Completable[U]":
        """One that is done already."""
        done: Completable[U] = Completable()
        done._value = value
        return done

    @property
    def is_done(self) -> bool:
        """True once completed."""
        return self._value is not _PENDING

    def complete(self, value: T) -> bool:
        """Set the value and run the callbacks; False when it was done before. A callback's exception is logged."""
        with self._lock:
            if self._value is not _PENDING:
                return False
            self._value = value
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(value)
            except BaseException as error:  # the others' callbacks, and the completing thread, have no part in it
                self._log_failed(callback, error)
        return True

    def then(self, callback: Callable[[T], object]) -> None:
        """Call `callback(value)` once there is one."""
        with self._lock:
            if self._value is _PENDING:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        try:
            callback(self._value)  # type: ignore[arg-type]  # it is there
        except BaseException as error:
            self._log_failed(callback, error)

    def then_apply(self, fn: Callable[[T], U], on_error: Callable[[BaseException], U]) -> "Completable[U]":
        """A Completable of `fn(value)`, or of `on_error(exception)` when `fn` raises: it never stays open."""
        result: Completable[U] = Completable()

        def apply(value: T) -> None:
            try:
                outcome = fn(value)
            except BaseException as error:
                log.error("%s failed", getattr(fn, "__qualname__", fn), exc_info=error)
                outcome = on_error(error)
            result.complete(outcome)

        self.then(apply)
        return result

    def get(self, timeout_ms: float | None = None) -> T:
        """The value; waits for it, TimeoutError after `timeout_ms`."""
        if self._value is _PENDING:
            done = threading.Event()
            self.then(lambda _value: done.set())
            if not done.wait(None if timeout_ms is None else timeout_ms / 1000):
                raise TimeoutError(f"not completed within {timeout_ms} ms")
        return self._value  # type: ignore[return-value]  # it is there

    @staticmethod
    def combine(first: "Completable[U]", second: "Completable[V]", fn: Callable[[U, V], T]) -> "Completable[T]":
        """`fn(a, b)` once both are there; done at once when both are."""
        if first.is_done and second.is_done:
            return Completable.completed(fn(first.get(), second.get()))
        result: Completable[T] = Completable()
        first.then(lambda a: second.then(lambda b: result.complete(fn(a, b))))
        return result

    all_of2 = combine

    @staticmethod
    def _log_failed(callback: Callable[[T], object], error: BaseException) -> None:
        log.error("callback %s failed", getattr(callback, "__qualname__", callback), exc_info=error)
        if isinstance(error, KeyboardInterrupt):  # somebody at the keyboard, on the main thread
            raise error


remoting_log = logging.getLogger("RocketmqRemoting")

# Plain numbers: a look at an enum's member costs more than all the rest of an `at_round_end`.
REPLICATE, ANSWER, COUNT, WAKE = range(4)
_FIRST_OF_THE_LAST = COUNT

Act = Callable[[], object]


class _ThisThread(threading.local):
    acts: "dict[Act, int] | None" = None  # of this thread's round: each once, with its phase
    single = False  # the round serves one connection


_this_thread = _ThisThread()


class Round:
    """`with Round():` what `at_round_end` is told inside happens once, at the end.

    Per thread. A round inside a round joins it. Services that complete many futures wrap their batch; what they wait
    for inside a round must not depend on what they wrote in it. A thread may use one for all its rounds, but not for
    one inside another. `single`: the round serves one connection.
    """

    __slots__ = ("single", "_outermost")

    def __init__(self, single: bool = False) -> None:
        self.single = single

    def __enter__(self) -> None:
        self._outermost = _this_thread.acts is None
        if self._outermost:
            _this_thread.acts, _this_thread.single = {}, self.single

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._outermost:
            acts, _this_thread.acts = _this_thread.acts, None
            last = []
            for act, phase in acts.items():  # type: ignore[union-attr]  # this round's own
                if phase >= _FIRST_OF_THE_LAST:
                    last.append(act)
                    continue
                try:
                    act()
                except BaseException as failure:
                    _failed(act, failure)
            for act in last:
                try:
                    act()
                except BaseException as failure:
                    _failed(act, failure)


def _failed(act: Act, failure: BaseException) -> None:
    """One that fails keeps nothing from the others, nor from the thread whose round it is."""
    remoting_log.error("flushing %s at the end of a round failed", getattr(act, "__self__", act), exc_info=failure)
    if isinstance(failure, KeyboardInterrupt):  # somebody at the keyboard, on the main thread
        raise failure


def at_round_end(phase: int, act: Act) -> bool:
    """True when this thread is in a round, at whose end `act` is called in its phase; else the caller does it now."""
    acts = _this_thread.acts
    if acts is None:
        return False
    acts[act] = phase
    return True


def serves_one_connection() -> bool:
    """Whether this thread's round serves one connection: what its read has brought is all that the round brings."""
    return _this_thread.single and _this_thread.acts is not None


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


class AtomicLong:
    """A 64-bit signed counter that wraps like Java's.

    Java: java.util.concurrent.atomic.AtomicLong
    """

    __slots__ = ("_value", "_lock")
    _wrap = staticmethod(int64)

    def __init__(self, value: int = 0) -> None:
        self._value = value  # written under _lock
        self._lock = threading.Lock()

    def get(self) -> int:
        """The value now."""
        return self._value

    def set(self, value: int) -> None:
        """Replace the value."""
        with self._lock:
            self._value = self._wrap(value)

    def add_and_get(self, delta: int) -> int:
        """Add and return the new value."""
        with self._lock:
            self._value = value = self._wrap(self._value + delta)
            return value

    def get_and_add(self, delta: int) -> int:
        """Add and return the value before."""
        with self._lock:
            before = self._value
            self._value = self._wrap(before + delta)
            return before

    def increment_and_get(self) -> int:
        """Add 1 and return the new value."""
        return self.add_and_get(1)

    def decrement_and_get(self) -> int:
        """Take 1 away and return the new value."""
        return self.add_and_get(-1)

    def get_and_increment(self) -> int:
        """Add 1 and return the value before."""
        return self.get_and_add(1)

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set `value` if the value is `expected`."""
        with self._lock:
            if self._value != expected:
                return False
            self._value = self._wrap(value)
            return True

    def set_max(self, value: int) -> bool:
        """Raise to `value`, which the type holds; False when it is not higher."""
        with self._lock:
            if value <= self._value:
                return False
            self._value = value
            return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


class AtomicInteger(AtomicLong):
    """A 32-bit signed counter that wraps like Java's.

    Java: java.util.concurrent.atomic.AtomicInteger
    """

    __slots__ = ()
    _wrap = staticmethod(int32)


class AtomicBoolean:
    """A flag with compare-and-set.

    Java: java.util.concurrent.atomic.AtomicBoolean
    """

    __slots__ = ("_value", "_lock")

    def __init__(self, value: bool = False) -> None:
        self._value = value  # written under _lock
        self._lock = threading.Lock()

    def get(self) -> bool:
        """The value now."""
        return self._value

    def set(self, value: bool) -> None:
        """Replace the value."""
        with self._lock:
            self._value = value

    def compare_and_set(self, expected: bool, value: bool) -> bool:
        """Set `value` if the value is `expected`."""
        with self._lock:
            if self._value != expected:
                return False
            self._value = value
            return True
