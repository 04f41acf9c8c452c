"""Finding commit logs on disk, and reading byte ranges of them.

- `find_logs`: store roots, folders of commit log files, single files, and globs of them.
- `scan_range`: the blocks of records of a range, read by the bulk kernel, and the holes between them.
- `walk_on`: finds where a batch of a given number of messages or bytes ends. One step is one row of `scan_range`: a
  record or a whole hole. CRCs are left to `scan_range`: a record with a wrong CRC counts as a record in both. Memory is
  bounded: at most BLOCK bytes are read at a time, whatever lengths the log contains.

Partitions by ranges of the log. The tasks of a query read one file in parallel, so the driver cuts it into ranges. It
does not know where records begin, and finding out would mean to read the whole log. So a range need not begin at a
record: its reader skips to the first whole record that begins in it, and the reader of the preceding range continues
past its own end up to exactly that record, over records with a wrong CRC and over holes. Both must find the same record
on their own. So a record is whole if its magic code, lengths, own offset and CRC are right; nothing else in it counts,
and no bytes after `limit`. Then the ranges together give what the whole file gives, wherever they are cut. If the two
readers used different rules, a damaged record at a cut would be read twice or by neither. The exception is a whole
record within another (a body made for it, or two damaged lengths that agree): a range that begins within the outer one
is read from the inner one on.
"""
import errno
import glob
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rmqha.common.filesystem import NAME_LENGTH, Segment, is_segment_name, list_segments, open_regular, pread
from rmqha.common.message import message_layout
from rmqha.common.message.message_layout import (
    BLANK,
    HEADS,
    LENGTHS_SIZE,
    MAX_HEAD_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    MIN_RECORD_LENGTH,
    SHORT,
    MessageDecodeError,
    RecordHead,
    RecordParts,
    body_crc32,
    decode_header,
    decode_parts,
    decode_text,
)
from rmqha.common.texts import JsonTextError, parse_json
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.streams import at_once
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import RECORD, Stop

COMMIT_LOG = "commitlog"


