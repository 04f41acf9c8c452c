"""A pool of named threads over a bounded queue, for work that may block.

    submit --> queue (bounded) --> <prefix>1 .. <prefix>n, each: take -> run
"""
import logging
import threading
from collections import deque
from collections.abc import Callable

from rmqha.common.stop_signal import interrupted_later

log = logging.getLogger("RocketmqCommon")


class RejectedExecutionError(RuntimeError):
    """The pool's queue is full, or the pool is shut down."""


class NamedThreadPool:
    """At most `max_workers` daemon threads named `<prefix><n>`, made as work arrives; `queue_capacity` tasks wait.

    Java: org.apache.rocketmq.broker.latency.BrokerFixedThreadPoolExecutor (4.9.8)
    """

    def __init__(self, name_prefix: str, max_workers: int, queue_capacity: int = 1 << 30) -> None:
        self.name_prefix = name_prefix
        self.max_workers = max(1, max_workers)
        self.queue_capacity = queue_capacity
        self._tasks: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()  # guarded by _not_empty
        self._threads: list[threading.Thread] = []  # guarded by _not_empty
        self._elsewhere = 0  # tasks that wait before the queue; guarded by _not_empty
        self._idle = 0  # guarded by _not_empty
        self._stopped = False  # guarded by _not_empty
        self._not_empty = threading.Condition()  # announces: a task waits, or stopped

    def submit(self, fn: Callable[..., object], *args: object) -> None:
        """Queue `fn(*args)`; RejectedExecutionError: the queue is full, the pool shut down, no thread to be had."""
        with self._not_empty:
            if self._stopped or len(self._tasks) >= self.queue_capacity:
                raise RejectedExecutionError(self.name_prefix)
            self._tasks.append((fn, args))
            if self._idle:
                self._not_empty.notify()
            # an idle thread takes one task: the others must not wait for its end
            if len(self._tasks) > self._idle and len(self._threads) < self.max_workers:
                with interrupted_later():  # a thread that is half started can't be joined
                    self._add_thread()

    def _add_thread(self) -> None:
        """One more worker. Under _not_empty, with the newest task at the queue's end."""
        name = f"{self.name_prefix}{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads: those that are there do it, if there are any
            if not self._threads:
                self._tasks.pop()
                raise RejectedExecutionError(f"{self.name_prefix}: {error}") from error
            log.warning("%s: no thread beside %d: %s", self.name_prefix, len(self._threads), error)
            return
        self._threads.append(thread)

    def queue_size(self) -> int:
        """Tasks that wait, those before the queue counted."""
        return len(self._tasks) + self._elsewhere

    def note_elsewhere(self, more: int) -> None:
        """Count so many more (or less) tasks that wait until somebody submits them."""
        with self._not_empty:
            self._elsewhere += more

    def shutdown(self, timeout_ms: int = 5000) -> None:
        """Finish what is queued, end the threads, join each at most `timeout_ms`. Idempotent."""
        with self._not_empty:
            self._stopped = True
            self._not_empty.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout_ms / 1000)

    def _work(self) -> None:
        while True:
            with self._not_empty:
                while not self._tasks:
                    if self._stopped:
                        return
                    self._idle += 1
                    self._not_empty.wait()
                    self._idle -= 1
                fn, args = self._tasks.popleft()
            try:
                fn(*args)
            except BaseException as error:  # SystemExit, too: it would end this thread, which is still counted
                log.error("%s: task %s failed", self.name_prefix, getattr(fn, "__qualname__", fn), exc_info=error)
            del fn, args  # an idle thread keeps nothing alive
