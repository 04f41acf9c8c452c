"""From appended records to queues, index and filters.

What is done with each record after it was appended.

Dispatching many records at once: a span of the commit log through the bulk kernel.

    ReputMessageService that is far behind, CommitLogRecovery --dispatch--> runs of units --> ConsumeQueue
                                                                            rows of keys  --> IndexService

Who is told of new messages.

One message in several queues: light message queues (LMQ) and others named by INNER_MULTI_DISPATCH.

The queue offsets are taken under the put lock; the units are added by the dispatching thread.
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from rmqha.common import mix_all, sys_flags
from rmqha.common.message import message_const
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Run, Span
from rmqha.store.consume_queue import is_safe_topic
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, first_unit_at, unpack_unit
from rmqha.store.results import DispatchRequest, PutMessageResult

if TYPE_CHECKING:
    from rmqha.store.append import PutMessageContext
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.default_message_store import DefaultMessageStore


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

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store

    def dispatch(self, request: DispatchRequest) -> None:
        """Prepared and rolled back messages get no unit."""
        if request.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE not in _PREPARED_OR_ROLLBACK:
            self.default_message_store.put_message_position_info(request)


class CommitLogDispatcherBuildIndex:
    """Adds the keys of every record to the index.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildIndex (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store

    def dispatch(self, request: DispatchRequest) -> None:
        """Nothing when the index is switched off."""
        if self.default_message_store.message_store_config.messageIndexEnable:
            self.default_message_store.index_service.build_index(request)


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


_SPLITTER = mix_all.MULTI_DISPATCH_QUEUE_SPLITTER


class MultiDispatch:
    """Offsets and units of the further queues of a message.

    Java: org.apache.rocketmq.store.MultiDispatch (4.9.8)
    """

    def __init__(self, message_store: DefaultMessageStore, commit_log: CommitLog) -> None:
        self.message_store = message_store
        self.commit_log = commit_log
        self._config = message_store.message_store_config

    def is_multi_dispatch_msg(self, msg: MessageExtBrokerInner) -> bool:
        """True when the message goes to further queues."""
        return self._config.enableMultiDispatch and bool(
            (msg.properties.get(message_const.PROPERTY_INNER_MULTI_DISPATCH) or "").strip())

    def queue_key(self, queue_name: str, queue_id: int) -> str:
        """Key of a further queue in the table of queue offsets."""
        return f"{queue_name}-{self._queue_id(queue_name, queue_id)}"

    def wrap_multi_dispatch(self, msg: MessageExtBrokerInner, context: PutMessageContext) -> bool:
        """Under the put lock: note the offsets in the message's properties and make its row; False on failure."""
        offsets = []
        for queue_name in java_split(msg.properties[message_const.PROPERTY_INNER_MULTI_DISPATCH]):
            if not is_safe_topic(queue_name):
                log.error("multiDispatch queue %r of a message of %s is no queue name", queue_name, msg.topic)
                return False
            key = self.queue_key(queue_name, msg.queue_id)
            offsets.append(self._table(key).setdefault(key, 0))
        properties = msg.properties
        properties[message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = _SPLITTER.join(map(str, offsets))
        # WAIT is obeyed but not stored
        stored = {name: value for name, value in properties.items()
                  if name != message_const.PROPERTY_WAIT_STORE_MSG_OK}
        msg.properties_string = message_properties2string(stored)
        row = self.commit_log.message_ext_encoder.encode(msg)
        if isinstance(row, PutMessageResult):
            log.error("rebuild msgInner for multiDispatch %s", row)
            return False
        context.rows, context.size = [row], row.size
        return True

    def update_multi_queue_offset(self, msg: MessageExtBrokerInner) -> None:
        """Under the put lock, once the message is written: the further queues have one message more."""
        if not self._config.enableMultiDispatch:
            return
        pairs = self._pairs(msg.properties)
        for queue_name, queue_offset in pairs:
            key = self.queue_key(queue_name, msg.queue_id)
            self._table(key)[key] = queue_offset + 1

    def is_multi_dispatch_request(self, request: DispatchRequest) -> bool:
        """True when the record belongs to further queues."""
        return self._config.enableMultiDispatch and bool(self._pairs(request.properties_map or {}))

    def dispatch_lmq_queue(self, request: DispatchRequest) -> None:
        """Add the units of the further queues."""
        deleted_topics = self.message_store.deleted_topics
        for queue_name, queue_id, queue_offset in self.queues_of(request):
            if deleted_topics.is_dead(queue_name, request.commit_log_offset):
                continue
            queue = self.message_store.find_consume_queue(queue_name, queue_id)
            if queue is None:
                log.error("record at %s names a queue %r that can't be", request.commit_log_offset, queue_name)
                continue
            queue.put_lmq_position_info(request, queue_offset)

    def queues_of(self, request: DispatchRequest) -> list[tuple[str, int, int]]:
        """(queue name, queue id, queue offset) of each further queue of a record."""
        return [(queue_name, self._queue_id(queue_name, request.queue_id), queue_offset)
                for queue_name, queue_offset in self._pairs(request.properties_map or {})]

    def _queue_id(self, queue_name: str, queue_id: int) -> int:
        return 0 if self._config.enableLmq and mix_all.is_lmq(queue_name) else queue_id

    def _table(self, key: str) -> dict[str, int]:
        if self._config.enableLmq and mix_all.is_lmq(key):
            return self.commit_log.lmq_topic_queue_table
        return self.commit_log.topic_queue_table

    @staticmethod
    def _pairs(properties: dict[str, str]) -> list[tuple[str, int]]:
        names = (properties.get(message_const.PROPERTY_INNER_MULTI_DISPATCH) or "").strip()
        texts = (properties.get(message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET) or "").strip()
        if not names or not texts:
            return []
        queues, offsets = java_split(names), java_split(texts)
        if len(queues) != len(offsets) or not all(text.isdecimal() for text in offsets):
            log.error("[bug] queues.length!=queueOffsets.length %s %s", names, texts)
            return []
        return [(queue, int(text)) for queue, text in zip(queues, offsets)]


def java_split(text: str) -> list[str]:
    """Java's split by the splitter: empty parts at the end are dropped."""
    parts = text.split(_SPLITTER)
    while parts and not parts[-1]:
        parts.pop()
    return parts
