"""Record batches from blocks of records: whole columns at a time; Arrow and the kernels gather the bytes."""
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.common import compression, sys_flags
from rmqha.common.compression import MAX_DECOMPRESSED_SIZE, CompressionError, TooLargeError
from rmqha.common.message import message_const
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import bytes_to_host
from rmqha.pipeline.log.log_scan import Block, Hole
from rmqha.pipeline.table import KAFKA_SOURCE
from rmqha.pipeline.worker import FIRST_MS, LAST_MS
from rmqha.store.bulk.bulk_python import MapColumn, TextColumn, property_columns

_KAFKA_LOG_APPEND_TIME = 1
# The most bytes that a batch's decompressed bodies have, unless it is a single body. A block of 2 MiB can hold 2 GiB of
# zeros.
BATCH_BODIES = 32 << 20
_NAMED = tuple(name.encode() for name in (message_const.PROPERTY_KEYS, message_const.PROPERTY_TAGS,
                                          message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX))


class BodyError(ValueError):
    """A body that does not decompress. `offset`: its record's offset in the log."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"the body of the record at offset {offset} does not decompress: {reason}")
        self.offset = offset


class _FullError(Exception):
    """The batch has no room for another body."""


class BlockColumns:
    """The columns of the chosen rows of a block. Each is computed at its first use, and at most once.

    `decompress`: whether bodies are decompressed. `keep_bad`: a body that does not decompress is null, otherwise
    BodyError.
    """

    def __init__(self, block: Block, chosen: np.ndarray | None, broker_name: str | None, verified: bool,
                 decompress: bool = True, keep_bad: bool = True, file_start: int = 0) -> None:
        self._block = block
        self._rows = block.rows if chosen is None else block.rows[chosen]
        self._bytes = np.frombuffer(block.data, np.uint8)
        self._broker_name, self._verified = broker_name, verified
        self._decompress, self._keep_bad, self._file_start = decompress, keep_bad, file_start
        self._at = self._rows["offset"] - block.base
        # The compressed bodies, decompressed.
        self._plain: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def batches(self, schema: pa.Schema, kafka: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `schema` with all rows, in order. The decompressed bodies of each have at most
        BATCH_BODIES bytes, or the batch has one body, of at most MAX_DECOMPRESSED_SIZE.
        """
        name = "value" if kafka else "body"
        if name not in schema.names or not self._decompress or not self._is_packed.any():
            yield self.batch(schema, kafka)
            return
        first = 0
        while first < len(self):
            plain, end = self._inflated(first)
            part = self._part(first, end)
            part._plain = plain
            del plain
            batch = part.batch(schema, kafka)
            del part
            yield batch
            first = end

    def _part(self, first: int, end: int) -> "BlockColumns":
        """Return the columns of some of the rows."""
        part = BlockColumns(self._block, np.arange(0), self._broker_name, self._verified, self._decompress,
                            self._keep_bad, self._file_start)
        part._rows, part._at = self._rows[first:end], self._at[first:end]
        return part

    def batch(self, schema: pa.Schema, kafka: bool = False) -> pa.RecordBatch:
        """Return one record batch of `schema` with all rows, whatever size their bodies decompress to."""
        arrays = []
        for field in schema:
            if kafka and field.name == "timestampType":
                array = pa.array(np.full(len(self), _KAFKA_LOG_APPEND_TIME, np.int32))
            else:
                name = KAFKA_SOURCE[field.name] if kafka else field.name
                array = _MAKERS[name](self)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # -- numbers of the head --

    def number(self, dtype: str, position: np.ndarray | int) -> np.ndarray:
        """Return a big-endian number of each record, `position` bytes after its start."""
        kind = np.dtype(dtype)
        count = max(len(self._bytes) - kind.itemsize + 1, 0)
        view = np.ndarray((count,), kind, self._block.data, strides=(1,))
        return view[self._at + position].astype(kind.newbyteorder("="))

    @cached_property
    def _born_v6(self) -> np.ndarray:
        return np.where(self._rows["sysFlag"] & sys_flags.BORNHOST_V6_FLAG, layout.MORE_IN_V6, 0)

    @cached_property
    def _both_v6(self) -> np.ndarray:
        store_v6 = np.where(self._rows["sysFlag"] & sys_flags.STOREHOSTADDRESS_V6_FLAG, layout.MORE_IN_V6, 0)
        return self._born_v6 + store_v6

    @cached_property
    def _body_at(self) -> np.ndarray:
        return layout.HEAD_LENGTH + self._both_v6

    @cached_property
    def _body_length(self) -> np.ndarray:
        return self.number(">i4", self._both_v6 + layout.BODY_LENGTH_POSITION)

    @cached_property
    def _topic_at(self) -> np.ndarray:
        return self._body_at + self._body_length

    @cached_property
    def _properties_at(self) -> np.ndarray:
        return self._topic_at + 3 + self._bytes[self._at + self._topic_at]

    # -- bytes --

    def gather(self, begin: np.ndarray, length: np.ndarray) -> pa.Array:
        """Return `length` bytes of each record from `begin` on, concatenated, as a binary column."""
        if not len(self):
            return pa.array([], pa.binary())
        offsets = np.empty(2 * len(self), np.int32)
        offsets[0::2] = self._at + begin
        offsets[1::2] = offsets[0::2] + length
        # Wanted bytes and the bytes between them alternate; the even ones are copied.
        both = pa.Array.from_buffers(pa.binary(), len(offsets) - 1,
                                     [None, pa.py_buffer(offsets), pa.py_buffer(self._block.data)])
        return both.take(pa.array(np.arange(0, len(offsets) - 1, 2, dtype=np.int32)))

    @cached_property
    def stored_body(self) -> pa.Array:
        """The bodies as stored."""
        return self.gather(self._body_at, self._body_length)

    @cached_property
    def body(self) -> pa.Array:
        """The bodies, decompressed."""
        packed = self._is_packed
        if not self._decompress or not packed.any():
            return self.stored_body
        plain = [self._inflate(index) for index in np.flatnonzero(packed)] if self._plain is None else self._plain
        self._plain = None
        return pc.replace_with_mask(self.stored_body, pa.array(packed), pa.array(plain, pa.binary()))

    @cached_property
    def _is_packed(self) -> np.ndarray:
        """The mask of bodies that must be decompressed."""
        return ((self._rows["sysFlag"] & sys_flags.COMPRESSED_FLAG) != 0) & (self._body_length > 0)

    def _inflated(self, first: int) -> tuple[list[bytes | None], int]:
        """Return (the compressed bodies of the rows from `first` on, decompressed; the row after the last one that fits
        in a batch).
        """
        plain: list[bytes | None] = []
        left = BATCH_BODIES
        for index in (np.flatnonzero(self._is_packed[first:]) + first).tolist():
            try:
                body = self._inflate(index, MAX_DECOMPRESSED_SIZE if left == BATCH_BODIES else left)
            except _FullError:
                return plain, index
            plain.append(body)
            left -= len(body or b"")
            if left <= 0:
                return plain, index + 1
        return plain, len(self)

    def _inflate(self, index: int, most: int = MAX_DECOMPRESSED_SIZE) -> bytes | None:
        """Return the body of a row; for a bad one None if those are kept, otherwise BodyError. _FullError if it has
        more than `most` bytes and could still fit in a batch of its own.
        """
        begin, length = int(self._at[index] + self._body_at[index]), int(self._body_length[index])
        sys_flag = int(self._rows["sysFlag"][index])
        try:
            compressor = compression.get_compressor(sys_flags.get_compression_type(sys_flag))
            return compressor.decompress(bytes(self._bytes[begin:begin + length]), most)
        except ValueError as error:
            if isinstance(error, TooLargeError) and most < MAX_DECOMPRESSED_SIZE:
                raise _FullError from None
            missing = isinstance(error, CompressionError) and isinstance(error.__cause__, ImportError)
            if self._keep_bad and not missing:
                return None
            raise BodyError(int(self._rows["offset"][index]), str(error)) from error

    @cached_property
    def envelope(self) -> pa.Array:
        """The records without their bodies: head, topic, properties."""
        head = self.gather(np.zeros(len(self), np.int64), self._body_at)
        tail = self.gather(self._topic_at, self._rows["size"] - self._topic_at)
        return pc.binary_join_element_wise(head, tail, pa.scalar(b"", pa.binary()))

    # -- text --

    @cached_property
    def topic(self) -> pa.Array:
        """The topics."""
        return pa.array([_unicode(topic) for topic in self._block.topics], pa.string()).take(
            pa.array(np.ascontiguousarray(self._rows["topic"])))

    def host(self, position: np.ndarray, v6: np.ndarray) -> pa.Array:
        """Return address:port of each record."""
        is_v6 = v6 != 0
        keys = np.where(is_v6, 0, self.number(">u8", np.where(is_v6, 0, position)))
        # The common case: a broker's own address.
        if len(keys) and not is_v6.any() and (keys == keys[0]).all():
            return self.same(_host_text(int(keys[0]).to_bytes(layout.HOST_LENGTH, "big")), pa.string())
        distinct, numbers = np.unique(keys, return_inverse=True)
        names = [_host_text(int(key).to_bytes(layout.HOST_LENGTH, "big")) for key in distinct]
        for row in np.flatnonzero(is_v6):
            at = int(self._at[row] + position[row])
            names.append(_host_text(self._block.data[at:at + layout.V6_HOST_LENGTH]))
            numbers[row] = len(names) - 1
        return pa.array(names, pa.string()).take(pa.array(numbers))

    @cached_property
    def properties(self) -> "Properties":
        """The properties."""
        return Properties(self._block.data, self._at + self._properties_at, self._at + self._rows["size"])

    def time(self, name: str) -> pa.Array:
        """Return milliseconds as timestamps; null if outside the calendar."""
        ms = self._rows["storeTime"] if name == "store" else self.number(">i8", layout.BORN_TIMESTAMP_POSITION)
        odd = (ms < FIRST_MS) | (ms > LAST_MS)
        micros = np.where(odd, 0, ms) * 1000
        return pa.array(micros, mask=odd if odd.any() else None).cast(pa.timestamp("us", "UTC"))

    def row(self, name: str) -> pa.Array:
        """Return a column of the kernel's rows."""
        return pa.array(np.ascontiguousarray(self._rows[name]))

    def same(self, value: object, kind: pa.DataType) -> pa.Array:
        """Return a column that repeats one value."""
        return pa.repeat(pa.scalar(value, kind), len(self))