class LogFiles(NamedTuple):
    """The files of one commit log in order. `name`: the store's, for the column brokerName; `path`: its folder."""

    name: str
    path: str
    segments: list[Segment]

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 for an empty log."""
        return self.segments[0].start if self.segments else 0

    @property
    def files_end(self) -> int:
        """The end of the last file."""
        return self.segments[-1].end if self.segments else 0


def list_log(path: str, name: str) -> LogFiles:
    """Return the files of a commit log folder. PipelineError if it does not exist."""
    try:
        return LogFiles(name, path, list_segments(path)[0])
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from error


def wanted_paths(options: Options) -> list[str]:
    """Return the paths of `.load(...)` or of the option `path`, as given."""
    if "paths" in options:
        try:
            paths = parse_json(options.text("paths", ""), "paths")
        except JsonTextError as error:
            raise options.wrong("paths", f"a JSON list of paths: {error.reason}") from None
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise options.wrong("paths", "a JSON list of paths")
    else:
        paths = [options.text("path", "")]
    paths = [path for path in paths if path]
    if not paths:
        raise PipelineError(f"{options.where} needs a path: .load('/path/to/store'), a store root, a commitlog folder, "
                            "or a glob of them")
    return paths


def find_logs(paths: Iterable[str], name: str | None = None, errors: list[PipelineError] | None = None,
              ) -> list[LogFiles]:
    """Return the commit logs at `paths`; a log may have no files yet. PipelineError for a path without one; it is
    appended to `errors` if that list is given.
    """
    matches: list[str] = []
    for given in paths:
        path = given.removeprefix("file://") if given.startswith("file://") else given.removeprefix("file:")
        if not glob.has_magic(path):
            matches.append(path)
        elif not (matching := sorted(glob.glob(path))):
            _raise_or_add(PipelineError(f"nothing matches {given}"), errors)
        else:
            matches += matching
    found: dict[str, LogFiles] = {}
    files: dict[str, list[Segment]] = {}
    for log in at_once(lambda match: _log_or_error(match, name), matches):
        if isinstance(log, PipelineError):
            _raise_or_add(log, errors)
        elif isinstance(log, Segment):
            files.setdefault(os.path.dirname(log.path), []).append(log)
        else:
            found[log.path] = log
    for folder, segments in files.items():
        found.setdefault(folder, LogFiles(name or _store_name(folder), folder, sorted(set(segments))))
    return list(found.values())


def _raise_or_add(error: PipelineError, errors: list[PipelineError] | None) -> None:
    if errors is None:
        raise error
    errors.append(error)


def _log_or_error(path: str, name: str | None) -> "LogFiles | Segment | PipelineError":
    """Return what is at a path: a log, a single file of one, or the error that says why neither."""
    try:
        return _single_file(os.path.abspath(path)) if os.path.isfile(path) else _folder(path, name)
    except PipelineError as error:
        return error


def _single_file(path: str) -> Segment:
    name = os.path.basename(path)
    if not is_segment_name(name):
        raise PipelineError(f"{path} is not a commit log file: their names are {NAME_LENGTH} digits, the offset of the "
                            "first byte")
    return Segment(int(name), path, os.stat(path).st_size)


def _folder(path: str, name: str | None) -> LogFiles:
    if not os.path.isdir(path):
        raise PipelineError(f"{path}: no such folder or file")
    path = os.path.abspath(path)
    inner = os.path.join(path, COMMIT_LOG)
    if os.path.isdir(inner):
        return list_log(inner, name or os.path.basename(path))
    log = list_log(path, name or _store_name(path))
    if not log.segments and os.path.basename(path) != COMMIT_LOG:
        raise PipelineError(f"{path} is not a store: it has neither a folder {COMMIT_LOG} nor commit log files (names "
                            f"of {NAME_LENGTH} digits). Give the broker's storePathRootDir or storePathCommitLog.")
    return log


def _store_name(folder: str) -> str:
    """Return the name of the store that a commit log folder belongs to."""
    parent, name = os.path.split(folder.rstrip("/"))
    return os.path.basename(parent) if name == COMMIT_LOG else name


BLOCK = 2 << 20
# Read after the end of a range, for its last record.
_SLACK = 64 << 10
_HEAD = 4096
# A record that claims to be longer is checked in parts before it is read: its length may be damaged.
LONG_RECORD = 16 << 20
_MAGIC = (MESSAGE_MAGIC_CODE & 0xFFFF_FFFF).to_bytes(4, "big")
_NO_MORE_DATA = 1 << 62
# The rows of a block, as the bulk kernel writes them.
ROW = np.dtype([("offset", "=i8"), ("queueOffset", "=i8"), ("tagsCode", "=i8"), ("storeTime", "=i8"), ("size", "=i4"),
                ("queueId", "=i4"), ("topic", "=i4"), ("sysFlag", "=i4")])
assert ROW.itemsize == RECORD.size


class ByteRange(NamedTuple):
    """Records of one file that begin in [begin, end) of the log. No byte at or after `limit` may be read."""

    path: str
    file_start: int
    begin: int
    end: int
    limit: int
    # A record begins at `begin`.
    aligned: bool


class Block(NamedTuple):
    """Good records: their rows, and the bytes that contain them; data[0] is at offset `base` of the log."""

    data: bytes
    base: int
    rows: np.ndarray
    topics: list[str]
    crc_ok: bool


class Hole(NamedTuple):
    """Bytes that should hold a record but do not."""

    path: str
    file_start: int
    offset: int
    size: int
    reason: str


class VanishedError(PipelineError):
    """A file that existed when the work was planned has vanished."""


def open_file(path: str, offset: int) -> int:
    """Return a descriptor for reading. VanishedError if the file does not exist."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise VanishedError(
            f"{path} has vanished while the log was read (needed from offset {offset} on): the broker deleted it, or "
            "it was moved. With failOnDataLoss=false its messages are left out.") from None


