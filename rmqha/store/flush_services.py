"""The services that flush the commit log, and the requests that wait for them.

    putting thread --put_request/wakeup--> GroupCommitService    (SYNC_FLUSH)  fdatasync -> complete the requests
    HAClient       --wakeup-------------> GroupCommitService    (SYNC_FLUSH)  at most every 10 ms
    putting thread --wakeup-------------> FlushRealTimeService   (ASYNC_FLUSH) every flushIntervalCommitLog
                                          CommitRealTimeService  (transientStorePool) write buffer -> file

- `GroupCommitRequest`: a put that waits for the flush or for a slave.
- `FlushShortage`: flushes that could not start because the file could not be opened.
- `dump_long_lock`: writes the stacks of all threads if the put lock has been held for more than a second.
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
    """A request that completes when the log is safe up to `next_offset`, or at `deadline_ns` (monotonic).

    The first status wins. `ack_nums` says which replicas must have the bytes. -1: all that are in sync; 0: no slave; 1:
    any one slave, as in 4.9 (with 1, 5.1.4 waits for no slave); 2 or more: that many replicas, the master included.

    `term` is the term that HAService had when the put was appended. A slave's acknowledgement in a later term may be
    for other bytes.

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
        """The future status, which is the request itself."""
        return self


log = logging.getLogger("RocketmqStore")


class FlushShortage:
    """The state of a service whose flushes can't start, for lack of descriptors for example. For one thread at a time.

    Differs: a flush that can't start, for lack of descriptors for example, is retried: no fsync has failed, so nothing
    is lost. Meanwhile nothing counts as flushed. The original has no such case: it keeps its files open, and never
    forces the entries of its folders to the disk (no fsync of a folder).
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._times = 0  # failures in a row

    @property
    def lasts(self) -> bool:
        """True if the last flush could not start."""
        return self._times > 0

    def note(self, error: NotAskedError) -> None:
        """Record a flush that could not start. The 1st, 2nd, 4th, 8th ... in a row is logged."""
        self._times += 1
        if self._times & self._times - 1 == 0:
            log.error("%s can't be flushed now; retrying (%s attempts so far); nothing is lost: %s%s", self._what,
                      self._times, error, how_to_raise(error))

    def end(self) -> None:
        """End the shortage, because a flush could start."""
        if self._times:
            log.warning("%s is flushed again, after %s flushes that could not start", self._what, self._times)
            self._times = 0


_FIVE_MINUTES_MS = 1000 * 60 * 5
_FLUSH_INTERVAL_MS = 10
_IDLE_MS = 500
_SHORTAGE_MS = 100


class FlushCommitLogService(ServiceThread):
    """The base of the services that flush the commit log. Its files are those of `mapped_file_queue`.

    `unsure_ends`: the ends of complete records that look torn to a recovery, because their properties have zeros; see
    "Unsure ends" in CommitLog.

    Failed flushes
    --------------
    An fsync that fails can't be repeated. Linux marks the dirty pages clean after a failed write-back, and reports the
    error once; the next fsync succeeds, although the bytes are not on the disk. A store that retried would acknowledge
    messages that a power loss destroys.

    Nor is a flush a single step: it forces to the disk the file's data, the names of a new file and its folders, and
    sometimes the checkpoint's positions. It may fail after some steps succeeded. There is one rule for all cases: if
    any step raises an error, nothing counts as flushed. `flushed_where` is set back to where it was, the flush error is
    set in `running_flags`, the store becomes read-only, and no service flushes again. Requests that waited for the
    flush complete with FLUSH_DISK_TIMEOUT. The abort file stays, so the next start recovers as after a crash: it reads
    whatever is in the files, but counts only the log below the checkpoint's flushed offset as safely on the disk.

    There is one exception to this rule, NotAskedError. It means that a file or folder could not be opened. So its fsync
    was never attempted, and Linux has reported no error for it that a retry would miss. The flush is retried
    (`FlushShortage`), but until then nothing counts as flushed either.

    Flushes run one at a time, under `_flushing`: if a file had two concurrent fsyncs, perhaps only one of them would
    get the error, and the other would count the lost bytes as flushed.

    Java: org.apache.rocketmq.store.CommitLog$FlushCommitLogService (4.9.8)
    """

    join_time_ms = _FIVE_MINUTES_MS
    # True if the service flushes at intervals, so that puts need not wake it.
    timed = False

    def __init__(self, state: StoreState, mapped_file_queue: MappedFileQueue, unsure_ends: deque[int]) -> None:
        super().__init__()
        self._state = state
        self._config = state.config
        self.mapped_file_queue = mapped_file_queue
        self._unsure_ends = unsure_ends
        # Held by a flush; see the class.
        self._flushing = threading.Lock()
        # The latency of flushes that wrote something. Recorded under _flushing.
        self.flush_times = LatencyHistogram()
        # Changed under _flushing.
        self.shortage = FlushShortage("the commit log")

    def on_data_appended(self) -> None:
        """Handle a piece of the master's log that this slave has appended."""

    def flush(self, flush_least_pages: int) -> bool:
        """Flush the queue of mapped files, and update the checkpoint; return True if nothing is left to do.

        Also return True if the flush has failed or could not start.

        Differs: a failed flush makes the store read-only and is never retried, because a second fsync would report a
        false success: Linux drops the dirty pages of a failed write-back. A flush that could not open its file has
        asked for no fsync, and is retried later.
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
        except BaseException as error:
            # After any error the state of the disk is unknown.
            log.error("%s service has exception. Error occurred when force data to disk. The store is now read-only.",
                      self.get_service_name(), exc_info=error)
            # Nothing of this flush may be acknowledged.
            queue.flushed_where = begin
            state.running_flags.make_flush_error(f"a flush of the commit log: {error!r}")
            return True
        timestamp = queue.store_timestamp
        # A slave appends bytes, and learns store times only by dispatching.
        if state.role.is_slave and flush_least_pages == 0:
            # Differs: on a slave, physic_msg_timestamp advances only when everything that was dispatched is flushed.
            # One flush covers one file at most, so dispatched records in later files may not be flushed.
            timestamp = dispatched if queue.flushed_where >= end else 0
        if timestamp > 0:
            checkpoint.physic_msg_timestamp = timestamp
        return done

    def _is_news(self, begin: int, end: int) -> bool:
        """Return whether the checkpoint's positions must be on the disk before the flush from `begin` to `end` counts.

        Recovery needs the flushed offset to distinguish damage from bytes that were never flushed, in two cases: a bad
        record in a file that is followed by another file, and a record that looks torn (see "Unsure ends" in
        CommitLog).
        """
        size, unsure_ends = self.mapped_file_queue.mapped_file_size, self._unsure_ends
        is_news = begin // size != end // size
        while unsure_ends and unsure_ends[0] <= end:
            unsure_ends.popleft()
            is_news = True
        return is_news


class CommitRealTimeService(ServiceThread):
    """The thread that writes the write buffers to their files.

    It calls `on_committed` after a write, and `make_disk_full` if the disk is full.

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
                    continue  # The rest belongs to the next file.
            self.wait_for_running(config.commitIntervalCommitLog)
        while self._commit(0):
            continue
        log.info("%s service shutdown, %s bytes are not committed", self.get_service_name(),
                 self._queue.remain_how_many_data_to_commit())

    def _commit(self, commit_least_pages: int) -> bool:
        """Write buffers to files; return True if something was written.

        Differs: a failed write of a buffer to its file stops the puts: until there is space if the disk is full, for
        good after other errors, except a lack of descriptors. The original only logs the failure, and continues to
        accept puts. The bytes that were not written stay in the buffer, and are tried again.
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
    """The thread that flushes every flushIntervalCommitLog if enough pages are dirty, and thoroughly now and then.

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
        # Differs: a shutdown flushes the whole log. The original flushes at most ten files, and treats the shutdown as
        # clean.
        while not self.flush(0):
            continue
        log.info("%s service end", self.get_service_name())


