"""A commit log as one run of records over its files, read in blocks of some MiB while a broker may be appending.

The log ends where its records do. A place that holds no record although records follow is a hole.

A running broker copies a record into the file while it may be read, so that half of it may be seen. Where nothing
follows yet, a block is therefore read again a moment later, and only records that had begun at the first look count.
"""
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqha.common.filesystem import Segment, open_regular, pread, read_at
from rmqha.common.message.message_layout import BLANK, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_POSITION
from rmqha.store.bulk.bulk_layout import RECORD
from rmqha.tools.store.record_scan import BlockEnd, LogRecord, scan_block
from rmqha.tools.store.segments import Folder
from rmqha.tools.store.span_taker import SpanTaker

BLOCK = 4 << 20
_FIRST_LOOK = 4096
_SETTLE_S = 0.02  # a record that was begun is whole after this long
_MAGIC = (MESSAGE_MAGIC_CODE & 0xFFFF_FFFF).to_bytes(4, "big")


class LogEnd(NamedTuple):
    """Where a walk came to its end. `segment` None: behind the last file, or where a file is missing."""

    offset: int
    segment: Segment | None
    reason: str  # "" where nothing was written yet, or the files end

    @property
    def position(self) -> int:
        """Byte position in the file."""
        return self.offset - self.segment.start if self.segment is not None else 0


class Blank(NamedTuple):
    """The end marker of a file, and what it says and should say: bytes to the end of the file."""

    segment: Segment
    position: int
    says: int
    room: int


