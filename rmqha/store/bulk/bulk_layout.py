"""Layout of the bulk kernel's results, and the check of a single record; shared by both implementations. Pure.

All numbers are in the machine's own byte order, except the consume queue units, which are ready for the file.

    record, 48 bytes: one of each good record, in the order of the log
        0   8  offset          in the commit log
        8   8  queue offset    as stored; 0 in prepared and rolled back records
        16  8  tags code       as in the consume queue unit
        24  8  store time      ms
        32  4  size            bytes
        36  4  queue id
        40  4  topic           number in the topics of the call
        44  4  system flag
    run, 32 bytes: units of one queue whose queue offsets follow one another, in the order of their first records
        0   8  queue offset    of the first unit
        8   8  store time      ms, of the last record
        16  4  topic           number in the topics of the call
        20  4  queue id
        24  4  first unit      number in the units of the call
        28  4  count           of units
    unit, 20 bytes: see rmqha.store.consume_queue_layout; grouped by run
    key, 24 bytes: one index entry to be, in the order in which the index takes them
        0   8  offset          of the record in the commit log
        8   8  store time      ms
        16  4  hash            of "topic#key": not negative
        20  4  record          number in the records of the call

A change of a row needs a new version of rmqha/native, so that an extension compiled before it is no longer used.

`record_at` checks one whole record, for callers that read single records and for the bulk kernel in Python.
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

DEFAULT_LIMIT = 1 << 16  # records of one scan: some 10 MiB of results
MAX_LIMIT = 1 << 24
# A scan ends as well when it has this many keys for each record that it may take.
KEYS_PER_RECORD = 8


class Stop(IntEnum):
    """Why a walk ended at its position. From BLANK on the single-record check says the same of the record there.

    The values are those of the C source.
    """

    END = 0  # the span is used up
    LIMIT = 1  # as many records or keys as were asked for
    ODD = 2  # a record that only the single-record path takes; see `bulk.walk` and `bulk.scan`
    BLANK = 3  # the blank rest of the file
    UNWRITTEN = 4  # magic code 0: nothing was written here yet
    BAD_MAGIC = 5
    TRUNCATED = 6  # the record, by the lengths in it, does not end within the span
    BAD_CRC = 7
    LENGTH_MISMATCH = 8  # total size and the lengths within differ


class Walk(NamedTuple):
    """`count` good records up to `position` of the buffer, and why no more.

    `size` is the msg_size of the single-record check at `position`: 0 for END, LIMIT, ODD and BLANK, -1 for no
    record, the stored total size for LENGTH_MISMATCH (-1 when that is not above 0).
    """

    count: int  # type: ignore[assignment]  # in the place of a tuple's method
    position: int
    stop: Stop
    size: int


class TopicShare(NamedTuple):
    """A topic of a scan, its good records and their bytes."""

    name: str
    count: int  # type: ignore[assignment]  # as above
    size: int


class Run(NamedTuple):
    """Units of one queue that follow one another; see the table of the module."""

    queue_offset: int
    last_store_timestamp: int
    topic: int
    queue_id: int
    first_unit: int
    count: int  # type: ignore[assignment]  # as above


class Span(NamedTuple):
    """The good records of a span: a Walk, and the rows of the module's table."""

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
    """The header of an index file, in its order; see rmqha.store.index.index_layout."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


GOOD = -1
RecordAt = tuple[int, int, tuple[int, ...], int, int]
"""GOOD or the Stop; the size, -1 where it can't be told, 0 of a blank; what was read of the head (SUMMARY or BLANK);
the positions of the topic's length and of the properties, where both were read."""

_TRUNCATED: RecordAt = Stop.TRUNCATED, -1, (), 0, 0
_unpack_v4 = SUMMARIES[0].unpack_from


def record_at(buffer: memoryview, position: int, check_crc: bool) -> RecordAt:
    """The record at `position`. Lengths are checked against each other and the buffer; nothing is copied."""
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
