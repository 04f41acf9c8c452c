"""The layout of the bulk kernel's results, and the check of a single record, for both implementations. Pure.

All numbers are in the machine's own byte order, except the consume queue units, which have the byte order of the file.

    record, 48 bytes: one of each good record, in the order of the log
        0   8  offset          in the commit log
        8   8  queue offset    as stored; 0 in prepared and rolled back records
        16  8  tags code       as in the consume queue unit
        24  8  store time      ms
        32  4  size            bytes
        36  4  queue id
        40  4  topic           number in the topics of the call
        44  4  system flag
    run, 32 bytes: units of one queue with consecutive queue offsets, in the order of their first records
        0   8  queue offset    of the first unit
        8   8  store time      ms, of the last record
        16  4  topic           number in the topics of the call
        20  4  queue id
        24  4  first unit      number in the units of the call
        28  4  count           of units
    unit, 20 bytes: see rmqha.store.consume_queue_layout; grouped by run
    key, 24 bytes: one future index entry, in the order of the index
        0   8  offset          of the record in the commit log
        8   8  store time      ms
        16  4  hash            of "topic#key": not negative
        20  4  record          number in the records of the call

If a row changes, the version of rmqha/native must change too, so that an extension compiled earlier is not used.

`record_at` checks one complete record, for callers that read single records and for the bulk kernel in Python.
"""
import struct
import zlib
from enum import IntEnum

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message_layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    LENGTHS_SIZE,
    MAX_INT,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    SUMMARIES,
    V6_FLAGS,
)

RECORD = struct.Struct("=qqqqiiii")
assert RECORD.size == 6 * 8
RUN = struct.Struct("=qqiiii")
assert RUN.size == 32
KEY = struct.Struct("=qqii")
assert KEY.size == 24

# The records of one scan; about 10 MiB of results.
DEFAULT_LIMIT = 1 << 16
MAX_LIMIT = 1 << 24
# A scan also ends when it has this many keys for each record of its limit.
KEYS_PER_RECORD = 8


class Stop(IntEnum):
    """The reason why a walk ended at its position. The values are those of the C source.

    From BLANK on, the single-record check returns the same for the record at that position.
    """

    END = 0  # the end of the span
    LIMIT = 1  # the maximum number of records or keys
    ODD = 2  # a record that only the single-record path can process; see `bulk.walk` and `bulk.scan`
    BLANK = 3  # the blank rest of the file
    UNWRITTEN = 4  # magic code 0: nothing was written here yet
    BAD_MAGIC = 5
    TRUNCATED = 6  # by its lengths, the record does not end within the span
    BAD_CRC = 7
    LENGTH_MISMATCH = 8  # the total size differs from the lengths in the record


class Walk(NamedTuple):
    """The result of a walk: `count` good records up to `position` of the buffer, and the reason for its end.

    `size` is the msg_size of the single-record check at `position`: 0 for END, LIMIT, ODD and BLANK, -1 without a
    record, and the stored total size for LENGTH_MISMATCH (-1 if that is not positive).
    """

    count: int  # type: ignore[assignment]  # in the place of a tuple's method
    position: int
    stop: Stop
    size: int


class TopicShare(NamedTuple):
    """A topic of a scan, with the number of its good records and their bytes."""

    name: str
    count: int  # type: ignore[assignment]  # as above
    size: int


class Run(NamedTuple):
    """A run of consecutive units of one queue; see the table in the module."""

    queue_offset: int
    last_store_timestamp: int
    topic: int
    queue_id: int
    first_unit: int
    count: int  # type: ignore[assignment]  # as above


class Span(NamedTuple):
    """The good records of a span: the fields of a Walk, and the rows of the module's table."""

    count: int  # type: ignore[assignment]  # as above
    position: int
    stop: Stop
    size: int
    topics: list[TopicShare]
    records: bytes
    runs: list[Run]
    units: bytes
    keys: bytes


class IndexCounters(NamedTuple):
    """The counters in the header of an index file, in its order; see rmqha.store.index.index_layout."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


GOOD = -1
RecordAt = tuple[int, int, tuple[int, ...], int, int]
"""GOOD or the Stop; the size (-1 if it is unknown, 0 for a blank); the fields of the head that were read (SUMMARY or
BLANK); the positions of the topic's length and of the properties, if both were read."""

_TRUNCATED: RecordAt = Stop.TRUNCATED, -1, (), 0, 0
_unpack_v4 = SUMMARIES[0].unpack_from


def record_at(buffer: memoryview, position: int, check_crc: bool) -> RecordAt:
    """Check the record at `position`. Lengths are checked against each other and the buffer; no byte is copied."""
    end = len(buffer)
    if position + HEAD_LENGTH <= end:
        fields = _unpack_v4(buffer, position)
        if fields[1] != MESSAGE_MAGIC_CODE:
            return _no_record(fields)
    elif position + BLANK.size <= end and (blank := BLANK.unpack_from(buffer, position))[1] != MESSAGE_MAGIC_CODE:
        return _no_record(blank)
    else:
        return _TRUNCATED
    body_at = position + HEAD_LENGTH
    if fields[6] & V6_FLAGS:
        head = SUMMARIES[fields[6] >> 4 & 3]
        body_at = position + head.size
        if body_at > end:
            return _TRUNCATED
        fields = head.unpack_from(buffer, position)
    body_length = fields[9]
    topic_at = body_at + body_length if body_length > 0 else body_at
    if topic_at + LENGTHS_SIZE > end:
        return _TRUNCATED
    if check_crc and body_length > 0 and zlib.crc32(buffer[body_at:topic_at]) & MAX_INT != fields[2]:
        return Stop.BAD_CRC, -1, fields, 0, 0
    topic_length = buffer[topic_at]
    properties_at = topic_at + LENGTHS_SIZE + topic_length
    if topic_length > MAX_TOPIC_LENGTH or properties_at > end:
        return _TRUNCATED
    properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
    record_end = properties_at + properties_length if properties_length < 0x8000 else properties_at
    if record_end > end:
        return _TRUNCATED
    total_size = fields[0]
    if total_size != record_end - position or body_length < 0 or properties_length >= 0x8000:
        return Stop.LENGTH_MISMATCH, total_size if total_size > 0 else -1, fields, topic_at, properties_at
    return GOOD, total_size, fields, topic_at, properties_at


def _no_record(fields: tuple[int, ...]) -> RecordAt:
    if fields[1] == BLANK_MAGIC_CODE:
        return Stop.BLANK, 0, fields, 0, 0
    return (Stop.BAD_MAGIC if fields[1] else Stop.UNWRITTEN), -1, fields, 0, 0
