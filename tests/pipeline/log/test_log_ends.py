"""Where logs end, as a record after record walk tells it too; and that damaged lengths cost no memory."""
import os
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.filesystem import Segment
from rmqha.common.message import message_layout as layout
from rmqha.pipeline.log import log_ends as ends
from rmqha.pipeline.log import log_scan
from rmqha.pipeline.log.log_ends import file_end, log_end
from rmqha.pipeline.log.log_scan import Block, ByteRange, Hole, LogFiles, find_logs, scan_range
from rmqha.pipeline.progress import run_tasks
from tests.store import support

_HOST = layout.host_to_bytes(("127.0.0.1", 10911))
_MIB = 1 << 20


def record(offset: int, time: int = 1, body: bytes = b"body", properties: bytes = b"KEYS\1k\2") -> bytes:
    return layout.encode_record(layout.body_crc32(body), 0, 0, 0, offset, 0, time, _HOST, time, _HOST, 0, 0, body,
                                layout.encode_topic("T"), properties)


def end_by_records(data: bytes) -> int:
    """The same, the slow way: record by record, each CRC checked, holes skipped byte by byte."""
    position, seen, end = 0, 0, 0
    while position < len(data):
        if data[position + 4:position + 8] == layout.encode_blank(8)[4:]:
            return len(data)
        size = _whole(data, position)
        if not size and (wrong := _whole(data, position, check_crc=False)):
            position += wrong  # its CRC is wrong: it counts when something follows it
            continue
        if not size:
            following = [at for at in range(position + 1, len(data)) if _whole(data, at)
                         and layout.decode_header(data, at).store_timestamp >= max(seen, 1)]
            if not following:
                return end
            position = end = following[0]
            continue
        parts = layout.decode_parts(data[position:])
        seen = parts.head.store_timestamp
        is_finished = parts.properties_length == 0 or data[position + size - 1] != 0
        position += size
        if is_finished or _whole(data, position) or data[position + 4:position + 8] == layout.encode_blank(8)[4:]:
            end = position
    return end


def _whole(data: bytes, at: int, check_crc: bool = True) -> int:
    try:
        parts = layout.decode_parts(data[at:])
    except layout.MessageDecodeError:
        return 0
    body = data[at + parts.body_position:at + parts.body_position + parts.head.body_length]
    good = parts.head.physical_offset == at \
        and (not check_crc or not body or layout.body_crc32(body) == parts.head.body_crc)
    return parts.head.total_size if good else 0


pieces = st.lists(st.one_of(
    st.tuples(st.just("record"), st.integers(1, 9), st.sampled_from([b"", b"x", b"y" * 300]),
              st.sampled_from([b"", b"KEYS\1k\2", b"KEYS\1k", b"a\1\0"])),
    st.tuples(st.just("damaged"), st.integers(1, 9), st.integers(0, 90), st.just(b"")),
    st.tuples(st.just("bytes"), st.just(0), st.sampled_from([b"\0" * 60, b"junk", record(0)]), st.just(b"")),
), max_size=14)


@settings(max_examples=150, deadline=None)
@given(pieces, st.booleans(), st.integers(0, 200), st.sampled_from([100, 700, log_scan.BLOCK]))
def test_the_end_is_that_of_a_walk_record_by_record(tmp_path_factory, pieces, has_blank, zeros, block):
    data = b""
    for kind, time, what, properties in pieces:
        if kind == "bytes":
            data += what
        elif kind == "record":
            data += record(len(data), time, what, properties)
        else:
            whole = bytearray(record(len(data), time))
            whole[min(what, len(whole) - 1)] ^= 0x55
            data += whole
    data += layout.encode_blank(zeros + 8) if has_blank else b""
    path = tmp_path_factory.getbasetemp() / "ends"
    path.write_bytes(data + bytes(zeros))
    with pytest.MonkeyPatch.context() as patch:
        for module in (ends, log_scan):
            patch.setattr(module, "BLOCK", block)
        assert file_end(Segment(0, str(path), len(data) + zeros), 0) == end_by_records(data + bytes(zeros))


def test_ends_of_many_logs_come_from_tasks_too(spark, tmp_path):
    for number in range(3):
        with support.open_store(tmp_path / f"store-{number}") as store:
            support.put(store, *[support.message(body=b"x" * 100) for _ in range(number * 50)])
    logs = find_logs([str(tmp_path / "store-*")])
    wanted = [log_end(log) for log in logs]
    assert wanted[0] < wanted[1] < wanted[2]
    assert run_tasks(spark, log_end, logs) == wanted
    assert [log_end(log, begin) for log, begin in zip(logs, [0, None, wanted[1]], strict=True)] == wanted


@pytest.fixture
def big(tmp_path) -> LogFiles:
    """A sparse GiB: three records; the second says that it goes on for 900 MiB, and all its lengths agree."""
    first = record(0)
    head = bytearray(record(len(first), 2, b""))
    total = 900 * _MIB
    head[0:4] = total.to_bytes(4, "big")
    head[84:88] = (total - layout.HEAD_LENGTH - 3 - 1).to_bytes(4, "big")
    path = tmp_path / f"{0:020d}"
    with open(path, "wb") as file:
        file.write(first + head[:layout.HEAD_LENGTH])
        file.seek(len(first) + total - 4)
        file.write(b"\1T\0\0")
        file.write(record(file.tell(), 3))
        file.truncate(1 << 30)
    return find_logs([str(tmp_path)])[0]


@pytest.mark.parametrize("check_crc", [True, False])
def test_a_wrong_length_takes_no_memory(big, check_crc):
    size = len(record(0))
    span = ByteRange(big.segments[0].path, 0, 0, 900 * _MIB, 1 << 30, True)
    tracemalloc.start()
    found = list(scan_range(span, check_crc))
    end = log_end(big)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found[0], Block) and isinstance(found[1], Hole)
    assert (found[1].offset, found[1].size) == (size, 900 * _MIB)
    assert end == 2 * size + 900 * _MIB
    assert peak < 64 * _MIB


def test_a_long_record_is_read_all_the_same(tmp_path):
    path, long = tmp_path / f"{0:020d}", record(len(record(0)), 1, os.urandom(_MIB) * 20, b"")
    data = record(0) + long
    data += record(len(data), 2)
    path.write_bytes(data + bytes(1000))
    log = find_logs([str(tmp_path)])[0]
    assert log_end(log) == len(data)
    found = list(scan_range(ByteRange(str(path), 0, 0, len(data), len(data), True), True))
    assert [size for block in found for size in block.rows["size"]] == [len(record(0)), len(long), len(record(0))]
    path.write_bytes(data[:len(record(0)) + len(long)] + bytes(1000))
    assert log_end(find_logs([str(tmp_path)])[0]) == len(record(0)) + len(long)
