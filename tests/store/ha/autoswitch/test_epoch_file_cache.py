"""Epochs, and their file as 5.1.4 writes it."""
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import config_manager
from rmqha.common.config_manager import CheckpointFileError
from rmqha.store.ha.autoswitch.epoch_file_cache import LONG_MAX, EpochEntry, EpochError, EpochFileCache

# Captured from 5.1.4: changeToMaster(1), 100 messages, changeToMaster(2).
JAVA_FILE = b"2\n901660701\n1-0\n2-10390\n"


def cache_of(*entries: tuple[int, int], path: str | None = None) -> EpochFileCache:
    """A cache with these (epoch, start offset)."""
    made = EpochFileCache(path)
    made.init_cache_from_entries(EpochEntry(*entry) for entry in entries)
    return made


def pairs(cache: EpochFileCache) -> list[tuple[int, int]]:
    """(epoch, start offset) of each entry."""
    return [entry[:2] for entry in cache.get_all_entries()]


def test_javas_file_is_read_and_written(tmp_path):
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(JAVA_FILE)
    cache = EpochFileCache(str(path))
    cache.init_cache_from_file()
    assert cache.get_all_entries() == (EpochEntry(1, 0, 10390), EpochEntry(2, 10390, LONG_MAX))
    path.unlink()
    cache.init_cache_from_entries(cache.get_all_entries())
    assert path.read_bytes() == JAVA_FILE


def test_each_change_is_in_the_file_and_the_one_before_in_the_copy(tmp_path):
    path = tmp_path / "epochs"
    cache = cache_of((1, 0), path=str(path))
    assert cache.append_entry(EpochEntry(2, 100))
    again = EpochFileCache(str(path))
    again.init_cache_from_file()
    assert pairs(again) == [(1, 0), (2, 100)]
    path.unlink()
    again.init_cache_from_file()
    assert pairs(again) == [(1, 0)]


def test_a_damaged_file_is_replaced_by_its_copy_and_two_damaged_ones_are_refused(tmp_path):
    path = tmp_path / "epochs"
    cache = cache_of((1, 0), path=str(path))
    cache.append_entry(EpochEntry(2, 100))
    path.write_bytes(path.read_bytes().replace(b"2-100", b"2-101"))
    again = EpochFileCache(str(path))
    again.init_cache_from_file()
    assert pairs(again) == [(1, 0)]
    (tmp_path / "epochs.bak").write_bytes(b"")
    with pytest.raises(CheckpointFileError, match="checksum.*epochs.bak: it ends before its third line"):
        again.init_cache_from_file()
    os.unlink(tmp_path / "epochs.bak")
    with pytest.raises(CheckpointFileError, match="checksum"):
        again.init_cache_from_file()


def test_a_file_whose_epochs_fall_is_refused_by_name(tmp_path):
    path = tmp_path / "epochs"
    path.write_text(config_manager.encode(["2-50", "1-100"]))
    with pytest.raises(EpochError, match="epochs: epoch 1 at 100 follows epoch 2 at 50"):
        EpochFileCache(str(path)).init_cache_from_file()


def test_no_entries_stay_no_entries(tmp_path):
    path = tmp_path / "epochs"
    cache = cache_of((1, 0), (2, 50), path=str(path))
    cache.truncate_suffix_by_offset(0)
    again = EpochFileCache(str(path))
    again.init_cache_from_file()
    assert again.entry_size == 0 and again.last_epoch() == -1 and again.last_entry() is None


def test_the_checksum_0_is_not_checked():
    assert config_manager.decode("1\n0\n7-7000\n") == ["7-7000"]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20)))
def test_entries_come_back(lines):
    assert config_manager.decode(config_manager.encode(lines)) == lines


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_entries_or_an_error(text):
    try:
        lines = config_manager.decode(text)
    except ValueError as error:
        assert str(error)
    else:
        assert int(text.split("\n")[0]) == len(lines)


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(0, 40), st.integers(0, 40))
def test_any_damage_to_the_file_is_noticed(tmp_path_factory, noise, start, length):
    path = tmp_path_factory.mktemp("epochs") / "epochs"
    whole = b"3\n2084911310\n1-0\n2-100\n4-5000\n"
    cache = cache_of((1, 0), (2, 100), (4, 5000), path=str(path))
    assert path.read_bytes().split(b"\n")[2:] == whole.split(b"\n")[2:]
    good = path.read_bytes()
    path.write_bytes(good[:start] + noise + good[start + length:])
    try:
        cache.init_cache_from_file()
    except (CheckpointFileError, EpochError) as error:
        assert str(path) in str(error)
    else:
        assert pairs(cache) == [(1, 0), (2, 100), (4, 5000)] or path.read_bytes().split(b"\n")[1].strip(b"0") == b""


def test_only_newer_epochs_are_added():
    cache = cache_of((1, 0), (3, 100))
    assert not cache.append_entry(EpochEntry(3, 200))
    assert not cache.append_entry(EpochEntry(2, 200))
    assert not cache.append_entry(EpochEntry(4, 99))
    assert cache.append_entry(EpochEntry(4, 100))
    assert cache.get_all_entries()[1:] == (EpochEntry(3, 100, 100), EpochEntry(4, 100, LONG_MAX))


def test_an_offset_belongs_to_the_last_epoch_that_begins_no_later():
    cache = cache_of((1, 10), (3, 100), (4, 100), (7, 150))
    found = [cache.find_epoch_entry_by_offset(offset) for offset in (9, 10, 99, 100, 149, 150, 1 << 40)]
    assert [entry and entry.epoch for entry in found] == [None, 1, 1, 4, 4, 7, 7]
    assert cache.get_entry(3).end_offset == 100 and cache.get_entry(2) is None


@pytest.mark.parametrize("local, local_end, other, other_end, point", [
    ([(1, 0)], 50, [(1, 0)], 80, 50),
    ([(1, 0)], 80, [(1, 0)], 50, 50),
    ([(1, 0), (2, 50)], 80, [(1, 0), (3, 60)], 90, 50),
    ([(1, 0), (2, 70)], 80, [(1, 0), (3, 60)], 90, 60),
    ([(1, 0), (2, 50), (4, 80)], 90, [(1, 0), (2, 50), (5, 70)], 99, 70),
    ([(1, 0), (2, 50)], 80, [(1, 0), (2, 60)], 90, 50),
    ([(1, 0)], 50, [(2, 0)], 80, -1),
    ([(2, 10)], 50, [(2, 20)], 80, -1),
    ([], 50, [(2, 20)], 80, -1),
])
def test_logs_are_the_same_up_to_the_end_of_the_newest_common_epoch(local, local_end, other, other_end, point):
    one, two = cache_of(*local), cache_of(*other)
    one.set_last_epoch_entry_end_offset(local_end)
    two.set_last_epoch_entry_end_offset(other_end)
    assert one.find_consistent_point(two) == two.find_consistent_point(one) == point


def test_epochs_are_cut_off_from_either_side():
    entries = (1, 0), (2, 50), (4, 100), (6, 100), (7, 150)
    cache = cache_of(*entries)
    cache.truncate_suffix_by_offset(100)
    assert pairs(cache) == [(1, 0), (2, 50)] and cache.last_entry().end_offset == LONG_MAX
    cache = cache_of(*entries)
    cache.truncate_prefix_by_offset(100)
    assert pairs(cache) == [(6, 100), (7, 150)]
    cache.truncate_prefix_by_offset(1 << 50)
    assert pairs(cache) == [(7, 150)]
