"""Results of the bulk kernel: consume queues, index files, and properties as columns."""
import itertools
import random
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import decode_text
from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters, Stop
from rmqha.store.bulk.bulk_python import MAX_WANTED, MapColumn, TextColumn, columns_in_python
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rmqha.store.index.index_file import IndexFile
from rmqha.store.index.index_layout import HASH_SLOT_SIZE, INDEX_HEADER_SIZE, INDEX_SIZE, SLOT, file_size
from tests.store.bulk.test_bulk import compiled_kernel, log_of, record
from tests.store.support import tree, unpack_golden
from tests.support.tiers import drawn

# Consume queues and index files built in bulk, compared with IndexFile.put_key and with the files of RocketMQ 4.9.7.

GOLDEN_SLOTS, GOLDEN_ENTRIES = 50, 200
LEVELS = [1000, 5000, 10_000, 30_000, *(60_000 * minutes for minutes in (*range(1, 11), 20, 30, 60, 120))]


@pytest.fixture(params=["python", "compiled"])
def kernel(request, monkeypatch):
    """`bulk` with one of the implementations."""
    monkeypatch.setattr(bulk, "_kernel", bulk_python if request.param == "python" else compiled_kernel())
    return bulk


def scans(data, base, limit=7, **how):
    """Scan a commit log file to its end, `limit` records at a time."""
    position = 0
    while True:
        span = bulk.scan(data, position, len(data), base, True, limit=limit, **how)
        yield span
        position = span.position
        if span.stop != Stop.LIMIT:
            return


def index_files(keys, slots, entries):
    """Build the index files for rows of keys; a full file is followed by the next one."""
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
        """Return the bytes of the files."""
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


def test_slot_that_points_to_an_unwritten_entry_counts_as_empty(kernel):
    for number, previous in ((4, 4), (4, 5), (4, -1), (4, 0)):
        file = bytearray(file_size(1, 10))
        SLOT.pack_into(file, INDEX_HEADER_SIZE, number if previous == 4 else previous)
        _, counters = kernel.put_keys(file, 1, 10, IndexCounters(1, 1, 1, 1, 1, 4), KEY.pack(5, 6, 7, 0))
        entry_at = INDEX_HEADER_SIZE + HASH_SLOT_SIZE + 4 * INDEX_SIZE
        assert (file[entry_at + 16:entry_at + 20], counters.hash_slot_count) == (bytes(4), 2)


def test_full_file_takes_no_key_and_reports_it(kernel):
    file = bytearray(file_size(2, 3))
    done, counters = kernel.put_keys(file, 2, 3, IndexCounters(0, 0, 0, 0, 0, 1), KEY.pack(5, 6, 7, 0) * 4, 1)
    assert (done, counters.index_count) == (3, 3)
    before = bytes(file)
    assert kernel.put_keys(file, 2, 3, counters, KEY.pack(9, 9, 9, 0)) == (0, counters)
    assert bytes(file) == before


@pytest.mark.parametrize("name", ["normal", "kill"])
def test_files_of_java_are_rebuilt_byte_for_byte(kernel, tmp_path, name):
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
            # The next file, allocated in advance, is empty.
            break
    assert set(ends[:-1]) == {Stop.BLANK} and ends[-1] in (Stop.BLANK, Stop.UNWRITTEN)
    assert queues == _java_queues(files)
    assert index_files(keys, GOLDEN_SLOTS, GOLDEN_ENTRIES) == [
        data for path, data in sorted(files.items()) if path.startswith("index/")]


def _java_queues(files):
    """Map topic and queue id to all units."""
    queues = {}
    parts = [(path.split("/")[1:3], data) for path, data in sorted(files.items()) if path.startswith("consumequeue/")]
    for (topic, queue_id), group in itertools.groupby(parts, key=lambda part: part[0]):
        queues[topic, int(queue_id)] = bytearray(b"".join(data for _, data in group).rstrip(b"\0"))
        queues[topic, int(queue_id)] += bytes(-len(queues[topic, int(queue_id)]) % CQ_STORE_UNIT_SIZE)
    return queues


# Properties as columns: for any bytes, both implementations return what the single-message decoder returns.

NAMED = (b"KEYS", b"TAGS", b"UNIQ_KEY")
SCRAPS = (b"\1", b"\2", b"a", b"b", b"KEYS", b"TAGS", b"\0", b"\xff", b"\xfe", b"\xe5\x90", b"\xf0\x9f\x98",
          b"\xed\xa0\x80", b"KEYS\1k\2", b"TAGS\1t\2", b"WAIT\1true\2", "é\1主题".encode(), "\U0001f600\1x\2".encode())
texts = st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(SCRAPS), max_size=20).map(b"".join),
                  st.lists(st.tuples(st.integers(0, 80), st.integers(0, 9)), min_size=60, max_size=90).map(
                      lambda pairs: b"\2".join(b"%d\1%d" % pair for pair in pairs)))


def compiled():
    module = pytest.importorskip("rmqha.native._properties", reason="no C compiler was there at the install")
    return module.property_columns


