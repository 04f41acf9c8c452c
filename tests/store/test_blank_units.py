"""Units that point at no record, in the midst of a queue: whoever reads goes on at the next one that does."""
import pytest

from rmqha.store.consume_queue_layout import (
    CQ_STORE_UNIT_SIZE,
    PRE_BLANK_UNIT,
    count_blank_units,
    filled_unit_before,
    first_unit_at,
    pack_unit,
)
from tests.store.support import bodies, message, open_store, put, wait_dispatched
from tests.store.test_get_message import TagFilter, get

UNITS = 60
ZEROS = bytes(CQ_STORE_UNIT_SIZE)


@pytest.fixture
def store(tmp_path):
    """60 messages in two queue files; the log has several files too."""
    with open_store(tmp_path) as opened:
        put(opened, *(message(body=b"%03d" % index + b"x" * 500, TAGS="even" if index % 2 == 0 else "odd")
                      for index in range(UNITS)))
        wait_dispatched(opened)
        yield opened


def blank(store, *indexes: int, unit: bytes = PRE_BLANK_UNIT) -> None:
    """Write blanks over units."""
    queue = store.get_consume_queue("T", 0)
    for index in indexes:
        at = index * CQ_STORE_UNIT_SIZE
        mapped_file = queue.mapped_file_queue.find_mapped_file_by_offset(at)
        at -= mapped_file.file_from_offset
        mapped_file.slice_byte_buffer()[at:at + CQ_STORE_UNIT_SIZE] = unit


def numbers(store, offset: int = 0) -> list[int]:
    """What a consumer gets that begins at `offset`."""
    return [int(body[:3]) for body in bodies(store, offset=offset)]


@pytest.mark.parametrize("unit", [PRE_BLANK_UNIT, ZEROS], ids=["filler", "zeros"])
@pytest.mark.parametrize("blanks, offset, next_offset", [
    ([7], 7, 8), ([7, 8, 9], 7, 10), ([7, 8, 9], 8, 10), (range(45, 53), 46, 53), (range(55, 60), 57, 60), ([0], 0, 1)])
def test_pull_at_a_blank_unit_goes_on_at_the_next_filled_one(store, unit, blanks, offset, next_offset):
    blank(store, *blanks, unit=unit)
    assert get(store, offset) == ("MESSAGE_WAS_REMOVING", next_offset, 0)
    assert numbers(store) == [number for number in range(UNITS) if number not in blanks]


def test_pull_in_front_of_a_blank_unit_ends_there(store):
    blank(store, 7)
    assert get(store, 0) == ("FOUND", 7, 7)


def test_filter_passes_over_blank_units(store):
    blank(store, 1, 8, 9)
    found, offset = [], 0
    while offset < UNITS:
        result = store.get_message("g", "T", 0, offset, 32, TagFilter("odd"))
        offset = result.next_begin_offset
        found.append(result.message_count)
        result.release()
    assert sum(found) == 28


def test_search_by_time_takes_the_unit_before_a_blank_one(store):
    queue = store.get_consume_queue("T", 0)
    stored = [store.get_message_store_timestamp("T", 0, index) for index in range(UNITS)]
    blank(store, *range(20, 30))
    for index, timestamp in enumerate(stored[:50]):
        found = queue.get_offset_in_queue_by_time(timestamp)
        assert found not in range(20, 30)
        assert stored[found] == timestamp or index in range(20, 30) and stored[19] <= stored[found] <= stored[30]


def test_offset_by_time_of_a_queue_with_blanks_everywhere_is_its_message(store):
    blank(store, *(index for index in range(50) if index != 31))
    queue = store.get_consume_queue("T", 0)
    assert queue.get_offset_in_queue_by_time(store.get_message_store_timestamp("T", 0, 31)) == 31


def test_minimum_is_not_moved_past_messages_by_a_blank_unit(store):
    queue, files = store.get_consume_queue("T", 0), store.commit_log.mapped_file_queue.mapped_files
    assert len(files) > 2
    first = store.get_consume_queue("T", 0).get_unit(10)[0]
    blank(store, *range(12, 45))
    queue.correct_min_offset(first)
    assert queue.get_min_offset_in_queue() == 10


def test_file_whose_last_unit_is_blank_is_kept_while_it_has_messages(store):
    blank(store, 48, 49)
    queue = store.get_consume_queue("T", 0)
    assert queue.delete_expired_file(queue.get_unit(47)[0]) == 0
    assert queue.delete_expired_file(queue.get_unit(50)[0]) == 1


def test_message_ids_leave_blank_units_out(store):
    blank(store, 3)
    assert sorted(store.get_message_ids("T", 0, 0, 6, ("127.0.0.1", 1)).values()) == [0, 1, 2, 4, 5, 6]


def test_cut_takes_blank_units_at_the_end_along(store):
    queue = store.get_consume_queue("T", 0)
    cut = queue.get_unit(20)[0]
    blank(store, 18, 19)
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
