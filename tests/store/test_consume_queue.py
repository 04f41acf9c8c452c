"""Consume queues: units, blanks, gaps, truncation, times, and unmapping of idle files."""
import errno
import mmap
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import process
from rmqha.store import consume_queue_layout as layout
from rmqha.store import mapped_file as mapped_files
from rmqha.store.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from rmqha.store.consume_queue_layout import (
    CQ_STORE_UNIT_SIZE,
    CQ_UNIT,
    PRE_BLANK_UNIT,
    count_blank_units,
    count_valid_units,
    filled_unit_before,
    first_unit_at,
    pack_unit,
)
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MapKeeper, MappedFileQueue
from rmqha.store.store_marks import RecoveryBase
from tests.store.support import bodies, crash, message, new_store, open_store, put, wait_dispatched
from tests.store.test_message_reader import TagFilter, get
from tests.support.tiers import drawn

# Consume queues: units, blanks before the first, gaps, truncation, times.


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        yield opened


def fill(queue, count, start=0, first_offset=0):
    for index in range(start, start + count):
        assert queue.put_message_position_info(first_offset + index * 100, 100, index, index)


def test_units_are_stored_at_their_index(store):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 120)
    assert (queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()) == (0, 120)
    assert queue.get_unit(77) == (7700, 100, 77)
    assert queue.get_unit(120) is None and queue.get_unit(-1) is None
    assert queue.roll_next_file(77) == 100
    assert queue.get_last_offset() == 12000
    assert len(queue.mapped_file_queue.mapped_files) == 3
    assert queue.get_message_total_in_queue() == 120


def test_first_unit_in_the_middle_is_preceded_by_blanks(store):
    queue = store.consume_queue_table.find_queue("T", 0)
    assert queue.put_message_position_info(5000, 100, 9, 70)
    assert (queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()) == (70, 71)
    mapped_file = queue.mapped_file_queue.mapped_files[0]
    assert mapped_file.file_from_offset == 1000
    assert bytes(mapped_file.slice_byte_buffer()[:420]) == PRE_BLANK_UNIT * 20 + pack_unit(5000, 100, 9)
    assert queue.get_index_buffer(69) is None


def test_existing_unit_is_not_added_again(store):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 10)
    fill(queue, 10)
    assert queue.get_max_offset_in_queue() == 10
    assert queue.put_message_position_info(99_999, 100, 0, 5)
    assert queue.get_max_offset_in_queue() == 10


def test_gap_is_filled_from_the_log_and_never_shifts_an_index(store):
    put(store, *(message("T", 0, b"%d" % index) for index in range(6)))
    wait_dispatched(store)
    queue = store.consume_queue_table.find_queue("T", 0)
    units = [queue.get_unit(index) for index in range(6)]
    mapped_file = queue.mapped_file_queue.mapped_files[0]
    mapped_file.set_positions(40)  # units 2 to 5 are lost
    queue.max_physic_offset = units[1][0] + units[1][1]
    assert queue.put_message_position_info(*units[5], 5)
    assert [queue.get_unit(index) for index in range(6)] == units
    assert bodies(store) == [b"%d" % index for index in range(6)]


def test_gap_without_records_is_filled_with_blanks(store):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 3)
    assert queue.put_message_position_info(900, 100, 9, 9)
    assert queue.get_unit(9) == (900, 100, 9)
    assert queue.get_unit(5)[1] == 0x7FFFFFFF


@pytest.mark.parametrize("phy_offset, kept", [(0, 0), (1, 1), (5000, 50), (5001, 51), (9900, 99), (12000, 120)])
def test_truncation_drops_units_at_and_after_the_end_of_the_log(store, phy_offset, kept):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 120)
    queue.truncate_dirty_logic_files(phy_offset)
    assert queue.get_max_offset_in_queue() == kept
    assert queue.max_physic_offset == (kept * 100 if kept else phy_offset)
    for mapped_file in queue.mapped_file_queue.mapped_files:
        assert not any(mapped_file.slice_byte_buffer()[mapped_file.wrote_position:])
    fill(queue, 5, kept)
    assert queue.get_max_offset_in_queue() == kept + 5


