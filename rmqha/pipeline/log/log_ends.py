"""The end of a commit log; the identity of a log in a stream, and the stream's position in it.

Finding the end. `log_end` follows the chain of records through the last file. Bytes that a crash left after the end
look like records too, so neither bisecting a file nor reading its last bytes would find the end. All but the last
blocks are walked without CRC checks, which takes 0.25 s per GiB in the page cache; the logs of many stores are walked
in tasks. If the store's index is next to the log, the walk begins at a record near the end that the newest index file
names (40 bytes of that file are read).

Identity of a log. A stream must find each of its logs again after a restart, and must notice when it does not have the
same log in front of it. A path does not identify a log: the store may be mounted elsewhere now, and the same folder may
hold another broker's log or one that was truncated after a crash. With the path alone, a stream would then resume at an
offset in the middle of other records, and silently lose or repeat messages. But bytes of a log, once written, never
change until the broker deletes the file or a crash truncates the log. So the stream stores hashes of bytes that it has
read, and compares them before it reads on:

    head    the first bytes of the file that holds the last byte read: the log's identity. If nothing has been read yet,
            the head of the first record. Null for a log without records, which only its path identifies
    tail    the last bytes read, unless a file ends there (see `tail_of`). If they have changed, the log was truncated
            and rewritten: records that the stream delivered are no longer in it, which is data loss

Several logs can match: a master and its slave have the same bytes. So `recognise` first takes the log at the stored
path if its head is right, then a log at another path, and last the stored path if there is nothing to compare (the
file with the head was deleted). Apart from reading these bytes, this part does no I/O.

Spark keeps the offset of a stream in its checkpoint:

    {"version": 2, "logs": {id: {"path": folder, "begin": where the batch begins, "offset": where it ends,
                                 "head": [offset, bytes, hash] or null, "tail": the same}}}

Version 1, {"logs": {folder: offset}}, is read as well. `begin` is included because Spark does not keep where the first
batch of a query began: it asks again when the batch must be repeated, and by then the answer may be different.
"""
import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rmqha.common.filesystem import Segment, pread, read_at
from rmqha.common.message.message_layout import (
    BLANK,
    HEAD_LENGTH,
    HEADS,
    LENGTHS_SIZE,
    MAX_HEAD_LENGTH,
    decode_header,
    decode_parts,
)
from rmqha.pipeline.format_options import PipelineError, is_long
from rmqha.pipeline.log.log_scan import (
    BLOCK,
    COMMIT_LOG,
    LONG_RECORD,
    ROW,
    ByteRange,
    LogFiles,
    VanishedError,
    find_record,
    is_record,
    needed_bytes,
    open_file,
    record_size,
    size_at,
    whole_file,
)
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Stop
from rmqha.store.index.index_layout import HEADER as INDEX_HEADER

_INDEX = "index"
# Digits: the time of creation.
_INDEX_NAME_LENGTH = 17
# Of a walk: usually little is new.
_FIRST_BLOCK = 64 << 10


def log_end(log: LogFiles, begin: int | None = None, behind_unwritten: bool = True) -> int:
    """Return the offset after the last whole record of a log. The search begins at the last file that begins with a
    record, or at the record at `begin` if that is further.

    A broker may be writing: a record counts once it is whole. With `behind_unwritten` false, the log ends at the first
    bytes that were never written, and records after those are not searched for: this search takes long if the rest of
    the file is not sparse.
    """
    begin = max(begin or 0, _indexed_record(log) or 0) or None
    for segment in reversed(log.segments):
        start = segment.start
        if begin is not None and segment.start <= begin <= segment.end:
            start = begin
        if start == segment.end:
            return start
        end = file_end(segment, start, behind_unwritten)
        if end > segment.start or start > segment.start:
            return end
    return log.min_offset


def has_grown(log: LogFiles, end: int) -> bool:
    """Return whether anything was written after `end`, the previous end of the log."""
    last = log.segments[-1] if log.segments else None
    if last is None or not last.start <= end < last.end:
        return last is not None and end < last.end
    return any(read_at(last.path, end - last.start, BLANK.size))


