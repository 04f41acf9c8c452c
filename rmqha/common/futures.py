"""Concurrency primitives: futures, work at the end of a thread's round, work ahead of its use, and atomic values.

A round is one pass of a thread over the work that is ready: the requests that one select of an IO thread brought, or
the futures that one fsync completes. Each piece of work has effects that cost a system call or a switch of threads:
sending to the slaves, writing an answer to a socket, waking the dispatch. Done per message, that cost would be paid
for every message. `at_round_end` defers an effect to the end of the round, where it happens once for all messages: one
send of all appended bytes, one write of all answers to a connection.

The effects run in two groups. First comes everything that another machine waits for, then everything else: a thread
that is woken earlier would compete for the GIL with this one while it writes the answers:

    REPLICATE  send the appended bytes to slaves      | in the order in which they were first requested
    ANSWER     write the queued answers of channels   |
    COUNT      statistics of the answered requests      | after all of those, in the order in which they were first
    WAKE       services that would compete with this    | requested
               thread while it writes answers

An act is deferred by identity: requested again in the same round it still runs once. An act that fails is logged and
does not prevent the others. Outside a round `at_round_end` returns False, and the caller acts at once. While a round
runs, its thread must not wait for anything that one of its deferred acts would trigger: an answer from a peer to
bytes that are still queued never comes.

`WorkAhead` computes results on other threads, and one thread takes them in order. It is for calls that release the GIL
and have no side effects, so that a result may be discarded.

    begin --> pool --> a thread: the call      take: the result; a call that has not begun runs in the taking thread

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
    """A future that the first `complete` completes.

    Callbacks run in the completing thread, or at once when the future is already complete. It is cheap while no thread
    blocks on it: one lock, no Condition. `get` is for callers that may wait.

    Java: java.util.concurrent.CompletableFuture
    """

    __slots__ = ("_value", "_callbacks", "_lock")

    def __init__(self) -> None:
        # Guarded by _lock; never changes once set.
        self._value: object = _PENDING
        self._callbacks: list[Callable[[T], object]] | None = None  # guarded by _lock
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Completable({'pending' if self._value is _PENDING else self._value})"

    @staticmethod
    def completed(value: U) -> "Completable[U]":
        """Return a future that is already complete."""
        done: Completable[U] = Completable()
        done._value = value
        return done

    @property
    def is_done(self) -> bool:
        """True once completed."""
        return self._value is not _PENDING

    def complete(self, value: T) -> bool:
        """Set the value and run the callbacks; return False when it was complete before. Exceptions are logged."""
        with self._lock:
            if self._value is not _PENDING:
                return False
            self._value = value
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(value)
            except BaseException as error:
                # It must affect neither the other callbacks nor the completing thread.
                self._log_failed(callback, error)
        return True

    def then(self, callback: Callable[[T], object]) -> None:
        """Call `callback(value)` once the value is set."""
        with self._lock:
            if self._value is _PENDING:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        try:
            callback(self._value)  # type: ignore[arg-type]  # it is set
        except BaseException as error:
            self._log_failed(callback, error)

    def then_apply(self, fn: Callable[[T], U], on_error: Callable[[BaseException], U]) -> "Completable[U]":
        """Return a Completable of `fn(value)`, or of `on_error(exception)` when `fn` raises: it always completes."""
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
        """Wait for the value and return it. TimeoutError after `timeout_ms`."""
        if self._value is _PENDING:
            done = threading.Event()
            self.then(lambda _value: done.set())
            if not done.wait(None if timeout_ms is None else timeout_ms / 1000):
                raise TimeoutError(f"not completed within {timeout_ms} ms")
        return self._value  # type: ignore[return-value]  # it is set

    @staticmethod
    def combine(first: "Completable[U]", second: "Completable[V]", fn: Callable[[U, V], T]) -> "Completable[T]":
        """Return a Completable of `fn(a, b)` for the values of both; already complete if both are."""
        if first.is_done and second.is_done:
            return Completable.completed(fn(first.get(), second.get()))
        result: Completable[T] = Completable()
        first.then(lambda a: second.then(lambda b: result.complete(fn(a, b))))
        return result

    all_of2 = combine

    @staticmethod
    def _log_failed(callback: Callable[[T], object], error: BaseException) -> None:
        log.error("callback %s failed", getattr(callback, "__qualname__", callback), exc_info=error)
        if isinstance(error, KeyboardInterrupt):  # Ctrl-C on the main thread
            raise error


remoting_log = logging.getLogger("RocketmqRemoting")

# Plain numbers: reading a member of an enum costs more than the rest of `at_round_end`.
REPLICATE, ANSWER, COUNT, WAKE = range(4)
_FIRST_OF_THE_LAST = COUNT

Act = Callable[[], object]


class _ThisThread(threading.local):
    # The deferred acts of this thread's round, each with its phase; None outside a round.
    acts: "dict[Act, int] | None" = None
    single = False  # the round serves one connection


_this_thread = _ThisThread()


class Round:
    """A context manager: `with Round():` runs the acts that `at_round_end` defers inside it once, at its end.

    A round belongs to its thread, and a round inside another joins the outer one. Services that complete many futures
    wrap the batch in a round. A thread may use one object for all its rounds, but not for a nested one. `single`: the
    round serves one connection.
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
    """Log a failed act. It must affect neither the other acts nor the thread whose round it is."""
    remoting_log.error("flushing %s at the end of a round failed", getattr(act, "__self__", act), exc_info=failure)
    if isinstance(failure, KeyboardInterrupt):  # Ctrl-C on the main thread
        raise failure


