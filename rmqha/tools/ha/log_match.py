"""Where two replicas of a commit log differ: blocks by their checksums, then bytes, then the record around them.

    checksums of 64 KiB --> bytes of a block that differs --> the record that holds the first byte that differs
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqha.common.message.message_layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    LONG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    PHYSICAL_OFFSET_POSITION,
)
from rmqha.tools.store.output import cell
from rmqha.tools.store.record_scan import LogRecord, scan_block

if TYPE_CHECKING:
    from rmqha.tools.ha.log_sides import LogSide

BLOCK = 64 << 10
_BLOCKS = 256  # of one question
_FIRST_LOOK, _MAX_LOOK = 16 << 10, 1 << 20
_MAGIC = (MESSAGE_MAGIC_CODE & 0xFFFF_FFFF).to_bytes(4, "big")
_HEAD_SEEN = PHYSICAL_OFFSET_POSITION + LONG.size
_MAX_RECORD = 64 << 20  # bytes; a size beyond that is damage


def differing_blocks(one: LogSide, other: LogSide, begin: int, end: int,
                     come_to: Callable[[int], None] = lambda offset: None) -> Iterator[tuple[int, int]]:
    """(begin, end) of each block of a range in which two logs differ; `come_to` is given the offset that is done."""
    offset = begin
    while offset < end:
        size = min(BLOCK, end - offset)
        count = min((end - offset) // size, _BLOCKS)
        pairs = zip(one.checksums(offset, size, count), other.checksums(offset, size, count), strict=True)
        for index, (mine, theirs) in enumerate(pairs):
            if mine != theirs:
                yield offset + index * size, offset + (index + 1) * size
        offset += count * size
        come_to(offset)


def first_difference(one: LogSide, other: LogSide, begin: int, end: int) -> int | None:
    """The first byte of a range of one block at most in which two logs differ; None when none does."""
    if begin >= end:
        return None
    mine, theirs = one.read(begin, end - begin), other.read(begin, end - begin)
    if mine == theirs:
        return None
    return begin + next(at for at, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])


@dataclass(frozen=True)
class Place:
    """What holds a byte of a log: a record, the blank at the end of a file, or neither, for which `reason` says why.

    `end` is the end of the record or of the file; where neither is, `start`.
    """

    start: int
    end: int
    is_blank: bool = False
    reason: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


def place_of(log: LogSide, offset: int) -> Place:
    """The record around a byte, by the chain of records from the last one at or before it that tells its own place."""
    first = max(offset - offset % log.file_size, log.begin)  # a file begins with a record
    start, file_end = _record_before(log, first, offset), offset - offset % log.file_size + log.file_size
    while True:
        if start + BLANK.size > log.end:
            return Place(start, start, reason="the log ends there")
        total, magic = BLANK.unpack(log.read(start, BLANK.size))
        if magic == BLANK_MAGIC_CODE:
            return Place(start, file_end, is_blank=True)
        if magic != MESSAGE_MAGIC_CODE or not HEAD_LENGTH <= total <= min(file_end - start, _MAX_RECORD):
            return Place(start, start, reason=f"size {total} and magic code {magic & 0xFFFF_FFFF:#010x} are none of a "
                                              "record")
        if start + total > offset:
            return Place(start, start + total)
        start += total


def _record_before(log: LogSide, first: int, offset: int) -> int:
    """Where the last record begins, at or before `offset`, that says that it lies there; else `first`."""
    low, size, data = offset + 1, _FIRST_LOOK, log.read(offset + 1, min(_HEAD_SEEN, max(log.end - offset - 1, 0)))
    while low > first:
        size = min(size, low - first)
        low -= size
        data = log.read(low, size) + data[:_HEAD_SEEN]
        at = data.rfind(_MAGIC, 0, size + MESSAGE_MAGIC_CODE_POSITION + len(_MAGIC) - 1)
        while at >= 0:
            start = at - MESSAGE_MAGIC_CODE_POSITION
            if 0 <= start < size and start + _HEAD_SEEN <= len(data) \
                    and LONG.unpack_from(data, start + PHYSICAL_OFFSET_POSITION)[0] == low + start:
                return low + start
            at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
        size = min(4 * size, _MAX_LOOK)
    return first


@dataclass(frozen=True)
class Copy:
    """One side's bytes of a record, and what is wrong with them; "" when they are a whole record of that place."""

    data: bytes
    record: LogRecord | None
    reason: str

    @property
    def is_good(self) -> bool:
        """Whether size, magic code, place and body CRC are right."""
        return not self.reason


def copy_of(data: bytes, offset: int) -> Copy:
    """The record that `data` should be, which lies at `offset`."""
    scan = scan_block(data, offset, check_crc=True, begin_before=1)
    record = scan.records[0] if scan.records else None
    if record is None:
        return Copy(data, None, scan.reason or "it is no whole record")
    if record.size != len(data):
        return Copy(data, record, f"it has {record.size} bytes, and {len(data)} are its place's")
    if record.physical_offset != offset:
        return Copy(data, record, f"it says that it lies at {record.physical_offset}")
    return Copy(data, record, "" if record.crc_ok else "its body has another CRC than it says")


@dataclass(frozen=True)
class Difference:
    """The first byte in which two logs differ, the record around it, and what both have there."""

    offset: int
    place: Place
    master: Copy
    slave: Copy

    @property
    def wrong(self) -> str:
        """Whose copy fails its own checks: master, slave, both or neither."""
        if self.master.is_good:
            return "neither" if self.slave.is_good else "slave"
        return "master" if self.slave.is_good else "both"

    @property
    def record(self) -> LogRecord | None:
        """The record, as the good side has it."""
        good, other = (self.slave, self.master) if self.wrong == "master" else (self.master, self.slave)
        return good.record or other.record

    def text(self) -> str:
        """In words."""
        record = self.record
        if self.place.is_blank:
            what = f"in the blank at {self.place.start} that ends the file"
        elif record is None:
            what = f"at {self.place.start} there is no record: {self.master.reason or self.slave.reason}"
        else:
            what = (f"byte {self.offset - self.place.start} of the record at {record.offset}, topic "
                    f"{cell(record.topic)}, queue {record.queue_id}, queue offset {record.queue_offset}, "
                    f"{record.size} bytes")
        reasons = {"slave": f"the slave's copy is wrong: {self.slave.reason}",
                   "master": f"the master's copy is wrong: {self.master.reason}",
                   "both": f"both copies are wrong; the master's: {self.master.reason}; the slave's: "
                           f"{self.slave.reason}",
                   "neither": "neither copy fails its CRC: properties or head differ"}
        whose = "" if self.place.is_blank else f"; {reasons[self.wrong]}"
        return f"the logs differ at offset {self.offset}, {what}{whose}"


def describe(master: LogSide, slave: LogSide, offset: int) -> Difference:
    """The record around a byte that differs: the master's, or the slave's where the master has none."""
    place = place_of(master, offset)
    if place.reason:
        other = place_of(slave, offset)
        place = place if other.reason else other
    size = BLANK.size if place.is_blank else place.size or BLANK.size
    copies = [copy_of(side.read(place.start, min(size, side.end - place.start)), place.start)
              for side in (master, slave)]
    return Difference(offset, place, *copies)


def in_unread_rest(master: LogSide, slave: LogSide, offset: int, place: Place) -> bool:
    """Whether a byte lies behind the blank of both, where nobody reads."""
    return place.is_blank and offset >= place.start + BLANK.size and place_of(slave, offset) == place