@pytest.mark.parametrize("min_phy, expected", [(0, 0), (1, 1), (4000, 40), (4950, 50), (100_000, 0)])
def test_minimum_is_the_first_unit_in_the_log(store, min_phy, expected):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 60)
    if min_phy == 4950:
        queue.delete_expired_file(min_phy)
    else:
        queue.correct_min_offset(min_phy)
    assert queue.get_min_offset_in_queue() == expected


@pytest.mark.parametrize("seed", range(20))
def test_cached_minimum_equals_the_searched_one(store, seed):
    pick, queue, begin = random.Random(seed), store.consume_queue_table.find_queue("T", 0), 0
    fill(queue, pick.randrange(1, 60))
    for _ in range(60):
        if pick.random() < 0.3:
            fill(queue, pick.randrange(1, 20), queue.get_max_offset_in_queue())
        begin += pick.choice((0, 0, 1, 99, 100, 1000))
        queue.delete_expired_file(begin)
        known, queue._min_is_of = queue.min_logic_offset, None
        queue.correct_min_offset(begin)
        assert queue.min_logic_offset == known


@pytest.mark.parametrize("begin", [1, 1950, 99_999])
def test_deleting_log_files_does_not_map_an_idle_queue(store, begin, monkeypatch):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 30)
    queue.delete_expired_file(begin)
    with monkeypatch.context() as unmapped:
        unmapped.setattr(MappedFile, "select_mapped_buffer", None)
        for step in (0, 1, 50):
            queue.delete_expired_file(begin + step)
        expected = queue.get_min_offset_in_queue()
    queue.delete_expired_file(begin + 200)
    assert queue.get_min_offset_in_queue() == expected + (0 if begin == 99_999 else 2)


def test_files_that_point_below_the_log_are_deleted(store):
    queue = store.consume_queue_table.find_queue("T", 0)
    fill(queue, 120)
    assert queue.delete_expired_file(4900) == 0
    assert queue.delete_expired_file(4901) == 1
    assert queue.mapped_file_queue.get_min_offset() == 1000
    assert queue.get_min_offset_in_queue() == 50
    assert queue.delete_expired_file(10**9) == 1


def test_queue_that_ends_in_blanks_accepts_its_first_message_after_a_crash(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message("other"))
        queue = store.consume_queue_table.find_queue("T", 0)
        queue.mapped_file_queue.get_last_mapped_file(0).append_bytes(PRE_BLANK_UNIT * 5)
    with open_store(tmp_path) as store:
        queue = store.get_consume_queue("T", 0)
        assert queue.max_physic_offset == -1
        assert queue.put_message_position_info(500, 100, 0, 5)
        assert queue.get_unit(5) == (500, 100, 0)


@pytest.mark.parametrize("timestamp, expected", [(0, 0), (1000, 0), (1009, 1), (1010, 1), (1014, 1), (1016, 2),
                                                 (1290, 29), (5000, 29)])
def test_index_is_found_by_store_time(store, monkeypatch, timestamp, expected):
    now = iter(range(1000, 1300, 10))
    current = [0]
    monkeypatch.setattr("rmqha.store.commit_log.current_time_millis", lambda: current[0])
    for _ in range(30):
        current[0] = next(now)
        put(store, message())
    wait_dispatched(store)
    assert store.get_offset_in_queue_by_time("T", 0, timestamp) == expected


@pytest.mark.parametrize("modified", [0, 1.07, 10**6], ids=["long ago", "in between", "when copied"])
def test_index_is_found_by_store_time_for_any_modification_times(store, monkeypatch, modified):
    current = [1000]
    monkeypatch.setattr("rmqha.store.commit_log.current_time_millis", lambda: current[0])
    for current[0] in range(1000, 2200, 10):
        put(store, message())
    wait_dispatched(store)
    files = store.get_consume_queue("T", 0).mapped_file_queue.mapped_files
    assert len(files) == 3
    for mapped_file in files:
        os.utime(mapped_file.file_name, (modified, modified))
    found = [store.get_offset_in_queue_by_time("T", 0, time) for time in range(1000, 2200, 10)]
    assert found == list(range(120))
    assert store.get_offset_in_queue_by_time("T", 0, 900) == 0
    assert store.get_offset_in_queue_by_time("T", 0, 5000) == 119


