"""Encoding and decoding of messages: stored records, batch bodies, property texts and message ids.

Positions are explicit, where Java uses those of a ByteBuffer: `decode` takes the position of a record, and the next
record begins `store_size` bytes later.

`create_uniq_id` creates the id that a producer assigns to a message (property UNIQ_KEY). It is the upper-case hex of
these fields, 32 characters with an IPv4 address and 56 with an IPv6 address:

    IP address (4 or 16 bytes), process id (2), a random number per process (4), ms since the start of the month (4),
    counter (2)

Java: org.apache.rocketmq.common.message.MessageDecoder (4.9.8)
Java: org.apache.rocketmq.common.message.MessageClientIDSetter (4.9.8)
"""
import ipaddress
import itertools
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache

from rmqha.common import compression, sys_flags
from rmqha.common.compression import MOST_IN_ALL, BodyBudget, CompressionError, MissingBody, TooLargeError
from rmqha.common.java import hash_map_order
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message import message_const
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message, MessageClientExt, MessageExt
from rmqha.common.message.message_layout import (
    Buffer,
    Host,
    MessageDecodeError,
)

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
# Characters of all names together, up to which their order is cached.
_KEPT_LENGTH = 1024
COMPRESS_LEVEL = 5

_pack_long = layout.LONG.pack
_MSG_ID_LENGTHS = (layout.HOST_LENGTH + layout.LONG.size, layout.V6_HOST_LENGTH + layout.LONG.size)


class BodyDecodeError(MessageDecodeError):
    """A record whose body does not decompress; the rest of it is valid."""


class BodyTooLargeError(BodyDecodeError):
    """A record whose body decompresses to more than the limit."""


class MessageId(NamedTuple):
    """The broker (address, port) and the commit log offset of a message.

    Java: org.apache.rocketmq.common.message.MessageId (4.9.8)
    """

    address: tuple[str, int]
    offset: int


def create_message_id(host: Host | bytes, offset: int) -> str:
    """Return the offset message id: upper-case hex of address, port (4 bytes) and offset; 32 characters, IPv6 56.

    `host`: (address, port), or the bytes of the record's host field.
    """
    data = host if isinstance(host, bytes) else layout.host_to_bytes(host)
    return (data + _pack_long(offset)).hex().upper()


