"""The columns of a message table for Spark and for Arrow, and the filter of its rows.

Schema `rocketmq` has the nine columns of the older RocketMQ connector for Spark (properties as a map), followed by the
other fields of a record. Schema `kafka` has the columns of the Kafka connector, so that a query written for it runs
unchanged. Times are UTC. `RowFilter` decides on the kernel's rows, before anything else of a record is read.
"""
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.log.log_scan import Block

ROCKETMQ: dict[str, DataType] = {
    "topic": StringType(),
    "flag": IntegerType(),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "keys": StringType(),
    "tags": StringType(),
    "uniqKey": StringType(),
    "physicalOffset": LongType(),
    "storeSize": IntegerType(),
    "sysFlag": IntegerType(),
    "bodyCrc": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "preparedTransactionOffset": LongType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "crcOk": BooleanType(),
}
# Present only if selected by name, with the option `columns` or `.schema(...)`.
FURTHER: dict[str, DataType] = {
    # The record without its body, byte for byte.
    "envelope": BinaryType(),
    # The body as stored in the log, compressed or not.
    "storedBody": BinaryType(),
    "tagsCode": LongType(),
    # The offset of the first byte of the file that holds the record.
    "segment": LongType(),
}
KAFKA: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
# With the option includeHeaders: the properties in their order; null if a message has none.
KAFKA_HEADERS: dict[str, DataType] = {"headers": ArrayType(StructType([
    StructField("key", StringType()), StructField("value", BinaryType())]))}
# Kafka's column -> its source; timestampType is 1 (LogAppendTime).
KAFKA_SOURCE = {"key": "keys", "value": "body", "topic": "topic", "partition": "queueId", "offset": "queueOffset",
                "timestamp": "storeTimestamp", "headers": "headers"}
SCHEMAS = ("rocketmq", "kafka")


def is_kafka(options: Options) -> bool:
    """Return whether the columns are the Kafka connector's. PipelineError for contradicting options."""
    kafka = options.choice("schema", SCHEMAS, "rocketmq") == "kafka"
    if options.boolean("includeHeaders", False) and not kafka:
        raise PipelineError(f"{options.where}: includeHeaders needs schema=kafka; here the column properties has them")
    return kafka


def _columns(options: Options, further: dict[str, DataType]) -> dict[str, DataType]:
    if is_kafka(options):
        return {**KAFKA, **KAFKA_HEADERS} if options.boolean("includeHeaders", False) else KAFKA
    return {**ROCKETMQ, **further}


def table_schema(options: Options) -> StructType:
    """Return the schema that the options `schema`, `columns` and `includeHeaders` select."""
    columns = _columns(options, {})
    names = options.words("columns")
    if names:
        known = _columns(options, FURTHER)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise PipelineError(f"{options.where}, option columns: unknown column {unknown[0]!r}. Valid columns: "
                                f"{', '.join(known)}")
        columns = {name: known[name] for name in names}
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def check_schema(schema: StructType, options: Options) -> StructType:
    """Return a schema that Spark hands back, which may have any choice of these columns. PipelineError for others."""
    known = _columns(options, FURTHER)
    for column in schema.fields:
        if column.name not in known:
            raise PipelineError(f"{options.where}: unknown column {column.name!r}. Valid columns: "
                                f"{', '.join(known)}")
        if column.dataType != known[column.name]:
            raise PipelineError(f"{options.where}: column {column.name} is {known[column.name].simpleString()}, not "
                                f"{column.dataType.simpleString()}; cast it in the query")
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark expects of record batches."""
    return to_arrow_schema(schema, timezone="UTC")


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Column of the table -> column of the rows.
COLUMNS = {"queueId": "queueId", "queueOffset": "queueOffset", "physicalOffset": "offset",
           "storeTimestamp": "storeTime", "storeSize": "size", "sysFlag": "sysFlag"}


@dataclass
class RowFilter:
    """Conditions that must all hold. Times are ms; ends are exclusive.

    `starting`, `ending`: topic -> queue id -> offset, for the queues that are named there. `starting_times`,
    `ending_times`: the same with store times.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    starting: dict[str, dict[int, int]] = field(default_factory=dict)
    ending: dict[str, dict[int, int]] = field(default_factory=dict)
    starting_times: dict[str, dict[int, int]] = field(default_factory=dict)
    ending_times: dict[str, dict[int, int]] = field(default_factory=dict)
    begin_time: int | None = None
    end_time: int | None = None
    # Column of the rows, operator, value.
    comparisons: list[tuple[str, str, Any]] = field(default_factory=list)
    pushed_topics: list[frozenset[str]] = field(default_factory=list)

    def wants_topic(self, topic: str) -> bool:
        """Return whether messages of a topic may be wanted."""
        return (self.topics is None or topic in self.topics) \
            and (self.pattern is None or re.fullmatch(self.pattern, topic) is not None) \
            and all(topic in topics for topics in self.pushed_topics)

    @property
    def is_open(self) -> bool:
        """True if every message is wanted."""
        return self == RowFilter()

    def choose(self, block: Block) -> np.ndarray | None:
        """Return the numbers of the wanted rows; None for all rows."""
        if self.is_open:
            return None
        rows = block.rows
        mask = np.fromiter(map(self.wants_topic, block.topics), bool, len(block.topics))[rows["topic"]]
        if self.begin_time is not None:
            mask &= rows["storeTime"] >= self.begin_time
        if self.end_time is not None:
            mask &= rows["storeTime"] < self.end_time
        for column, name, value in self.comparisons:
            mask &= np.isin(rows[column], value) if name == "in" else _COMPARE[name](rows[column], value)
        self._by_queue(block, mask)
        return np.flatnonzero(mask)

    def _by_queue(self, block: Block, mask: np.ndarray) -> None:
        rows = block.rows
        for wanted, compare, column in ((self.starting, operator.ge, "queueOffset"),
                                        (self.ending, operator.lt, "queueOffset"),
                                        (self.starting_times, operator.ge, "storeTime"),
                                        (self.ending_times, operator.lt, "storeTime")):
            for topic, by_queue in wanted.items():
                if topic not in block.topics:
                    continue
                own = rows["topic"] == block.topics.index(topic)
                for queue_id, bound in by_queue.items():
                    mine = own & (rows["queueId"] == queue_id)
                    mask &= ~mine | compare(rows[column], bound)
