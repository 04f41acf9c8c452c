"""Single mapped files, queues of files, and files created in advance."""
import errno
import os

import pytest

from rmqha.store import mapped_file as module
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.results import PutMessageStatus
from tests.store.support import bodies, message, open_store, put

# A single mapped file, and a queue of files.

SIZE = 64 * 1024


@pytest.fixture
def mapped(tmp_path):
    mapped_file = MappedFile(str(tmp_path / "00000000000000065536"), SIZE)
    yield mapped_file
    if mapped_file.available:
        mapped_file.destroy(0)


def test_folder_removed_while_its_file_is_created_is_recreated(tmp_path, monkeypatch):
    real, folder, times = os.open, tmp_path / "queue", []

    def open_without_folder(path, *args):
        if not times:
            os.rmdir(folder)
        times.append(path)
        return real(path, *args)
    monkeypatch.setattr(os, "open", open_without_folder)
    path = str(folder / "00000000000000000000")
    MappedFile(path, SIZE).destroy(0)
    assert times.count(path) == 2


def test_folders_are_synced_even_if_their_file_is_deleted_before_its_flush(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(module, "fsync_folder", synced.append)
    folder = tmp_path / "topic" / "0"
    first = MappedFile(str(folder / "00000000000000000000"), SIZE)
    second = MappedFile(str(folder / f"{SIZE:020d}"), SIZE)
    second.force()
    assert synced == [str(folder)]
    first.destroy(0)
    assert synced[1:] == [str(tmp_path / "topic"), str(tmp_path)]
    second.destroy(0)
    assert len(synced) == 3


def test_file_in_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "queue").write_bytes(b"")
    with pytest.raises(FileExistsError):
        MappedFile(str(tmp_path / "queue" / "00000000000000000000"), SIZE)


def test_name_is_the_offset_and_length_is_fixed(mapped):
    assert mapped.file_from_offset == 65536
    assert os.path.getsize(mapped.file_name) == SIZE


def test_appended_bytes_are_read_back_in_place(mapped):
    assert mapped.append_bytes(b"hello ") and mapped.append_bytes(memoryview(b"world"))
    with mapped.select_mapped_buffer(6) as result:
        assert (bytes(result.buffer), result.start_offset, result.size) == (b"world", 65542, 5)
    with mapped.select_mapped_buffer(0, 5) as result:
        assert bytes(result.buffer) == b"hello"
    assert mapped.ref_count == 1


@pytest.mark.parametrize("pos, size", [(-1, None), (11, None), (SIZE, None), (0, 12), (5, 7), (-1, 2), (3, -1)])
def test_only_written_bytes_are_selected(mapped, pos, size):
    mapped.append_bytes(b"hello world")
    assert mapped.select_mapped_buffer(pos, size) is None


def test_data_that_does_not_fit_is_refused_completely(mapped):
    assert mapped.append_bytes(b"x" * (SIZE - 1))
    assert not mapped.append_bytes(b"yy")
    assert mapped.wrote_position == SIZE - 1
    assert mapped.append_bytes(b"y") and mapped.is_full


@pytest.fixture
def writes(monkeypatch):
    """Record position and bytes of each write to a file."""
    real, seen = os.pwrite, []

    def pwrite(fd, data, position):
        seen.append((position, bytes(data)))
        return real(fd, data, position)
    monkeypatch.setattr(os, "pwrite", pwrite)
    return seen


def test_large_writes_bypass_the_map_and_are_visible_in_it(tmp_path, writes, monkeypatch):
    monkeypatch.setattr(module, "_WRITE_FROM", 10_000)
    mapped = MappedFile(str(tmp_path / "00000000000000065536"), SIZE, 4096, keep_descriptor=True)
    blocks = [os.urandom(size) for size in (3, 9_999, 10_000, 7, 30_000)]
    for block in blocks:
        assert mapped.append_bytes(block)
    assert [data for _position, data in writes] == [blocks[2], blocks[4]]
    with mapped.select_mapped_buffer(0) as result:
        assert bytes(result.buffer) == b"".join(blocks)
    mapped.flush(0)
    assert (tmp_path / "00000000000000065536").read_bytes() == b"".join(blocks).ljust(SIZE, b"\0")
    mapped.destroy(0)


