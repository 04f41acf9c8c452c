"""The lines in which the requests of each connection wait for a pool, so that no connection occupies the whole pool.

    IO thread --submit--> [line of the connection] --a few at a time--> pool: hooks, processor, answer
                                ^-- pauses until its answers are read

The requests of a line are begun in the order in which they arrived, but several run at a time, so their answers may be
in another order. A line ends with its connection: its waiting requests are dropped.
"""
import threading
from collections import deque
from collections.abc import Callable

from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.channel import Channel
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH
from rmqha.remoting.interfaces import RequestTask

# Differs: one connection gets at most a quarter of a pool's threads, and its waiting requests and answers are limited
# in number and bytes. 4.9 serves them with all threads of a pool, limits the queued requests only by number, and does
# not limit the queued answers

# A connection gets at most this fraction (1 / SHARE) of the pool's threads, for running and queued requests together.
SHARE = 4
# With more waiting requests, or more bytes in them, the connection is not read from.
LONG_LINE = 256
LONG_LINE_BYTES = FRAME_MAX_LENGTH
# With more bytes in the waiting requests of all connections, new ones are refused.
MAX_WAITING_BYTES = 16 * FRAME_MAX_LENGTH


class WaitingBytes:
    """A counter of the bytes in all waiting requests, of any number of connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sum = 0  # guarded by _lock

    def add(self, size: int) -> None:
        """Add to the counter; subtract with a negative `size`."""
        with self._lock:
            self.sum += size


class RequestLines:
    """The lines of one server or client. Used only by the IO thread.

    `refuse(task, pool)` answers a request that the pool has no space for.
    """

    def __init__(self, refuse: Callable[[RequestTask, NamedThreadPool], None]) -> None:
        self._refuse = refuse
        self.waiting_bytes = WaitingBytes()
        self._lines: dict[Channel, dict[NamedThreadPool, RequestLine]] = {}

    def submit(self, task: RequestTask, pool: NamedThreadPool) -> None:
        """Have the pool run `task` once all earlier tasks in its line have begun."""
        lines = self._lines.setdefault(task.channel, {})
        line = lines.get(pool)
        if line is None:
            line = lines[pool] = RequestLine(task.channel, pool, self._refuse, self.waiting_bytes)
        line.submit(task)

    def closed(self, channel: Channel) -> None:
        """Drop the lines of a connection that was closed."""
        for line in self._lines.pop(channel, {}).values():
            line.drop()


class RequestLine:
    """The requests of one connection that wait for one pool."""

    def __init__(self, channel: Channel, pool: NamedThreadPool,
                 refuse: Callable[[RequestTask, NamedThreadPool], None], all_bytes: WaitingBytes) -> None:
        self._channel, self._pool, self._refuse, self._all_bytes = channel, pool, refuse, all_bytes
        self._share = max(1, pool.max_workers // SHARE)
        self._lock = threading.Lock()
        self._waiting: deque[RequestTask] = deque()  # guarded by _lock
        # All guarded by _lock:
        self._bytes = 0  # in the waiting requests
        self._queued = 0  # runs in the pool's queue
        self._running = 0
        # The number of waiting requests without a run in the pool's queue, as last reported to the pool.
        self._elsewhere = 0
        self._is_still = False  # paused until the answers are read
        self._holds = False  # the connection is not read from

    def submit(self, task: RequestTask) -> None:
        """Append a request to the line. Only for the IO thread."""
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
        """Drop the waiting requests of a connection that was closed."""
        with self._lock:
            self._waiting.clear()
            self._count(-self._bytes)
            self._note_elsewhere()

    def _refuse_all(self, refused: list[RequestTask]) -> None:
        for task in refused:
            self._refuse(task, self._pool)
        if len(refused) > 1:  # the whole line
            self._channel.release()

    def _count(self, size: int) -> None:
        """Add to both counters of waiting bytes. Under _lock."""
        self._bytes += size
        self._all_bytes.add(size)

    def _note_elsewhere(self) -> None:
        """Report the number of requests that wait outside the pool's queue. Under _lock."""
        now = max(0, len(self._waiting) - self._queued)
        if now != self._elsewhere:
            self._pool.note_elsewhere(now - self._elsewhere)
            self._elsewhere = now

    def _post(self) -> list[RequestTask]:
        """Queue as many runs in the pool as the share allows. Under _lock.

        Return the requests to refuse: the whole line if the pool has no space for a run and none is in progress.
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
        """Run the first request of the line. Called by the pool."""
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
        """Resume the line, after the answers were sent or the connection was closed."""
        with self._lock:
            self._is_still = False
            refused = self._post()
        self._refuse_all(refused)
