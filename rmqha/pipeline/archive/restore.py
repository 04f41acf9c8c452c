"""The job `restore`: makes the files of a commit log from an archive, byte for byte, checked against the manifests.

Tasks assemble the bytes of the log unit by unit, and compare each CRC:

    Parquet --rows--> sorted by unit and place --> Assembler --bytes--> CRC of each piece, and the restored file

A unit is made by one task in one pass: a piece in version 2, a whole range in version 1. Its rows come in the order of
the log, after one row without a message, so that a unit without messages is made as well.
"""
import fcntl
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rmqha.common.filesystem import fsync_path
from rmqha.common.util_all import offset2file_name
from rmqha.pipeline.archive.archive_files import DATA, ArchiveFiles, Manifest, Manifests, Piece, Residue, archive_files
from rmqha.pipeline.archive.archive_scan import MESSAGES, TOLD_BY, records
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log.log_scan import COMMIT_LOG
from rmqha.pipeline.progress import map_in_tasks
from rmqha.pipeline.session import blame_python, use_this_python

MADE = "unit bigint, messages bigint, bytes bigint, problem string"
_COLUMNS = (*TOLD_BY, "storedBody", "remainder")
_OLD_COLUMNS = ("physicalOffset", "sysFlag", "storedBody", "envelope")
_ZEROS = bytes(1 << 20)
# The limits of one Spark job: bytes of log, and Parquet files.
_JOB_BYTES, _JOB_FILES = 64 << 30, 2000


class Unit(NamedTuple):
    """A part of the log that is made in one pass. `file_start`: offset of the first byte of the log's file."""

    number: int
    file_start: int
    pieces: tuple[Piece, ...]
    residues: tuple[Residue, ...]
    rows: int

    @property
    def begin(self) -> int:
        """The first offset."""
        return self.pieces[0].begin

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.pieces[-1].end


class Made(NamedTuple):
    """The result for a unit. `problem`: "" if its bytes are as they were."""

    unit: int
    messages: int
    bytes: int
    problem: str


@dataclass(frozen=True)
class Target:
    """The folder to write to. No byte at or after `end` is written."""

    folder: str
    end: int


def jobs_of(manifests: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """Yield groups of neighboring runs that one Spark job can process."""
    taken: list[Manifest] = []
    for manifest in manifests:
        if taken and (taken[0].version != manifest.version or manifest.end - taken[0].begin > _JOB_BYTES
                      or sum(len(each.files) for each in taken) + len(manifest.files) > _JOB_FILES):
            yield taken
            taken = []
        taken.append(manifest)
    if taken:
        yield taken


def assemble(spark: SparkSession, files: ArchiveFiles, manifests: Sequence[Manifest], target: Target | None,
             rows: DataFrame | None = None) -> list[Made]:
    """Make the bytes of runs that fit in one job, and write them to `target` if it is given. `rows`: the messages, if
    they are not to be read from the archive's own files.
    """
    units = [unit._replace(number=number) for number, unit in enumerate(units_of(manifests))]
    use_this_python(spark)
    marks = spark.range(0, len(units), 1, 1).selectExpr("id as unit")
    paths = [files.path(f"{each.folder}/{name}") for each in manifests for name in each.files]
    if rows is None and paths:
        reader = spark.read if manifests[0].version == 1 else spark.read.schema(MESSAGES)
        rows = reader.parquet(*paths)
    assembler = _Assembler(units, target, manifests[0].version)
    if rows is None:
        marks = marks.selectExpr(*(f"cast(null as {kind}) as {name}" for name, kind in _EMPTY.items()), "unit")
    else:
        marks = _numbered(spark, rows, units, assembler).unionByName(marks, allowMissingColumns=True)
    with blame_python():
        in_order = (marks.repartitionById(len(units), f.col("unit").cast("int"))
                    .sortWithinPartitions("unit", f.col("physicalOffset").asc_nulls_first()))
        found = map_in_tasks(in_order, assembler.run, MADE).toArrow()
    return sorted(Made(*row.values()) for row in found.to_pylist())


_EMPTY = {"physicalOffset": "bigint", "sysFlag": "int", "storedBody": "binary", "remainder": "binary",
          "storeSize": "int", "bodyCrc": "int", "queueId": "int", "queueOffset": "bigint",
          "bornTimestamp": "timestamp", "storeTimestamp": "timestamp", "envelope": "binary"}


def _numbered(spark: SparkSession, rows: DataFrame, units: Sequence[Unit], assembler: "_Assembler") -> DataFrame:
    """Return rows with their unit."""
    columns = assembler.columns
    if "remainder" in columns:
        numbers = [(unit.pieces[0].number, unit.number) for unit in units if unit.rows]
        table = pa.table({"piece": pa.array([piece for piece, _ in numbers], pa.int64()),
                          "unit": pa.array([number for _, number in numbers], pa.int64())})
        return rows.select(*columns, "piece").join(f.broadcast(spark.createDataFrame(table)), "piece").drop("piece")
    numbering = _Numbering([unit.begin for unit in units], columns)
    types = ", ".join(f"{name} {rows.schema[name].dataType.simpleString()}" for name in columns)
    return map_in_tasks(rows.select(*columns), numbering.run, types + ", unit bigint")


def units_of(manifests: Sequence[Manifest]) -> Iterator[Unit]:
    """Yield the units of runs, in the order of the log; their numbers are not set yet."""
    for manifest in manifests:
        residues = list(manifest.residues)
        groups = [[piece] for piece in manifest.pieces] if manifest.version > 1 else [manifest.pieces]
        for pieces in groups:
            end = pieces[-1].end
            own = []
            while residues and residues[0].offset < end:
                own.append(residues.pop(0))
            start = max(start for start, _ in manifest.segments if start <= pieces[0].begin)
            count = sum(piece.rows for piece in pieces) if manifest.version > 1 else manifest.rows
            yield Unit(0, start, tuple(pieces), tuple(own), count)


class _Numbering:
    """Assigns each row of version 1 to its unit."""

    def __init__(self, begins: Sequence[int], columns: Sequence[str]) -> None:
        self._begins = np.array(begins)
        self._place = list(columns).index("physicalOffset")

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with a unit."""
        for batch in batches:
            numbers = np.searchsorted(self._begins, np.asarray(batch.column(self._place)), side="right") - 1
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], [*batch.schema.names, "unit"])


class _Assembler:
    """The work of a task."""

    def __init__(self, units: Sequence[Unit], target: Target | None, version: int) -> None:
        self._units = units
        self._target = target
        self.columns = _COLUMNS if version > 1 else _OLD_COLUMNS

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make units from rows."""
        making: _Making | None = None
        for batch in batches:
            numbers = np.asarray(batch.column(batch.schema.get_field_index("unit")))
            bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1), len(batch)]
            for first, last in zip(bounds, bounds[1:]):
                if first == last:
                    continue
                number = int(numbers[first])
                if making is None or making.unit.number != number:
                    if making is not None:
                        yield making.end()
                    making = _Making(self._units[number], self._target)
                making.take(batch.slice(first, last - first), self.columns)
        if making is not None:
            yield making.end()


