"""Cutting commit logs into byte ranges for tasks, and the meaning of the options about offsets and times."""
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from rmqha.common.filesystem import NAME_LENGTH, Segment, pread
from rmqha.common.message.message_layout import MESSAGE_MAGIC_CODE, MessageDecodeError, decode_header
from rmqha.pipeline.format_options import Options, PipelineError, is_long, queue_id_of
from rmqha.pipeline.log.log_scan import ByteRange, LogFiles, VanishedError, find_record, open_file, whole_file
from rmqha.pipeline.table import RowFilter

DEFAULT_PARTITION_BYTES = 128 << 20
# Of a query; ranges are larger if there would be more. 100 TB in parts of 128 MiB would be 800,000.
MOST_PARTITIONS = 20_000
# The end of a file is never cut: after its blank may be leftovers of an earlier crash, which look like records.
UNCUT_END = 16 << 20
EARLIEST, LATEST = "earliest", "latest"
_HEAD = 128
_SPECIAL = {-2: EARLIEST, -1: LATEST}
_WANTED_OFFSETS = ("earliest, latest, an offset of the commit log, or JSON such as "
                   '{"TopicA": {"0": 23, "1": -2}} (-2: earliest, -1: latest)')
_WANTED_TIMES = 'JSON such as {"TopicA": {"0": 1700000000000}} (milliseconds)'


