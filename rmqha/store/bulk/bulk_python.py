"""The bulk kernel in Python, for machines without the compiled one, and as its reference in the tests.

`walk`, `scan` and `put_keys` have the arguments and results of the C source; `bulk` checks the arguments and names the
fields of the results.

`property_columns` returns the properties of many records as columns, ready for Arrow, with one call for a whole block.
It is pure. Where a C compiler was available it is compiled (rmqha/native/_properties.c), otherwise it is
`columns_in_python`; both return the same result, whatever the bytes are. Numbers are in the machine's own byte order,
and texts are UTF-8.
"""
import struct
from array import array
from collections.abc import Sequence

from rmqha.common import sys_flags
from rmqha.common.java import string_hash_code
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message import message_const
from rmqha.common.message.message import parse_int
from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import Buffer, decode_text
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.native import kernels
from rmqha.store.bulk.bulk_layout import GOOD, KEY, KEYS_PER_RECORD, RECORD, RUN, Stop, record_at
from rmqha.store.consume_queue_layout import CQ_UNIT
from rmqha.store.index.index_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    INVALID_INDEX,
    MAX_INT,
    SLOT,
    file_size,
    index_key_hash_method,
    time_diff_seconds,
)

_MAX_LONG = (1 << 63) - 1
_SCHEDULE = RMQ_SYS_SCHEDULE_TOPIC.encode()
_TAGS = message_const.PROPERTY_TAGS.encode()
_KEYS = message_const.PROPERTY_KEYS.encode()
_UNIQ_KEY = message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
_DELAY = message_const.PROPERTY_DELAY_TIME_LEVEL.encode()
_MULTI_DISPATCH = message_const.PROPERTY_INNER_MULTI_DISPATCH.encode()
_ROLLBACK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_WITHOUT_UNIT = (sys_flags.TRANSACTION_PREPARED_TYPE, _ROLLBACK)

_Rows = tuple[list[tuple[str, int, int]], bytes, bytes, bytes, bytes]
"""The topics, records, runs, units and keys."""


def walk(buffer: Buffer, start: int, end: int, check_crc: bool, file_from_offset: int,
         _keeps_gil: bool) -> tuple[int, int, int, int]:
    """See `bulk.walk`."""
    with memoryview(buffer) as view, view[:end] as span:
        position, count = start, 0
        while position < end:
            stop, size, fields, _, _ = record_at(span, position, check_crc)
            if stop != GOOD:
                return count, position, int(stop), size
            if file_from_offset >= 0 and (fields[5] != file_from_offset + position or check_crc and fields[4] < 0):
                return count, position, int(Stop.ODD), 0
            position += size
            count += 1
        return count, position, int(Stop.END), 0


def scan(buffer: Buffer, start: int, end: int, file_from_offset: int, check_crc: bool, delays: Sequence[int] | None,
         multi_dispatch: bool, limit: int) -> tuple[int, int, int, int, *_Rows]:
    """See `bulk.scan`."""
    with memoryview(buffer) as view, view[:end] as span:
        collector = _Collector(delays, multi_dispatch)
        position, size = start, 0
        stop: int = Stop.END
        while position < end:
            if len(collector.records) >= limit or len(collector.keys) >= limit * KEYS_PER_RECORD:
                stop = Stop.LIMIT
                break
            stop, size, fields, topic_at, properties_at = record_at(span, position, check_crc)
            if stop == GOOD:
                stop = collector.add(file_from_offset + position, size, fields,
                                     bytes(span[topic_at + 1:properties_at - 2]),
                                     bytes(span[properties_at:position + size]))
            if stop != GOOD:
                size = 0 if stop == Stop.ODD else size
                break
            position, stop, size = position + size, Stop.END, 0
        return (len(collector.records), position, int(stop), size, *collector.results())


def _properties(data: bytes) -> dict[bytes, bytes]:
    properties = {}
    for entry in data.split(b"\x02"):
        name, _, value = entry.partition(b"\x01")
        if name and value:
            properties[name] = value
    return properties


def _level(properties: dict[bytes, bytes]) -> int | None:
    """Return the delay level, 0 without a level, or None if it is not a number."""
    text = properties.get(_DELAY)
    if text is None:
        return 0
    try:
        return parse_int(text.decode("latin-1"))
    except ValueError:
        return None


class _OpenRun:
    """A run of consecutive units of one queue that may still grow."""

    __slots__ = ("queue_offset", "topic", "queue_id", "store_timestamp", "next_offset", "units")

    def __init__(self, queue_offset: int, topic: int, queue_id: int) -> None:
        self.queue_offset = queue_offset
        self.topic = topic
        self.queue_id = queue_id
        self.store_timestamp = 0  # of the last record, in ms
        self.next_offset = queue_offset
        self.units: list[bytes] = []