class _Making:
    """A unit that is being made."""

    def __init__(self, unit: Unit, target: Target | None) -> None:
        self.unit = unit
        self._residues = list(unit.residues)
        self._pieces = list(unit.pieces)
        self._position = unit.begin
        self._crc = self._messages = 0
        self._problem = ""
        self._target, self._fd = target, -1
        if target is not None and unit.begin < target.end:
            path = os.path.join(target.folder, offset2file_name(unit.file_start))
            self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def take(self, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
        """Add messages, in the order of the log."""
        if not batch.column(batch.schema.get_field_index("physicalOffset"))[0].is_valid:
            # This row only says that the unit exists.
            batch = batch.slice(1)
        if not len(batch):
            return
        try:
            made = records({name: batch.column(batch.schema.get_field_index(name)) for name in columns})
        except ValueError as error:
            self._problem = self._problem or f"from offset {self._position} on: {error}"
            self._messages += len(batch)
            return
        offsets = np.asarray(batch.column(batch.schema.get_field_index("physicalOffset")))
        _, bounds, content = made.buffers()
        ends = np.frombuffer(bounds, np.int32)[:len(made) + 1]
        sizes = np.diff(ends)
        data = memoryview(content) if content is not None else memoryview(b"")
        jumps = np.flatnonzero(offsets[1:] != offsets[:-1] + sizes[:-1]) + 1
        for first, last in zip([0, *jumps], [*jumps, len(made)]):
            self._fill(int(offsets[first]))
            self._put(data[ends[first]:ends[last]])
        self._messages += len(made)

    def _fill(self, offset: int) -> None:
        """Add the bytes up to `offset` that are not messages."""
        while self._position < offset and self._residues and self._residues[0].offset == self._position:
            residue = self._residues.pop(0)
            try:
                content = residue.content()
            except ValueError as error:
                self._problem = self._problem or f"the bytes at offset {residue.offset} that are not a message: {error}"
                break
            self._put(memoryview(content))
            self._skip(residue.size - len(content))
        if self._position != offset:
            what = f"bytes {self._position} to {offset} are missing" if self._position < offset \
                else f"bytes from offset {offset} on occur twice"
            self._problem = self._problem or f"in the archive {what}"
            self._position = offset

    def _skip(self, size: int) -> None:
        """Skip zeros, which files have without writing them."""
        while size > 0:
            part = min(size, len(_ZEROS))
            self._sum(memoryview(_ZEROS)[:part])
            size -= part

    def _put(self, data: memoryview) -> None:
        if self._fd >= 0 and self._target is not None:
            position = self._position - self.unit.file_start
            rest = data[:max(self._target.end - self._position, 0)]
            while rest:
                written = os.pwrite(self._fd, rest, position)
                rest, position = rest[written:], position + written
        self._sum(data)

    def _sum(self, data: memoryview) -> None:
        while data:
            if not self._pieces:
                self._problem = self._problem or "in the archive there are more bytes than the manifest says"
                return
            part = data[:self._pieces[0].end - self._position]
            self._crc = zlib.crc32(part, self._crc)
            self._position += len(part)
            data = data[len(part):]
            if not part or self._position == self._pieces[0].end:
                self._end_piece()

    def _end_piece(self) -> None:
        piece = self._pieces.pop(0)
        if self._crc != piece.crc32:
            self._problem = self._problem or (f"offsets {piece.begin} to {piece.end} have a different CRC than "
                                              "their manifest says")
        self._crc = 0

    def end(self) -> pa.RecordBatch:
        """Complete the unit and return the row with its result."""
        try:
            self._fill(self.unit.end)
            if self._fd >= 0:
                os.fsync(self._fd)
        finally:
            if self._fd >= 0:
                os.close(self._fd)
        if self._messages != self.unit.rows:
            self._problem = self._problem or (f"offsets {self.unit.begin} to {self.unit.end} have {self._messages} "
                                              f"messages, the manifest says {self.unit.rows}")
        values = (self.unit.number, self._messages, self.unit.end - self.unit.begin, self._problem)
        return pa.record_batch([pa.array([value], kind) for value, kind in
                                zip(values, (pa.int64(), pa.int64(), pa.int64(), pa.string()))], names=Made._fields)


_STAGING = ".restoring"
Progress = Callable[[int, int], None]


@dataclass
class Restored:
    """The result of a restore."""

    archive: str
    out: str
    begin: int = 0
    end: int = 0
    rows: int = 0
    files: list[str] = field(default_factory=list)


@dataclass
class Verified:
    """The result of a check: the runs of an archive give the bytes that they were made of, or why not."""

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
        """True if a restore would succeed."""
        return not self.problems


def restore(spark: SparkSession, archive: str, out: str, come_to: Progress = lambda done, total: None, *,
            until: int | None = None, table: str | None = None) -> Restored:
    """Write OUT/commitlog, a folder of this machine that the tasks can also access. With `until` (ms) the log ends
    before the first message that was stored then or later. With `table` the messages are read from that Iceberg table.

    PipelineError if OUT/commitlog exists, if the archive has gaps, or if a byte is not as it was; then nothing is left
    in its place.
    """
    files = archive_files(spark, archive)
    manifests = Manifests(files).all()
    if not manifests:
        raise PipelineError(f"{archive} is not an archive: it has no manifest")
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
            raise PipelineError(f"{target} already has files: use another place")
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
    """Make all bytes of an archive in tasks, without writing them, and compare each CRC. PipelineError if there is no
    archive; problems of an archive are in the result.
    """
    files = archive_files(spark, archive)
    manifests = Manifests(files).all()
    if not manifests:
        raise PipelineError(f"{archive} is not an archive: it has no manifest")
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
            from rmqha.pipeline.archive.archive_table import IcebergTable
            rows = IcebergTable(table, files.root).rows(spark, some[0].begin, some[-1].end)
        yield from assemble(spark, files, some, target, rows)
        come_to(number, len(jobs))


@contextmanager
def _own(out: str) -> Iterator[None]:
    """Prevent other processes from restoring to `out` during the block."""
    os.makedirs(out, exist_ok=True)
    fd = os.open(out, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise PipelineError(f"another process is restoring to {out}") from error
    finally:
        os.close(fd)


def _gaps(files: ArchiveFiles, manifests: Sequence[Manifest]) -> list[str]:
    return [f"{files.root}: offsets {one.end} to {other.begin} are missing"
            for one, other in zip(manifests, manifests[1:]) if one.end != other.begin]


def _wrong_files(files: ArchiveFiles, manifests: Sequence[Manifest]) -> list[str]:
    return [problem for problems in _wrong_by_run(files, manifests, []).values() for problem in problems]


def _wrong_by_run(files: ArchiveFiles, manifests: Sequence[Manifest], strays: list[str]) -> dict[str, list[str]]:
    """Return the name of a run -> its Parquet files that are missing or have another size; add stray files to
    `strays`.
    """
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
    """Return the offset of the first message that was stored at `until` (ms) or later."""
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
    """Create the files of the log with their sizes, without content."""
    for start, size in {start: size for each in manifests for start, size in each.segments}.items():
        if start < end:
            path = os.path.join(folder, offset2file_name(start))
            try:
                with open(path, "wb") as file:
                    file.truncate(size)
            except OSError as error:
                raise PipelineError(f"{path} of {size} bytes can't be made: {error.strerror}") from error
