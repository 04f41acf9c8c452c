"""From a message to the bytes of its record, in two steps: what is known before the put lock, and the rest under it."""
import logging
import struct

from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_ext_batch import MessageExtBatch
from rmqha.store.message_ext_broker_inner import MessageExtBrokerInner
from rmqha.store.put_message_result import PutMessageResult
from rmqha.store.put_message_status import PutMessageStatus

log = logging.getLogger("RocketmqStore")

# Reserved for everything but the body.
RESERVED_OUTSIDE_BODY = 64 * 1024
_JOIN_LIMIT = 64 * 1024  # bodies up to this are joined with their head and written by one assignment
_pack_short = layout.SHORT.pack
_PROPERTY_SEPARATOR = message_decoder.PROPERTY_SEPARATOR.encode()


class EncodedRecord:
    """A record without queue offset, commit log offset and store time; `size` bytes long."""

    __slots__ = ("size", "_head", "_before", "_after", "_tail", "_body")

    def __init__(self, crc: int, queue_id: int, flag: int, sys_flag: int, born_timestamp: int, born_host: bytes,
                 store_host: bytes, reconsume_times: int, prepared_transaction_offset: int,
                 body: layout.Buffer, topic: bytes, properties: layout.Buffer) -> None:
        head = layout.HEADS[sys_flag >> 4 & 3]
        body_length = len(body)
        self.size = head.size + body_length + len(topic) + 2 + len(properties)
        self._head = head
        self._before = (self.size, layout.MESSAGE_MAGIC_CODE, crc, queue_id, flag)
        self._after = (sys_flag, born_timestamp, born_host), (store_host, reconsume_times,
                                                              prepared_transaction_offset, body_length)
        self._body = body
        self._tail = (topic, _pack_short(len(properties)), properties)
        # Refuses what does not fit its field before the lock is taken: struct.error.
        head.pack(*self._before, 0, 0, *self._after[0], 0, *self._after[1])

    def finish(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> tuple[layout.Buffer, ...]:
        """The parts of the record, to be written one behind the other; one part when it is small."""
        before, after = self._after
        packed = self._head.pack(*self._before, queue_offset, physical_offset, *before, store_timestamp, *after)
        if len(self._body) <= _JOIN_LIMIT:
            return (b"".join((packed, self._body, *self._tail)),)
        return (packed, self._body, *self._tail)


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
        try:
            record = EncodedRecord(
                msg.body_crc, msg.queue_id, msg.flag, msg.sys_flag, msg.born_timestamp,
                layout.host_to_bytes(msg.born_host), layout.host_to_bytes(msg.store_host), msg.reconsume_times,
                msg.prepared_transaction_offset, body, layout.encode_topic(msg.topic), properties)
        except (ValueError, struct.error) as error:
            # Differs: the original writes numbers and topics that do not fit cut off, as a record nobody can read.
            log.warning("message of topic %s can't be stored: %s", msg.topic, error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if record.size > self.max_message_size:
            log.warning("message size exceeded, msg total size: %s, msg body size: %s, maxMessageSize: %s",
                        record.size, len(body), self.max_message_body_size)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        return record

    def encode_batch(self, batch: MessageExtBatch) -> PutMessageResult | list[EncodedRecord]:
        """The prepared records of a batch, or why there are none.

        Differs: a batch whose inner sizes lie, or that is empty, is illegal; the original throws or stores nothing.
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
            records = self._records(batch, batch_properties)
        except (ValueError, struct.error) as error:
            log.warning("batch of topic %s can't be stored: %s", batch.topic, error)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        if not records:
            log.warning("batch of topic %s is empty", batch.topic)
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        return records

    @staticmethod
    def _records(batch: MessageExtBatch, batch_properties: bytes) -> list[EncodedRecord]:
        topic = layout.encode_topic(batch.topic)
        born_host, store_host = layout.host_to_bytes(batch.born_host), layout.host_to_bytes(batch.store_host)
        records = []
        for flag, body, properties in layout.iterate_batch(batch.body):
            own = bytes(properties)
            if own and batch_properties and not own.endswith(_PROPERTY_SEPARATOR):
                own += _PROPERTY_SEPARATOR
            records.append(EncodedRecord(
                layout.body_crc32(body), batch.queue_id, flag, batch.sys_flag, batch.born_timestamp, born_host,
                store_host, batch.reconsume_times, 0, body, topic, own + batch_properties))
        return records
