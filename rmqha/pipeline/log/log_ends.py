"""Where logs end: behind the last whole record. Found by following the chain of records through the last file.

The chain tells nothing but by walking it: what a crash left behind the end of a log looks like records, too, so neither
halving a file nor looking at its end would do. All but the last blocks are walked without checking CRCs, which takes
0.25 s for a GiB in the cache; the logs of many stores are looked at in tasks (`log_ends`). Where the store's index lies
beside the log, its newest file tells a record near the end (40 bytes are read of it), and the walk begins there.
"""
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqha.common.filesystem import Segment, pread, read_at
from rmqha.common.message.message_layout import (
    BLANK,
    HEADS,
    LENGTHS_SIZE,
    MAX_HEAD_LENGTH,
    decode_header,
    decode_parts,
)
from rmqha.pipeline.at_once import at_once
from rmqha.pipeline.log.log_files import COMMIT_LOG, LogFiles
from rmqha.pipeline.log.log_scan import (
    BLOCK,
    LONG_RECORD,
    ROW,
    ByteRange,
    find_record,
    is_record,
    needed_bytes,
    open_file,
    size_at,
    whole_file,
)
from rmqha.pipeline.log.log_walk import record_size
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Stop
from rmqha.store.index.index_layout import HEADER as INDEX_HEADER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_INDEX = "index"
_INDEX_NAME_LENGTH = 17  # digits: a time
_FIRST_BLOCK = 64 << 10  # of a walk: mostly little is new


class _Wanted(NamedTuple):
    log: LogFiles
    begin: int | None


def log_ends(spark: "SparkSession | None", logs: Sequence[LogFiles],
             begins: Sequence[int | None] | None = None) -> list[int]:
    """`log_end` of each log, from its begin on if there are any: all at once, in tasks where there is a session, else
    in threads.
    """
    wanted = [_Wanted(*each) for each in zip(logs, begins or [None] * len(logs), strict=True)]
    if spark is None or len(wanted) < 2:
        return at_once(_end_of, wanted)
    from rmqha.pipeline.tasks import run_tasks
    return run_tasks(spark, _end_of, wanted)


def _end_of(wanted: _Wanted) -> int:
    return log_end(*wanted)


def log_end(log: LogFiles, begin: int | None = None, behind_unwritten: bool = True) -> int:
    """Offset behind the last whole record of a log, looked for from the last file that begins with one, or from the
    record at `begin` on, if that is further.

    A broker may be writing: a record counts once it is whole. With `behind_unwritten` false the log ends where nothing
    was written yet, and nobody looks for records behind that, which takes long where such a rest of a file is no hole.
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
    """Whether something was written behind what was the end of a log."""
    last = log.segments[-1] if log.segments else None
    if last is None or not last.start <= end < last.end:
        return last is not None and end < last.end
    return any(read_at(last.path, end - last.start, BLANK.size))


def _indexed_record(log: LogFiles) -> int | None:
    """A record near the end of a log, as the store's index has it; None when that tells none."""
    store, name = os.path.split(log.path)
    folder = os.path.join(store, _INDEX)
    if name != COMMIT_LOG or not log.segments or not os.path.isdir(folder):
        return None
    names = sorted(name for name in os.listdir(folder) if name.isdigit() and len(name) == _INDEX_NAME_LENGTH)
    for name in reversed(names[-2:]):  # the newest may have no entries yet
        header = read_at(os.path.join(folder, name), 0, INDEX_HEADER.size)
        offset = INDEX_HEADER.unpack(header)[3] if len(header) == INDEX_HEADER.size else 0
        for segment in log.segments:
            if segment.start < offset < segment.end:
                with open(open_file(segment.path, offset), "rb") as file:
                    return offset if is_record(file.fileno(), whole_file(segment), offset) else None
    return None


def file_end(segment: Segment, begin: int, behind_unwritten: bool = True) -> int:
    """Offset behind the last whole record of a file from the one at `begin` on; the file's end behind a blank."""
    span = whole_file(segment)._replace(begin=begin)
    fd = open_file(segment.path, begin)
    with open(fd, "rb"):
        late = _late_record(fd, span)
        return segment.end if late is None else _Walk(fd, span, late, behind_unwritten).end()


def _late_record(fd: int, span: ByteRange) -> int | None:
    """A whole record, one of the last that are to be reached without a look at CRCs; None when a blank is reached."""
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
    """A walk that checks CRCs, goes over holes, and tells where the last record ends that counts."""

    def __init__(self, fd: int, span: ByteRange, begin: int, behind_unwritten: bool) -> None:
        self._fd, self._span, self._position = fd, span, begin
        self._behind_unwritten = behind_unwritten
        self._seen = 0  # store time of the last record, ms
        self._last = 0  # bytes of the last record, and of those before it that do not count without one behind them
        self._is_finished = True  # whether its last bytes are there: of its properties, which no CRC covers, none is 0

    def end(self) -> int:
        """Where the log ends."""
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
        """A record has been read."""
        self._seen, self._last = stored, len(record)
        self._is_finished = record[-1] != 0 or decode_parts(record).properties_length == 0

    def _step_over(self, size: int) -> None:
        """Over a whole record that only the single-record path takes, or a long one, which is not read."""
        place = self._position - self._span.file_start
        head = decode_header(pread(self._fd, MAX_HEAD_LENGTH, place))
        topic_at = HEADS[head.sys_flag >> 4 & 3].size + head.body_length
        without_properties = topic_at + LENGTHS_SIZE + pread(self._fd, 1, place + topic_at)[0]
        self._is_finished = size == without_properties or pread(self._fd, 1, place + size - 1) != b"\0"
        self._last = size
        self._position += size

    def _step_over_wrong(self, size: int) -> None:
        """Over a record with a wrong CRC: it counts when something follows it, else it may just be being written."""
        self._last = size if self._is_finished else self._last + size
        self._is_finished = False
        self._position += size

    def _next(self, data: bytes) -> bool:
        """Over a hole to the next record that was stored later than the last one; False when there is none."""
        following = find_record(self._fd, self._span, self._position + 1, self._span.limit,
                                max(self._seen, 1)) if data else None
        if following is not None:
            self._position, self._last, self._is_finished = following, 0, True
        return following is not None
