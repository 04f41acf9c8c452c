"""The layout of a stored record, the same in the commit log, in pull answers and in the replication stream.

All numbers are big-endian and signed. v4/v6 is the length of an IPv4/IPv6 host field.

    at   bytes  field
    0    4      TOTALSIZE            of the whole record, this field included
    4    4      MAGICCODE            MESSAGE_MAGIC_CODE, or BLANK_MAGIC_CODE for the end of a file
    8    4      BODYCRC              CRC32 of the stored body AND 0x7FFFFFFF; 0 for an empty body
    12   4      QUEUEID
    16   4      FLAG                 the user's
    20   8      QUEUEOFFSET          index in the consume queue; 0 in prepared and rollback records
    28   8      PHYSICALOFFSET       the record's own place in the commit log
    36   4      SYSFLAG              sys_flags
    40   8      BORNTIMESTAMP        ms since the epoch, client's clock
    48   8|20   BORNHOST             address (4 or 16 bytes), port (4 bytes)
    56+  8      STORETIMESTAMP       ms since the epoch, broker's clock
    64+  8|20   STOREHOSTADDRESS
    72+  4      RECONSUMETIMES
    76+  8      PREPARED TRANSACTION OFFSET
    84+  4      body length, then the BODY
         1      topic length (at most 127), then the TOPIC
         2      properties length (at most 32767), then the PROPERTIES: name 0x01 value 0x02 name 0x01 value ...

"+": 12 bytes more for each IPv6 host before it.

A record never crosses the end of a file of the commit log, because offsets map to files by division. When the next
record does not fit, the rest of the file becomes a blank: 8 bytes, with TOTALSIZE = the length of the rest and
MAGICCODE = BLANK_MAGIC_CODE. The bytes after these 8 are never read. A reader that meets the blank continues with the
next file. A record is therefore placed in a file only if at least 8 bytes remain after it; otherwise there would be
no space to say where the file's records end.

A message of a batch request is shorter: TOTALSIZE 4, MAGICCODE 4 (0), BODYCRC 4 (0), FLAG 4, body length 4, BODY,
properties length 2, PROPERTIES. Readers ignore its first three fields.

The functions are pure, work on bytes, and are shared by the store, recovery, the client and the tools. `walk` and
`fits` read only the first eight bytes of a record, TOTALSIZE and MAGICCODE: enough to step from record to record and
to detect bytes that are not a log. `bulk.walk` and `check_message_and_return_size` check the whole record.
"""
import ipaddress
import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.sys_flags import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

Buffer = bytes | bytearray | memoryview
Host = tuple[str, int]

MESSAGE_MAGIC_CODE = -626843481
BLANK_MAGIC_CODE = -875286124
assert MESSAGE_MAGIC_CODE & 0xFFFF_FFFF == 0xDAA320A7
assert BLANK_MAGIC_CODE & 0xFFFF_FFFF == 0xCBD43194

MESSAGE_MAGIC_CODE_POSITION = 4
BODY_CRC_POSITION = 8
QUEUE_ID_POSITION = 12
MESSAGE_FLAG_POSITION = 16
QUEUE_OFFSET_POSITION = 20
PHYSICAL_OFFSET_POSITION = 28
SYSFLAG_POSITION = 36
BORN_TIMESTAMP_POSITION = 40
BORN_HOST_POSITION = 48
# The positions after a host field are those for IPv4 hosts; each IPv6 host before a field adds MORE_IN_V6.
STORE_TIMESTAMP_POSITION = 56
STORE_HOST_POSITION = 64
RECONSUME_TIMES_POSITION = 72
PREPARED_TRANSACTION_OFFSET_POSITION = 76
BODY_LENGTH_POSITION = 84
HOST_LENGTH = 8
V6_HOST_LENGTH = 20
MORE_IN_V6 = V6_HOST_LENGTH - HOST_LENGTH

END_FILE_MIN_BLANK_LENGTH = 8
# Records of two IPv4 hosts without body, topic and properties; 12 more for each IPv6 host.
MIN_RECORD_LENGTH = 91
MAX_TOPIC_LENGTH = 127
MAX_PROPERTIES_LENGTH = 32767
MAX_INT = 0x7FFF_FFFF

