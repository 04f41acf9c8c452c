"""Encoding of messages into commit log records.

- `MessageExtBrokerInner`: a message on its way into the store.
- `MessageExtEncoder`: makes a `MessageRow` of a message: all that is known before the put lock is taken.
- `records_of_rows`: makes the records of rows, under the put lock; pure. It is compiled where a C compiler was
  available (rmqha/native/_message_rows.c), and `records_in_python` otherwise; both give the same result.
- `PutMessageContext`: the rows of one put, and its outcome.
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
# Prepared and rolled back: they have no place in their queue.
_WITHOUT_QUEUE_OFFSET = TRANSACTION_PREPARED_TYPE

Totals = dict[str, tuple[int, int]]
"""By topic: how many messages, and the bytes of their records."""
Records = tuple[list[int], list[int], bytes, dict[str, int], Totals, list[int] | None]
"""Queue offsets and commit log offsets in the order of the rows, the records, each queue's next offset, totals; the
indexes of rows that have a NUL in their properties, None when none has."""


class MessageRow(NamedTuple):
    """A message as the log takes it: all of its record that need not wait for the put lock."""

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
        """Bytes of a record between IPv4 hosts."""
        return HEAD_LENGTH + body_length + tail_length


def records_in_python(rows: list[MessageRow], total: int, table: dict[str, int], offset: int, now: int,
                      store_host: bytes, prepared_offset: int = 0) -> Records:
    """The records of `rows`, `total` bytes in all, which begin at commit log `offset` and are stored at `now` (ms) by
    `store_host`.

    `table`: each queue's next offset before them; 0 for those it does not have. `prepared_offset`: commit log offset
    of the prepared message that they end. ValueError when a size is wrong or an offset can't be; struct.error (the
    compiled one: TypeError or OverflowError) when a field does not fit.

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
"""`records_in_python`, or its compiled twin."""


_SIZE = operator.attrgetter("size")


class PutMessageContext:
    """What one put carries through the lock, and what has become of it.

    A message is a batch of one. `rows`: of `message`, which is asked for what is unusual, or those that came together
    and have no other form; none for a message of several queues, `multi_dispatch`, whose row is made under the lock.
    `prepared_offset`: commit log offset of the prepared message that they end. `waits`: their sender waits for disk and
    slaves. `is_ok`: they are in the log, up to its offset `end`, whatever flush and replicas say. Queue offsets and
    commit log offsets are in the order of the rows; the first are set just before they are counted.

    The key of the queue, which is all that it has in Java, is in the rows.

    Java: org.apache.rocketmq.store.CommitLog$PutMessageContext (4.9.8)
    """

    __slots__ = ("rows", "size", "message", "is_batch", "multi_dispatch", "store_host", "prepared_offset", "waits",
                 "store_timestamp", "is_ok", "end", "queue_offsets", "physical_offsets", "data", "totals",
                 "begin", "status")

    # known once they are appended
    store_timestamp: int  # ms
    end: int
    physical_offsets: list[int]
    data: bytes
    totals: Totals
    # of rows that came together
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
        """For log lines: the topic, that of the first row where they have several."""
        return (self.message or self.rows[0]).topic

    @property
    def client(self) -> str | None:
        """For log lines: the host of whoever made the first message."""
        return self.message.born_host_string if self.message else bytes_to_host(self.rows[0].born_host)[0]

    def keep_what_fits(self, room: int) -> bool:
        """Leave to the next put those of the rows that `room` bytes are not enough for; False when all of them wait for
        the next file: none fits, or they are one message or one batch."""
        ends = list(itertools.takewhile(lambda end: end <= room, itertools.accumulate(map(_SIZE, self.rows))))
        if self.message is not None or not ends:
            return False
        self.rows, self.size = self.rows[:len(ends)], ends[-1]
        return True


class MessageExtBrokerInner(MessageExt):
    """`properties_string` is what gets stored; `properties` is what the broker looks at. The body may be a view.

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
        """The code of a tag: its Java hash, 0 for none."""
        return string_hash_code(tags) if tags else 0


log = logging.getLogger("RocketmqStore")

# Reserved for everything but the body.
RESERVED_OUTSIDE_BODY = 64 * 1024
MAX_BATCH_MESSAGES = 1 << 16
MAX_BATCH_GROWTH = 16  # times the longest body: what the records of a batch may take together
_PROPERTY_SEPARATOR = message_decoder.PROPERTY_SEPARATOR.encode()
_HEADS = layout.HEADS
_pack_short = layout.SHORT.pack
_new_row = tuple.__new__  # without the Python call of a NamedTuple's own


class MessageExtEncoder:
    """Checks sizes and makes rows. Stateless but for the limit, so one serves all threads.

    Differs: the original keeps one buffer of the largest size per thread; here the parts are joined under the lock.

    Java: org.apache.rocketmq.store.CommitLog$MessageExtEncoder (4.9.8)
    """

    def __init__(self, max_message_body_size: int) -> None:
        self.max_message_body_size = 0
        self.max_message_size = 0
        self.update_encoder_buffer_capacity(max_message_body_size)

    def update_encoder_buffer_capacity(self, new_max_message_body_size: int) -> None:
        """Take over a new limit of the body, bytes."""
        self.max_message_body_size = new_max_message_body_size
        self.max_message_size = min(new_max_message_body_size + RESERVED_OUTSIDE_BODY, layout.MAX_INT)

    def encode(self, msg: MessageExtBrokerInner) -> PutMessageResult | MessageRow:
        """The row, or why there is none."""
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
            # Differs: the original writes the length of such a topic cut off, as a record nobody can read.
            log.warning("message of topic %s can't be stored: %s", msg.topic, error)
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
        """The rows of a batch, or why there are none.

        Differs: a batch whose inner sizes lie, or that is empty, is illegal; the original throws or stores nothing.
        So is one of more than MAX_BATCH_MESSAGES, or that its common properties make longer than MAX_BATCH_GROWTH
        times the longest body: the lock is held, and memory taken, for all of them at once.
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
            log.warning("batch of topic %s can't be stored: %s", batch.topic, error)
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
