"""The records in a block of the commit log: one pure function.

Everything that walks a log record by record gets them from `scan_block`, a block of some MiB at a time. Checking and
rebuilding take most blocks at once, see span_taker.
"""
import zlib
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    HEADS,
    LENGTHS_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    SHORT,
    V6_FLAGS,
    decode_text,
)


class LogRecord(NamedTuple):
    """One record: where it lies, and what dispatching and choosing need. Times are ms."""

    offset: int
    size: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    topic: str
    properties_data: bytes
    body_length: int
    crc_ok: bool

    def properties(self) -> dict[str, str]:
        """Its properties."""
        return string2message_properties(decode_text(self.properties_data))


class BlockEnd(Enum):
    """Why a block's records end."""

    MORE = "more"  # the block ends within a record
    BLANK = "blank"  # the file's blank rest begins
    NOTHING = "nothing"  # zeros: nothing was written here yet
    BAD = "bad"  # something that is no record


class BlockScan(NamedTuple):
    """The records of a block, the bytes they take, and what comes behind them."""

    records: list[LogRecord]
    consumed: int
    end: BlockEnd
    reason: str = ""  # of BAD
    size: int = 0  # of MORE: how long the cut record is, 0 when even that is unknown; of BLANK: what it says it has


@lru_cache(maxsize=4096)
def _topic(data: bytes) -> str:
    return decode_text(data)


def scan_block(data: bytes, base: int, check_crc: bool = False, begin_before: int | None = None) -> BlockScan:
    """The records of `data`, whose first byte is at offset `base` of the log; those that begin before byte
    `begin_before`, behind which nothing counts as written.

    Every length is checked against the others and against the block. A body whose CRC is wrong makes a record with
    `crc_ok` false (always true without `check_crc`), since the chain of records goes on behind it.
    """
    records: list[LogRecord] = []
    append, view = records.append, memoryview(data)
    position, end = 0, len(data)
    if begin_before is None:
        begin_before = end
    while True:
        room = end - position
        if room < BLANK.size:
            return BlockScan(records, position, BlockEnd.MORE)
        if position >= begin_before:
            return BlockScan(records, position, BlockEnd.NOTHING)
        total, magic = BLANK.unpack_from(data, position)
        if magic != MESSAGE_MAGIC_CODE:
            return _no_record(records, position, total, magic)
        if room < HEAD_LENGTH:
            return BlockScan(records, position, BlockEnd.MORE)
        head = HEADS[0]
        fields = head.unpack_from(data, position)
        if fields[7] & V6_FLAGS:
            head = HEADS[fields[7] >> 4 & 3]
            if room < head.size:
                return BlockScan(records, position, BlockEnd.MORE)
            fields = head.unpack_from(data, position)
        body_length = fields[14]
        rest = total - head.size - body_length - LENGTHS_SIZE  # of topic and properties
        if body_length < 0 or not 0 <= rest <= MAX_TOPIC_LENGTH + MAX_PROPERTIES_LENGTH:
            return BlockScan(records, position, BlockEnd.BAD,
                             f"total size {total} does not fit body length {body_length}")
        if total > room:
            return BlockScan(records, position, BlockEnd.MORE, size=total)
        body_at = position + head.size
        topic_at = body_at + body_length + 1
        topic_length = data[topic_at - 1]
        properties_at = topic_at + topic_length + 2
        if topic_length > MAX_TOPIC_LENGTH or topic_length > rest \
                or SHORT.unpack_from(data, properties_at - 2)[0] != rest - topic_length:
            return BlockScan(records, position, BlockEnd.BAD,
                             f"topic length {topic_length} and properties length do not fit total size {total}")
        crc_ok = not check_crc or body_length == 0 \
            or zlib.crc32(view[body_at:body_at + body_length]) & 0x7FFF_FFFF == fields[2]
        append(LogRecord(base + position, total, fields[3], fields[5], fields[6], fields[7], fields[8], fields[10],
                         _topic(data[topic_at:properties_at - 2]), data[properties_at:position + total], body_length,
                         crc_ok))
        position += total


def _no_record(records: list[LogRecord], position: int, total: int, magic: int) -> BlockScan:
    if magic == BLANK_MAGIC_CODE:
        return BlockScan(records, position, BlockEnd.BLANK, size=total)
    if magic == 0 and total == 0:
        return BlockScan(records, position, BlockEnd.NOTHING)
    return BlockScan(records, position, BlockEnd.BAD, f"magic code 0x{magic & 0xFFFF_FFFF:08x} is none of a record")
