"""A task of the job `archive`: one scan of a piece of the log yields its messages, and the bytes around them.

Rows of messages carry a bucket (the task that writes them) and a day (the folder). Other data of the piece are rows
without topic and day: they reach the driver through a separate folder, in any number.

The remainder of a record is all of it except the body, with zeros in place of numbers that other columns have. Numbers
that vary from record to record are in columns, where they compress well; the remainder (hosts, topic, properties,
anything irregular) is similar in neighboring records. A remainder that begins with eight zeros is blanked; any other
is the record's own bytes, since no record has size and magic code 0. Only values that the columns reproduce are
blanked.

Columns are Arrow arrays: storeSize, bodyCrc, queueId, sysFlag int32; queueOffset, physicalOffset int64;
bornTimestamp, storeTimestamp timestamp[us, UTC], null outside the calendar; storedBody, remainder binary.
"""
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.common.filesystem import pread
from rmqha.common.message import message_layout as layout
from rmqha.pipeline.archive.archive_files import COLUMNS, Piece, Residue
from rmqha.pipeline.log.columns import BlockColumns
from rmqha.pipeline.log.log_scan import Block, ByteRange, Hole, open_file, scan_range
from rmqha.pipeline.table import FURTHER, ROCKETMQ

TOLD_BY = ("storeSize", "bodyCrc", "queueId", "queueOffset", "physicalOffset", "sysFlag", "bornTimestamp",
           "storeTimestamp")
# Bytes of size and magic code.
_MARK = layout.BLANK.size
# Column -> (position in the head between IPv4 hosts, kind of number).
_FIELDS = {"storeSize": (0, ">i4"), "bodyCrc": (layout.BODY_CRC_POSITION, ">i4"),
           "queueId": (layout.QUEUE_ID_POSITION, ">i4"), "queueOffset": (layout.QUEUE_OFFSET_POSITION, ">i8"),
           "physicalOffset": (layout.PHYSICAL_OFFSET_POSITION, ">i8"), "sysFlag": (layout.SYSFLAG_POSITION, ">i4"),
           "bornTimestamp": (layout.BORN_TIMESTAMP_POSITION, ">i8"),
           "storeTimestamp": (layout.STORE_TIMESTAMP_POSITION, ">i8"),
           "magic": (layout.MESSAGE_MAGIC_CODE_POSITION, ">i4"), "bodyLength": (layout.BODY_LENGTH_POSITION, ">i4")}
_HEAD_SIZES = np.array([head.size for head in layout.HEADS])


