"""Queues of mapped files: the files of one folder, in order, as one long address space.

The list of files is replaced, never changed, so readers need no lock. One thread appends; cleaning threads remove files
from the front.

- `MultiPathMappedFileQueue`: a commit log on several disks.
- `MapKeeper`: limits how many of very many files are mapped at a time.
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
    """A queue of files of `mapped_file_size` bytes in `store_path`. Offsets count all bytes that were ever appended.

    `allocate_mapped_file_service`: creates the files; None if the appending thread creates them (consume queues).
    `map_keeper`: limits the number of mapped files; None unless this is one of very many queues (consume queues).

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
        # True if the files can be rebuilt from the commit log; then empty files, whose length did not reach the disk,
        # are accepted.
        self.can_be_built_again = False
        # Why the latest attempt to create a file failed. Used by the appending thread only.
        self.create_failure: BaseException | None = None
        # Replaced under _change, never changed in place.
        self.mapped_files: list[MappedFile] = []
        self._change = threading.Lock()
        # Set by `load` if it had to correct the last file's length.
        self.last_file_was_mended = False
        # Bytes. Written by the flushing thread and by recovery.
        self.flushed_where = 0
        # Held by a commit.
        self._commit_lock = threading.Lock()
        # Called under _commit_lock with the offset up to which the files have the bytes.
        self.on_committed: Callable[[int], None] = _nothing
        # Bytes. Written under _commit_lock and by recovery.
        self.committed_where = 0
        # The store time (ms) of the last message that a thorough flush covered.
        self.store_timestamp = 0

    def check_self(self) -> None:
        """Log an error for adjacent files whose offsets do not match."""
        files = self.mapped_files
        for pre, cur in zip(files, files[1:]):
            if cur.file_from_offset - pre.file_from_offset != self.mapped_file_size:
                log_error.error("[BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't "
                                "match. pre file %s, cur file %s", pre.file_name, cur.file_name)

    def get_mapped_file_by_time(self, timestamp: int) -> MappedFile | None:
        """Return the first file that was modified at or after `timestamp` (ms), or else the last file."""
        files = self.mapped_files
        for mapped_file in files:
            if mapped_file.last_modified_timestamp >= timestamp:
                return mapped_file
        return files[-1] if files else None

    def truncate_dirty_files(self, offset: int) -> None:
        """Truncate the queue at `offset`: zero the bytes after it, and delete the later files."""
        self.flushed_where = min(self.flushed_where, offset)
        with self._commit_lock:  # a concurrent commit would move the position beyond the new end
            for mapped_file in reversed(self.mapped_files):  # last file first, so that a crash leaves no gap
                if mapped_file.file_from_offset + self.mapped_file_size <= offset:
                    continue
                if offset >= mapped_file.file_from_offset:
                    position = offset % self.mapped_file_size
                    mapped_file.zero_from(position)
                    mapped_file.go_back_to(position)
                else:
                    if not mapped_file.destroy(1000):
                        mapped_file.delete()  # The log will use its name again.
                    self._forget_deleted([mapped_file])

    def go_back_to(self, offset: int) -> None:
        """Set the queue's end to `offset`, and delete the files that begin after it. Bytes after `offset` in its own
        file are kept until `truncate_dirty_files`. For recovery."""
        keep = [file for file in self.mapped_files if file.file_from_offset <= offset]
        for mapped_file in keep:
            mapped_file.go_back_to(min(offset - mapped_file.file_from_offset, self.mapped_file_size))
        for mapped_file in reversed(self.mapped_files[len(keep):]):
            if not mapped_file.destroy(1000):
                mapped_file.delete()
            self._forget_deleted([mapped_file])

    def _forget_deleted(self, files: list[MappedFile]) -> None:
        """Remove deleted files from the list.

        Differs: the deletion of files is forced to the disk before their names are used again. In the original a power
        loss may bring them back.
        """
        self.delete_expired_file(files)
        for folder in {os.path.dirname(mapped_file.file_name) for mapped_file in files}:
            fsync_folder(folder)

    def delete_expired_file(self, files: list[MappedFile]) -> None:
        """Remove `files` from the list."""
        if files:
            with self._change:
                self.mapped_files = [mapped_file for mapped_file in self.mapped_files if mapped_file not in files]

    def load(self) -> bool:
        """Load all files of the folder; return False if one can't belong to this queue."""
        try:
            entries = [entry.path for entry in os.scandir(self.store_path)]
        except FileNotFoundError:
            return True
        return self.do_load(entries)

    def do_load(self, paths: list[str]) -> bool:
        """Load `paths` in the order of their names; return False, and log the file's name, if one does not fit.

        With a `map_keeper`, a file is mapped later, at its first use.

        Differs: folders between the files of a log or queue are ignored. A last file of another length, which a crash
        or a full disk can cause, gets its full length, and recovery finds its end. The original refuses both.
        """
        found = {path: _stat(path) for path in paths}
        folders = {path for path in paths
                   if stat.S_ISDIR(found[path].st_mode) and not os.path.basename(path).isdecimal()}
        for path in folders:
            log.warning("%s is a folder; ignoring it", path)
        paths = sorted(set(paths) - folders, key=os.path.basename)
        for index, path in enumerate(paths):
            if not (os.path.basename(path).isdecimal() and stat.S_ISREG(found[path].st_mode)):
                log.error("load file %s error: it is not a file of the store; remove it", path)
                return False
            length = found[path].st_size
            if length != self.mapped_file_size and not (length == 0 and self.can_be_built_again):
                # A single file of another length was probably written with another configured size.
                if index < len(paths) - 1 or index == 0 and length > 0:
                    log.warning("%s\t%s length not matched message store config value, please check it manually",
                                path, length)
                    return False
                log.warning("the last file %s has a length of %s; extending or truncating it to %s", path, length,
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
            # Differs: the log lines about consume queue files have level DEBUG; the original logs each file at INFO.
            log.log(logging.DEBUG if self.map_keeper is not None else logging.INFO, "load %s OK", path)
        return True

    def take_files(self, first: int, mtimes: list[int], end: int) -> None:
        """Open the files as the last clean shutdown noted them (QueueEnd in store_marks). Called instead of `load`.

        They begin at offset `first`, were last changed at `mtimes`, and their data, all on the disk, ends at `end`.
        Raise WrongQueueEndsError if a file was changed since.
        """
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
        """Return the number of files before the first gap. If there is a gap, log the files around it."""
        files = self.mapped_files
        for index, (pre, cur) in enumerate(zip(files, files[1:]), 1):
            due = pre.file_from_offset + self.mapped_file_size
            if cur.file_from_offset != due:
                log.error("file %s is followed by %s instead of %s: files are missing or do not belong here",
                          pre.file_name, cur.file_name, offset_to_file_name(due))
                return index
        return len(files)

    def get_last_mapped_file(self, start_offset: int | None = None, need_create: bool = True) -> MappedFile | None:
        """Return the last file. With `start_offset`, return the file to append to, a new one if necessary.

        The very first file starts at `start_offset` rounded down. Return None if a file can't be created.
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
        """Create the file at `create_offset`, and have the one after it prepared."""
        return self.do_create_mapped_file(self._path(self.store_path, create_offset),
                                          self._path(self.store_path, create_offset + self.mapped_file_size))

    def do_create_mapped_file(self, next_file_path: str, next_next_file_path: str) -> MappedFile | None:
        """Create `next_file_path`; return None if that fails."""
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
        """Truncate the queue at `offset`; return False if that is more than two files back. No thread may write.

        Differs: `reset_offset` truncates up to two files; the original's loop runs in the wrong direction, so it
        returns True and truncates nothing.
        """
        if self.get_max_wrote_position() - offset > self.mapped_file_size * 2:
            return False
        self.truncate_dirty_files(offset)
        self.flushed_where = min(self.flushed_where, offset)
        self.committed_where = min(self.committed_where, offset)
        return True

    def get_min_offset(self) -> int:
        """Return the offset of the first file, or -1 without a file."""
        files = self.mapped_files
        return files[0].file_from_offset if files else -1

    def get_max_offset(self) -> int:
        """Return the end of the readable bytes, or 0 without a file."""
        files = self.mapped_files
        if not files:
            return 0
        last = files[-1]
        return last.file_from_offset + (last.wrote_position if last.write_buffer is None else last.committed_position)

    def get_max_wrote_position(self) -> int:
        """Return the end of the written bytes, including those in write buffers, or 0 without a file."""
        last = self.get_last_mapped_file()
        return last.file_from_offset + last.wrote_position if last is not None else 0

    def remain_how_many_data_to_commit(self) -> int:
        """Return the number of bytes in write buffers that are not committed."""
        # Differs: the number of uncommitted bytes is summed over the files. The original's result is wrong once the
        # pool had no buffer for a file.
        return sum(mapped_file.wrote_position - mapped_file.committed_position for mapped_file in self.mapped_files
                   if mapped_file.write_buffer is not None)

    def remain_how_many_data_to_flush(self) -> int:
        """Return the number of readable bytes that are not flushed."""
        return self.get_max_offset() - self.flushed_where

    def delete_last_mapped_file(self) -> None:
        """Delete the last file. For recovery."""
        last = self.get_last_mapped_file()
        if last is not None:
            last.destroy(1000)
            self._forget_deleted([last])
            log.info("on recover, destroy a logic mapped file %s", last.file_name)

    def delete_expired_file_by_time(self, expired_time_ms: int, delete_files_interval_ms: int,
                                    interval_forcibly_ms: int, clean_immediately: bool,
                                    pause: Callable[[int], bool] | None = None) -> int:
        """Delete files that are older than `expired_time_ms`, oldest first; return the number of deleted files.

        With `clean_immediately`, delete files of any age. The last file is never deleted. `pause(ms)` waits between two
        deletions, so that the disk stays responsive; it returns True to stop.
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
            self._forget_deleted([mapped_file])  # one by one, so that a crash leaves no gap
            if len(deleted) >= DELETE_FILES_BATCH_MAX:
                break
            if delete_files_interval_ms > 0 and index + 1 < len(candidates):
                if (pause or _sleep)(delete_files_interval_ms):
                    break
        return len(deleted)

    def delete_expired_file_by_offset(self, offset: int, unit_size: int) -> int:
        """Delete, oldest first, the files whose last unit refers to a record below `offset`; return their number.

        The last file is never deleted.
        """
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
        """Return the log offset in a consume queue file's last unit that is not blank; 0 if all are blank."""
        buffer = mapped_file.slice_byte_buffer()
        last = filled_unit_before(buffer, mapped_file.file_size // CQ_STORE_UNIT_SIZE - 1)
        return unpack_unit(buffer, last * CQ_STORE_UNIT_SIZE)[0] if last >= 0 else 0

    def flush(self, flush_least_pages: int) -> bool:
        """Flush the file at the flushed position; return True if there was nothing to do.

        Raise OSError if the disk fails.
        """
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
        """Return the file with which to continue a flush or a commit.

        Differs: a flush continues with the first file if the file at its position expired before it was flushed. The
        original never flushes such a queue again.
        """
        return self.find_mapped_file_by_offset(max(offset, self.get_min_offset()), offset == 0)

    def commit(self, commit_least_pages: int) -> bool:
        """Commit the write buffer of the file at the committed position; return True if there was nothing to do.

        Raise OSError if the disk fails.
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
        """Move the end of a file with a buffer back to `position`, because the bytes after it could not be committed.

        Return False, and do nothing, if another thread has committed them meanwhile. The caller holds the lock for
        appending.
        """
        with self._commit_lock:
            if mapped_file.write_buffer is None or mapped_file.committed_position > position:
                return False
            mapped_file.take_back(position)
            return True

    def find_mapped_file_by_offset(self, offset: int, return_first_on_not_found: bool = False) -> MappedFile | None:
        """Return the file that contains `offset`, even in a part of it that is not written yet."""
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
        """Return the oldest file."""
        files = self.mapped_files
        return files[0] if files else None

    def retry_delete_first_file(self, interval_forcibly_ms: int) -> bool:
        """Retry the deletion of a first file that was still held when it should have been deleted."""
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
        """Close the files. Each is unmapped at once, or when its last reader is done."""
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
            log.info("not removing folder %s: %s", folder, error.strerror)


def destroy_all(files: list[MappedFile]) -> None:
    """Delete `files`.

    Differs: files that are to be destroyed are deleted even while they are being read. The original leaves them in the
    folder, where its next start finds them.
    """
    for mapped_file in files:
        if not mapped_file.destroy(1000 * 3):
            mapped_file.delete()


def _stat(path: str) -> os.stat_result:
    """Return the status of a file, or of a symbolic link whose target does not exist."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return os.lstat(path)


def _bring_to_length(path: str, length: int) -> None:
    """Set the length of a file, and force it to the disk before a later file is created: `do_load` refuses a wrong
    length in any file but the last."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, length)
        os.fsync(fd)
    finally:
        os.close(fd)


def _nothing(_offset: int) -> None:
    """Do nothing: the queue has no listener."""


def _sleep(interval_ms: int) -> bool:
    time.sleep(interval_ms / 1000)
    return False


_ASIDE = ".aside"
# The first 8 bytes of a file that has no record: zeros, where a record has its length and its magic code.
_BLANK = bytes(8)


class MultiPathMappedFileQueue(MappedFileQueue):
    """A queue of files in several folders.

    Files are created in the folders that are neither read-only nor full, or, if all are full, in those that are not
    read-only, in sorted order. File n goes to the folder with number n modulo their count.

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
        """Return the configured folders."""
        return set(self.config.get_store_path_commit_log().strip().split(MULTI_PATH_SPLITTER))

    def get_readonly_paths(self) -> set[str]:
        """Return the folders that are read but not written."""
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
        """Create the file in the folder whose turn it is."""
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
    """Move aside the files that have no record and whose offset another file has, too; return the other paths.

    One file of each offset stays.

    Differs: if two log files have the same offset and one of them has no record, that one is moved to a folder next to
    its own, which is not searched for the log; the original uses either of the two. If several files with the same
    offset have records, they stay, and an operator has to decide.
    """
    same_name: dict[str, list[str]] = {}
    for path in paths:
        same_name.setdefault(os.path.basename(path), []).append(path)
    for twins in same_name.values():
        blank = [path for path in twins if _is_blank(path)] if len(twins) > 1 else []
        for path in blank[1:] if len(blank) == len(twins) else blank:
            folder = os.path.dirname(path) + _ASIDE
            log.warning("%s has no messages, and another file has the same offset; moving it to %s", path, folder)
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
    """The limit on the number of mapped files of very many queues. Any thread may call it.

    Unmapping idle files
    --------------------
    A broker may have hundreds of thousands of consume queue files, but Linux allows a process only 65,530 maps by
    default (vm.max_map_count), and a map that can't be made is an error in the middle of a put or a pull. Most of the
    queues are idle. So a file is mapped at its first use, and when more than `limit` files are mapped (half of what the
    process may have), the keeper unmaps one.

    - Which one: the file that has been mapped longest, unless it was used since the keeper's last check
      (`is_touched`). Such a file gets a second chance and moves to the end. This approximates "least recently used",
      but an access only sets one attribute, and takes no lock.
    - Unmapping is safe at any time, because nothing is unmapped explicitly. `drop_map` drops the file's reference to
      the map; a thread that is using the map holds its own reference, and the memory is freed with the last one. The
      next access maps the file again. Bytes written through the old map are in the page cache, and the new map shows
      them.
    - A file calls `note` when it has been mapped and `forget` when it is closed. If the system refuses a map or a
      descriptor before the limit is reached, `make_room` unmaps half of the files, and the file tries again.

    `reads_ahead`: False during recovery, which jumps within files. Later, readers of a large file continue after what
    they have read, so the kernel may read ahead.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit if limit is not None else max_mapped_files()
        self._lock = threading.Lock()
        # The file that has been mapped longest comes first. Guarded by _lock.
        self._files: OrderedDict[MappedFile, None] = OrderedDict()
        # Guarded by _lock.
        self._is_short = False
        self.reads_ahead = False

    def note(self, mapped_file: MappedFile) -> None:
        """Note that the file has been mapped, and unmap another one if there are too many."""
        with self._lock:
            self._files[mapped_file] = None
            if len(self._files) > self.limit:
                if not self._is_short:
                    self._is_short = True
                    log.info("more than %s files of consume queues are in use: unmapping idle files", self.limit)
                self._drop_one()

    def forget(self, mapped_file: MappedFile) -> None:
        """Forget a closed file."""
        with self._lock:
            self._files.pop(mapped_file, None)

    def make_room(self) -> bool:
        """Unmap half of the files, because the system allows no more maps or descriptors.

        Return False if no file was mapped.
        """
        with self._lock:
            count = (len(self._files) + 1) // 2
            for _ in range(count):
                self._drop_one()
        return count > 0

    def end_recovery(self) -> None:
        """Unmap all files, because after recovery none of them is in use."""
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
            mapped_file.is_touched = False  # It gets a second chance.
            self._files[mapped_file] = None
        mapped_file, _none = self._files.popitem(last=False)
        mapped_file.drop_map()
