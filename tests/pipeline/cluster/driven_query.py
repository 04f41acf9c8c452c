"""A stream of a cluster without Spark: its reader called as Spark calls it."""
import json
import pickle
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from rmqha.pipeline.cluster.cluster_source import FORMAT, READ_OPTIONS, ClusterStreamReader
from rmqha.pipeline.format_options import Options
from rmqha.pipeline.table import table_schema


class DrivenQuery:
    """A query; its offset, and what is planned and not committed, stay as JSON in a checkpoint does."""

    def __init__(self, **given: str) -> None:
        self.given = given
        self.offset: str | None = None
        self.pending: tuple[str, str] | None = None  # a batch that was planned and not committed
        self.restart()

    def restart(self, **options: str) -> None:
        """Continue in a new process, with other options."""
        self.given |= options
        given = Options(self.given, READ_OPTIONS, FORMAT)
        self.reader = ClusterStreamReader(given, table_schema(given))

    def plan(self, limit: ReadLimit | None = None) -> tuple[str, str] | None:
        """Plan the next batch, unless one is there: (begin, end), or nothing is new."""
        if self.pending is None:
            if self.offset is None:
                self.offset = json.dumps(self.reader.initialOffset())
            end = json.dumps(self.reader.latestOffset(json.loads(self.offset),
                                                      limit or self.reader.getDefaultReadLimit()))
            self.pending = None if end == self.offset else (self.offset, end)
        return self.pending

    def read(self) -> list:
        """The messages of the batch that was planned, which is committed then."""
        if self.pending is None:
            return []
        begin, end = self.pending
        rows = self.rows(self.reader.partitions(json.loads(begin), json.loads(end)))
        self.reader.commit(json.loads(end))
        self.offset, self.pending = end, None
        return rows

    def rows(self, partitions: Sequence[InputPartition]) -> list:
        """(queue offset, keys) of each message; the tasks get reader and partitions as bytes."""
        return [row for part in partitions
                for batch in pickle.loads(pickle.dumps(self.reader)).read(pickle.loads(pickle.dumps(part)))
                for row in zip(batch.column("queueOffset").to_pylist(), batch.column("keys").to_pylist())]
