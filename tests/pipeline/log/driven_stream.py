"""A stream of the format rocketmq-commitlog without Spark: its reader called as Spark calls it."""
import json
from collections.abc import Iterator
from pathlib import Path

from rmqha.pipeline.format_options import Options
from rmqha.pipeline.log.commit_log_source import FORMAT, OPTIONS
from rmqha.pipeline.log.commit_log_stream import CommitLogStreamReader
from rmqha.pipeline.table import table_schema

COLUMNS = "keys,physicalOffset,storeSize"


class DrivenStream:
    """A query: `start` begins it, anew each time as Spark does; the offset stays, as JSON in a checkpoint does."""

    def __init__(self, path: Path | str, **options: str) -> None:
        self.options = {"path": str(path), "columns": COLUMNS, **options}
        self.offset: str | None = None
        self.reader = self.start()

    def start(self) -> CommitLogStreamReader:
        """A reader as in a new process."""
        options = Options(self.options, OPTIONS, FORMAT)
        self.reader = CommitLogStreamReader(options, table_schema(options))
        return self.reader

    def batch(self) -> list[tuple]:
        """The rows of the next batch: (keys, physicalOffset, storeSize); none where nothing is new."""
        begin = json.dumps(self.reader.initialOffset()) if self.offset is None else self.offset
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(begin), limit))
        is_first, self.offset = self.offset is None, end
        return [] if end == begin and not is_first else self.rows(begin, end)

    def rows(self, begin: str, end: str) -> list[tuple]:
        """The rows between two offsets."""
        rows: list[tuple] = []
        for partition in self.reader.partitions(json.loads(begin), json.loads(end)):
            for batch in self.reader.read(partition):
                rows += zip(*(batch.column(name).to_pylist() for name in COLUMNS.split(",")))
        return rows

    def batches(self) -> Iterator[list[tuple]]:
        """Batches until one is empty."""
        while rows := self.batch():
            yield rows

    def rest(self) -> list[str]:
        """The keys of all that is there."""
        return [key for rows in self.batches() for key, *_ in rows]

    @property
    def metrics(self) -> dict:
        """What the progress of the last batch tells."""
        return self.reader.reportLatestOffset()["metrics"]
