"""Encoding of messages into commit log records.

- `MessageExtBrokerInner`: a message on its way into the store.
- `MessageExtEncoder`: encodes a message as a `MessageRow`, the parts of its record that are known before the put lock
  is taken.
- `records_of_rows`: encodes rows as records, under the put lock. It is pure. Where a C compiler was available it is
  compiled (rmqha/native/_message_rows.c), otherwise it is `records_in_python`; both return the same result.
- `PutMessageContext`: the rows of one put and its outcome.
"""
from __future__ import annotations

import itertools
import logging
import operator
import struct

from rmqha.common.futures import Completable
from rmqha.common.java import string_hash_code
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import MessageExt, MessageExtBatch
from rmqha.common.message.message_layout import (
    HEAD_LENGTH,
    HEADS,
    LENGTHS_SIZE,
    MESSAGE_MAGIC_CODE,
    Buffer,
    bytes_to_host,
    encode_topic,
    host_to_bytes,
)
from rmqha.common.sys_flags import TRANSACTION_PREPARED_TYPE, TopicFilterType
from rmqha.common.texts import LATER
from rmqha.native import kernels
from rmqha.store.results import PutMessageResult, PutMessageStatus

_MAX_LONG = 2**63 - 1
# The flag of prepared and of rolled back messages, which have no queue offset.
_WITHOUT_QUEUE_OFFSET = TRANSACTION_PREPARED_TYPE

Totals = dict[str, tuple[int, int]]
"""The number of messages of each topic, and the total bytes of their records."""
Records = tuple[list[int], list[int], bytes, dict[str, int], Totals, list[int] | None]
"""The queue offsets and the commit log offsets in the order of the rows, the records, each queue's next offset, the
totals, and the indexes of the rows with a NUL in their properties (None if no row has one)."""


class MessageRow(NamedTuple):
    """A message as the log takes it: every part of its record that is known before the put lock is taken."""

    topic: str
    queue_id: int
    queue_key: str  # "topic-queueId"
    size: int  # bytes of the record
    crc: int
    flag: int
    sys_flag: int
    born_timestamp: int  # ms
    born_host: bytes  # 8 or 20
    reconsume_times: int
    body: Buffer
    tail: bytes  # topic and properties with their lengths

    @staticmethod
    def record_size(body_length: int, tail_length: int) -> int:
        """Return the size in bytes of a record whose two hosts have IPv4 addresses."""
        return HEAD_LENGTH + body_length + tail_length


def records_in_python(rows: list[MessageRow], total: int, table: dict[str, int], offset: int, now: int,
                      store_host: bytes, prepared_offset: int = 0) -> Records:
    """Encode `rows` as records, `total` bytes in all, that begin at commit log `offset` and are stored at `now` (ms) by
    `store_host`.

    `table`: each queue's next offset before these records; a queue that it lacks begins at 0. `prepared_offset`: the
    commit log offset of the prepared message that these records commit or roll back. Raise ValueError if a size is
    wrong or an offset is out of range, and struct.error (the compiled one: TypeError or OverflowError) if a field does
    not fit.

    Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
    """
    if not 0 <= offset <= _MAX_LONG - total:
        raise ValueError("a commit log offset that can't be")
    next_offsets: dict[str, int] = {}
    totals: Totals = {}
    parts: list[Buffer] = []
    queue_offsets, physical_offsets = [], []
    for topic, queue_id, key, size, crc, flag, sys_flag, born, born_host, reconsumed, body, tail in rows:
        queue_offset, head = 0, HEADS[sys_flag >> 4 & 3]
        if not sys_flag & _WITHOUT_QUEUE_OFFSET:
            queue_offset = next_offsets[key] if key in next_offsets else table.get(key, 0)
            if not 0 <= queue_offset < _MAX_LONG:
                raise ValueError("a queue offset that can't be")
            next_offsets[key] = queue_offset + 1
        if size != head.size + len(body) + len(tail):
            raise ValueError(f"a record of {head.size + len(body) + len(tail)} bytes, told as {size}")
        parts += (head.pack(size, MESSAGE_MAGIC_CODE, crc, queue_id, flag, queue_offset, offset, sys_flag, born,
                            born_host, now, store_host, reconsumed, prepared_offset, len(body)), body, tail)
        queue_offsets.append(queue_offset)
        physical_offsets.append(offset)
        offset += size
        times, bytes_before = totals.get(topic, (0, 0))
        totals[topic] = times + 1, bytes_before + size
    with_nuls = [index for index, row in enumerate(rows)
                 if row.tail and row.tail.find(0, row.tail[0] + LENGTHS_SIZE) >= 0]
    data = b"".join(parts)
    if len(data) != total:
        raise ValueError(f"records of {len(data)} bytes, told as {total}")
    return queue_offsets, physical_offsets, data, next_offsets, totals, with_nuls or None


