"""From a message to the bytes of its record, in two steps: what is known before the put lock, and the rest under it."""
import logging
import struct
from typing import NamedTuple

from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.message.message_ext_batch import MessageExtBatch
from rmqha.common.message.message_layout import encode_topic, host_to_bytes
from rmqha.store.message_ext_broker_inner import MessageExtBrokerInner
from rmqha.store.put_message_result import PutMessageResult
from rmqha.store.put_message_status import PutMessageStatus

log = logging.getLogger("RocketmqStore")

# Reserved for everything but the body.
RESERVED_OUTSIDE_BODY = 64 * 1024
MAX_BATCH_MESSAGES = 1 << 16
MAX_BATCH_GROWTH = 16  # times the longest body: what the records of a batch may take together
_JOIN_LIMIT = 64 * 1024  # bodies up to this are joined with their head and written by one assignment
_PROPERTY_SEPARATOR = message_decoder.PROPERTY_SEPARATOR.encode()
_HEADS, _MAGIC = layout.HEADS, layout.MESSAGE_MAGIC_CODE
_pack_short = layout.SHORT.pack


class EncodedRecord(NamedTuple):
    """What the put lock need not be held for. The message's own fields are packed with the offsets under it."""

    size: int
    body_crc: int
    flag: int
    body: layout.Buffer
    topic: bytes  # with its length
    properties_length: bytes
    properties: bytes


def finish_record(record: EncodedRecord, msg: MessageExt, queue_offset: int, physical_offset: int,
                  prepared_transaction_offset: int) -> tuple[layout.Buffer, ...]:
    """The parts of the record, to be written one behind the other; one part when it is small. struct.error when a
    field of `msg` does not fit."""
    size, crc, flag, body, topic, properties_length, properties = record
    sys_flag = msg.sys_flag
    packed = _HEADS[sys_flag >> 4 & 3].pack(
        size, _MAGIC, crc, msg.queue_id, flag, queue_offset, physical_offset, sys_flag, msg.born_timestamp,
        host_to_bytes(msg.born_host), msg.store_timestamp, host_to_bytes(msg.store_host), msg.reconsume_times,
        prepared_transaction_offset, len(body))
    if size <= _JOIN_LIMIT:
        return (b"".join((packed, body, topic, properties_length, properties)),)
    return packed, body, topic + properties_length + properties


class MessageExtEncoder:
    """Checks sizes and prepares records. Stateless but for the limit, so one serves all threads.

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

    def encode(self, msg: MessageExtBrokerInner) -> PutMessageResult | EncodedRecord:
        """The prepared record, or why there is none."""
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
        size = _HEADS[msg.sys_flag >> 4 & 3].size + len(body) + 2 + len(properties)
        try:
            topic = encode_topic(msg.topic)
        except ValueError as error:
            # Differs: the original writes the length of such a topic cut off, as a record nobody can read.
            log.warning("message of topic %s can't be stored: %s", msg.topic, error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        size += len(topic)
        if size > self.max_message_size:
            log.warning("message size exceeded, msg total size: %s, msg body size: %s, maxMessageSize: %s",
                        size, len(body), self.max_message_body_size)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        return EncodedRecord(size, msg.body_crc, msg.flag, body, topic, _pack_short(len(properties)), properties)

    def encode_batch(self, batch: MessageExtBatch) -> PutMessageResult | list[EncodedRecord]:
        """The prepared records of a batch, or why there are none.

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
            records = self._records(batch, batch_properties, MAX_BATCH_GROWTH * self.max_message_body_size)
        except (ValueError, struct.error) as error:
            log.warning("batch of topic %s can't be stored: %s", batch.topic, error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if not records:
            log.warning("batch of topic %s is empty", batch.topic)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        return records

    @staticmethod
    def _records(batch: MessageExtBatch, batch_properties: bytes, max_size: int) -> list[EncodedRecord]:
        topic = encode_topic(batch.topic)
        head_size = _HEADS[batch.sys_flag >> 4 & 3].size
        records, total = [], 0
        for flag, body, properties in layout.iterate_batch(batch.body):
            own = bytes(properties)
            if own and batch_properties and not own.endswith(_PROPERTY_SEPARATOR):
                own += _PROPERTY_SEPARATOR
            own += batch_properties
            size = head_size + len(body) + len(topic) + 2 + len(own)
            total += size
            if total > max_size or len(records) == MAX_BATCH_MESSAGES:
                raise ValueError(f"more than {len(records)} messages, {total} bytes")
            records.append(EncodedRecord(size, layout.body_crc32(body), flag, body, topic, _pack_short(len(own)), own))
        return records