class Properties:
    """The properties of many records: their texts are the bytes of `data` from each of `begins` to each of `ends`."""

    def __init__(self, data: bytes, begins: np.ndarray, ends: np.ndarray) -> None:
        self._data, self._begins, self._ends = data, begins.astype(np.int64), ends.astype(np.int64)
        self._map: pa.Array | None = None
        self._named: dict[str, pa.Array] = {}

    def all(self) -> pa.Array:
        """Return a map column."""
        if self._map is None:
            self._make(with_map=True)
        return self._map

    def one(self, name: str) -> pa.Array:
        """Return the values of one of the named properties; null if it is missing."""
        if not self._named:
            self._make(with_map=False)
        return self._named[name]

    def _make(self, with_map: bool) -> None:
        count = len(self._begins)
        found, named = property_columns(self._data, self._begins, self._ends, _NAMED, with_map)
        for name, buffers in zip(_NAMED, named, strict=True):
            text = TextColumn(*buffers)
            self._named[name.decode()] = _texts(count, text.valid, text.offsets, text.values)
        if found is not None:
            entries = MapColumn(*found)
            bounds = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(entries.bounds)])
            size = bounds[count].as_py()
            self._map = pa.MapArray.from_arrays(bounds, _texts(size, None, entries.name_offsets, entries.names),
                                                _texts(size, None, entries.value_offsets, entries.values))