def decode_message_id(msg_id: str) -> MessageId:
    """Return ((address, port), offset) of an offset message id; MessageDecodeError when it is not valid."""
    try:
        data = bytes.fromhex(msg_id)
    except ValueError:
        raise MessageDecodeError(f"message id {msg_id!r} is not hexadecimal") from None
    if len(data) not in _MSG_ID_LENGTHS or len(msg_id) != 2 * len(data):
        raise MessageDecodeError(f"a message id has 32 or 56 characters, not {len(msg_id)}")
    return MessageId(layout.bytes_to_host(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


def decode_properties(buffer: Buffer, position: int = 0) -> dict[str, str] | None:
    """Return only the properties of the record at `position`; None for a record without properties."""
    parts = layout.decode_parts(buffer, position)
    if not parts.properties_length:
        return None
    start = parts.properties_position
    return string2message_properties(layout.decode_text(buffer[start:start + parts.properties_length]))


def decode(buffer: Buffer, read_body: bool = True, decompress: bool = True, position: int = 0,
           is_client: bool = False, budget: BodyBudget | None = None) -> MessageExt:
    """Return the message of the record at `position`; a MessageClientExt with `is_client`.

    The body is copied out of `buffer`. A compressed body is decompressed unless `decompress` is false (the flag stays).
    `budget` limits the decompressed size; None: the limit of a single message. MessageDecodeError for a damaged record,
    BodyDecodeError for a record of which only the body is damaged, BodyTooLargeError beyond the budget. The body's CRC
    is not checked, as in Java.
    """
    # Differs: a damaged record is an error that describes the damage, and the magic code and TOTALSIZE are checked
    # against the parts; Java returns null for any damage, and does not check these.
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
        if decompress and head.sys_flag & sys_flags.COMPRESSED_FLAG:
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
    """Return the budget of a single message."""
    return BodyBudget(most_each=MOST_IN_ALL)


def _decompress(body: bytes, sys_flag: int, position: int, budget: BodyBudget) -> bytes:
    try:
        return budget.plain(body, sys_flag)
    except CompressionError as error:
        text = f"the body does not decompress: {error}"
        # The record itself may be valid.
        if isinstance(error.__cause__, ImportError):
            raise MessageDecodeError(text, position) from error
        raise (BodyTooLargeError if isinstance(error, TooLargeError) else BodyDecodeError)(text, position) from error


def client_decode(buffer: Buffer, read_body: bool = True, position: int = 0, budget: BodyBudget | None = None
                  ) -> MessageClientExt:
    """Decode a record for a consumer; see `decode`."""
    message = decode(buffer, read_body, True, position, is_client=True, budget=budget)
    return message  # type: ignore[return-value]  # `is_client` makes it one


def decodes(buffer: Buffer, read_body: bool = True, budget: BodyBudget | None = None, keep_bad: bool = False
            ) -> list[MessageExt]:
    """Return the messages of an answer, as `client_decode` makes them. MessageDecodeError for damage in one.

    All bodies share `budget`, by default that of a single message: BodyTooLargeError beyond it. With `keep_bad` a
    body that is damaged or too large is replaced by a MissingBody, and the other messages are returned unchanged.
    """
    # Differs: a damaged record among several is an error; Java drops it and all records after it, and the consumer
    # skips them.
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
    """Return the message of a record; with a MissingBody when only its body is damaged or too large."""
    try:
        return client_decode(buffer, read_body, position, budget)
    except BodyDecodeError as error:
        return without_body(buffer, position, error)


def without_body(buffer: Buffer, position: int, reason: BodyDecodeError) -> MessageClientExt:
    """Return the message of a record, with a MissingBody that says why."""
    message = client_decode(buffer, False, position)
    message.body = MissingBody(str(reason))
    return message


def decode_fitting(buffer: Buffer, budget: BodyBudget, keep_bad: bool = False
                   ) -> tuple[list[MessageExt], MessageClientExt | None]:
    """Return the messages of an answer that fit in `budget`, and the first message that does not; None when all fit.

    The message that does not fit has a MissingBody. So does, with `keep_bad`, a message whose body is damaged; without
    `keep_bad` it is a MessageDecodeError.
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
    """Return the record of a message, from its fields as they are (offsets, CRC, flags). The IPv6 bits must match.

    `need_compress`: compress the body, which is not compressed yet although its flag is set.
    """
    body = message.body
    if need_compress and message.sys_flag & sys_flags.COMPRESSED_FLAG:
        compressor = compression.get_compressor(sys_flags.get_compression_type(message.sys_flag))
        body = compressor.compress(body, COMPRESS_LEVEL)
    properties = message_properties2string(message.properties).encode("utf-8", "replace")
    # Differs: the size of an encoded message is always computed; Java pads or overflows when store_size is set and no
    # longer fits.
    return layout.encode_record(
        message.body_crc, message.queue_id, message.flag, message.queue_offset, message.commit_log_offset,
        message.sys_flag, message.born_timestamp, message.born_host_bytes, message.store_timestamp,
        message.store_host_bytes, message.reconsume_times, message.prepared_transaction_offset, body,
        layout.encode_topic(message.topic), properties)


def property_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return these names in the order in which a Java HashMap iterates over them. Cached for names of usual lengths."""
    return _kept_order(names) if sum(map(len, names)) <= _KEPT_LENGTH else tuple(hash_map_order(names))


@lru_cache(maxsize=1024)
def _kept_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(hash_map_order(names))


def message_properties2string(properties: dict[str, str] | None) -> str:
    """Return `name 0x01 value 0x02 name 0x01 value ...` in the order of a Java HashMap; None values are left out."""
    if not properties:
        return ""
    # Differs: the order of encoded properties depends only on their names; Java's also depends on how often the table
    # grew and, in buckets with collisions, on earlier removals.
    return PROPERTY_SEPARATOR.join([f"{name}\x01{value}" for name in property_order(tuple(properties))
                                    if (value := properties[name]) is not None])


def string2message_properties(text: str | None) -> dict[str, str]:
    """Parse a property text. Entries without name, separator or value are ignored; the last of equal names wins."""
    properties: dict[str, str] = {}
    if text:
        for entry in text.split(PROPERTY_SEPARATOR):
            name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
            if name and value:
                properties[name] = value
    return properties


def encode_message(message: Message) -> bytes:
    """Return one message of a batch body: flag, body and properties only. ValueError for too long properties."""
    properties = message_properties2string(message.properties).encode("utf-8", "replace")
    return layout.encode_batch_message(message.flag, message.body, properties)


def decode_message(buffer: Buffer) -> Message:
    """Return the first message of a batch body; MessageDecodeError for damage."""
    for parts in layout.iterate_batch(buffer):
        return _from_batch(parts)
    raise MessageDecodeError("the batch is empty")


def encode_messages(messages: Iterable[Message]) -> bytes:
    """Return the batch body of these messages."""
    return b"".join(map(encode_message, messages))


def decode_messages(buffer: Buffer) -> list[Message]:
    """Return the messages of a batch body, without topic; MessageDecodeError for damage."""
    return [_from_batch(parts) for parts in layout.iterate_batch(buffer)]


def _from_batch(parts: layout.BatchMessage) -> Message:
    message = Message()
    message.flag = parts.flag
    message.body = bytes(parts.body)
    message.properties = string2message_properties(layout.decode_text(parts.properties))
    return message


# One counter per process, as in Java, because ids must differ between all producers of the process. next() is atomic.
_COUNTER = itertools.count()


def _local_ip() -> bytes:
    """Return the first public address of this host, else its first private IPv4 one, else four bytes of the time."""
    private = None
    # Imported late: it is slow to load, and programs that only read messages create no ids.
    import psutil

    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(entry.address)
            if address.is_loopback or address.is_link_local or address.is_unspecified:
                continue
            if not address.is_private:
                return address.packed
            if address.version == 4:
                private = private or address.packed
    return private or create_fake_ip()


def create_fake_ip() -> bytes:
    """Return four bytes of the time, for a host without an address."""
    return struct.pack(">q", time.time_ns() // 1_000_000)[4:]


@lru_cache(maxsize=1)
def _fixed_part(process_id: int) -> str:
    return (_local_ip() + struct.pack(">H", process_id & 0xFFFF) + os.urandom(4)).hex().upper()


@lru_cache(maxsize=2)
def _month_start_ms(year: int, month: int) -> int:
    """Return local midnight of the first day of the month, in ms since the epoch."""
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


def create_uniq_id() -> str:
    """Create a unique id."""
    now_ms = time.time_ns() // 1_000_000
    local = time.localtime(now_ms // 1000)
    elapsed = max(0, now_ms - _month_start_ms(local.tm_year, local.tm_mon))
    return f"{_fixed_part(os.getpid())}{elapsed & 0xFFFF_FFFF:08X}{next(_COUNTER) & 0xFFFF:04X}"


def set_uniq_id(message: Message) -> None:
    """Set a unique id on the message unless it has one."""
    if message.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) is None:
        message.put_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, create_uniq_id())


def get_uniq_id(message: Message) -> str | None:
    """Return the message's unique id, or None."""
    return message.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)


def _parts(msg_id: str) -> tuple[bytes, int, int]:
    data = bytes.fromhex(msg_id)
    if len(data) not in (4 + 12, 16 + 12):
        raise ValueError(f"a unique id has 32 or 56 characters, not {len(msg_id)}")
    ip_length = len(data) - 12
    process_id, elapsed = struct.unpack_from(">H4xI", data, ip_length)
    return data[:ip_length], process_id, elapsed


def get_nearly_time_from_id(msg_id: str) -> int:
    """Return the time at which the id was created, in ms since the epoch, if it is less than a month ago.

    ValueError when `msg_id` is not a unique id.
    """
    elapsed = _parts(msg_id)[2]
    now_ms = time.time_ns() // 1_000_000
    local = time.localtime(now_ms // 1000)
    start = _month_start_ms(local.tm_year, local.tm_mon)
    # Differs: a message id of the current millisecond counts as new; the original takes it for a month old.
    if start + elapsed > now_ms:
        start = _month_start_ms(local.tm_year, local.tm_mon - 1)
    return start + elapsed


RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
# A broker adds the batch's own properties, including the name of its cluster, to those of each message. If the sum
# exceeds the limit, the whole batch is refused (a broker of 4.9 stores an unreadable record). This leaves space for it.
MAX_PROPERTIES_IN_BATCH = layout.MAX_PROPERTIES_LENGTH - 1024
_UNIQUE_KEY_SIZE = len(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) + 32 + 2


def properties_size(message: Message) -> int:
    """Return the bytes of a message's properties as sent, including the unique key that is added if it is missing."""
    size = len(message_properties2string(message.properties).encode("utf-8", "replace"))
    has_key = message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX in message.properties
    return size if has_key else size + _UNIQUE_KEY_SIZE


def size_in_batch(message: Message) -> int:
    """Return the bytes that a message takes in a batch body, whose size brokers limit."""
    return layout.BATCH_HEAD.size + len(message.body) + layout.SHORT.size + properties_size(message)


def may_join_batch(message: Message) -> bool:
    """Return whether a message may be sent in a batch. If not, it can still be sent on its own."""
    return (message.delay_time_level <= 0 and not message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
            and properties_size(message) <= MAX_PROPERTIES_IN_BATCH)


class MessageBatch(Message):
    """Messages of one topic that are sent as the body of one SEND_BATCH_MESSAGE.

    Java: org.apache.rocketmq.common.message.MessageBatch (4.9.8)
    """

    __slots__ = ("messages", "is_checked")

    def __init__(self, messages: list[Message]) -> None:
        super().__init__()
        self.messages = messages
        # The producer has checked each message.
        self.is_checked = False

    def encode(self) -> bytes:
        """Return the request's body."""
        return encode_messages(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @staticmethod
    def generate_from_list(messages: Iterable[Message]) -> "MessageBatch":
        """Return a batch. ValueError for an empty list, and for messages that cannot be in one batch."""
        batch = MessageBatch(list(messages))
        MessageBatch.check(batch.messages)
        return batch.take_over()

    def take_over(self) -> "MessageBatch":
        """Take the topic and `wait_store_msg_ok` from the messages, which must fit together. Returns self."""
        self.topic = self.messages[0].topic
        self.wait_store_msg_ok = self.messages[0].wait_store_msg_ok
        return self

    @staticmethod
    def check(messages: list[Message]) -> None:
        """Raise ValueError for an empty list, or naming the first message that cannot be in the batch."""
        if not messages:
            raise ValueError("a batch needs a message")
        for number, message in enumerate(messages):
            try:
                _check(messages[0], message)
            except ValueError as error:
                raise ValueError(f"message {number}: {error}") from error


def _check(first: Message, message: Message) -> None:
    if message.delay_time_level > 0:
        raise ValueError("TimeDelayLevel is not supported for batching")
    if message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        raise ValueError("Retry Group is not supported for batching")
    if message.topic != first.topic:
        raise ValueError("The topic of the messages in one batch should be the same")
    if message.wait_store_msg_ok != first.wait_store_msg_ok:
        raise ValueError("The waitStoreMsgOK of the messages in one batch should the same")
