"""The key index: layout, chains, queries, rolling over, and the state after a crash."""
import io
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import sys_flags
from rmqha.common.java import uncached_hash_code
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.index import index_layout as layout
from rmqha.store.index import index_service
from rmqha.store.index.index_file import IndexFile, index_shape, shape_of
from rmqha.store.index.index_layout import file_size
from tests.store import support
from tests.store.support import crash, message, new_store, open_store, put, wait_dispatched

SLOTS, ENTRIES = 10, 50
EVER = (1 << 63) - 1


@pytest.fixture
def index_file(tmp_path):
    opened = IndexFile(str(tmp_path / "20260101000000000"), SLOTS, ENTRIES)
    yield opened
    opened.destroy(0)


def select(index_file, key, max_num=64, begin=0, end=EVER):
    found = []
    index_file.select_phy_offset(found, key, max_num, begin, end)
    return found


@given(st.text(max_size=60))
def test_key_hash_is_javas(key):
    value = abs(uncached_hash_code(key))
    assert layout.index_key_hash_method(key) == (0 if value == 1 << 31 else value)


def test_key_hash_of_the_lowest_integer_is_0():
    assert uncached_hash_code("polygenelubricants") == -(1 << 31)
    assert layout.index_key_hash_method("polygenelubricants") == 0


def test_header_slot_and_entries_lie_where_java_puts_them(index_file):
    assert index_file.put_key("T#a", 100, 5000)
    assert index_file.put_key("T#a", 200, 7999)
    assert layout.HEADER.unpack_from(index_file._buffer) == (5000, 7999, 100, 200, 1, 3)
    key_hash = layout.index_key_hash_method("T#a")
    assert layout.SLOT.unpack_from(index_file._buffer, 40 + 4 * (key_hash % SLOTS)) == (2,)
    assert layout.ENTRY.unpack_from(index_file._buffer, 40 + 4 * SLOTS + 20) == (key_hash, 100, 0, 0)
    assert layout.ENTRY.unpack_from(index_file._buffer, 40 + 4 * SLOTS + 40) == (key_hash, 200, 2, 1)
    assert os.path.getsize(index_file.file_name) == layout.file_size(SLOTS, ENTRIES) == 40 + 4 * SLOTS + 20 * ENTRIES


def test_file_is_full_one_entry_early(index_file):
    for number in range(1, ENTRIES):
        assert index_file.put_key(f"T#{number}", number, 1000)
    assert index_file.is_write_full
    assert not index_file.put_key("T#more", 99, 1000)
    assert select(index_file, "T#7") == [7]


def test_newest_entries_come_first_and_time_limits_them(index_file):
    for number in range(10):
        index_file.put_key("T#k", number, 100_000 + number * 1000)
    assert select(index_file, "T#k") == list(range(9, -1, -1))
    assert select(index_file, "T#k", max_num=3) == [9, 8, 7]
    assert select(index_file, "T#k", begin=103_000, end=105_000) == [5, 4, 3]
    assert select(index_file, "T#k", max_num=0) == []
    assert select(index_file, "T#other") == []


@pytest.mark.parametrize("seconds, expected", [(-5, 0), (0, 0), (999, 0), (1000, 1), (1 << 45, (1 << 31) - 1)])
def test_time_is_clamped(seconds, expected):
    assert layout.time_diff_seconds(1_000_000 + seconds, 1_000_000) == expected
    assert layout.time_diff_seconds(1_000_000, 0) == 0


def test_time_range_of_a_file(index_file):
    index_file.put_key("T#k", 1, 2000)
    index_file.put_key("T#k", 2, 4000)
    assert [index_file.is_time_matched(*span) for span in ((0, 1999), (0, 2000), (3000, 3500), (1000, 9000),
                                                           (4000, 9000), (4001, 9000))] == \
        [False, True, True, True, True, False]


def test_every_query_ends_even_with_damaged_chains(index_file):
    rng = random.Random(7)
    for _ in range(300):
        index_file._buffer[36:40] = layout.SLOT.pack(rng.choice((1, 5, ENTRIES, 1 << 30, -3)))
        for at in range(40, layout.file_size(SLOTS, ENTRIES), 4):
            index_file._buffer[at:at + 4] = layout.SLOT.pack(rng.choice((0, 1, 2, 3, 49, 50, 1 << 30, -1)))
        index_file.load()
        index_file.index_header.index_count = min(index_file.index_header.index_count, ENTRIES)
        for key in "abc":
            assert len(select(index_file, f"T#{key}")) <= ENTRIES