def _indexed_record(log: LogFiles) -> int | None:
    """Return the offset of a record near the end of a log, from the store's index; None if the index names none."""
    store, name = os.path.split(log.path)
    folder = os.path.join(store, _INDEX)
    if name != COMMIT_LOG or not log.segments or not os.path.isdir(folder):
        return None
    names = sorted(name for name in os.listdir(folder) if name.isdigit() and len(name) == _INDEX_NAME_LENGTH)
    # The newest may have no entries yet.
    for name in reversed(names[-2:]):
        header = read_at(os.path.join(folder, name), 0, INDEX_HEADER.size)
        offset = INDEX_HEADER.unpack(header)[3] if len(header) == INDEX_HEADER.size else 0
        for segment in log.segments:
            if segment.start < offset < segment.end:
                with open(open_file(segment.path, offset), "rb") as file:
                    return offset if is_record(file.fileno(), whole_file(segment), offset) else None
    return None


def file_end(segment: Segment, begin: int, behind_unwritten: bool = True) -> int:
    """Return the offset after the last whole record of a file, from the record at `begin` on. A blank extends to the
    end of the file.
    """
    span = whole_file(segment)._replace(begin=begin)
    fd = open_file(segment.path, begin)
    with open(fd, "rb"):
        late = _late_record(fd, span)
        return segment.end if late is None else _Walk(fd, span, late, behind_unwritten).end()


def _late_record(fd: int, span: ByteRange) -> int | None:
    """Return the offset of a whole record, one of the last that a walk without CRC checks reaches; None if the walk
    reaches a blank.
    """
    position, starts, want = span.begin, [span.begin], _FIRST_BLOCK
    while position < span.end:
        data = pread(fd, min(want, span.limit - position), position - span.file_start)
        found = bulk.walk(data, 0, len(data), False, position)
        if found.stop is Stop.BLANK:
            return None
        if not found.position and (found.stop is not Stop.TRUNCATED or want == BLOCK):
            break
        want = min(4 * want, BLOCK) if found.position else BLOCK
        position += found.position
        starts.append(position)
        if found.stop not in (Stop.END, Stop.TRUNCATED):
            break
    return next((start for start in reversed(starts) if is_record(fd, span, start)), span.begin)


class _Walk:
    """A walk that checks CRCs and skips holes, to find the end of the last record that counts."""

    def __init__(self, fd: int, span: ByteRange, begin: int, behind_unwritten: bool) -> None:
        self._fd, self._span, self._position = fd, span, begin
        self._behind_unwritten = behind_unwritten
        # Store time of the last record, ms.
        self._seen = 0
        # Bytes of the last record, and of those before it that do not count unless another follows.
        self._last = 0
        # Whether the last record's final bytes are written: no CRC covers its properties, and none of their bytes is 0.
        self._is_finished = True

    def end(self) -> int:
        """Return where the log ends."""
        span, want = self._span, _FIRST_BLOCK
        while self._position < span.end:
            size = min(want, span.limit - self._position)
            data = pread(self._fd, size, self._position - span.file_start)
            found = bulk.scan(data, 0, len(data), self._position, True)
            want = min(4 * want, BLOCK)
            if found.count:
                row = np.frombuffer(found.records, ROW)[-1]
                self._take(data[int(row["offset"]) - self._position:found.position], int(row["storeTime"]))
                self._position += found.position
                continue
            if found.stop is Stop.BLANK:
                return span.limit
            needed = needed_bytes(data, span.limit - self._position) if found.stop is Stop.TRUNCATED else 0
            if len(data) == size < needed <= LONG_RECORD:
                want = needed + BLOCK
            elif whole := size_at(self._fd, span, self._position):
                self._step_over(whole)
            elif wrong := record_size(self._fd, span, self._position):
                self._step_over_wrong(wrong)
            elif found.stop is Stop.UNWRITTEN and not self._behind_unwritten or not self._next(data):
                break
        return self._position if self._is_finished else self._position - self._last

    def _take(self, record: bytes, stored: int) -> None:
        """Note that a record was read."""
        self._seen, self._last = stored, len(record)
        self._is_finished = record[-1] != 0 or decode_parts(record).properties_length == 0

    def _step_over(self, size: int) -> None:
        """Skip a whole record that only the single-record path accepts, or a long one, which is not read."""
        place = self._position - self._span.file_start
        head = decode_header(pread(self._fd, MAX_HEAD_LENGTH, place))
        topic_at = HEADS[head.sys_flag >> 4 & 3].size + head.body_length
        without_properties = topic_at + LENGTHS_SIZE + pread(self._fd, 1, place + topic_at)[0]
        self._is_finished = size == without_properties or pread(self._fd, 1, place + size - 1) != b"\0"
        self._last = size
        self._position += size

    def _step_over_wrong(self, size: int) -> None:
        """Skip a record with a wrong CRC. It counts if something follows it; otherwise it may still be being written.
        """
        self._last = size if self._is_finished else self._last + size
        self._is_finished = False
        self._position += size

    def _next(self, data: bytes) -> bool:
        """Skip a hole, to the next record that was stored later than the last one; return False without one."""
        following = find_record(self._fd, self._span, self._position + 1, self._span.limit,
                                max(self._seen, 1)) if data else None
        if following is not None:
            self._position, self._last, self._is_finished = following, 0, True
        return following is not None