records_of_rows = kernels.MESSAGE_ROWS.function("records_of_rows", records_in_python)
"""The compiled encoder, or `records_in_python` without it."""


_SIZE = operator.attrgetter("size")


class PutMessageContext:
    """The rows of one put on their way through the put lock, and the outcome.

    A single message is a batch of one.

    - `rows`: the rows of `message`, or, without a `message`, the rows of messages that were received together and exist
      only as rows. Empty for a message of several queues (`multi_dispatch`), whose row is encoded under the lock.
    - `prepared_offset`: the commit log offset of the prepared message that the rows commit or roll back.
    - `waits`: the sender waits for the disk and the slaves.
    - `is_ok`: the rows are in the log, which ends with them at `end`, whatever the flush and the replicas report.
    - `queue_offsets`, `physical_offsets`: in the order of the rows. The queue offsets are set just before the queues'
      next offsets are advanced.

    Java's context has only the key of the queue; here the key is in the rows.

    Java: org.apache.rocketmq.store.CommitLog$PutMessageContext (4.9.8)
    """

    __slots__ = ("rows", "size", "message", "is_batch", "multi_dispatch", "store_host", "prepared_offset", "waits",
                 "store_timestamp", "is_ok", "end", "queue_offsets", "physical_offsets", "data", "totals",
                 "begin", "status")

    # Set when the rows are appended.
    store_timestamp: int  # ms
    end: int
    physical_offsets: list[int]
    data: bytes
    totals: Totals
    # Set for rows that were received together.
    begin: int  # ms
    status: Completable[PutMessageStatus]

    def __init__(self, rows: list[MessageRow], store_host: bytes, message: MessageExt | None = None,
                 prepared_offset: int = 0, is_batch: bool = False,
                 multi_dispatch: MessageExtBrokerInner | None = None) -> None:
        self.rows = rows
        self.store_host = store_host
        self.message = message
        self.prepared_offset = prepared_offset
        self.is_batch = is_batch
        self.waits = message is None or message.wait_store_msg_ok
        self.is_ok = False
        self.queue_offsets: list[int] = []
        self.multi_dispatch = multi_dispatch
        self.size = rows[0].size if len(rows) == 1 else sum(map(_SIZE, rows))

    @property
    def topic(self) -> str:
        """The topic, for log lines; the first row's if there are several."""
        return (self.message or self.rows[0]).topic

    @property
    def client(self) -> str | None:
        """The host of the first message's producer, for log lines."""
        return self.message.born_host_string if self.message else bytes_to_host(self.rows[0].born_host)[0]

    def keep_what_fits(self, room: int) -> bool:
        """Keep the leading rows that fit into `room` bytes, and leave the others to the next put.

        Return False if all rows have to go to the next file: the first one does not fit, or the rows are one message or
        one batch, which can't be split.
        """
        ends = list(itertools.takewhile(lambda end: end <= room, itertools.accumulate(map(_SIZE, self.rows))))
        if self.message is not None or not ends:
            return False
        self.rows, self.size = self.rows[:len(ends)], ends[-1]
        return True


class MessageExtBrokerInner(MessageExt):
    """A message on its way into the store. The body may be a view.

    `properties_string` is stored; `properties` holds the same properties for the broker's own use.

    Java: org.apache.rocketmq.store.MessageExtBrokerInner (4.9.8)
    """

    __slots__ = ("properties_string", "tags_code", "encoded_buff")

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"") -> None:
        super().__init__(topic, body)
        self.properties_string: str | None = None
        self.tags_code = 0
        self.encoded_buff = None

    @staticmethod
    def tags_string2tags_code(_filter_type: TopicFilterType | None, tags: str | None) -> int:
        """Return the code of a tag: its Java hash, or 0 without a tag."""
        return string_hash_code(tags) if tags else 0


log = logging.getLogger("RocketmqStore")

# Bytes that a record may have in addition to its body.
RESERVED_OUTSIDE_BODY = 64 * 1024
MAX_BATCH_MESSAGES = 1 << 16
# The records of a batch may take this many times the maximum body size.
MAX_BATCH_GROWTH = 16
_PROPERTY_SEPARATOR = message_decoder.PROPERTY_SEPARATOR.encode()
_HEADS = layout.HEADS
_pack_short = layout.SHORT.pack
# Faster than MessageRow(...), whose __new__ is a Python function.
_new_row = tuple.__new__


