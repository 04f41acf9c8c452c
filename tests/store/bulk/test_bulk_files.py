"""Consume queues and index files built in bulk: against IndexFile.put_key, and against the files of RocketMQ 4.9.7."""
import itertools
import random

import pytest

from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters, Stop
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rmqha.store.index.index_file import IndexFile
from rmqha.store.index.index_layout import HASH_SLOT_SIZE, INDEX_HEADER_SIZE, INDEX_SIZE, SLOT, file_size
from tests.store.bulk.test_bulk import compiled_kernel, log_of, record
from tests.store.support import tree, unpack_golden

GOLDEN_SLOTS, GOLDEN_ENTRIES = 50, 200
LEVELS = [1000, 5000, 10_000, 30_000, *(60_000 * minutes for minutes in (*range(1, 11), 20, 30, 60, 120))]


@pytest.fixture(params=["python", "compiled"])
def kernel(request, monkeypatch):
    """`bulk` with one of the implementations."""
    monkeypatch.setattr(bulk, "_kernel", bulk_python if request.param == "python" else compiled_kernel())
    return bulk


def scans(data, base, limit=7, **how):
    """All scans of a commit log file."""
    position = 0
    while True:
        span = bulk.scan(data, position, len(data), base, True, limit=limit, **how)
        yield span
        position = span.position
        if span.stop != Stop.LIMIT:
            return


def index_files(keys, slots, entries):
    """The index files of rows of keys, one after the other, each rolled over to the next."""
    files, buffer, counters = [], None, IndexCounters(0, 0, 0, 0, 0, entries)
    for rows in keys:
        first, last = 0, len(rows) // KEY.size
        while first < last:
            if counters.index_count >= entries:
                buffer = bytearray(file_size(slots, entries))
                files.append(buffer)
                counters = IndexCounters(counters.end_timestamp, counters.end_timestamp, counters.end_phy_offset,
                                         counters.end_phy_offset, 0, 1)
            first, counters = bulk.put_keys(buffer, slots, entries, counters, rows, first)
    return [bytes(file) for file in files]


class OneByOne:
    """Index files written with IndexFile.put_key, rolled over as IndexService does."""

    def __init__(self, folder, slots, entries):
        self.folder, self.slots, self.entries = folder, slots, entries
        self.files = []

    def put(self, key, offset, store_timestamp):
        """Add one key."""
        last = self.files[-1] if self.files else None
        if last is None or last.is_write_full:
            self.files.append(IndexFile(str(self.folder / str(1000 + len(self.files))), self.slots, self.entries,
                                        last.end_phy_offset if last else 0, last.end_timestamp if last else 0))
        assert self.files[-1].put_key(key, offset, store_timestamp)

    def contents(self):
        """The bytes of the files."""
        return [bytes(file.mapped_file.slice_byte_buffer()) for file in self.files]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("slots, entries", [(1, 5), (7, 20), (100, 1000)])
def test_index_files_are_those_of_put_key(kernel, tmp_path, seed, slots, entries):
    random_ = random.Random(seed)
    messages, time = [], 1_700_000_000_000
    for _ in range(60):
        time += random_.choice([0, 1, 999, 1000, 60_000, -5000, 1 << 42])
        words = random_.choices(["a", "b", "\u6807", "\U0001f600", "order-123456789", "x" * 50], k=random_.randrange(4))
        messages.append((random_.choice(["T", "\u4e3b\u9898"]), words, time))
    data = log_of(*({"topic": topic, "properties": "KEYS\x01" + " ".join(words), "store_timestamp": at}
                    for topic, words, at in messages))
    one_by_one = OneByOne(tmp_path, slots, entries)
    position = 0
    for topic, words, at in messages:
        for word in words:
            one_by_one.put(f"{topic}#{word}", position, at)
        position += len(record(position, topic, properties="KEYS\x01" + " ".join(words)))
    spans = list(scans(data, 0))
    assert index_files([span.keys for span in spans], slots, entries) == one_by_one.contents()


def test_slot_that_names_an_entry_not_written_yet_counts_as_empty(kernel):
    for number, previous in ((4, 4), (4, 5), (4, -1), (4, 0)):
        file = bytearray(file_size(1, 10))
        SLOT.pack_into(file, INDEX_HEADER_SIZE, number if previous == 4 else previous)
        _, counters = kernel.put_keys(file, 1, 10, IndexCounters(1, 1, 1, 1, 1, 4), KEY.pack(5, 6, 7, 0))
        entry_at = INDEX_HEADER_SIZE + HASH_SLOT_SIZE + 4 * INDEX_SIZE
        assert (file[entry_at + 16:entry_at + 20], counters.hash_slot_count) == (bytes(4), 2)


def test_full_file_takes_no_key_and_says_so(kernel):
    file = bytearray(file_size(2, 3))
    done, counters = kernel.put_keys(file, 2, 3, IndexCounters(0, 0, 0, 0, 0, 1), KEY.pack(5, 6, 7, 0) * 4, 1)
    assert (done, counters.index_count) == (3, 3)
    before = bytes(file)
    assert kernel.put_keys(file, 2, 3, counters, KEY.pack(9, 9, 9, 0)) == (0, counters)
    assert bytes(file) == before


@pytest.mark.parametrize("name", ["normal", "kill"])
def test_files_of_java_are_built_again_byte_by_byte(kernel, tmp_path, name):
    files = tree(unpack_golden(name, tmp_path))
    queues, keys, ends = {}, [], []
    for path, data in files.items():
        if not path.startswith("commitlog/"):
            continue
        assert kernel.walk(data, 0, len(data), True).stop in (Stop.BLANK, Stop.UNWRITTEN)
        for span in scans(data, int(path.split("/")[1]), delays=LEVELS):
            for run in span.runs:
                units = queues.setdefault((span.topics[run.topic].name, run.queue_id), bytearray())
                assert run.queue_offset * CQ_STORE_UNIT_SIZE == len(units)
                units += span.units[run.first_unit * CQ_STORE_UNIT_SIZE:
                                    (run.first_unit + run.count) * CQ_STORE_UNIT_SIZE]
            keys.append(span.keys)
        ends.append(span.stop)
        if span.stop == Stop.UNWRITTEN:
            break  # the next file, made in advance, is empty
    assert set(ends[:-1]) == {Stop.BLANK} and ends[-1] in (Stop.BLANK, Stop.UNWRITTEN)
    assert queues == _java_queues(files)
    assert index_files(keys, GOLDEN_SLOTS, GOLDEN_ENTRIES) == [
        data for path, data in sorted(files.items()) if path.startswith("index/")]


def _java_queues(files):
    """Topic and queue id -> all units."""
    queues = {}
    parts = [(path.split("/")[1:3], data) for path, data in sorted(files.items()) if path.startswith("consumequeue/")]
    for (topic, queue_id), group in itertools.groupby(parts, key=lambda part: part[0]):
        queues[topic, int(queue_id)] = bytearray(b"".join(data for _, data in group).rstrip(b"\0"))
        queues[topic, int(queue_id)] += bytes(-len(queues[topic, int(queue_id)]) % CQ_STORE_UNIT_SIZE)
    return queues
