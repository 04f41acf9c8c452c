"""Reading a commit log without its broker: its records, and the queue units and index keys that they need.

- `Folder`: an address space of files named by the offset of their first byte: commit logs, consume queues, their
  extensions.
- `scan_block`: the records in a block of the log, as a pure function. All code that walks a log record by record uses
  it, for one block of some MiB at a time.
- `Dispatcher`: the units and keys that consume queues and index must hold for a record, computed as the broker's
  dispatch does.
- `span_taker`: takes all records of a block at once, through the bulk kernel, as long as none of them is unusual. Most
  blocks are checked and rebuilt this way.
- `CommitLogReader`, `LogWalk`, `whole_log`: a log as one sequence of records over its files. The log ends where its
  records end. A position without a record that is followed by records is a hole.
- `is_held`: whether a broker, Java's or rmqha's, runs on a store: it holds the file `lock` while it runs.

A running broker copies a record into the file while others read it, so a reader may see half of it. Where nothing
follows yet, `LogWalk` therefore reads a block again a moment later, and counts only records that had begun at the first
read.
"""
import errno
import fcntl
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rmqha.common import mix_all, sys_flags
from rmqha.common.filesystem import Segment, check_regular, list_segments, open_regular, pread, read_at
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_const
from rmqha.common.message.message import parse_int
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
    MESSAGE_MAGIC_CODE_POSITION,
    SHORT,
    V6_FLAGS,
    decode_text,
)
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.common.units import DELAY_LEVELS
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import RECORD, Span
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, unpack_unit
from rmqha.tools.terminal import CannotAnswerError


class Folder(NamedTuple):
    """The files of one address space in order, and the paths of all other entries."""

    segments: list[Segment]
    foreign: list[str]

    @property
    def file_size(self) -> int:
        """The size that most of the files have, the largest of equally frequent ones; 0 without files."""
        counted = Counter(segment.size for segment in self.segments if segment.size > 0)
        return max(counted, key=lambda size: (counted[size], size), default=0)

    def at(self, offset: int) -> int:
        """Return the index of the last file that begins at or before `offset`; -1 if none does."""
        index = len(self.segments) - 1
        while index >= 0 and self.segments[index].start > offset:
            index -= 1
        return index


def list_folder(paths: Iterable[str]) -> Folder:
    """List the files of one address space, which may span several folders; a missing folder counts as empty."""
    segments, foreign = [], []
    for path in paths:
        try:
            found, others = list_segments(path)
        except FileNotFoundError:
            continue
        segments += found
        foreign += others
    return Folder(sorted(segments), sorted(foreign))


class LogRecord(NamedTuple):
    """One record: its offset, and the fields that dispatching and filtering need. Times are in ms."""

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
        """Return the properties of the message."""
        return string2message_properties(decode_text(self.properties_data))


class BlockEnd(Enum):
    """The reason why a block's records end."""

    MORE = "more"  # the block ends within a record
    BLANK = "blank"  # the blank rest of the file begins
    NOTHING = "nothing"  # zeros: nothing is written here yet
    BAD = "bad"  # bytes that are not a record


class BlockScan(NamedTuple):
    """The records of a block, their total size, and what follows them."""

    records: list[LogRecord]
    consumed: int
    end: BlockEnd
    reason: str = ""  # of BAD
    # MORE: the size of the incomplete record, 0 when even that is unknown. BLANK: the size that the blank contains.
    size: int = 0


@lru_cache(maxsize=4096)
def _topic(data: bytes) -> str:
    return decode_text(data)


