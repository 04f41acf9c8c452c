"""Queues of mapped files: the segments of one folder in order, as one long address space.

Readers use the list of files as they find it: it is replaced, never changed. One thread appends; cleaning threads
remove files from the front.

- `MultiPathMappedFileQueue`: a commit log spread over several disks.
- `MapKeeper`: limits how many of very many files are mapped at a time, well below what the system allows a process.
"""
from __future__ import annotations

import logging
import os
import stat
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from rmqha.common.process import max_mapped_files
from rmqha.common.util_all import current_time_millis, offset_to_file_name
from rmqha.store.allocate_mapped_file_service import AllocateMappedFileService
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, filled_unit_before, unpack_unit
from rmqha.store.mapped_file import MappedFile, ensure_dir_ok, fsync_folder
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER, MessageStoreConfig
from rmqha.store.store_marks import check_mtime

log = logging.getLogger("RocketmqStore")
log_error = logging.getLogger("RocketmqStoreError")

DELETE_FILES_BATCH_MAX = 10
_LONG = struct.Struct(">q")


class MappedFileQueue:
    """Files of `mapped_file_size` bytes in `store_path`; offsets are bytes from the beginning of time.

    `allocate_mapped_file_service` None: files are made by the appending thread itself (consume queues).
    `map_keeper`: one queue of very many; see MappedFile.

    Java: org.apache.rocketmq.store.MappedFileQueue (4.9.8)
    """

    def __init__(self, store_path: str, mapped_file_size: int,
                 allocate_mapped_file_service: AllocateMappedFileService | None = None,
                 allocation_unit: int = 0, keep_descriptor: bool = False,
                 map_keeper: MapKeeper | None = None) -> None:
        self.store_path = store_path
        self.mapped_file_size = mapped_file_size
        self.allocate_mapped_file_service = allocate_mapped_file_service
        self.allocation_unit = allocation_unit
        self.keep_descriptor = keep_descriptor
        self.map_keeper = map_keeper
        self.can_be_built_again = False  # from the commit log: files whose length never came to the disk are taken
        self.create_failure: BaseException | None = None  # why no file could be made last; the appending thread's own
        self.mapped_files: list[MappedFile] = []  # replaced under _change, never changed in place
        self._change = threading.Lock()
        self.last_file_was_mended = False  # by load: its length was wrong
        self.flushed_where = 0  # bytes; written by the flushing thread and by recovery
        self._commit_lock = threading.Lock()  # one commit at a time
        self.on_committed: Callable[[int], None] = _nothing  # called with what lies in the files, under _commit_lock
        self.committed_where = 0  # bytes; written under _commit_lock and by recovery
        self.store_timestamp = 0  # ms, of the last message that a thorough flush covered

    def check_self(self) -> None:
        """Complain about neighbours whose offsets do not fit."""
        files = self.mapped_files
        for pre, cur in zip(files, files[1:]):
            if cur.file_from_offset - pre.file_from_offset != self.mapped_file_size:
                log_error.error("[BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't "
                                "match. pre file %s, cur file %s", pre.file_name, cur.file_name)

    def get_mapped_file_by_time(self, timestamp: int) -> MappedFile | None:
        """The first file modified at or after `timestamp` (ms), else the last one."""
        files = self.mapped_files
        for mapped_file in files:
            if mapped_file.last_modified_timestamp >= timestamp:
                return mapped_file
        return files[-1] if files else None

    def truncate_dirty_files(self, offset: int) -> None:
        """Recovery: `offset` is the end of the data. Zero what lies behind it, delete the files behind it."""
        self.flushed_where = min(self.flushed_where, offset)
        with self._commit_lock:  # a commit under way would move the position behind the end again
            for mapped_file in reversed(self.mapped_files):  # so that no crash leaves a gap
                if mapped_file.file_from_offset + self.mapped_file_size <= offset:
                    continue
                if offset >= mapped_file.file_from_offset:
                    position = offset % self.mapped_file_size
                    mapped_file.zero_from(position)
                    mapped_file.go_back_to(position)
                else:
                    if not mapped_file.destroy(1000):
                        mapped_file.delete()  # the log will grow into its name again
                    self._forget_deleted([mapped_file])

    def go_back_to(self, offset: int) -> None:
        """Recovery: go on at `offset`. What lies behind it stays where it is, until `truncate_dirty_files`."""
        keep = [file for file in self.mapped_files if file.file_from_offset <= offset]
        for mapped_file in keep:
            mapped_file.go_back_to(min(offset - mapped_file.file_from_offset, self.mapped_file_size))
        for mapped_file in reversed(self.mapped_files[len(keep):]):
            if not mapped_file.destroy(1000):
                mapped_file.delete()
            self._forget_deleted([mapped_file])

    def _forget_deleted(self, files: list[MappedFile]) -> None:
        """Take files that were deleted out of the list.

        Differs: they are gone from the disk, too, before their names are used again; with the original a loss of power
        may bring them back.
        """
        self.delete_expired_file(files)
        for folder in {os.path.dirname(mapped_file.file_name) for mapped_file in files}:
            fsync_folder(folder)

    def delete_expired_file(self, files: list[MappedFile]) -> None:
        """Take `files` out of the list."""
        if files:
            with self._change:
                self.mapped_files = [mapped_file for mapped_file in self.mapped_files if mapped_file not in files]

    def load(self) -> bool:
        """Map all files of the folder; False when one can't belong to this queue."""
        try:
            entries = [entry.path for entry in os.scandir(self.store_path)]
        except FileNotFoundError:
            return True
        return self.do_load(entries)

    def do_load(self, paths: list[str]) -> bool:
        """Map `paths` in the order of their names; False, with the file's name in the log, when one does not fit.

        Differs: folders are left alone, and a last file of another length, which a crash or a full disk can leave
        behind, is brought to its length: recovery finds its end. The original refuses both.
        """
        found = {path: _stat(path) for path in paths}
        folders = {path for path in paths
                   if stat.S_ISDIR(found[path].st_mode) and not os.path.basename(path).isdecimal()}
        for path in folders:
            log.warning("%s is a folder, and is left alone", path)
        paths = sorted(set(paths) - folders, key=os.path.basename)
        for index, path in enumerate(paths):
            if not (os.path.basename(path).isdecimal() and stat.S_ISREG(found[path].st_mode)):
                log.error("load file %s error: it is not a file of the store, take it away", path)
                return False
            length = found[path].st_size
            if length != self.mapped_file_size and not (length == 0 and self.can_be_built_again):
                # a lone file of another length was probably written with another configured size
                if index < len(paths) - 1 or index == 0 and length > 0:
                    log.warning("%s\t%s length not matched message store config value, please check it manually",
                                path, length)
                    return False
                log.warning("the last file %s has a length of %s, and is brought to %s", path, length,
                            self.mapped_file_size)
                self.last_file_was_mended = True
                _bring_to_length(path, self.mapped_file_size)
                length = self.mapped_file_size
            try:
                mapped_file = self._new_mapped_file(path, is_there=length == self.mapped_file_size)
            except (OSError, ValueError) as error:
                log.error("load file %s error: %s", path, error)
                return False
            mapped_file.set_positions(self.mapped_file_size)
            with self._change:
                self.mapped_files = [*self.mapped_files, mapped_file]
            # Differs: files of very many queues are told in one line; the original tells each, as it does its queue
            log.log(logging.DEBUG if self.map_keeper is not None else logging.INFO, "load %s OK", path)
        return True

    def take_files(self, first: int, mtimes: list[int], end: int) -> None:
        """Instead of `load`: the files from offset `first` on, changed last when `mtimes` say; their data, on the disk,
        ends at `end`. WrongQueueEndsError when one is another."""
        files = []
        for index, mtime in enumerate(mtimes):
            path = self._path(self.store_path, first + index * self.mapped_file_size)
            check_mtime(path, mtime, self.mapped_file_size)
            mapped_file = self._new_mapped_file(path, is_there=True)
            mapped_file.set_positions(self.mapped_file_size)
            files.append(mapped_file)
        if files:
            files[-1].set_positions(end - files[-1].file_from_offset)
        self.mapped_files = files
        self.flushed_where = self.committed_where = end

    def files_before_gap(self) -> int:
        """How many files follow one another without a gap; the log names the files around one."""
        files = self.mapped_files
        for index, (pre, cur) in enumerate(zip(files, files[1:]), 1):
            due = pre.file_from_offset + self.mapped_file_size
            if cur.file_from_offset != due:
                log.error("file %s is followed by %s, where %s is due: files are missing or do not belong here",
                          pre.file_name, cur.file_name, offset_to_file_name(due))
                return index
        return len(files)

    def get_last_mapped_file(self, start_offset: int | None = None, need_create: bool = True) -> MappedFile | None:
        """The last file; with `start_offset` the file to append to: a new one when there is none or the last is full.

        The very first file starts at `start_offset` rounded down. None when a file can't be made.
        """
        files = self.mapped_files
        last = files[-1] if files else None
        if start_offset is None or not need_create:
            return last
        if last is None:
            return self.try_create_mapped_file(start_offset - start_offset % self.mapped_file_size)
        if last.is_full:
            return self.try_create_mapped_file(last.file_from_offset + self.mapped_file_size)
        return last

    def try_create_mapped_file(self, create_offset: int) -> MappedFile | None:
        """Make the file at `create_offset`, and have the one behind it prepared."""
        return self.do_create_mapped_file(self._path(self.store_path, create_offset),
                                          self._path(self.store_path, create_offset + self.mapped_file_size))

    def do_create_mapped_file(self, next_file_path: str, next_next_file_path: str) -> MappedFile | None:
        """Make `next_file_path`; None when that fails."""
        mapped_file, self.create_failure = None, None
        if self.allocate_mapped_file_service is not None:
            mapped_file = self.allocate_mapped_file_service.put_request_and_return_mapped_file(
                next_file_path, next_next_file_path, self.mapped_file_size)
        else:
            try:
                mapped_file = self._new_mapped_file(next_file_path)
            except (OSError, ValueError) as error:
                log.exception("create mappedFile exception")
                self.create_failure = error
        if mapped_file is not None:
            with self._change:
                mapped_file.first_create_in_queue = not self.mapped_files
                self.mapped_files = [*self.mapped_files, mapped_file]
        return mapped_file

    def reset_offset(self, offset: int) -> bool:
        """Cut the queue off at `offset`, while nobody writes; False when that is more than two files back.

        Differs: the original's loop goes the wrong way round: it answers True, and cuts nothing off.
        """
        if self.get_max_wrote_position() - offset > self.mapped_file_size * 2:
            return False
        self.truncate_dirty_files(offset)
        self.flushed_where = min(self.flushed_where, offset)
        self.committed_where = min(self.committed_where, offset)
        return True

    def get_min_offset(self) -> int:
        """Offset of the first file; -1 when there is none."""
        files = self.mapped_files
        return files[0].file_from_offset if files else -1

    def get_max_offset(self) -> int:
        """End of the readable bytes; 0 when there is no file."""
        files = self.mapped_files
        if not files:
            return 0
        last = files[-1]
        return last.file_from_offset + (last.wrote_position if last.write_buffer is None else last.committed_position)

    def get_max_wrote_position(self) -> int:
        """End of the written bytes, those in write buffers included; 0 when there is no file."""
        last = self.get_last_mapped_file()
        return last.file_from_offset + last.wrote_position if last is not None else 0

    def remain_how_many_data_to_commit(self) -> int:
        """Bytes in write buffers that are not committed."""
        # Differs: summed over the files; the original is wrong once the pool had no buffer for a file
        return sum(mapped_file.wrote_position - mapped_file.committed_position for mapped_file in self.mapped_files
                   if mapped_file.write_buffer is not None)

    def remain_how_many_data_to_flush(self) -> int:
        """Bytes readable but not flushed."""
        return self.get_max_offset() - self.flushed_where

    def delete_last_mapped_file(self) -> None:
        """Recovery: drop the last file."""
        last = self.get_last_mapped_file()
        if last is not None:
            last.destroy(1000)
            self._forget_deleted([last])
            log.info("on recover, destroy a logic mapped file %s", last.file_name)

    def delete_expired_file_by_time(self, expired_time_ms: int, delete_files_interval_ms: int,
                                    interval_forcibly_ms: int, clean_immediately: bool,
                                    pause: Callable[[int], bool] | None = None) -> int:
        """Delete files older than `expired_time_ms` (or any) from the front, never the last; return how many.

        `pause(ms)` waits between two deletions, so that the disk stays responsive; it returns True to stop.
        """
        candidates = self.mapped_files[:-1]
        deleted: list[MappedFile] = []
        for index, mapped_file in enumerate(candidates):
            live_until = mapped_file.last_modified_timestamp + expired_time_ms
            if not clean_immediately and current_time_millis() < live_until:
                break
            if not mapped_file.destroy(interval_forcibly_ms):
                break
            deleted.append(mapped_file)
            self._forget_deleted([mapped_file])  # one by one: a crash leaves no gap
            if len(deleted) >= DELETE_FILES_BATCH_MAX:
                break
            if delete_files_interval_ms > 0 and index + 1 < len(candidates):
                if (pause or _sleep)(delete_files_interval_ms):
                    break
        return len(deleted)

    def delete_expired_file_by_offset(self, offset: int, unit_size: int) -> int:
        """Delete files of units whose last unit points below `offset`, never the last file; return how many."""
        deleted: list[MappedFile] = []
        for mapped_file in self.mapped_files[:-1]:
            result = mapped_file.select_mapped_buffer(self.mapped_file_size - unit_size)
            if result is not None:
                with result:
                    max_offset_in_logic_queue = _LONG.unpack_from(result.buffer)[0] or self._last_position(mapped_file)
                expired = max_offset_in_logic_queue < offset
                if expired:
                    log.info("physic min offset %s, logics in current mappedFile max offset %s, delete it",
                             offset, max_offset_in_logic_queue)
            elif not mapped_file.available:
                log.warning("Found a hanged consume queue file, attempting to delete it.")
                expired = True
            else:
                log.warning("this being not executed forever.")
                break
            if not expired or not mapped_file.destroy(1000 * 60):
                break
            deleted.append(mapped_file)
        self._forget_deleted(deleted)
        return len(deleted)

    @staticmethod
    def _last_position(mapped_file: MappedFile) -> int:
        """Where the last unit of a consume queue file that points at a record points to; 0 when there is none."""
        buffer = mapped_file.slice_byte_buffer()
        last = filled_unit_before(buffer, mapped_file.file_size // CQ_STORE_UNIT_SIZE - 1)
        return unpack_unit(buffer, last * CQ_STORE_UNIT_SIZE)[0] if last >= 0 else 0

    def flush(self, flush_least_pages: int) -> bool:
        """Flush the file at the flushed position; True when there was nothing to do. OSError when the disk says no."""
        last = self.get_last_mapped_file()
        timestamp = last.store_timestamp if last is not None else 0
        if self.flushed_where == self.get_max_offset():
            if flush_least_pages == 0:
                self.store_timestamp = timestamp
            return True
        mapped_file = self._file_at(self.flushed_where)
        if mapped_file is None:
            return True
        timestamp = mapped_file.store_timestamp
        where = mapped_file.file_from_offset + mapped_file.flush(flush_least_pages)
        result = where == self.flushed_where
        self.flushed_where = where
        if flush_least_pages == 0:
            self.store_timestamp = timestamp
        return result

    def _file_at(self, offset: int) -> MappedFile | None:
        """The file to go on with.

        Differs: the first one when the file at `offset` has expired before it was flushed; the original never flushes
        such a queue again.
        """
        return self.find_mapped_file_by_offset(max(offset, self.get_min_offset()), offset == 0)

    def commit(self, commit_least_pages: int) -> bool:
        """Commit the write buffer of the file at the committed position; True when there was nothing to do.

        OSError when the disk says no.
        """
        with self._commit_lock:
            if self.committed_where == self.get_max_wrote_position():
                return True
            mapped_file = self._file_at(self.committed_where)
            if mapped_file is None:
                return True
            where = mapped_file.file_from_offset + mapped_file.commit(commit_least_pages)
            result = where == self.committed_where
            self.committed_where = where
            self.on_committed(where)
            return result

    def take_back(self, mapped_file: MappedFile, position: int) -> bool:
        """End a file with a buffer at `position` again: what was appended there could not be committed.

        False, and nothing is done, when another thread has committed it meanwhile. Under the lock of who appends.
        """
        with self._commit_lock:
            if mapped_file.write_buffer is None or mapped_file.committed_position > position:
                return False
            mapped_file.take_back(position)
            return True

    def find_mapped_file_by_offset(self, offset: int, return_first_on_not_found: bool = False) -> MappedFile | None:
        """The file that holds `offset`, also in its part that is not written yet."""
        files = self.mapped_files
        if not files:
            return None
        size = self.mapped_file_size
        first, last = files[0], files[-1]
        if offset < first.file_from_offset or offset >= last.file_from_offset + size:
            log_error.warning("Offset not matched. Request offset: %s, firstOffset: %s, lastOffset: %s, "
                              "mappedFileSize: %s, mappedFiles count: %s", offset, first.file_from_offset,
                              last.file_from_offset + size, size, len(files))
        else:
            index = offset // size - first.file_from_offset // size
            if index < len(files) and files[index].file_from_offset <= offset < files[index].file_from_offset + size:
                return files[index]
            for mapped_file in files:
                if mapped_file.file_from_offset <= offset < mapped_file.file_from_offset + size:
                    return mapped_file
        return first if return_first_on_not_found else None

    def get_first_mapped_file(self) -> MappedFile | None:
        """The oldest file."""
        files = self.mapped_files
        return files[0] if files else None

    def retry_delete_first_file(self, interval_forcibly_ms: int) -> bool:
        """Try again to delete a first file that was still held when it should have gone."""
        mapped_file = self.get_first_mapped_file()
        if mapped_file is None or mapped_file.available:
            return False
        log.warning("the mappedFile was destroyed once, but still alive, %s", mapped_file.file_name)
        if not mapped_file.destroy(interval_forcibly_ms):
            log.warning("the mappedFile re delete failed, %s", mapped_file.file_name)
            return False
        log.info("the mappedFile re delete OK, %s", mapped_file.file_name)
        self.delete_expired_file([mapped_file])
        return True

    def shutdown(self, interval_forcibly_ms: int) -> None:
        """Give the files back: unmapped at once, or with their last reader."""
        for mapped_file in self.mapped_files:
            mapped_file.shutdown(interval_forcibly_ms)

    def destroy(self) -> None:
        """Delete all files and the folder."""
        with self._change:
            files, self.mapped_files = self.mapped_files, []
        destroy_all(files)
        self.flushed_where = 0
        self._remove_folder(self.store_path)

    def _new_mapped_file(self, path: str, is_there: bool = False) -> MappedFile:
        return MappedFile(path, self.mapped_file_size, self.allocation_unit, self.keep_descriptor,
                          map_keeper=self.map_keeper, is_there=is_there)

    @staticmethod
    def _path(folder: str, offset: int) -> str:
        return folder + os.sep + offset_to_file_name(offset)

    @staticmethod
    def _remove_folder(folder: str) -> None:
        try:
            os.rmdir(folder)
        except OSError as error:
            log.info("folder %s stays: %s", folder, error.strerror)


def destroy_all(files: list[MappedFile]) -> None:
    """Delete `files`.

    Differs: also those that somebody still reads; the original leaves them in the folder for the next start to find.
    """
    for mapped_file in files:
        if not mapped_file.destroy(1000 * 3):
            mapped_file.delete()


def _stat(path: str) -> os.stat_result:
    """Of what a name leads to, or of a link that leads nowhere."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return os.lstat(path)


def _bring_to_length(path: str, length: int) -> None:
    """On the disk too: no file may follow one of another length."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, length)
        os.fsync(fd)
    finally:
        os.close(fd)


def _nothing(_offset: int) -> None:
    """Nobody wants to know."""


def _sleep(interval_ms: int) -> bool:
    time.sleep(interval_ms / 1000)
    return False


_ASIDE = ".aside"
_BLANK = bytes(8)  # where a record has its length and its magic code


class MultiPathMappedFileQueue(MappedFileQueue):
    """File n goes to the (n modulo paths)-th of the sorted paths that are neither read-only nor full.

    Java: org.apache.rocketmq.store.MultiPathMappedFileQueue (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, mapped_file_size: int,
                 allocate_mapped_file_service: AllocateMappedFileService | None, allocation_unit: int,
                 full_store_paths_supplier: Callable[[], frozenset[str]]) -> None:
        super().__init__(config.get_store_path_commit_log(), mapped_file_size, allocate_mapped_file_service,
                         allocation_unit, keep_descriptor=True)
        self.config = config
        self._full_store_paths = full_store_paths_supplier

    def get_paths(self) -> set[str]:
        """The configured folders."""
        return set(self.config.get_store_path_commit_log().strip().split(MULTI_PATH_SPLITTER))

    def get_readonly_paths(self) -> set[str]:
        """Folders that are read but not written."""
        text = (self.config.readOnlyCommitLogStorePaths or "").strip()
        return set(text.split(MULTI_PATH_SPLITTER)) if text else set()

    def load(self) -> bool:
        """Map the files of all folders, in the order of their names."""
        paths = []
        for folder in self.get_paths() | self.get_readonly_paths():
            if os.path.isdir(folder):
                paths += [entry.path for entry in os.scandir(folder)]
        return self.do_load(_without_blank_twins(paths))

    def try_create_mapped_file(self, create_offset: int) -> MappedFile | None:
        """Make the file in the folder whose turn it is."""
        writable = self.get_paths() - self.get_readonly_paths()
        folders = sorted(writable - self._full_store_paths()) or sorted(writable)
        if not folders:
            log.error("all commit log folders are read-only")
            return None
        index = create_offset // self.mapped_file_size
        return self.do_create_mapped_file(
            self._path(folders[index % len(folders)], create_offset),
            self._path(folders[(index + 1) % len(folders)], create_offset + self.mapped_file_size))

    def destroy(self) -> None:
        """Delete all files and folders."""
        with self._change:
            files, self.mapped_files = self.mapped_files, []
        destroy_all(files)
        self.flushed_where = 0
        for folder in self.get_paths() | self.get_readonly_paths():
            self._remove_folder(folder)


def _without_blank_twins(paths: list[str]) -> list[str]:
    """`paths` without files that have no record, and whose offset another file has, too.

    Differs: they go to a folder beside theirs, where nobody looks for the log; the original takes either of the two.
    Files of one offset that all have records are left to whoever finds out which of them is right.
    """
    same_name: dict[str, list[str]] = {}
    for path in paths:
        same_name.setdefault(os.path.basename(path), []).append(path)
    for twins in same_name.values():
        blank = [path for path in twins if _is_blank(path)] if len(twins) > 1 else []
        for path in blank[1:] if len(blank) == len(twins) else blank:
            folder = os.path.dirname(path) + _ASIDE
            log.warning("%s has no message, and there is another file of its offset: it goes to %s", path, folder)
            ensure_dir_ok(folder, os.pathsep)
            os.replace(path, os.path.join(folder, os.path.basename(path)))
            fsync_folder(os.path.dirname(path))
            paths.remove(path)
    return paths


def _is_blank(path: str) -> bool:
    if not os.path.basename(path).isdecimal() or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(_BLANK)) in (b"", _BLANK)


class MapKeeper:
    """Takes the map of the file away that has had one for longest and was not used lately, when there are too many.

    A file tells when it has been mapped (`note`), and when it is closed (`forget`). Any thread calls.
    `reads_ahead`: who reads a large file goes on behind what he has read; recovery jumps.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit if limit is not None else max_mapped_files()
        self._lock = threading.Lock()
        self._files: OrderedDict[MappedFile, None] = OrderedDict()  # the longest mapped first; guarded by _lock
        self._is_short = False  # guarded by _lock
        self.reads_ahead = False

    def note(self, mapped_file: MappedFile) -> None:
        """The file has a map now."""
        with self._lock:
            self._files[mapped_file] = None
            if len(self._files) > self.limit:
                if not self._is_short:
                    self._is_short = True
                    log.info("more than %s files of consume queues are in use: maps go and come back", self.limit)
                self._drop_one()

    def forget(self, mapped_file: MappedFile) -> None:
        """The file is closed."""
        with self._lock:
            self._files.pop(mapped_file, None)

    def make_room(self) -> bool:
        """The system gives no map or descriptor: half of the maps go; False when there are none."""
        with self._lock:
            count = (len(self._files) + 1) // 2
            for _ in range(count):
                self._drop_one()
        return count > 0

    def end_recovery(self) -> None:
        """No file is in use as far as anybody knows: all maps go."""
        self.reads_ahead = True
        with self._lock:
            files, self._files = self._files, OrderedDict()
        for mapped_file in files:
            mapped_file.drop_map()

    def __len__(self) -> int:
        return len(self._files)

    def _drop_one(self) -> None:
        for _ in range(len(self._files)):
            mapped_file, _none = self._files.popitem(last=False)
            if not mapped_file.is_touched:
                mapped_file.drop_map()
                return
            mapped_file.is_touched = False  # a second chance
            self._files[mapped_file] = None
        mapped_file, _none = self._files.popitem(last=False)
        mapped_file.drop_map()
