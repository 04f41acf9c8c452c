"""One thread that runs tasks at their times.

    schedule* --> heap of (due, task) --> ScheduledService: wait until the first is due -> run it -> put it back
"""
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqCommon")


class ScheduledService(ServiceThread):
    """A single-threaded scheduled executor. A task that raises is logged and stays scheduled.

    Differs from Java's executor, which silently drops a periodic task after its first exception.

    Java: java.util.concurrent.ScheduledThreadPoolExecutor
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.daemon = True
        self.join_time_ms = 5_000
        self._name = name
        self._order = itertools.count()
        self._heap: list[tuple[int, int, int, Callable[[], object]]] = []  # (due ns, order, period ns or 0, task)
        self._changed = threading.Condition()  # announces: a new first task, or stopped; guards _heap

    def get_service_name(self) -> str:
        return self._name

    def schedule_at_fixed_rate(self, task: Callable[[], object], initial_delay_ms: float, period_ms: float) -> None:
        """Run `task` after the delay, then each period (not caught up when late). The first call starts the thread."""
        self._put(task, initial_delay_ms, period_ms)

    def schedule(self, task: Callable[[], object], delay_ms: float) -> None:
        """Run `task` once after the delay. The first call starts the thread."""
        self._put(task, delay_ms, 0)

    def wakeup(self) -> None:
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        while (item := self._take()) is not None:
            _due, _order, period_ns, task = item
            try:
                task()
            except BaseException as error:  # SystemExit, too: it would take the task, or this thread, away
                log.error("%s: scheduled task %s failed", self._name, getattr(task, "__qualname__", task),
                          exc_info=error)
            if period_ns:
                self._push(time.monotonic_ns() + period_ns, period_ns, task)

    def _put(self, task: Callable[[], object], delay_ms: float, period_ms: float) -> None:
        if self.stopped:
            return
        self._push(time.monotonic_ns() + int(delay_ms * 1e6), int(period_ms * 1e6), task)
        self.start()

    def _push(self, due_ns: int, period_ns: int, task: Callable[[], object]) -> None:
        with self._changed:
            heapq.heappush(self._heap, (due_ns, next(self._order), period_ns, task))
            self._changed.notify()

    def _take(self) -> tuple[int, int, int, Callable[[], object]] | None:
        with self._changed:
            while not self.stopped:
                if not self._heap:
                    self._changed.wait()
                    continue
                wait_ns = self._heap[0][0] - time.monotonic_ns()
                if wait_ns <= 0:
                    return heapq.heappop(self._heap)
                self._changed.wait(wait_ns / 1e9)
        return None
