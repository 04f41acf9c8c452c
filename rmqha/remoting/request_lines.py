"""Requests that wait for a pool, by connection: none takes all of its threads, or of its queue.

    IO thread --submit--> [line of the connection] --a few at a time--> pool: hooks, processor, answer
                                ^-- stands still until its answers are read

A line ends with its connection: none of its requests is begun then.
"""
import threading
from collections import deque
from collections.abc import Callable

from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.channel import Channel
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH
from rmqha.remoting.interfaces import RequestTask

# Differs: 4.9 serves what one connection asks with all threads of a pool, and queues requests by number, answers
# without a limit
SHARE = 4  # one connection has a quarter of a pool's threads at most, and as many places in its queue
LONG_LINE = 256  # requests that wait, from which on the connection is not read from
LONG_LINE_BYTES = FRAME_MAX_LENGTH  # that these take, likewise
MAX_WAITING_BYTES = 16 * FRAME_MAX_LENGTH  # that those of all connections take, from which on new ones are refused


class WaitingBytes:
    """The bytes of all requests that wait, of any number of connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sum = 0  # guarded by _lock

    def add(self, size: int) -> None:
        """So many more wait, or fewer."""
        with self._lock:
            self.sum += size


class RequestLines:
    """The lines of one server or client.

    `refuse(task, pool)` answers a request that the pool has no room for. Only by the IO thread.
    """

    def __init__(self, refuse: Callable[[RequestTask, NamedThreadPool], None]) -> None:
        self._refuse = refuse
        self.waiting_bytes = WaitingBytes()
        self._lines: dict[Channel, dict[NamedThreadPool, RequestLine]] = {}

    def submit(self, task: RequestTask, pool: NamedThreadPool) -> None:
        """Have `task` done by the pool, once those before it in its line are begun."""
        lines = self._lines.setdefault(task.channel, {})
        line = lines.get(pool)
        if line is None:
            line = lines[pool] = RequestLine(task.channel, pool, self._refuse, self.waiting_bytes)
        line.submit(task)

    def closed(self, channel: Channel) -> None:
        """The connection is gone."""
        for line in self._lines.pop(channel, {}).values():
            line.drop()


class RequestLine:
    """What one connection waits for, of one pool."""

    def __init__(self, channel: Channel, pool: NamedThreadPool,
                 refuse: Callable[[RequestTask, NamedThreadPool], None], all_bytes: WaitingBytes) -> None:
        self._channel, self._pool, self._refuse, self._all_bytes = channel, pool, refuse, all_bytes
        self._share = max(1, pool.max_workers // SHARE)
        self._lock = threading.Lock()
        self._waiting: deque[RequestTask] = deque()  # guarded by _lock
        self._bytes = 0  # that wait; guarded by _lock
        self._queued = 0  # runs in the pool's queue; guarded by _lock
        self._running = 0  # guarded by _lock
        self._elsewhere = 0  # that wait and have no run in the queue, as the pool knows it; guarded by _lock
        self._is_still = False  # until answers are read; guarded by _lock
        self._holds = False  # the connection, which is not read from; guarded by _lock

    def submit(self, task: RequestTask) -> None:
        """One more at the end. By the IO thread."""
        pool = self._pool
        with self._lock:
            if pool.queue_size() < pool.queue_capacity and self._all_bytes.sum + task.size <= MAX_WAITING_BYTES:
                self._waiting.append(task)
                self._count(task.size)
                refused = self._post()
            else:
                refused = [task]
            holds = self._holds = len(self._waiting) > LONG_LINE or self._bytes > LONG_LINE_BYTES
        if holds:
            self._channel.hold()
        self._refuse_all(refused)

    def drop(self) -> None:
        """The connection is gone: nothing that waits is begun."""
        with self._lock:
            self._waiting.clear()
            self._count(-self._bytes)
            self._note_elsewhere()

    def _refuse_all(self, refused: list[RequestTask]) -> None:
        for task in refused:
            self._refuse(task, self._pool)
        if len(refused) > 1:  # all that waited
            self._channel.release()

    def _count(self, size: int) -> None:
        """Under _lock."""
        self._bytes += size
        self._all_bytes.add(size)

    def _note_elsewhere(self) -> None:
        """Under _lock."""
        now = max(0, len(self._waiting) - self._queued)
        if now != self._elsewhere:
            self._pool.note_elsewhere(now - self._elsewhere)
            self._elsewhere = now

    def _post(self) -> list[RequestTask]:
        """Have as many runs in the pool as there may be; what to refuse, when it has no room for even one. Under _lock.
        """
        refused: list[RequestTask] = []
        while (not self._is_still and self._queued < len(self._waiting)
               and self._queued + self._running < self._share):
            try:
                self._pool.submit(self._run)
            except RejectedExecutionError:
                if not self._queued and not self._running:
                    refused, self._waiting = list(self._waiting), deque()
                    self._count(-self._bytes)
                break
            self._queued += 1
        self._note_elsewhere()
        return refused

    def _run(self) -> None:
        """The first request of the line. In the pool."""
        task = self._next()
        if task is None:
            return
        try:
            task()
        finally:
            with self._lock:
                self._running -= 1
                refused = self._post()
            self._refuse_all(refused)

    def _next(self) -> RequestTask | None:
        channel = self._channel
        has_room, frees = channel.pending_bytes <= channel.high_water_mark, False
        with self._lock:
            self._queued -= 1
            if not self._waiting or self._is_still or not channel.is_active:
                return None
            self._is_still = not has_room
            if has_room:
                task = self._waiting.popleft()
                self._count(-task.size)
                self._running += 1
                frees = self._holds and len(self._waiting) <= LONG_LINE // 2 and self._bytes <= LONG_LINE_BYTES // 2
                self._holds = self._holds and not frees
            self._note_elsewhere()
        if not has_room:
            channel.call_when_sent(self._go_on)
            return None
        if frees:
            channel.release()
        return task

    def _go_on(self, _ok: bool) -> None:
        """The answers are read, or the connection is gone."""
        with self._lock:
            self._is_still = False
            refused = self._post()
        self._refuse_all(refused)