def test_a_partial_write_continues_and_a_failed_one_leaves_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_WRITE_FROM", 10_000)
    mapped = MappedFile(str(tmp_path / "00000000000000065536"), SIZE, keep_descriptor=True)
    real, lengths, data = os.pwrite, iter([4_000, 5_000, 1_000]), os.urandom(10_000)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:next(lengths)], position))
    assert mapped.append_bytes(data) and mapped.wrote_position == 10_000

    def pwrite(fd, data, position):
        if position == 14_000:
            raise OSError(errno.EIO, "disk says no")
        return real(fd, data[:4_000], position)
    monkeypatch.setattr(os, "pwrite", pwrite)
    # Bytes outside the write stay.
    mapped.write_at(20_000, b"behind")
    with pytest.raises(OSError, match="disk says no"):
        mapped.append_bytes(os.urandom(10_000))
    assert mapped.wrote_position == 10_000 and mapped.first_byte_behind(10_000) == 20_000
    monkeypatch.undo()
    assert bytes(mapped.slice_byte_buffer()[:10_000]) == data and mapped.ref_count == 1
    mapped.destroy(0)


def test_nothing_is_written_to_a_closed_file(tmp_path, writes):
    mapped = MappedFile(str(tmp_path / "00000000000000065536"), SIZE, keep_descriptor=True)
    mapped.destroy(0)
    with pytest.raises(OSError, match="unmapped for good"):
        mapped.append_bytes(bytes(SIZE))
    assert not writes and mapped.wrote_position == 0


def test_flush_waits_for_the_least_pages(mapped):
    mapped.append_bytes(b"x" * 5000)
    assert mapped.flush(4) == 0
    assert mapped.flush(1) == 5000
    mapped.append_bytes(b"x")
    assert mapped.flush(1) == 5000
    assert mapped.flush(0) == 5001


def test_failed_flush_raises_and_does_not_move_the_position(mapped, monkeypatch):
    mapped.append_bytes(b"x")

    def fail(_fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module.os, "fdatasync", fail)
    with pytest.raises(OSError):
        mapped.flush(0)
    assert mapped.flushed_position == 0
    assert mapped.ref_count == 1


def test_destroy_waits_for_readers_until_forced(mapped):
    mapped.append_bytes(b"hello")
    result = mapped.select_mapped_buffer(0)
    assert not mapped.destroy(1_000_000)
    assert os.path.exists(mapped.file_name) and not mapped.available
    assert mapped.select_mapped_buffer(0) is None
    assert bytes(result.buffer) == b"hello"
    assert mapped.destroy(0)
    assert not os.path.exists(mapped.file_name)
    assert bytes(result.buffer) == b"hello"
    result.release()


def test_last_reader_releases_the_file(mapped):
    mapped.append_bytes(b"hello")
    result = mapped.select_mapped_buffer(0)
    mapped.shutdown(1000)
    assert not mapped.is_cleanup_over
    result.release()
    result.release()
    assert mapped.is_cleanup_over and mapped.ref_count == 0


def test_view_of_a_closed_file_stays_valid(tmp_path):
    mapped_file = MappedFile(str(tmp_path / "0"), SIZE)
    mapped_file.append_bytes(b"hello")
    view = mapped_file.select_mapped_buffer(0).buffer[1:3]
    mapped_file.shutdown(0)
    mapped_file.shutdown(0)
    assert mapped_file.is_cleanup_over
    assert bytes(view) == b"el"


def test_full_disk_is_an_error_and_nothing_is_written(tmp_path, monkeypatch):
    mapped_file = MappedFile(str(tmp_path / "0"), SIZE, allocation_unit=8192)
    mapped_file.append_bytes(b"a" * 8000)

    def full(_fd, _offset, _length):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    assert mapped_file.append_bytes(b"b" * 192)
    with pytest.raises(OSError):
        mapped_file.append_bytes(b"c")
    assert mapped_file.wrote_position == 8192
    monkeypatch.undo()
    assert mapped_file.append_bytes(b"c")
    mapped_file.destroy(0)


def test_last_pages_of_a_small_disk_are_used(tmp_path, monkeypatch):
    mapped_file = MappedFile(str(tmp_path / "0"), SIZE, allocation_unit=32768)
    real, asked = os.posix_fallocate, []

    def small(fd, offset, length):
        asked.append((offset, length))
        if length > 8192:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, offset, length)

    monkeypatch.setattr(module.os, "posix_fallocate", small)
    assert mapped_file.append_bytes(b"x" * 5000)
    assert asked == [(0, 32768), (0, 8192)]
    mapped_file.destroy(0)


