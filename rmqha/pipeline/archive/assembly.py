"""Putting the bytes of a log together again from an archive, unit by unit, and comparing each CRC. Runs in tasks.

    Parquet --rows--> sorted by unit and place --> Assembler --bytes--> CRC of each piece, and the file that is restored

A unit is what one task makes in one go: a piece of version 2, a whole range of version 1. Its rows come in the order
of the log, and before them one row without a message, so a unit without messages is made, too.
"""
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rmqha.common.util_all import offset2file_name
from rmqha.pipeline.archive.archive_files import ArchiveFiles
from rmqha.pipeline.archive.archive_layout import Manifest, Piece, Residue
from rmqha.pipeline.archive.archive_scan import MESSAGES
from rmqha.pipeline.archive.remainder import TOLD_BY, records
from rmqha.pipeline.session import blame_python, use_this_python
from rmqha.pipeline.tasks import map_in_tasks

MADE = "unit bigint, messages bigint, bytes bigint, problem string"
_COLUMNS = (*TOLD_BY, "storedBody", "remainder")
_OLD_COLUMNS = ("physicalOffset", "sysFlag", "storedBody", "envelope")
_ZEROS = bytes(1 << 20)
# Together these are put together by one job of Spark: bytes of log, and Parquet files.
_JOB_BYTES, _JOB_FILES = 64 << 30, 2000


class Unit(NamedTuple):
    """What is made in one go. `file_start`: offset of the first byte of the file of the log."""

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
        """Behind the last byte."""
        return self.pieces[-1].end


class Made(NamedTuple):
    """What became of a unit. `problem`: "" when it is as it was."""

    unit: int
    messages: int
    bytes: int
    problem: str


@dataclass(frozen=True)
class Target:
    """Where bytes go. None of those from `end` on is written."""

    folder: str
    end: int


def jobs_of(manifests: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """Neighbours that one job of Spark can do at once."""
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
    """Make the bytes of the runs, which one job can do, and write them to `target`, if there is one. `rows`: the
    messages, when they are not to be read from the archive's own files.
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
    """Rows with their unit."""
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
    """The units of runs, in the order of the log; their numbers are to come."""
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
    """Tells each row of version 1 its unit."""

    def __init__(self, begins: Sequence[int], columns: Sequence[str]) -> None:
        self._begins = np.array(begins)
        self._place = list(columns).index("physicalOffset")

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with a unit."""
        for batch in batches:
            numbers = np.searchsorted(self._begins, np.asarray(batch.column(self._place)), side="right") - 1
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], [*batch.schema.names, "unit"])


class _Assembler:
    """What a task does."""

    def __init__(self, units: Sequence[Unit], target: Target | None, version: int) -> None:
        self._units = units
        self._target = target
        self.columns = _COLUMNS if version > 1 else _OLD_COLUMNS

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows become units."""
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
    """One unit that is being made."""

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
        """Messages, in the order of the log."""
        if not batch.column(batch.schema.get_field_index("physicalOffset"))[0].is_valid:
            batch = batch.slice(1)  # the row that only says that there is this unit
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
        """Bytes that are no message, up to `offset`."""
        while self._position < offset and self._residues and self._residues[0].offset == self._position:
            residue = self._residues.pop(0)
            try:
                content = residue.content()
            except ValueError as error:
                self._problem = self._problem or f"the bytes at offset {residue.offset} that are no message: {error}"
                break
            self._put(memoryview(content))
            self._skip(residue.size - len(content))
        if self._position != offset:
            what = f"bytes {self._position} to {offset} are missing" if self._position < offset \
                else f"bytes from offset {offset} on are there twice"
            self._problem = self._problem or f"in the archive {what}"
            self._position = offset

    def _skip(self, size: int) -> None:
        """Zeros, which files have by themselves."""
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
                self._problem = self._problem or "in the archive more bytes are there than the manifest says"
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
            self._problem = self._problem or (f"offsets {piece.begin} to {piece.end} came out with another CRC than "
                                              "their manifest says")
        self._crc = 0

    def end(self) -> pa.RecordBatch:
        """The row that tells what became of it."""
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
