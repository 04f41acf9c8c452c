"""The job `archive`: a commit log as Parquet by topic and day, with all that is needed to make the log again.

It goes on where the archive ends, file by file of the log; a range counts once its manifest is written. Running it
twice does nothing twice, and a run that was broken off is taken up by the next.
"""
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rmqha.common.fsync import fsync_path
from rmqha.common.segment_files import Segment, pread
from rmqha.pipeline import ranges
from rmqha.pipeline.archive_layout import (
    COLUMNS,
    STAGING,
    Manifest,
    Piece,
    Residue,
    range_name,
    read_manifests,
    write_manifest,
)
from rmqha.pipeline.commit_log_source import FORMAT
from rmqha.pipeline.log_files import LogFiles, find_logs
from rmqha.pipeline.log_scan import ByteRange, Hole, log_end, open_file, scan_range
from rmqha.pipeline.options import PipelineError

_BLOCK = 4 << 20
Progress = Callable[[int, int], None]
PieceT = TypeVar("PieceT")
ResultT = TypeVar("ResultT")


@dataclass
class Archived:
    """What was done: `ranges` are those that were added now."""

    source: str
    archive: str
    begin: int = 0
    end: int = 0
    ranges: list[str] = field(default_factory=list)
    rows: int = 0
    logBytes: int = 0
    archiveBytes: int = 0
    notes: list[str] = field(default_factory=list)


class RangeFrame(NamedTuple):
    """What a task found around the messages of a piece."""

    rows: int
    piece: Piece
    residues: list[Residue]


def archive(spark: SparkSession, source: str, target: str, come_to: Progress = lambda done, total: None, *,
            fail_on_data_loss: bool = True, piece_bytes: int = ranges.DEFAULT_PARTITION_BYTES) -> Archived:
    """Add to the archive at `target` what the log at `source` has and it has not.

    PipelineError when the log has lost what would come next, unless data loss is allowed, or is another log.
    """
    logs = find_logs([source])
    if len(logs) != 1:
        raise PipelineError(f"{source} is {len(logs)} commit logs; each needs an archive of its own")
    log = logs[0]
    result = Archived(source, target)
    os.makedirs(target, exist_ok=True)
    manifests = read_manifests(target)
    _clear_unfinished(target, manifests)
    result.end = log_end(log)
    result.begin = _begin(log, manifests, result, fail_on_data_loss)
    spans = [(segment, max(segment.start, result.begin), min(segment.end, result.end)) for segment in log.segments]
    spans = [(segment, begin, end) for segment, begin, end in spans if begin < end]
    for number, (segment, begin, end) in enumerate(spans, 1):
        manifest = _archive_range(spark, log, segment, (begin, end), target, piece_bytes)
        result.ranges.append(manifest.name)
        result.rows += manifest.rows
        result.logBytes += end - begin
        result.archiveBytes += sum(manifest.files.values())
        come_to(number, len(spans))
    return result


def _clear_unfinished(target: str, manifests: list[Manifest]) -> None:
    """Remove what runs that were broken off have left."""
    shutil.rmtree(os.path.join(target, STAGING), ignore_errors=True)
    whole = {os.path.basename(manifest.folder(target)) for manifest in manifests}
    for entry in os.scandir(target):
        if entry.is_dir() and entry.name.startswith("range=") and entry.name not in whole:
            shutil.rmtree(entry.path)


def _begin(log: LogFiles, manifests: list[Manifest], result: Archived, fail_on_data_loss: bool) -> int:
    """Where to go on."""
    if not manifests:
        return log.min_offset
    last = manifests[-1]
    if last.end > result.end:
        raise PipelineError(f"{log.path} ends at offset {result.end}, the archive at {last.end}: it is another log, or "
                            "was cut off")
    if log.min_offset > last.end:
        if fail_on_data_loss:
            raise ranges.data_loss(f"{log.path} begins at offset {log.min_offset}, the archive ends at {last.end}")
        result.notes.append(f"offsets {last.end} to {log.min_offset} were deleted before they were archived")
    _check_same_log(log, last)
    return max(last.end, log.min_offset)


def _check_same_log(log: LogFiles, last: Manifest) -> None:
    """PipelineError when the end of the archive is not what the log has there."""
    piece = last.pieces[-1]
    segment = next((each for each in log.segments if each.start == last.segment), None)
    if segment is not None and crc_of(segment.path, piece.begin - segment.start, piece.end - segment.start) \
            != piece.crc32:
        raise PipelineError(f"{segment.path}: bytes {piece.begin - segment.start} to {piece.end - segment.start} are "
                            "not those that were archived: it is another log, or was changed since")


