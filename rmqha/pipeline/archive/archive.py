"""The job `archive`: appends the new messages of a commit log to Parquet files by day, with all that a restore needs.

The job continues at the end of the archive, in runs of many files of the log. Each run reads the log once, with as many
tasks as there are cores. They partition the messages by topic and pass them to the tasks that write.

Commit protocol of a run. A job may be killed at any moment, a task of Spark may run twice, and object stores have no
rename; still each message must be in the archive once. So no file counts because it exists: a run counts once its
manifest is written, and a manifest lists the files of its run by name. `_archive_run` does in this order:

1. Write the messages to a folder with a new random name, so that a repeated run never meets older files.
2. Read what the tasks found beside the messages (pieces, residues) and check that it covers the range without gaps.
3. Count the messages in the Parquet files, compare with the log's count, and fsync files and folders.
4. Check that no other process broke the lock: then its run may cover the same offsets.
5. Write the manifest, all or nothing. This commits the run.

A crash before step 5 leaves a folder that no manifest names; the next job repeats the range and removes the folder
(`_clear_unfinished`). A crash after it loses nothing: the next job begins where the last manifest ends. A manifest
written any earlier would count files that are incomplete or not yet on disk.

`expire` removes old runs, from the beginning of the archive. It works in the reverse order: first the manifests, so
that the runs no longer count, then the files.
"""
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rmqha.common.filesystem import pread
from rmqha.common.texts import parse_json
from rmqha.pipeline.archive import archive_files as archive_lock
from rmqha.pipeline.archive.archive_files import (
    DATA,
    FRAMES,
    ArchiveFiles,
    Manifest,
    Manifests,
    Piece,
    Residue,
    Tail,
    archive_files,
    run_name,
)
from rmqha.pipeline.archive.archive_scan import MESSAGES, PIECE, SCHEMA, Task, scan_gap, scan_piece
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log import ranges
from rmqha.pipeline.log.log_ends import log_end
from rmqha.pipeline.log.log_scan import ByteRange, LogFiles, find_logs, open_file
from rmqha.pipeline.progress import map_in_tasks
from rmqha.pipeline.session import blame_python, is_connect, use_this_python


def expire(files: ArchiveFiles, manifests: Manifests, before: int, table: str | None = None) -> list[str]:
    """Remove the runs at the beginning of the archive whose messages were all stored before `before` (ms), and return
    their names. The last run stays, so that the archive knows where to continue. The caller holds the lock.
    """
    all_of_them = manifests.all()
    kept = next((number for number, each in enumerate(all_of_them) if each.maxTime >= before), len(all_of_them))
    kept = min(kept, len(all_of_them) - 1)
    gone = all_of_them[:max(kept, 0)]
    if gone:
        if table is not None:
            from rmqha.pipeline.archive.archive_table import IcebergTable
            IcebergTable(table, files.root).remove_before(all_of_them[kept].begin)
        # They stop counting before they are removed.
        manifests.keep_from(all_of_them[kept])
        files.remove(each.folder for each in gone)
    if all_of_them:
        known = {each.folder for each in all_of_them}
        left = [f"{DATA}/{name}" for name in files.runs(DATA, "run=") if f"{DATA}/{name}" not in known]
        files.remove(left)
    return [each.name for each in gone]


_BLOCK = 1 << 20
_TAIL = 1 << 20
_TIMES = "spark.sql.parquet.outputTimestampType"
Progress = Callable[[int, int], None]


class Sizes(NamedTuple):
    """The sizes of work and files, in bytes of log except for `file`."""

    piece: int = ranges.DEFAULT_PARTITION_BYTES
    run: int = 64 << 30
    # Of a Parquet file.
    file: int = 256 << 20
    # A chunk's messages go to separate files, so one task sorts at most this much.
    chunk: int = 4 << 30
    row_group: int = 16 << 20
    # Rough number of bytes of Parquet per byte of log.
    share: float = 0.25


@dataclass
class Archived:
    """The result of a job: `ranges` are the runs that it added, `expired` those that it removed."""

    source: str
    archive: str
    begin: int = 0
    end: int = 0
    ranges: list[str] = field(default_factory=list)
    rows: int = 0
    logBytes: int = 0
    archiveBytes: int = 0
    files: int = 0
    expired: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def archive(spark: SparkSession, source: str, target: str, come_to: Progress = lambda done, total: None, *,
            fail_on_data_loss: bool = True, sizes: Sizes | None = None, expire_before: int | None = None,
            break_lock: bool = False, table: str | None = None) -> Archived:
    """Append to the archive at `target` what is new in the log at `source`. Runs whose messages were all stored before
    `expire_before` (ms) are removed; the last one stays. With `table` (catalog.namespace.name) the files are also
    committed to an Iceberg table.

    PipelineError if the log has lost what would come next, unless data loss is allowed; if it is another log; or if
    another process writes to the archive.
    """
    logs = find_logs([source])
    if len(logs) != 1:
        raise PipelineError(f"{source} is {len(logs)} commit logs; each needs an archive of its own")
    files = archive_files(spark, target)
    result = Archived(source, files.root)
    with archive_lock.locked(files, f"archive of {source}", break_lock) as lock:
        job = _Job(spark, logs[0], files, sizes or Sizes(), lock)
        job.run(result, fail_on_data_loss, come_to)
        if expire_before is not None:
            result.expired = expire(files, job.manifests, expire_before, table)
        job.manifests.compact()
        if table is not None:
            from rmqha.pipeline.archive.archive_table import IcebergTable
            IcebergTable(table, files.root).add(files, job.manifests)
    return result


