"""A named thread that runs one service: one flag wakes it, another stops it, and exceptions do not end it.

    caller --wakeup()--> [notified] --> service: wait_for_running -> on_wait_end -> work -> wait_for_running ...
    owner  --shutdown()-> [stopped], wakes, joins
    an exception that escapes `run` --> logged, a pause, `run` again
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
# After a loop has run this long, its next failure counts as the first in a row.
_CALM_NS = 10_000_000_000
_FAILURES_AT_END = 3  # attempts at an orderly end


class ServiceThread:
    """The base of all services: override `get_service_name` and `run` (which loops `while not self.stopped`).

    `wakeup` coalesces: any number of calls before the service checks its work cause one pass. A service that has been
    shut down can be started again. Waiting uses a Condition whose one predicate is "notified".

    An exception that escapes `run` does not end the service: `run` is called again, so it must be able to start from
    any state that a failed pass leaves. A service whose thread owns resources (sockets, a selector) closes them in
    `run`, around `keep_going(its loop)`.

    Differs: a service survives an exception; in the original an exception that escapes a loop silently ends its thread.

    Java: org.apache.rocketmq.common.ServiceThread (4.9.8)
    """

    join_time_ms = JOIN_TIME_MS
    # Whether to continue after an exception. False for a service of one connection, which ends with it.
    goes_on = True
    # Failures in a row after which the service gives up; 0: never.
    max_failures = 0

    def __init__(self) -> None:
        self.daemon = False
        self._thread: threading.Thread | None = None  # guarded by _life
        self._life = threading.Lock()
        # Written by the owner and read by the service; a plain flag is sufficient.
        self._stopped = False
        # The exception that made the service give up; written by the service.
        self.failure: BaseException | None = None
        # Called on the service's thread when it has given up.
        self.on_failed: Callable[[ServiceThread], None] | None = None
        self._notified = False  # guarded by _wake
        self._wake = threading.Condition(threading.Lock())

    def get_service_name(self) -> str:
        """Return the thread's name; Java's getServiceName()."""
        return type(self).__name__

    @property
    def stopped(self) -> bool:
        """True once `shutdown` was called. The service's loop ends when it reads that."""
        return self._stopped

    def start(self) -> None:
        """Start the thread; a second call while it runs does nothing."""
        # An interrupt in the middle would leave a thread that can be neither joined nor started again.
        with interrupted_later(), self._life:
            if self._thread is not None:
                return
            self._stopped, self.failure = False, None
            thread = threading.Thread(target=self._run, name=self.get_service_name(), daemon=self.daemon)
            # Set before the thread runs, because it may call is_current_thread.
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:
                # The system allows no more threads.
                self._thread = None
                raise

    def run(self) -> None:
        """The service's loop, on its own thread."""
        raise NotImplementedError

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop the thread and wait for it, at most `join_time_ms`. Idempotent.

        `interrupt` is ignored: Java's method has it, and Python's threads cannot be interrupted.
        """
        with self._life:
            thread, self._thread = self._thread, None
        self._stopped = True
        self.wakeup()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(self.join_time_ms / 1000)
        if thread.is_alive():
            log.warning("%s is still running %d ms after shutdown", thread.name, self.join_time_ms)

    def make_stop(self) -> None:
        """Ask the loop to end without waiting for it."""
        self._stopped = True
        self.wakeup()

    def wakeup(self) -> None:
        """Let the current or the next `wait_for_running` return at once."""
        # An unguarded read: if True is stale, a pass is due anyway.
        if self._notified:
            return
        with self._wake:
            if not self._notified:
                self._notified = True
                self._wake.notify()

    def wait_for_running(self, interval_ms: float) -> None:
        """Wait until the service is woken or stopped, or `interval_ms` have passed; then call `on_wait_end`."""
        with self._wake:
            if not self._notified and not self._stopped:
                self._wake.wait(interval_ms / 1000)
            self._notified = False
        self.on_wait_end()

    def on_wait_end(self) -> None:
        """Run after each wait, on the service's thread."""

    def is_alive(self) -> bool:
        """True while the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def is_current_thread(self) -> bool:
        """True when called on the service's own thread."""
        return threading.current_thread() is self._thread

    def keep_going(self, loop: Callable[[], None]) -> bool:
        """Call `loop` until it returns. After an exception, pause and call it again. Return False on giving up.

        The pause grows with the failures in a row, from 10 ms to 1 s. During a shutdown `loop` is tried three times.
        """
        failures = failures_at_end = 0
        while True:
            begin_ns = time.monotonic_ns()
            try:
                loop()
                return True
            except BaseException as error:
                # SystemExit too: it would silently end the thread.
                failures = 1 if time.monotonic_ns() - begin_ns > _CALM_NS else failures + 1
                failures_at_end += self._stopped
                if not self._may_go_on(error, failures, failures_at_end):
                    self.failure = error
                    return False
            self._pause_after(failures)

    def _may_go_on(self, error: BaseException, failures: int, failures_at_end: int) -> bool:
        name, logger = self.get_service_name(), getattr(sys.modules[type(self).__module__], "log", log)
        # Log the 1st, 2nd, 4th, 8th ... in a row.
        if failures & failures - 1 == 0:
            logger.warning("%s service has exception. ", name, exc_info=error)
        if not self.goes_on:
            return False
        if failures_at_end >= _FAILURES_AT_END:
            logger.error("%s service cannot shut down in order: %r", name, error)
            return False
        if self.max_failures and failures >= self.max_failures:
            logger.critical("%s service gives up after %d failures in a row: %r", name, failures, error)
            return False
        return True

    def _pause_after(self, failures: int) -> None:
        pause_ms = min(_FIRST_PAUSE_MS << min(failures - 1, 10), _MAX_PAUSE_MS)
        end_ns = time.monotonic_ns() + pause_ms * 1_000_000
        # In steps, because the wakeup of some services ends a different wait than this sleep.
        while not self._stopped and (left_ns := end_ns - time.monotonic_ns()) > 0:
            time.sleep(min(left_ns / 1e9, _PAUSE_STEP_MS / 1000))

    def _run(self) -> None:
        self.keep_going(self.run)
        if self.failure is not None and self.on_failed is not None:
            self.on_failed(self)