def blank(envelopes: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the remainders of records, given all their bytes except the bodies, and their columns."""
    starts, data = _writable(envelopes)
    told = _told(columns)
    rows = np.flatnonzero(_may_be_blank(columns))
    for name, (position, kind) in _FIELDS.items():
        same = _numbers(data, kind)[starts[rows] + position] == told[name][rows]
        rows = rows if same.all() else rows[same]
    for position, kind in _FIELDS.values():
        _numbers(data, kind)[starts[rows] + position] = 0
    return _binary(starts, data)


def records(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the whole records, byte for byte, as a binary column. An archive of version 1 has `envelope`, and
    nothing is blanked. ValueError for columns that no archive has: a null, or a remainder that is shorter than its
    head.
    """
    bodies = columns["storedBody"]
    nulls = [name for name, column in columns.items() if column.null_count and "Timestamp" not in name]
    if nulls:
        raise ValueError(f"the column {nulls[0]} has no value for some messages")
    starts, data = _writable(columns["remainder"] if "remainder" in columns else columns["envelope"])
    heads = _HEAD_SIZES[np.asarray(columns["sysFlag"]) >> 4 & 3]
    if (np.diff(starts) < heads).any():
        raise ValueError("the stored part of a message is shorter than the head of a record")
    if "remainder" in columns:
        rows = np.flatnonzero(_numbers(data, ">i8")[starts[:-1]] == 0) if len(bodies) else np.array([], np.int64)
        told = _told(columns)
        for name, (position, kind) in _FIELDS.items():
            _numbers(data, kind)[starts[rows] + position] = told[name][rows]
    middles = starts[:-1] + heads
    bounds = np.empty(2 * len(bodies) + 1, np.int32)
    bounds[0::2], bounds[1::2] = starts, middles
    parts = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    even = np.arange(0, len(bounds) - 1, 2, dtype=np.int32)
    return pc.binary_join_element_wise(parts.take(pa.array(even)), bodies, parts.take(pa.array(even + 1)),
                                       pa.scalar(b"", pa.binary()))


def _told(columns: Mapping[str, pa.Array]) -> dict[str, np.ndarray]:
    """Return the values of each number from the columns; 0 where a column is null."""
    found = {name: np.asarray(columns[name]) for name in TOLD_BY if "Timestamp" not in name}
    for name in ("bornTimestamp", "storeTimestamp"):
        micros = columns[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        found[name] = np.asarray(pc.fill_null(micros, 0)) // 1000
    count = len(columns["storedBody"])
    found["magic"] = np.full(count, layout.MESSAGE_MAGIC_CODE)
    found["bodyLength"] = np.asarray(pc.binary_length(columns["storedBody"]))
    return found


def _may_be_blank(columns: Mapping[str, pa.Array]) -> np.ndarray:
    between_v4 = np.asarray(columns["sysFlag"]) & layout.V6_FLAGS == 0
    has_times = pc.and_(columns["bornTimestamp"].is_valid(), columns["storeTimestamp"].is_valid())
    return between_v4 & has_times.to_numpy(zero_copy_only=False)


def _writable(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets of a binary column and their end, a copy of its bytes)."""
    _, bounds, content = array.buffers()
    starts = np.frombuffer(bounds, np.int32)[array.offset:array.offset + len(array) + 1]
    data = np.array(np.frombuffer(content, np.uint8)[starts[0]:starts[-1]]) if content else np.zeros(0, np.uint8)
    return starts.astype(np.int64) - starts[0], data


def _numbers(data: np.ndarray, kind: str) -> np.ndarray:
    """Return a view of the number that begins at each byte."""
    size = np.dtype(kind).itemsize
    return np.ndarray((max(len(data) - size + 1, 0),), np.dtype(kind), data, strides=(1,))


def _binary(starts: np.ndarray, data: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1,
                                 [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(data)])


PIECE, RESIDUE = "piece", "residue"
_MOST_OF_A_RESIDUE = 16 << 20
_ROWS_OF_A_BATCH = 32768
_KINDS = {**ROCKETMQ, **FURTHER}
_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(),
          "boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC")}
# The columns that the format does not have.
_OWN = {"remainder": "binary", "piece": "bigint"}
_TYPES = {name: _OWN.get(name) or _KINDS[name].simpleString() for name in COLUMNS}
# The schema of the Parquet files, and of rows on their way to the tasks that write.
MESSAGES = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
SCHEMA = MESSAGES + ", day date, bucket int"
ROWS = pa.schema([*((name, _ARROW[kind]) for name, kind in _TYPES.items()), ("day", pa.date32()),
                     ("bucket", pa.int32())])
_READ = pa.schema([(name, _ARROW[kind]) for name, kind in _TYPES.items() if name not in _OWN]
                  + [("envelope", pa.binary())])


class Task(NamedTuple):
    """A piece of the log; its messages go to `buckets` buckets, beginning with `bucket`, by topic."""

    span: ByteRange
    bucket: int
    buckets: int


def scan_piece(task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece."""
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
        """Yield the rows of a block."""
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
        """Return buckets by topic; the queues of a topic with more than a bucket's share of the block go to several."""
        task, topics = self._task, block.rows["topic"]
        hashes = np.array([zlib.crc32(topic.encode("utf-8", "replace")) for topic in block.topics], np.int64)
        is_large = np.bincount(topics, minlength=len(hashes)) * task.buckets > len(topics)
        numbers = hashes[topics] + np.where(is_large[topics], block.rows["queueId"], 0)
        return pa.array((task.bucket + numbers % task.buckets).astype(np.int32))

    def residue(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of bytes that are not a message."""
        for first in range(begin, end, _MOST_OF_A_RESIDUE):
            last = min(first + _MOST_OF_A_RESIDUE, end)
            with open(open_file(self._span.path, first), "rb") as file:
                data = pread(file.fileno(), last - first, first - self._span.file_start)
            data = data.ljust(last - first, b"\0")
            self._come_to(first, data)
            packed = Residue.of(first, data)
            yield self._frame(RESIDUE, list(packed[:2]), packed.data.encode())

    def _come_to(self, begin: int, data: bytes | memoryview) -> None:
        """Add the next bytes of the log to the CRC."""
        if self._begin is None:
            self._begin = begin
        self._crc = zlib.crc32(data, self._crc)
        self._position = begin + len(data)

    def end(self) -> Iterator[pa.RecordBatch]:
        """Yield the bytes after the last record, and the piece itself; nothing if nothing begins in this piece."""
        if self._position is None:
            return
        if self._position < self._span.end and self._span.end == self._span.limit:
            # The blank.
            yield from self.residue(self._position, self._span.end)
        piece = Piece(self._begin or 0, self._position, self._crc, self._rows, self._span.begin)
        yield self._frame(PIECE, [*piece, *self._times], b"")

    def _frame(self, kind: str, numbers: list[int], data: bytes) -> pa.RecordBatch:
        values = {"tags": kind, "keys": json.dumps(numbers), "storedBody": data, "bucket": self._task.bucket}
        return pa.RecordBatch.from_arrays([pa.array([values.get(field.name)], field.type) for field in ROWS],
                                          schema=ROWS)


def _days(times: pa.Array) -> pa.Array:
    """Return the day (UTC) of each time; 1970-01-01 for times outside the calendar."""
    days = np.asarray(times.cast(pa.int64()).fill_null(0)) // 86_400_000_000
    return pa.array(np.maximum(days, 0).astype(np.int32)).cast(pa.date32())


def scan_gap(span: ByteRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range that holds no record at all."""
    scan = _PieceScan(Task(span, 0, 1))
    yield from scan.residue(span.begin, span.end)
    yield from scan.end()