V6_FLAGS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG

# TOTALSIZE to body length, by the two IPv6 bits of SYSFLAG (SYSFLAG >> 4 & 3).
HEADS = (
    struct.Struct(">iiiiiqqiq8sq8siqi"),
    struct.Struct(">iiiiiqqiq20sq8siqi"),
    struct.Struct(">iiiiiqqiq8sq20siqi"),
    struct.Struct(">iiiiiqqiq20sq20siqi"),
)
HEAD_LENGTH = 88
MAX_HEAD_LENGTH = 112
assert [head.size for head in HEADS] == [HEAD_LENGTH, 100, 100, MAX_HEAD_LENGTH]
# The fields of the same bytes that dispatch and checks need: total size, magic, crc, queue id, queue offset, physical
# offset, system flag, store time, prepared offset, body length.
SUMMARIES = tuple(struct.Struct(f">iiii4xqqi8x{born}xq{store}x4xqi")
                  for store in (HOST_LENGTH, V6_HOST_LENGTH) for born in (HOST_LENGTH, V6_HOST_LENGTH))
assert [summary.size for summary in SUMMARIES] == [head.size for head in HEADS]
# The fewest fields, for IPv4 hosts only: total size, magic, crc, queue id, queue offset, physical offset, system flag,
# body length.
LENGTHS = struct.Struct(">iiii4xqqi44xi")
assert LENGTHS.size == HEAD_LENGTH
# Bytes of topic length and properties length.
LENGTHS_SIZE = 3
BLANK = struct.Struct(">ii")
assert BLANK.size == END_FILE_MIN_BLANK_LENGTH
# QUEUEOFFSET and PHYSICALOFFSET, written into an encoded record once they are known.
OFFSETS = struct.Struct(">qq")
SHORT = struct.Struct(">h")
INT = struct.Struct(">i")
LONG = struct.Struct(">q")
# TOTALSIZE, MAGICCODE, BODYCRC, FLAG, body length of a message in a batch request.
BATCH_HEAD = struct.Struct(">iiiii")
assert BATCH_HEAD.size == 20

_PACK_SHORT = SHORT.pack


class MessageDecodeError(ValueError):
    """Bytes that are not a complete record. `position` is where the record begins in the given buffer."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"{reason} (record at byte {position})")
        self.reason = reason
        self.position = position


class RecordHead(NamedTuple):
    """The fields of a record before the body. The hosts are bytes; see `bytes_to_host`."""

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int


class RecordParts(NamedTuple):
    """A complete record: its head, and the positions of body, topic and properties in the buffer."""

    head: RecordHead
    body_position: int
    topic_position: int
    topic_length: int
    properties_position: int
    properties_length: int


class BatchMessage(NamedTuple):
    """One message of a batch request; body and properties are slices of the request."""

    flag: int
    body: Buffer
    properties: Buffer


def body_crc32(body: Buffer) -> int:
    """Return the BODYCRC of `body`."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def store_timestamp_position(sys_flag: int) -> int:
    """Return the position of STORETIMESTAMP in the record: 56 or 68."""
    return STORE_TIMESTAMP_POSITION + (MORE_IN_V6 if sys_flag & BORNHOST_V6_FLAG else 0)


def body_length_position(sys_flag: int) -> int:
    """Return the position of the body length in the record: 84, 96 or 108."""
    return HEADS[sys_flag >> 4 & 3].size - 4


def cal_msg_length(sys_flag: int, body_length: int, topic_length: int, properties_length: int) -> int:
    """Return the TOTALSIZE of a record with these lengths in bytes. Negative body and properties lengths count as 0."""
    return (HEADS[sys_flag >> 4 & 3].size + (body_length if body_length > 0 else 0) + 1 + topic_length
            + 2 + (properties_length if properties_length > 0 else 0))