class _Collector:
    """The collector of the rows of one scan."""

    def __init__(self, delays: Sequence[int] | None, multi_dispatch: bool) -> None:
        self._delays = delays
        self._multi_dispatch = multi_dispatch
        self._topic_numbers: dict[bytes, int] = {}
        self._topic_names: list[str] = []
        self._topic_totals: list[list[int]] = []  # records, bytes
        self._open_runs: dict[tuple[int, int], _OpenRun] = {}  # by topic and queue id
        self._runs: list[_OpenRun] = []
        self.records: list[bytes] = []
        self.keys: list[bytes] = []

    def add(self, offset: int, size: int, fields: tuple[int, ...], topic_data: bytes, data: bytes) -> int:
        """Add the rows of one record; return GOOD, or the reason why it is refused."""
        _, _, _, queue_id, queue_offset, physical_offset, sys_flag, store_timestamp, _, _ = fields
        properties = _properties(data)
        delays = self._delays if topic_data == _SCHEDULE else None
        level = _level(properties) if delays is not None else 0
        if level is None or physical_offset != offset or self._multi_dispatch and _MULTI_DISPATCH in properties:
            return Stop.ODD
        try:
            name = topic_data.decode()
            tags_code = string_hash_code(properties[_TAGS].decode()) if _TAGS in properties else 0
            hashes = self._key_hashes(name, properties) if sys_flag & _ROLLBACK != _ROLLBACK else ()
        except UnicodeDecodeError:
            return Stop.ODD
        if delays is not None and (level := min(level, len(delays))) > 0:
            tags_code = store_timestamp + delays[level - 1]
            if not -_MAX_LONG - 1 <= tags_code <= _MAX_LONG:
                return Stop.ODD
        topic = self._topic(topic_data, name, size)
        self.keys += [KEY.pack(offset, store_timestamp, key_hash, len(self.records)) for key_hash in hashes]
        self.records.append(RECORD.pack(offset, queue_offset, tags_code, store_timestamp, size, queue_id, topic,
                                        sys_flag))
        if sys_flag & _ROLLBACK not in _WITHOUT_UNIT:
            self._add_unit(topic, queue_id, queue_offset, store_timestamp, CQ_UNIT.pack(offset, size, tags_code))
        return GOOD

    @staticmethod
    def _key_hashes(topic: str, properties: dict[bytes, bytes]) -> list[int]:
        keys = [properties[_UNIQ_KEY].decode()] if _UNIQ_KEY in properties else []
        if _KEYS in properties:
            keys += [key for key in properties[_KEYS].decode().split(message_const.KEY_SEPARATOR) if key]
        return [index_key_hash_method(f"{topic}#{key}") for key in keys]

    def _topic(self, data: bytes, name: str, size: int) -> int:
        number = self._topic_numbers.setdefault(data, len(self._topic_names))
        if number == len(self._topic_names):
            self._topic_names.append(name)
            self._topic_totals.append([0, 0])
        totals = self._topic_totals[number]
        totals[0] += 1
        totals[1] += size
        return number

    def _add_unit(self, topic: int, queue_id: int, queue_offset: int, store_timestamp: int, unit: bytes) -> None:
        run = self._open_runs.get((topic, queue_id))
        if run is None or run.next_offset != queue_offset:
            run = self._open_runs[topic, queue_id] = _OpenRun(queue_offset, topic, queue_id)
            self._runs.append(run)
        run.next_offset = queue_offset + 1
        run.store_timestamp = store_timestamp
        run.units.append(unit)

    def results(self) -> _Rows:
        """Return all rows."""
        runs: list[bytes] = []
        units: list[bytes] = []
        for run in self._runs:
            runs.append(RUN.pack(run.queue_offset, run.store_timestamp, run.topic, run.queue_id, len(units),
                                 len(run.units)))
            units += run.units
        topics = [(name, count, size) for name, (count, size) in zip(self._topic_names, self._topic_totals)]
        return topics, b"".join(self.records), b"".join(runs), b"".join(units), b"".join(self.keys)


