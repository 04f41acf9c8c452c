"""What a task of the job `archive` does: one scan of a piece of the log gives its messages, and what lies around them.

Rows of messages carry a bucket (which task writes them) and a day (which folder). What else is known of the piece
comes as rows without topic and day, so they get to the driver by way of a folder of their own, however many they are.
"""
import json
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqha.common.filesystem import pread
from rmqha.pipeline.archive.archive_layout import COLUMNS, Piece, Residue
from rmqha.pipeline.archive.remainder import TOLD_BY, blank
from rmqha.pipeline.log.columns import BlockColumns
from rmqha.pipeline.log.log_scan import Block, ByteRange, Hole, open_file, scan_range
from rmqha.pipeline.table import FURTHER, ROCKETMQ

PIECE, RESIDUE = "piece", "residue"
_MOST_OF_A_RESIDUE = 16 << 20
_ROWS_OF_A_BATCH = 32768
_KINDS = {**ROCKETMQ, **FURTHER}
_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(),
          "boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC")}
_OWN = {"remainder": "binary", "piece": "bigint"}  # of COLUMNS, what is no column of the format
_TYPES = {name: _OWN.get(name) or _KINDS[name].simpleString() for name in COLUMNS}
# Of Parquet files, and of rows as they go to the tasks that write.
MESSAGES = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
SCHEMA = MESSAGES + ", day date, bucket int"
ROWS = pa.schema([*((name, _ARROW[kind]) for name, kind in _TYPES.items()), ("day", pa.date32()),
                     ("bucket", pa.int32())])
_READ = pa.schema([(name, _ARROW[kind]) for name, kind in _TYPES.items() if name not in _OWN]
                  + [("envelope", pa.binary())])


class Task(NamedTuple):
    """A piece of the log; its messages go to `buckets` buckets from `bucket` on, by topic."""

    span: ByteRange
    bucket: int
    buckets: int


def scan_piece(task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    scan = _PieceScan(task)
    for found in scan_range(task.span, True):
        if isinstance(found, Hole):
            yield from scan.residue(found.offset, found.offset + found.size)
        elif len(found.rows):
            yield from scan.messages(found)
    yield from scan.end()


class _PieceScan:
    def __init__(self, task: Task) -> None:
        self._task, self._span = task, task.span
        self._begin = self._position = task.span.begin if task.span.aligned else None
        self._crc = self._rows = 0
        self._times = [1 << 62, 0]

    def messages(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The rows of a block."""
        rows = block.rows
        begin, end = int(rows["offset"][0]), int(rows["offset"][-1] + rows["size"][-1])
        self._come_to(begin, memoryview(block.data)[begin - block.base:end - block.base])
        self._rows += len(rows)
        self._times = [min(self._times[0], int(rows["storeTime"].min())),
                       max(self._times[1], int(rows["storeTime"].max()))]
        columns = BlockColumns(block, None, None, True, False, True, self._span.file_start)
        read = columns.batch(_READ)
        arrays = {name: read.column(name) for name in _READ.names}
        arrays["remainder"] = blank(arrays.pop("envelope"),
                                    {name: arrays[name] for name in (*TOLD_BY, "storedBody")})
        arrays["piece"] = pa.repeat(pa.scalar(self._span.begin, pa.int64()), len(rows))
        arrays["day"] = _days(arrays["storeTimestamp"])
        arrays["bucket"] = self._buckets(block)
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in ROWS.names], schema=ROWS)
        for first in range(0, len(batch), _ROWS_OF_A_BATCH):
            yield batch.slice(first, _ROWS_OF_A_BATCH)

    def _buckets(self, block: Block) -> pa.Array:
        """By topic; the queues of a topic that is more than a bucket's share of the block go to several."""
        task, topics = self._task, block.rows["topic"]
        hashes = np.array([zlib.crc32(topic.encode("utf-8", "replace")) for topic in block.topics], np.int64)
        is_large = np.bincount(topics, minlength=len(hashes)) * task.buckets > len(topics)
        numbers = hashes[topics] + np.where(is_large[topics], block.rows["queueId"], 0)
        return pa.array((task.bucket + numbers % task.buckets).astype(np.int32))

    def residue(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of bytes that are no message."""
        for first in range(begin, end, _MOST_OF_A_RESIDUE):
            last = min(first + _MOST_OF_A_RESIDUE, end)
            with open(open_file(self._span.path, first), "rb") as file:
                data = pread(file.fileno(), last - first, first - self._span.file_start)
            data = data.ljust(last - first, b"\0")
            self._come_to(first, data)
            packed = Residue.of(first, data)
            yield self._frame(RESIDUE, list(packed[:2]), packed.data.encode())

    def _come_to(self, begin: int, data: bytes | memoryview) -> None:
        """Sum up the next bytes of the log."""
        if self._begin is None:
            self._begin = begin
        self._crc = zlib.crc32(data, self._crc)
        self._position = begin + len(data)

    def end(self) -> Iterator[pa.RecordBatch]:
        """What lies behind the last record, and the piece itself; nothing when nothing begins in this piece."""
        if self._position is None:
            return
        if self._position < self._span.end and self._span.end == self._span.limit:
            yield from self.residue(self._position, self._span.end)  # the blank
        piece = Piece(self._begin or 0, self._position, self._crc, self._rows, self._span.begin)
        yield self._frame(PIECE, [*piece, *self._times], b"")

    def _frame(self, kind: str, numbers: list[int], data: bytes) -> pa.RecordBatch:
        values = {"tags": kind, "keys": json.dumps(numbers), "storedBody": data, "bucket": self._task.bucket}
        return pa.RecordBatch.from_arrays([pa.array([values.get(field.name)], field.type) for field in ROWS],
                                          schema=ROWS)


def _days(times: pa.Array) -> pa.Array:
    """The day (UTC) of each time; the first day of all for odd times."""
    days = np.asarray(times.cast(pa.int64()).fill_null(0)) // 86_400_000_000
    return pa.array(np.maximum(days, 0).astype(np.int32)).cast(pa.date32())


def scan_gap(span: ByteRange) -> Iterator[pa.RecordBatch]:
    """The rows of a range that holds no record at all."""
    scan = _PieceScan(Task(span, 0, 1))
    yield from scan.residue(span.begin, span.end)
    yield from scan.end()