def test_unsafe_topic_has_no_queue(store):
    for topic in ("", ".", "..", "a/b", "../x", "a\0b"):
        assert store.consume_queue_table.find_queue(topic, 0) is None
        assert store.get_max_offset_in_queue(topic, 0) == 0


# The layout.

@given(st.lists(st.tuples(st.integers(-3, 5), st.sampled_from([-1, 0, 1, 255, 256, 65536, 1 << 24, 2**31 - 1])),
                max_size=30))
def test_valid_units_are_counted_as_one_by_one(units):
    data = b"".join(pack_unit(offset, size, 7) for offset, size in units)
    expected = next((index for index, (offset, size) in enumerate(units) if offset < 0 or size <= 0), len(units))
    assert count_valid_units(data) == expected


def test_valid_units_are_counted_across_blocks(monkeypatch):
    monkeypatch.setattr(layout, "_COUNTED_AT_ONCE", 7)
    rng = random.Random(1)
    for _ in range(200):
        count, bad = rng.randrange(30), rng.randrange(30)
        units = [pack_unit(index, 9, 0) for index in range(count)]
        if bad < count:
            units[bad] = rng.choice((pack_unit(-1, 9, 0), pack_unit(0, 0, 0), bytes(20)))
        assert count_valid_units(b"".join(units)) == min(bad, count)


def _lacking(sure: int, unsure: int, limit: int, is_there) -> bytes:
    """Make `sure` units before `limit` and others after it, of which only the sectors exist that `is_there` selects."""
    data = bytearray(b"".join(pack_unit(limit + index * 100, 100, 0) for index in range(-sure, unsure)))
    for sector in range(sure * 20 // 512 * 512, len(data), 512):
        if not is_there(sector):
            begin, end = max(sector, sure * 20), min(sector + 512, len(data))
            data[begin:end] = bytes(end - begin)
    return bytes(data) + bytes(512)


def _assert_sure(data: bytes, sure: int, limit: int) -> None:
    counted = layout.count_sure_units(data, limit)
    # A torn unit next to them may seem to point before the limit, and is checked separately. Counting 0 units is
    # also allowed: then none of them is trusted.
    torn = sure * 20 % 512 > 492 and counted == sure + 1
    assert counted == sure or torn or counted == 0


@given(st.integers(0, 300), st.integers(0, 300), st.randoms(use_true_random=False))
def test_sure_units_are_counted_whatever_is_missing_after_them(sure, unsure, rng):
    """Any sector that was not forced to the disk may be missing, also one that holds part of a unit."""
    _assert_sure(_lacking(sure, unsure, 1 << 33, lambda _sector: rng.random() < 0.5), sure, 1 << 33)


def test_a_unit_after_a_missing_one_does_not_count_as_sure():
    for sure in range(70):
        units = [pack_unit(index, 1, 0) for index in range(sure)] + [bytes(20)] * (200 - sure)
        for lacks_its_beginning in range(sure + 1, 200):
            changed = [*units]
            changed[lacks_its_beginning] = pack_unit(5, 1, 0)
            assert layout.count_sure_units(b"".join(changed), 1000) in (sure, 0)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 63, 64, 65, 999, 1000])
@pytest.mark.parametrize("blanks", [0, 1, 7])
def test_end_of_units_is_found_by_bisection(count, blanks):
    blanks = min(blanks, count)
    units = PRE_BLANK_UNIT * blanks + b"".join(pack_unit(5000 + index, 1, 0) for index in range(count - blanks))
    assert layout.count_sure_units(units.ljust(20_000, b"\0"), 1 << 63) == count