def scan_block(data: bytes, base: int, check_crc: bool = False, begin_before: int | None = None) -> BlockScan:
    """Return the records of `data`, whose first byte is at offset `base` of the log. Only records that begin before
    byte `begin_before` are returned: nothing from there on counts as written.

    Every length is checked against the others and against the block. A body with a wrong CRC yields a record with
    `crc_ok` False (always True without `check_crc`), since the chain of records continues after it.
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
    return BlockScan(records, position, BlockEnd.BAD, f"magic code 0x{magic & 0xFFFF_FFFF:08x} is not that of a record")


DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNKNOWN_LEVEL_MS = 1000
_ROLLBACK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_NOT_QUEUED = (sys_flags.TRANSACTION_PREPARED_TYPE, _ROLLBACK)

Properties = dict[str, str]
DispatchedUnit = tuple[str, int, int, int]  # topic, queue id, index in the queue, tags code


class Dispatcher:
    """Computes the units and keys of records. `delay_levels`: the broker's messageDelayLevel; `marks`: deleted topic ->
    offset below which its records have no units.

    A multi-dispatched message is one record in the log that also appears in further queues. Its producer names them in
    the property INNER_MULTI_DISPATCH; the broker adds their offsets as INNER_MULTI_QUEUE_OFFSET when it appends the
    message. So the units of the further queues can be computed from the record alone. When the two lists do not match,
    the broker writes no units for further queues, and neither does this class.

    When a topic is deleted, its records stay in the log until their file expires. A rebuild must not bring them back:
    `marks` holds, for each deleted topic, the end of the log at the deletion. Records below it get no units, while a
    topic that is created again under the same name has all its records after it.
    """

    def __init__(self, delay_levels: str = DEFAULT_DELAY_LEVELS, marks: Mapping[str, int] | None = None) -> None:
        self.marks = marks or {}
        try:
            self.delays_ms = [DELAY_LEVELS[level[-1:]] * parse_int(level[:-1]) for level in delay_levels.split()]
        except (KeyError, ValueError):
            raise CannotAnswerError(f"--delay-levels {delay_levels!r} is not valid: give the broker's "
                                    "messageDelayLevel, numbers with s, m, h or d, such as '1s 5s 10s'") from None

    def units(self, record: LogRecord, properties: Properties) -> list[DispatchedUnit]:
        """Return the units of a record: none for a prepared or rolled back message, several if multi-dispatched."""
        if record.sys_flag & _ROLLBACK in _NOT_QUEUED:
            return []
        tags_code = self.tags_code(record, properties)
        units = [(record.topic, record.queue_id, record.queue_offset, tags_code)]
        if message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET in properties:
            units += [(topic, 0 if mix_all.is_lmq(topic) else record.queue_id, index, tags_code)
                      for topic, index in _further_queues(properties)]
        return [unit for unit in units if record.offset >= self.marks.get(unit[0], 0)] if self.marks else units

    def tags_code(self, record: LogRecord, properties: Properties) -> int:
        """Return the hash of the tags, or the delivery time in ms of a delayed message."""
        if record.topic == RMQ_SYS_SCHEDULE_TOPIC:
            level = _level(properties.get(message_const.PROPERTY_DELAY_TIME_LEVEL))
            if level > 0:
                level = min(level, len(self.delays_ms))
                return record.store_timestamp + (self.delays_ms[level - 1] if level else _UNKNOWN_LEVEL_MS)
        tags = properties.get(message_const.PROPERTY_TAGS)
        return string_hash_code(tags) if tags else 0

    @staticmethod
    def keys(record: LogRecord, properties: Properties) -> list[str]:
        """Return the texts that the index hashes, in order: topic#uniqueKey, then topic#word for each word of KEYS."""
        if record.sys_flag & _ROLLBACK == _ROLLBACK:
            return []
        return [f"{record.topic}#{key}" for key in plain_keys(properties)]


def plain_keys(properties: Properties) -> list[str]:
    """Return the unique key of a message, then the words of its KEYS."""
    unique = properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    words = properties.get(message_const.PROPERTY_KEYS)
    keys = [unique] if unique is not None else []
    if words:
        keys += [word for word in words.split(message_const.KEY_SEPARATOR) if word]
    return keys


def _level(text: str | None) -> int:
    try:
        return parse_int(text) if text is not None else 0
    except ValueError:
        return 0


def _further_queues(properties: Properties) -> list[tuple[str, int]]:
    names = _split(properties.get(message_const.PROPERTY_INNER_MULTI_DISPATCH, ""))
    offsets = _split(properties[message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET])
    if len(names) != len(offsets) or not all(text.isascii() and text.isdecimal() for text in offsets):
        return []
    return [(name, int(text)) for name, text in zip(names, offsets) if name]


def _split(text: str) -> list[str]:
    """Split like Java: without empty parts at the end."""
    parts = text.strip().split(mix_all.MULTI_DISPATCH_QUEUE_SPLITTER)
    while parts and not parts[-1]:
        parts.pop()
    return parts


class RunOfUnits(NamedTuple):
    """Consecutive units of one queue; `first_index` is the index of the first."""

    topic: str
    queue_id: int
    first_index: int
    units: bytes

    @property
    def end(self) -> int:
        """The index after the last unit."""
        return self.first_index + len(self.units) // CQ_STORE_UNIT_SIZE


class SpanTaker(NamedTuple):
    """A consumer of spans. `take(span)` takes all of the span and returns True, or does nothing and returns False."""

    delays_ms: list[int]
    take: Callable[[Span], bool]

    def scan(self, data: bytes, base: int, check_crc: bool) -> Span:
        """Return the good records at the start of a block, which begins at offset `base` of the log."""
        return bulk.scan(data, 0, len(data), base, check_crc, self.delays_ms, True)


def span_taker(dispatcher: Dispatcher, take: Callable[[Span], bool]) -> SpanTaker | None:
    """Return a taker of spans, or None where it would not pay."""
    # Without levels the broker uses a default delay, which the kernel does not know.
    return SpanTaker(dispatcher.delays_ms, take) if bulk.is_compiled() and dispatcher.delays_ms else None