def test_entry_never_becomes_its_own_predecessor(index_file):
    index_file.put_key("T#k", 1, 1000)
    slot_at = 40 + 4 * (layout.index_key_hash_method("T#k") % SLOTS)
    # A crash came between writing the slot and the count.
    index_file._buffer[slot_at:slot_at + 4] = layout.SLOT.pack(2)
    index_file.put_key("T#k", 2, 1000)
    assert select(index_file, "T#k") == [2]


@pytest.mark.parametrize("kept", [0, 1, 20, 39])
def test_truncated_file_has_the_flushed_entries_and_complete_chains(tmp_path, kept):
    index_file = IndexFile(str(tmp_path / "1"), SLOTS, ENTRIES)
    for number in range(40):
        index_file.put_key(f"T#{number % 7}", number, 100_000 + number * 1000)
    assert index_file.cut_back(100_000 + kept * 1000) is (kept > 0)
    if kept:
        again = IndexFile(str(tmp_path / "1"), SLOTS, ENTRIES)
        again.load()
        assert again.index_header.index_count == kept + 1
        for word in range(7):
            assert select(again, f"T#{word}") == [number for number in range(kept - 1, -1, -1) if number % 7 == word]
        fresh = IndexFile(str(tmp_path / "2"), SLOTS, ENTRIES)
        for number in range(kept):
            fresh.put_key(f"T#{number % 7}", number, 100_000 + number * 1000)
        size = 40 + 4 * SLOTS + 20 * (kept + 1)
        assert again._buffer[:size] == fresh._buffer[:size]


# The service.

def test_slots_of_uncounted_entries_are_repaired(index_file):
    keys = [f"T#{number}" for number in range(30)]
    for number, key in enumerate(keys):
        assert index_file.put_key(key, number, 1000)
    header = bytes(index_file._buffer[:layout.INDEX_HEADER_SIZE])
    for _ in range(2):
        assert index_file.put_keys(["T#new", "T#newer", "T#0", "T#1"], 30, 1000) == 4
    # A crash came before the count was written.
    index_file._buffer[:layout.INDEX_HEADER_SIZE] = header
    # One slot is damaged too.
    layout.SLOT.pack_into(index_file._buffer, layout.INDEX_HEADER_SIZE, ENTRIES + 5)
    index_file.load()
    index_file.mend_slots()
    damaged = [key for key in keys if layout.index_key_hash_method(key) % SLOTS == 0]
    assert all(select(index_file, key) == [number] for number, key in enumerate(keys) if key not in damaged)
    assert all(select(index_file, key) == [] for key in damaged)
    assert index_file.put_key("T#0", 31, 1000) and select(index_file, "T#0")[0] == 31


def query(store, key, topic="T", max_num=64, begin=0, end=EVER):
    result = store.query_message(topic, key, max_num, begin, end)
    try:
        return [store.look_message_by_offset(select.start_offset).body for select in result.message_maped_list]
    finally:
        result.release()


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        yield opened


def test_messages_are_found_by_unique_key_and_each_word_of_their_keys(store):
    put(store, message(body=b"1", UNIQ_KEY="u1", KEYS="a b"), message(body=b"2", UNIQ_KEY="u2", KEYS="  b  c "),
        message("other", body=b"3", KEYS="a"))
    wait_dispatched(store)
    assert query(store, "u1") == [b"1"]
    assert query(store, "b") == [b"1", b"2"]
    assert query(store, "c") == [b"2"]
    assert query(store, "a", "other") == [b"3"]
    assert query(store, "u1", "other") == query(store, "") == query(store, "a b") == []


def test_answer_contains_the_last_indexed_position(store):
    results = put(store, message(KEYS="a"), message(KEYS="b"))
    wait_dispatched(store)
    result = store.query_message("T", "a", 32, 0, EVER)
    assert result.index_last_update_phyoffset == results[1].wrote_offset
    assert result.index_last_update_timestamp == results[1].store_timestamp
    assert result.buffer_total_size == results[0].wrote_bytes
    result.release()


def test_number_of_answers_is_limited(store):
    put(store, *(message(KEYS="k", body=b"%d" % number) for number in range(100)))
    wait_dispatched(store)
    assert len(query(store, "k", max_num=10)) == 10
    assert len(query(store, "k", max_num=1000)) == store.message_store_config.maxMsgsNumBatch == 64
    assert query(store, "k", max_num=2) == [b"98", b"99"]


