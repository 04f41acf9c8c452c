"""The flush of the consume queues, the index and the checkpoint.

    dispatching thread --note_dirty--> queues with units that are not flushed
    FlushConsumeQueueService: every flushIntervalConsumeQueue -> ConsumeQueue.flush of those; now and then of all, and
    the checkpoint
"""
from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from rmqha.common.filesystem import NotAskedError
from rmqha.common.service_thread import ServiceThread
from rmqha.common.util_all import LONG_AGO
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.flush_services import FlushShortage
from rmqha.store.index.index_service import IndexService
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

RETRY_TIMES_OVER = 3


class FlushConsumeQueueService(ServiceThread):
    """The thread that flushes the consume queues: usually those with new units, in a thorough round all and the index.

    `dispatched_to` returns the offset up to which the log is dispatched.

    Java: org.apache.rocketmq.store.DefaultMessageStore$FlushConsumeQueueService (4.9.8)
    """

    join_time_ms = 1000 * 60

    def __init__(self, state: StoreState, all_queues: Callable[[], Iterable[ConsumeQueue]], index_service: IndexService,
                 dispatched_to: Callable[[], int]) -> None:
        super().__init__()
        self._state = state
        self._all_queues = all_queues
        self._index_service = index_service
        self._dispatched_to = dispatched_to
        self._last_flush_ms: float = LONG_AGO  # monotonic
        # The queues with is_dirty set. Appended to under _noting.
        self._dirty: deque[ConsumeQueue] = deque()
        self._noting = threading.Lock()
        self._shortage = FlushShortage("a consume queue or the index")

    def note_dirty(self, queue: ConsumeQueue) -> None:
        """Note that the queue has units that are not flushed. Any thread calls it, after appending."""
        with self._noting:
            if not queue.is_dirty:
                queue.is_dirty = True
                self._dirty.append(queue)

    def do_flush(self, retry_times: int) -> None:
        """Flush the queues that have enough dirty pages.

        Flush everything if a thorough round is due, or if `retry_times` is RETRY_TIMES_OVER. Raise NotAskedError if
        something can't be opened; the rest is flushed, but the checkpoint does not advance.
        """
        config, checkpoint = self._state.config, self._state.checkpoint
        least_pages, now_ms = config.flushConsumeQueueLeastPages, time.monotonic() * 1000
        if retry_times == RETRY_TIMES_OVER or now_ms >= self._last_flush_ms + config.flushConsumeQueueThoroughInterval:
            self._last_flush_ms, least_pages = now_ms, 0
        timestamp, offset = checkpoint.dispatched_timestamp, self._dispatched_to()
        if least_pages == 0:
            not_asked = self._flush_queues(self._all_queues(), least_pages, retry_times)
            # Differs: the index is flushed with the queues, and the checkpoint gets the times only when everything is
            # on disk.
            self._index_service.flush_all()
            if not_asked is not None:
                raise not_asked
            if timestamp > 0:
                checkpoint.logics_msg_timestamp = checkpoint.index_msg_timestamp = timestamp
            flags = self._state.running_flags
            if not (flags.is_logics_queue_error or flags.is_index_file_error):
                checkpoint.dispatched = offset
            checkpoint.flush()
            return
        not_asked = self._flush_queues(self._take_dirty(), least_pages, retry_times)
        if self._state.role.is_slave and checkpoint.log_flushed > checkpoint.log_flushed_stored:
            # Recovery of a slave doubts the records after this offset, whose pieces may reach the disk in any order.
            checkpoint.flush_positions()
        if not_asked is not None:
            raise not_asked

    def _take_dirty(self) -> Iterator[ConsumeQueue]:
        """Yield the noted queues, for one round. Those with too few pages, or whose flush fails, are noted again."""
        for _ in range(len(self._dirty)):
            queue = self._dirty.popleft()
            # Cleared before the queue's end is read, so that a later append notes the queue again.
            queue.is_dirty = False
            yield queue

    def _flush_queues(self, queues: Iterable[ConsumeQueue], least_pages: int,
                      retry_times: int) -> NotAskedError | None:
        """Flush `queues`, even if one of them can't be opened; return the first such error."""
        not_asked: NotAskedError | None = None
        for queue in queues:
            try:
                self._flush_queue(queue, least_pages, retry_times)
            except NotAskedError as error:
                not_asked = not_asked or error
            finally:
                if not queue.is_flushed_to(queue.written_to()):
                    self.note_dirty(queue)
        return not_asked

    @staticmethod
    def _flush_queue(queue: ConsumeQueue, least_pages: int, retry_times: int) -> None:
        """Flush a queue. One flush covers one file at most; a thorough one continues to the end at its beginning.

        Differs: a complete flush of a consume queue covers all its files; the original flushes at most `retry_times`
        files, but the checkpoint advances as if all were flushed.
        """
        end, times = queue.written_to(), 0
        while not queue.flush(least_pages):
            times += 1
            if queue.is_flushed_to(end) if least_pages == 0 else times >= retry_times:
                break

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        config = self._state.config
        while not self.stopped:
            self.wait_for_running(config.flushIntervalConsumeQueue)
            self._try_flush(1)
        self._try_flush(RETRY_TIMES_OVER)
        log.info("%s service end", self.get_service_name())

    def shutdown(self, interrupt: bool = False) -> None:
        super().shutdown(interrupt)
        if self.failure is not None:
            # The next start has to check the queues.
            self._state.running_flags.make_flush_error(
                f"the service that flushes the consume queues: {self.failure!r}")

    def _try_flush(self, retry_times: int) -> None:
        flags = self._state.running_flags
        if flags.is_flush_error:
            return
        try:
            self.do_flush(retry_times)
            self._shortage.end()
        except NotAskedError as error:
            # Makes the next round a thorough one again.
            self._last_flush_ms = LONG_AGO
            self._shortage.note(error)
        except OSError as error:
            # Differs: as for the commit log, a failed flush makes the store read-only and is not retried.
            log.exception("%s service has exception. The store is now read-only.", self.get_service_name())
            flags.make_flush_error(f"a flush of the consume queues, the index or the checkpoint: {error!r}")
