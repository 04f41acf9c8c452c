"""The services that force the commit log to the disk, and the requests that wait for them.

    putting thread --put_request/wakeup--> GroupCommitService    (SYNC_FLUSH)  fdatasync -> complete the requests
    HAClient       --wakeup-------------> GroupCommitService    (SYNC_FLUSH)  at most every 10 ms
    putting thread --wakeup-------------> FlushRealTimeService   (ASYNC_FLUSH) every flushIntervalCommitLog
                                          CommitRealTimeService  (transientStorePool) write buffer -> file

- `GroupCommitRequest`: a put that waits for the flush or for a slave.
- `FlushShortage`: flushes that could not ask the disk, because the file to flush could not be opened.
- `dump_long_lock`: shows which threads were busy while the put lock was held for long.
"""
from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from rmqha.common import mix_all
from rmqha.common.filesystem import NotAskedError
from rmqha.common.futures import Completable, Round
from rmqha.common.process import how_to_raise, is_shortage
from rmqha.common.service_thread import ServiceThread
from rmqha.common.stats import LatencyHistogram
from rmqha.common.threads import thread_stacks
from rmqha.common.util_all import LONG_AGO, current_time_millis
from rmqha.store.mapped_file import is_no_space
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.results import PutMessageStatus
from rmqha.store.store_state import StoreState


class GroupCommitRequest(Completable[PutMessageStatus]):
    """Done once the log is safe up to `next_offset`, or at `deadline_ns` (monotonic); the first status wins.

    `ack_nums`, as in 5.1.4: how many replicas must have it, the master included; 1: any one slave; -1: all in sync.
    `term` is HAService's at the append: what a later one acknowledges may be other bytes.

    Java: org.apache.rocketmq.store.CommitLog$GroupCommitRequest (4.9.8)
    """

    __slots__ = ("next_offset", "deadline_ns", "ack_nums", "term")

    def __init__(self, next_offset: int, timeout_ms: int, ack_nums: int = 1, term: int = 0) -> None:
        super().__init__()
        self.next_offset = next_offset
        self.ack_nums = ack_nums
        self.term = term
        self.deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000

    wakeup_customer = Completable.complete

    @property
    def future(self) -> Completable[PutMessageStatus]:
        """The status that comes: the request itself."""
        return self


log = logging.getLogger("RocketmqStore")


class FlushShortage:
    """Whether the last flush of a service could not ask the disk, and what the log says of it. One thread at a time.

    Differs: no fsync has failed then, so nothing is lost, and the flush is tried again; meanwhile nothing counts as
    flushed. The original has no such flushes: it keeps its files open, and leaves their names to the file system.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._times = 0  # in a row

    @property
    def lasts(self) -> bool:
        """Whether the last flush could not ask the disk."""
        return self._times > 0

    def note(self, error: NotAskedError) -> None:
        """A flush could not ask; the log has the 1st, 2nd, 4th, 8th ... in a row."""
        self._times += 1
        if self._times & self._times - 1 == 0:
            log.error("%s can't be flushed now, and it is tried again (%s so far); nothing is lost: %s%s", self._what,
                      self._times, error, how_to_raise(error))

    def end(self) -> None:
        """A flush has asked the disk."""
        if self._times:
            log.warning("%s is flushed again, after %s flushes that could not ask the disk", self._what, self._times)
            self._times = 0


_FIVE_MINUTES_MS = 1000 * 60 * 5
_FLUSH_INTERVAL_MS = 10
_IDLE_MS = 500
_SHORTAGE_MS = 100


class FlushCommitLogService(ServiceThread):
    """Base of the services that flush the commit log: the files of `mapped_file_queue`.

    `unsure_ends`: of records that look torn, see CommitLog.

    Java: org.apache.rocketmq.store.CommitLog$FlushCommitLogService (4.9.8)
    """

    join_time_ms = _FIVE_MINUTES_MS
    timed = False  # True: puts need not wake it

    def __init__(self, state: StoreState, mapped_file_queue: MappedFileQueue, unsure_ends: deque[int]) -> None:
        super().__init__()
        self._state = state
        self._config = state.config
        self.mapped_file_queue = mapped_file_queue
        self._unsure_ends = unsure_ends
        self._flushing = threading.Lock()  # one at a time: of two that run at once only one is told of a failure
        self.flush_times = LatencyHistogram()  # of flushes that brought something to the disk; noted under _flushing
        self.shortage = FlushShortage("the commit log")  # changed under _flushing

    def on_data_appended(self) -> None:
        """A slave has appended a piece of its master's log."""

    def flush(self, flush_least_pages: int) -> bool:
        """Flush the queue of mapped files, and tell the checkpoint; True when nothing was left to do.

        Differs: a failed flush marks the store unwritable and is never tried again: Linux drops the dirty pages of a
        failed write-back, so that a second fsync would report a false success. One that could not open what it
        flushes has asked for no fsync: it is tried again, and until then nothing was left to do.
        """
        with self._flushing:
            return self._flush(flush_least_pages)

    def _flush(self, flush_least_pages: int) -> bool:
        state, queue, checkpoint = self._state, self.mapped_file_queue, self._state.checkpoint
        if state.running_flags.is_flush_error:
            self.shortage.end()
            return True
        dispatched, begin, end = checkpoint.dispatched_timestamp, queue.flushed_where, queue.get_max_offset()
        begin_ns = time.monotonic_ns()
        try:
            done = queue.flush(flush_least_pages)
            if queue.flushed_where != begin:
                self.flush_times.note(time.monotonic_ns() - begin_ns)
            checkpoint.log_flushed = queue.flushed_where
            if self._is_news(begin, checkpoint.log_flushed):
                checkpoint.flush_positions()
            self.shortage.end()
        except NotAskedError as error:
            queue.flushed_where = begin
            self.shortage.note(error)
            return True
        except BaseException as error:  # whatever it was: what is on the disk is not known any more
            log.error("%s service has exception. Error occurred when force data to disk. The store takes no more "
                      "messages.", self.get_service_name(), exc_info=error)
            queue.flushed_where = begin  # what was not told to the disk is not acknowledged
            state.running_flags.make_flush_error(f"a flush of the commit log: {error!r}")
            return True
        timestamp = queue.store_timestamp
        # a slave appends bytes and learns store times only by dispatching
        if state.role.is_slave and flush_least_pages == 0:
            # Differs: not before all that was dispatched is flushed, for one flush covers one file at most
            timestamp = dispatched if queue.flushed_where >= end else 0
        if timestamp > 0:
            checkpoint.physic_msg_timestamp = timestamp
        return done

    def _is_news(self, begin: int, end: int) -> bool:
        """Whether a flush from `begin` to `end` has to be told to the disk before anybody relies on it.

        So that recovery can tell what was never flushed from damage: a flaw in front of a file that was flushed, and
        properties that look as if a part of them were missing.
        """
        size, unsure_ends = self.mapped_file_queue.mapped_file_size, self._unsure_ends
        is_news = begin // size != end // size
        while unsure_ends and unsure_ends[0] <= end:
            unsure_ends.popleft()
            is_news = True
        return is_news


