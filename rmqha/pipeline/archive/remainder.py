"""The remainder of a record: all of it but the body, with zeros where other columns of an archive tell the same.

Numbers that differ from record to record lie in columns, where they compress well. What is left here (hosts, topic,
properties, what is odd) is much the same in neighbours. A remainder that begins with eight zeros is blanked, any other
one is the record's own bytes: a record has neither size nor magic code 0. Only what columns really tell is blanked.

Columns are Arrow arrays: storeSize, bodyCrc, queueId, sysFlag int32; queueOffset, physicalOffset int64; bornTimestamp,
storeTimestamp timestamp[us, UTC], null beyond the calendar; storedBody, remainder binary.
"""
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.common.message import message_layout as layout

TOLD_BY = ("storeSize", "bodyCrc", "queueId", "queueOffset", "physicalOffset", "sysFlag", "bornTimestamp",
           "storeTimestamp")
_MARK = layout.BLANK.size  # bytes of size and magic code
# Column -> (position in the head between IPv4 hosts, kind of number).
_FIELDS = {"storeSize": (0, ">i4"), "bodyCrc": (layout.BODY_CRC_POSITION, ">i4"),
           "queueId": (layout.QUEUE_ID_POSITION, ">i4"), "queueOffset": (layout.QUEUE_OFFSET_POSITION, ">i8"),
           "physicalOffset": (layout.PHYSICAL_OFFSET_POSITION, ">i8"), "sysFlag": (layout.SYSFLAG_POSITION, ">i4"),
           "bornTimestamp": (layout.BORN_TIMESTAMP_POSITION, ">i8"),
           "storeTimestamp": (layout.STORE_TIMESTAMP_POSITION, ">i8"),
           "magic": (layout.MESSAGE_MAGIC_CODE_POSITION, ">i4"), "bodyLength": (layout.BODY_LENGTH_POSITION, ">i4")}
_HEAD_SIZES = np.array([head.size for head in layout.HEADS])


def blank(envelopes: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The remainders of records, given all their bytes but the bodies, and their columns."""
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
    """The whole records, byte for byte: a binary column. Of an archive of version 1 `envelope` is there, and nothing
    was blanked. ValueError for columns that no archive has: a null, or a remainder that is shorter than its head.
    """
    bodies = columns["storedBody"]
    nulls = [name for name, column in columns.items() if column.null_count and "Timestamp" not in name]
    if nulls:
        raise ValueError(f"the column {nulls[0]} has no value for some messages")
    starts, data = _writable(columns["remainder"] if "remainder" in columns else columns["envelope"])
    heads = _HEAD_SIZES[np.asarray(columns["sysFlag"]) >> 4 & 3]
    if (np.diff(starts) < heads).any():
        raise ValueError("what is kept of a message is shorter than the head of a record")
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
    """What the columns say of each number; 0 where they are null."""
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
    """(offsets of a binary column and their end, a copy of its bytes)."""
    _, bounds, content = array.buffers()
    starts = np.frombuffer(bounds, np.int32)[array.offset:array.offset + len(array) + 1]
    data = np.array(np.frombuffer(content, np.uint8)[starts[0]:starts[-1]]) if content else np.zeros(0, np.uint8)
    return starts.astype(np.int64) - starts[0], data


def _numbers(data: np.ndarray, kind: str) -> np.ndarray:
    """The number that begins at each byte."""
    size = np.dtype(kind).itemsize
    return np.ndarray((max(len(data) - size + 1, 0),), np.dtype(kind), data, strides=(1,))


def _binary(starts: np.ndarray, data: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1,
                                 [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(data)])