@pytest.mark.parametrize("flag, found", [(sys_flags.TRANSACTION_PREPARED_TYPE, 1),
                                         (sys_flags.TRANSACTION_COMMIT_TYPE, 1),
                                         (sys_flags.TRANSACTION_ROLLBACK_TYPE, 0)])
def test_rolled_back_messages_are_not_indexed(store, flag, found):
    msg = message(KEYS="k")
    msg.sys_flag = flag
    put(store, msg)
    wait_dispatched(store)
    assert len(query(store, "k")) == found


def test_messages_without_keys_create_no_file(store, tmp_path):
    put(store, message(), message(TAGS="a"))
    wait_dispatched(store)
    assert not (tmp_path / "index").exists()


def test_index_can_be_switched_off(tmp_path):
    with open_store(tmp_path, messageIndexEnable=False) as store:
        put(store, message(KEYS="k"))
        wait_dispatched(store)
        assert query(store, "k") == []


def test_full_files_are_followed_by_new_ones_and_all_are_searched(store, tmp_path):
    put(store, *(message(KEYS=f"k{number % 5}", UNIQ_KEY=f"u{number}", body=b"%d" % number) for number in range(350)))
    wait_dispatched(store)
    assert len(os.listdir(tmp_path / "index")) == 4
    assert all(query(store, f"u{number}") == [b"%d" % number] for number in (0, 98, 99, 100, 250, 349))
    assert len(query(store, "k3")) == 64
    # This waits for the flushes.
    store.index_service.shutdown()
    assert store.store_checkpoint.index_msg_timestamp > 0


def test_old_index_files_are_deleted_with_the_log(store, tmp_path):
    results = put(store, *(message(UNIQ_KEY=f"u{number}") for number in range(450)))
    wait_dispatched(store)
    assert len(os.listdir(tmp_path / "index")) == 3
    # This waits for the flushes, which hold the files.
    store.index_service.shutdown()
    store.index_service.delete_expired_file(results[300].wrote_offset)
    assert len(os.listdir(tmp_path / "index")) == 2
    store.index_service.delete_expired_file(1 << 40)
    assert len(os.listdir(tmp_path / "index")) == 1


