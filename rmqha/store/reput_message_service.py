"""The dispatch thread, which follows the commit log and dispatches every record once.

    putting threads, HAClient --on_appended--> ReputMessageService: all appended records of one round, many in bulk
                                           -> dispatchers (consume queue, index) -> MessageArrivingListener
    far behind: a ReputScanThread_ scans the next records while the previous ones get their units and keys
"""
from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import WAKE, Ahead, Round, WorkAhead, at_round_end, usable_cores
from rmqha.common.service_thread import ServiceThread
from rmqha.store.bulk.bulk_layout import RECORD, Span, Stop
from rmqha.store.commit_log import CommitLog
from rmqha.store.dispatch import MessageArrivingListener, RecordDispatcher
from rmqha.store.results import DispatchRequest, SelectMappedBufferResult
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

MASTER_ID = 0
_IDLE_MS = 1000
_BEHIND_FLUSH_MS = 10
_SHUTDOWN_WAIT_MS = 5000
# Answers to held pulls are sent after this many records, so that a long catch-up does not delay them.
_ROUND_RECORDS = 256
# If at least this many bytes wait, they are dispatched as a span, in bulk. A span's fixed cost is about that of two
# single records.
BULK_BYTES = 2 << 10
# If at least this many bytes wait (several spans), another thread scans the next span while one is dispatched.
_AHEAD_BYTES = 16 << 20
# For how long messages without a waiting pull may gather, so that they are dispatched in bulk.
_GATHER_MS = 10
# The same on a slave, where messages may gather longer: its dispatch wakes no held pull. Only PullRequestHoldService's
# periodic check does.
_SLAVE_GATHER_MS = 20
# If two wake-ups follow each other within the gathering time plus this, the service expects more messages, and lets
# them gather.
_BUSY_NS = 3_000_000
# Up to this many waiting bytes can be dispatched within milliseconds.
_SOON_BYTES = 4 << 20
_BETWEEN_WAIT_S = 0.1
_LOOK_MS = 2
_CAUGHT_UP_LOOK_MS = 5


