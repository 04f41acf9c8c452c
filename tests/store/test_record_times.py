"""When records were stored, found from any byte of a log."""
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.record_check import (
    first_store_timestamp,
    last_store_timestamp,
    newest_store_timestamp,
    store_timestamp_from,
)
from rmqha.tools.store_files.reading import scan_block
from tests.store.support import FILE_SIZE, message, open_store, put
from tests.support.tiers import drawn

MAGIC = struct.pack(">i", -626843481)


def log_of(store):
    """(bytes, records) of all files but the blanks."""
    records, parts, begin = [], [], 0
    while begin < store.get_max_phy_offset():
        with store.get_commit_log_data(begin) as result:
            parts.append(bytes(result.buffer[:result.size]))
        records += scan_block(parts[-1], begin).records
        begin += FILE_SIZE
    return b"".join(parts), records


def filled(store):
    for number in range(60):
        msg = message("T", 0, MAGIC * number * 4)  # bodies that look like beginnings
        if number % 3 == 0:
            msg.born_host = ("2001:db8::1", 40000)
        put(store, msg)
        store.clock = number
    return log_of(store)


def test_time_of_the_next_record_is_found_from_every_offset(tmp_path):
    with open_store(tmp_path) as store:
        data, records = filled(store)
        assert len(data) > 2 * FILE_SIZE
        for offset in range(0, len(data), 37):
            following = [record for record in records if record.offset >= offset]
            expected = following[0].store_timestamp if following else None
            assert store_timestamp_from(store, offset) == expected, offset
        assert newest_store_timestamp(store) == records[-1].store_timestamp


def test_empty_store_has_no_times(tmp_path):
    with open_store(tmp_path) as store:
        assert newest_store_timestamp(store) is None
        assert store_timestamp_from(store, 0) is None


def test_only_a_record_that_tells_its_own_place_counts(tmp_path):
    with open_store(tmp_path) as store:
        data, records = filled(store)
    first = data[:FILE_SIZE]
    assert first_store_timestamp(first, 0) == records[0].store_timestamp
    assert first_store_timestamp(first, 1) is None  # the same bytes at another place
    assert last_store_timestamp(first, 0) == [r for r in records if r.offset < FILE_SIZE][-1].store_timestamp


@settings(max_examples=drawn(200), deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 200), max_size=4), st.integers(0, 2**63 - 1))
def test_any_bytes_are_searched(data, places, offset):
    for place in places:
        data = data[:place] + MAGIC + data[place:]
    for search in (first_store_timestamp, last_store_timestamp):
        found = search(data, offset)
        assert found is None or MAGIC in data
