"""An oracle for stores: a small reader of the 4.9 files, written from the format alone, which shares no code with
rmqha.

All integers are big-endian. A commit log record: 4 total size, 4 magic, 4 body CRC (and 0x7FFFFFFF), 4 queue id, 4
flag, 8 queue offset, 8 physical offset, 4 system flag, 8 born time, born host (4 or 16 + 4), 8 store time, store host
(4 or 16 + 4), 4 reconsume times, 8 prepared offset, 4 + n body, 1 + n topic, 2 + n properties. The last record of a
file is a blank: 4 rest of the file, 4 magic. A consume queue unit: 8 physical offset, 4 size, 8 tags code.
"""
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.wait import wait_until

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_HEAD = struct.Struct(">IIIiiqqiq")  # up to the born timestamp
_UNIT = struct.Struct(">qiq")
_FILLER = (0, 0x7FFFFFFF, 0)  # the filler of a queue that begins above index 0
_TRANSACTION_MASK, _PREPARED, _ROLLBACK = 0xC, 0x4, 0xC
_BORN_IPV6, _STORE_IPV6 = 0x10, 0x20

QueueKey = tuple[str, int]


@dataclass(frozen=True)
class Record:
    """One message as it is stored in the log."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    body: bytes
    properties: dict[str, str]
    crc_ok: bool


def segments(folder: Path) -> dict[int, Path]:
    """Return start offset -> file, in order; only names of 20 digits count."""
    names = sorted(file.name for file in folder.glob("*") if len(file.name) == 20 and file.name.isdigit())
    return {int(name): folder / name for name in names}


def walk(folder: Path, end: int | None = None, begin: int = 0) -> Iterator[Record]:
    """Yield every record from the first file to the real end of the log; AssertionError if a file is missing.

    `end`: the log's end according to the broker. The original does not change the bytes after it, and a slave's log
    may end within a record, whose rest is in flight. `begin`: the place of the first requested record.
    """
    expected = None
    for start, file in segments(folder).items():
        if expected is not None and start != expected:
            raise AssertionError(f"{folder}: file {file.name} follows where {expected} was due")
        if start + file.stat().st_size <= begin:
            expected = start + file.stat().st_size
            continue
        data = file.read_bytes()
        known = len(data) if end is None else min(len(data), end - start)
        at = max(begin - start, 0)
        while at + 8 <= known:
            total, magic = struct.unpack_from(">II", data, at)
            if magic == BLANK_MAGIC:
                at = len(data)
            elif magic != MESSAGE_MAGIC or at + total > known:
                break
            else:
                yield _parse(data, at, start)
                at += total
        if at < len(data):
            return
        expected = start + len(data)


def record_at(data: bytes, at: int, start: int) -> Record:
    """Return the record at `at` of `data`, which begins at `start` in the log; AssertionError if its size is wrong."""
    return _parse(data, at, start)


def _parse(data: bytes, at: int, start: int) -> Record:
    total, _, crc, queue_id, _, queue_offset, physical, sys_flag, _ = _HEAD.unpack_from(data, at)
    (store_timestamp,) = struct.unpack_from(">q", data, at + _HEAD.size + (20 if sys_flag & _BORN_IPV6 else 8))
    body, pos = _sized(data, _body_begin(data, at), ">i")
    topic, pos = _sized(data, pos, ">b")
    properties, pos = _sized(data, pos, ">h")
    if pos - at != total:
        raise AssertionError(f"record at {start + at}: total size {total}, but its fields take {pos - at}")
    crc_ok = (zlib.crc32(body) & 0x7FFFFFFF if body else 0) == crc
    return Record(start + at, total, topic.decode(), queue_id, queue_offset, physical, sys_flag, store_timestamp, body,
                  _properties(properties.decode()), crc_ok)


def _body_begin(data: bytes, at: int = 0) -> int:
    """Return the place of the body's length in the record at `at`."""
    sys_flag = _HEAD.unpack_from(data, at)[7]
    hosts = (20 if sys_flag & _BORN_IPV6 else 8) + (20 if sys_flag & _STORE_IPV6 else 8)
    # also store timestamp, reconsume times and prepared offset
    return at + _HEAD.size + hosts + 8 + 4 + 8


