"""A thread that is one service: named, started once, woken by one flag, stopped by another.

    caller --wakeup()--> [notified] --> service: wait_for_running -> on_wait_end -> work -> wait_for_running ...
    owner  --shutdown()-> [stopped], wakes, joins
    an exception that `run` lets out --> logged, a pause, `run` again
"""
import logging
import sys
import threading
import time
from collections.abc import Callable

from rmqha.common.program import interrupted_later

log = logging.getLogger("RocketmqCommon")

JOIN_TIME_MS = 90 * 1000
_FIRST_PAUSE_MS, _MAX_PAUSE_MS, _PAUSE_STEP_MS = 10, 1000, 50
_CALM_NS = 10_000_000_000  # a loop that went well for so long has not failed again, it has failed anew
_FAILURES_AT_END = 3  # tries to end in good order


class ServiceThread:
    """Base of all services: override `get_service_name` and `run` (which loops `while not self.stopped`).

    `wakeup` is coalescing: any number of calls before the service looks make one round. A service that has been
    shut down can be started again. Waiting uses a Condition whose one predicate is "notified".

    An exception that `run` lets out ends one round, not the service: `run` is called again, so it must begin well from
    whatever state a failed round leaves. A service that owns what its thread closes (sockets, a selector) closes it in
    `run`, around `keep_going(its loop)`.

    Differs: in the original what a loop does not catch ends its thread, and nobody hears of it.

    Java: org.apache.rocketmq.common.ServiceThread (4.9.8)
    """

    join_time_ms = JOIN_TIME_MS
    goes_on = True  # after an exception; False: it serves one connection, which ends with it
    max_failures = 0  # failures in a row after which it gives up; 0: it never does

    def __init__(self) -> None:
        self.daemon = False
        self._thread: threading.Thread | None = None  # guarded by _life
        self._life = threading.Lock()
        self._stopped = False  # written by the owner, read by the service; a plain flag is enough
        self.failure: BaseException | None = None  # what made it give up; written by the service
        self.on_failed: Callable[[ServiceThread], None] | None = None  # told on its thread that it has given up
        self._notified = False  # guarded by _wake
        self._wake = threading.Condition(threading.Lock())

    def get_service_name(self) -> str:
        """The thread's name; Java's getServiceName()."""
        return type(self).__name__

    @property
    def stopped(self) -> bool:
        """True from `shutdown` on; the service's loop ends when it sees it."""
        return self._stopped

    def start(self) -> None:
        """Start the thread; a second call while it runs does nothing."""
        with interrupted_later(), self._life:  # a thread that is half started can be neither joined nor started again
            if self._thread is not None:
                return
            self._stopped, self.failure = False, None
            thread = threading.Thread(target=self._run, name=self.get_service_name(), daemon=self.daemon)
            self._thread = thread  # set before it runs: it may ask is_current_thread
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads: there is nothing to join
                self._thread = None
                raise

    def run(self) -> None:
        """The service's loop, on its own thread."""
        raise NotImplementedError

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop and join, at most `join_time_ms`. Idempotent. Python has no interrupts: the flag is Java's signature."""
        with self._life:
            thread, self._thread = self._thread, None
        self._stopped = True
        self.wakeup()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(self.join_time_ms / 1000)
        if thread.is_alive():
            log.warning("%s still runs %d ms after shutdown", thread.name, self.join_time_ms)

    def make_stop(self) -> None:
        """Ask the loop to end without waiting for it."""
        self._stopped = True
        self.wakeup()

    def wakeup(self) -> None:
        """Let the next (or the present) `wait_for_running` return at once."""
        if self._notified:  # unguarded peek: a stale True means that a round is due anyway
            return
        with self._wake:
            if not self._notified:
                self._notified = True
                self._wake.notify()

    def wait_for_running(self, interval_ms: float) -> None:
        """Wait until woken, stopped, or `interval_ms` have passed; then call `on_wait_end`."""
        with self._wake:
            if not self._notified and not self._stopped:
                self._wake.wait(interval_ms / 1000)
            self._notified = False
        self.on_wait_end()

    def on_wait_end(self) -> None:
        """Called after each wait, on the service's thread."""

    def is_alive(self) -> bool:
        """True while the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def is_current_thread(self) -> bool:
        """True when called on the service's own thread."""
        return threading.current_thread() is self._thread

    def keep_going(self, loop: Callable[[], None]) -> bool:
        """Call `loop`, and again, after a pause, whenever an exception ends it; False when the service has given up.

        The pause grows with the failures in a row, from 10 ms to 1 s. At a shutdown it is tried three times.
        """
        failures = failures_at_end = 0
        while True:
            begin_ns = time.monotonic_ns()
            try:
                loop()
                return True
            except BaseException as error:  # SystemExit, too: it would end the thread without a word
                failures = 1 if time.monotonic_ns() - begin_ns > _CALM_NS else failures + 1
                failures_at_end += self._stopped
                if not self._may_go_on(error, failures, failures_at_end):
                    self.failure = error
                    return False
            self._pause_after(failures)

    def _may_go_on(self, error: BaseException, failures: int, failures_at_end: int) -> bool:
        name, logger = self.get_service_name(), getattr(sys.modules[type(self).__module__], "log", log)
        if failures & failures - 1 == 0:  # the 1st, 2nd, 4th, 8th ... in a row
            logger.warning("%s service has exception. ", name, exc_info=error)
        if not self.goes_on:
            return False
        if failures_at_end >= _FAILURES_AT_END:
            logger.error("%s service can't end in good order: %r", name, error)
            return False
        if self.max_failures and failures >= self.max_failures:
            logger.critical("%s service gives up: it has failed %d times in a row, %r", name, failures, error)
            return False
        return True

    def _pause_after(self, failures: int) -> None:
        pause_ms = min(_FIRST_PAUSE_MS << min(failures - 1, 10), _MAX_PAUSE_MS)
        end_ns = time.monotonic_ns() + pause_ms * 1_000_000
        # in steps: some services' wakeup ends another wait than this
        while not self._stopped and (left_ns := end_ns - time.monotonic_ns()) > 0:
            time.sleep(min(left_ns / 1e9, _PAUSE_STEP_MS / 1000))

    def _run(self) -> None:
        self.keep_going(self.run)
        if self.failure is not None and self.on_failed is not None:
            self.on_failed(self)
