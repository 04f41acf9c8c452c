"""The format `rocketmq-commitlog` as a stream: what a broker, or the replication to a slave, adds to the log.

An offset is the offset of each log behind the last record that was taken, so each record comes in exactly one batch;
Spark's checkpoint keeps it.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rmqha.common.segment_files import Segment, pread
from rmqha.pipeline import ranges
from rmqha.pipeline.commit_log_source import RangeReader, log
from rmqha.pipeline.log_files import LogFiles, find_logs, wanted_paths
from rmqha.pipeline.log_scan import ROW, VanishedError, log_end, open_file
from rmqha.pipeline.options import Options
from rmqha.pipeline.ranges import LogPartition
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import DEFAULT_LIMIT

_VERSION = 1
_BLOCK = 4 << 20
_Offset = dict[str, Any]  # of a stream: what its reader says of it, as Spark keeps it


class CommitLogStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Offsets: {"version": 1, "logs": {folder: offset of the log}}."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self.selection = ranges.selection(options, ranges.LATEST if "startingTimestamp" not in options
                                          else ranges.EARLIEST)
        self.row_filter = self.selection.row_filter
        self._max_rows = options.integer("maxOffsetsPerTrigger", least=1)
        self._stop_at: dict[str, int] | None = None  # of Trigger.AvailableNow: the ends when the query began

    def _logs(self) -> list[LogFiles]:
        return find_logs(wanted_paths(self.options), self.options.text("brokerName"))

    def initialOffset(self) -> _Offset:  # Spark's name
        """Where a new query begins: at the end, unless the options say otherwise."""
        logs = {}
        for each in self._logs():
            if self.selection.from_latest:
                begin = log_end(each)
            elif self.selection.begin is not None:
                begin = ranges.align(each, self.selection.begin)
            else:
                begin = ranges.from_time(each, self.row_filter.begin_time).min_offset
            logs[each.path] = begin
        return {"version": _VERSION, "logs": logs}

    def prepareForTriggerAvailableNow(self) -> None:  # Spark's name
        """Remember the ends: the query stops there."""
        self._stop_at = {each.path: log_end(each) for each in self._logs()}

    def getDefaultReadLimit(self) -> ReadLimit:  # Spark's name
        """maxOffsetsPerTrigger, if given."""
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:  # Spark's name
        """How far the next batch goes."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        logs = dict(start["logs"])
        for each in self._logs():
            begin = max(self._present(each, logs.get(each.path, each.min_offset)), each.min_offset)
            end = self._stop_at.get(each.path, begin) if self._stop_at is not None else log_end(each, begin)
            if self.selection.end is not None:
                end = min(end, ranges.align(each, self.selection.end))
            end = max(begin, end)
            if rows is not None and end > begin:
                end, taken = limited_end(each, begin, end, rows)
                rows -= taken
            logs[each.path] = max(end, logs.get(each.path, 0))
        return {"version": _VERSION, "logs": logs}

    def _present(self, each: LogFiles, begin: int) -> int:
        """PipelineError when records at `begin` were deleted, or the log has become shorter."""
        if begin < each.min_offset and self.fail_on_data_loss:
            raise ranges.data_loss(f"{each.path} begins at offset {each.min_offset}, the stream has come to {begin}")
        if each.segments and begin > each.files_end:
            raise ranges.data_loss(f"{each.path} ends at offset {each.files_end}, the stream has come to {begin}: it "
                                   "is another log, or was cut off")
        return begin

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """Byte ranges from one offset to another."""
        found: list[LogPartition] = []
        total = sum(stop - start["logs"].get(path, 0) for path, stop in end["logs"].items())
        size = ranges.partition_size(self.options, max(total, 1))
        for each in self._logs():
            stop = end["logs"].get(each.path)
            if stop is None:
                continue
            begin = start["logs"].get(each.path, each.min_offset)
            if stop > begin:
                self._present(each, begin)
                found += ranges.group(each, ranges.ranges_of(each, max(begin, each.min_offset), stop, size,
                                                             self.fail_on_data_loss), size)
        return found

    def reportLatestOffset(self) -> _Offset:  # Spark's name
        """The ends of the logs, for the progress that Spark shows."""
        return {"version": _VERSION, "logs": {each.path: log_end(each) for each in self._logs()}}

    def commit(self, end: _Offset) -> None:
        """Nothing is kept here: Spark's checkpoint has the offset."""
        log.debug("taken up to %s", end)

    def stop(self) -> None:
        """Nothing stays open between the calls."""
        self._stop_at = None


def limited_end(each: LogFiles, begin: int, end: int, rows: int) -> tuple[int, int]:
    """(the offset behind at most `rows` records from `begin` on, at most `end`, how many that are)."""
    taken = 0
    for segment in each.segments:
        if segment.end <= begin or segment.start >= end:
            continue
        position = max(begin, segment.start)
        limit = min(segment.end, end)
        while position < limit:
            if taken >= rows:
                return position, taken
            step, count = _step(segment, position, limit, rows - taken)
            if step == 0:  # a blank, or a hole: whatever it is belongs to this batch
                position = limit
            position, taken = position + step, taken + count
    return end, taken


def _step(segment: Segment, position: int, limit: int, rows: int) -> tuple[int, int]:
    """(bytes, records) of one block."""
    try:
        fd = open_file(segment.path, position)
    except VanishedError:
        return 0, 0
    with open(fd, "rb", closefd=True):
        size = _BLOCK
        while True:
            data = pread(fd, min(size, limit - position), position - segment.start)
            found = bulk.scan(data, 0, len(data), position, limit=min(rows, DEFAULT_LIMIT))
            if found.count or size >= limit - position:
                break
            size *= 4
    if not found.count:
        return 0, 0
    last = np.frombuffer(found.records, ROW)[-1]
    return int(last["offset"]) + int(last["size"]) - position, found.count
