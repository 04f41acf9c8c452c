"""The messages of an archive as a table with the columns of the format `rocketmq-commitlog`.

Parquet files hold what a log needs; bodies that are inflated, properties and the like are made of it here, by the same
code as of a log. Topics, times and offsets are chosen where Spark can leave out files, row groups and pages.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from rmqha.common import sys_flags
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import decode_text
from rmqha.pipeline.archive.archive_files import archive_files
from rmqha.pipeline.archive.archive_layout import Manifest
from rmqha.pipeline.archive.archive_scan import MESSAGES
from rmqha.pipeline.archive.manifests import Manifests
from rmqha.pipeline.archive.remainder import TOLD_BY, records
from rmqha.pipeline.log.columns import BlockColumns
from rmqha.pipeline.log.log_scan import ROW, Block
from rmqha.pipeline.options import PipelineError
from rmqha.pipeline.session import use_this_python
from rmqha.pipeline.table import FURTHER, ROCKETMQ, arrow_schema
from rmqha.pipeline.tasks import map_in_tasks

_READ = (*TOLD_BY, "crcOk", "storedBody")


@dataclass(frozen=True)
class Chosen:
    """Which messages are wanted. Times are ms of storing; ends are exclusive."""

    topics: Sequence[str] | None = None
    begin_time: int | None = None
    end_time: int | None = None
    begin: int | None = None
    end: int | None = None

    def takes(self, manifest: Manifest) -> bool:
        """Whether a run may have such messages."""
        return not (self.begin_time is not None and manifest.maxTime < self.begin_time
                    or self.end_time is not None and manifest.minTime >= self.end_time
                    or self.begin is not None and manifest.end <= self.begin
                    or self.end is not None and manifest.begin >= self.end)

    def of(self, frame: DataFrame) -> DataFrame:
        """Those of a table."""
        stored, place = f.col("storeTimestamp"), f.col("physicalOffset")
        if self.topics is not None:
            frame = frame.where(f.col("topic").isin(list(self.topics)))
        if self.begin_time is not None:
            frame = frame.where(stored >= f.timestamp_millis(f.lit(self.begin_time)))
        if self.end_time is not None:
            frame = frame.where(stored < f.timestamp_millis(f.lit(self.end_time)))
        if self.begin is not None:
            frame = frame.where(place >= self.begin)
        return frame if self.end is None else frame.where(place < self.end)


def archived_messages(spark: SparkSession, archive: str, chosen: Chosen | None = None,
                      columns: Sequence[str] | None = None) -> DataFrame:
    """The messages of all runs that count; columns as `rocketmq-commitlog` has them, all of them by default.

    PipelineError when there is no archive, or no such column.
    """
    chosen = chosen or Chosen()
    known = {**ROCKETMQ, **{name: kind for name, kind in FURTHER.items() if name in ("envelope", "storedBody")}}
    names = list(ROCKETMQ) if columns is None else list(columns)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PipelineError(f"an archive has no column {unknown[0]!r}. There are: {', '.join(known)}")
    files = archive_files(spark, archive)
    manifests = Manifests(files).all()
    if not manifests:
        raise PipelineError(f"{archive} is no archive: it has no manifest")
    use_this_python(spark)
    schema = StructType([StructField(name, known[name]) for name in names])
    found = []
    for version in (1, 2):
        paths = [files.path(f"{each.folder}/{name}") for each in manifests
                 if each.version == version and chosen.takes(each) for name in each.files]
        if paths:
            found.append(_messages(spark, paths, schema, chosen, version))
    return reduce(DataFrame.unionByName, found) if found else spark.createDataFrame([], schema)


def _messages(spark: SparkSession, paths: Sequence[str], schema: StructType, chosen: Chosen,
              version: int) -> DataFrame:
    if version > 1:
        rows = spark.read.schema(MESSAGES).parquet(*paths)
        return map_in_tasks(chosen.of(rows).select(*_READ, "remainder"), _AsTable(schema).run, schema)
    # the topic was the name of a folder, which Spark may have taken for a number
    rows = spark.read.parquet(*paths)
    extra = [StructField(name, ROCKETMQ[name]) for name in ("topic", "storeTimestamp", "physicalOffset")
             if name not in schema.names]
    wide = StructType([*schema.fields, *extra])
    frame = map_in_tasks(rows.select(*_READ, "envelope"), _AsTable(wide).run, wide)
    return chosen.of(frame).select(*schema.names)


class _AsTable:
    """What a task does: rows of Parquet become rows of the table."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows become rows."""
        schema = arrow_schema(self._schema)
        for batch in batches:
            if len(batch):
                yield from self._table(batch, schema)

    def _table(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        given = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
        whole = records(given)
        _, bounds, content = whole.buffers()
        starts = np.frombuffer(bounds, np.int32)[:len(whole) + 1]
        data = content.to_pybytes()[:starts[-1]]
        rows = np.zeros(len(whole), ROW)
        rows["offset"] = starts[:-1]  # in the buffer: the place in the log is put in below
        for name, column in (("queueOffset", "queueOffset"), ("size", "storeSize"), ("queueId", "queueId"),
                             ("sysFlag", "sysFlag")):
            rows[name] = np.asarray(given[column])
        more = np.where(rows["sysFlag"] & sys_flags.BORNHOST_V6_FLAG, layout.MORE_IN_V6, 0)
        numbers = np.ndarray((max(len(data) - 7, 0),), ">i8", data, strides=(1,))
        rows["storeTime"] = numbers[starts[:-1] + layout.STORE_TIMESTAMP_POSITION + more]
        topics = _topics(data, starts, rows)
        first = 0
        for made in BlockColumns(Block(data, 0, rows, topics, True), None, None, True).batches(schema):
            arrays = [given[name].slice(first, len(made)).cast(kind.type)
                      if (name := kind.name) in ("physicalOffset", "crcOk") else column
                      for kind, column in zip(schema, made.columns, strict=True)]
            first += len(made)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            del made, arrays  # before the next are made


def _topics(data: bytes, starts: np.ndarray, rows: np.ndarray) -> list[str]:
    """The distinct topics of records; the rows get their numbers."""
    flags = rows["sysFlag"]
    heads = np.array([head.size for head in layout.HEADS])[flags >> 4 & 3]
    numbers = np.ndarray((max(len(data) - 3, 0),), ">i4", data, strides=(1,))
    begins = starts[:-1] + heads + numbers[starts[:-1] + heads - 4]
    known: dict[bytes, int] = {}
    for row, begin in enumerate(begins.tolist()):
        topic = data[begin + 1:begin + 1 + data[begin]]
        rows["topic"][row] = known.setdefault(topic, len(known))
    return [decode_text(topic) for topic in known]
