"""Stepping over the records of a log to find where a batch of so many messages or bytes ends, in bounded memory.

A step is what the reader of a range gives as a row: a record, or a hole as a whole. CRCs are left to that reader:
a record with a wrong one is a record here, as there. Only a block of 4 MiB is kept, whatever lengths the log tells.
"""
from typing import NamedTuple

from rmqha.common.filesystem import Segment, pread
from rmqha.common.message import message_layout
from rmqha.common.message.message_layout import (
    HEADS,
    LENGTHS_SIZE,
    MAX_HEAD_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MIN_RECORD_LENGTH,
    SHORT,
    MessageDecodeError,
    decode_header,
)
from rmqha.pipeline.log.log_files import LogFiles
from rmqha.pipeline.log.log_scan import BLOCK, ByteRange, VanishedError, hole_at, open_file, whole_file
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Stop

UNLIMITED = 1 << 62
_SMALLEST_BLOCK, _USUAL_RECORD = 64 << 10, 4 << 10


class Walked(NamedTuple):
    """Where a walk ended, and how many rows and bytes it went over; blanks are neither."""

    offset: int
    rows: int
    size: int


def walk_on(log: LogFiles, begin: int, end: int, rows: int = UNLIMITED, size: int = UNLIMITED,
            at_least_one: bool = False) -> Walked:
    """Over at most so many rows and bytes from `begin` on, where a record or a hole begins, up to `end`. One that has
    more bytes than `size` is only taken with `at_least_one`, and then alone.

    A file that vanishes meanwhile counts as nothing: who reads it will tell.
    """
    offset, taken, passed = begin, 0, 0
    for segment in log.segments:
        if segment.end <= offset or segment.start >= end:
            continue
        offset = max(offset, segment.start)
        here = _Walk(rows - taken, size - passed, at_least_one and not taken)
        try:
            offset = here.over(segment, offset, min(segment.end, end))
        except VanishedError:
            offset = min(segment.end, end)
        taken, passed = taken + here.rows, passed + here.size
        if here.is_full:
            return Walked(offset, taken, passed)
    return Walked(max(begin, end), taken, passed)


class _Walk:
    """Over one file: `rows` and `size` are what was taken, `is_full` tells that the next one would be too many."""

    def __init__(self, most_rows: int, most_bytes: int, at_least_one: bool) -> None:
        self._most_rows, self._most_bytes, self._at_least_one = most_rows, most_bytes, at_least_one
        self.rows = self.size = 0
        self.is_full = False

    def over(self, segment: Segment, offset: int, limit: int) -> int:
        """The offset at which it ends."""
        span, most = whole_file(segment)._replace(limit=limit), _SMALLEST_BLOCK
        fd = open_file(segment.path, offset)
        with open(fd, "rb", closefd=True):
            while offset < limit:
                if self.rows >= self._most_rows:
                    self.is_full = True
                    return offset
                want = min(most, limit - offset, max(self._most_bytes - self.size, 0) + _SMALLEST_BLOCK,
                           (self._most_rows - self.rows) * _USUAL_RECORD + _SMALLEST_BLOCK)
                data = pread(fd, want, offset - segment.start)
                most = min(4 * most, BLOCK)
                found = bulk.walk(data, 0, len(data), False, offset)
                if found.count:
                    offset += self._take(data, found.count, found.position)
                elif found.stop is Stop.BLANK:
                    return limit
                else:
                    offset += self._take_one(record_size(fd, span, offset) or hole_at(fd, span, offset).size)
                if self.is_full:
                    return offset
        return offset

    def _take(self, data: bytes, count: int, size: int) -> int:
        """As many as may be of the records in data[:size]; their bytes."""
        if self.rows + count <= self._most_rows and self.size + size <= self._most_bytes:
            self.rows, self.size = self.rows + count, self.size + size
            return size
        taken = 0
        for position, one, _ in message_layout.walk(data, 0, size):
            if self.is_full or position >= size:
                break
            taken += self._take_one(one)
        return taken

    def _take_one(self, size: int) -> int:
        """A record or a hole, if it may be taken: its bytes, or 0."""
        fits = self.size + size <= self._most_bytes or self._at_least_one and not self.rows
        if self.rows >= self._most_rows or not fits:
            self.is_full = True
            return 0
        self.rows, self.size = self.rows + 1, self.size + size
        return size


def record_size(fd: int, span: ByteRange, offset: int) -> int:
    """Bytes of the record at `offset`, whose lengths and place are right and which ends before `span.limit`; 0 when
    there is none. Its body is not read.
    """
    position = offset - span.file_start
    try:
        head = decode_header(pread(fd, MAX_HEAD_LENGTH, position))
    except MessageDecodeError:
        return 0
    if head.magic_code != MESSAGE_MAGIC_CODE or head.physical_offset != offset or head.body_length < 0 \
            or not MIN_RECORD_LENGTH <= head.total_size <= span.limit - offset:
        return 0
    topic_at = HEADS[head.sys_flag >> 4 & 3].size + head.body_length
    if topic_at + LENGTHS_SIZE > head.total_size:
        return 0
    data = pread(fd, 1 + MAX_TOPIC_LENGTH + SHORT.size, position + topic_at)
    if not data or data[0] > MAX_TOPIC_LENGTH or 1 + data[0] + SHORT.size > len(data):
        return 0
    properties_length: int = SHORT.unpack_from(data, 1 + data[0])[0]
    end = topic_at + 1 + data[0] + SHORT.size + properties_length
    return head.total_size if properties_length >= 0 and end == head.total_size else 0