@given(st.lists(st.integers(0, 100), max_size=40).map(sorted), st.integers(0, 101))
def test_first_unit_at_or_after_an_offset_is_found(offsets, wanted):
    data = b"".join(pack_unit(offset, 1, 0) for offset in offsets)
    expected = next((index for index, offset in enumerate(offsets) if offset >= wanted), len(offsets))
    assert first_unit_at(data, len(offsets), wanted) == expected


def test_unit_is_20_bytes_big_endian():
    assert CQ_UNIT.pack(1, 2, -3).hex() == "0000000000000001" "00000002" "fffffffffffffffd"
    assert layout.is_ext_addr(-(1 << 31) - 1) and not layout.is_ext_addr(-(1 << 31))


# The extension.

def test_extension_units_are_read_by_address(tmp_path):
    ext = ConsumeQueueExt("T", 0, str(tmp_path), 100)
    units = [CqExtUnit(index, 1000 + index, bytes([index] * (index % 3)) or None) for index in range(10)]
    addresses = [ext.put(unit) for unit in units]
    assert all(ext.is_ext_addr(address) for address in addresses)
    assert [ext.get(address) for address in addresses] == units
    assert ext.get(5) is None
    ext.mapped_file_queue.shutdown(0)
    again = ConsumeQueueExt("T", 0, str(tmp_path), 100)
    assert again.load()
    again.recover(RecoveryBase(0, 0, False, False, False, True))
    assert again.put(units[0]) == ext.decorate(ext.un_decorate(addresses[-1]) + units[-1].size)
    again.truncate_by_max_address(addresses[4])
    assert again.put(units[5]) == addresses[5]
    again.truncate_by_min_address(addresses[5])
    assert again.get(addresses[5]) == units[5]
    again.destroy()


@settings(max_examples=drawn(200))
@given(st.binary(max_size=60))
def test_extension_reader_handles_any_bytes(data):
    unit = CqExtUnit.read(data)
    assert unit is None or unit.size <= len(data)


def test_extended_queue_keeps_tags_and_bit_map(tmp_path):
    with open_store(tmp_path, enableConsumeQueueExt=True, mappedFileSizeConsumeQueueExt=1000) as store:
        put(store, message(TAGS="a"))
        wait_dispatched(store)
        queue = store.get_consume_queue("T", 0)
        address = queue.get_unit(0)[2]
        assert queue.is_ext_addr(address)
        assert queue.get_ext(address).tags_code == ord("a")
    with open_store(tmp_path, enableConsumeQueueExt=True, mappedFileSizeConsumeQueueExt=1000) as store:
        queue = store.get_consume_queue("T", 0)
        assert queue.get_ext(queue.get_unit(0)[2]).tags_code == ord("a")
        assert bodies(store) == [b"b" * 100]


# Units in a queue that point to no record: readers continue at the next unit that does.

UNITS = 60
ZEROS = bytes(CQ_STORE_UNIT_SIZE)


@pytest.fixture
def blanks_store(tmp_path):
    """Put 60 messages, which fill two queue files and several files of the log."""
    with open_store(tmp_path) as opened:
        put(opened, *(message(body=b"%03d" % index + b"x" * 500, TAGS="even" if index % 2 == 0 else "odd")
                      for index in range(UNITS)))
        wait_dispatched(opened)
        yield opened


def blank(store, *indexes: int, unit: bytes = PRE_BLANK_UNIT) -> None:
    """Overwrite units with blanks."""
    queue = store.get_consume_queue("T", 0)
    for index in indexes:
        at = index * CQ_STORE_UNIT_SIZE
        mapped_file = queue.mapped_file_queue.find_mapped_file_by_offset(at)
        at -= mapped_file.file_from_offset
        mapped_file.slice_byte_buffer()[at:at + CQ_STORE_UNIT_SIZE] = unit


def numbers(store, offset: int = 0) -> list[int]:
    """Return the messages that a consumer gets from `offset` on."""
    return [int(body[:3]) for body in bodies(store, offset=offset)]