VERSION = 2
HEAD_BYTES, TAIL_BYTES = 4096, 512
_DIGEST_BYTES = 8

# A stream's offset as its reader returns it and Spark keeps it.
Offset = dict[str, Any]


class Anchor(NamedTuple):
    """Bytes of a log that must not change: their offset, their number, and their hash."""

    offset: int
    size: int
    digest: str


class KnownLog(NamedTuple):
    """The position of a stream in one log. `begin`: where the batch that ends at `offset` begins; None if not stored.
    """

    path: str
    begin: int | None
    offset: int
    head: Anchor | None = None
    tail: Anchor | None = None


class Recognised(NamedTuple):
    """The logs of a stream: those found, by id; new ones; and the reasons why others are missing, by id."""

    here: dict[str, LogFiles]
    new: list[LogFiles]
    missing: dict[str, str]


def decode(offset: Offset) -> dict[str, KnownLog]:
    """Return the logs of an offset by id. PipelineError if the offset does not have this format."""
    try:
        version, logs = offset["version"], offset["logs"]
        if version == 1:
            return {f"path:{path}": KnownLog(path, None, _number(taken)) for path, taken in logs.items()}
        if version == VERSION:
            return {str(name): _decode_log(each) for name, each in logs.items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"the checkpoint's offset is damaged ({type(error).__name__} {error}): "
                            f"{offset!s:.1000}") from error
    raise PipelineError(f"the checkpoint's offset has version {version!r:.100}; this release reads 1 and {VERSION}")


def _decode_log(each: Mapping[str, Any]) -> KnownLog:
    begin = each["begin"]
    return KnownLog(str(each["path"]), None if begin is None else _number(begin), _number(each["offset"]),
                    _decode_anchor(each["head"]), _decode_anchor(each["tail"]))


def _decode_anchor(value: Any) -> Anchor | None:
    if value is None:
        return None
    offset, size, digest = value
    return Anchor(_number(offset), _number(size), str(digest))


def _number(value: Any) -> int:
    if not is_long(value, 0):
        raise ValueError(f"{value!r:.100} is not an offset")
    return int(value)


def encode(logs: Mapping[str, KnownLog]) -> Offset:
    """Return the offset that holds these logs."""
    return {"version": VERSION, "logs": {
        name: {"path": each.path, "begin": each.begin, "offset": each.offset,
               "head": None if each.head is None else list(each.head),
               "tail": None if each.tail is None else list(each.tail)} for name, each in logs.items()}}


def segment_with(log: LogFiles, offset: int) -> Segment | None:
    """Return the file that contains the byte at `offset`."""
    number = bisect_right(log.segments, offset, key=lambda segment: segment.start) - 1
    return log.segments[number] if number >= 0 and offset < log.segments[number].end else None


