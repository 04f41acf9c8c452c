"""Dispatching of appended records to the consume queues, the index and the filters.

`CommitLogDispatcher` takes one record at a time. `RecordDispatcher` also dispatches many records at once: a span of the
commit log, through the bulk kernel:

    ReputMessageService that is far behind, CommitLogRecovery --dispatch--> runs of units --> ConsumeQueue
                                                                            rows of keys  --> IndexService

`MessageArrivingListener` is notified of new messages.
"""
from __future__ import annotations

import logging
from typing import Protocol

from rmqha.common import sys_flags
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Run, Span
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, first_unit_at, unpack_unit
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.index.index_service import IndexService
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.multi_dispatch import MultiDispatch
from rmqha.store.results import DispatchRequest
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

SPAN_RECORDS = 1 << 15  # some MiB of log and of results
_PREPARED_OR_ROLLBACK = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


class CommitLogDispatcher(Protocol):
    """Gets every record once, in order, on the dispatching thread; again after a crash.

    Java: org.apache.rocketmq.store.CommitLogDispatcher (4.9.8)
    """

    def dispatch(self, request: DispatchRequest) -> None:
        """Take note of one record."""


class CommitLogDispatcherBuildConsumeQueue:
    """Adds a unit to the consume queue of every record that consumers may see.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildConsumeQueue (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, table: ConsumeQueueTable, deleted_topics: DeletedTopics,
                 multi_dispatch: MultiDispatch) -> None:
        self._config = config
        self._table = table
        self._deleted_topics = deleted_topics
        self._multi_dispatch = multi_dispatch

    def dispatch(self, request: DispatchRequest) -> None:
        """Prepared and rolled back messages get no unit."""
        if request.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE not in _PREPARED_OR_ROLLBACK:
            self._put_message_position_info(request)

    def _put_message_position_info(self, request: DispatchRequest) -> None:
        """Add a record to its consume queue, unless its topic was deleted since."""
        multi_queue = self._config.enableMultiDispatch and self._multi_dispatch.is_multi_dispatch_request(request)
        if not self._deleted_topics.is_dead(request.topic, request.commit_log_offset):
            queue = self._table.find_queue(request.topic, request.queue_id)
            if queue is None:
                log.error("record at %s has a topic %r that can't have a queue", request.commit_log_offset,
                          request.topic)
                return
            multi_queue = queue.put_message_position_info_wrapper(request) and multi_queue
        if multi_queue:
            self._dispatch_lmq_queue(request)

    def _dispatch_lmq_queue(self, request: DispatchRequest) -> None:
        """Add the units of the further queues."""
        for queue_name, queue_id, queue_offset in self._multi_dispatch.queues_of(request):
            if self._deleted_topics.is_dead(queue_name, request.commit_log_offset):
                continue
            queue = self._table.find_queue(queue_name, queue_id)
            if queue is None:
                log.error("record at %s names a queue %r that can't be", request.commit_log_offset, queue_name)
                continue
            queue.put_lmq_position_info(request, queue_offset)


class CommitLogDispatcherBuildIndex:
    """Adds the keys of every record to the index.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildIndex (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, index_service: IndexService) -> None:
        self._config = config
        self._index_service = index_service

    def dispatch(self, request: DispatchRequest) -> None:
        """Nothing when the index is switched off."""
        if self._config.messageIndexEnable:
            self._index_service.build_index(request)


class RecordDispatcher:
    """Gives each record to all dispatchers, one by one or a span at once. For the dispatching thread and recovery.

    Many records at once come from the bulk kernel. The records of a span get their units before any gets its keys.
    What is there already is passed over, as always.
    """

    def __init__(self, state: StoreState, table: ConsumeQueueTable, index_service: IndexService,
                 deleted_topics: DeletedTopics, multi_dispatch: MultiDispatch) -> None:
        config = state.config
        self._state = state
        self._config = config
        self._table = table
        self._index_service = index_service
        self._deleted_topics = deleted_topics
        self._standard: list[CommitLogDispatcher] = [
            CommitLogDispatcherBuildConsumeQueue(config, table, deleted_topics, multi_dispatch),
            CommitLogDispatcherBuildIndex(config, index_service)]
        self.dispatcher_list = list(self._standard)

    def do_dispatch(self, request: DispatchRequest) -> None:
        """Hand one record to all dispatchers."""
        for dispatcher in self.dispatcher_list:
            dispatcher.dispatch(request)

    def takes_spans(self) -> bool:
        """Whether a span can be dispatched at once, and it pays: with the compiled kernel and nothing unusual on."""
        config = self._config
        return bulk.is_compiled() and not config.enableConsumeQueueExt and not config.duplicationEnable \
            and self.dispatcher_list == self._standard

    def scan(self, buffer: memoryview, start: int, end: int, file_from_offset: int, check_crc: bool = False) -> Span:
        """The next records of `buffer`, which begins at `file_from_offset` of the commit log. Any thread."""
        return bulk.scan(buffer, start, end, file_from_offset, check_crc, self._state.delay_levels.delays,
                         self._config.enableMultiDispatch, SPAN_RECORDS)

    def dispatch_span(self, span: Span) -> None:
        """Add the units, then the keys."""
        units = memoryview(span.units)
        written = all([self._put_run(span, run, units) for run in span.runs])
        if span.runs and written:
            last = max(span.runs, key=lambda run: _last_offset(units, run))
            self._state.checkpoint.dispatched_timestamp = last.last_store_timestamp
        if span.keys and self._config.messageIndexEnable:
            self._index_service.build_index_of_rows(span.keys)

    def _put_run(self, span: Span, run: Run, units: memoryview) -> bool:
        topic = span.topics[run.topic].name
        begin, first, count = run.first_unit * CQ_STORE_UNIT_SIZE, run.queue_offset, run.count
        mark = self._deleted_topics.marks.get(topic)
        if mark is not None:
            dead = first_unit_at(units[begin:], count, mark)
            if dead == count:
                return True
            begin, first, count = begin + dead * CQ_STORE_UNIT_SIZE, first + dead, count - dead
        queue = self._table.find_queue(topic, run.queue_id)
        if queue is None:
            log.error("%s records have a topic %r that can't have a queue", count, topic)
            return True
        return queue.put_units(first, units[begin:begin + count * CQ_STORE_UNIT_SIZE])


def _last_offset(units: memoryview, run: Run) -> int:
    return unpack_unit(units, (run.first_unit + run.count - 1) * CQ_STORE_UNIT_SIZE)[0]


class MessageArrivingListener:
    """Told of every record that was dispatched, on the dispatching thread.

    Java: org.apache.rocketmq.store.MessageArrivingListener (4.9.8)
    """

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        """False when nobody waits for this queue, so that the store may spare the call. Not in Java."""
        return True

    def arriving(self, topic: str, queue_id: int, logic_offset: int, tags_code: int, msg_store_time: int,
                 filter_bit_map: bytes | None, properties: dict[str, str] | None) -> None:
        """`logic_offset` is the queue's new end: the index of the message plus one."""
        raise NotImplementedError