class GroupCommitService(FlushCommitLogService):
    """The thread that flushes once for all waiting puts, and completes them in one round.

    Differs: if nothing is left to flush, the thread of group commits waits for the next append, for up to 500 ms; the
    original checks every 10 ms.

    Java: org.apache.rocketmq.store.CommitLog$GroupCommitService (4.9.8)
    """

    def __init__(self, state: StoreState, mapped_file_queue: MappedFileQueue, unsure_ends: deque[int]) -> None:
        super().__init__(state, mapped_file_queue, unsure_ends)
        self._lock = threading.Lock()
        self._requests_write: list[GroupCommitRequest] = []  # guarded by _lock
        self._requests_read: list[GroupCommitRequest] = []  # the service's own
        # True once the service has ended, so that nothing flushes any more. Guarded by _lock.
        self._closed = False

    def start(self) -> None:
        with self._lock:
            self._closed = False
        super().start()

    def put_request(self, request: GroupCommitRequest) -> None:
        """Complete `request` with the next flush that covers it, or at once if the service has ended."""
        with self._lock:
            if not self._closed:
                self._requests_write.append(request)
            closed = self._closed
        if closed:
            self._complete_as_it_is(request)
        else:
            self.wakeup()

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop, and complete waiting and later requests with the result of the last flush."""
        super().shutdown(interrupt)
        # Differs: flush requests that still wait at a shutdown get the result of the last flush; the original does not
        # answer them.
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
        """Complete the waiting requests; without requests just flush. Return True if nothing is left to do."""
        requests, self._requests_read = self._requests_read, []
        if not requests:
            # Puts that do not wait are flushed too.
            return self.flush(0) and not self.shortage.lasts
        # Requests whose flush could not start. They wait for the next round.
        waiting: list[GroupCommitRequest] = []
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
        """Complete a request; return False if the flush could not start.

        The request then waits for the next round or for its timeout.
        """
        queue = self.mapped_file_queue
        # The message may lie in the next file, so at most two flushes are needed.
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
            if self._state.role.is_slave:
                # Each piece of the log from the master wakes the service, but no request waits for a flush. So flush
                # less often.
                time.sleep(_FLUSH_INTERVAL_MS / 1000)
            idle = self._do_commit()
        self._swap_requests()
        self._do_commit()
        while not self.flush(0):  # the rest may span several files
            continue
        log.info("%s service end", self.get_service_name())


_LONG_MS, _ENDLESS_MS = 1000, 10_000_000


def dump_long_lock(begin: int, held: int) -> None:
    """Write the stacks of all threads to ~/debug/lock if the put lock has been held for more than a second.

    `begin`: when it was taken (ms); 0 if it is free. `held`: for how long (ms).

    Java: org.apache.rocketmq.store.DefaultMessageStore#addScheduleTask (4.9.8)
    """
    if begin and _LONG_MS < held < _ENDLESS_MS:
        folder = os.path.join(os.path.expanduser("~"), "debug", "lock")
        os.makedirs(folder, exist_ok=True)
        mix_all.string2file_not_safe(thread_stacks(), os.path.join(folder, f"stack-{begin}-{held}"))
