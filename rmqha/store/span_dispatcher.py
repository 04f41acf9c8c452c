"""Dispatching many records at once: a span of the commit log through the bulk kernel.

    ReputMessageService that is far behind, CommitLogRecovery --dispatch--> runs of units --> ConsumeQueue
                                                                            rows of keys  --> IndexService
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Run, Span
from rmqha.store.commit_log_dispatcher import CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, first_unit_at, unpack_unit

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

SPAN_RECORDS = 1 << 15  # some MiB of log and of results
_STANDARD = [CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex]


class SpanDispatcher:
    """Does with a scanned span what the standard dispatchers do with each of its records. For the dispatching thread.

    The records of a span get their units before any gets its keys. What is there already is passed over, as always.
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store

    def is_possible(self) -> bool:
        """Whether a span can be dispatched at once, and it pays: with the compiled kernel and nothing unusual on."""
        store = self.default_message_store
        config = store.message_store_config
        return bulk.is_compiled() and not config.enableConsumeQueueExt and not config.duplicationEnable \
            and [type(dispatcher) for dispatcher in store.dispatcher_list] == _STANDARD

    def scan(self, buffer: memoryview, start: int, end: int, file_from_offset: int, check_crc: bool = False) -> Span:
        """The next records of `buffer`, which begins at `file_from_offset` of the commit log."""
        store = self.default_message_store
        return bulk.scan(buffer, start, end, file_from_offset, check_crc, store.schedule_message_service.delays(),
                         store.message_store_config.enableMultiDispatch, SPAN_RECORDS)

    def dispatch(self, span: Span) -> None:
        """Add the units, then the keys."""
        units = memoryview(span.units)
        written = all([self._put_run(span, run, units) for run in span.runs])
        if span.runs and written:
            last = max(span.runs, key=lambda run: _last_offset(units, run))
            self.default_message_store.store_checkpoint.dispatched_timestamp = last.last_store_timestamp
        if span.keys and self.default_message_store.message_store_config.messageIndexEnable:
            self.default_message_store.index_service.build_index_of_rows(span.keys)

    def _put_run(self, span: Span, run: Run, units: memoryview) -> bool:
        topic = span.topics[run.topic].name
        begin, first, count = run.first_unit * CQ_STORE_UNIT_SIZE, run.queue_offset, run.count
        mark = self.default_message_store.deleted_topics.marks.get(topic)
        if mark is not None:
            dead = first_unit_at(units[begin:], count, mark)
            if dead == count:
                return True
            begin, first, count = begin + dead * CQ_STORE_UNIT_SIZE, first + dead, count - dead
        queue = self.default_message_store.find_consume_queue(topic, run.queue_id)
        if queue is None:
            log.error("%s records have a topic %r that can't have a queue", count, topic)
            return True
        return queue.put_units(first, units[begin:begin + count * CQ_STORE_UNIT_SIZE])


def _last_offset(units: memoryview, run: Run) -> int:
    return unpack_unit(units, (run.first_unit + run.count - 1) * CQ_STORE_UNIT_SIZE)[0]