class CommitRealTimeService(ServiceThread):
    """Moves write buffers into their files, and calls `on_committed` then; `make_disk_full` when the disk is full.

    Java: org.apache.rocketmq.store.CommitLog$CommitRealTimeService (4.9.8)
    """

    join_time_ms = _FIVE_MINUTES_MS

    def __init__(self, state: StoreState, mapped_file_queue: MappedFileQueue, on_committed: Callable[[], None],
                 make_disk_full: Callable[[], None]) -> None:
        super().__init__()
        self._state = state
        self._queue = mapped_file_queue
        self._on_committed = on_committed
        self._make_disk_full = make_disk_full

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        config = self._state.config
        last_commit_ms: float = LONG_AGO
        while not self.stopped:
            least_pages, begin = config.commitCommitLogLeastPages, time.monotonic() * 1000
            if begin >= last_commit_ms + config.commitCommitLogThoroughInterval:
                last_commit_ms, least_pages = begin, 0
            if self._commit(least_pages):
                last_commit_ms = time.monotonic() * 1000
                if self._queue.remain_how_many_data_to_commit():
                    continue  # the rest lies in the next file
            self.wait_for_running(config.commitIntervalCommitLog)
        while self._commit(0):
            continue
        log.info("%s service shutdown, %s bytes are not committed", self.get_service_name(),
                 self._queue.remain_how_many_data_to_commit())

    def _commit(self, commit_least_pages: int) -> bool:
        """True when something was committed.

        Differs: a failed write stops the puts as a failed append does; the original logs it, and takes more. What was
        not written stays in the buffer, and is tried again.
        """
        try:
            if self._queue.commit(commit_least_pages):
                return False
        except Exception as error:
            log.exception("%s service has exception. Error occurred when commit data to FileChannel.",
                          self.get_service_name())
            if isinstance(error, OSError) and is_no_space(error):
                self._make_disk_full()
            elif not is_shortage(error):
                self._state.running_flags.make_flush_error(f"a write of a buffer to the commit log: {error!r}")
            return False
        self._on_committed()
        return True


class FlushRealTimeService(FlushCommitLogService):
    """Flushes each flushIntervalCommitLog when enough pages are dirty, and thoroughly now and then.

    Java: org.apache.rocketmq.store.CommitLog$FlushRealTimeService (4.9.8)
    """

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        config = self._config
        last_flush_ms: float = LONG_AGO
        while not self.stopped:
            self.timed = config.flushCommitLogTimed
            least_pages, now_ms = config.flushCommitLogLeastPages, time.monotonic() * 1000
            if now_ms >= last_flush_ms + config.flushCommitLogThoroughInterval:
                last_flush_ms, least_pages = now_ms, 0
            self.wait_for_running(config.flushIntervalCommitLog)
            begin = current_time_millis()
            self.flush(least_pages)
            if self.shortage.lasts:
                last_flush_ms = LONG_AGO
            past = current_time_millis() - begin
            if past > 500:
                log.info("Flush data to disk costs %s ms", past)
        # Differs: the original flushes ten files, and takes the store for stopped well.
        while not self.flush(0):
            continue
        log.info("%s service end", self.get_service_name())