class LogWalk:
    """One pass from `begin` over the records of a log. Iterating gives blocks of them; `end` then says where it ended.

    `blanks` collects the end markers that do not fit their file, `without_blank` the files that end with a record,
    which no broker writes. `position` is the offset reached, for progress.
    `spans`: takes records many at once; what it takes is left out of the blocks.
    """

    def __init__(self, log: "CommitLogReader", begin: int, check_crc: bool = False,
                 spans: SpanTaker | None = None) -> None:
        self.log = log
        self.position = begin
        self.check_crc = check_crc
        self.spans = spans
        self.blanks: list[Blank] = []
        self.without_blank: list[Segment] = []
        self._end: LogEnd | None = None
        self.last_store_timestamp = 0  # of the last record seen, ms

    @property
    def end(self) -> LogEnd:
        """Where it ended, once it has."""
        assert self._end is not None, "the walk goes on"
        return self._end

    def __iter__(self) -> Iterator[list[LogRecord]]:
        """The records, block by block."""
        self._end = None
        segments = self.log.folder.segments
        index = self.log.folder.at(self.position)
        while self._end is None:
            segment = segments[index] if 0 <= index < len(segments) else None
            if segment is None or not segment.start <= self.position < segment.start + self.log.file_size:
                later = bool(segments) and self.position < segments[-1].start
                self._end = LogEnd(self.position, None, "the file is missing" if later else "")
                return
            yield from self._segment(segment)
            index += 1

    def _segment(self, segment: Segment) -> Iterator[list[LogRecord]]:
        """The records of one file; then `position` is the next one's start, or `end` is set."""
        try:
            fd = open_regular(segment.path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            self._end = LogEnd(self.position, segment, "the file has been removed")
            return
        try:
            yield from self._blocks(segment, fd)
        finally:
            os.close(fd)

    def _blocks(self, segment: Segment, fd: int) -> Iterator[list[LogRecord]]:
        length = self.log.file_size
        want = BLOCK
        while True:
            at = self.position - segment.start
            asked = min(want, length - at)
            data, seen = self._read(segment, fd, asked, at)
            taken = self._take_span(data) if seen == asked else 0
            scan = scan_block(data[taken:] if taken else data, self.position, self.check_crc, seen - taken)
            self.position += scan.consumed
            if scan.records:
                self.last_store_timestamp = scan.records[-1].store_timestamp
            if scan.records or taken:
                yield scan.records
            consumed = taken + scan.consumed
            if scan.end is BlockEnd.MORE:
                if len(data) == asked and at + asked < length:
                    want = max(BLOCK if consumed else 2 * want, scan.size)
                    continue
                if self.position == segment.start + length:
                    self.without_blank.append(segment)
                    return
                self._cut_off(segment, length, len(data) == consumed)
            elif scan.end is BlockEnd.BLANK:
                position = self.position - segment.start
                if scan.size != length - position:
                    self.blanks.append(Blank(segment, position, scan.size, length - position))
                self.position = segment.start + length
            else:
                self._end = LogEnd(self.position, segment, scan.reason)
            return

    def _take_span(self, data: bytes) -> int:
        """Have the good records at the beginning of a block taken at once; how many bytes of it that were."""
        if self.spans is None:
            return 0
        span = self.spans.scan(data, self.position, self.check_crc)
        if not span.count or not self.spans.take(span):
            return 0
        self.position += span.position
        self.last_store_timestamp = RECORD.unpack_from(span.records, len(span.records) - RECORD.size)[3]
        return span.position

    def _read(self, segment: Segment, fd: int, asked: int, at: int) -> tuple[bytes, int]:
        """A block, and how much of it was written when it was looked at first."""
        # what follows is there: so is this
        if not self.log.live or any(self.log.read(segment.start + at + asked, BLANK.size)):
            return pread(fd, asked, at), asked
        seen = len(pread(fd, asked, at).rstrip(b"\0"))
        if seen:
            time.sleep(_SETTLE_S)
        return pread(fd, asked, at), seen

    def _cut_off(self, segment: Segment, length: int, whole: bool) -> None:
        """The bytes of a file are over before its blank."""
        if whole and segment.size < length:
            reason = "the file ends here" if self.position > segment.start else "the file is empty"
        else:
            reason = "the record is cut off by the end of the file"
        self._end = LogEnd(self.position, segment, reason)


class CommitLogReader:
    """The files of a commit log. Made from a list of them at one time; files that come later are not seen."""

    def __init__(self, folder: Folder, file_size: int | None = None, live: bool = False) -> None:
        self.folder = folder
        self.live = live  # a broker may be writing
        self.file_size = file_size or folder.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; 0 for an empty log."""
        return self.folder.segments[0].start if self.folder.segments else 0

    @property
    def files_end(self) -> int:
        """Offset behind the last file."""
        return self.folder.segments[-1].start + self.file_size if self.folder.segments else 0

    def walk(self, begin: int | None = None, check_crc: bool = False, spans: SpanTaker | None = None) -> LogWalk:
        """A pass from the record at `begin`, or from the first one."""
        return LogWalk(self, self.min_offset if begin is None else begin, check_crc, spans)

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on within its file; b"" where there is no file."""
        index = self.folder.at(offset)
        if index < 0:
            return b""
        segment = self.folder.segments[index]
        position = offset - segment.start
        return read_at(segment.path, position, max(min(size, self.file_size - position), 0))

    def record_at(self, offset: int, check_crc: bool = True) -> LogRecord | None:
        """The whole record at `offset`; None when there is none."""
        return self._record(self.read(offset, _FIRST_LOOK), offset, check_crc)

    def _record(self, data: bytes, offset: int, check_crc: bool) -> LogRecord | None:
        scan = scan_block(data, offset, check_crc, begin_before=1)
        if not scan.records and scan.end is BlockEnd.MORE and scan.size > len(data):
            scan = scan_block(self.read(offset, scan.size), offset, check_crc, begin_before=1)
        return scan.records[0] if scan.records else None

    def record_bytes(self, offset: int) -> bytes:
        """The bytes of the record at `offset`; b"" when there is none."""
        record = self.record_at(offset, check_crc=False)
        return self.read(offset, record.size) if record is not None else b""

    def log_end(self) -> int:
        """Offset behind the last record, found from the last file that begins with one."""
        for segment in reversed(self.folder.segments):
            if self.goes_on_at(segment.start):
                walk = self.walk(segment.start)
                for _records in walk:
                    pass
                return walk.end.offset
        return self.min_offset

    def goes_on_at(self, offset: int) -> bool:
        """Whether a walk would go on at `offset`: there is a record, or the blank that closes a file."""
        return self.record_at(offset, check_crc=False) is not None \
            or scan_block(self.read(offset, BLANK.size), offset).end is BlockEnd.BLANK

    def looks_like_one(self) -> bool:
        """Whether this is a log: nothing was written into its first file yet, or a record begins there, or one follows
        somewhere."""
        head = self.read(self.min_offset, MESSAGE_MAGIC_CODE_POSITION + len(_MAGIC))
        return not any(head) or head.endswith(_MAGIC) or self.goes_on_at(self.min_offset) \
            or self.next_record(self.min_offset) is not None

    def next_record(self, offset: int, not_before: int = 0) -> LogRecord | None:
        """The first record at or behind `offset` wherever it begins, known by telling its own offset rightly.

        In the file of `offset` it must be stored at `not_before` (ms) or later: behind the end of a log lies what was
        cut off after an earlier crash, and is older.
        """
        for segment in self.folder.segments[max(self.folder.at(offset), 0):]:
            for record in self._search(segment, max(offset - segment.start, 0)):
                if record.store_timestamp >= not_before:
                    return record
            not_before = 0
        return None

    def _search(self, segment: Segment, position: int) -> Iterator[LogRecord]:
        try:
            fd = open_regular(segment.path)
        except FileNotFoundError:
            return
        try:
            while (position := _skip_hole(fd, position)) < self.file_size:
                data = pread(fd, min(BLOCK, self.file_size - position), position)
                if len(data) < MESSAGE_MAGIC_CODE_POSITION + len(_MAGIC):
                    return
                for at in _places(data):
                    offset = segment.start + position + at
                    seen = data[at:at + _FIRST_LOOK]
                    record = self._record(seen if len(seen) == _FIRST_LOOK else self.read(offset, _FIRST_LOOK),
                                          offset, True)
                    if record is not None and record.physical_offset == offset and record.crc_ok:
                        yield record
                position += len(data) - MESSAGE_MAGIC_CODE_POSITION - len(_MAGIC) + 1
        finally:
            os.close(fd)


def _places(data: bytes) -> Iterator[int]:
    """Where a record could begin, by its magic code."""
    found = data.find(_MAGIC, MESSAGE_MAGIC_CODE_POSITION)
    while found >= 0:
        yield found - MESSAGE_MAGIC_CODE_POSITION
        found = data.find(_MAGIC, found + 1)


def _skip_hole(fd: int, position: int) -> int:
    """The next position with data: the files are sparse behind the end of the log."""
    try:
        return max(os.lseek(fd, max(position, 0), os.SEEK_DATA), position)
    except OSError as error:
        if error.errno == errno.ENXIO:  # none behind it
            return 1 << 62
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system without holes
            return position
        raise


def whole_log(log: CommitLogReader, on_hole: Callable[[LogEnd, LogRecord], bool], begin: int | None = None,
              spans: SpanTaker | None = None) -> Iterator[tuple[LogWalk, list[LogRecord]]]:
    """(walk, records) over a log to its end. `on_hole(end, record)` is asked what to do where it is damaged and goes
    on with `record`: true goes on there.
    """
    walk = log.walk(begin, spans=spans)
    while True:
        for records in walk:
            yield walk, records
        end, found = walk.end, log.next_record(walk.end.offset, walk.last_store_timestamp)
        if found is None:
            return
        # looked at again behind the search: a running broker has written it and what follows since
        if log.goes_on_at(end.offset) or not on_hole(end, found):
            return
        walk = log.walk(found.offset, spans=spans)
