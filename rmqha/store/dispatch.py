"""The dispatch of appended records to the consume queues, the index and the filters.

`CommitLogDispatcher` takes one record at a time. `RecordDispatcher` also dispatches a span of the commit log, many
records at once, with the bulk kernel:

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

# A few MiB of log and of results.
SPAN_RECORDS = 1 << 15
_PREPARED_OR_ROLLBACK = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


class CommitLogDispatcher(Protocol):
    """A receiver of every record, once and in order, on the dispatching thread; after a crash it may get some again.

    Java: org.apache.rocketmq.store.CommitLogDispatcher (4.9.8)
    """

    def dispatch(self, request: DispatchRequest) -> None:
        """Process one record."""


class CommitLogDispatcherBuildConsumeQueue:
    """The dispatcher that appends the unit of every record that consumers may see to its consume queue.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildConsumeQueue (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, table: ConsumeQueueTable, deleted_topics: DeletedTopics,
                 multi_dispatch: MultiDispatch) -> None:
        self._config = config
        self._table = table
        self._deleted_topics = deleted_topics
        self._multi_dispatch = multi_dispatch

    def dispatch(self, request: DispatchRequest) -> None:
        """Append the record's unit; prepared and rolled back messages get none."""
        if request.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE not in _PREPARED_OR_ROLLBACK:
            self._put_message_position_info(request)

    def _put_message_position_info(self, request: DispatchRequest) -> None:
        """Add a record to its consume queue, unless its topic was deleted later."""
        multi_queue = self._config.enableMultiDispatch and self._multi_dispatch.is_multi_dispatch_request(request)
        if not self._deleted_topics.is_dead(request.topic, request.commit_log_offset):
            queue = self._table.find_queue(request.topic, request.queue_id)
            if queue is None:
                log.error("record at %s: the topic %r can't have a queue", request.commit_log_offset, request.topic)
                return
            multi_queue = queue.put_message_position_info_wrapper(request) and multi_queue
        if multi_queue:
            self._dispatch_lmq_queue(request)

    def _dispatch_lmq_queue(self, request: DispatchRequest) -> None:
        """Append the units of the record's further queues."""
        for queue_name, queue_id, queue_offset in self._multi_dispatch.queues_of(request):
            if self._deleted_topics.is_dead(queue_name, request.commit_log_offset):
                continue
            queue = self._table.find_queue(queue_name, queue_id)
            if queue is None:
                log.error("record at %s names an invalid queue %r", request.commit_log_offset, queue_name)
                continue
            queue.put_lmq_position_info(request, queue_offset)


class CommitLogDispatcherBuildIndex:
    """The dispatcher that adds the keys of every record to the index.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildIndex (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, index_service: IndexService) -> None:
        self._config = config
        self._index_service = index_service

    def dispatch(self, request: DispatchRequest) -> None:
        """Add the record's keys, unless the index is disabled."""
        if self._config.messageIndexEnable:
            self._index_service.build_index(request)


class RecordDispatcher:
    """The distributor of records to all dispatchers. The dispatching thread and recovery use it.

    Dispatch spans
    --------------
    Dispatching one record in Python costs far more than the bytes it writes: the record is decoded, and its unit and
    its keys are written on their own. When many records wait (after a start, on a busy broker, on a slave), that would
    be the slowest step of the store. A span is up to SPAN_RECORDS records that follow one another in a file, scanned
    with one call of the bulk kernel, which lets other threads run. Its result is already sorted by destination: runs of
    units, of one queue and with consecutive indexes, and the rows of keys in log order. So `dispatch_span` appends each
    run with one write, and all keys with one call, while another thread may scan the next span.

    The result is the same as record by record:

    - Within a queue the units keep the log's order. Between queues the order of the writes does not matter, because
      readers use only one queue at a time, and nothing reports a span as dispatched before it is complete.
    - The scan stops before any record that needs more: further queues, text that is not UTF-8, a record at the wrong
      place (Stop.ODD). That one goes through `do_dispatch`, then the next span begins. `takes_spans` is False while a
      setting is on that needs every record in Python.
    - All units of a span are written before any of its keys. A crash in between leaves units without keys; recovery
      dispatches from the last offset that the checkpoint has for both, and units or keys that are already there are
      skipped, so repeating a span is harmless.
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
        """Return whether a span can be dispatched in one step, which needs the compiled kernel and standard settings.
        """
        config = self._config
        return bulk.is_compiled() and not config.enableConsumeQueueExt and not config.duplicationEnable \
            and self.dispatcher_list == self._standard

    def scan(self, buffer: memoryview, start: int, end: int, file_from_offset: int, check_crc: bool = False) -> Span:
        """Scan the next records of `buffer`, which begins at `file_from_offset` of the log. Any thread may call it."""
        return bulk.scan(buffer, start, end, file_from_offset, check_crc, self._state.delay_levels.delays,
                         self._config.enableMultiDispatch, SPAN_RECORDS)

    def dispatch_span(self, span: Span) -> None:
        """Append the units of a span, then its keys."""
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
            log.error("%s records: the topic %r can't have a queue", count, topic)
            return True
        return queue.put_units(first, units[begin:begin + count * CQ_STORE_UNIT_SIZE])


def _last_offset(units: memoryview, run: Run) -> int:
    return unpack_unit(units, (run.first_unit + run.count - 1) * CQ_STORE_UNIT_SIZE)[0]


class MessageArrivingListener:
    """A listener that is notified of every dispatched record, on the dispatching thread.

    Java: org.apache.rocketmq.store.MessageArrivingListener (4.9.8)
    """

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        """Return False if no pull waits for this queue, so that the store can skip the call. Java has no such method.
        """
        return True

    def arriving(self, topic: str, queue_id: int, logic_offset: int, tags_code: int, msg_store_time: int,
                 filter_bit_map: bytes | None, properties: dict[str, str] | None) -> None:
        """Handle a new message. `logic_offset` is the queue's new end: the index of the message plus one."""
        raise NotImplementedError
