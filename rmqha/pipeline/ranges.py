"""Cutting commit logs into byte ranges for tasks, and what the options about offsets and times mean."""
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from rmqha.common.message.message_layout import MESSAGE_MAGIC_CODE, MessageDecodeError, decode_header
from rmqha.common.segment_files import Segment, pread
from rmqha.pipeline.log_files import LogFiles
from rmqha.pipeline.log_scan import ByteRange, VanishedError, find_record, open_file, whole_file
from rmqha.pipeline.options import Options, PipelineError
from rmqha.pipeline.row_filter import RowFilter

DEFAULT_PARTITION_BYTES = 128 << 20
# The end of a file is never cut: behind its blank may lie what an earlier crash left, which looks like records.
UNCUT_END = 16 << 20
EARLIEST, LATEST = "earliest", "latest"
_HEAD = 128
_SPECIAL = {-2: EARLIEST, -1: LATEST}
_WANTED_OFFSETS = ("earliest, latest, an offset of the commit log, or JSON such as "
                   '{"TopicA": {"0": 23, "1": -2}} (-2: earliest, -1: latest)')


class LogPartition(InputPartition):
    """What one task reads: byte ranges of one log."""

    def __init__(self, log_name: str, ranges: Sequence[ByteRange]) -> None:
        super().__init__((log_name, tuple(ranges)))
        self.log_name = log_name
        self.ranges = tuple(ranges)


@dataclass
class Selection:
    """What the options ask for: a filter on records, and offsets of the log where reading begins and ends."""

    row_filter: RowFilter
    begin: int | None = None  # None: the first record
    end: int | None = None  # None: the last one
    from_latest: bool = False
    begin_time: int | None = None  # ms


def selection(options: Options, default_start: str = EARLIEST) -> Selection:
    """Of the options `subscribe` and the like. PipelineError for wrong or contradicting values."""
    topics = options.words("subscribe", options.first("subscribe", "topic") or "")
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
    chosen.from_latest = latest and row_filter.begin_time is None
    chosen.end, _ = _offsets(options, "endingOffsets", row_filter.ending, LATEST)
    return chosen


def _offsets(options: Options, name: str, by_topic: dict[str, dict[int, int]], default: str) -> tuple[int | None, bool]:
    """(offset of the log or None, whether it means the end); offsets of queues go to `by_topic`."""
    text = options.text(name, default)
    word = text.lower()
    if word == (LATEST if name == "endingOffsets" else EARLIEST):
        return None, False
    if word == LATEST:
        return None, True
    if text.isascii() and text.isdigit():
        return int(text), False
    by_topic.update(parse_queue_offsets(options, name))
    return None, False


def parse_queue_offsets(options: Options, name: str) -> dict[str, dict[int, int]]:
    """topic -> queue id -> offset of a JSON option; earliest and latest are left out where they mean everything."""
    found: dict[str, dict[int, int]] = {}
    neutral = -1 if name == "endingOffsets" else -2
    for topic, queues in options.json(name, _WANTED_OFFSETS).items():
        if not isinstance(queues, dict):
            raise options.wrong(name, _WANTED_OFFSETS)
        for queue_id, offset in queues.items():
            if not queue_id.isdecimal() or not isinstance(offset, int) or offset < -2:
                raise options.wrong(name, _WANTED_OFFSETS)
            if offset == -1 and neutral == -2 or offset == -2 and neutral == -1:
                raise options.wrong(name, f"possible here: {json.dumps(queues)} leaves nothing of queue {queue_id}")
            if offset != neutral:
                found.setdefault(topic, {})[int(queue_id)] = offset
    return found


def data_loss(message: str) -> PipelineError:
    """The error for messages that are gone."""
    return PipelineError(f"{message}. They may have been deleted by the broker. With failOnDataLoss=false the query "
                         "goes on without them.")


def align(log: LogFiles, offset: int) -> int:
    """The offset of the first record of a log that begins at `offset` or behind it; the next file's where a file has
    none.
    """
    for segment in log.segments:
        if segment.start < offset < segment.end:
            fd = open_file(segment.path, offset)
            with open(fd, "rb", closefd=True):
                found = find_record(fd, whole_file(segment), offset, segment.end)
            return segment.end if found is None else found
    return offset


def ranges_of(log: LogFiles, begin: int, end: int, size: int, fail_on_data_loss: bool) -> list[ByteRange]:
    """Ranges of about `size` bytes over [begin, end) of a log; records begin at `begin` and `end`.

    PipelineError where a file is missing in between, unless data loss is allowed.
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
    # within the last file nothing behind the end of the log may be looked at
    limit = min(segment.end, log_end)
    return [ByteRange(segment.path, segment.start, low, high, limit, low == begin)
            for low, high in cut(begin, end, size)]


def cut(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """[begin, end) of a file in parts of `size` bytes; its end stays in one piece with the part before."""
    parts, position = [], begin
    while end - position > size + UNCUT_END:
        parts.append((position, position + size))
        position += size
    return [*parts, (position, end)]


def group(log: LogFiles, ranges: Sequence[ByteRange], size: int) -> list[LogPartition]:
    """Partitions of about `size` bytes: small ranges go together."""
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
    """Bytes of a partition: `maxPartitionBytes`, or less when `minPartitions` asks for more partitions."""
    size = options.size("maxPartitionBytes", DEFAULT_PARTITION_BYTES)
    wanted = options.integer("minPartitions", 1, 1)
    return max(min(size, -(-total // wanted)), 1)


def first_store_time(segment: Segment) -> int | None:
    """Store time (ms) of the first record of a file; None when it has none."""
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
    """The log from the last file on whose first record is older than `begin_time` (ms): all before it is too old."""
    if begin_time is None:
        return log
    first = 0
    for number, segment in enumerate(log.segments):
        stored = first_store_time(segment)
        if stored is not None and stored < begin_time:
            first = number
    return log._replace(segments=log.segments[first:])
