"""Slots and entries of index files, read from the files, for all sizes."""
import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.index.index_file import index_shape, shape_of
from rmqha.store.index.index_layout import file_size
from tests.store import support


def index_file(path, slots, entries, keys, seed=0, start=0):
    """A file as brokers write it, with `keys` keys."""
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
def test_any_shape_is_found(tmp_path_factory, slots, entries, seed, part, start):
    keys = max(1, int((entries - 1) * part))
    path = index_file(tmp_path_factory.mktemp("index") / "file", slots, entries, keys, seed, start)
    with open(path, "rb") as file:
        assert shape_of(file) == (slots, entries)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=600), cut=st.integers(0, 600))
def test_what_is_no_index_file_has_no_shape_or_one_of_its_size(tmp_path_factory, data, cut):
    path = tmp_path_factory.mktemp("index") / "file"
    path.write_bytes(data + bytes(cut))
    with open(path, "rb") as file:
        found = shape_of(file)
    assert found is None or file_size(*found) == len(data) + cut


def test_a_damaged_entry_contradicts(tmp_path):
    path = index_file(tmp_path / "file", 100, 400, 50)
    data = bytearray(path.read_bytes())
    data[40 + 4 * 100 + 20 * 3] |= 0x80  # a hash below 0
    path.write_bytes(data)
    with open(path, "rb") as file:
        assert shape_of(file) is None


@pytest.mark.parametrize("slots, entries", [(50, 200), (10_000, 40_000)])
def test_a_broker_s_own_store(tmp_path, slots, entries):
    root = tmp_path / "store"
    with support.open_store(root, maxHashSlotNum=slots, maxIndexNum=entries) as store:
        assert index_shape(str(root)) is None  # no entry yet
        for number in range(20):
            support.put(store, support.message("T", KEYS=f"k{number}"))
        support.wait_dispatched(store)
    assert index_shape(str(root)) == (slots, entries)
    assert shape_of(io.FileIO(next((root / "index").iterdir()))) == (slots, entries)
    assert index_shape(str(tmp_path)) is None
