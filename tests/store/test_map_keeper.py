"""Maps of consume queue files: made when they are touched, taken away when there are too many, back when touched."""
import errno
import mmap
import os

import pytest

from rmqha.common import process
from rmqha.store import mapped_file
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MapKeeper, MappedFileQueue
from tests.store.support import bodies, crash, message, new_store, open_store, put, wait_dispatched

SIZE = 1 << 20


@pytest.fixture
def keeper():
    return MapKeeper(limit=2)


def make(folder, number: int, keeper: MapKeeper, **keys) -> MappedFile:
    return MappedFile(str(folder / f"{number:020d}"), SIZE, map_keeper=keeper, **keys)


def mapped(files) -> list[int]:
    """Which of them have a map."""
    return [number for number, file in enumerate(files) if file.is_mapped]


def test_the_longest_mapped_file_loses_its_map_and_gets_it_again_with_what_was_written(tmp_path, keeper):
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


def test_a_reader_keeps_what_it_sees_when_the_map_goes_and_the_file_is_deleted(tmp_path, keeper):
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


def test_what_was_written_through_a_dropped_map_is_flushed(tmp_path, keeper):
    file = make(tmp_path, 0, keeper)
    file.append_bytes(b"hello")
    keeper.end_recovery()
    assert file.flush(0) == 5 and not file.is_mapped


def test_maps_and_descriptors_go(tmp_path, keeper):
    before = len(os.listdir("/proc/self/fd"))
    files = [make(tmp_path, number, keeper) for number in range(20)]
    assert len(os.listdir("/proc/self/fd")) <= before + keeper.limit
    for file in files:
        file.shutdown(0)
    assert len(os.listdir("/proc/self/fd")) == before and len(keeper) == 0


def test_a_loaded_file_is_not_opened_before_it_is_touched(tmp_path, keeper):
    MappedFileQueue(str(tmp_path), SIZE, map_keeper=keeper).get_last_mapped_file(0).append_bytes(b"x")
    again = MappedFileQueue(str(tmp_path), SIZE, map_keeper=keeper)
    assert again.load() and mapped(again.mapped_files) == []
    assert again.mapped_files[0].slice_byte_buffer()[0] == ord("x") and mapped(again.mapped_files) == [0]


def test_a_file_that_somebody_has_cut_meanwhile_is_an_error_and_no_sigbus(tmp_path, keeper):
    file = make(tmp_path, 0, keeper)
    file.append_bytes(b"x")
    keeper.end_recovery()
    os.truncate(file.file_name, 0)
    with pytest.raises(OSError, match="cut the file"):
        file.select_mapped_buffer(0)
    assert file.ref_count == 1
    with pytest.raises(OSError):
        file.append_bytes(b"y")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_without_a_descriptor_or_a_map_others_go(tmp_path, keeper, monkeypatch, number):
    files = [make(tmp_path, index, keeper) for index in range(3)]
    assert mapped(files) == [1, 2]
    real = mmap.mmap

    def short(fd, length):
        if len(mapped(files)) > 1:
            raise OSError(number, os.strerror(number))
        return real(fd, length)

    monkeypatch.setattr(mapped_file.mmap, "mmap", short)
    assert files[0].append_bytes(b"x")
    assert mapped(files) == [0, 2]


def test_few_blocks_are_reserved_at_first_and_as_many_again_later(tmp_path, keeper, monkeypatch):
    file, reserved, real = make(tmp_path, 0, keeper, allocation_unit=65536), [], os.posix_fallocate

    def reserve(fd, offset, length):
        reserved.append(offset + length)
        real(fd, offset, length)

    monkeypatch.setattr(mapped_file.os, "posix_fallocate", reserve)
    file.append_bytes(b"x")
    assert os.stat(file.file_name).st_blocks * 512 == 4096
    for _ in range(250):
        file.append_bytes(b"x" * 1000)
    assert reserved == [4096, 8192, 16384, 32768, 65536, 131072, 196608, 262144]


def test_limit_is_half_of_the_smaller_one(monkeypatch, tmp_path):
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
    """Some are appended to, read, flushed and recovered while others take their maps."""
    queues, rounds = 20, 120  # three files a queue
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
        assert len(again.map_keeper) == 0  # nobody has asked for anything
        again.map_keeper.limit = 3
        for queue in range(queues):
            assert bodies(again, queue_id=queue) == [b"%d.%d" % (queue, index) for index in range(rounds)]
        assert len(again.map_keeper) == 3
