"""Batches of so many messages or bytes: over holes, blanks and unwritten ends, in bounded memory, each row once."""
import itertools
import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import BLANK, MESSAGE_MAGIC_CODE, MessageDecodeError, decode_parts
from rmqha.pipeline.log import log_ends, log_scan
from rmqha.pipeline.log.log_scan import find_logs
from rmqha.pipeline.streams import at_once
from rmqha.pipeline.worker import shares
from tests.bench.made_store import make_commit_log
from tests.pipeline.log.driven_stream import DrivenStream
from tests.store import support
from tests.support.tiers import in_long


def made(folder: Path, count: int, body: int = 100, segment: int = 16384) -> Path:
    make_commit_log(folder / "commitlog", count, body, segment)
    return folder


def files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def places(data: bytes, count: int) -> list[int]:
    """Where the first records of a file begin, and the one behind them."""
    found = [0]
    for _ in range(count):
        found.append(found[-1] + BLANK.unpack_from(data, found[-1])[0])
    return found


def earliest(root: Path, **options: str) -> DrivenStream:
    return DrivenStream(root, startingOffsets="earliest", **options)


def all_rows(root: Path) -> list[tuple]:
    """What a batch without a limit gives."""
    return sorted(itertools.chain.from_iterable(earliest(root).batches()), key=lambda row: row[1])


def test_limits_in_messages_and_bytes_hold_over_files_and_stores(tmp_path):
    root, other = made(tmp_path / "a", 500), made(tmp_path / "b", 100)
    both = f"{tmp_path}/*"
    rows = list(DrivenStream(both, startingOffsets="earliest", maxOffsetsPerTrigger="70").batches())
    assert [len(batch) for batch in rows] == [70] * 8 + [40]
    assert len({offset for key, offset, _ in rows[0]}) > 35  # of both stores, each its part
    sized = list(DrivenStream(both, startingOffsets="earliest", maxBytesPerTrigger="20k").batches())
    assert all(sum(size for *_, size in batch) <= 20 << 10 for batch in sized)
    assert sum(sum(size for *_, size in batch) for batch in sized[:-1]) >= (len(sized) - 1) * (18 << 10)
    for got in (rows, sized):
        assert sorted(itertools.chain.from_iterable(got)) == sorted(all_rows(root) + all_rows(other))
    assert all(len(batch) == 1 for batch in earliest(other, maxBytesPerTrigger="1").batches())


def test_a_stop_at_both_limits(tmp_path):
    root = made(tmp_path / "a", 100)
    size = all_rows(root)[0][2]
    for most, expected in ((10 * size + 5, [10] * 10), (1 << 20, [25] * 4)):
        stream = earliest(root, maxBytesPerTrigger=str(most), maxOffsetsPerTrigger="25")
        assert list(map(len, stream.batches())) == expected


def damage(path: Path, chance: random.Random) -> None:
    """Lengths, magic codes, bodies, whole stretches of a file, or its end."""
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
def test_the_size_of_a_record_is_told_without_its_body_as_with_it(tmp_path_factory, noise, at):
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


def test_what_was_seen_once_is_not_looked_through_again(tmp_path, monkeypatch):
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
    assert read / 5 < 800_000 < first  # what is the batch, and at the end of the log


def test_the_end_of_a_log_is_found_by_its_index(tmp_path, monkeypatch):
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


def test_a_progress_tells_how_far_it_is_behind(tmp_path):
    from rmqha.pipeline.streams import Lag, lag_of
    made(tmp_path / "a", 500)
    made(tmp_path / "b", 100)
    stream = DrivenStream(f"{tmp_path}/*", startingOffsets="earliest", maxOffsetsPerTrigger="60")
    stream.batch()
    metrics = stream.metrics
    assert (metrics["avgOffsetsBehindLatest"], metrics["isEstimated"]) == (270.0, False)
    assert metrics["maxOffsetsBehindLatest"] + metrics["minOffsetsBehindLatest"] == 540
    size = all_rows(tmp_path / "b")[0][2]
    assert abs(metrics["bytesBehindLatest"] / size / 540 - 1) < 0.05  # and the blanks
    progress = {"sources": [{"latestOffset": stream.reader.reportLatestOffset()}, {"latestOffset": None},
                            {"latestOffset": "17"}]}
    assert lag_of(progress) == [Lag(270.0, metrics["maxOffsetsBehindLatest"], metrics["minOffsetsBehindLatest"],
                                    metrics["bytesBehindLatest"])]
    stream.rest()
    assert (stream.metrics["maxOffsetsBehindLatest"], stream.metrics["bytesBehindLatest"]) == (0, 0)


def test_what_is_too_far_behind_is_estimated_and_says_so(tmp_path, monkeypatch):
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
def test_a_hole_at_record_100_takes_little_memory(tmp_path, size):
    """The memory of a process like the one in which Spark runs the reader of a stream. A length leads to the end."""
    root = made(tmp_path / "a", size // 10240, 10_000, size)
    path = files(root)[0]
    with open(path, "r+b") as file:
        at = places(file.read(2 << 20), 100)[-1]
        file.seek(at)
        file.write(BLANK.pack(size - at - 100, MESSAGE_MAGIC_CODE))
    script = f"""
from pathlib import Path
from tests.pipeline.log.driven_stream import DrivenStream
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
def test_shares_use_all_there_is_to_give(backlog, most):
    found = shares(backlog, most)
    assert found.keys() == backlog.keys() and all(0 <= found[key] <= backlog[key] for key in backlog)
    assert sum(found.values()) == min(most, sum(backlog.values()))


def test_work_at_once_keeps_its_order_and_its_first_error():
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
