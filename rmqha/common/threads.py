"""Threads: a pool, a scheduler, stacks for debugging, polling for a condition, and a waker for selectors.

`NamedThreadPool` runs work that may block, from a bounded queue:

    submit --> queue (bounded) --> <prefix>1 .. <prefix>n, each: take -> run

`ScheduledService` runs tasks at their times in one thread:

    schedule* --> heap of (due, task) --> ScheduledService: wait until the first is due -> run it -> put it back

`wait_until` polls a condition that no thread signals.
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
    """At most `max_workers` daemon threads named `<prefix><n>`, started as work arrives, and a bounded queue of tasks.

    The queue holds at most `queue_capacity` tasks.

    Java: org.apache.rocketmq.broker.latency.BrokerFixedThreadPoolExecutor (4.9.8)
    """

    def __init__(self, name_prefix: str, max_workers: int, queue_capacity: int = 1 << 30) -> None:
        self.name_prefix = name_prefix
        self.max_workers = max(1, max_workers)
        self.queue_capacity = queue_capacity
        self._tasks: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()  # guarded by _not_empty
        self._threads: list[threading.Thread] = []  # guarded by _not_empty
        # Tasks waiting outside the queue; guarded by _not_empty.
        self._elsewhere = 0
        self._idle = 0  # guarded by _not_empty
        self._stopped = False  # guarded by _not_empty
        # Signals that a task waits, or that the pool is stopped.
        self._not_empty = threading.Condition()

    def submit(self, fn: Callable[..., object], *args: object) -> None:
        """Queue `fn(*args)`.

        RejectedExecutionError when the queue is full, the pool is shut down, or no thread can be started.
        """
        with self._not_empty:
            if self._stopped or len(self._tasks) >= self.queue_capacity:
                raise RejectedExecutionError(self.name_prefix)
            self._tasks.append((fn, args))
            if self._idle:
                self._not_empty.notify()
            # Each idle thread takes one task. If more tasks wait than that, they need another thread.
            if len(self._tasks) > self._idle and len(self._threads) < self.max_workers:
                # An interrupt in the middle would leave a thread that cannot be joined.
                with interrupted_later():
                    self._add_thread()

    def _add_thread(self) -> None:
        """Start one more worker. Called under _not_empty, with the newest task at the end of the queue."""
        name = f"{self.name_prefix}{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system allows no more threads. The existing ones do the work; without any, the task is rejected.
            if not self._threads:
                self._tasks.pop()
                raise RejectedExecutionError(f"{self.name_prefix}: {error}") from error
            log.warning("%s: cannot start another thread, %d are running: %s", self.name_prefix, len(self._threads),
                        error)
            return
        self._threads.append(thread)

    def queue_size(self) -> int:
        """Return the number of waiting tasks, including those counted by `note_elsewhere`."""
        return len(self._tasks) + self._elsewhere

    def note_elsewhere(self, more: int) -> None:
        """Add `more` (may be negative) to the count of tasks that wait outside the queue, not yet submitted."""
        with self._not_empty:
            self._elsewhere += more

    def shutdown(self, timeout_ms: int = 5000) -> None:
        """Run the queued tasks, end the threads, and wait at most `timeout_ms` for each. Idempotent."""
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
            except BaseException as error:
                # SystemExit too: it would end this thread, which would still be counted as a worker.
                log.error("%s: task %s failed", self.name_prefix, getattr(fn, "__qualname__", fn), exc_info=error)
            # An idle thread must not keep the task's objects alive.
            del fn, args


class ScheduledService(ServiceThread):
    """A single-threaded scheduled executor. A task that raises is logged and stays scheduled.

    Differs: a periodic task that raises an exception stays scheduled; Java's executor silently drops it.

    Java: java.util.concurrent.ScheduledThreadPoolExecutor
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.daemon = True
        self.join_time_ms = 5_000
        self._name = name
        self._order = itertools.count()
        # (due ns, order, period ns or 0, task); guarded by _changed
        self._heap: list[tuple[int, int, int, Callable[[], object]]] = []
        # Signals a new first task, or that the service is stopped.
        self._changed = threading.Condition()

    def get_service_name(self) -> str:
        return self._name

    def schedule_at_fixed_rate(self, task: Callable[[], object], initial_delay_ms: float, period_ms: float) -> None:
        """Run `task` after the delay, then once per period. Missed runs are not made up for.

        The first call starts the thread.
        """
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
            except BaseException as error:
                # SystemExit too: it would end this thread, and with it all tasks.
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
    """Return the innermost frame of each thread, by thread ident.

    Garbage collection is disabled meanwhile. CPython 3.11 walks the threads under an internal lock, which a thread also
    needs to end or to release a threading.local. A collection that releases the GIL inside would deadlock the process.
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
    """Return the stacks of all threads of this process: each line begins with the thread's name, innermost call first.

    Java: org.apache.rocketmq.common.UtilAll#jstack (4.9.8)
    """
    frames = current_frames()
    stacks = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None:
            continue
        # Differs: in a dump of threads the state is always UNKNOWN; CPython does not expose whether a thread runs,
        # waits or is blocked
        stacks.append(f"{thread.name:<40}TID: {thread.native_id} STATE: UNKNOWN\n")
        for call in reversed(traceback.extract_stack(frame)):
            file = call.filename.rpartition("/")[2]
            stacks.append(f"{thread.name:<40}{call.name}({file}:{call.lineno})\n")
        stacks.append("\n")
    return "".join(stacks)


def wait_until(come: Callable[[], object], timeout_s: float, step_s: float = 0.05) -> bool:
    """Poll `come` every `step_s` until it is true. Return False when `timeout_s` passes first."""
    deadline = time.monotonic() + timeout_s
    while not come():
        if time.monotonic() > deadline:
            return False
        time.sleep(step_s)
    return True


class Waker:
    """A descriptor to register with a selector: `wakeup`, from any thread, makes the selector return.

    Any number of wake-ups before a `drain` cost one write. The selecting thread calls `drain` before it checks for
    work, so that work that arrives later wakes it again. Only the selecting thread calls `close`.

    Java: java.nio.channels.Selector#wakeup
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Only a hint: a lost race costs one more write, never a wake-up.
        self._pending = False
        # Guards _fd: the number of a closed descriptor may already belong to another file.
        self._open = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor, or -1 once closed."""
        return self._fd

    def wakeup(self) -> None:
        """Make the selector return, now or at its next select. Does nothing after `close`."""
        if self._pending:
            return
        self._pending = True
        with self._open:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Clear the wake-ups so far. Only the selecting thread calls this."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            # No wake-up since the last one.
            return
        finally:
            self._pending = False

    def close(self) -> None:
        """Release the descriptor. Idempotent."""
        self._pending = True
        with self._open:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
