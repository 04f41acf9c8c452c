"""A thread that is one service: named, started once, woken by one flag, stopped by another.

    caller --wakeup()--> [notified] --> service: wait_for_running -> on_wait_end -> work -> wait_for_running ...
    owner  --shutdown()-> [stopped], wakes, joins
"""
import logging
import threading

log = logging.getLogger("RocketmqCommon")

JOIN_TIME_MS = 90 * 1000


class ServiceThread:
    """Base of all services: override `get_service_name` and `run` (which loops `while not self.stopped`).

    `wakeup` is coalescing: any number of calls before the service looks make one round. A service that has been
    shut down can be started again. Waiting uses a Condition whose one predicate is "notified".

    Java: org.apache.rocketmq.common.ServiceThread (4.9.8)
    """

    join_time_ms = JOIN_TIME_MS

    def __init__(self) -> None:
        self.daemon = False
        self._thread: threading.Thread | None = None  # guarded by _life
        self._life = threading.Lock()
        self._stopped = False  # written by the owner, read by the service; a plain flag is enough
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
        with self._life:
            if self._thread is not None:
                return
            self._stopped = False
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

    def _run(self) -> None:
        try:
            self.run()
        except Exception:
            log.exception("%s service ended by an exception", self.get_service_name())
