"""The format `rocketmq-commitlog` as a stream: the records that a broker, or replication to a slave, adds to the log.

A stream's offset holds, for each log, the offset after the last record read, so each record is in exactly one batch.
Spark's checkpoint keeps it. See `log_ends` for how a log is identified.

A planned batch must give the same rows each time Spark runs it: after a crash Spark repeats the last batch of the
checkpoint, and a sink that is exactly-once relies on that. So `latestOffset` fixes both ends of a batch in every log
before anything is read, at boundaries of records (or holes); `partitions` only cuts what is between them. A record that
the broker is still writing is after the end, and belongs to the next batch. Records that were delivered and then
replaced (the log was truncated) cannot be taken back: the query stops with an error, unless failOnDataLoss is false.
"""
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.log import log_ends, ranges
from rmqha.pipeline.log.log_ends import Anchor, KnownLog, Offset, has_grown, log_end
from rmqha.pipeline.log.log_scan import UNLIMITED, LogFiles, Walked, find_logs, walk_on, wanted_paths
from rmqha.pipeline.log.range_reader import RangeReader, log
from rmqha.pipeline.log.ranges import LogPartition
from rmqha.pipeline.streams import at_once, lag_metrics
from rmqha.pipeline.trigger_delay import TriggerDelay
from rmqha.pipeline.worker import briefly, shares

# How much of the backlog is read to count its messages for a batch's progress: in all logs, and in each at least.
_COUNTED_BYTES, _LEAST_COUNTED_BYTES = 64 << 20, 64 << 10
# How often records after unwritten bytes are searched for: no broker leaves such bytes in a log that grows.
_LOOK_BEHIND_S = 60.0
# Bytes, if no better estimate is known.
_USUAL_RECORD = 1024


class _Seen(NamedTuple):
    """The part of a log already seen: its end, the last bytes there, and when records after it were last searched for
    (monotonic s).
    """

    end: int
    tail: Anchor | None
    looked: float


class Span(NamedTuple):
    """The part of a log that a batch may read: [begin, end)."""

    log: LogFiles
    begin: int
    end: int


class CommitLogStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Its offsets are those of `log_ends`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self.selection = ranges.selection(options, ranges.LATEST if "startingTimestamp" not in options
                                          else ranges.EARLIEST)
        self.row_filter = self.selection.row_filter
        self._delay = TriggerDelay(options)
        self._max_bytes = options.size("maxBytesPerTrigger", 0) or None
        # For Trigger.AvailableNow: the ends when the query began, by path.
        self._stop_at: dict[str, int] | None = None
        self._ends: dict[str, _Seen] = {}
        # The backlog after the batch planned last.
        self._left: dict[str, Span] = {}
        self._warned: set[str] = set()

    @briefly
    def initialOffset(self) -> Offset:  # Spark's name
        """Return where a new query begins: at the end, unless the options say otherwise."""
        found: dict[str, KnownLog] = {}
        for each, begin in self._begins(find_logs(wanted_paths(self.options), self.options.text("brokerName"))):
            _add(found, each, begin)
        return log_ends.encode(found)

    def _begins(self, logs: Sequence[LogFiles]) -> list[tuple[LogFiles, int]]:
        """Return where to begin in logs that the stream does not know yet."""
        return at_once(lambda each: (each, self._first(each)), logs)

    def _first(self, each: LogFiles) -> int:
        if self.selection.from_latest:
            return log_end(each)
        if self.selection.begin is not None:
            return ranges.align(each, self.selection.begin)
        return ranges.from_time(each, self.row_filter.begin_time).min_offset

    def prepareForTriggerAvailableNow(self) -> None:  # Spark's name
        """Remember the current ends: the query stops there."""
        logs = find_logs(wanted_paths(self.options), self.options.text("brokerName"), [])
        self._stop_at = dict(at_once(lambda each: (each.path, log_end(each)), logs))

    def getDefaultReadLimit(self) -> ReadLimit:  # Spark's name
        """Return the first that is given of maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger."""
        limit = self._delay.limit
        return ReadMaxBytes(self._max_bytes) if self._max_bytes and isinstance(limit, ReadAllAvailable) else limit

    @briefly
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # Spark's name
        """Return where the next batch ends: at `start` if so little is new that it can wait."""
        known = log_ends.decode(start)
        logs = self._recognised(known)
        spans = dict(at_once(lambda item: (item[0], self._span(item[0], item[1], known[item[0]])), logs.here.items()))
        after = {name: each._replace(begin=each.offset) for name, each in known.items()
                 if name in spans or not _is_replaced(each, logs)}
        for each, begin in self._begins(logs.new):
            name = _add(after, each, begin)
            spans[name] = Span(each, begin, self._end(name, each, begin))
        if self._stop_at is None and self._delay.holds_back(self._waiting(spans), limit):
            ends = {name: span.begin for name, span in spans.items()}
        else:
            ends = batch_ends(spans, *self._limits(limit))
        self._left = {name: Span(span.log, ends[name], span.end) for name, span in spans.items()}
        moved = at_once(lambda name: (name, _moved(after[name], spans[name], ends[name])), spans)
        after |= dict(moved)
        if all(_is_same(known.get(name), each) for name, each in after.items()) and len(after) == len(known):
            return start
        return log_ends.encode(after)

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Return (rows, bytes) that a batch may have."""
        if isinstance(limit, ReadAllAvailable) and self.getDefaultReadLimit() != limit:
            # Spark asks for everything available.
            return UNLIMITED, UNLIMITED
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else UNLIMITED
        return rows, UNLIMITED if self._max_bytes is None else self._max_bytes

    def _waiting(self, spans: Mapping[str, Span]) -> int:
        """Return how many messages wait; counting stops at minOffsetsPerTrigger."""
        found, wanted = 0, self._delay.min_rows or 0
        for span in spans.values():
            if found < wanted:
                found += walk_on(span.log, span.begin, span.end, wanted - found).rows
        return found

    def _recognised(self, known: Mapping[str, KnownLog]) -> log_ends.Recognised:
        """Return the logs found. PipelineError if known ones are missing, unless data loss is allowed."""
        errors: list[PipelineError] = []
        found = find_logs(wanted_paths(self.options), self.options.text("brokerName"), errors)
        logs = log_ends.recognise(known, found)
        for name, reason in logs.missing.items():
            if self.fail_on_data_loss:
                raise PipelineError(f"{reason}. With failOnDataLoss=false the query continues without it, and a log "
                                    "that it does not know begins where startingOffsets says.")
            self._warn_once(name, reason)
        for error in errors:
            if self.fail_on_data_loss or not known:
                raise error
            self._warn_once(str(error), str(error))
        return logs

    def _warn_once(self, key: str, reason: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s: leaving it out", reason)

    def _span(self, name: str, each: LogFiles, known: KnownLog) -> Span:
        begin = self._go_on(each, known)
        return Span(each, begin, max(begin, self._end(name, each, begin)))

    def _go_on(self, each: LogFiles, known: KnownLog) -> int:
        """Return where the stream resumes in a log: where it stopped. PipelineError if records are lost, unless that is
        allowed; then at the next record.
        """
        reason = None
        if known.offset and not each.segments:
            reason, begin = f"{each.path} has no files any more, the stream has read up to {known.offset}", known.offset
        elif known.offset < each.min_offset:
            reason = f"{each.path} begins at offset {each.min_offset}, the stream has read up to {known.offset}"
            begin = each.min_offset
        elif known.offset > each.files_end:
            reason = (f"{each.path} ends at offset {each.files_end}, the stream has read up to {known.offset}: it is "
                      "another log, or was truncated")
            begin = log_end(each)
        elif known.tail is not None and log_ends.has(each, known.tail) is False:
            taken = known.tail.offset + known.tail.size
            reason = (f"{each.path} was truncated and rewritten before offset {taken}, up to which the stream has "
                      "read: records that it delivered are no longer in the log")
            begin = min(ranges.align(each, known.offset), log_end(each))
        else:
            return known.offset
        if self.fail_on_data_loss:
            raise ranges.data_loss(reason)
        self._warn_once(reason, reason)
        return begin

    def _end(self, name: str, each: LogFiles, begin: int) -> int:
        """Return how far a log may be read. A part already seen is not searched again."""
        if self._stop_at is not None:
            end = self._stop_at.get(each.path, begin)
        else:
            end = self._grown_end(name, each, begin)
        if self.selection.end is not None:
            end = min(end, ranges.align(each, self.selection.end))
        return max(begin, end)

    def _grown_end(self, name: str, each: LogFiles, begin: int) -> int:
        now = time.monotonic()
        seen = self._ends.get(name)
        if seen is not None and seen.tail is not None and log_ends.has(each, seen.tail) is not True:
            # It was truncated meanwhile.
            seen = None
        if seen is None:
            seen = _Seen(log_end(each, begin), None, now)
        elif now - seen.looked >= _LOOK_BEHIND_S:
            seen = _Seen(log_end(each, max(begin, seen.end)), None, now)
        elif has_grown(each, seen.end):
            seen = _Seen(log_end(each, max(begin, seen.end), behind_unwritten=False), None, seen.looked)
        if seen.tail is None:
            seen = seen._replace(tail=log_ends.tail_of(each, seen.end))
        self._ends[name] = seen
        return seen.end

    @briefly
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return byte ranges from one offset to another."""
        if start == end:
            # Spark reads nothing then; `begin` would be that of the previous batch.
            return []
        before, after = log_ends.decode(start), log_ends.decode(end)
        logs = self._recognised(after).here
        spans = []
        for name, each in logs.items():
            begin, stop = after[name].begin, after[name].offset
            if begin is None:
                begin = before[name].offset if name in before else each.min_offset
            if stop > begin:
                spans.append(Span(each, self._go_on(each, after[name]._replace(offset=begin)), stop))
        size = ranges.partition_size(self.options, sum(max(span.end - span.begin, 0) for span in spans))
        found: list[LogPartition] = []
        for span in spans:
            if span.end > span.begin:
                cut = ranges.ranges_of(span.log, span.begin, span.end, size, self.fail_on_data_loss)
                found += ranges.group(span.log, cut, size)
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:  # Spark's name
        """Return the ends of the logs when the batch was planned, and the backlog, for the progress that Spark
        reports.
        """
        if not self._left:
            return None
        most = max(_COUNTED_BYTES // len(self._left), _LEAST_COUNTED_BYTES)
        behind = at_once(lambda span: rows_behind(span, most), self._left.values())
        ends = {name: {"path": span.log.path, "offset": span.end} for name, span in self._left.items()}
        return {"version": log_ends.VERSION, "logs": ends, "metrics": lag_metrics(
            [rows for rows, _ in behind], sum(max(span.end - span.begin, 0) for span in self._left.values()),
            not all(is_counted for _, is_counted in behind))}

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark's checkpoint keeps the offset."""
        log.debug("read up to %s", end)

    def stop(self) -> None:
        """Forget where to stop. Nothing stays open between calls."""
        self._stop_at = None


def _add(logs: dict[str, KnownLog], each: LogFiles, begin: int) -> str:
    """Add a log that begins at `begin`, and return its id."""
    head = log_ends.head_of(each, begin)
    name = log_ends.new_name(each, head, logs)
    logs[name] = KnownLog(each.path, begin, begin, head, log_ends.tail_of(each, begin))
    return name


def _is_replaced(each: KnownLog, logs: log_ends.Recognised) -> bool:
    """Return whether another log is at this one's path: then this one does not come back."""
    return any(new.path == each.path for new in logs.new)


def _moved(known: KnownLog, span: Span, end: int) -> KnownLog:
    """Return a log's position after a batch that reads from the span's begin to `end`."""
    if end == span.begin == known.offset and known.head is not None:
        return known._replace(path=span.log.path)
    head = known.head
    if head is None or log_ends.segment_with(span.log, head.offset) is not log_ends.segment_with(span.log, end - 1):
        head = log_ends.head_of(span.log, end) or head
    return KnownLog(span.log.path, span.begin, end, head, log_ends.tail_of(span.log, end) or known.tail)


def _is_same(known: KnownLog | None, after: KnownLog) -> bool:
    """Return whether the checkpoint needs no new entry."""
    return known is not None and (known.path, known.offset, known.head is None) == (after.path, after.offset,
                                                                                   after.head is None)


def batch_ends(spans: Mapping[str, Span], rows: int, size: int) -> dict[str, int]:
    """Return where a batch with at most `rows` rows and `size` bytes ends in each log. Each log gets a share in
    proportion to its backlog. At least one record or hole is taken.
    """
    backlog = {name: span.end - span.begin for name, span in spans.items()}
    if rows == UNLIMITED and sum(backlog.values()) <= size:
        return {name: span.end for name, span in spans.items()}
    of_rows, of_bytes = shares(backlog, rows), shares(backlog, size)
    taken = dict(at_once(lambda name: (name, _walk(spans[name], of_rows[name] if rows < UNLIMITED else rows,
                                                   of_bytes[name])), spans))
    of_all = sum(each.size for each in taken.values())
    rows, size = rows - sum(each.rows for each in taken.values()), size - of_all
    # Logs with more to read get what the others did not need.
    for name, span in spans.items():
        if taken[name].offset < span.end and rows > 0 and size > 0:
            more = _walk(span._replace(begin=taken[name].offset), rows, size)
            taken[name] = more
            rows, size, of_all = rows - more.rows, size - more.size, of_all + more.size
    ends = {name: each.offset for name, each in taken.items()}
    first = max(spans, key=lambda name: backlog[name], default=None)
    if first is not None and backlog[first] and not of_all:
        span = spans[first]
        ends[first] = walk_on(span.log, span.begin, span.end, 1, size, at_least_one=True).offset
    return ends


def _walk(span: Span, rows: int, size: int) -> Walked:
    """Walk over at most `rows` rows and `size` bytes of a span. If only bytes count, whole files are not read."""
    begin = span.begin
    if rows == UNLIMITED:
        for segment in span.log.segments:
            end = min(segment.end, span.end)
            if segment.end > begin and end - span.begin <= size:
                begin = max(begin, end)
    walked = walk_on(span.log, begin, span.end, rows, size - (begin - span.begin))
    return walked._replace(size=walked.size + begin - span.begin)


def rows_behind(span: Span, most: int) -> tuple[int, bool]:
    """Return (the number of messages left in a span, whether it was counted). At most `most` bytes are read; the rest
    is estimated from the mean size of the messages counted.
    """
    if span.end <= span.begin:
        return 0, True
    walked = walk_on(span.log, span.begin, span.end, size=most)
    if walked.offset >= span.end:
        return walked.rows, True
    mean = walked.size / walked.rows if walked.rows else _USUAL_RECORD
    return walked.rows + max(round((span.end - walked.offset) / mean), 1), False
