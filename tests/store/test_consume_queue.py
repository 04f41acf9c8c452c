"""Consume queues: units, blanks before the first, gaps, truncation, times."""
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store import consume_queue_layout as layout
from rmqha.store.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from rmqha.store.consume_queue_layout import CQ_UNIT, PRE_BLANK_UNIT, count_valid_units, first_unit_at, pack_unit
from rmqha.store.mapped_file import MappedFile
from rmqha.store.store_marks import RecoveryBase
from tests.store.support import bodies, message, open_store, put, wait_dispatched
from tests.support.tiers import drawn


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        yield opened


def fill(queue, count, start=0, first_offset=0):
    for index in range(start, start + count):
        assert queue.put_message_position_info(first_offset + index * 100, 100, index, index)


def test_units_lie_where_their_index_says(store):
    queue = store.find_consume_queue("T", 0)
    fill(queue, 120)
    assert (queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()) == (0, 120)
    assert queue.get_unit(77) == (7700, 100, 77)
    assert queue.get_unit(120) is None and queue.get_unit(-1) is None
    assert queue.roll_next_file(77) == 100
    assert queue.get_last_offset() == 12000
    assert len(queue.mapped_file_queue.mapped_files) == 3
    assert queue.get_message_total_in_queue() == 120


def test_first_unit_in_the_middle_is_preceded_by_blanks(store):
    queue = store.find_consume_queue("T", 0)
    assert queue.put_message_position_info(5000, 100, 9, 70)
    assert (queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()) == (70, 71)
    mapped_file = queue.mapped_file_queue.mapped_files[0]
    assert mapped_file.file_from_offset == 1000
    assert bytes(mapped_file.slice_byte_buffer()[:420]) == PRE_BLANK_UNIT * 20 + pack_unit(5000, 100, 9)
    assert queue.get_index_buffer(69) is None


def test_unit_that_is_there_is_not_added_again(store):
    queue = store.find_consume_queue("T", 0)
    fill(queue, 10)
    fill(queue, 10)
    assert queue.get_max_offset_in_queue() == 10
    assert queue.put_message_position_info(99_999, 100, 0, 5)
    assert queue.get_max_offset_in_queue() == 10


def test_gap_is_filled_from_the_log_and_never_shifts_an_index(store):
    put(store, *(message("T", 0, b"%d" % index) for index in range(6)))
    wait_dispatched(store)
    queue = store.find_consume_queue("T", 0)
    units = [queue.get_unit(index) for index in range(6)]
    mapped_file = queue.mapped_file_queue.mapped_files[0]
    mapped_file.set_positions(40)  # units 2 to 5 are lost
    queue.max_physic_offset = units[1][0] + units[1][1]
    assert queue.put_message_position_info(*units[5], 5)
    assert [queue.get_unit(index) for index in range(6)] == units
    assert bodies(store) == [b"%d" % index for index in range(6)]


def test_gap_without_records_is_filled_with_blanks(store):
    queue = store.find_consume_queue("T", 0)
    fill(queue, 3)
    assert queue.put_message_position_info(900, 100, 9, 9)
    assert queue.get_unit(9) == (900, 100, 9)
    assert queue.get_unit(5)[1] == 0x7FFFFFFF


@pytest.mark.parametrize("phy_offset, kept", [(0, 0), (1, 1), (5000, 50), (5001, 51), (9900, 99), (12000, 120)])
def test_truncation_drops_units_at_and_behind_the_end_of_the_log(store, phy_offset, kept):
    queue = store.find_consume_queue("T", 0)
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
    queue = store.find_consume_queue("T", 0)
    fill(queue, 60)
    if min_phy == 4950:
        queue.delete_expired_file(min_phy)
    else:
        queue.correct_min_offset(min_phy)
    assert queue.get_min_offset_in_queue() == expected


@pytest.mark.parametrize("seed", range(20))
def test_minimum_that_is_known_is_the_one_that_is_found(store, seed):
    pick, queue, begin = random.Random(seed), store.find_consume_queue("T", 0), 0
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
def test_log_that_begins_later_is_no_reason_to_map_an_idle_queue(store, begin, monkeypatch):
    queue = store.find_consume_queue("T", 0)
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
    queue = store.find_consume_queue("T", 0)
    fill(queue, 120)
    assert queue.delete_expired_file(4900) == 0
    assert queue.delete_expired_file(4901) == 1
    assert queue.mapped_file_queue.get_min_offset() == 1000
    assert queue.get_min_offset_in_queue() == 50
    assert queue.delete_expired_file(10**9) == 1


def test_queue_that_ends_in_blanks_takes_its_first_message_after_a_crash(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message("other"))
        queue = store.find_consume_queue("T", 0)
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
def test_index_is_found_by_store_time_whatever_the_files_are_dated(store, monkeypatch, modified):
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
        assert store.find_consume_queue(topic, 0) is None
        assert store.get_max_offset_in_queue(topic, 0) == 0


# The layout.

@given(st.lists(st.tuples(st.integers(-3, 5), st.sampled_from([-1, 0, 1, 255, 256, 65536, 1 << 24, 2**31 - 1])),
                max_size=30))
def test_valid_units_are_counted_like_one_by_one(units):
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
    """`sure` units before `limit`, others behind, of which only sectors are there that `is_there` says."""
    data = bytearray(b"".join(pack_unit(limit + index * 100, 100, 0) for index in range(-sure, unsure)))
    for sector in range(sure * 20 // 512 * 512, len(data), 512):
        if not is_there(sector):
            begin, end = max(sector, sure * 20), min(sector + 512, len(data))
            data[begin:end] = bytes(end - begin)
    return bytes(data) + bytes(512)


def _assert_sure(data: bytes, sure: int, limit: int) -> None:
    counted = layout.count_sure_units(data, limit)
    # one that seems to point before the limit is next to them, and is looked at by itself; or nothing is believed
    torn = sure * 20 % 512 > 492 and counted == sure + 1
    assert counted == sure or torn or counted == 0


@given(st.integers(0, 300), st.integers(0, 300), st.randoms(use_true_random=False))
def test_units_that_are_sure_are_counted_whatever_is_missing_behind_them(sure, unsure, rng):
    """Of what was not forced to the disk any sector may be missing, also the one with a part of a unit."""
    _assert_sure(_lacking(sure, unsure, 1 << 33, lambda _sector: rng.random() < 0.5), sure, 1 << 33)


def test_a_unit_behind_a_missing_one_is_not_taken_for_a_sure_one():
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
def test_first_unit_at_or_behind_an_offset(offsets, wanted):
    data = b"".join(pack_unit(offset, 1, 0) for offset in offsets)
    expected = next((index for index, offset in enumerate(offsets) if offset >= wanted), len(offsets))
    assert first_unit_at(data, len(offsets), wanted) == expected


def test_unit_is_20_bytes_big_endian():
    assert CQ_UNIT.pack(1, 2, -3).hex() == "0000000000000001" "00000002" "fffffffffffffffd"
    assert layout.is_ext_addr(-(1 << 31) - 1) and not layout.is_ext_addr(-(1 << 31))


# The extension.

def test_extension_units_come_back_by_address(tmp_path):
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
def test_extension_reader_survives_any_bytes(data):
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