def crc_of(path: str, begin: int, end: int) -> int:
    """CRC32 of bytes of a file; those behind its end count as missing."""
    crc, position, fd = 0, begin, open_file(path, begin)
    with open(fd, "rb"):
        while position < end and (data := pread(fd, min(_BLOCK, end - position), position)):
            crc = zlib.crc32(data, crc)
            position += len(data)
    return crc


def _archive_range(spark: SparkSession, log: LogFiles, segment: Segment, span: tuple[int, int], target: str,
                   piece_bytes: int) -> Manifest:
    begin, end = span
    staging = os.path.join(target, STAGING, range_name(begin, end))
    pieces = [ByteRange(each.path, each.file_start, each.begin, each.end, end, each.aligned)
              for each in ranges.ranges_of(log._replace(segments=[segment]), begin, end, piece_bytes, True)]
    frames = run_all(spark, frame_of, pieces)
    manifest = Manifest(begin, end, segment.start, segment.size, sum(frame.rows for frame in frames), segment.path,
                        [frame.piece for frame in frames], [each for frame in frames for each in frame.residues])
    os.makedirs(staging)
    if manifest.rows:
        _write_messages(spark, segment, span, staging, piece_bytes)
    manifest.files = _files_below(staging)
    found = sum(pq.read_metadata(os.path.join(staging, name)).num_rows for name in manifest.files)
    if found != manifest.rows:
        raise PipelineError(f"{segment.path}: {found} messages were written to {staging}, the range has "
                            f"{manifest.rows}: the log was changed meanwhile")
    os.rename(staging, manifest.folder(target))
    fsync_path(target)
    write_manifest(target, manifest)
    return manifest


def run_all(spark: SparkSession, work: Callable[[PieceT], ResultT], pieces: list[PieceT]) -> list[ResultT]:
    """The results of `work` for all pieces, in tasks; without any for a single one."""
    if len(pieces) == 1:
        return [work(pieces[0])]
    results: list[ResultT] = spark.sparkContext.parallelize(pieces, len(pieces)).map(work).collect()
    return results


def _write_messages(spark: SparkSession, segment: Segment, span: tuple[int, int], staging: str,
                    piece_bytes: int) -> None:
    frame = (spark.read.format(FORMAT).option("columns", ",".join(COLUMNS)).option("decompress", "false")
             .option("startingOffsets", str(span[0])).option("endingOffsets", str(span[1]))
             .option("maxPartitionBytes", str(piece_bytes)).option("failOnDataLoss", "true").load(segment.path))
    (frame.where("topic is not null").withColumn("day", frame.storeTimestamp.cast("date"))
     .sortWithinPartitions("topic", "day", "queueId", "queueOffset")
     .write.mode("append").partitionBy("topic", "day").option("compression", "zstd").parquet(staging))


def frame_of(span: ByteRange) -> RangeFrame:
    """Count the messages of a piece, pack the bytes that are not messages, and sum up all bytes. Runs in a task."""
    rows, residues, position = 0, [], None
    for found in scan_range(span, True):
        if isinstance(found, Hole):
            residues.append(_residue(span, found.offset, found.offset + found.size))
            position = found.offset + found.size
        elif len(found.rows):
            rows += len(found.rows)
            position = int(found.rows["offset"][-1] + found.rows["size"][-1])
    if position is None and span.aligned:
        position = span.begin
    last = span.end == span.limit
    if position is not None and position < span.end and last:
        residues.append(_residue(span, position, span.end))  # the blank
    crc = crc_of(span.path, span.begin - span.file_start, span.end - span.file_start)
    return RangeFrame(rows, Piece(span.begin, span.end, crc), residues)


def _residue(span: ByteRange, begin: int, end: int) -> Residue:
    fd = open_file(span.path, begin)
    with open(fd, "rb"):
        return Residue.of(begin, pread(fd, end - begin, begin - span.file_start))


def _files_below(folder: str) -> dict[str, int]:
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(path, name)
            if name.endswith(".parquet"):
                found[os.path.relpath(full, folder)] = os.path.getsize(full)
                fsync_path(full)
            else:
                os.unlink(full)  # Spark's marker and checksums, which are of the whole folder
    return found