def _texts(count: int, valid: bytes | None, offsets: bytes, values: bytes) -> pa.Array:
    """Return a text column made of its buffers."""
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(values),
                                       None if valid is None else pa.py_buffer(valid))


def _unicode(text: str) -> str:
    """Replace the characters that Arrow cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _host_text(data: bytes) -> str:
    address, port = bytes_to_host(data)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def hole_batch(hole: Hole, schema: pa.Schema, broker_name: str | None, kafka: bool = False) -> pa.RecordBatch:
    """Return the row that represents a hole: all null except its place, its size, and crcOk."""
    values = {} if kafka else {"brokerName": broker_name, "physicalOffset": hole.offset, "crcOk": False,
                               "storeSize": min(hole.size, 0x7FFF_FFFF), "segment": hole.file_start}
    return pa.RecordBatch.from_arrays([pa.array([values.get(field.name)], field.type) for field in schema],
                                      schema=schema)


def _headers(properties: pa.MapArray) -> pa.Array:
    """Return properties as the headers of Kafka's connector; null if a message has none."""
    entries = pa.StructArray.from_arrays([properties.keys, properties.items.cast(pa.binary())], ["key", "value"])
    lists = pa.ListArray.from_arrays(properties.offsets, entries)
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), pa.scalar(None, lists.type), lists)


