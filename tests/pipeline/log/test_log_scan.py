"""Logs in batches: gaps, blanks and ends, bounded memory, and columns made of whole blocks."""
import itertools
import os
import pickle
import random
import shutil
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.filesystem import Segment
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_decoder import decode
from rmqha.common.message.message_layout import BLANK, MESSAGE_MAGIC_CODE, MessageDecodeError, decode_parts
from rmqha.common.sys_flags import COMPRESSED_FLAG
from rmqha.pipeline.format_options import Options
from rmqha.pipeline.log import log_ends, log_scan
from rmqha.pipeline.log import log_ends as ends
from rmqha.pipeline.log.columns import BlockColumns
from rmqha.pipeline.log.log_ends import file_end, log_end
from rmqha.pipeline.log.log_scan import (
    ROW,
    Block,
    ByteRange,
    Hole,
    LogFiles,
    find_logs,
    find_record,
    scan_range,
    whole_file,
)
from rmqha.pipeline.progress import run_tasks
from rmqha.pipeline.streams import at_once
from rmqha.pipeline.table import FURTHER, ROCKETMQ, arrow_schema, table_schema
from rmqha.pipeline.worker import shares
from tests.bench.made_store import make_commit_log
from tests.pipeline.support import DrivenStream
from tests.store import support
from tests.support.tiers import in_long

# Batches with a limit in messages or bytes: over gaps, blanks and unwritten ends, in bounded memory, each row once.


def made(folder: Path, count: int, body: int = 100, segment: int = 16384) -> Path:
    make_commit_log(folder / "commitlog", count, body, segment)
    return folder


def files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def places(data: bytes, count: int) -> list[int]:
    """Return where the first records of a file begin, and the one after them."""
    found = [0]
    for _ in range(count):
        found.append(found[-1] + BLANK.unpack_from(data, found[-1])[0])
    return found


def earliest(root: Path, **options: str) -> DrivenStream:
    return DrivenStream(root, startingOffsets="earliest", **options)


def all_rows(root: Path) -> list[tuple]:
    """Return the rows of a batch without a limit."""
    return sorted(itertools.chain.from_iterable(earliest(root).batches()), key=lambda row: row[1])


def test_limits_in_messages_and_bytes_hold_over_files_and_stores(tmp_path):
    root, other = made(tmp_path / "a", 500), made(tmp_path / "b", 100)
    both = f"{tmp_path}/*"
    rows = list(DrivenStream(both, startingOffsets="earliest", maxOffsetsPerTrigger="70").batches())
    assert [len(batch) for batch in rows] == [70] * 8 + [40]
    assert len({offset for key, offset, _ in rows[0]}) > 35  # of both stores, a share of each
    sized = list(DrivenStream(both, startingOffsets="earliest", maxBytesPerTrigger="20k").batches())
    assert all(sum(size for *_, size in batch) <= 20 << 10 for batch in sized)
    assert sum(sum(size for *_, size in batch) for batch in sized[:-1]) >= (len(sized) - 1) * (18 << 10)
    for got in (rows, sized):
        assert sorted(itertools.chain.from_iterable(got)) == sorted(all_rows(root) + all_rows(other))
    assert all(len(batch) == 1 for batch in earliest(other, maxBytesPerTrigger="1").batches())


def test_both_limits_together(tmp_path):
    root = made(tmp_path / "a", 100)
    size = all_rows(root)[0][2]
    for most, expected in ((10 * size + 5, [10] * 10), (1 << 20, [25] * 4)):
        stream = earliest(root, maxBytesPerTrigger=str(most), maxOffsetsPerTrigger="25")
        assert list(map(len, stream.batches())) == expected


