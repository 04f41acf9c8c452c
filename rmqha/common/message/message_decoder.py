"""Messages from and to stored records, batch bodies, property texts and message ids.

Java's positions in a ByteBuffer are explicit here: `decode` takes the position, the next record starts `store_size`
bytes later.

Java: org.apache.rocketmq.common.message.MessageDecoder (4.9.8)
"""
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rmqha.common.compression import compressor_factory
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
PHY_POS_POSITION = layout.PHYSICAL_OFFSET_POSITION
MESSAGE_FLAG_POSTION = layout.MESSAGE_FLAG_POSITION
MESSAGE_PHYSIC_OFFSET_POSTION = layout.PHYSICAL_OFFSET_POSITION
COMPRESS_LEVEL = 5

_pack_long = layout.LONG.pack
_MSG_ID_LENGTHS = (layout.HOST_LENGTH + layout.LONG.size, layout.V6_HOST_LENGTH + layout.LONG.size)


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
           is_client: bool = False) -> MessageExt:
    """The message of the record at `position`; with `is_client` a MessageClientExt.

    The body is copied out of `buffer`; a compressed one is decompressed unless `decompress` is false (the flag stays).
    MessageDecodeError for a damaged record. The body's CRC is not checked, as in Java.
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
        message.body = _decompress(body, head.sys_flag, position) if decompress else body
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


def _decompress(body: bytes, sys_flag: int, position: int) -> bytes:
    if not sys_flag & message_sys_flag.COMPRESSED_FLAG:
        return body
    try:
        compressor = compressor_factory.get_compressor(message_sys_flag.get_compression_type(sys_flag))
        return compressor.decompress(body)
    except ValueError as error:
        raise MessageDecodeError(f"the body does not decompress: {error}", position) from error


def client_decode(buffer: Buffer, read_body: bool = True, position: int = 0) -> MessageClientExt:
    """`decode` for a consumer."""
    message = decode(buffer, read_body, True, position, is_client=True)
    return message  # type: ignore[return-value]  # what `is_client` asks for


def decodes(buffer: Buffer, read_body: bool = True) -> list[MessageExt]:
    """The messages of a pull answer, as `client_decode` makes them. MessageDecodeError for damage in one."""
    # Differs: Java drops the damaged record and all behind it, and the consumer goes on behind them.
    messages: list[MessageExt] = []
    position, end = 0, len(buffer)
    while position < end:
        message = client_decode(buffer, read_body, position)
        messages.append(message)
        position += message.store_size
    return messages


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
