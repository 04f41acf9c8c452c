"""The messages of an archive as a table: for queries, for the job `replay`, and in Iceberg.

`archived_messages` has the columns of the format `rocketmq-commitlog`. The Parquet files hold only what a log needs.
Decompressed bodies, properties and the like are derived from them here, by the same code as for a log. Topics, times
and offsets are filtered where Spark can skip files, row groups and pages.

`replay` sends a filtered range of a commit log, or of an archive, to a topic.

`IcebergTable` offers snapshots, time travel, and readers that see whole runs only. It consists of the archive's own
Parquet files, so none is written twice; the manifests stay in place. Each commit records in a property of the table the
offset of the log up to which the table reaches. A run that was interrupted between archive and table is added by the
next. Catalogs are PyIceberg's (extra `iceberg`), configured as for its own tools: ~/.pyiceberg.yaml, or
PYICEBERG_CATALOG__<NAME>__URI and so on.
"""
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from rmqha.common import sys_flags
from rmqha.common.filesystem import how_to_install
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import decode_text
from rmqha.pipeline.archive.archive_files import COLUMNS, MANIFESTS, ArchiveFiles, Manifest, Manifests, archive_files
from rmqha.pipeline.archive.archive_scan import MESSAGES, ROWS, TOLD_BY, records
from rmqha.pipeline.cluster.cluster_sink import DROP
from rmqha.pipeline.cluster.cluster_source import FORMAT as CLUSTER
from rmqha.pipeline.format_options import Options, PipelineError, local_path
from rmqha.pipeline.log.columns import BlockColumns
from rmqha.pipeline.log.commit_log_source import FORMAT
from rmqha.pipeline.log.log_scan import ROW, Block
from rmqha.pipeline.progress import map_in_tasks
from rmqha.pipeline.session import register, use_this_python
from rmqha.pipeline.table import FURTHER, ROCKETMQ, arrow_schema
from rmqha.pipeline.worker import first_line

_READ = (*TOLD_BY, "crcOk", "storedBody")


@dataclass(frozen=True)
class Chosen:
    """A selection of messages. Times are store times in ms; ends are exclusive."""

    topics: Sequence[str] | None = None
    begin_time: int | None = None
    end_time: int | None = None
    begin: int | None = None
    end: int | None = None

    def takes(self, manifest: Manifest) -> bool:
        """Return whether a run may have such messages."""
        return not (self.begin_time is not None and manifest.maxTime < self.begin_time
                    or self.end_time is not None and manifest.minTime >= self.end_time
                    or self.begin is not None and manifest.end <= self.begin
                    or self.end is not None and manifest.begin >= self.end)

    def of(self, frame: DataFrame) -> DataFrame:
        """Return the selected messages of a table."""
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
    """Return the messages of all runs that count, with the columns of `rocketmq-commitlog`, by default all of them.

    PipelineError if the archive or a column does not exist.
    """
    chosen = chosen or Chosen()
    known = {**ROCKETMQ, **{name: kind for name, kind in FURTHER.items() if name in ("envelope", "storedBody")}}
    names = list(ROCKETMQ) if columns is None else list(columns)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PipelineError(f"an archive has no column {unknown[0]!r}. Valid columns: {', '.join(known)}")
    files = archive_files(spark, archive)
    manifests = Manifests(files).all()
    if not manifests:
        raise PipelineError(f"{archive} is not an archive: it has no manifest")
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
    # The topic was the name of a folder, which Spark may have converted to a number.
    rows = spark.read.parquet(*paths)
    extra = [StructField(name, ROCKETMQ[name]) for name in ("topic", "storeTimestamp", "physicalOffset")
             if name not in schema.names]
    wide = StructType([*schema.fields, *extra])
    frame = map_in_tasks(rows.select(*_READ, "envelope"), _AsTable(wide).run, wide)
    return chosen.of(frame).select(*schema.names)


class _AsTable:
    """The work of a task: rows of Parquet become rows of the table."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert the rows of record batches."""
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
        # In the buffer; the offset in the log is set below.
        rows["offset"] = starts[:-1]
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
            # Free them before the next ones are made.
            del made, arrays


def _topics(data: bytes, starts: np.ndarray, rows: np.ndarray) -> list[str]:
    """Return the distinct topics of records, and set their numbers in the rows."""
    flags = rows["sysFlag"]
    heads = np.array([head.size for head in layout.HEADS])[flags >> 4 & 3]
    numbers = np.ndarray((max(len(data) - 3, 0),), ">i4", data, strides=(1,))
    begins = starts[:-1] + heads + numbers[starts[:-1] + heads - 4]
    known: dict[bytes, int] = {}
    for row, begin in enumerate(begins.tolist()):
        topic = data[begin + 1:begin + 1 + data[begin]]
        rows["topic"][row] = known.setdefault(topic, len(known))
    return [decode_text(topic) for topic in known]


Progress = Callable[[int, int], None]


@dataclass
class Replayed:
    """The messages that were sent, or with `dry_run` would be: original topic -> number of messages."""

    source: str
    target: str | None
    messages: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    sent: bool = False


def chosen_messages(spark: SparkSession, source: str, options: dict[str, str], where: str | None) -> DataFrame:
    """Return the messages of a store or of an archive that the format's options and an SQL condition select, with
    decompressed bodies.

    PipelineError if Spark does not understand the condition.
    """
    if is_archive(source):
        frame = archived_messages(spark, source, _chosen(options))
    else:
        frame = spark.read.format(FORMAT).options(**options).option("mode", "FAILFAST").load(source)
    if where is None:
        return frame
    try:
        chosen = frame.where(where)
        # With Spark Connect the condition is checked only now.
        chosen.schema  # noqa: B018
    except PySparkException as error:
        raise PipelineError(f"--where {where!r}: {first_line(str(error))}") from error
    return chosen


