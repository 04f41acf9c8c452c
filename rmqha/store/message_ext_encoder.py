"""From a message to its row: what is known before the put lock; `records_of_rows` does the rest under it."""
import logging
import struct

from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import MessageExtBatch
from rmqha.common.message.message_layout import encode_topic, host_to_bytes
from rmqha.store.message_ext_broker_inner import MessageExtBrokerInner
from rmqha.store.message_rows import MessageRow
from rmqha.store.put_message_result import PutMessageResult, PutMessageStatus

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
