"""Messages from and to stored records, batch bodies, property texts and message ids.

Java's positions in a ByteBuffer are explicit here: `decode` takes the position, the next record starts `store_size`
bytes later.

Java: org.apache.rocketmq.common.message.MessageDecoder (4.9.8)
"""
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rmqha.common.compression import compressor_factory
from rmqha.common.compression.body_budget import MOST_IN_ALL, BodyBudget, MissingBody
from rmqha.common.compression.compressor_factory import CompressionError, TooLargeError
from rmqha.common.java_compat import hash_map_order
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message
from rmqha.common.message.message_ext import MessageClientExt, MessageExt
from rmqha.common.message.message_layout import (  # noqa: F401, the constants are Java's MessageDecoder's)
    MESSAGE_MAGIC_CODE,
    QUEUE_OFFSET_POSITION,
    SYSFLAG_POSITION,
    Buffer,
    Host,
    MessageDecodeError,
)
from rmqha.common.sysflag import message_sys_flag

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
_KEPT_LENGTH = 1024  # characters of all names whose order is kept
COMPRESS_LEVEL = 5

_pack_long = layout.LONG.pack
_MSG_ID_LENGTHS = (layout.HOST_LENGTH + layout.LONG.size, layout.V6_HOST_LENGTH + layout.LONG.size)


class BodyDecodeError(MessageDecodeError):
    """A record whose body does not decompress; the rest of it is sound."""


class BodyTooLargeError(BodyDecodeError):
    """A record whose body decompresses to more than it may."""


class MessageId(NamedTuple):
    """Which broker (address, port) and which commit log offset.

    Java: org.apache.rocketmq.common.message.MessageId (4.9.8)
    """

    address: tuple[str, int]
    offset: int


def create_message_id(host: Host | bytes, offset: int) -> str:
    """The offset message id: upper-case hex of address, port (4 bytes) and offset; 32 characters, IPv6 56.

    `host`: (address, port), or the record's bytes of it.
    """
    data = host if isinstance(host, bytes) else layout.host_to_bytes(host)
    return (data + _pack_long(offset)).hex().upper()