def has_dead(runs: list[RunOfUnits], marks: Mapping[str, int]) -> bool:
    """Return whether any unit belongs to a record that was deleted with its topic; `marks`: see Dispatcher."""
    return bool(marks) and any(unpack_unit(run.units)[0] < marks.get(run.topic, 0) for run in runs)


def runs_of(span: Span) -> list[RunOfUnits] | None:
    """Return the runs of a span; None when a queue has several, since its indices are not consecutive then."""
    size, runs = CQ_STORE_UNIT_SIZE, []
    for run in span.runs:
        units = span.units[run.first_unit * size:(run.first_unit + run.count) * size]
        runs.append(RunOfUnits(span.topics[run.topic].name, run.queue_id, run.queue_offset, units))
    return runs if len({run[:2] for run in runs}) == len(runs) else None


BLOCK = 4 << 20
_FIRST_LOOK = 4096
# Within this time a record that is being written is complete.
_SETTLE_S = 0.02
_MAGIC = (MESSAGE_MAGIC_CODE & 0xFFFF_FFFF).to_bytes(4, "big")


class LogEnd(NamedTuple):
    """The place where a walk ended. `segment` None: after the last file, or at a missing file."""

    offset: int
    segment: Segment | None
    reason: str  # "" where nothing is written yet, or the files end

    @property
    def position(self) -> int:
        """The byte position in the file."""
        return self.offset - self.segment.start if self.segment is not None else 0


class Blank(NamedTuple):
    """A wrong end marker of a file: `says` is the number of bytes left that it contains, `room` the real number."""

    segment: Segment
    position: int
    says: int
    room: int


class LogWalk:
    """One pass from `begin` over the records of a log. Iterating yields blocks of them; `end` is where it ended.

    Each file but the last ends with a blank: at least 8 bytes that hold the number of bytes left and a magic code of
    their own. A broker writes it when the next record does not fit, because a record never spans two files. A walk
    their own. A broker writes it when the next record does not fit, because a record never spans two files. A walk
    skips it to the next file. `blanks` collects the blanks with a wrong length, `without_blank` the files that end with
    a record, which no broker writes. `position` is the offset reached, for progress.
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
        """The place where the walk ended; only after the walk."""
        assert self._end is not None, "the walk has not ended"
        return self._end

    def __iter__(self) -> Iterator[list[LogRecord]]:
        """Yield the records, block by block."""
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
        """Yield the records of one file; then `position` is the start of the next file, or `end` is set."""
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
        """Pass the good records at the start of a block to `spans`; return the number of bytes taken."""
        if self.spans is None:
            return 0
        span = self.spans.scan(data, self.position, self.check_crc)
        if not span.count or not self.spans.take(span):
            return 0
        self.position += span.position
        self.last_store_timestamp = RECORD.unpack_from(span.records, len(span.records) - RECORD.size)[3]
        return span.position

    def _read(self, segment: Segment, fd: int, asked: int, at: int) -> tuple[bytes, int]:
        """Return a block, and the number of its bytes that were written at the first read."""
        # If something is written after the block, the block is complete.
        if not self.log.live or any(self.log.read(segment.start + at + asked, BLANK.size)):
            return pread(fd, asked, at), asked
        seen = len(pread(fd, asked, at).rstrip(b"\0"))
        if seen:
            time.sleep(_SETTLE_S)
        return pread(fd, asked, at), seen

    def _cut_off(self, segment: Segment, length: int, whole: bool) -> None:
        """Set the end of the walk: the file ends before its blank."""
        if whole and segment.size < length:
            reason = "the file ends here" if self.position > segment.start else "the file is empty"
        else:
            reason = "the record is cut off by the end of the file"
        self._end = LogEnd(self.position, segment, reason)


class CommitLogReader:
    """The files of a commit log, as listed at one time; files that are created later are not seen."""

    def __init__(self, folder: Folder, file_size: int | None = None, live: bool = False) -> None:
        self.folder = folder
        self.live = live  # a broker may be writing
        self.file_size = file_size or folder.file_size

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 for an empty log."""
        return self.folder.segments[0].start if self.folder.segments else 0

    @property
    def files_end(self) -> int:
        """The offset after the last file."""
        return self.folder.segments[-1].start + self.file_size if self.folder.segments else 0

    def walk(self, begin: int | None = None, check_crc: bool = False, spans: SpanTaker | None = None) -> LogWalk:
        """Return a pass from the record at `begin`, or from the first one."""
        return LogWalk(self, self.min_offset if begin is None else begin, check_crc, spans)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on within its file; b"" without a file there."""
        index = self.folder.at(offset)
        if index < 0:
            return b""
        segment = self.folder.segments[index]
        position = offset - segment.start
        return read_at(segment.path, position, max(min(size, self.file_size - position), 0))

    def record_at(self, offset: int, check_crc: bool = True) -> LogRecord | None:
        """Return the complete record at `offset`, or None."""
        return self._record(self.read(offset, _FIRST_LOOK), offset, check_crc)

    def _record(self, data: bytes, offset: int, check_crc: bool) -> LogRecord | None:
        scan = scan_block(data, offset, check_crc, begin_before=1)
        if not scan.records and scan.end is BlockEnd.MORE and scan.size > len(data):
            scan = scan_block(self.read(offset, scan.size), offset, check_crc, begin_before=1)
        return scan.records[0] if scan.records else None

    def record_bytes(self, offset: int) -> bytes:
        """Return the bytes of the record at `offset`, or b""."""
        record = self.record_at(offset, check_crc=False)
        return self.read(offset, record.size) if record is not None else b""

    def log_end(self) -> int:
        """Return the offset after the last record, found from the last file that begins with one."""
        for segment in reversed(self.folder.segments):
            if self.goes_on_at(segment.start):
                walk = self.walk(segment.start)
                for _records in walk:
                    pass
                return walk.end.offset
        return self.min_offset

    def goes_on_at(self, offset: int) -> bool:
        """Return whether a walk would continue at `offset`: a record or the blank of a file is there."""
        return self.record_at(offset, check_crc=False) is not None \
            or scan_block(self.read(offset, BLANK.size), offset).end is BlockEnd.BLANK

    def looks_like_one(self) -> bool:
        """Return whether this is a log: its first file is still empty, or a record begins there, or follows somewhere.
        """
        head = self.read(self.min_offset, MESSAGE_MAGIC_CODE_POSITION + len(_MAGIC))
        return not any(head) or head.endswith(_MAGIC) or self.goes_on_at(self.min_offset) \
            or self.next_record(self.min_offset) is not None

    def next_record(self, offset: int, not_before: int = 0) -> LogRecord | None:
        """Return the first record at or after `offset`, wherever it begins; it is recognized by its own offset in it.

        In the file of `offset` its store time must be `not_before` (ms) or later: after the end of a log there may be
        older records, which were truncated after an earlier crash.
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
    """Yield the positions where a record may begin, by its magic code."""
    found = data.find(_MAGIC, MESSAGE_MAGIC_CODE_POSITION)
    while found >= 0:
        yield found - MESSAGE_MAGIC_CODE_POSITION
        found = data.find(_MAGIC, found + 1)