def anchor_at(log: LogFiles, offset: int, size: int) -> Anchor | None:
    """Return an anchor of bytes within one file; None if the bytes do not exist or are all zeros."""
    data = _read(log, offset, size)
    return Anchor(offset, size, _digest(data)) if data.strip(b"\0") else None


def head_of(log: LogFiles, offset: int) -> Anchor | None:
    """Return the head of a log that was read up to `offset`."""
    segment = segment_with(log, offset - 1) if offset > log.min_offset else None
    if segment is not None:
        return anchor_at(log, segment.start, min(HEAD_BYTES, offset - segment.start))
    segment = segment_with(log, log.min_offset)
    return anchor_at(log, segment.start, HEAD_LENGTH) if segment is not None and _has_record(segment) else None


def _has_record(segment: Segment) -> bool:
    """Return whether the file begins with a whole record."""
    try:
        fd = open_file(segment.path, segment.start)
    except VanishedError:
        return False
    with open(fd, "rb", closefd=True):
        return is_record(fd, whole_file(segment), segment.start)


def tail_of(log: LogFiles, offset: int) -> Anchor | None:
    """Return the tail of a log that was read up to `offset`. None if a file ends there: the bytes before may be a
    blank, which a broker may still be writing.
    """
    segment = segment_with(log, offset)
    size = 0 if segment is None else min(TAIL_BYTES, offset - segment.start)
    return anchor_at(log, offset - size, size) if size else None


def has(log: LogFiles, anchor: Anchor) -> bool | None:
    """Return whether a log has these bytes; None if the file that held them was deleted."""
    data = _read(log, anchor.offset, anchor.size)
    if not data:
        return False if log.segments and anchor.offset >= log.files_end else None
    return _digest(data) == anchor.digest


def _read(log: LogFiles, offset: int, size: int) -> bytes:
    """Return bytes of one file; fewer at its end, b"" if it has vanished."""
    segment = segment_with(log, offset)
    return b"" if segment is None else read_at(segment.path, offset - segment.start, size)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def recognise(known: Mapping[str, KnownLog], found: Iterable[LogFiles]) -> Recognised:
    """Match the found logs with the known ones: first the same path with the right bytes, then other paths with them,
    and last the same path if there is nothing left to compare.
    """
    here: dict[str, LogFiles] = {}
    left = {log.path: log for log in found}

    def claim(is_it: Callable[[str, KnownLog], LogFiles | None]) -> None:
        for name, each in known.items():
            if name not in here and (log := is_it(name, each)) is not None:
                here[name] = left.pop(log.path)

    def at_its_path(wanted: bool | None) -> Callable[[str, KnownLog], LogFiles | None]:
        def is_it(_name: str, each: KnownLog) -> LogFiles | None:
            log = left.get(each.path)
            return log if log is not None and _is(log, each) is wanted else None
        return is_it

    claim(at_its_path(True))
    claim(lambda _name, each: next((log for log in left.values() if _is(log, each) is True), None))
    claim(at_its_path(None))
    missing = {name: _why_missing(each, left.get(each.path)) for name, each in known.items() if name not in here}
    return Recognised(here, list(left.values()), missing)


def _is(log: LogFiles, known: KnownLog) -> bool | None:
    """Return whether this is the known log; None if nothing can be compared."""
    return None if known.head is None else has(log, known.head)


def _why_missing(known: KnownLog, other: LogFiles | None) -> str:
    what = (f"{known.path}: the log that the stream has read up to offset {known.offset} no longer exists there or "
            "under any other of the paths given")
    return what if other is None else f"{what}; a different log is there now, or this one was truncated"


def new_name(log: LogFiles, head: Anchor | None, taken: Iterable[str]) -> str:
    """Return an id for a log: made from its bytes, or from its path while it has none."""
    first = f"path:{log.path}" if head is None else head.digest
    names, number = set(taken), 1
    name = first
    while name in names:
        number += 1
        name = f"{first}.{number}"
    return name