def _sized(data: bytes, pos: int, length_format: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(length_format, data, pos)
    pos += struct.calcsize(length_format)
    return data[pos:pos + size], pos + size


def _properties(text: str) -> dict[str, str]:
    pairs = (entry.split("\x01", 1) for entry in text.split("\x02") if "\x01" in entry)
    return dict(pairs)


def read_range(folder: Path, begin: int, end: int) -> bytes:
    """Return the bytes of a log from `begin` to `end`, fewer if it ends before; AssertionError if a file is missing."""
    parts, at = [], begin
    for start, file in segments(folder).items():
        size = file.stat().st_size
        if start + size <= at or at >= end:
            continue
        assert start <= at, f"{folder}: file for offset {at} not found"
        with open(file, "rb") as log:
            log.seek(at - start)
            parts.append(log.read(end - at))
        at += len(parts[-1])
    return b"".join(parts)


def log_end(folder: Path) -> int:
    """Return the offset after the last record (or after the blank that closes a file); 0 for an empty log."""
    files = segments(folder)
    if not files:
        return 0
    for start, file in reversed(files.items()):
        data = file.read_bytes()
        at = _end_in_file(data)
        if at or start == next(iter(files)):
            return start + at
    return 0


def _end_in_file(data: bytes) -> int:
    end = max((at + total for at, total in _places(data)), default=0)
    is_closed = end + 8 <= len(data) and struct.unpack_from(">I", data, end + 4)[0] == BLANK_MAGIC
    return len(data) if is_closed else end


def _places(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of each record of one file, as far as they have a size and the magic code."""
    at = 0
    while at + 8 <= len(data):
        total, magic = struct.unpack_from(">II", data, at)
        if magic != MESSAGE_MAGIC or total <= 0 or at + total > len(data):
            return
        yield at, total
        at += total


def records_in(data: bytes) -> Iterator[Record]:
    """Yield the records of a pull's answer."""
    at = 0
    while at < len(data):
        yield _parse(data, at, 0)
        at += struct.unpack_from(">I", data, at)[0]


def bytes_of(folder: Path, record: Record) -> bytes:
    """Return the bytes of a log in the place of `record`; fewer, or none, if it ends before."""
    for start, file in segments(folder).items():
        if start <= record.offset < start + file.stat().st_size:
            return file.read_bytes()[record.offset - start:record.offset - start + record.size]
    return b""


def erase_torn_record(master: Path, slave: Path) -> int | None:
    """Erase the last record of a killed slave's log if it ends within its properties; return its offset, else None.

    The log files of both brokers are compared: up to a place within its properties the record has the master's bytes,
    and zeros from there to its end. RocketMQ keeps such a record at its next start, because only the body has a CRC.
    The slave then reports the record's end, and never receives the missing bytes. An operator erases the record, and
    the slave requests it again. Any other difference is left for the comparison of the logs to find.
    """
    at, size = max(((start + offset, size) for start, file in segments(slave).items()
                    for offset, size in _places(file.read_bytes())), default=(0, 0))
    if not size:
        return None
    found, sent = (read_range(log, at, at + size) for log in (slave, master))
    received = len(found.rstrip(b"\0"))
    if found == sent or len(sent) != len(found) or received < _properties_begin(sent) or not sent.startswith(
            found[:received]):
        return None
    start, file = max((start, file) for start, file in segments(slave).items() if start <= at)
    with open(file, "r+b") as log:
        log.seek(at - start)
        log.write(bytes(size))
    return at


def _properties_begin(record: bytes) -> int:
    """Return the offset of a whole record's properties, after their length."""
    pos = _body_begin(record)
    _, pos = _sized(record, pos, ">i")
    _, pos = _sized(record, pos, ">b")
    return pos + 2


def compare_commit_logs(one: Path, other: Path, end: int | None = None) -> tuple[int, int]:
    """Check that the range that both logs hold is byte-identical; return that range. AssertionError names the first
    difference.

    `end`: the end of both logs according to their brokers, see `walk`.
    """
    files, others = segments(one), segments(other)
    assert files and others, f"no commit log in {one if not files else other}"
    begin = max(min(files), min(others))
    end = min(log_end(one), log_end(other)) if end is None else end
    for start, file in files.items():
        size = file.stat().st_size
        low, high = max(start, begin), min(start + size, end)
        if low >= high:
            continue
        assert start in others, f"{other} has no file {file.name}"
        assert others[start].stat().st_size == size, f"{file.name}: sizes differ"
        mine, theirs = (f.read_bytes()[low - start:high - start] for f in (file, others[start]))
        if mine != theirs:
            at = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
            raise AssertionError(f"commit logs differ at offset {low + at}: {mine[at:at + 16].hex()} in {file}, "
                                 f"{theirs[at:at + 16].hex()} in {others[start]}")
    return begin, end


def queues_on_disk(store: Path) -> dict[QueueKey, Path]:
    """Return (topic, queue id) -> folder of its consume queue; queues without a written unit are left out."""
    found = {}
    for folder in sorted((store / "consumequeue").glob("*/*")):
        if folder.name.isdigit() and any(True for _ in units(folder)):
            found[folder.parent.name, int(folder.name)] = folder
    return found


def units(folder: Path) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield (index, (physical offset, size, tags code)) of each written unit of one queue; fillers are left out."""
    for start, file in segments(folder).items():
        data = file.read_bytes()
        for at in range(0, len(data) - _UNIT.size + 1, _UNIT.size):
            unit = _UNIT.unpack_from(data, at)
            if unit[1] <= 0:
                return
            if unit != _FILLER:
                yield (start + at) // _UNIT.size, unit


def unit_count(store: Path) -> int:
    """Return the number of units in all consume queues."""
    return sum(1 for folder in queues_on_disk(store).values() for _ in units(folder))


def compare_consume_queues(one: Path, other: Path) -> int:
    """Compare the consume queues of two stores, file by file: same queues, same names, same bytes. Return the number
    of units."""
    queues, others = queues_on_disk(one), queues_on_disk(other)
    assert list(queues) == list(others), f"queues differ: {set(queues) ^ set(others)}"
    total = 0
    for key, folder in queues.items():
        files, theirs = segments(folder), segments(others[key])
        for start in sorted(set(files) | set(theirs)):
            a = files[start].read_bytes() if start in files else b""
            b = theirs[start].read_bytes() if start in theirs else b""
            if not a.strip(b"\0") and not b.strip(b"\0"):
                continue  # created in advance by one side, and still empty
            assert a == b, f"{key}: file {start:020d} differs: {_first_difference(start, a, b)}"
        total += sum(1 for _ in units(folder))
    return total


def _first_difference(start: int, a: bytes, b: bytes) -> str:
    if len(a) != len(b):
        return f"sizes {len(a)} and {len(b)}"
    at = next(i for i in range(0, len(a), _UNIT.size) if a[i:i + _UNIT.size] != b[i:i + _UNIT.size])
    return f"index {(start + at) // _UNIT.size}: {_UNIT.unpack_from(a, at)} and {_UNIT.unpack_from(b, at)}"


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode(): over UTF-16 units, as a signed 32-bit number."""
    data = text.encode("utf-16-be")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = value * 31 + unit & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


class RepeatedIndex(AssertionError):
    """Raised if two messages of one queue have the same place in it."""


def rebuild_consume_queues(commit_log: Path,
                           end: int | None = None) -> dict[QueueKey, dict[int, tuple[int, int, int]]]:
    """Return the expected contents of the consume queues, from the log (up to `end`) alone: (topic, queue) -> index
    -> unit."""
    queues: dict[QueueKey, dict[int, tuple[int, int, int]]] = defaultdict(dict)
    for record in walk(commit_log, end):
        assert record.crc_ok, f"record at {record.offset}: the CRC of its body is wrong"
        assert record.physical_offset == record.offset, f"record at {record.offset} says: at {record.physical_offset}"
        if record.sys_flag & _TRANSACTION_MASK in (_PREPARED, _ROLLBACK):
            continue
        queue = queues[record.topic, record.queue_id]
        if record.queue_offset in queue:
            raise RepeatedIndex(f"{record.topic}/{record.queue_id}: index {record.queue_offset} twice")
        queue[record.queue_offset] = (record.offset, record.size, tags_code(record))
    return dict(queues)


def tags_code(record: Record) -> int | None:
    """Return the tags code of a record's unit; None if it is a delivery time (delayed messages), which the log alone
    does not contain."""
    if record.topic == SCHEDULE_TOPIC and "DELAY" in record.properties:
        return None
    tags = record.properties.get("TAGS", "")
    return java_string_hash(tags) if tags else 0


def wait_dispatched(store: Path) -> int:
    """Check the consume queues of a running broker as soon as they have a unit for each record. Return their number."""
    count = sum(map(len, rebuild_consume_queues(store / "commitlog").values()))
    wait_until(lambda: unit_count(store) >= count, 60_000, f"{count} units in {store}")
    return check_consume_queues(store)


def check_consume_queues(store: Path, commit_log: Path | None = None) -> int:
    """Compare the consume queues on disk with a rebuild from the log: all units, no gap, no further ones. Return
    their number."""
    rebuilt = rebuild_consume_queues(commit_log or store / "commitlog")
    on_disk = queues_on_disk(store)
    assert set(on_disk) == set(rebuilt), f"queues in one only: {set(on_disk) ^ set(rebuilt)}"
    for key, folder in on_disk.items():
        found, expected = dict(units(folder)), rebuilt[key]
        assert sorted(found) == list(range(min(found), max(found) + 1)), f"{key}: a gap"
        assert sorted(found) == sorted(expected), (
            f"{key}: indices {min(found)}..{max(found)} on disk, {min(expected)}..{max(expected)} in the log")
        for index, unit in expected.items():
            on = found[index]
            same = on[:2] == unit[:2] and unit[2] in (None, on[2])
            assert same, f"{key} index {index}: {on} on disk, {unit} from the log"
    return sum(map(len, rebuilt.values()))


_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")


def index_files(folder: Path) -> list[bytes]:
    """Return the contents of the index files, oldest first; their names are the times of their creation.

    A last file that is created but has no entry yet is left out.
    """
    contents = [file.read_bytes() for file in sorted(folder.glob("*"))]
    if contents and _INDEX_HEADER.unpack_from(contents[-1])[5] <= 1:
        contents.pop()
    return contents


def compare_index_files(one: Path, other: Path, slots: int) -> int:
    """Check that the index files of two stores have the same bytes, in order. Return the number of entries."""
    files, others = index_files(one / "index"), index_files(other / "index")
    assert len(files) == len(others), f"{len(files)} index files in {one}, {len(others)} in {other}"
    for number, (a, b) in enumerate(zip(files, others, strict=True)):
        assert a == b, f"index file {number}: {_first_index_difference(a, b, slots)}"
    return sum(_INDEX_HEADER.unpack_from(data)[5] - 1 for data in files)


def _first_index_difference(a: bytes, b: bytes, slots: int) -> str:
    if len(a) != len(b):
        return f"sizes {len(a)} and {len(b)}"
    heads = _INDEX_HEADER.unpack_from(a), _INDEX_HEADER.unpack_from(b)
    if heads[0] != heads[1]:
        return f"headers {heads[0]} and {heads[1]}"
    entries = _INDEX_HEADER.size + 4 * slots
    at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    if at < entries:
        return f"slot {(at - _INDEX_HEADER.size) // 4}"
    at = entries + (at - entries) // _INDEX_ENTRY.size * _INDEX_ENTRY.size
    pair = _INDEX_ENTRY.unpack_from(a, at), _INDEX_ENTRY.unpack_from(b, at)
    return f"entry {(at - entries) // _INDEX_ENTRY.size}: {pair[0]} and {pair[1]}"
