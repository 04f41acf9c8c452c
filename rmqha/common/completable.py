"""A value that comes later, and what is to be done with it."""
import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

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
