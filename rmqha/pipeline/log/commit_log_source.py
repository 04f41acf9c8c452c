"""The format `rocketmq-commitlog`: a store's files as a table or as a stream, without a broker.

    spark.read.format("rocketmq-commitlog").load("/data/rocketmq/store")
"""
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from rmqha.pipeline.format_options import Options
from rmqha.pipeline.log import ranges
from rmqha.pipeline.log.log_ends import log_end
from rmqha.pipeline.log.log_scan import LogFiles, find_logs, wanted_paths
from rmqha.pipeline.log.range_reader import MODES, PERMISSIVE, RangeReader
from rmqha.pipeline.log.ranges import LogPartition, Selection
from rmqha.pipeline.streams import at_once
from rmqha.pipeline.table import COLUMNS, table_schema
from rmqha.pipeline.table_options import options_of_new_table, reader_options, with_options
from rmqha.pipeline.trigger_delay import TriggerDelay
from rmqha.pipeline.worker import briefly

FORMAT = "rocketmq-commitlog"
OPTIONS = ("path", "paths", "schema", "columns", "includeHeaders", "brokerName", "subscribe", "topic",
           "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
           "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
           "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "minPartitions",
           "maxPartitions", "maxPartitionBytes", "failOnDataLoss", "mode", "verifyCrc", "decompress", "pushFilters")
_COMPLETE = ("path", "paths")
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_OPERATORS = {EqualTo: "=", EqualNullSafe: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<",
              LessThanOrEqual: "<=", In: "in"}


def common_options(given: dict[str, str]) -> Options:
    """Return this format's options, checked. PipelineError describes the first problem found."""
    options = Options(given, OPTIONS, FORMAT)
    wanted_paths(options)
    options.choice("mode", MODES, PERMISSIVE)
    for name, default in (("failOnDataLoss", True), ("verifyCrc", True), ("decompress", True),
                          ("pushFilters", False)):
        options.boolean(name, default)
    TriggerDelay(options)
    options.size("maxBytesPerTrigger", 1)
    ranges.partition_size(options, 1)
    ranges.selection(options)
    return options


class CommitLogDataSource(DataSource):
    """The format. Options are checked when a table or a stream is created."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that `.format(...)` takes."""
        return FORMAT

    @briefly
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        of_table = options_of_new_table(self._given, FORMAT)
        options = common_options(self._given if of_table is None else of_table)
        find_logs(wanted_paths(options), options.text("brokerName"))
        schema = table_schema(options)
        return schema if of_table is None else with_options(schema, of_table, FORMAT)

    def _options(self, schema: StructType) -> Options:
        return common_options(reader_options(self._given, schema, FORMAT, _COMPLETE))

    @briefly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the whole table."""
        options = self._options(schema)
        # Spark 4 keeps the filters that one query pushed down for all later queries of the same DataFrame, and for its
        # other uses in the same query, which would then lose rows. So filters are pushed down only if the user declares
        # that this DataFrame is used once.
        pushes = options.boolean("pushFilters", False) and _is_pushing()
        return (PushdownReader if pushes else CommitLogReader)(options, schema)

    @briefly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """Return a reader of records as they are written."""
        from rmqha.pipeline.log.commit_log_stream import CommitLogStreamReader
        return CommitLogStreamReader(self._options(schema), schema)


def _is_pushing() -> bool:
    """Return whether Spark pushes filters down in this process: elsewhere it refuses a reader that could take them."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == _PUSHDOWN_WORKER


class CommitLogReader(RangeReader, DataSourceReader):
    """The table: all records that exist when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self.selection = ranges.selection(options)
        self.row_filter = self.selection.row_filter

    @briefly
    def partitions(self) -> Sequence[InputPartition]:
        """Return byte ranges of all logs."""
        logs = find_logs(wanted_paths(self.options), self.options.text("brokerName"))
        spans = at_once(lambda each: (each, *self._span(each, self.selection)), logs)
        size = ranges.partition_size(self.options, sum(end - begin for _, begin, end in spans))
        found: list[LogPartition] = []
        for each, begin, end in spans:
            cut = ranges.ranges_of(each, begin, end, size, self.fail_on_data_loss)
            found += ranges.group(each, cut, size)
        return found or [LogPartition("", ())]

    def _span(self, each: LogFiles, selection: Selection) -> tuple[int, int]:
        each = ranges.from_time(each, self.row_filter.begin_time)
        end = log_end(each)
        if selection.end is not None:
            end = min(end, ranges.align(each, selection.end))
        begin = each.min_offset if selection.begin is None else selection.begin
        if begin < each.min_offset and self.fail_on_data_loss:
            raise ranges.data_loss(f"{each.path} begins at offset {each.min_offset}, startingOffsets is {begin}")
        begin = end if selection.from_latest else ranges.align(each, max(begin, each.min_offset))
        return min(begin, end), end


class PushdownReader(CommitLogReader):
    """A table that accepts filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark's name
        """Accept filters on topic, queueId, offsets, store time and sizes; return the others to Spark."""
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, given: Filter) -> bool:
        name = _OPERATORS.get(type(given))
        attribute: tuple[str, ...] = getattr(given, "attribute", ())
        if name is None or len(attribute) != 1 or self.kafka:
            return False
        column, value = attribute[0], given.value
        if column == "topic" and name in ("=", "in") and value is not None:
            self.row_filter.pushed_topics.append(frozenset(value) if name == "in" else frozenset((value,)))
            return True
        if column not in COLUMNS:
            return False
        if column == "storeTimestamp":
            return self._take_time(name, value)
        values = list(value) if name == "in" else [value]
        if not all(isinstance(each, int) for each in values):
            return False
        self.row_filter.comparisons.append((COLUMNS[column], name, values if name == "in" else value))
        return True

    def _take_time(self, name: str, value: object) -> bool:
        """Accept only times in whole milliseconds; Spark compares the others itself."""
        ms = _milliseconds(value)
        if ms is None or name == "in":
            return False
        self.row_filter.comparisons.append(("storeTime", name, ms))
        if name in (">", ">=", "="):
            self.row_filter.begin_time = max(self.row_filter.begin_time or 0, ms)
        return True


def _milliseconds(value: Any) -> int | None:
    timestamp = getattr(value, "timestamp", None)
    if timestamp is None or getattr(value, "tzinfo", None) is None or value.microsecond % 1000:
        return None
    ms: int = round(timestamp() * 1000)
    return ms