@lru_cache(maxsize=4096)
def host_to_bytes(host: Host) -> bytes:
    """Return (address, port) as 8 or 20 bytes. An IPv4 address mapped into IPv6 becomes IPv4. ValueError for a name."""
    address = ipaddress.ip_address(host[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed + struct.pack(">i", host[1])


@lru_cache(maxsize=4096)
def bytes_to_host(data: bytes) -> Host:
    """Return 8 or 20 bytes as (address, port); ValueError for another length. The port is not checked."""
    if len(data) not in (HOST_LENGTH, V6_HOST_LENGTH):
        raise ValueError(f"a host has 8 or 20 bytes, not {len(data)}")
    return str(ipaddress.ip_address(data[:-4])), int.from_bytes(data[-4:], "big", signed=True)


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """Return the IPv6 bits of SYSFLAG for two hosts in bytes."""
    return ((BORNHOST_V6_FLAG if len(born_host) == V6_HOST_LENGTH else 0)
            | (STOREHOSTADDRESS_V6_FLAG if len(store_host) == V6_HOST_LENGTH else 0))


@lru_cache(maxsize=4096)
def encode_topic(topic: str) -> bytes:
    """Return the TOPIC field: a length byte and the topic in UTF-8. ValueError for more than 127 bytes."""
    data = topic.encode("utf-8", "replace")
    if len(data) > MAX_TOPIC_LENGTH:
        raise ValueError(f"the topic has {len(data)} bytes; at most {MAX_TOPIC_LENGTH} are allowed")
    return bytes((len(data),)) + data


def encode_record(body_crc: int, queue_id: int, flag: int, queue_offset: int, physical_offset: int, sys_flag: int,
                  born_timestamp: int, born_host: bytes, store_timestamp: int, store_host: bytes, reconsume_times: int,
                  prepared_transaction_offset: int, body: Buffer, topic: bytes, properties: bytes) -> bytes:
    """Return a record. `host_to_bytes` makes the hosts, `encode_topic` the topic; the properties are UTF-8.

    The IPv6 bits of `sys_flag` must match the hosts. ValueError when they do not, when a number does not fit its field,
    or when the properties are longer than 32767 bytes.
    """
    try:
        head = HEADS[sys_flag >> 4 & 3]
        body_length = len(body)
        properties_field = _PACK_SHORT(len(properties))
        packed = head.pack(
            head.size + body_length + len(topic) + 2 + len(properties), MESSAGE_MAGIC_CODE, body_crc, queue_id, flag,
            queue_offset, physical_offset, sys_flag, born_timestamp, born_host, store_timestamp, store_host,
            reconsume_times, prepared_transaction_offset, body_length)
    except struct.error as error:
        raise ValueError(f"a field does not fit the record: {error}") from None
    if host_flags(born_host, store_host) != sys_flag & V6_FLAGS:
        raise ValueError("the IPv6 bits of the system flag do not match the hosts")
    return b"".join((packed, body, topic, properties_field, properties))


def encode_blank(length: int) -> bytes:
    """Return the blank for the end of a file that has `length` bytes left (at least 8)."""
    return BLANK.pack(length, BLANK_MAGIC_CODE)


def decode_header(buffer: Buffer, position: int = 0) -> RecordHead:
    """Return the fields up to the body length, unchecked. MessageDecodeError when the buffer ends before."""
    try:
        fields = HEADS[0].unpack_from(buffer, position)
        if fields[7] & V6_FLAGS:
            fields = HEADS[fields[7] >> 4 & 3].unpack_from(buffer, position)
    except struct.error:
        raise MessageDecodeError("the buffer ends within the head of a record", position) from None
    return RecordHead._make(fields)


def decode_parts(buffer: Buffer, position: int = 0) -> RecordParts:
    """Return the parts of the record at `position`, without copying; all lengths are checked.

    Every length is checked against TOTALSIZE and the buffer. The CRC is left to the caller. MessageDecodeError says
    which check failed.
    """
    head = decode_header(buffer, position)
    total_size, body_length = head.total_size, head.body_length
    if head.magic_code != MESSAGE_MAGIC_CODE:
        raise MessageDecodeError(f"found a illegal magic code 0x{head.magic_code & MAX_INT * 2 + 1:x}", position)
    end = position + total_size
    if total_size < MIN_RECORD_LENGTH or end > len(buffer):
        raise MessageDecodeError(f"total size {total_size}, {len(buffer) - position} bytes are available", position)
    body_position = position + HEADS[head.sys_flag >> 4 & 3].size
    topic_at = body_position + body_length
    if body_length < 0 or topic_at + LENGTHS_SIZE > end:
        raise MessageDecodeError(f"body length {body_length} in a record of {total_size}", position)
    topic_length = buffer[topic_at]
    properties_at = topic_at + 1 + topic_length
    if topic_length > MAX_TOPIC_LENGTH or properties_at + 2 > end:
        raise MessageDecodeError(f"topic length {topic_length} in a record of {total_size}", position)
    properties_length = SHORT.unpack_from(buffer, properties_at)[0]
    if properties_length < 0 or properties_at + 2 + properties_length != end:
        raise MessageDecodeError(f"properties length {properties_length} in a record of {total_size}", position)
    return RecordParts(head, body_position, topic_at + 1, topic_length, properties_at + 2, properties_length)


def decode_text(data: Buffer) -> str:
    """Decode UTF-8 as Java does: malformed bytes become U+FFFD."""
    return str(data, "utf-8", "replace")


def iterate_batch(data: Buffer) -> Iterator[BatchMessage]:
    """Yield the messages of a batch request's body. MessageDecodeError when a length exceeds the body."""
    position, end = 0, len(data)
    while position < end:
        if position + BATCH_HEAD.size > end:
            raise MessageDecodeError("the batch ends within the head of a message", position)
        _, _, _, flag, body_length = BATCH_HEAD.unpack_from(data, position)
        body_at = position + BATCH_HEAD.size
        properties_at = body_at + body_length + 2
        if body_length < 0 or properties_at > end:
            raise MessageDecodeError(f"body length {body_length} in a batch of {end}", position)
        properties_length = SHORT.unpack_from(data, properties_at - 2)[0]
        next_position = properties_at + properties_length
        if properties_length < 0 or next_position > end:
            raise MessageDecodeError(f"properties length {properties_length} in a batch of {end}", position)
        yield BatchMessage(flag, data[body_at:body_at + body_length], data[properties_at:next_position])
        position = next_position


def encode_batch_message(flag: int, body: Buffer, properties: bytes) -> bytes:
    """Return one message of a batch request. ValueError when the properties are longer than 32767 bytes."""
    if len(properties) > MAX_PROPERTIES_LENGTH:
        raise ValueError(f"Properties size of message exceeded, properties size: {len(properties)}, "
                         f"maxSize: {MAX_PROPERTIES_LENGTH}.")
    head = BATCH_HEAD.pack(BATCH_HEAD.size + len(body) + 2 + len(properties), 0, 0, flag, len(body))
    return b"".join((head, body, _PACK_SHORT(len(properties)), properties))


# The first two fields of a record; all of a blank.
HEAD = BLANK


def walk(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (position, size, magic code) of the record or blank at `position`, and of all that follow before `end`.

    Nothing is checked. The last one has a size that is not positive, or is followed by less than a head in the buffer.
    """
    end = min(end, len(buffer) - HEAD.size + 1)
    while position < end:
        size, magic_code = HEAD.unpack_from(buffer, position)
        yield position, size, magic_code
        if size <= 0:
            return
        position += size


def fits(size: int, magic_code: int, room: int) -> bool:
    """Return whether a record with this size and magic code, or the blank of a file, fits where `room` bytes are left.
    """
    return (magic_code == MESSAGE_MAGIC_CODE and HEAD.size < size <= room
            or magic_code == BLANK_MAGIC_CODE and size == room)


def is_blank(buffer: Buffer) -> bool:
    """Return whether the buffer begins with a blank of any size."""
    return len(buffer) >= HEAD.size and HEAD.unpack_from(buffer)[1] == BLANK_MAGIC_CODE