def decode_message_id(msg_id: str) -> MessageId:
    """((address, port), offset) of an offset message id; MessageDecodeError when it is not valid."""
    try:
        data = bytes.fromhex(msg_id)
    except ValueError:
        raise MessageDecodeError(f"message id {msg_id!r} is not hexadecimal") from None
    if len(data) not in _MSG_ID_LENGTHS or len(msg_id) != 2 * len(data):
        raise MessageDecodeError(f"a message id has 32 or 56 characters, not {len(msg_id)}")
    return MessageId(layout.bytes_to_host(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


def decode_properties(buffer: Buffer, position: int = 0) -> dict[str, str] | None:
    """Only the properties of the record at `position`; None when it has none."""
    parts = layout.decode_parts(buffer, position)
    if not parts.properties_length:
        return None
    start = parts.properties_position
    return string2message_properties(layout.decode_text(buffer[start:start + parts.properties_length]))


def decode(buffer: Buffer, read_body: bool = True, decompress: bool = True, position: int = 0,
           is_client: bool = False, budget: BodyBudget | None = None) -> MessageExt:
    """The message of the record at `position`; with `is_client` a MessageClientExt.

    The body is copied out of `buffer`; a compressed one is decompressed unless `decompress` is false (the flag stays).
    `budget`: what it may grow to; None: as far as a message alone may. MessageDecodeError for a damaged record,
    BodyDecodeError for one of which only the body is, BodyTooLargeError beyond the budget. The body's CRC is not
    checked, as in Java.
    """
    # Differs: Java answers null for any damage, and does not compare the magic code and TOTALSIZE with the parts.
    parts = layout.decode_parts(buffer, position)
    head = parts.head
    message: MessageExt = MessageClientExt() if is_client else MessageExt()
    (message.store_size, _, message.body_crc, message.queue_id, message.flag, message.queue_offset,
     message.commit_log_offset, message.sys_flag, message.born_timestamp, born_host, message.store_timestamp,
     store_host, message.reconsume_times, message.prepared_transaction_offset, body_length) = head
    message.born_host = layout.bytes_to_host(born_host)
    message.store_host = layout.bytes_to_host(store_host)
    if body_length and read_body:
        body = bytes(buffer[parts.body_position:parts.body_position + body_length])
        if decompress and head.sys_flag & message_sys_flag.COMPRESSED_FLAG:
            body = _decompress(body, head.sys_flag, position, budget or _alone())
        message.body = body
    start = parts.topic_position
    message.topic = layout.decode_text(buffer[start:start + parts.topic_length])
    if parts.properties_length:
        start = parts.properties_position
        message.properties = string2message_properties(
            layout.decode_text(buffer[start:start + parts.properties_length]))
    offset_msg_id = create_message_id(store_host, head.physical_offset)
    if is_client:
        message.offset_msg_id = offset_msg_id  # type: ignore[attr-defined]  # a MessageClientExt
    else:
        message.msg_id = offset_msg_id
    return message


def _alone() -> BodyBudget:
    """For a message by itself."""
    return BodyBudget(most_each=MOST_IN_ALL)


def _decompress(body: bytes, sys_flag: int, position: int, budget: BodyBudget) -> bytes:
    try:
        return budget.plain(body, sys_flag)
    except CompressionError as error:
        text = f"the body does not decompress: {error}"
        if isinstance(error.__cause__, ImportError):  # no flaw of this record
            raise MessageDecodeError(text, position) from error
        raise (BodyTooLargeError if isinstance(error, TooLargeError) else BodyDecodeError)(text, position) from error


def client_decode(buffer: Buffer, read_body: bool = True, position: int = 0, budget: BodyBudget | None = None
                  ) -> MessageClientExt:
    """`decode` for a consumer."""
    message = decode(buffer, read_body, True, position, is_client=True, budget=budget)
    return message  # type: ignore[return-value]  # what `is_client` asks for


def decodes(buffer: Buffer, read_body: bool = True, budget: BodyBudget | None = None, keep_bad: bool = False
            ) -> list[MessageExt]:
    """The messages of an answer, as `client_decode` makes them. MessageDecodeError for damage in one.

    All bodies share `budget`, by default that of a message alone: BodyTooLargeError beyond it. `keep_bad`: a
    MissingBody stands in place of a body that is damaged or too large, and the other messages are as they are.
    """
    # Differs: Java drops the damaged record and all behind it, and the consumer goes on behind them.
    budget = budget or _alone()
    messages: list[MessageExt] = []
    position, end = 0, len(buffer)
    while position < end:
        message = client_decode_or_missing(buffer, position, budget, read_body) if keep_bad else (
            client_decode(buffer, read_body, position, budget))
        messages.append(message)
        position += message.store_size
    return messages


def client_decode_or_missing(buffer: Buffer, position: int, budget: BodyBudget, read_body: bool = True
                             ) -> MessageClientExt:
    """The message of a record; with a MissingBody when only its body is damaged or too large."""
    try:
        return client_decode(buffer, read_body, position, budget)
    except BodyDecodeError as error:
        return without_body(buffer, position, error)


def without_body(buffer: Buffer, position: int, reason: BodyDecodeError) -> MessageClientExt:
    """The message of a record, with a MissingBody that says why."""
    message = client_decode(buffer, False, position)
    message.body = MissingBody(str(reason))
    return message


def decode_fitting(buffer: Buffer, budget: BodyBudget, keep_bad: bool = False
                   ) -> tuple[list[MessageExt], MessageClientExt | None]:
    """The messages of an answer up to the first whose body is beyond `budget`, and that one; None: all fit.

    That one has a MissingBody; so has, with `keep_bad`, one whose body is damaged, else MessageDecodeError.
    """
    messages: list[MessageExt] = []
    position, end = 0, len(buffer)
    while position < end:
        try:
            message = client_decode(buffer, True, position, budget)
        except BodyTooLargeError as error:
            return messages, without_body(buffer, position, error)
        except BodyDecodeError as error:
            if not keep_bad:
                raise
            message = without_body(buffer, position, error)
        messages.append(message)
        position += message.store_size
    return messages, None


def encode(message: MessageExt, need_compress: bool = False) -> bytes:
    """The record of a message, from its fields as they are (offsets, CRC, flags); IPv6 bits must fit the hosts.

    `need_compress`: the body is not compressed although the bit says so: compress it.
    """
    body = message.body
    if need_compress and message.sys_flag & message_sys_flag.COMPRESSED_FLAG:
        compressor = compressor_factory.get_compressor(message_sys_flag.get_compression_type(message.sys_flag))
        body = compressor.compress(body, COMPRESS_LEVEL)
    properties = message_properties2string(message.properties).encode("utf-8", "replace")
    # Differs: Java pads or overflows when store_size is set and no longer fits; here it is always computed.
    return layout.encode_record(
        message.body_crc, message.queue_id, message.flag, message.queue_offset, message.commit_log_offset,
        message.sys_flag, message.born_timestamp, message.born_host_bytes, message.store_timestamp,
        message.store_host_bytes, message.reconsume_times, message.prepared_transaction_offset, body,
        layout.encode_topic(message.topic), properties)


def property_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """The order in which a Java HashMap of these names is iterated over. Kept for names of the usual lengths."""
    return _kept_order(names) if sum(map(len, names)) <= _KEPT_LENGTH else tuple(hash_map_order(names))


@lru_cache(maxsize=1024)
def _kept_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(hash_map_order(names))


def message_properties2string(properties: dict[str, str] | None) -> str:
    """`name 0x01 value 0x02 name 0x01 value ...` in the order of a Java HashMap; None values are left out."""
    if not properties:
        return ""
    # Differs: Java's order remembers how often the table grew and, in clashing buckets, the history of removals.
    return PROPERTY_SEPARATOR.join([f"{name}\x01{value}" for name in property_order(tuple(properties))
                                    if (value := properties[name]) is not None])


def string2message_properties(text: str | None) -> dict[str, str]:
    """The properties of a text; entries without name, separator or value are ignored, the last of equal names wins."""
    properties: dict[str, str] = {}
    if text:
        for entry in text.split(PROPERTY_SEPARATOR):
            name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
            if name and value:
                properties[name] = value
    return properties


def encode_message(message: Message) -> bytes:
    """One message of a batch body: only flag, body and properties. ValueError when the properties are too long."""
    properties = message_properties2string(message.properties).encode("utf-8", "replace")
    return layout.encode_batch_message(message.flag, message.body, properties)


def decode_message(buffer: Buffer) -> Message:
    """The first message of a batch body; MessageDecodeError for damage."""
    for parts in layout.iterate_batch(buffer):
        return _from_batch(parts)
    raise MessageDecodeError("the batch is empty")


def encode_messages(messages: Iterable[Message]) -> bytes:
    """A batch body."""
    return b"".join(map(encode_message, messages))


def decode_messages(buffer: Buffer) -> list[Message]:
    """The messages of a batch body, without topic; MessageDecodeError for damage."""
    return [_from_batch(parts) for parts in layout.iterate_batch(buffer)]


def _from_batch(parts: layout.BatchMessage) -> Message:
    message = Message()
    message.flag = parts.flag
    message.body = bytes(parts.body)
    message.properties = string2message_properties(layout.decode_text(parts.properties))
    return message
