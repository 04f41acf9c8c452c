"""Shared parts of the pipeline's tests: streaming queries, also without Spark, small logs, and archives in a dict."""
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqha.pipeline.archive.archive_files import archive_path
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.log.commit_log_source import FORMAT, OPTIONS
from rmqha.pipeline.log.commit_log_stream import CommitLogStreamReader
from rmqha.pipeline.table import table_schema
from tests.store import support
from tests.support.wait import wait_until

# Running streaming queries on busy machines.

# Spark gives the Python process of a stream's source ten seconds to start, which can't be configured.
_TOO_SLOW = "Python worker failed to connect back"
_TRIES = 30


def run_to_end(start: Callable) -> None:
    """Start a query that ends on its own and wait for it. If Python was too slow to start, which is before anything
    was read, start it again. Raise the error that ended it."""
    for left in reversed(range(_TRIES)):
        try:
            start().awaitTermination()
            return
        except Exception as error:
            if _TOO_SLOW not in str(error) or not left:
                raise


def run_until(start: Callable, done: Callable[[], bool]) -> None:
    """Start a query and stop it when `done`; start it again if Python was too slow to start. Raise the error that
    ended it before."""
    for left in reversed(range(_TRIES)):
        query = start()
        try:
            wait_until(lambda: done() or not query.isActive, 300_000, "the query is done")
            if done():
                return
            error = query.exception()
            if _TOO_SLOW not in str(error) or not left:
                raise error
        finally:
            query.stop()


# A stream of the format rocketmq-commitlog without Spark: its reader is called as Spark calls it.

COLUMNS = "keys,physicalOffset,storeSize"


class DrivenStream:
    """A query. `start` begins it, each time from scratch, as Spark does; the offset stays, as JSON, as in a
    checkpoint."""

    def __init__(self, path: Path | str, **options: str) -> None:
        self.options = {"path": str(path), "columns": COLUMNS, **options}
        self.offset: str | None = None
        self.reader = self.start()

    def start(self) -> CommitLogStreamReader:
        """Return a reader as in a new process."""
        options = Options(self.options, OPTIONS, FORMAT)
        self.reader = CommitLogStreamReader(options, table_schema(options))
        return self.reader

    def batch(self) -> list[tuple]:
        """Return the rows of the next batch: (keys, physicalOffset, storeSize); an empty list if nothing is new."""
        begin = json.dumps(self.reader.initialOffset()) if self.offset is None else self.offset
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(begin), limit))
        is_first, self.offset = self.offset is None, end
        return [] if end == begin and not is_first else self.rows(begin, end)

    def rows(self, begin: str, end: str) -> list[tuple]:
        """Return the rows between two offsets."""
        rows: list[tuple] = []
        for partition in self.reader.partitions(json.loads(begin), json.loads(end)):
            for batch in self.reader.read(partition):
                rows += zip(*(batch.column(name).to_pylist() for name in COLUMNS.split(",")))
        return rows

    def batches(self) -> Iterator[list[tuple]]:
        """Yield batches until one is empty."""
        while rows := self.batch():
            yield rows

    def rest(self) -> list[str]:
        """Return the keys of all remaining messages."""
        return [key for rows in self.batches() for key, *_ in rows]

    @property
    def metrics(self) -> dict:
        """Return the metrics in the progress of the last batch."""
        return self.reader.reportLatestOffset()["metrics"]


# Small logs for the tests of the archive.


def put(root: Path, first: int, count: int, file_size: int = support.FILE_SIZE) -> None:
    """Put messages of three topics and two queues, with bodies of many sizes."""
    with support.open_store(root, mappedFileSizeCommitLog=file_size) as store:
        for number in range(first, first + count):
            support.put(store, support.message(f"%T{number % 3}", number % 2, b"x" * (number * 37 % 500),
                                               KEYS=str(number), TAGS="a/b"))


def log_of(root: Path) -> dict[str, bytes]:
    """Return the used parts of a log's files."""
    return {name: data for name, data in support.tree(Path(root) / "commitlog").items() if any(data)}


# The files of an archive in a dict, for tests that need no Spark.


class MemoryFiles:
    """A replacement of `ArchiveFiles` that counts how many files were read."""

    def __init__(self) -> None:
        self.root = "memory:/archive"
        self.content: dict[str, bytes] = {}
        self.reads = 0

    def path(self, name):
        return archive_path(self.root, name)

    def listed(self, folder):
        start = folder + "/"
        return {name.removeprefix(start): len(data) for name, data in self.content.items() if name.startswith(start)}

    def read(self, names):
        self.reads += len(names)
        missing = [name for name in names if name not in self.content]
        if missing:
            raise PipelineError(f"{missing[0]} is missing")
        return {name: self.content[name] for name in names}

    def write(self, name, text):
        if name in self.content:
            raise PipelineError(f"{name} already exists")
        self.content[name] = text.encode()

    def remove(self, names):
        for name in list(names):
            self.path(name)
            for each in [each for each in self.content if each == name or each.startswith(name + "/")]:
                del self.content[each]

    def runs(self, folder, prefix):
        return sorted({name.partition("/")[0] for name in self.listed(folder) if name.startswith(prefix)})

    def sync(self, names):
        list(names)
