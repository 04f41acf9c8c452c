"""The oracle itself: it accepts a correct store, and names the place of a fault."""
import struct
import zlib
from pathlib import Path

import pytest

from tests.support import store_compare

FILE_SIZE = 1000
HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)


def record(offset: int, queue_offset: int, body: bytes) -> bytes:
    topic, properties = b"T", b"TAGS\x01abc\x02index\x017"
    crc = zlib.crc32(body) & 0x7FFFFFFF
    parts = [struct.pack(">IIiiqqiq", store_compare.MESSAGE_MAGIC, crc, 1, 0, queue_offset, offset, 0, 1), HOST,
             struct.pack(">q", 2), HOST, struct.pack(">iqi", 0, 0, len(body)), body,
             struct.pack(">b", len(topic)), topic, struct.pack(">h", len(properties)), properties]
    data = b"".join(parts)
    return struct.pack(">I", len(data) + 4) + data


def write_store(folder: Path, count: int = 20) -> Path:
    """Write a store of `count` messages in one queue: files of 1,000 bytes, the consume queue in files of 5 units."""
    log, at, queue = bytearray(), 0, bytearray()
    for index in range(count):
        one = record(at, index, b"x" * (10 + index))
        if at % FILE_SIZE + len(one) + 8 > FILE_SIZE:
            rest = FILE_SIZE - at % FILE_SIZE
            log += struct.pack(">II", rest, store_compare.BLANK_MAGIC).ljust(rest, b"\0")
            at += rest
            one = record(at, index, b"x" * (10 + index))
        queue += struct.pack(">qiq", at, len(one), store_compare.java_string_hash("abc"))
        log += one
        at += len(one)
    for path, data, size in ((folder / "commitlog", log, FILE_SIZE), (folder / "consumequeue/T/1", queue, 100)):
        path.mkdir(parents=True)
        for start in range(0, len(data), size):
            (path / f"{start:020d}").write_bytes(bytes(data[start:start + size]).ljust(size, b"\0"))
    return folder


@pytest.fixture
def stores(tmp_path):
    return write_store(tmp_path / "one"), write_store(tmp_path / "other")


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def nth_file(folder: Path, n: int) -> Path:
    return list(store_compare.segments(folder).values())[n]


def test_equal_stores_are_equal(stores):
    one, other = stores
    records = list(store_compare.walk(one / "commitlog"))
    assert [r.queue_offset for r in records] == list(range(20)) and all(r.crc_ok for r in records)
    assert records[3].properties == {"TAGS": "abc", "index": "7"}
    end = records[-1].offset + records[-1].size
    assert store_compare.log_end(one / "commitlog") == end
    assert store_compare.compare_commit_logs(one / "commitlog", other / "commitlog") == (0, end)
    assert store_compare.compare_consume_queues(one, other) == 20 == store_compare.check_consume_queues(one)
    assert store_compare.unit_count(one) == 20


def test_flipped_byte_in_the_log_is_named(stores):
    one, other = stores
    flip(nth_file(other / "commitlog", 1), 99)
    with pytest.raises(AssertionError, match=f"differ at offset {FILE_SIZE + 99}"):
        store_compare.compare_commit_logs(one / "commitlog", other / "commitlog")
    with pytest.raises(AssertionError, match="CRC"):
        store_compare.check_consume_queues(other)


def test_only_the_common_range_is_compared(stores):
    one, other = stores
    nth_file(one / "commitlog", 0).unlink()
    last = nth_file(other / "commitlog", -1)
    last.write_bytes(bytes(FILE_SIZE))
    begin, end = store_compare.compare_commit_logs(one / "commitlog", other / "commitlog")
    assert (begin, end) == (FILE_SIZE, int(last.name))


def test_file_missing_in_the_middle_is_named(stores):
    nth_file(stores[0] / "commitlog", 1).unlink()
    with pytest.raises(AssertionError, match="where 1000 was due"):
        list(store_compare.walk(stores[0] / "commitlog"))


@pytest.mark.parametrize("at, what", [(7, "index 5"), (11, "index 5"), (19, "index 5")])
def test_flipped_byte_in_a_consume_queue_is_named(stores, at, what):
    one, other = stores
    flip(nth_file(other / "consumequeue/T/1", 1), at)
    with pytest.raises(AssertionError, match=what):
        store_compare.compare_consume_queues(one, other)
    with pytest.raises(AssertionError, match=what):
        store_compare.check_consume_queues(other)


def test_lost_unit_and_lost_queue_are_named(stores):
    one, other = stores
    last = nth_file(other / "consumequeue/T/1", -1)
    last.write_bytes(last.read_bytes()[:80] + bytes(20))
    with pytest.raises(AssertionError, match=r"0\.\.18 on disk, 0\.\.19 in the log"):
        store_compare.check_consume_queues(other)
    (other / "consumequeue/T/1").rename(other / "consumequeue/T/2")
    with pytest.raises(AssertionError, match="queues"):
        store_compare.compare_consume_queues(one, other)


def test_partial_record_of_a_slave_is_not_read(tmp_path):
    log = write_store(tmp_path / "slave") / "commitlog"
    records = list(store_compare.walk(log))
    part = records[3]
    file = log / f"{0:020d}"
    data = bytearray(file.read_bytes())
    for size in range(1, part.size):
        end = part.offset + size
        for behind in (bytes(FILE_SIZE), bytes(data)):  # nothing, or the previous bytes
            file.write_bytes(bytes(data[:end]) + behind[end:FILE_SIZE])
            assert list(store_compare.walk(log, end)) == records[:3]


def torn(folder: Path, missing: int) -> tuple[int, int]:
    """Replace the last `missing` bytes of a log's last record by zeros; return the record's offset and size."""
    last = list(store_compare.walk(folder))[-1]
    file = folder / f"{last.offset // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    end = last.offset % FILE_SIZE + last.size
    data[end - missing:end] = bytes(missing)
    file.write_bytes(data)
    return last.offset, last.size


# 16 bytes of properties end each record
@pytest.mark.parametrize("missing", [1, 10, 16])
def test_record_that_is_torn_within_its_properties_is_erased(stores, missing):
    one, other = (store / "commitlog" for store in stores)
    at, _ = torn(other, missing)
    assert store_compare.erase_torn_record(one, other) == at
    assert store_compare.log_end(other) == at
    assert store_compare.compare_commit_logs(one, other) == (0, at)
    assert store_compare.log_end(one) > at


@pytest.mark.parametrize("missing", [0, 17, 30])
def test_whole_record_and_one_torn_before_its_properties_stay(stores, missing):
    one, other = (store / "commitlog" for store in stores)
    at, size = torn(other, missing)
    assert store_compare.erase_torn_record(one, other) is None
    assert store_compare.log_end(other) == at + size


def test_other_differences_are_never_erased(stores):
    one, other = (store / "commitlog" for store in stores)
    at, size = torn(other, 10)
    file = other / f"{at // FILE_SIZE * FILE_SIZE:020d}"
    flip(file, at % FILE_SIZE + size - 15)
    assert store_compare.erase_torn_record(one, other) is None
    with pytest.raises(AssertionError, match="differ"):
        store_compare.compare_commit_logs(one, other)