def test_foreign_file_in_the_folder_is_left_alone(tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes.txt").write_text("x")
    with open_store(tmp_path) as store:
        put(store, message(KEYS="k"))
        wait_dispatched(store)
        assert query(store, "k")


def test_crash_keeps_every_key(tmp_path):
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    put(store, *(message(UNIQ_KEY=f"u{number}", KEYS="k") for number in range(70)))
    wait_dispatched(store)
    store.flush_consume_queue_service.do_flush(3)
    put(store, *(message(UNIQ_KEY=f"u{number}", KEYS="k") for number in range(70, 130)))
    wait_dispatched(store)
    crash(store)
    with open_store(tmp_path) as store:
        assert all(len(query(store, f"u{number}")) == 1 for number in range(130))


@pytest.mark.parametrize("ending", [None, crash])
@pytest.mark.parametrize("kept", [0, 3])
def test_messages_at_the_offsets_of_lost_ones_are_indexed(tmp_path, ending, kept):
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    offsets = [result.wrote_offset for result in put(store, *(message(KEYS=f"old{number}") for number in range(8)))]
    wait_dispatched(store)
    # The index is on the disk, the log is not.
    store.flush_consume_queue_service.do_flush(3)
    (ending or type(store).shutdown)(store)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(offsets[kept])
        file.write(bytes(offsets[-1] + 1000 - offsets[kept]))
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() == offsets[kept]
        put(store, *(message(KEYS=f"new{number}") for number in range(3)))
        wait_dispatched(store)
        assert [len(query(store, f"new{number}")) for number in range(3)] == [1] * 3
        assert [len(query(store, f"old{number}")) for number in range(8)] == [1] * kept + [0] * (8 - kept)


def test_index_of_a_missing_log_is_discarded(tmp_path):
    with open_store(tmp_path) as store:
        put(store, *(message(KEYS="old") for _ in range(5)))
        wait_dispatched(store)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    with open_store(tmp_path) as store:
        put(store, message(KEYS="new"))
        wait_dispatched(store)
        assert len(query(store, "new")) == 1 and not query(store, "old")


def test_record_dispatched_twice_is_indexed_once(store):
    put(store, message(KEYS="k"))
    wait_dispatched(store)
    for request in store.commit_log.walk_records(0, store.get_max_phy_offset()):
        store.record_dispatcher.do_dispatch(request)
    assert len(query(store, "k")) == 1


@pytest.mark.parametrize("step_ms", [0, -60_000])
def test_names_keep_the_order_of_the_files_even_when_the_clock_is_set_back(tmp_path, monkeypatch, step_ms):
    times = iter(range(1_700_000_000_000, 1_600_000_000_000, step_ms or -1))
    monkeypatch.setattr(index_service, "current_time_millis", lambda: next(times) if step_ms else 1_700_000_000_000)
    for begin, ending in ((0, crash), (350, None)):
        store = new_store(tmp_path)
        assert store.load()
        store.start()
        try:
            put(store, *(message(UNIQ_KEY=f"u{number}") for number in range(begin, begin + 350)))
            wait_dispatched(store)
            files = [each.file_name for each in store.index_service.index_file_list]
            assert files == sorted(set(files)) and len(files) > 1
            assert all(len(query(store, f"u{number}")) == 1 for number in range(begin + 350))
        finally:
            (ending or type(store).shutdown)(store)


def test_file_without_entries_is_removed_after_a_crash(tmp_path):
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    put(store, *(message(UNIQ_KEY=f"u{number}") for number in range(199)))
    wait_dispatched(store)
    crash(store)
    empty = tmp_path / "index" / "99991231235959999"
    empty.write_bytes(b"")
    with open_store(tmp_path) as store:
        assert not empty.exists()
        assert all(len(query(store, f"u{number}")) == 1 for number in range(199))


# Slots and entries of index files, determined from the files, for all sizes.


def shape_index_file(path, slots, entries, keys, seed=0, start=0):
    """Write a file as brokers do, with `keys` keys."""
    rng = random.Random(seed)
    data = b"".join(KEY.pack(start + 100 * number, 1_600_000_000_000 + number, rng.randrange(1 << 31), number)
                    for number in range(keys))
    file = bytearray(file_size(slots, entries))
    done, _ = bulk.put_keys(file, slots, entries, IndexCounters(0, 0, 0, 0, 0, 1), data)
    assert done == keys
    path.write_bytes(file)
    return path


@settings(max_examples=60, deadline=None)
@given(slots=st.integers(1, 400), entries=st.integers(2, 900), seed=st.integers(0, 99), part=st.floats(0.01, 1),
       start=st.sampled_from([0, 1 << 40]))
def test_every_shape_is_detected(tmp_path_factory, slots, entries, seed, part, start):
    keys = max(1, int((entries - 1) * part))
    path = shape_index_file(tmp_path_factory.mktemp("index") / "file", slots, entries, keys, seed, start)
    with open(path, "rb") as file:
        assert shape_of(file) == (slots, entries)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=600), cut=st.integers(0, 600))
def test_shape_of_any_bytes_is_unknown_or_matches_their_size(tmp_path_factory, data, cut):
    path = tmp_path_factory.mktemp("index") / "file"
    path.write_bytes(data + bytes(cut))
    with open(path, "rb") as file:
        found = shape_of(file)
    assert found is None or file_size(*found) == len(data) + cut


def test_a_damaged_entry_contradicts_every_shape(tmp_path):
    path = shape_index_file(tmp_path / "file", 100, 400, 50)
    data = bytearray(path.read_bytes())
    data[40 + 4 * 100 + 20 * 3] |= 0x80  # a hash below 0
    path.write_bytes(data)
    with open(path, "rb") as file:
        assert shape_of(file) is None


@pytest.mark.parametrize("slots, entries", [(50, 200), (10_000, 40_000)])
def test_shape_of_a_brokers_store_is_detected(tmp_path, slots, entries):
    root = tmp_path / "store"
    with support.open_store(root, maxHashSlotNum=slots, maxIndexNum=entries) as store:
        assert index_shape(str(root)) is None  # no entry yet
        for number in range(20):
            support.put(store, support.message("T", KEYS=f"k{number}"))
        support.wait_dispatched(store)
    assert index_shape(str(root)) == (slots, entries)
    assert shape_of(io.FileIO(next((root / "index").iterdir()))) == (slots, entries)
    assert index_shape(str(tmp_path)) is None