def put_keys(buffer: Buffer, hash_slot_num: int, index_num: int, counters: tuple[int, ...], keys: bytes, first: int,
             last: int, first_entry: int) -> tuple[int, ...]:
    """See `bulk.put_keys`."""
    begin_timestamp, end_timestamp, begin_phy_offset, end_phy_offset, hash_slot_count, index_count = counters
    if hash_slot_num < 1 or index_num < 0 or first_entry < 0 or \
            file_size(hash_slot_num, index_num - first_entry) > len(buffer):
        raise ValueError(f"{hash_slot_num} slots and {index_num} entries in {len(buffer)} bytes")
    if index_count < max(first_entry, 1) or not 0 <= hash_slot_count <= MAX_INT - (last - first):
        raise ValueError(f"{hash_slot_count} slots in use, next entry {index_count}")
    entries_at = INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE - first_entry * INDEX_SIZE
    stop = min(last, first + max(index_num - index_count, 0))
    for phy_offset, store_timestamp, key_hash, _ in KEY.iter_unpack(keys[first * KEY.size:stop * KEY.size]):
        key_hash &= MAX_INT
        slot_at = INDEX_HEADER_SIZE + key_hash % hash_slot_num * HASH_SLOT_SIZE
        previous = SLOT.unpack_from(buffer, slot_at)[0]
        if not INVALID_INDEX < previous < index_count:
            previous = INVALID_INDEX
            hash_slot_count += 1
        ENTRY.pack_into(buffer, entries_at + index_count * INDEX_SIZE, key_hash, phy_offset,
                        time_diff_seconds(store_timestamp, begin_timestamp), previous)
        SLOT.pack_into(buffer, slot_at, index_count)
        if index_count <= 1:
            begin_phy_offset, begin_timestamp = phy_offset, store_timestamp
        end_phy_offset, end_timestamp = phy_offset, store_timestamp
        index_count += 1
    after = begin_timestamp, end_timestamp, begin_phy_offset, end_phy_offset, hash_slot_count, index_count
    if stop > first:
        HEADER.pack_into(buffer, 0, *after)
    return stop, *after


MAX_WANTED = 16
# The largest offset of a column.
_MAX_BYTES = 2**31 - 1


class MapColumn(NamedTuple):
    """The buffers of a map column from text to text, without nulls.

    The entries of record `r` are those from bounds[r] to bounds[r + 1], exclusive. The name of entry `e` is
    names[name_offsets[e]:name_offsets[e + 1]]; its value is stored in the same way. Offsets and bounds are int32.
    """

    bounds: bytes
    name_offsets: bytes
    names: bytes
    value_offsets: bytes
    values: bytes


class TextColumn(NamedTuple):
    """The buffers of a text column. `valid` has one bit per record, lowest first, 0 for a null. Offsets are int32."""

    valid: bytes
    offsets: bytes
    values: bytes


def columns_in_python(data: Buffer, begins: Buffer, ends: Buffer, names: tuple[bytes, ...],
                      with_map: bool) -> tuple[tuple[bytes, ...] | None, list[tuple[bytes, ...]]]:
    """Return the properties of records as columns. Their property texts are data[begins[r]:ends[r]] (int64 buffers).

    The result is a MapColumn of all properties, or None, and a TextColumn for each of `names`, as plain tuples. Entries
    without a name, separator or value are ignored. If a name occurs several times, its first place and its last value
    count. Bytes that are not UTF-8 become U+FFFD, as in `string2message_properties`.

    Raise ValueError if a text is not within the data, or if there are more than MAX_WANTED names, and OverflowError if
    a column is too long for its offsets.
    """
    if len(names) > MAX_WANTED:
        raise ValueError(f"{len(names)} names, at most {MAX_WANTED}")
    with memoryview(data) as view:
        found = [_properties_between(view, begin, end) for begin, end in _places(begins, ends, view.nbytes)]
    columns = [_text_column([each.get(name) for each in found]) for name in names]
    if not with_map:
        return None, columns
    bounds = array("i", [0])
    for each in found:
        bounds.append(bounds[-1] + len(each))
    return (bounds.tobytes(), *_texts([name for each in found for name in each]),
            *_texts([value for each in found for value in each.values()])), columns


def _places(begins: Buffer, ends: Buffer, size: int) -> list[tuple[int, int]]:
    with memoryview(begins) as first, memoryview(ends) as behind:
        if first.nbytes != behind.nbytes or first.nbytes % 8:
            raise ValueError(f"begins of {first.nbytes} bytes, ends of {behind.nbytes}")
        count = f"={first.nbytes // 8}q"
        places = list(zip(struct.unpack(count, first), struct.unpack(count, behind), strict=True))
    if any(not 0 <= begin <= end <= size for begin, end in places):
        raise ValueError("properties that do not lie in the data")
    return places


def _properties_between(view: memoryview, begin: int, end: int) -> dict[bytes, bytes]:
    found = string2message_properties(decode_text(view[begin:end]))
    return {name.encode(): value.encode() for name, value in found.items()}


def _texts(texts: list[bytes]) -> tuple[bytes, bytes]:
    """Return the offsets and the bytes of texts."""
    if sum(map(len, texts)) > _MAX_BYTES:
        raise OverflowError("more bytes than a column has offsets for")
    offsets = array("i", [0])
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return offsets.tobytes(), b"".join(texts)


def _text_column(texts: list[bytes | None]) -> tuple[bytes, ...]:
    valid = bytearray(-(-len(texts) // 8))
    for number, text in enumerate(texts):
        if text is not None:
            valid[number // 8] |= 1 << number % 8
    return (bytes(valid), *_texts([text or b"" for text in texts]))


property_columns = kernels.PROPERTIES.function("property_columns", columns_in_python)