class MessageExtEncoder:
    """The encoder of messages as rows, which also checks their sizes.

    It has no state but the limit, so one encoder serves all threads.

    Differs: the parts of a record are joined under the put lock; the original keeps one buffer of the maximum size per
    thread.

    Java: org.apache.rocketmq.store.CommitLog$MessageExtEncoder (4.9.8)
    """

    def __init__(self, max_message_body_size: int) -> None:
        self.max_message_body_size = 0
        self.max_message_size = 0
        self.update_encoder_buffer_capacity(max_message_body_size)

    def update_encoder_buffer_capacity(self, new_max_message_body_size: int) -> None:
        """Set the maximum size of a body, in bytes."""
        self.max_message_body_size = new_max_message_body_size
        self.max_message_size = min(new_max_message_body_size + RESERVED_OUTSIDE_BODY, layout.MAX_INT)

    def encode(self, msg: MessageExtBrokerInner) -> PutMessageResult | MessageRow:
        """Return the row of a message, or a result with the reason why the message is refused."""
        text = msg.properties_string
        properties = text.encode("utf-8", "replace") if text else b""
        if len(properties) > layout.MAX_PROPERTIES_LENGTH:
            log.warning("putMessage message properties length too long. length=%s", len(properties))
            return PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        body = msg.body if msg.body is not None else b""
        if len(body) > self.max_message_body_size:
            log.warning("message body size exceeded, msg body size: %s, maxMessageSize: %s",
                        len(body), self.max_message_body_size)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        try:
            tail = encode_topic(msg.topic) + _pack_short(len(properties)) + properties
            born_host = host_to_bytes(msg.born_host)
        except ValueError as error:
            # Differs: a message with a topic that is too long is refused; the original truncates the topic's length,
            # and stores a record that can't be read.
            log.warning("can't store a message of topic %s: %s", msg.topic, error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        size = _HEADS[msg.sys_flag >> 4 & 3].size + len(body) + len(tail)
        if size > self.max_message_size:
            log.warning("message size exceeded, msg total size: %s, msg body size: %s, maxMessageSize: %s",
                        size, len(body), self.max_message_body_size)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        topic, queue_id = msg.topic, msg.queue_id
        return _new_row(MessageRow, (topic, queue_id, f"{topic}-{queue_id}", size, msg.body_crc, msg.flag, msg.sys_flag,
                                     msg.born_timestamp, born_host, msg.reconsume_times, body, tail))

    def encode_batch(self, batch: MessageExtBatch) -> PutMessageResult | list[MessageRow]:
        """Return the rows of a batch, or a result with the reason why the batch is refused.

        Differs: a batch is illegal if it is empty or if its inner sizes are wrong; the original throws, or stores
        nothing. A batch is also illegal if it has more than MAX_BATCH_MESSAGES messages, or if its common properties
        make its records longer than MAX_BATCH_GROWTH times the maximum body size. The lock is held, and memory is
        allocated, for the whole batch at once.
        """
        if len(batch.body) > self.max_message_body_size:
            log.warning("message body size exceeded, msg body size: %s, maxMessageSize: %s",
                        len(batch.body), self.max_message_body_size)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        batch_properties = message_decoder.message_properties2string(batch.properties).encode("utf-8", "replace")
        if len(batch_properties) > layout.MAX_PROPERTIES_LENGTH:
            log.warning("Properties size of messageExtBatch exceeded, properties size: %s, maxSize: %s.",
                        len(batch_properties), layout.MAX_PROPERTIES_LENGTH)
            return PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        try:
            rows = self._rows(batch, batch_properties, MAX_BATCH_GROWTH * self.max_message_body_size)
        except (ValueError, struct.error) as error:
            log.warning("can't store a batch of topic %s: %s", batch.topic, error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if not rows:
            log.warning("batch of topic %s is empty", batch.topic)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        return rows

    @staticmethod
    def _rows(batch: MessageExtBatch, batch_properties: bytes, max_size: int) -> list[MessageRow]:
        topic, key = encode_topic(batch.topic), f"{batch.topic}-{batch.queue_id}"
        born_host = host_to_bytes(batch.born_host)
        head_size = _HEADS[batch.sys_flag >> 4 & 3].size
        rows: list[MessageRow] = []
        total = 0
        for flag, body, properties in layout.iterate_batch(batch.body):
            own = bytes(properties)
            if own and batch_properties and not own.endswith(_PROPERTY_SEPARATOR):
                own += _PROPERTY_SEPARATOR
            own += batch_properties
            tail = topic + _pack_short(len(own)) + own
            size = head_size + len(body) + len(tail)
            total += size
            if total > max_size or len(rows) == MAX_BATCH_MESSAGES:
                raise ValueError(f"more than {len(rows)} messages, {total} bytes")
            rows.append(MessageRow(batch.topic, batch.queue_id, key, size, layout.body_crc32(body), flag,
                                   batch.sys_flag, batch.born_timestamp, born_host, batch.reconsume_times, body, tail))
        return rows