def test_blocks_are_reserved_ahead(tmp_path):
    mapped_file = MappedFile(str(tmp_path / "0"), SIZE, allocation_unit=16384)
    assert os.stat(mapped_file.file_name).st_blocks == 0
    mapped_file.append_bytes(b"x")
    assert os.stat(mapped_file.file_name).st_blocks * 512 >= 16384
    mapped_file.destroy(0)


def test_zeroing_keeps_the_bytes_before_and_leaves_holes(tmp_path):
    mapped_file = MappedFile(str(tmp_path / "0"), 4 << 20)
    mapped_file.append_bytes(b"a" * 10000)
    mapped_file.write_at(3 << 20, b"rest")
    mapped_file.force()
    mapped_file.zero_from(5000)
    data = (tmp_path / "0").read_bytes()
    assert data[:5000] == b"a" * 5000 and not any(data[5000:])
    assert os.stat(mapped_file.file_name).st_blocks * 512 < 1 << 20
    mapped_file.destroy(0)


def test_no_descriptor_stays_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    files = [MappedFile(str(tmp_path / str(i)), SIZE, 4096, keep_descriptor=i % 2 == 0) for i in range(10)]
    for mapped_file in files:
        mapped_file.append_bytes(b"x")
        mapped_file.flush(0)
        assert mapped_file.destroy(0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_warm_up_leaves_zeros_and_the_position(mapped):
    mapped.warm_mapped_file(True, 4)
    assert mapped.wrote_position == 0
    assert not any(mapped.slice_byte_buffer())


# A queue of files.

def new_queue(tmp_path, size=1000, **how) -> MappedFileQueue:
    return MappedFileQueue(str(tmp_path / "queue"), size, **how)


def fill(queue: MappedFileQueue, total: int, start: int = 0) -> None:
    for _ in range(total // 100):
        assert queue.get_last_mapped_file(start).append_bytes(b"x" * 100)


def test_first_file_starts_at_the_aligned_offset(tmp_path):
    queue = new_queue(tmp_path)
    mapped_file = queue.get_last_mapped_file(2500)
    assert mapped_file.file_from_offset == 2000 and mapped_file.first_create_in_queue
    assert os.path.basename(mapped_file.file_name) == "00000000000000002000"
    fill(queue, 1500)
    assert [each.file_from_offset for each in queue.mapped_files] == [2000, 3000]
    assert not queue.mapped_files[1].first_create_in_queue
    assert (queue.get_min_offset(), queue.get_max_offset()) == (2000, 3500)
    queue.destroy()
    assert not (tmp_path / "queue").exists()


def test_file_is_found_by_offset(tmp_path):
    queue = new_queue(tmp_path)
    assert queue.find_mapped_file_by_offset(0, True) is None
    fill(queue, 2500, 3000)
    first, second, third = queue.mapped_files
    assert queue.find_mapped_file_by_offset(3999) is first
    assert queue.find_mapped_file_by_offset(4000) is second
    assert queue.find_mapped_file_by_offset(5999) is third
    assert queue.find_mapped_file_by_offset(6000) is None
    assert queue.find_mapped_file_by_offset(0) is None
    assert queue.find_mapped_file_by_offset(0, True) is first
    queue.delete_expired_file([second])
    assert queue.find_mapped_file_by_offset(5000) is third
    assert queue.find_mapped_file_by_offset(4500) is None
    queue.destroy()


def test_flush_continues_when_a_file_expired_before_it_was_flushed(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 2500)
    queue.flushed_where = 400
    queue.delete_expired_file(queue.mapped_files[:1])
    while not queue.flush(0):
        assert queue.flushed_where > 1000
    assert queue.flushed_where == 2500
    queue.destroy()


def test_loaded_files_count_as_full_until_truncated(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 2300)
    queue.shutdown(0)
    again = new_queue(tmp_path)
    assert again.load()
    assert again.get_max_offset() == 3000
    again.truncate_dirty_files(1200)
    assert [each.file_from_offset for each in again.mapped_files] == [0, 1000]
    assert again.get_max_offset() == 1200
    assert sorted(os.listdir(tmp_path / "queue")) == ["00000000000000000000", "00000000000000001000"]
    assert not any((tmp_path / "queue" / "00000000000000001000").read_bytes()[200:])
    again.destroy()


@pytest.mark.parametrize("length, last, loads", [(999, True, True), (1001, True, True), (0, True, True),
                                                 (999, False, False), (1001, False, False), (0, False, False)])
def test_only_the_last_file_may_have_another_length(tmp_path, length, last, loads):
    queue = new_queue(tmp_path)
    fill(queue, 3000)
    queue.shutdown(0)
    (tmp_path / "queue" / ("00000000000000002000" if last else "00000000000000001000")).write_bytes(b"x" * length)
    again = new_queue(tmp_path)
    assert again.load() is loads
    assert again.last_file_was_mended is loads
    again.shutdown(0)


def test_only_file_of_another_length_is_refused(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 1000)
    queue.shutdown(0)
    os.truncate(tmp_path / "queue" / "00000000000000000000", 999)
    assert not new_queue(tmp_path).load()


def test_folder_is_skipped_with_a_warning(tmp_path, caplog):
    queue = new_queue(tmp_path)
    fill(queue, 100)
    queue.shutdown(0)
    (tmp_path / "queue" / "lost+found").mkdir()
    again = new_queue(tmp_path)
    assert again.load()
    assert "lost+found is a folder" in caplog.text
    again.shutdown(0)


def test_foreign_file_or_folder_is_refused(tmp_path):
    for name in ("notes.txt", "00000000000000001000"):
        queue = new_queue(tmp_path / name)
        fill(queue, 100)
        path = tmp_path / name / "queue" / name
        path.write_bytes(b"x" * 1000) if "." in name else path.mkdir()
        again = new_queue(tmp_path / name)
        assert not again.load()


def test_flush_goes_file_by_file(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 2500)
    flushed = []
    while not queue.flush(0):
        flushed.append(queue.flushed_where)
    assert flushed == [1000, 2000, 2500]
    assert queue.remain_how_many_data_to_flush() == 0
    queue.destroy()


def test_old_files_are_deleted_from_the_front_but_never_the_last(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 4000)
    paths = [mapped_file.file_name for mapped_file in queue.mapped_files]
    for path in (paths[0], paths[2]):
        os.utime(path, (1, 1))
    assert queue.delete_expired_file_by_time(1000, 0, 1000, False) == 1
    assert [os.path.exists(path) for path in paths] == [False, True, True, True]
    assert queue.delete_expired_file_by_time(1000, 0, 1000, True) == 2
    assert queue.get_min_offset() == 3000
    queue.destroy()


def test_held_file_is_deleted_later(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 2100)
    result = queue.mapped_files[0].select_mapped_buffer(0)
    assert queue.delete_expired_file_by_time(0, 0, 1_000_000, True) == 0
    assert not queue.retry_delete_first_file(1_000_000)
    result.release()
    assert queue.retry_delete_first_file(1_000_000)
    assert queue.get_min_offset() == 1000
    queue.destroy()


def test_pause_between_deletions_can_stop_them(tmp_path):
    queue = new_queue(tmp_path)
    fill(queue, 4000)
    assert queue.delete_expired_file_by_time(0, 7, 1000, True, pause=lambda ms: ms == 7) == 1
    queue.destroy()


def test_gap_between_files_is_reported(tmp_path, caplog):
    queue = new_queue(tmp_path)
    fill(queue, 3000)
    queue.check_self()
    assert "damaged" not in caplog.text
    queue.delete_expired_file([queue.mapped_files[1]])
    queue.check_self()
    assert "damaged" in caplog.text
    queue.destroy()


# Creating files of the commit log in advance.


@pytest.mark.parametrize("preallocate", [True, False])
def test_warmed_files_are_written(tmp_path, preallocate):
    with open_store(tmp_path, warmMapedFileEnable=True, preallocateMappedFile=preallocate) as store:
        put(store, *(message(body=b"%03d" % number * 200) for number in range(60)))
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == 60


def test_file_that_cannot_be_warmed_leaves_no_descriptor_open(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "no warmth")
    with open_store(tmp_path, warmMapedFileEnable=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(MappedFile, "warm_mapped_file", fail)
            assert store.put_message(message()).put_message_status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                store.put_message(message())
            # Two requests may still be pending.
            assert len(os.listdir("/proc/self/fd")) <= before + 2
        put(store, message())