@pytest.fixture(params=["python", "compiled"])
def columns(request):
    """columns(*texts, with_map) returns the properties of these texts: dicts, and a list for each of NAMED."""
    function = columns_in_python if request.param == "python" else compiled()
    return lambda *texts, with_map=True: read(function, texts, with_map)


def read(function, all_texts, with_map=True):
    data, begins, ends = b"behind", [], []
    for text in all_texts:
        begins.append(len(data))
        data += text
        ends.append(len(data))
        data += b"\1between\2"
    found, named = function(data, array("q", begins), array("q", ends), NAMED, with_map)
    assert (found is None) == (not with_map)
    named = [text_column(TextColumn(*each), len(begins)) for each in named]
    return (None if found is None else dicts(MapColumn(*found))), named


def numbers(data):
    return struct.unpack(f"={len(data) // 4}i", data)


def cut(offsets, data):
    places = numbers(offsets)
    assert places[0] == 0 and places[-1] == len(data)
    return [data[begin:end].decode() for begin, end in zip(places, places[1:], strict=False)]


def dicts(column):
    bounds = numbers(column.bounds)
    names, values = cut(column.name_offsets, column.names), cut(column.value_offsets, column.values)
    assert len(names) == len(values) == bounds[-1]
    return [list(zip(names[begin:end], values[begin:end], strict=True))
            for begin, end in zip(bounds, bounds[1:], strict=False)]


def text_column(column, count):
    values = cut(column.offsets, column.values)
    assert len(values) == count and len(column.valid) == -(-count // 8)
    bits = int.from_bytes(column.valid, "little")
    assert bits >> count == 0
    return [value if bits >> number & 1 else None for number, value in enumerate(values)]


@settings(max_examples=drawn(200), deadline=None)
@given(st.lists(texts, max_size=12), st.booleans())
def test_columns_equal_the_results_of_the_decoder(all_texts, with_map):
    wanted = [string2message_properties(decode_text(text)) for text in all_texts]
    for function in (columns_in_python, compiled()):
        found, named = read(function, all_texts, with_map)
        assert found == ([list(each.items()) for each in wanted] if with_map else None)
        assert named == [[each.get(name.decode()) for each in wanted] for name in NAMED]


@settings(max_examples=drawn(200), deadline=None)
@given(st.binary(max_size=40))
def test_invalid_utf8_is_replaced_as_python_and_java_do(data):
    for function in (columns_in_python, compiled()):
        found, _ = read(function, [b"name\1v" + data.replace(b"\2", b"")])
        assert found == [[("name", "v" + str(data.replace(b"\2", b""), "utf-8", "replace"))]]


def test_equal_duplicates_of_a_batch_send_count_once(columns):
    """Java's batch sends write such duplicates."""
    text = b"CLUSTER\1c\2WAIT\1true\2KEYS\1k\2TAGS\1t\2WAIT\1true\2CLUSTER\1c"
    assert columns(text) == ([[("CLUSTER", "c"), ("WAIT", "true"), ("KEYS", "k"), ("TAGS", "t")]],
                             [["k"], ["t"], [None]])


def test_unequal_duplicates_keep_the_first_position_and_the_last_value(columns):
    text = b"TAGS\1old\2a\1x\2TAGS\1\2TAGS\1new"
    assert columns(text) == ([[("TAGS", "new"), ("a", "x")]], [[None], ["new"], [None]])


@pytest.mark.parametrize("count", [63, 64, 65, 66, 5000])
def test_records_of_any_number_of_properties(columns, count):
    entries = [(f"n{number * 7919 % 997}", f"v{number}") for number in range(count)]
    text = "\2".join(f"{name}\1{value}" for name, value in entries).encode()
    assert columns(b"", text, b"KEYS\1k") == ([[], list(dict(entries).items()), [("KEYS", "k")]],
                                             [[None, None, "k"], [None] * 3, [None] * 3])


def test_truncated_entries_are_ignored(columns):
    assert columns(b"\2\2a\1\2\1b\2c\2KEYS\1k\1l\2TAGS", with_map=False) == (None, [["k\1l"], [None], [None]])


def test_names_that_are_equal_after_replacement_are_merged(columns):
    assert columns(b"\xff\1a\2\xfe\1b\2x\1y") == ([[("�", "b"), ("x", "y")]], [[None]] * 3)


def test_columns_of_no_records_are_empty(columns):
    assert columns() == ([], [[], [], []])


@pytest.mark.parametrize("begins, ends, names", [
    ([-1], [1], NAMED), ([0], [5], NAMED), ([2], [1], NAMED), ([0, 1], [1], NAMED), ([0], [1], NAMED * MAX_WANTED)])
@pytest.mark.parametrize("function", [columns_in_python, None], ids=["python", "compiled"])
def test_offsets_outside_the_data_and_too_many_names_are_refused(function, begins, ends, names):
    with pytest.raises(ValueError):
        (function or compiled())(b"data", array("q", begins), array("q", ends), names, True)


def test_column_too_large_for_its_offsets_is_refused():
    data, count = b"n\1" + bytes(1 << 20), 2100
    with pytest.raises(OverflowError):
        compiled()(data, array("q", [0] * count), array("q", [len(data)] * count), NAMED, True)