_MAKERS: dict[str, Callable[[BlockColumns], pa.Array]] = {
    "topic": lambda block: block.topic,
    "flag": lambda block: pa.array(block.number(">i4", layout.MESSAGE_FLAG_POSITION)),
    "body": lambda block: block.body,
    "properties": lambda block: block.properties.all(),
    "headers": lambda block: _headers(block.properties.all()),
    "brokerName": lambda block: block.same(block._broker_name, pa.string()),
    "queueId": lambda block: block.row("queueId"),
    "queueOffset": lambda block: block.row("queueOffset"),
    "bornTimestamp": lambda block: block.time("born"),
    "storeTimestamp": lambda block: block.time("store"),
    "keys": lambda block: block.properties.one(message_const.PROPERTY_KEYS),
    "tags": lambda block: block.properties.one(message_const.PROPERTY_TAGS),
    "uniqKey": lambda block: block.properties.one(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
    "physicalOffset": lambda block: block.row("offset"),
    "storeSize": lambda block: block.row("size"),
    "sysFlag": lambda block: block.row("sysFlag"),
    "bodyCrc": lambda block: pa.array(block.number(">i4", layout.BODY_CRC_POSITION)),
    "reconsumeTimes": lambda block: pa.array(
        block.number(">i4", layout.RECONSUME_TIMES_POSITION + block._both_v6)),
    "preparedTransactionOffset": lambda block: pa.array(
        block.number(">i8", layout.PREPARED_TRANSACTION_OFFSET_POSITION + block._both_v6)),
    "bornHost": lambda block: block.host(np.full(len(block), layout.BORN_HOST_POSITION), block._born_v6),
    "storeHost": lambda block: block.host(layout.STORE_HOST_POSITION + block._born_v6,
                                           block._both_v6 - block._born_v6),
    "crcOk": lambda block: block.same(block._block.crc_ok if block._verified else None, pa.bool_()),
    "envelope": lambda block: block.envelope,
    "storedBody": lambda block: block.stored_body,
    "tagsCode": lambda block: block.row("tagsCode"),
    "segment": lambda block: block.same(block._file_start, pa.int64()),
}