@pytest.mark.parametrize("unit", [PRE_BLANK_UNIT, ZEROS], ids=["filler", "zeros"])
@pytest.mark.parametrize("blanks, offset, next_offset", [
    ([7], 7, 8), ([7, 8, 9], 7, 10), ([7, 8, 9], 8, 10), (range(45, 53), 46, 53), (range(55, 60), 57, 60), ([0], 0, 1)])
def test_pull_at_a_blank_unit_continues_at_the_next_filled_one(blanks_store, unit, blanks, offset, next_offset):
    blank(blanks_store, *blanks, unit=unit)
    assert get(blanks_store, offset) == ("MESSAGE_WAS_REMOVING", next_offset, 0)
    assert numbers(blanks_store) == [number for number in range(UNITS) if number not in blanks]


def test_pull_before_a_blank_unit_ends_there(blanks_store):
    blank(blanks_store, 7)
    assert get(blanks_store, 0) == ("FOUND", 7, 7)


def test_filter_skips_blank_units(blanks_store):
    blank(blanks_store, 1, 8, 9)
    found, offset = [], 0
    while offset < UNITS:
        result = blanks_store.get_message("g", "T", 0, offset, 32, TagFilter("odd"))
        offset = result.next_begin_offset
        found.append(result.message_count)
        result.release()
    assert sum(found) == 28


def test_search_by_time_uses_the_unit_before_a_blank_one(blanks_store):
    queue = blanks_store.get_consume_queue("T", 0)
    stored = [blanks_store.get_message_store_timestamp("T", 0, index) for index in range(UNITS)]
    blank(blanks_store, *range(20, 30))
    for index, timestamp in enumerate(stored[:50]):
        found = queue.get_offset_in_queue_by_time(timestamp)
        assert found not in range(20, 30)
        assert stored[found] == timestamp or index in range(20, 30) and stored[19] <= stored[found] <= stored[30]


def test_search_by_time_finds_the_only_message_among_blanks(blanks_store):
    blank(blanks_store, *(index for index in range(50) if index != 31))
    queue = blanks_store.get_consume_queue("T", 0)
    assert queue.get_offset_in_queue_by_time(blanks_store.get_message_store_timestamp("T", 0, 31)) == 31


def test_minimum_is_not_moved_past_messages_by_a_blank_unit(blanks_store):
    queue, files = blanks_store.get_consume_queue("T", 0), blanks_store.commit_log.mapped_file_queue.mapped_files
    assert len(files) > 2
    first = blanks_store.get_consume_queue("T", 0).get_unit(10)[0]
    blank(blanks_store, *range(12, 45))
    queue.correct_min_offset(first)
    assert queue.get_min_offset_in_queue() == 10


def test_file_whose_last_unit_is_blank_is_kept_while_it_has_messages(blanks_store):
    blank(blanks_store, 48, 49)
    queue = blanks_store.get_consume_queue("T", 0)
    assert queue.delete_expired_file(queue.get_unit(47)[0]) == 0
    assert queue.delete_expired_file(queue.get_unit(50)[0]) == 1


def test_message_ids_exclude_blank_units(blanks_store):
    blank(blanks_store, 3)
    assert sorted(blanks_store.get_message_ids("T", 0, 0, 6, ("127.0.0.1", 1)).values()) == [0, 1, 2, 4, 5, 6]


def test_truncation_includes_blank_units_at_the_end(blanks_store):
    queue = blanks_store.get_consume_queue("T", 0)
    cut = queue.get_unit(20)[0]
    blank(blanks_store, 18, 19)
    queue.truncate_dirty_logic_files(cut)
    assert queue.get_max_offset_in_queue() == 18


FILLED = [pack_unit(offset, 10, 0) for offset in range(0, 100_000, 10)]


@pytest.mark.parametrize("units, count", [([], 0), ([FILLED[1]], 0), ([PRE_BLANK_UNIT] * 5000 + [FILLED[1]], 5000),
                                          ([PRE_BLANK_UNIT, ZEROS, FILLED[0]], 2), ([PRE_BLANK_UNIT] * 9, 9)])