class LogPartition(InputPartition):
    """The work of one task: byte ranges of one log. It is small when pickled, because Spark's driver holds them all."""

    def __init__(self, log_name: str, ranges: Sequence[ByteRange]) -> None:
        super().__init__(log_name)
        self.log_name = log_name
        self.ranges = tuple(ranges)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder once, and numbers relative to the starts of the files."""
        folder = os.path.dirname(self.ranges[0].path) if self.ranges else ""
        numbers: list[int] = []
        for span in self.ranges:
            numbers += (span.file_start, span.begin - span.file_start, span.end - span.begin, span.limit - span.end,
                        span.aligned)
        return _unpacked, (self.log_name, folder, numbers)


def _unpacked(log_name: str, folder: str, numbers: Sequence[int]) -> LogPartition:
    found = []
    for number in range(0, len(numbers), 5):
        start, begin, length, behind, aligned = numbers[number:number + 5]
        end = start + begin + length
        path = os.path.join(folder, f"{start:0{NAME_LENGTH}d}")
        found.append(ByteRange(path, start, start + begin, end, end + behind, bool(aligned)))
    return LogPartition(log_name, found)


@dataclass
class Selection:
    """The selection that the options make: a filter on records, and the log offsets where reading begins and ends."""

    row_filter: RowFilter
    begin: int | None = None  # None: the first record
    end: int | None = None  # None: the last one
    from_latest: bool = False
    begin_time: int | None = None  # ms


def selection(options: Options, default_start: str = EARLIEST) -> Selection:
    """Return the selection made by `subscribe` and the like. PipelineError for wrong or contradicting values."""
    topics = options.words("subscribe", options.same("subscribe", "topic") or "")
    _check_contradictions(options)
    pattern = options.text("subscribePattern")
    if topics and pattern is not None:
        raise PipelineError(f"{options.where}: give subscribe or subscribePattern, not both")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise options.wrong("subscribePattern", f"a pattern ({error})") from None
    row_filter = RowFilter(frozenset(topics) if topics else None, pattern)
    row_filter.begin_time = options.integer("startingTimestamp")
    row_filter.end_time = options.integer("endingTimestamp")
    chosen = Selection(row_filter, begin_time=row_filter.begin_time)
    chosen.begin, latest = _offsets(options, "startingOffsets", row_filter.starting, default_start)
    chosen.from_latest = latest and not options.one_of("startingTimestamp", "startingOffsetsByTimestamp")
    chosen.end, _ = _offsets(options, "endingOffsets", row_filter.ending, LATEST)
    row_filter.starting_times = _times(options, "startingOffsetsByTimestamp")
    row_filter.ending_times = _times(options, "endingOffsetsByTimestamp")
    return chosen


def _check_contradictions(options: Options) -> None:
    """Allow offsets and times together, since both must hold, but not two options of which one selects everything."""
    begin, end = options.integer("startingTimestamp"), options.integer("endingTimestamp")
    if begin is not None and end is not None and begin > end:
        raise PipelineError(f"{options.where}: startingTimestamp={begin} is later than endingTimestamp={end}")
    for side in ("starting", "ending"):
        options.one_of(f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    if options.text("startingOffsets", "").lower() == LATEST:
        options.one_of("startingTimestamp", "startingOffsets")
        options.one_of("startingOffsetsByTimestamp", "startingOffsets")


def _times(options: Options, name: str) -> dict[str, dict[int, int]]:
    """Return topic -> queue id -> store time (ms) of a JSON option."""
    found: dict[str, dict[int, int]] = {}
    for topic, queues in (options.json(name, _WANTED_TIMES) if name in options else {}).items():
        if not isinstance(queues, dict):
            raise options.wrong(name, _WANTED_TIMES)
        for name_of_queue, time in queues.items():
            queue_id = queue_id_of(name_of_queue)
            if queue_id is None or not is_long(time, 0):
                raise options.wrong(name, _WANTED_TIMES)
            found.setdefault(topic, {})[queue_id] = time
    return found


def _offsets(options: Options, name: str, by_topic: dict[str, dict[int, int]], default: str) -> tuple[int | None, bool]:
    """Return (offset of the log or None, whether it means the end); offsets of queues are added to `by_topic`."""
    text = options.text(name, default)
    word = text.lower()
    if word == (LATEST if name == "endingOffsets" else EARLIEST):
        return None, False
    if word == LATEST:
        return None, True
    if text.isascii() and text.isdigit():
        return options.integer(name, 0), False
    by_topic.update(parse_queue_offsets(options, name))
    return None, False


def parse_queue_offsets(options: Options, name: str) -> dict[str, dict[int, int]]:
    """Return topic -> queue id -> offset of a JSON option, without earliest and latest where they mean everything."""
    found: dict[str, dict[int, int]] = {}
    neutral = -1 if name == "endingOffsets" else -2
    for topic, queues in options.json(name, _WANTED_OFFSETS).items():
        if not isinstance(queues, dict):
            raise options.wrong(name, _WANTED_OFFSETS)
        for name_of_queue, offset in queues.items():
            queue_id = queue_id_of(name_of_queue)
            if queue_id is None or not is_long(offset, -2):
                raise options.wrong(name, _WANTED_OFFSETS)
            if offset == -1 and neutral == -2 or offset == -2 and neutral == -1:
                raise options.wrong(name, f"possible here: {json.dumps(queues)} selects nothing of queue {queue_id}")
            if offset != neutral:
                found.setdefault(topic, {})[queue_id] = offset
    return found


def data_loss(message: str) -> PipelineError:
    """Return the error for messages that are lost."""
    return PipelineError(f"{message}. They may have been deleted by the broker. With failOnDataLoss=false the query "
                         "continues without them.")


def align(log: LogFiles, offset: int) -> int:
    """Return the offset of a log's first record that begins at or after `offset`; the next file's start if this file
    has none.
    """
    for segment in log.segments:
        if segment.start < offset < segment.end:
            fd = open_file(segment.path, offset)
            with open(fd, "rb", closefd=True):
                found = find_record(fd, whole_file(segment), offset, segment.end)
            return segment.end if found is None else found
    return offset


def ranges_of(log: LogFiles, begin: int, end: int, size: int, fail_on_data_loss: bool) -> list[ByteRange]:
    """Return ranges of about `size` bytes over [begin, end) of a log; records begin at `begin` and `end`.

    PipelineError if a file in between is missing, unless data loss is allowed.
    """
    found: list[ByteRange] = []
    position = begin
    for segment in log.segments:
        if segment.end <= begin or segment.start >= end:
            continue
        if segment.start > position and fail_on_data_loss:
            raise data_loss(f"{log.path}: offsets {position} to {segment.start} are missing, no file has them")
        found += _cut(segment, max(begin, segment.start), min(end, segment.end), end, size)
        position = segment.end
    if position < end and fail_on_data_loss:
        raise data_loss(f"{log.path}: offsets {position} to {end} are missing, no file has them")
    return found


def _cut(segment: Segment, begin: int, end: int, log_end: int, size: int) -> list[ByteRange]:
    # In the last file, no byte after the end of the log may be read.
    limit = min(segment.end, log_end)
    return [ByteRange(segment.path, segment.start, low, high, limit, low == begin)
            for low, high in cut(begin, end, size)]


def cut(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """Cut [begin, end) of a file into parts of `size` bytes; its end stays in one piece with the part before."""
    parts, position = [], begin
    while end - position > size + UNCUT_END:
        parts.append((position, position + size))
        position += size
    return [*parts, (position, end)]


def group(log: LogFiles, ranges: Sequence[ByteRange], size: int) -> list[LogPartition]:
    """Return partitions of about `size` bytes: small ranges are grouped."""
    partitions: list[LogPartition] = []
    taken: list[ByteRange] = []
    room = 0
    for span in ranges:
        length = span.end - span.begin
        if taken and room + length > size:
            partitions.append(LogPartition(log.name, taken))
            taken, room = [], 0
        taken.append(span)
        room += length
    if taken:
        partitions.append(LogPartition(log.name, taken))
    return partitions


def partition_size(options: Options, total: int) -> int:
    """Return the bytes of a partition: `maxPartitionBytes`, less if `minPartitions` requires more partitions, or more
    if there would be more than `maxPartitions`. PipelineError for contradictions.
    """
    size = options.size("maxPartitionBytes", DEFAULT_PARTITION_BYTES)
    least = options.integer("minPartitions", 1, 1)
    most = options.integer("maxPartitions", max(MOST_PARTITIONS, least), 1)
    if least > most:
        raise PipelineError(f"{options.where}: minPartitions={least} is more than maxPartitions={most}")
    if "maxPartitions" in options or "maxPartitionBytes" not in options:
        size = max(size, -(-total // most))
    return max(min(size, -(-total // least)), 1)


def first_store_time(segment: Segment) -> int | None:
    """Return the store time (ms) of a file's first record; None if it has none."""
    try:
        fd = open_file(segment.path, segment.start)
    except VanishedError:
        return None
    with open(fd, "rb", closefd=True):
        data = pread(fd, _HEAD, 0)
    try:
        head = decode_header(data)
    except MessageDecodeError:
        return None
    return head.store_timestamp if head.magic_code == MESSAGE_MAGIC_CODE else None


def from_time(log: LogFiles, begin_time: int | None) -> LogFiles:
    """Return the log from the last file whose first record is older than `begin_time` (ms): all before is too old."""
    if begin_time is None:
        return log
    first = 0
    for number, segment in enumerate(log.segments):
        stored = first_store_time(segment)
        if stored is not None and stored < begin_time:
            first = number
    return log._replace(segments=log.segments[first:])