class GroupCommitService(FlushCommitLogService):
    """Flushes once for all puts that wait, and completes them in one round.

    Differs: with nothing left to flush it waits until something is appended; the original's looks each 10 ms.

    Java: org.apache.rocketmq.store.CommitLog$GroupCommitService (4.9.8)
    """

    def __init__(self, state: StoreState, mapped_file_queue: MappedFileQueue, unsure_ends: deque[int]) -> None:
        super().__init__(state, mapped_file_queue, unsure_ends)
        self._lock = threading.Lock()
        self._requests_write: list[GroupCommitRequest] = []  # guarded by _lock
        self._requests_read: list[GroupCommitRequest] = []  # the service's own
        self._closed = False  # guarded by _lock: it has ended, and nobody flushes

    def start(self) -> None:
        with self._lock:
            self._closed = False
        super().start()

    def put_request(self, request: GroupCommitRequest) -> None:
        """Let `request` be completed by the next flush that covers it; at once when the service has ended."""
        with self._lock:
            if not self._closed:
                self._requests_write.append(request)
            closed = self._closed
        if closed:
            self._complete_as_it_is(request)
        else:
            self.wakeup()

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop; what still waits, or comes later, is told what the last flush has brought to the disk."""
        super().shutdown(interrupt)
        # Differs: the original leaves them unanswered
        with self._lock:
            self._closed = True
            rest, self._requests_write = self._requests_write, []
        for request in rest:
            self._complete_as_it_is(request)

    def on_data_appended(self) -> None:
        self.wakeup()

    def on_wait_end(self) -> None:
        self._swap_requests()

    def _swap_requests(self) -> None:
        with self._lock:
            self._requests_write, self._requests_read = [], self._requests_write

    def _do_commit(self) -> bool:
        """Complete what waits, or else flush; True when nothing was left to do."""
        requests, self._requests_read = self._requests_read, []
        if not requests:
            # puts that do not wait still want to be flushed
            return self.flush(0) and not self.shortage.lasts
        waiting: list[GroupCommitRequest] = []  # for a disk that could not be asked
        with Round():
            try:
                for request in requests:
                    if not self._complete(request, not waiting) and not request.is_done:
                        waiting.append(request)
            except BaseException:
                for request in requests:  # no effect on those that are done
                    request.wakeup_customer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
                raise
        if waiting:
            with self._lock:
                self._requests_write[:0] = waiting
        return False

    def _complete(self, request: GroupCommitRequest, may_flush: bool) -> bool:
        """False when the disk could not be asked: the request waits for the next round, or for its time-out."""
        queue = self.mapped_file_queue
        # the message may lie in the next file: at most two flushes
        for _ in range(2):
            if queue.flushed_where >= request.next_offset:
                break
            if may_flush:
                self.flush(0)
            if self.shortage.lasts:
                return False
        self._complete_as_it_is(request)
        return True

    def _complete_as_it_is(self, request: GroupCommitRequest) -> None:
        flush_ok = self.mapped_file_queue.flushed_where >= request.next_offset
        request.wakeup_customer(PutMessageStatus.PUT_OK if flush_ok else PutMessageStatus.FLUSH_DISK_TIMEOUT)

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        idle = False
        while not self.stopped:
            self.wait_for_running(_SHORTAGE_MS if self.shortage.lasts else _IDLE_MS if idle else _FLUSH_INTERVAL_MS)
            if self._state.role.is_slave:  # each piece of the log wakes, and nobody waits for its flush
                time.sleep(_FLUSH_INTERVAL_MS / 1000)
            idle = self._do_commit()
        self._swap_requests()
        self._do_commit()
        while not self.flush(0):  # the tail may span files
            continue
        log.info("%s service end", self.get_service_name())


_LONG_MS, _ENDLESS_MS = 1000, 10_000_000


def dump_long_lock(begin: int, held: int) -> None:
    """Write all threads' stacks to ~/debug/lock when the put lock, taken at `begin` (ms; 0: it is free), has been held
    for more than a second.

    Java: org.apache.rocketmq.store.DefaultMessageStore#addScheduleTask (4.9.8)
    """
    if begin and _LONG_MS < held < _ENDLESS_MS:
        folder = os.path.join(os.path.expanduser("~"), "debug", "lock")
        os.makedirs(folder, exist_ok=True)
        mix_all.string2file_not_safe(thread_stacks(), os.path.join(folder, f"stack-{begin}-{held}"))