class ReputMessageService(ServiceThread):
    """The thread that dispatches from `reput_from_offset` to the end of the log.

    Differs: an append wakes the dispatching thread; the original checks the log every millisecond. A message is
    dispatched at once if a held pull waits for it, or if it arrives alone. Other messages gather for 10 ms, on a slave
    for 20 ms. If a pull finds nothing, the gathered messages are dispatched at once
    (`call_when_dispatched`).

    `readable_offset` returns the offset up to which records may be dispatched.

    Java: org.apache.rocketmq.store.DefaultMessageStore$ReputMessageService (4.9.8)
    """

    def __init__(self, state: StoreState, broker_config: BrokerConfig, commit_log: CommitLog,
                 record_dispatcher: RecordDispatcher, readable_offset: Callable[[], int],
                 message_arriving_listener: MessageArrivingListener | None) -> None:
        super().__init__()
        self._state = state
        self._config = state.config
        self._role = state.role
        self._broker_config = broker_config
        self._commit_log = commit_log
        self._dispatcher = record_dispatcher
        self._readable_offset = readable_offset
        self.message_arriving_listener = message_arriving_listener
        # The position of a span in the region that is being dispatched, and the scan of that span, which another thread
        # makes.
        self._scanned: tuple[int, Ahead[Span]] | None = None
        # Written by the service once it runs.
        self.reput_from_offset = 0
        # Is on while the dispatch waits before a retry, for example for disk space.
        self._pause = state.dispatch_pause
        # The offset of a slave's incomplete record, and the end of the readable log when it was found.
        self._incomplete_at: tuple[int, int] | None = None
        # True to dispatch at once. Set by any thread, cleared by the service.
        self._urgent = False
        # True while messages gather: the service checks the log after the gathering time, without being woken. Set by
        # the service only.
        self._gathering = False
        # Called when everything is dispatched. Appended by any thread, called by the service.
        self._asked: deque[Callable[[], object]] = deque()
        # Called between two records. Appended by any thread, called by the service.
        self._between: deque[Callable[[], object]] = deque()
        # Units of records from this log offset on are missing. Written by the service once it runs.
        self._again_from: int | None = None
        # When the service was last woken (monotonic). Used by the service only.
        self._woken_ns = 0

    def start(self) -> None:
        self._pause.begin()
        super().start()

    def shutdown(self, interrupt: bool = False) -> None:
        """Wait up to 5 s until everything is dispatched, then stop."""
        if self.is_alive() and not self.wait_caught_up(_SHUTDOWN_WAIT_MS) and not self.has_only_part_of_a_record():
            log.warning("shutdown ReputMessageService, but commitlog have not finish to be dispatched, CL: %s "
                        "reputFromOffset: %s", self._limit(), self.reput_from_offset)
        self._pause.end()
        super().shutdown(interrupt)

    def on_appended(self, topic: str | None, queue_id: int) -> None:
        """Wake the service at the end of the round, because the log has grown.

        `topic` and `queue_id`: the queue of the appended message; None for any other growth.
        """
        if self._is_waited_for(topic, queue_id):
            self._urgent = True
        elif self._gathering:
            return
        if not at_round_end(WAKE, self.wake_if_needed):
            self.wake_if_needed()

    def _is_waited_for(self, topic: str | None, queue_id: int) -> bool:
        listener = self.message_arriving_listener
        if listener is None or self._role.is_slave:  # a slave notifies no listener
            return False
        return topic is None or listener.is_waiting(topic, queue_id)

    def wake_if_needed(self) -> None:
        """Wake the service if necessary, at the end of a round in which something was appended."""
        if self._urgent or not self._gathering:
            self.wakeup()

    def call_when_dispatched(self, callback: Callable[[], object]) -> bool:
        """Dispatch the gathered messages at once, then call `callback` on the service's thread.

        Do nothing and return False if no messages wait, if too many wait to be dispatched at once, if the service is
        waiting before a retry, or if it was stopped.
        """
        if not 0 < self.behind() <= _SOON_BYTES or self._pause.is_on or self.stopped:
            return False
        self._asked.append(callback)
        self._urgent = True
        self.wakeup()
        return True

    def _call_asked(self) -> None:
        if self._asked:
            with Round():
                for _ in range(len(self._asked)):
                    try:
                        self._asked.popleft()()
                    except Exception:
                        log.exception("%s: a callback after a dispatch failed", self.get_service_name())

    def _gather(self) -> None:
        """Wait for more messages if they arrive quickly and no pull waits for them. On the service's thread."""
        gather_ms, now = _SLAVE_GATHER_MS if self._role.is_slave else _GATHER_MS, time.monotonic_ns()
        busy, self._woken_ns = now - self._woken_ns < gather_ms * 1_000_000 + _BUSY_NS, now
        if busy and not self._urgent and not self.stopped and not self._pause.is_over:
            self._gathering = True
            try:
                self.wait_for_running(gather_ms)
            finally:
                self._gathering = False
        self._urgent = False

    def run_between_records(self, action: Callable[[], object]) -> None:
        """Run `action` while no record is being dispatched, wait for it, and raise its exception, if any."""
        done, failures = threading.Event(), []

        def run() -> None:
            try:
                action()
            except Exception as error:
                failures.append(error)
            done.set()

        self._between.append(run)
        while not done.is_set():
            if self.is_alive():
                self.wakeup()
                done.wait(_BETWEEN_WAIT_S)
            else:
                self._run_between()
        if failures:
            raise failures[0]

    def _run_between(self) -> None:
        while self._between:
            try:
                action = self._between.popleft()
            except IndexError:  # Another waiting thread has taken the last one.
                return
            action()
        self.reput_from_offset = self.take_start(self.reput_from_offset)

    def dispatch_again_from(self, offset: int) -> None:
        """Dispatch again from `offset`, because units after it were removed. Called between records and by recovery."""
        self._again_from = offset if self._again_from is None else min(self._again_from, offset)

    def take_start(self, offset: int) -> int:
        """Return where to continue: `offset`, or an earlier offset that was set with `dispatch_again_from`."""
        again_from, self._again_from = self._again_from, None
        return offset if again_from is None else min(offset, again_from)

    def wait_dispatched_to(self, offset: int, timeout_ms: int) -> bool:
        """Wait until everything before `offset` is dispatched; return False at the timeout or if the service ends."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.reput_from_offset < offset and self.is_alive() and time.monotonic() < deadline:
            self._urgent = True
            self.wakeup()
            self._pause.wait(_LOOK_MS)
        return self.reput_from_offset >= offset

    def wait_caught_up(self, timeout_ms: int) -> bool:
        """Wait until everything that was appended is dispatched.

        Return False at the timeout, or as soon as waiting is useless: the service has ended, or only a part of a record
        is left.
        """
        for _ in range(max(timeout_ms // _CAUGHT_UP_LOOK_MS, 1)):
            if not self._is_commit_log_available():
                return True
            self.wakeup()
            if self._pause.wait(_CAUGHT_UP_LOOK_MS) or not self.is_alive() or self.has_only_part_of_a_record():
                break
        return not self._is_commit_log_available()

    def has_only_part_of_a_record(self) -> bool:
        """Return whether a slave has dispatched everything except an incomplete record, whose rest is to come."""
        return self._incomplete_at == (self.reput_from_offset, self._limit())

    def behind(self) -> int:
        """Return the number of bytes that are not dispatched yet."""
        return self._readable_offset() - self.reput_from_offset

    def _limit(self) -> int:
        """Return the offset up to which records may be dispatched."""
        if self._config.dispatchBehindFlush:
            return min(self._commit_log.mapped_file_queue.flushed_where, self._readable_offset())
        return self._readable_offset()

    def _is_commit_log_available(self) -> bool:
        return self.reput_from_offset < self._limit()

    def do_reput(self) -> None:
        """Dispatch everything up to the end of the log."""
        min_offset = self._commit_log.get_min_offset()
        if self.reput_from_offset < min_offset:
            log.warning("The reputFromOffset=%s is smaller than minPyOffset=%s, this usually indicate that the "
                        "dispatch behind too much and the commitlog has expired.", self.reput_from_offset, min_offset)
            self.reput_from_offset = min_offset
        do_next = True
        while do_next and not self.stopped and (self._is_commit_log_available() or self._between):
            if self._between:
                self._run_between()
                continue
            if self._config.duplicationEnable and self.reput_from_offset >= self._commit_log.confirm_offset:
                break
            result = self._commit_log.get_data(self.reput_from_offset)
            if result is None:
                break
            with result:
                do_next = self._dispatch_region(result)

    def _dispatch_region(self, result: SelectMappedBufferResult) -> bool:
        """Dispatch the records of one file; return False if it has to stop here for now, at an incomplete record or at
        bytes that are not a record."""
        start = self.reput_from_offset = result.start_offset
        size = min(result.size, self._limit() - start)
        position, go_on, self._scanned = 0, None, None
        with WorkAhead("ReputScanThread_", min(usable_cores() - 1, 1) if size >= _AHEAD_BYTES else 0) as work:
            while go_on is None and position < size and not self.stopped and not self._between:
                with Round():
                    behind = self._dispatch_span(result, position, size, work)
                    if behind > position:
                        position = behind
                    else:
                        position, go_on = self._dispatch_records(result, position, size)
        return go_on is not False

    def _dispatch_span(self, result: SelectMappedBufferResult, position: int, size: int, work: WorkAhead) -> int:
        """Dispatch many records at once, if there are many; return the position after them, or else `position`."""
        if size - position < BULK_BYTES or not self._dispatcher.takes_spans():
            return position
        buffer, start = result.buffer, result.start_offset
        span = self._scan(buffer, position, size, start)
        if work.threads and span.stop is Stop.LIMIT:
            self._scanned = span.position, work.begin(partial(self._dispatcher.scan, buffer, span.position, size,
                                                              start))
        if span.count:
            self._dispatcher.dispatch_span(span)
            if self._role.is_slave:
                for topic in span.topics:
                    self._state.stats.count_put(topic.name, topic.count, topic.size)
            listener = self._notified_listener()
            if listener is not None:
                self._notify_of_span(listener, span, result)
            self.reput_from_offset = start + span.position
        return span.position

    def _scan(self, buffer: memoryview, position: int, size: int, start: int) -> Span:
        """Scan the next records of a region, or return the scan that another thread has made."""
        scanned, self._scanned = self._scanned, None
        if scanned is not None and scanned[0] == position:
            return scanned[1].take()
        return self._dispatcher.scan(buffer, position, size, start)

    def _notify_of_span(self, listener: MessageArrivingListener, span: Span, result: SelectMappedBufferResult) -> None:
        """Notify the listener of each record of the span whose queue got units and has a waiting pull."""
        waited_for = {(run.topic, run.queue_id) for run in span.runs
                      if listener.is_waiting(span.topics[run.topic].name, run.queue_id)}
        if not waited_for:
            return
        check = self._commit_log.check_message_and_return_size
        for offset, _, _, _, _, queue_id, topic, _ in RECORD.iter_unpack(span.records):
            if (topic, queue_id) in waited_for:
                self._notify_arrival(listener, check(result.buffer, offset - result.start_offset, False, False))

    def _dispatch_records(self, result: SelectMappedBufferResult, position: int, size: int) -> tuple[int, bool | None]:
        """Dispatch a round of records one by one; return the position after them, and whether to continue.

        The second value is True to continue at `reput_from_offset`, False to stop, and None to continue here.
        """
        commit_log = self._commit_log
        check, dispatch = commit_log.check_message_and_return_size, self._dispatch_record
        buffer, start = result.buffer, result.start_offset
        for _ in range(_ROUND_RECORDS):
            if position >= size:
                break
            request = check(buffer, position, False, False)
            if not request.success:
                return position, self._skip(request.msg_size, result, position)
            if request.msg_size == 0:
                next_file = commit_log.roll_next_file(start + position)
                # Differs: a slave that has only a part of the blank at a file's end waits for the rest. The original
                # continues at the next file, beyond the log's end. In 5.1.4, a slave that then becomes the master
                # treats the part as complete: it appends within the blank, where no reader finds the messages.
                if next_file > self._limit():
                    self._incomplete_at = start + position, start + size
                    return position, False
                self.reput_from_offset = next_file
                return position, True
            if position + request.msg_size > size:
                # The record extends beyond the limit, so it waits.
                self._incomplete_at = start + position, start + size
                return position, False
            dispatch(request)
            position += request.msg_size
            self.reput_from_offset = start + position
        return position, None

    def _dispatch_record(self, request: DispatchRequest) -> None:
        self._dispatcher.do_dispatch(request)
        if self._role.is_slave:
            self._state.stats.count_put(request.topic, 1, request.msg_size)
        listener = self._notified_listener()
        if listener is not None:
            self._notify_arrival(listener, request)

    def _notified_listener(self) -> MessageArrivingListener | None:
        """Return the listener if it is to learn of each dispatched record; None if not."""
        if not self._broker_config.longPollingEnable:
            return None
        # Differs: a slave whose role can change wakes held pulls when their messages are dispatched; in the original a
        # slave leaves them to the scan every 5 s
        return self.message_arriving_listener if not self._role.is_slave or self._role.guard is not None else None

    def _notify_arrival(self, listener: MessageArrivingListener, request: DispatchRequest) -> None:
        try:
            self._notify(listener, request)
        except Exception:
            # Differs: an error in the listener for new messages can't stop the dispatch. The original retries the
            # record forever.
            log.exception("%s: the listener failed for the record at %s", self.get_service_name(),
                          request.commit_log_offset)

    def _notify(self, listener: MessageArrivingListener, request: DispatchRequest) -> None:
        if listener.is_waiting(request.topic, request.queue_id):
            listener.arriving(request.topic, request.queue_id, request.consume_queue_offset + 1, request.tags_code,
                              request.store_timestamp, request.bit_map, request.properties_map)
        if self._config.enableMultiDispatch:
            for queue_name, queue_id, queue_offset in self._commit_log.multi_dispatch.queues_of(request):
                listener.arriving(queue_name, queue_id, queue_offset + 1, request.tags_code, request.store_timestamp,
                                  request.bit_map, request.properties_map)

    def _skip(self, size: int, result: SelectMappedBufferResult, position: int) -> bool:
        """Handle bytes that are not a record.

        If the size in their first field fits into what the file has, skip that many bytes. Otherwise a slave waits for
        the rest, and a master skips the rest of the file.
        """
        offset = result.start_offset + position
        if 0 < size <= result.size - position:
            log.error("[BUG]read total count not equals msg total size. reputFromOffset=%s", offset)
            self.reput_from_offset = offset + size
            return True
        # Differs: a broker whose role is slave always waits for the rest of a record, whatever its id is. The original
        # checks only the id, so a slave with id 0 skips incomplete records.
        if self._role.broker_id == MASTER_ID and not self._role.is_slave:
            log.error("[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: %s", offset)
            self.reput_from_offset = result.start_offset + result.size
        else:
            self._incomplete_at = offset, self._limit()
        return False

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            try:
                self.do_reput()
            except Exception:
                log.exception("%s service has exception. ", self.get_service_name())
                self._pause.pause(_IDLE_MS)
            self._call_asked()
            behind_flush = self._config.dispatchBehindFlush
            self.wait_for_running(_BEHIND_FLUSH_MS if behind_flush else _IDLE_MS)
            self._gather()
        self._call_asked()
        self._run_between()
        log.info("%s service end", self.get_service_name())
