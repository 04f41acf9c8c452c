"""The job `restore`: the files of a commit log from an archive, byte for byte, checked against the manifests."""
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rmqha.common.filesystem import fsync_path
from rmqha.common.util_all import offset2file_name
from rmqha.pipeline.archive.archive_files import ArchiveFiles, archive_files
from rmqha.pipeline.archive.archive_layout import DATA, Manifest
from rmqha.pipeline.archive.assembly import Made, Target, assemble, jobs_of
from rmqha.pipeline.archive.manifests import Manifests
from rmqha.pipeline.log.log_files import COMMIT_LOG
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


@dataclass
class Verified:
    """What was proved: the runs of an archive give the bytes that they were made of, or why not."""

    archive: str
    begin: int = 0
    end: int = 0
    runs: int = 0
    messages: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether a restore would succeed."""
        return not self.problems


def restore(spark: SparkSession, archive: str, out: str, come_to: Progress = lambda done, total: None, *,
            until: int | None = None, table: str | None = None) -> Restored:
    """Write OUT/commitlog, a folder of this machine that tasks see, too. With `until` (ms) the log ends before the
    first message that was stored then or later. With `table` the messages are read from that Iceberg table.

    PipelineError when OUT/commitlog exists, when the archive has gaps, or when a byte is not as it was; then nothing
    is left in its place.
    """
    files = archive_files(spark, archive)
    manifests = Manifests(files).all()
    if not manifests:
        raise PipelineError(f"{archive} is no archive: it has no manifest")
    problems = _gaps(files, manifests) + ([] if table else _wrong_files(files, manifests))
    if problems:
        raise PipelineError(problems[0])
    end = manifests[-1].end if until is None else _end_at(spark, files, manifests, until)
    manifests = [each for each in manifests if each.begin < end]
    if not manifests:
        raise PipelineError(f"{archive} has nothing that was stored before {until} ms")
    target = os.path.join(os.path.abspath(out), COMMIT_LOG)
    result = Restored(files.root, out, manifests[0].begin, end)
    with _own(out):
        if os.path.isdir(target) and os.listdir(target):
            raise PipelineError(f"{target} has files already: give another place")
        staging = target + _STAGING
        shutil.rmtree(staging, ignore_errors=True)
        os.makedirs(staging)
        try:
            _make_files(staging, manifests, end)
            for made in _assembled(spark, files, manifests, Target(staging, end), come_to, table):
                if made.problem:
                    raise PipelineError(f"{files.root}: {made.problem}: the archive is damaged")
                result.rows += made.messages
            fsync_path(staging)
        except BaseException:
            shutil.rmtree(staging)
            raise
        if os.path.isdir(target):
            os.rmdir(target)
        os.rename(staging, target)
        fsync_path(out)
    result.files = sorted(os.listdir(target))
    return result


def verify(spark: SparkSession, archive: str, come_to: Progress = lambda done, total: None, *,
           table: str | None = None) -> Verified:
    """Make all bytes of an archive in tasks, without writing them, and compare each CRC. PipelineError when there is
    no archive; what is wrong with it is told in the result.
    """
    files = archive_files(spark, archive)
    manifests = Manifests(files).all()
    if not manifests:
        raise PipelineError(f"{archive} is no archive: it has no manifest")
    result = Verified(files.root, manifests[0].begin, manifests[-1].end, len(manifests))
    result.notes = _gaps(files, manifests)
    wrong = {} if table else _wrong_by_run(files, manifests, result.notes)
    result.problems = [problem for problems in wrong.values() for problem in problems]
    whole = [each for each in manifests if each.name not in wrong]
    for made in _assembled(spark, files, whole, None, come_to, table):
        result.messages += made.messages
        result.bytes += made.bytes
        result.problems += [made.problem] if made.problem else []
    return result


def _assembled(spark: SparkSession, files: ArchiveFiles, manifests: Sequence[Manifest], target: Target | None,
               come_to: Progress, table: str | None) -> Iterator[Made]:
    jobs = list(jobs_of(manifests))
    for number, some in enumerate(jobs, 1):
        rows = None
        if table is not None:
            from rmqha.pipeline.archive.iceberg_table import IcebergTable
            rows = IcebergTable(table, files.root).rows(spark, some[0].begin, some[-1].end)
        yield from assemble(spark, files, some, target, rows)
        come_to(number, len(jobs))


@contextmanager
def _own(out: str) -> Iterator[None]:
    """Nobody else restores to `out` meanwhile."""
    os.makedirs(out, exist_ok=True)
    fd = os.open(out, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise PipelineError(f"another process restores to {out}") from error
    finally:
        os.close(fd)


def _gaps(files: ArchiveFiles, manifests: Sequence[Manifest]) -> list[str]:
    return [f"{files.root}: offsets {one.end} to {other.begin} are missing"
            for one, other in zip(manifests, manifests[1:]) if one.end != other.begin]


def _wrong_files(files: ArchiveFiles, manifests: Sequence[Manifest]) -> list[str]:
    return [problem for problems in _wrong_by_run(files, manifests, []).values() for problem in problems]


def _wrong_by_run(files: ArchiveFiles, manifests: Sequence[Manifest], strays: list[str]) -> dict[str, list[str]]:
    """Name of a run -> its Parquet files that are missing or of another size; files of no run go to `strays`."""
    there = {f"{DATA}/{name}": size for name, size in files.listed(DATA).items()}
    for each in manifests:
        if each.version == 1:
            there.update({f"{each.folder}/{name}": size for name, size in files.listed(each.folder).items()})
    found: dict[str, list[str]] = {}
    for each in manifests:
        for name, size in each.files.items():
            path = f"{each.folder}/{name}"
            has = there.pop(path, None)
            if has != size:
                found.setdefault(each.name, []).append(f"{files.path(path)}: " + (
                    f"{has} bytes, the manifest says {size}" if has is not None
                    else "the manifest names it, but it is missing"))
    strays += [f"{files.path(path)} belongs to no run that counts" for path in sorted(there)]
    return found


def _end_at(spark: SparkSession, files: ArchiveFiles, manifests: Sequence[Manifest], until: int) -> int:
    """Offset of the first message that was stored at `until` (ms) or later."""
    for each in manifests:
        if each.maxTime >= until and each.files:
            paths = [files.path(f"{each.folder}/{name}") for name in each.files]
            rows = spark.read.schema("physicalOffset bigint, storeTimestamp timestamp").parquet(*paths)
            found = rows.where(f.col("storeTimestamp") >= f.timestamp_millis(f.lit(until))).agg(
                f.min("physicalOffset")).first()
            if found is not None and found[0] is not None:
                return int(found[0])
    return manifests[-1].end


def _make_files(folder: str, manifests: Sequence[Manifest], end: int) -> None:
    """The files of the log, of their sizes, without a byte."""
    for start, size in {start: size for each in manifests for start, size in each.segments}.items():
        if start < end:
            path = os.path.join(folder, offset2file_name(start))
            try:
                with open(path, "wb") as file:
                    file.truncate(size)
            except OSError as error:
                raise PipelineError(f"{path} of {size} bytes can't be made: {error.strerror}") from error