def scan_range(span: ByteRange, check_crc: bool) -> Iterator[Block | Hole]:
    """Yield the records of a range in blocks of some MiB, and its holes, in the order of the log."""
    fd = open_file(span.path, span.begin)
    try:
        position: int | None = span.begin
        if not span.aligned:
            position = find_record(fd, span, span.begin, span.end)
        if position is not None:
            yield from _scan(fd, span, position, check_crc)
    finally:
        os.close(fd)


def _scan(fd: int, span: ByteRange, position: int, check_crc: bool) -> Iterator[Block | Hole]:
    want = BLOCK
    while position < span.end:
        size = min(want, span.limit - position, max(span.end - position + _SLACK, want - BLOCK))
        data = pread(fd, size, position - span.file_start)
        found = bulk.scan(data, 0, len(data), position, check_crc)
        if found.count:
            block = _block(data, position, found.records, [topic.name for topic in found.topics], span.end)
            yield block
            position = int(block.rows["offset"][-1] + block.rows["size"][-1])
            want = BLOCK
            continue
        if found.stop is Stop.BLANK:
            return
        needed = needed_bytes(data, span.limit - position) if found.stop is Stop.TRUNCATED else 0
        if needed > len(data) == size and _may_be_read(fd, span, position, needed):
            want = needed + BLOCK
            continue
        odd = _odd(fd, span, position)
        yield odd
        position += len(odd.data) if isinstance(odd, Block) else odd.size
    yield from odd_ones(fd, span, position)


def odd_ones(fd: int, span: ByteRange, position: int) -> Iterator[Block | Hole]:
    """Yield what lies between the last record of a range and the first one that the reader of the next range finds,
    which searches for whole records only.
    """
    while position < span.limit and not is_record(fd, span, position) and not is_blank(fd, span, position):
        odd = _odd(fd, span, position)
        yield odd
        position += len(odd.data) if isinstance(odd, Block) else odd.size


def _odd(fd: int, span: ByteRange, position: int) -> Block | Hole:
    """Return a record that the kernel does not accept, or a hole."""
    head = pread(fd, BLANK.size, position - span.file_start)
    needed = needed_bytes(head, span.limit - position)
    single = None
    if needed and _may_be_read(fd, span, position, needed):
        single = _single(pread(fd, needed, position - span.file_start), position)
    return hole_at(fd, span, position) if single is None else single


def _may_be_read(fd: int, span: ByteRange, position: int, size: int) -> bool:
    """Return whether the record at `position` may be read into memory at once: any but a long one that is not whole.
    So a wrong length costs no memory; a long record with a wrong CRC counts as a hole.
    """
    return size <= LONG_RECORD or size_at(fd, span, position) == size


def is_blank(fd: int, span: ByteRange, offset: int) -> bool:
    """Return whether the blank that ends a file is at `offset`."""
    return message_layout.is_blank(pread(fd, BLANK.size, offset - span.file_start))


def _block(data: bytes, base: int, records: bytes, topics: list[str], end: int) -> Block:
    rows = np.frombuffer(records, ROW)
    if rows["offset"][-1] >= end:
        rows = rows[:int(np.searchsorted(rows["offset"], end))]
    return Block(data, base, rows, topics, True)


def needed_bytes(data: bytes, room: int) -> int:
    """Return the length that the truncated record claims to have; 0 if it is impossible."""
    if len(data) < BLANK.size:
        return 0
    total, _ = BLANK.unpack_from(data)
    return total if MIN_RECORD_LENGTH <= total <= room else 0


def _single(data: bytes, offset: int) -> Block | None:
    """Return a record that the kernel did not accept: its text is not UTF-8, or its body's CRC is wrong."""
    try:
        parts = decode_parts(data)
    except MessageDecodeError:
        return None
    head = parts.head
    if head.physical_offset != offset:
        return None
    row = np.zeros(1, ROW)
    row[0] = (offset, head.queue_offset, 0, head.store_timestamp, head.total_size, head.queue_id, 0, head.sys_flag)
    data = data[:head.total_size]
    return Block(data, offset, row, [_topic(data, parts)], _crc_ok(data, parts))