def damage(path: Path, chance: random.Random) -> None:
    """Damage lengths, magic codes, bodies, whole stretches of a file, or its end."""
    data = bytearray(path.read_bytes())
    begins = places(data, 20)
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(5)
        at = chance.choice(begins) if kind < 3 else chance.randrange(len(data))
        if kind == 0:
            data[at:at + 4] = chance.choice([b"\x00\x00\x10\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)])
        elif kind == 1:
            data[at + 4:at + 8] = bytes(4)
        elif kind == 2:
            data[at + 100:at + 104] = b"????"
        elif kind == 3:
            data[at:at + chance.randrange(4000)] = bytes(chance.randrange(4000))
        else:
            data[-chance.randrange(1, 6000):] = b""
    path.write_bytes(data[:16384].ljust(16384, b"\0"))


@pytest.mark.parametrize("seed", range(12))
def test_every_row_of_a_damaged_log_is_in_one_batch(tmp_path, seed):
    chance = random.Random(seed)
    root = made(tmp_path / "a", 300)
    for path in chance.sample(files(root)[:-1], 2):
        damage(path, chance)
    whole = all_rows(root)
    assert any(key is None for key, *_ in whole) or seed
    for _ in range(3):
        most, size = chance.randint(1, 60), chance.choice([1, 3000, 20_000, 1 << 20])
        got = list(earliest(root, maxOffsetsPerTrigger=str(most), maxBytesPerTrigger=str(size)).batches())
        assert list(itertools.chain.from_iterable(got)) == whole
        for batch in got:
            assert len(batch) <= most
            assert len(batch) == 1 or sum(size for *_, size in batch) <= size


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 200))
def test_size_of_a_record_is_the_same_with_and_without_its_body(tmp_path_factory, noise, at):
    folder = tmp_path_factory.mktemp("record")
    make_commit_log(folder / "commitlog", 2, 50, 4096)
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[at:at + len(noise)] = noise
    path.write_bytes(data)
    segment = find_logs([str(folder)])[0].segments[0]
    with open(path, "rb") as file:
        span = log_scan.whole_file(segment)
        size = log_scan.record_size(file.fileno(), span, 0)
    try:
        head = decode_parts(data).head
        assert size == (head.total_size if head.physical_offset == 0 else 0)
    except MessageDecodeError:
        assert size == 0


