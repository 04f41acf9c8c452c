"""Threads: a pool, a scheduler, stacks for debugging, polling for a condition, and a waker for selectors.

`NamedThreadPool` runs work that may block, from a bounded queue:

    submit --> queue (bounded) --> <prefix>1 .. <prefix>n, each: take -> run

`ScheduledService` runs tasks at their times in one thread:

    schedule* --> heap of (due, task) --> ScheduledService: wait until the first is due -> run it -> put it back

`wait_until` is for a condition that no thread signals.
"""
import gc
import heapq
import itertools
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from types import FrameType

from rmqha.common.program import interrupted_later
from rmqha.common.service_thread import ServiceThread

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


_looking = threading.Lock()


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by its ident.

    Without a garbage collection meanwhile: CPython 3.11 looks at the threads under a lock that a thread which ends, or
    lets go a threading.local, wants too. A collection that gives up the GIL there would stop the process for ever.
    """
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def thread_stacks() -> str:
    """The stacks of all threads of this process: a thread's name before each line, innermost call first.

    Java: org.apache.rocketmq.common.UtilAll#jstack (4.9.8)
    """
    frames = current_frames()
    stacks = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None:
            continue
        # Differs: CPython does not tell whether a thread runs, waits or is blocked
        stacks.append(f"{thread.name:<40}TID: {thread.native_id} STATE: UNKNOWN\n")
        for call in reversed(traceback.extract_stack(frame)):
            file = call.filename.rpartition("/")[2]
            stacks.append(f"{thread.name:<40}{call.name}({file}:{call.lineno})\n")
        stacks.append("\n")
    return "".join(stacks)


def wait_until(come: Callable[[], object], timeout_s: float, step_s: float = 0.05) -> bool:
    """Look at `come` every `step_s` until it is true; False when that takes longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not come():
        if time.monotonic() > deadline:
            return False
        time.sleep(step_s)
    return True


class Waker:
    """A descriptor to register for reading: `wakeup` from any thread makes the selector return.

    Many wake-ups before `drain` cost one write. The selecting thread calls `drain` before it looks at its work, so
    that what arrives later wakes it again. `close` belongs to the selecting thread.

    Java: java.nio.channels.Selector#wakeup
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pending = False  # a hint only: a lost race costs one more write, never a wake-up
        self._open = threading.Lock()  # guards _fd: a closed number may already be somebody else's file

    def fileno(self) -> int:
        """The descriptor, -1 once closed."""
        return self._fd

    def wakeup(self) -> None:
        """Make the selector return, now or at its next select. Does nothing once closed."""
        if self._pending:
            return
        self._pending = True
        with self._open:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Forget the wake-ups so far. Only by the selecting thread."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return  # nobody has woken us
        finally:
            self._pending = False

    def close(self) -> None:
        """Release the descriptor. Idempotent."""
        self._pending = True
        with self._open:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