def is_archive(source: str) -> bool:
    """Return whether messages come from an archive: stores are only on file systems of this machine."""
    local = local_path(source)
    return local is None or os.path.isdir(os.path.join(local, MANIFESTS))


def _chosen(options: dict[str, str]) -> Chosen:
    """Return the selection that the format's options make of an archive. PipelineError for unknown options."""
    known = ("subscribe", "startingTimestamp", "endingTimestamp", "startingOffsets", "endingOffsets")
    given = Options(options, known, "an archive")
    topics = given.words("subscribe")
    times_and_places = (given.integer(name) for name in known[1:])
    return Chosen(topics or None, *times_and_places)


def replay(spark: SparkSession, source: str, name_server: str, target: str | None, options: dict[str, str], *,
           where: str | None = None, idempotent: bool = False, dry_run: bool = False,
           client: dict[str, str] | None = None, come_to: Progress = lambda done, total: None) -> Replayed:
    """Send the selected messages to `target`, or each to its original topic. Keys, tags and the user's properties are
    kept. `client`: options `rocketmq.*` of the sink.
    """
    register(spark)
    # Neither half messages nor rolled-back ones.
    frame = chosen_messages(spark, source, options, where).where("sysFlag & 12 in (0, 8)")
    result = Replayed(source, target)
    for row in frame.groupBy("topic").count().collect():
        result.topics[row.topic] = row["count"]
        result.messages += row["count"]
    come_to(1, 2)
    if result.messages and not dry_run:
        columns = ["body", "keys", "tags", "properties", "flag"] + ([] if target else ["topic"])
        sink = frame.select(*columns).write.format(CLUSTER).mode("append").option("nameServer", name_server)
        # Drop the properties that the previous brokers set.
        sink = sink.option("systemProperties", DROP)
        sink = sink.option("idempotent", str(idempotent).lower()).options(**(client or {}))
        (sink.option("topic", target) if target else sink).save()
        result.sent = True
    come_to(2, 2)
    return result


_ARCHIVE, _END = "rmqha.archive", "rmqha.archive.end"


class IcebergTable:
    """One table, belonging to one archive. `name`: catalog.namespace.table."""

    def __init__(self, name: str, archive: str) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise PipelineError(f"--table needs the extra `iceberg` ({error}): {how_to_install('iceberg')}") from error
        catalog, _, identifier = name.partition(".")
        if not catalog or "." not in identifier:
            raise PipelineError(f"{name!r} is not a valid table name: it must be catalog.namespace.table")
        self._name, self._identifier, self._archive = name, identifier, archive
        try:
            self._catalog: Any = load_catalog(catalog)
        # Its many parts may raise anything.
        except Exception as error:
            raise PipelineError(f"the Iceberg catalog {catalog!r} can't be used: {error}") from error

    def add(self, files: ArchiveFiles, manifests: Manifests) -> int:
        """Commit the files that the archive has and the table lacks, and return their number. PipelineError if the
        table belongs to another archive, or if the commit fails.
        """
        table = self._table()
        done = int(table.properties.get(_END, 0))
        new = [each for each in manifests.since(done) if each.begin >= done]
        if any(each.version == 1 for each in new):
            raise PipelineError(f"{self._archive} has runs of version 1, which can't be in a table: make a new archive")
        paths = [files.path(f"{each.folder}/{name}") for each in new for name in each.files]
        if not new:
            return 0
        try:
            with table.transaction() as change:
                if paths:
                    change.add_files(paths, snapshot_properties={_END: str(new[-1].end)}, check_duplicate_files=False)
                change.set_properties(**{_END: str(new[-1].end)})
        except Exception as error:
            raise PipelineError(f"table {self._name}: the archive is written, but not committed to the table: {error}. "
                                "The next run will commit it") from error
        return len(paths)

    def _table(self, must_exist: bool = False) -> Any:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError as error:
            if must_exist:
                raise PipelineError(f"table {self._name} does not exist") from error
            try:
                self._catalog.create_namespace(self._identifier.rpartition(".")[0])
            except NamespaceAlreadyExistsError:
                table = None
            table = self._made()
        if table.properties.get(_ARCHIVE) != self._archive:
            raise PipelineError(f"table {self._name} belongs to the archive {table.properties.get(_ARCHIVE)}, not to "
                                f"{self._archive}")
        return table

    def _made(self) -> Any:
        from pyiceberg.transforms import DayTransform
        schema = pa.schema([ROWS.field(name) for name in COLUMNS])
        table = self._catalog.create_table(self._identifier, schema=schema, properties={_ARCHIVE: self._archive})
        with table.update_spec() as spec:
            spec.add_field("storeTimestamp", DayTransform(), "day")
        return self._catalog.load_table(self._identifier)

    def rows(self, spark: SparkSession, begin: int, end: int) -> DataFrame | None:
        """Return the messages of [begin, end) of the log from the table's current snapshot; None without any."""
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
        table = self._table(must_exist=True)
        wanted = And(GreaterThanOrEqual("physicalOffset", begin), LessThan("physicalOffset", end))
        tasks = list(table.scan(row_filter=wanted).plan_files())
        if any(task.delete_files for task in tasks):
            raise PipelineError(f"table {self._name} has deletes of single rows; rewrite its data files first")
        if not tasks:
            return None
        place = f.col("physicalOffset")
        return spark.read.parquet(*(task.file.file_path for task in tasks)).where((place >= begin) & (place < end))

    def remove_before(self, offset: int) -> None:
        """Delete the messages before an offset at which a run begins: whole files, in one commit."""
        from pyiceberg.expressions import LessThan
        table = self._table()
        if table.current_snapshot() is not None:
            table.delete(LessThan("physicalOffset", offset))