def test_blank_units_are_counted(units, count):
    assert count_blank_units(b"".join(units)) == count


@pytest.mark.parametrize("blanks", [0, 1, 3, 5000])
def test_filled_unit_before_any_number_of_blanks_is_found(blanks):
    units = b"".join([*FILLED[:7], *[PRE_BLANK_UNIT] * blanks])
    assert filled_unit_before(units, 6 + blanks) == 6
    assert filled_unit_before(units, 6 + blanks, 7) == -1


def test_bisection_finds_the_first_unit_among_blanks():
    units = [*FILLED[:200]]
    for index in [*range(5), *range(30, 60), *range(90, 110), 199]:
        units[index] = PRE_BLANK_UNIT if index % 2 else ZEROS
    data = b"".join(units)
    filled = [index for index, unit in enumerate(units) if unit not in (PRE_BLANK_UNIT, ZEROS)]
    for offset in range(0, 2010, 10):
        expected = next((index for index in filled if index * 10 >= offset), None)
        found = first_unit_at(data, 200, offset)
        assert found == expected or expected is None and found >= filled[-1] + 1


# Maps of consume queue files: created on access, unmapped when there are too many, and mapped again on access.

SIZE = 1 << 20


@pytest.fixture
def keeper():
    return MapKeeper(limit=2)


def make(folder, number: int, keeper: MapKeeper, **keys) -> MappedFile:
    return MappedFile(str(folder / f"{number:020d}"), SIZE, map_keeper=keeper, **keys)


def mapped(files) -> list[int]:
    """Return the indexes of the mapped files."""
    return [number for number, file in enumerate(files) if file.is_mapped]


def test_the_file_mapped_longest_is_unmapped_and_mapped_again_with_its_content(tmp_path, keeper):
    files = [make(tmp_path, number, keeper) for number in range(4)]
    assert mapped(files) == [2, 3] and len(keeper) == 2
    for number, file in enumerate(files):
        assert file.append_bytes(b"%d" % number)
    assert len(mapped(files)) == 2
    for number, file in enumerate(files):
        with file.select_mapped_buffer(0) as result:
            assert bytes(result.buffer) == b"%d" % number
        assert bytes(file.slice_byte_buffer()[:2]) == b"%d\0" % number
        assert (tmp_path / f"{number:020d}").read_bytes()[:1] == b"%d" % number
    assert len(mapped(files)) == 2


def test_a_file_in_use_has_a_second_chance(tmp_path, keeper):
    files = [make(tmp_path, number, keeper) for number in range(2)]
    files[0].append_bytes(b"x")
    files.append(make(tmp_path, 2, keeper))
    assert mapped(files) == [0, 2]
    files.append(make(tmp_path, 3, keeper))
    assert len(mapped(files)) == 2 and files[3].is_mapped


def test_a_readers_view_survives_unmapping_and_deletion_of_the_file(tmp_path, keeper):
    file = make(tmp_path, 0, keeper)
    file.append_bytes(b"hello")
    result = file.select_mapped_buffer(0)
    keeper.end_recovery()
    assert not file.is_mapped and len(keeper) == 0
    file.append_bytes(b"!")
    file.destroy(0)
    file.delete()
    assert bytes(result.buffer) == b"hello"
    result.release()
    assert file.is_cleanup_over
    with pytest.raises(OSError):
        file.slice_byte_buffer()


def test_bytes_written_before_unmapping_are_flushed(tmp_path, keeper):
    file = make(tmp_path, 0, keeper)
    file.append_bytes(b"hello")
    keeper.end_recovery()
    assert file.flush(0) == 5 and not file.is_mapped


def test_maps_and_descriptors_are_released(tmp_path, keeper):
    before = len(os.listdir("/proc/self/fd"))
    files = [make(tmp_path, number, keeper) for number in range(20)]
    assert len(os.listdir("/proc/self/fd")) <= before + keeper.limit
    for file in files:
        file.shutdown(0)
    assert len(os.listdir("/proc/self/fd")) == before and len(keeper) == 0