def _topic(data: bytes, parts: RecordParts) -> str:
    return decode_text(data[parts.topic_position:parts.topic_position + parts.topic_length])


def _crc_ok(data: bytes, parts: RecordParts) -> bool:
    body = data[parts.body_position:parts.body_position + parts.head.body_length]
    return not body or body_crc32(body) == parts.head.body_crc


def hole_at(fd: int, span: ByteRange, position: int) -> Hole:
    """Return the bytes from `position`, where no record is, up to the next one or to the limit of the range."""
    following = find_record(fd, span, position + 1, span.limit)
    size = (span.limit if following is None else following) - position
    head = pread(fd, BLANK.size, position - span.file_start)
    room = min(span.limit, span.file_start + os.fstat(fd).st_size) - position
    return Hole(span.path, span.file_start, position, size, _reason(head, room))


def _reason(head: bytes, room: int) -> str:
    """Return why no record begins with these 8 bytes, or with the fewer that are left of the file."""
    if not head:
        # It is shorter than it was.
        return "the file ends here"
    total_size, magic_code = BLANK.unpack(head.ljust(BLANK.size, b"\0"))
    if magic_code == 0 and len(head) == BLANK.size:
        return "nothing was written here"
    if len(head) < BLANK.size or magic_code == MESSAGE_MAGIC_CODE and total_size > room:
        return "the record is truncated"
    return "no record is here"


def is_record(fd: int, span: ByteRange, offset: int) -> bool:
    """Return whether a whole record is at `offset`: the right offset, lengths and CRC."""
    return size_at(fd, span, offset) > 0


def size_at(fd: int, span: ByteRange, offset: int) -> int:
    """Return the size of the whole record at `offset`; 0 without one."""
    return _record_size(fd, span, offset, pread(fd, _HEAD, offset - span.file_start))


def _record_size(fd: int, span: ByteRange, offset: int, data: bytes) -> int:
    """Like `size_at`; `data` holds the first bytes there. At most BLOCK bytes are read at a time."""
    try:
        head = decode_header(data)
        if head.magic_code != MESSAGE_MAGIC_CODE or head.physical_offset != offset \
                or not MIN_RECORD_LENGTH <= head.total_size <= span.limit - offset:
            return 0
        if head.total_size <= len(data):
            return head.total_size if _crc_ok(data, decode_parts(data)) else 0
    except MessageDecodeError:
        return 0
    body_at = HEADS[head.sys_flag >> 4 & 3].size
    if not _lengths_fit(fd, head, body_at, offset - span.file_start):
        return 0
    return head.total_size if _is_body(fd, head, offset - span.file_start + body_at) else 0


def _lengths_fit(fd: int, head: RecordHead, body_at: int, position: int) -> bool:
    """Return whether the lengths of body, topic and properties add up to the total of the record at `position`."""
    topic_at = body_at + head.body_length
    if head.body_length < 0 or topic_at + LENGTHS_SIZE > head.total_size:
        return False
    tail = pread(fd, min(MAX_TOPIC_LENGTH + LENGTHS_SIZE, head.total_size - topic_at), position + topic_at)
    if not tail or tail[0] > MAX_TOPIC_LENGTH or len(tail) < tail[0] + LENGTHS_SIZE:
        return False
    properties: int = SHORT.unpack_from(tail, 1 + tail[0])[0]
    return properties >= 0 and topic_at + LENGTHS_SIZE + tail[0] + properties == head.total_size