class _Job:
    def __init__(self, spark: SparkSession, log: LogFiles, files: ArchiveFiles, sizes: Sizes,
                 lock: archive_lock.Lock) -> None:
        self._spark, self._log, self._files, self._sizes, self._lock = spark, log, files, sizes, lock
        self.manifests = Manifests(files)

    def run(self, result: Archived, fail_on_data_loss: bool, come_to: Progress) -> None:
        last = self.manifests.last()
        result.end = log_end(self._log)
        result.begin = self._begin(last, result, fail_on_data_loss)
        self._clear_unfinished(last, result.begin)
        runs = list(self._runs(result.begin, result.end, result.notes if not fail_on_data_loss else None))
        for number, (begin, end) in enumerate(runs, 1):
            manifest = self._archive_run(begin, end)
            result.ranges.append(manifest.name)
            result.rows += manifest.rows
            result.logBytes += end - begin
            result.archiveBytes += manifest.bytes
            result.files += len(manifest.files)
            come_to(number, len(runs))

    def _begin(self, last: Manifest | None, result: Archived, fail_on_data_loss: bool) -> int:
        """Return the offset at which to continue."""
        log = self._log
        if last is None:
            return log.min_offset
        if last.end > result.end:
            raise PipelineError(f"{log.path} ends at offset {result.end}, the archive at {last.end}: it is another "
                                "log, or was truncated")
        if log.min_offset > last.end:
            if fail_on_data_loss:
                raise ranges.data_loss(f"{log.path} begins at offset {log.min_offset}, the archive ends at {last.end}")
            result.notes.append(f"offsets {last.end} to {log.min_offset} were deleted before they were archived")
        tail = last.tail
        segment = tail and next((each for each in log.segments if each.start <= tail.begin < each.end), None)
        if tail and segment and crc_of(segment.path, tail.begin - segment.start, tail.end - segment.start) \
                != tail.crc32:
            raise PipelineError(f"{segment.path}: bytes {tail.begin - segment.start} to {tail.end - segment.start} "
                                "are not those that were archived: it is another log, or was changed since")
        return max(last.end, log.min_offset)

    def _clear_unfinished(self, last: Manifest | None, begin: int) -> None:
        """Remove the remains of interrupted runs, which began where this one does, or where the archive ends."""
        left = self._files.runs(DATA, f"run={begin:020d}-")
        if last is None:
            others = sorted(set(self._files.runs(DATA, "run=")) - set(left))
            if others:
                raise PipelineError(f"{self._files.root} has messages ({others[0]} and so on) but no manifest: its "
                                    "folder _manifest was removed, or the first run was interrupted and the log has "
                                    "changed since. Use another place, or remove the files there")
        else:
            left += self._files.runs(DATA, f"run={last.end:020d}-")
        self._files.remove(f"{DATA}/{name}" for name in dict.fromkeys(left))

    def _runs(self, begin: int, end: int, notes: list[str] | None) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the runs: whole files of the log, without gaps. Gaps are added to `notes`; None: an
        error.
        """
        first, position = begin, begin
        for segment in self._log.segments:
            low, high = max(segment.start, begin), min(segment.end, end)
            if low >= high:
                continue
            if low > position:
                if notes is None:
                    raise ranges.data_loss(f"{self._log.path}: offsets {position} to {low} are missing, no file has "
                                           "them")
                notes.append(f"offsets {position} to {low} are missing, no file has them")
            if first < position and (low > position or high - first > self._sizes.run):
                yield first, position
                first = low
            first = low if first == position else first
            position = high
        if first < position:
            yield first, position

    def _archive_run(self, begin: int, end: int) -> Manifest:
        name = run_name(begin, end, uuid4().hex[:8])
        manifest = Manifest(begin, end, name, 0, self._log.path, [
            (each.start, each.size) for each in self._log.segments if each.start < end and each.end > begin])
        self._write(manifest)
        self._take_frames(manifest)
        self._files.remove([f"{manifest.folder}/{FRAMES}"])
        manifest.files = {path: size for path, size in self._files.listed(manifest.folder).items()
                          if not path.startswith(FRAMES)}
        found = self._spark.read.schema(MESSAGES).parquet(*(
            self._files.path(f"{manifest.folder}/{path}") for path in manifest.files)).count() if manifest.files else 0
        if found != manifest.rows:
            raise PipelineError(f"{found} messages were written to {self._files.path(manifest.folder)}, the log has "
                                f"{manifest.rows}: another process wrote or removed files there")
        self._files.sync([f"{manifest.folder}/{path}" for path in manifest.files])
        self._files.sync(sorted({f"{manifest.folder}/{path.rpartition('/')[0]}" for path in manifest.files}))
        self._lock.check()
        self.manifests.add(manifest)
        return manifest

    def _write(self, manifest: Manifest) -> None:
        tasks, buckets = self._tasks(manifest)
        use_this_python(self._spark)
        rows = map_in_tasks(self._spark.range(0, len(tasks), 1, len(tasks)), _scanning(tasks), SCHEMA)
        before = self._spark.conf.get(_TIMES)
        # The older INT96 has no statistics.
        self._spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
        try:
            with blame_python():
                (rows.repartitionById(buckets, "bucket").drop("bucket")
                 .sortWithinPartitions("day", "topic", "queueId", "queueOffset")
                 .write.mode("error").partitionBy("day").option("compression", "zstd")
                 .option("parquet.block.size", str(self._sizes.row_group))
                 .parquet(self._files.path(manifest.folder)))
        finally:
            self._spark.conf.set(_TIMES, before)

    def _tasks(self, manifest: Manifest) -> tuple[list[Task], int]:
        """Return (what each task scans, the number of buckets): each stretch of the log has its own buckets."""
        sizes, begin, end = self._sizes, manifest.begin, manifest.end
        spans = ranges.ranges_of(self._log, begin, end, sizes.piece, True)
        chunks = -(-(end - begin) // sizes.chunk)
        in_chunk = min(sizes.chunk, end - begin)
        for_cores = -(-min(self._cores(), len(spans)) // chunks)
        buckets = max(-(-int(in_chunk * sizes.share) // sizes.file), for_cores, 1)
        return [Task(span, (span.begin - begin) // sizes.chunk * buckets, buckets) for span in spans], chunks * buckets

    def _cores(self) -> int:
        if not is_connect(self._spark):
            return int(self._spark.sparkContext.defaultParallelism)
        # It has as many parts as there are cores.
        numbers = self._spark.range(1 << 20).select(f.spark_partition_id())
        return int(numbers.distinct().count())

    def _take_frames(self, manifest: Manifest) -> None:
        """Read into the manifest what the tasks found beside the messages."""
        path = self._files.path(f"{manifest.folder}/{FRAMES}")
        frames = self._spark.read.schema(MESSAGES).parquet(path).select("tags", "keys", "storedBody").toArrow()
        pieces, times = _unpack(frames, manifest)
        pieces.sort()
        position, whole = manifest.begin, []
        for piece in [*pieces, Piece(manifest.end, manifest.end, 0)]:
            if piece.begin < position:
                raise PipelineError(f"{self._log.path}: offsets {piece.begin} to {position} were read twice: the log "
                                    "was changed meanwhile")
            if piece.begin > position:
                whole.append(self._gap(position, piece.begin, manifest))
            if piece.end > piece.begin:
                whole.append(piece)
            position = piece.end
        manifest.pieces = whole
        manifest.residues.sort()
        manifest.rows = sum(piece.rows for piece in whole)
        if manifest.rows:
            manifest.minTime, manifest.maxTime = min(first for first, _ in times), max(last for _, last in times)
        manifest.tail = self._tail(manifest)

    def _gap(self, begin: int, end: int, manifest: Manifest) -> Piece:
        """Return a piece for bytes between two pieces in which no record begins: a blank longer than the uncut end."""
        segment = next(each for each in self._log.segments if each.start <= begin < each.end)
        span = ByteRange(segment.path, segment.start, begin, end, end, True)
        frames = pa.Table.from_batches(list(scan_gap(span))).select(["tags", "keys", "storedBody"])
        return _unpack(frames, manifest)[0][0]

    def _tail(self, manifest: Manifest) -> Tail:
        segment = next(each for each in self._log.segments if each.start < manifest.end <= each.end)
        begin = max(manifest.end - _TAIL, manifest.begin, segment.start)
        return Tail(begin, manifest.end, crc_of(segment.path, begin - segment.start, manifest.end - segment.start))


def _unpack(frames: pa.Table, manifest: Manifest) -> tuple[list[Piece], list[tuple[int, int]]]:
    """Return (pieces, (first, last) store time of each); residues are added to the manifest."""
    pieces, times = [], []
    for kind, numbers, data in zip(*(column.to_pylist() for column in frames.columns), strict=True):
        values = parse_json(numbers, "the answer of a task")
        if kind == PIECE:
            pieces.append(Piece(*values[:-2]))
            times += [(values[-2], values[-1])] if values[3] else []
        else:
            manifest.residues.append(Residue(values[0], values[1], data.decode()))
    return pieces, times


def _scanning(tasks: Sequence[Task]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from scan_piece(tasks[number])
    return run


def crc_of(path: str, begin: int, end: int) -> int:
    """Return the CRC32 of a range of a file; bytes after its end are left out."""
    crc, position, fd = 0, begin, open_file(path, begin)
    with open(fd, "rb"):
        while position < end and (data := pread(fd, min(_BLOCK, end - position), position)):
            crc = zlib.crc32(data, crc)
            position += len(data)
    return crc