def test_a_loaded_file_is_not_opened_before_its_first_access(tmp_path, keeper):
    MappedFileQueue(str(tmp_path), SIZE, map_keeper=keeper).get_last_mapped_file(0).append_bytes(b"x")
    again = MappedFileQueue(str(tmp_path), SIZE, map_keeper=keeper)
    assert again.load() and mapped(again.mapped_files) == []
    assert again.mapped_files[0].slice_byte_buffer()[0] == ord("x") and mapped(again.mapped_files) == [0]


def test_a_file_truncated_by_another_process_is_an_error_without_sigbus(tmp_path, keeper):
    file = make(tmp_path, 0, keeper)
    file.append_bytes(b"x")
    keeper.end_recovery()
    os.truncate(file.file_name, 0)
    with pytest.raises(OSError, match="truncated the file"):
        file.select_mapped_buffer(0)
    assert file.ref_count == 1
    with pytest.raises(OSError):
        file.append_bytes(b"y")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_other_files_are_unmapped_when_descriptors_or_maps_run_out(tmp_path, keeper, monkeypatch, number):
    files = [make(tmp_path, index, keeper) for index in range(3)]
    assert mapped(files) == [1, 2]
    real = mmap.mmap

    def short(fd, length):
        if len(mapped(files)) > 1:
            raise OSError(number, os.strerror(number))
        return real(fd, length)

    monkeypatch.setattr(mapped_files.mmap, "mmap", short)
    assert files[0].append_bytes(b"x")
    assert mapped(files) == [0, 2]


def test_few_blocks_are_reserved_at_first_and_twice_as_many_each_time(tmp_path, keeper, monkeypatch):
    file, reserved, real = make(tmp_path, 0, keeper, allocation_unit=65536), [], os.posix_fallocate

    def reserve(fd, offset, length):
        reserved.append(offset + length)
        real(fd, offset, length)

    monkeypatch.setattr(mapped_files.os, "posix_fallocate", reserve)
    file.append_bytes(b"x")
    assert os.stat(file.file_name).st_blocks * 512 == 4096
    for _ in range(250):
        file.append_bytes(b"x" * 1000)
    assert reserved == [4096, 8192, 16384, 32768, 65536, 131072, 196608, 262144]


def test_limit_is_half_of_the_smaller_system_limit(monkeypatch, tmp_path):
    count = tmp_path / "max_map_count"
    monkeypatch.setattr(process, "MAX_MAP_COUNT_FILE", str(count))
    monkeypatch.setattr(process.resource, "getrlimit", lambda _which: (20_000, 20_000))
    count.write_text("65530\n")
    assert process.max_mapped_files() == 10_000
    count.write_text("1000\n")
    assert process.max_mapped_files() == 500
    count.unlink()
    unlimited = process.resource.RLIM_INFINITY
    monkeypatch.setattr(process.resource, "getrlimit", lambda _which: (unlimited, unlimited))
    assert process.max_mapped_files() == 65_530 // 2


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_store_with_more_queues_than_maps(tmp_path, is_killed):
    """Some queues are appended to, read, flushed and recovered while others need their maps."""
    queues, rounds = 20, 120  # three files per queue
    store = new_store(tmp_path)
    store.map_keeper.limit = 3
    assert store.load()
    store.start()
    for index in range(rounds):
        put(store, *(message(queue_id=queue, body=b"%d.%d" % (queue, index)) for queue in range(queues)))
    wait_dispatched(store)
    store.flush_consume_queue_service.do_flush(3)
    assert len(store.map_keeper) <= 3
    crash(store) if is_killed else store.shutdown()
    with open_store(tmp_path) as again:
        # No queue has been accessed yet.
        assert len(again.map_keeper) == 0
        again.map_keeper.limit = 3
        for queue in range(queues):
            assert bodies(again, queue_id=queue) == [b"%d.%d" % (queue, index) for index in range(rounds)]
        assert len(again.map_keeper) == 3