def test_scanned_bytes_are_not_scanned_again(tmp_path, monkeypatch):
    root = made(tmp_path / "a", 4000, 1000, 8 << 20)
    stream = earliest(root, maxOffsetsPerTrigger="100")
    read = 0

    def counting(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        data = os.pread(fd, size, position)
        read += len(data)
        return data
    for module in (log_ends, log_scan):
        monkeypatch.setattr(module, "pread", counting)
    stream.batch()
    assert stream.metrics["maxOffsetsBehindLatest"] == 3900
    first, read = read, 0
    for _ in range(5):
        stream.batch()
    assert read / 5 < 800_000 < first  # the batch, and the end of the log


def test_end_of_a_log_is_found_by_its_index(tmp_path, monkeypatch):
    with support.open_store(tmp_path / "store", mappedFileSizeCommitLog=1 << 20) as store:
        for number in range(2000):
            support.put(store, support.message("T", 0, b"x" * 100, KEYS=str(number)))
        support.wait_dispatched(store)
    log = find_logs([str(tmp_path / "store")])[0]
    end = log_ends.log_end(log)
    walks = []
    monkeypatch.setattr(log_ends, "_late_record", lambda fd, span: walks.append(span.begin) or span.begin)
    assert log_ends.log_end(log) == end and end - walks[-1] < 1000
    index = max((tmp_path / "store" / "index").iterdir())
    whole = index.read_bytes()
    for header in (b"", bytes(40), whole[:24] + (log.files_end - 9).to_bytes(8, "big"), b"\xff" * 40):
        index.write_bytes(header + whole[len(header):])
        assert log_ends.log_end(log) == end
    shutil.rmtree(index.parent)
    assert log_ends.log_end(log) == end and walks[-1] == log.segments[-1].start


def test_progress_reports_the_lag(tmp_path):
    from rmqha.pipeline.streams import Lag, lag_of
    made(tmp_path / "a", 500)
    made(tmp_path / "b", 100)
    stream = DrivenStream(f"{tmp_path}/*", startingOffsets="earliest", maxOffsetsPerTrigger="60")
    stream.batch()
    metrics = stream.metrics
    assert (metrics["avgOffsetsBehindLatest"], metrics["isEstimated"]) == (270.0, False)
    assert metrics["maxOffsetsBehindLatest"] + metrics["minOffsetsBehindLatest"] == 540
    size = all_rows(tmp_path / "b")[0][2]
    assert abs(metrics["bytesBehindLatest"] / size / 540 - 1) < 0.05  # plus the blanks
    progress = {"sources": [{"latestOffset": stream.reader.reportLatestOffset()}, {"latestOffset": None},
                            {"latestOffset": "17"}]}
    assert lag_of(progress) == [Lag(270.0, metrics["maxOffsetsBehindLatest"], metrics["minOffsetsBehindLatest"],
                                    metrics["bytesBehindLatest"])]
    stream.rest()
    assert (stream.metrics["maxOffsetsBehindLatest"], stream.metrics["bytesBehindLatest"]) == (0, 0)


def test_large_lag_is_estimated_and_marked_as_an_estimate(tmp_path, monkeypatch):
    from rmqha.pipeline.log import commit_log_stream
    monkeypatch.setattr(commit_log_stream, "_COUNTED_BYTES", 10_000)
    monkeypatch.setattr(commit_log_stream, "_LEAST_COUNTED_BYTES", 10_000)
    stream = earliest(made(tmp_path / "a", 1000), maxOffsetsPerTrigger="10")
    stream.batch()
    assert abs(stream.metrics["maxOffsetsBehindLatest"] - 990) < 50 and stream.metrics["isEstimated"]


def test_few_messages_wait_for_more(tmp_path):
    root = made(tmp_path / "a", 40)
    stream = DrivenStream(root, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    assert len(stream.batch()) == 40  # the first batch never waits
    assert stream.rows(stream.offset, stream.offset) == [] and stream.batch() == []


@pytest.mark.parametrize("size", [64 << 20, pytest.param(1 << 30, marks=in_long)])
def test_gap_at_record_100_takes_little_memory(tmp_path, size):
    """Measure the memory of a process like the one in which Spark runs the reader of a stream. A wrong length leads
    to the end."""
    root = made(tmp_path / "a", size // 10240, 10_000, size)
    path = files(root)[0]
    with open(path, "r+b") as file:
        at = places(file.read(2 << 20), 100)[-1]
        file.seek(at)
        file.write(BLANK.pack(size - at - 100, MESSAGE_MAGIC_CODE))
    script = f"""
from pathlib import Path
from tests.pipeline.support import DrivenStream
from tests.store import support
stream = DrivenStream({str(root)!r}, startingOffsets="earliest", maxOffsetsPerTrigger="150", failOnDataLoss="true")
most = lambda: int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = most()
reader, offset, rows = stream.reader, stream.reader.initialOffset(), 0
while (after := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
    reader.reportLatestOffset()
    reader.partitions(offset, after)
    offset, rows = after, rows + 1
print(rows, before, most())"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    batches, before, most = map(int, done.stdout.split())
    assert batches == -(-(size // 10240) // 150)
    print(f"{most >> 10} MiB at most, {before >> 10} before it began")
    assert most - before < 60_000 and most < 300_000  # KiB


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.integers(), st.integers(0, 1000), max_size=20), st.integers(0, 5000))
def test_shares_use_the_whole_limit(backlog, most):
    found = shares(backlog, most)
    assert found.keys() == backlog.keys() and all(0 <= found[key] <= backlog[key] for key in backlog)
    assert sum(found.values()) == min(most, sum(backlog.values()))


def test_parallel_work_keeps_its_order_and_its_first_error():
    assert at_once(lambda number: number * 2, range(1000)) == list(range(0, 2000, 2))
    assert at_once(lambda number: None, range(50)) == [None] * 50

    def odd(number: int) -> int:
        if number % 100 == 17:
            raise ValueError(number)
        return number
    with pytest.raises(ValueError, match="^17$"):
        at_once(odd, range(1000))


def test_partitions_are_small_when_pickled_and_not_too_many(tmp_path):
    from rmqha.pipeline.format_options import Options, PipelineError
    from rmqha.pipeline.log import ranges

    def size(total: int, **given: str) -> int:
        options = Options(given, ("minPartitions", "maxPartitions", "maxPartitionBytes"), "F")
        return ranges.partition_size(options, total)
    assert [size(1 << 30), size(10 ** 14), size(10 ** 14, maxPartitionBytes="1m")] == [128 << 20, 5 * 10 ** 9, 1 << 20]
    assert [size(1 << 30, minPartitions="64"), size(1 << 30, maxPartitions="2")] == [16 << 20, 512 << 20]
    with pytest.raises(PipelineError, match="minPartitions=3 is more than maxPartitions=2"):
        size(1, minPartitions="3", maxPartitions="2")
    log = find_logs([str(made(tmp_path / "a", 300))])[0]
    spans = ranges.ranges_of(log, 301, log.files_end - 500, 5000, True)
    partition = ranges.LogPartition("name", spans)
    again = pickle.loads(pickle.dumps(partition))
    assert (again.log_name, again.ranges, again.value) == (partition.log_name, partition.ranges, "name")
    assert len(pickle.dumps(ranges.LogPartition("name", spans[:1]))) < 250 + len(log.path)
    assert pickle.loads(pickle.dumps(ranges.LogPartition("", ()))).ranges == ()


# Ends of logs, as a walk record by record finds them, too; and damaged lengths cost no memory.

_HOST = layout.host_to_bytes(("127.0.0.1", 10911))
_MIB = 1 << 20


def record(offset: int, time: int = 1, body: bytes = b"body", properties: bytes = b"KEYS\1k\2") -> bytes:
    return layout.encode_record(layout.body_crc32(body), 0, 0, 0, offset, 0, time, _HOST, time, _HOST, 0, 0, body,
                                layout.encode_topic("T"), properties)


def end_by_records(data: bytes) -> int:
    """Return the same in the slow way: record by record, with each CRC checked, and gaps skipped byte by byte."""
    position, seen, end = 0, 0, 0
    while position < len(data):
        if data[position + 4:position + 8] == layout.encode_blank(8)[4:]:
            return len(data)
        size = _whole(data, position)
        if not size and (wrong := _whole(data, position, check_crc=False)):
            position += wrong  # its CRC is wrong: it counts if a record follows
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
def test_end_equals_that_of_a_walk_record_by_record(tmp_path_factory, pieces, has_blank, zeros, block):
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


def test_ends_of_many_logs_are_found_in_tasks_too(spark, tmp_path):
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
    """Return a sparse GiB: three records; the second claims to be 900 MiB long, and all its lengths agree."""
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
def test_wrong_length_takes_no_memory(big, check_crc):
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


def test_long_record_is_read_all_the_same(tmp_path):
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


# Columns made of whole blocks equal the decoder's results for single messages, whatever the records contain.

HOSTS = [layout.host_to_bytes(host) for host in (("127.0.0.1", 10911), ("10.1.2.3", 4), ("::1", 5), ("fe80::2", -1))]
ALL = Options({"columns": ",".join([*ROCKETMQ, *FURTHER])}, ("columns", "schema"), "test")
SCHEMA = arrow_schema(table_schema(ALL))

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\1\2"), max_size=12)
orderly = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "名"]) | texts.filter(bool),
                          texts.filter(bool), max_size=5)
properties = st.one_of(
    orderly.map(lambda pairs: "\2".join(f"{name}\1{value}" for name, value in pairs.items()).encode()),
    orderly.map(lambda pairs: "".join(f"{name}\1{value}\2" for name, value in pairs.items()).encode()),
    st.lists(st.sampled_from([b"\1", b"\2", b"a", b"KEYS", b"TAGS", b"\0", b"\xff", "é".encode()]),
             max_size=12).map(b"".join))
numbers = st.integers(0, (1 << 31) - 1)
records = st.lists(st.tuples(
    st.sampled_from(HOSTS), st.sampled_from(HOSTS), st.binary(max_size=60), st.sampled_from(["T", "other", "主题"]),
    properties, numbers, st.integers(0, 7), st.booleans(), st.sampled_from([0, 1, 1_700_000_000_123, 1 << 62])),
    min_size=1, max_size=12)


def encode(described, begin: int) -> bytes:
    """Return a log from offset `begin` on."""
    data = b""
    for born, stored, body, topic, props, number, queue_id, packed, time in described:
        sys_flag = layout.host_flags(born, stored) | (COMPRESSED_FLAG if packed else 0)
        body = zlib.compress(body) if packed else body
        data += layout.encode_record(layout.body_crc32(body), queue_id, number, number * 2, begin + len(data), sys_flag,
                                     time, born, 1_700_000_000_000 + number, stored, number % 5, number * 3, body,
                                     layout.encode_topic(topic), props)
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("columns"))


def write(folder: str, data: bytes, start: int, size: int) -> str:
    path = os.path.join(folder, f"{start:020d}")
    with open(path, "wb") as file:
        file.write(data)
        file.truncate(size)
    return path


def text(host) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def check_row(row: dict, data: bytes, base: int) -> None:
    """Compare one row with the decoder's result."""
    position = row["physicalOffset"] - base
    message = decode(data, position=position)
    got = {"topic": message.topic, "flag": message.flag, "body": bytes(message.body), "queueId": message.queue_id,
           "queueOffset": message.queue_offset, "storeSize": message.store_size, "sysFlag": message.sys_flag,
           "bodyCrc": message.body_crc, "reconsumeTimes": message.reconsume_times, "keys": message.keys,
           "preparedTransactionOffset": message.prepared_transaction_offset, "tags": message.tags,
           "bornHost": text(message.born_host), "storeHost": text(message.store_host), "crcOk": True,
           "uniqKey": message.properties.get("UNIQ_KEY"), "brokerName": "store"}
    assert {name: row[name] for name in got} == got
    assert dict(row["properties"]) == message.properties
    assert row["storeTimestamp"].timestamp() * 1000 == message.store_timestamp
    assert (row["bornTimestamp"] is None) == (message.born_timestamp > 1 << 60)
    head = layout.HEADS[message.sys_flag >> 4 & 3].size
    stored = bytes(row["envelope"][:head] + row["storedBody"] + row["envelope"][head:])
    assert stored == data[position:position + message.store_size]


@settings(max_examples=60, deadline=None)
@given(records, st.integers(0, 3))
def test_columns_equal_the_decoders_results(folder, described, file_number):
    start = file_number * 100_000
    data = encode(described, start)
    path = write(folder, data, start, len(data))
    rows = []
    for block in scan_range(ByteRange(path, start, start, start + len(data), start + len(data), True), True):
        assert isinstance(block, Block)
        rows += BlockColumns(block, None, "store", True).batch(SCHEMA).to_pylist()
    assert len(rows) == len(described)
    for row in rows:
        check_row(row, data, start)


# Any bytes, and also zeros, and high bits that make numbers of the head and lengths negative.
damage_columns = st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=40) | st.integers(1, 200).map(bytes)
                   | st.integers(1, 8).map(lambda count: b"\x80" * count))


@settings(max_examples=60, deadline=None)
@given(records, st.lists(damage_columns, max_size=4), st.integers(40, 900), st.booleans())
def test_damaged_logs_cut_anywhere_give_each_record_and_each_gap_once(folder, described, damages, size, check_crc):
    data = bytearray(encode(described, 0))
    for at, what in damages:
        data[at:at + len(what)] = what[:max(len(data) - at, 0)]
    path, length = write(folder, bytes(data), 0, len(data)), len(data)
    whole = list(_found(path, [(0, length)], length, check_crc))
    assert list(_found(path, _cut(length, size), length, check_crc)) == whole
    position = 0
    for _, offset, found_size, _ in whole:
        assert offset == position and found_size > 0
        position += found_size
    assert position == length


def _cut(length, size):
    return [(at, min(at + size, length)) for at in range(0, length, size)]


def _found(path, ranges, limit, check_crc):
    for begin, end in ranges:
        for found in scan_range(ByteRange(path, 0, begin, end, limit, begin == 0), check_crc):
            if isinstance(found, Hole):
                yield "hole", found.offset, found.size, found.reason
            else:
                for row in found.rows:
                    yield "record", int(row["offset"]), int(row["size"]), found.crc_ok if check_crc else None


def _plain(count, begin=0, body=b"x" * 50, time=1):
    return encode([(HOSTS[0], HOSTS[0], body, "T", b"", number, 0, False, time) for number in range(count)], begin)


@pytest.mark.parametrize("check_crc", [False, True])
def test_records_with_a_store_time_before_1970_are_read_wherever_ranges_are_cut(folder, check_crc):
    data = b""
    for time in (5, -1, -1 << 63, 6):
        data += _plain(1, len(data), time=time)
    path, length = write(folder, data, 0, len(data)), len(data)
    for size in range(1, length + 1):
        found = list(_found(path, _cut(length, size), length, check_crc))
        assert [each[:3] for each in found] == [("record", at, length // 4) for at in range(0, length, length // 4)]


def test_record_whose_first_zeros_lie_in_a_hole_of_a_sparse_file_is_read_once(folder):
    begin, page = (1 << 16) - 2, 1 << 16
    data = _plain(3, begin)
    assert data[:2] == b"\0\0"
    path, length = os.path.join(folder, "sparse"), begin + len(data)
    with open(path, "wb") as file:
        file.seek(page)
        file.write(data[2:])
    whole = list(_found(path, [(0, length)], length, True))
    assert whole[0] == ("hole", 0, begin, "nothing was written here") and len(whole) == 4
    for size in (1000, begin - 1, begin, begin + 1, page, page + 1):
        assert list(_found(path, _cut(length, size), length, True)) == whole


def test_file_that_became_shorter_gives_one_gap_up_to_its_planned_end_wherever_ranges_are_cut(folder):
    data = _plain(4)
    size = len(data) // 4
    for kept, reason in ((2 * size, "the file ends here"), (2 * size + 30, "the record is truncated"),
                         (3 * size - 1, "the record is truncated")):
        path = write(folder, data[:kept], 0, kept)
        wanted = [("record", 0, size, True), ("record", size, size, True), ("hole", 2 * size, 2 * size, reason)]
        for step in range(20, len(data) + 1, 7):
            assert list(_found(path, _cut(len(data), step), len(data), True)) == wanted


def test_cuts_only_add_records_within_the_body_of_another(folder):
    first = _plain(2)
    inner_at = len(first) + layout.HEAD_LENGTH + 7
    inner = _plain(3, inner_at)
    outer = _plain(1, len(first), b"stored:" + inner + b"; and more")
    data = first + outer + _plain(3, len(first) + len(outer))
    path, length, size = write(folder, data, 0, len(data)), len(data), len(inner) // 3
    whole = list(_found(path, [(0, length)], length, True))
    assert [each[0] for each in whole] == ["record"] * 6
    added = set()
    for step in range(1, length + 1):
        cut = list(_found(path, _cut(length, step), length, True))
        assert [each for each in cut if each in whole] == whole
        more = [each for each in cut if each not in whole]
        assert len(set(more)) == len(more)
        assert all(len(first) < offset and offset + found_size <= len(first) + len(outer)
                   for _, offset, found_size, _ in more)
        added |= {offset for kind, offset, _, _ in more if kind == "record"}
    assert added == {inner_at, inner_at + size, inner_at + 2 * size}


def test_end_of_a_file_that_became_shorter_is_after_its_last_whole_record(folder):
    data = _plain(4)
    size = len(data) // 4
    for kept in (2 * size, 2 * size + 30, 3 * size - 1):
        path = write(folder, data[:kept], 0, kept)
        assert file_end(Segment(0, path, len(data)), 0) == 2 * size


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400), records)
def test_bytes_after_a_log_do_not_move_its_end_back(folder, rest, described):
    data = encode(described, 0)
    path = write(folder, data + rest, 0, len(data) + len(rest) + 64)
    log = LogFiles("store", folder, [Segment(0, path, os.path.getsize(path))])
    # A last record whose properties end with a 0 may look unfinished.
    assert log_end(log) >= len(data) or data.endswith(b"\0")


def test_record_is_found_wherever_it_begins(folder):
    data = encode([(HOSTS[0], HOSTS[0], b"x" * 50, "T", b"", number, 0, False, 1) for number in range(9)], 0)
    path, size = write(folder, data, 0, len(data)), len(data) // 9
    fd = os.open(path, os.O_RDONLY)
    try:
        span = whole_file(Segment(0, path, len(data)))
        for begin in range(len(data)):
            wanted = -(-begin // size) * size
            assert find_record(fd, span, begin, len(data)) == (wanted if wanted < len(data) else None)
    finally:
        os.close(fd)


def test_empty_block_has_every_column():
    block = Block(b"", 0, np.zeros(0, ROW), [], True)
    assert BlockColumns(block, None, None, False).batch(SCHEMA).num_rows == 0