def at_round_end(phase: int, act: Act) -> bool:
    """Defer `act` to its phase at the end of this thread's round. Return False outside a round: the caller acts itself.
    """
    acts = _this_thread.acts
    if acts is None:
        return False
    acts[act] = phase
    return True


def serves_one_connection() -> bool:
    """Return whether this thread's round serves one connection, so that its read has brought all of the round's work.
    """
    return _this_thread.single and _this_thread.acts is not None


# More cores do not help: the one thread that takes the results cannot keep up.
_MOST_CORES = 8


def usable_cores() -> int:
    """Return the number of cores that this process can make use of."""
    return min(len(os.sched_getaffinity(0)), _MOST_CORES)


class Ahead(Generic[T]):
    """One call, run once: by the pool, or by the thread that takes its result."""

    __slots__ = ("_call", "_begun", "_done", "_result", "_error")

    def __init__(self, call: Callable[[], T]) -> None:
        # Used only by the thread that has acquired _begun.
        self._call: Callable[[], T] | None = call
        self._begun = threading.Lock()  # never released
        self._done = threading.Event()
        self._result: T
        self._error: BaseException | None = None

    def work(self) -> None:
        """Run the call, unless a thread has begun it."""
        if not self._begun.acquire(blocking=False):
            return
        assert self._call is not None
        try:
            self._result = self._call()
        except BaseException as error:  # `take` raises it
            self._error = error
        self._call = None
        self._done.set()

    def take(self) -> T:
        """Return the call's result, or raise its exception. Runs the call if no thread has begun it."""
        self.work()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


class WorkAhead:
    """A pool of `threads` threads that exists within its `with` statement; at its end no call is running any more.

    With 0 threads, or when none can be started, each call runs when its result is taken.
    """

    def __init__(self, name_prefix: str, threads: int) -> None:
        self.threads = threads
        self._pool = NamedThreadPool(name_prefix, threads) if threads > 0 else None
        # Once set, calls that have not begun are not run.
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(int(threading.TIMEOUT_MAX) * 1000 - 1000)

    def begin(self, call: Callable[[], T]) -> Ahead[T]:
        """Let a thread run the call when one is free. The call may begin further ones."""
        ahead = Ahead(call)
        if self._pool is not None and not self._closed:
            try:
                self._pool.submit(self._work, ahead)
            except RejectedExecutionError:
                # No thread, or closed: `take` runs the call.
                return ahead
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
        """Return the current value."""
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
        """Add and return the previous value."""
        with self._lock:
            before = self._value
            self._value = self._wrap(before + delta)
            return before

    def increment_and_get(self) -> int:
        """Add 1 and return the new value."""
        return self.add_and_get(1)

    def decrement_and_get(self) -> int:
        """Subtract 1 and return the new value."""
        return self.add_and_get(-1)

    def get_and_increment(self) -> int:
        """Add 1 and return the previous value."""
        return self.get_and_add(1)

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set `value` if the value is `expected`."""
        with self._lock:
            if self._value != expected:
                return False
            self._value = self._wrap(value)
            return True

    def set_max(self, value: int) -> bool:
        """Raise the value to `value`, which must fit the type; return False when it is not higher."""
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
        """Return the current value."""
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
