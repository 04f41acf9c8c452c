"""The job `restore`: the files of a commit log from an archive, byte for byte, checked against the manifests."""
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession

from rmqha.common.fsync import fsync_path
from rmqha.common.message.message_layout import HEADS
from rmqha.common.util_all import offset2file_name
from rmqha.pipeline.archive import crc_of, run_all
from rmqha.pipeline.archive_layout import Manifest, Piece, read_manifests
from rmqha.pipeline.log_files import COMMIT_LOG
from rmqha.pipeline.options import PipelineError

_STAGING = ".restoring"
Progress = Callable[[int, int], None]


@dataclass
class Restored:
    """What was made."""

    archive: str
    out: str
    begin: int = 0
    end: int = 0
    rows: int = 0
    files: list[str] = field(default_factory=list)


def restore(spark: SparkSession, archive: str, out: str, come_to: Progress = lambda done, total: None) -> Restored:
    """Write OUT/commitlog. PipelineError when it exists, when the archive has gaps, or when a byte is not as it was;
    then nothing is left in its place.
    """
    manifests = read_manifests(archive)
    if not manifests:
        raise PipelineError(f"{archive} is no archive: it has no manifest")
    for one, other in zip(manifests, manifests[1:]):
        if one.end != other.begin:
            raise PipelineError(f"{archive}: offsets {one.end} to {other.begin} are missing")
    target = os.path.join(out, COMMIT_LOG)
    if os.path.isdir(target) and os.listdir(target):
        raise PipelineError(f"{target} has files already: give another place")
    for manifest in manifests:
        _check_files(archive, manifest)
    staging = target + _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    os.makedirs(staging)
    result = Restored(archive, out, manifests[0].begin, manifests[-1].end)
    try:
        for number, manifest in enumerate(manifests, 1):
            result.rows += _restore_range(spark, archive, manifest, staging)
            come_to(number, len(manifests))
        _sync_files(staging)
    except BaseException:
        shutil.rmtree(staging)
        raise
    if os.path.isdir(target):
        os.rmdir(target)
    os.rename(staging, target)
    fsync_path(out)
    result.files = sorted(os.listdir(target))
    return result


def _check_files(archive: str, manifest: Manifest) -> None:
    """PipelineError for a Parquet file that is missing or of another size."""
    folder = manifest.folder(archive)
    for name, size in manifest.files.items():
        path = os.path.join(folder, name)
        found = os.path.getsize(path) if os.path.isfile(path) else None
        if found != size:
            raise PipelineError(f"{path}: " + (f"{found} bytes, the manifest says {size}" if found is not None
                                               else "the manifest names it, but it is missing"))


def _restore_range(spark: SparkSession, archive: str, manifest: Manifest, staging: str) -> int:
    path = os.path.join(staging, offset2file_name(manifest.segment))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, manifest.fileSize)
        for residue in manifest.residues:
            _write(fd, residue.content(), residue.offset - manifest.segment)
    finally:
        os.close(fd)
    rows = 0
    if manifest.files:
        files = [os.path.join(manifest.folder(archive), name) for name in manifest.files]
        frame = spark.read.parquet(*files).select("physicalOffset", "sysFlag", "envelope", "storedBody")
        writer = RecordWriter(path, manifest.segment)
        rows = sum(row.rows for row in frame.mapInArrow(writer.write, "rows bigint").collect())
    if rows != manifest.rows:
        raise PipelineError(f"{manifest.folder(archive)} has {rows} messages, its manifest says {manifest.rows}")
    _verify(spark, path, manifest)
    return rows


class RecordWriter:
    """Puts records together and to their places in a file. Runs in tasks."""

    def __init__(self, path: str, file_start: int) -> None:
        self._path = path
        self._file_start = file_start

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all, give back how many."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for batch in batches:
                for offset, sys_flag, envelope, body in zip(*(column.to_pylist() for column in batch.columns)):
                    head = HEADS[sys_flag >> 4 & 3].size
                    _write(fd, b"".join((envelope[:head], body, envelope[head:])), offset - self._file_start)
                yield pa.RecordBatch.from_arrays([pa.array([len(batch)], pa.int64())], ["rows"])
        finally:
            os.close(fd)


def _write(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written


def _verify(spark: SparkSession, path: str, manifest: Manifest) -> None:
    """PipelineError naming the first piece whose bytes are not as they were."""
    start = manifest.segment

    def is_right(piece: Piece) -> bool:
        return crc_of(path, piece.begin - start, piece.end - start) == piece.crc32
    right = run_all(spark, is_right, manifest.pieces)
    if not all(right):
        piece = manifest.pieces[right.index(False)]
        raise PipelineError(f"offsets {piece.begin} to {piece.end} came out with another CRC than their manifest "
                            f"({manifest.name}) says: the archive is damaged")


def _sync_files(folder: str) -> None:
    for entry in os.scandir(folder):
        fsync_path(entry.path)
    fsync_path(folder)