def _skip_hole(fd: int, position: int) -> int:
    """Return the next position with data: the files are sparse after the end of the log."""
    try:
        return max(os.lseek(fd, max(position, 0), os.SEEK_DATA), position)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data after it
            return 1 << 62
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system without holes
            return position
        raise


def whole_log(log: CommitLogReader, on_hole: Callable[[LogEnd, LogRecord], bool], begin: int | None = None,
              spans: SpanTaker | None = None) -> Iterator[tuple[LogWalk, list[LogRecord]]]:
    """Yield (walk, records) over a log to its end. `on_hole(end, record)` is called where the log is damaged and
    continues with `record`; the walk continues there if it returns True.
    """
    walk = log.walk(begin, spans=spans)
    while True:
        for records in walk:
            yield walk, records
        end, found = walk.end, log.next_record(walk.end.offset, walk.last_store_timestamp)
        if found is None:
            return
        # Checked again after the search: a running broker may have written this and the following records meanwhile.
        if log.goes_on_at(end.offset) or not on_hole(end, found):
            return
        walk = log.walk(found.offset, spans=spans)


_LOCKS = "/proc/locks"
# struct flock of Linux: type, whence, start, length, pid
_FLOCK = "hhqqi0q"


def is_held(path: str) -> bool:
    """Return whether a process holds the lock file. This takes no lock itself, so it can't disturb a starting broker.

    NotRegularFileError when the path is a pipe or a device, which no broker creates.
    """
    try:
        found = os.stat(path)
    except OSError:
        return False
    check_regular(path, found)
    return _is_listed(found) or _is_locked(path)


def _is_listed(found: os.stat_result) -> bool:
    """Check the kernel's list, which also contains locks of this process."""
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open(_LOCKS, encoding="ascii") as lines:
            return any(wanted in line.split() for line in lines)
    except OSError:  # the container has no such list: `_is_locked` decides
        return False


def _is_locked(path: str) -> bool:
    try:
        fd = open_regular(path)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)


@contextmanager
def held(path: str) -> Iterator[None]:
    """Lock out brokers while writing to a store. CannotAnswerError when a broker runs on it."""
    if is_held(path):
        raise _taken(path)
    fd = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(fd, path)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _taken(path) from error
        raise


def _taken(path: str) -> CannotAnswerError:
    return CannotAnswerError(f"{path} is held: a broker runs on this store. Stop it, or write elsewhere with --out.")