def _is_body(fd: int, head: RecordHead, position: int) -> bool:
    """Return whether the body at `position` of a file has the CRC that the head gives."""
    crc, end = 0, position + head.body_length
    while position < end:
        data = pread(fd, min(BLOCK, end - position), position)
        if not data:
            return False
        crc = zlib.crc32(data, crc)
        position += len(data)
    return head.body_length == 0 or (crc & 0x7FFF_FFFF) == int(head.body_crc)


def find_record(fd: int, span: ByteRange, begin: int, end: int, not_before: int | None = None) -> int | None:
    """Return the offset of the first whole record that begins in [begin, end); with `not_before` (ms), of the first
    that was stored then or later.
    """
    position, last = begin - span.file_start, min(end, span.limit) - span.file_start
    while (position := _next_data(fd, position)) < last:
        data = pread(fd, min(BLOCK, span.limit - span.file_start - position), position)
        if len(data) < MESSAGE_MAGIC_CODE_POSITION + len(_MAGIC):
            return None
        at = data.find(_MAGIC, MESSAGE_MAGIC_CODE_POSITION)
        while at >= 0 and position + at - MESSAGE_MAGIC_CODE_POSITION < last:
            place = at - MESSAGE_MAGIC_CODE_POSITION
            offset = span.file_start + position + place
            head = data[place:place + _HEAD]
            if len(head) < _HEAD:
                head = pread(fd, _HEAD, position + place)
            if _record_size(fd, span, offset, head) \
                    and (not_before is None or decode_header(head).store_timestamp >= not_before):
                return offset
            at = data.find(_MAGIC, at + 1)
        position += len(data) - MESSAGE_MAGIC_CODE_POSITION - len(_MAGIC) + 1
    return None


def _next_data(fd: int, position: int) -> int:
    """Return the next position where a record may begin: files are sparse after the end of the log. If a copy of the
    file was made sparse, the leading zeros of a TOTALSIZE may lie in the hole.
    """
    try:
        return max(os.lseek(fd, position, os.SEEK_DATA) - MESSAGE_MAGIC_CODE_POSITION, position)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return _NO_MORE_DATA
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # no sparse files
            return position
        raise


def whole_file(segment: Segment) -> ByteRange:
    """Return the range of all records of a file."""
    return ByteRange(segment.path, segment.start, segment.start, segment.end, segment.end, True)


UNLIMITED = 1 << 62
_SMALLEST_BLOCK, _USUAL_RECORD = 64 << 10, 4 << 10


class Walked(NamedTuple):
    """The end of a walk, and the rows and bytes it passed; blanks count as neither."""

    offset: int
    rows: int
    size: int


def walk_on(log: LogFiles, begin: int, end: int, rows: int = UNLIMITED, size: int = UNLIMITED,
            at_least_one: bool = False) -> Walked:
    """Walk over at most `rows` rows and `size` bytes, from `begin`, where a record or a hole begins, up to `end`. A
    step of more than `size` bytes is only taken with `at_least_one`, and then alone.

    A file that vanishes meanwhile counts as nothing: its reader reports it.
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
    """A walk over one file: `rows` and `size` were taken; with `is_full` the next one would be too many."""

    def __init__(self, most_rows: int, most_bytes: int, at_least_one: bool) -> None:
        self._most_rows, self._most_bytes, self._at_least_one = most_rows, most_bytes, at_least_one
        self.rows = self.size = 0
        self.is_full = False

    def over(self, segment: Segment, offset: int, limit: int) -> int:
        """Walk, and return the offset at which the walk ends."""
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
        """Take as many of the records in data[:size] as the limits allow; return their bytes."""
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
        """Take a record or a hole if the limits allow it; return its bytes, or 0."""
        fits = self.size + size <= self._most_bytes or self._at_least_one and not self.rows
        if self.rows >= self._most_rows or not fits:
            self.is_full = True
            return 0
        self.rows, self.size = self.rows + 1, self.size + size
        return size


def record_size(fd: int, span: ByteRange, offset: int) -> int:
    """Return the size of the record at `offset` if its lengths and offset are right and it ends before `span.limit`;
    otherwise 0. Its body is not read.
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
