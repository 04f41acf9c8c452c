"""One mapped segment: the only module of the store that touches mmap (the checkpoint and the pool have their own).

    putting thread --append--> map ... kernel writes back ...          flushing thread --flush--> fdatasync
    HAClient, much at once: --append--> pwrite, which the map shows
    with a buffer of the TransientStorePool:
    putting thread --append--> buffer <--commit-- committing thread --pwrite--> file
    any thread     --select--> memoryview slice of the map + a share of the file, given back by `release`

One thread appends at a time (the put lock of the commit log, or the dispatching thread of a consume queue); positions
are integers that only grow while the store runs, so readers need no lock.

Files with a MapKeeper are mapped when they are touched first, and again after it took the map away. That only drops the
file's reference: whoever reads or writes has one of his own, and the memory goes with the last. What was written
through a map that is gone is in the page cache, where flushing finds it.
"""
from __future__ import annotations

import errno
import logging
import mmap
import os
import time
from contextlib import suppress
from typing import Protocol

from rmqha.common.filesystem import fsync_path, open_to_force
from rmqha.store import mapped_memory
from rmqha.store.mapped_memory import ReferenceResource, TransientStorePool
from rmqha.store.results import SelectMappedBufferResult

log = logging.getLogger("RocketmqStore")

OS_PAGE_SIZE = 1024 * 4
_ZERO_STEP = 1 << 20  # bytes compared and zeroed at a time
_WRITE_FROM = 64 << 10  # bytes appended at once from which on they are written to the file
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_MAP = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Bytes, of a file with a MapKeeper
_FIRST_RESERVE = OS_PAGE_SIZE
_READ_AHEAD_FROM = 1 << 20  # when it has so many
_OPEN_ATTEMPTS = 10


class Keeper(Protocol):
    """Decides which of very many files are mapped: MapKeeper."""

    @property
    def reads_ahead(self) -> bool: ...

    def note(self, mapped_file: MappedFile) -> None:
        """It has a map now."""

    def forget(self, mapped_file: MappedFile) -> None:
        """It is closed."""

    def make_room(self) -> bool:
        """Take maps away, since the system gives no more; False when there is none to take."""


class MappedFile(ReferenceResource):
    """A file of fixed size, named by the offset of its first byte, mapped whole and appended to.

    `allocation_unit`: disk blocks are reserved this many bytes at a time ahead of the writer; 0 leaves the file sparse.
    `keep_descriptor`: keep one descriptor open for flushing (the commit log); others open the file for each flush.
    `transient_store_pool`: write through one of its buffers, if it has one left; what is not committed is not readable.
    `map_keeper`: of a file that is one of very many: it is mapped while it is used, and its first blocks are few.
    `is_there`: it is, and has its length; with a `map_keeper` nothing is opened yet.

    Java: org.apache.rocketmq.store.MappedFile (4.9.8)
    """

    def __init__(self, file_name: str, file_size: int, allocation_unit: int = 0, keep_descriptor: bool = False,
                 transient_store_pool: TransientStorePool | None = None, map_keeper: Keeper | None = None,
                 is_there: bool = False) -> None:
        super().__init__()
        self.file_name = file_name
        self.file_size = file_size
        self.file_from_offset = int(os.path.basename(file_name))
        self.wrote_position = 0  # bytes; written by the one appending thread
        self.committed_position = 0  # bytes; meaningful with a write buffer; written by the committing thread
        self.flushed_position = 0  # bytes; written by the flushing thread
        self.store_timestamp = 0  # ms, of the last appended message
        self.first_create_in_queue = False
        self._allocation_unit = allocation_unit
        self._allocated_to = file_size if allocation_unit == 0 else 0  # bytes reserved; written by the appending thread
        # Folders that do not have the name on the disk yet, the file's first; emptied by the first flush
        self._folders_to_sync = [] if is_there else _folders_that_change(file_name)
        self._fd = -1
        self._map_keeper = map_keeper
        self.is_touched = False  # the map was used since the keeper looked; of files that have one
        # Both or none; set under _clean_lock, taken away by the keeper without it
        self._mmap: mmap.mmap | None = None
        self._view: memoryview | None = None
        if map_keeper is None or not is_there:
            self._open_and_map(keep_descriptor)
        self.transient_store_pool = transient_store_pool
        # Given back by the committing thread once the file is full and committed, or by cleanup.
        self.write_buffer: memoryview | None = transient_store_pool.borrow_buffer() if transient_store_pool else None

    def _open_and_map(self, keep_descriptor: bool) -> None:
        fd = _open_or_create(self.file_name)
        try:
            # The length is looked at before mapping: touching a page beyond the end of the file kills the process.
            if os.fstat(fd).st_size < self.file_size:
                os.ftruncate(fd, self.file_size)
            mapped = self._map_of(fd)
        except (OSError, ValueError):
            os.close(fd)
            log.exception("Failed to map file %s", self.file_name)
            raise
        self._mmap, self._view = mapped, memoryview(mapped)
        if keep_descriptor:
            self._fd = fd
        else:
            os.close(fd)
        if self._map_keeper is not None:
            self._map_keeper.note(self)

    # The map of a file with a keeper.

    def _map(self) -> memoryview:
        """The map, made again when the keeper took it away. OSError when that can't be; only for who holds the file."""
        view = self._view
        if view is not None:
            return view
        keeper = self._map_keeper
        if keeper is None:
            raise self._unmapped_for_good()
        try:
            view = self._map_again()
        except OSError as error:
            if error.errno not in _NO_MAP or not keeper.make_room():
                raise
            view = self._map_again()
        keeper.note(self)
        return view

    def _unmapped_for_good(self) -> OSError:
        return OSError(errno.EBADF, "unmapped for good", self.file_name)

    def _map_again(self) -> memoryview:
        with self._clean_lock:
            view = self._view
            if view is not None:
                return view
            if self.cleanup_over:
                raise self._unmapped_for_good()
            fd = os.open(self.file_name, os.O_RDWR | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size < self.file_size:
                    raise OSError(errno.EIO, "somebody has cut the file", self.file_name)
                mapped = self._map_of(fd)
            finally:
                os.close(fd)
            view = memoryview(mapped)
            self._mmap, self._view = mapped, view
            return view

    def _map_of(self, fd: int) -> mmap.mmap:
        mapped = mmap.mmap(fd, self.file_size)
        # The first touch of a file that is nearly all hole must not fill memory with the zeros behind it
        if self._map_keeper is not None and not (self._map_keeper.reads_ahead
                                                 and self.wrote_position >= _READ_AHEAD_FROM):
            mapped.madvise(mmap.MADV_RANDOM)
        return mapped

    def drop_map(self) -> None:
        """By the keeper: the map goes, once nobody uses it any more."""
        self._mmap = self._view = None

    @property
    def is_mapped(self) -> bool:
        """Whether it costs a map."""
        return self._view is not None

    @property
    def last_modified_timestamp(self) -> int:
        """Modification time of the file in ms; 0 when it is gone."""
        try:
            return os.stat(self.file_name).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    # Appending: one thread at a time.

    def fill_up(self, blank: bytes, store_timestamp: int) -> None:
        """Nothing more fits in: write `blank` at the write position, and close the file. OSError when the disk is full.
        """
        position = self.wrote_position
        self.write_at(position, blank)
        if self.write_buffer is not None:
            # Differs: nothing lies behind the blank that closes a file; a buffer that was used before leaves bytes
            # of an older file there in the original
            behind = position + len(blank)
            self.write_buffer[behind:] = bytes(self.file_size - behind)
        self.wrote_position = self.file_size
        self.store_timestamp = store_timestamp

    def append_bytes(self, data: bytes | bytearray | memoryview) -> bool:
        """Append `data` as it is; False when it does not fit. OSError when the disk is full."""
        current_pos = self.wrote_position
        end = current_pos + len(data)
        if end > self.file_size:
            return False
        if len(data) >= _WRITE_FROM and self._fd >= 0 and self.write_buffer is None:
            self._write_to_file(current_pos, memoryview(data))
        else:
            self.write_at(current_pos, data)
        self.wrote_position = end
        self.is_touched = True
        return True

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Put `data` into the map (or buffer) at `position`; the write position stays. OSError: the disk is full."""
        end = position + len(data)
        if end > self._allocated_to:
            self.allocate(position, end)
        (self.write_buffer or self._mmap or self._map())[position:end] = data

    def _write_to_file(self, position: int, data: memoryview) -> None:
        """As `write_at`; the map shows it. No page is cleared and mapped, and other threads run meanwhile.

        OSError: nothing of it is there.
        """
        if not self.hold():  # else the descriptor might be closed, and be another file's
            raise self._unmapped_for_good()
        written = 0
        try:
            self.reserve(position, position + len(data))
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], position + written)
        except OSError:
            # What lies behind the end has to be zero: what is written there next may be shorter.
            os.pwrite(self._fd, bytes(written), position)
            raise
        finally:
            self.release()

    def reserve(self, start: int, end: int) -> None:
        """Have disk blocks for the bytes from `start` to `end`. OSError: the disk is full."""
        if end > self._allocated_to:
            self.allocate(start, end)

    def allocate(self, start: int, end: int) -> None:
        """Reserve disk blocks for the bytes from `start` to `end`, rounded up to the unit. OSError: the disk is full.

        Differs: the original leaves its files sparse, and a full disk kills it with SIGBUS in the middle of a write.
        """
        unit, begin = self._allocation_unit, max(start, self._allocated_to)
        if self._map_keeper is not None:  # as much again as there is
            unit = min(unit, max(_FIRST_RESERVE, 1 << begin.bit_length() >> 1))
        stop = min(self.file_size, (end + unit - 1) // unit * unit)
        fd = self._fd if self._fd >= 0 else os.open(self.file_name, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                os.posix_fallocate(fd, begin, stop - begin)
            except OSError as error:
                if not is_no_space(error):
                    raise
                stop = min(self.file_size, -(-end // OS_PAGE_SIZE) * OS_PAGE_SIZE)  # the last pages of a small disk
                os.posix_fallocate(fd, begin, stop - begin)
        finally:
            if fd != self._fd:
                os.close(fd)
        self._allocated_to = stop

    # Flushing: one thread.

    def flush(self, flush_least_pages: int) -> int:
        """Force what was written to the disk when it is at least so many pages (0: anything); the flushed position.

        OSError when the disk says no: the position stays, and the caller must not try again, because Linux forgets
        the dirty pages of a failed write-back. NotAskedError when file or folder can't be opened: he may.
        """
        if self._is_able_to_flush(flush_least_pages):
            if self.hold():
                try:
                    value = self.read_position
                    self._force()
                    self.flushed_position = value
                finally:
                    self.release()
            else:
                log.warning("in flush, hold failed, flush offset = %s", self.flushed_position)
                self.flushed_position = self.read_position
        return self.flushed_position

    def force(self) -> None:
        """Force all dirty pages of the file to the disk. OSError when the disk says no."""
        if self.hold():
            try:
                self._force()
            finally:
                self.release()

    def sync_length_and_name(self) -> None:
        """Have a new file with a descriptor of its own on the disk. OSError when the disk says no."""
        if self.hold():
            try:
                os.fsync(self._fd)
                self._sync_name()
            finally:
                self.release()

    def commit(self, commit_least_pages: int) -> int:
        """Write the buffer to the file when at least so many pages wait (0: anything); the committed position.

        Without a buffer there is nothing to commit: the write position. OSError when the disk says no: what is not
        committed stays in the buffer.
        """
        buffer = self.write_buffer
        if buffer is None:
            return self.wrote_position
        if self._is_able_to_commit(commit_least_pages):
            if self.hold():
                try:
                    self._commit0(buffer)
                    if self.committed_position == self.file_size:
                        self._return_write_buffer()
                finally:
                    self.release()
            else:
                log.warning("in commit, hold failed, commit offset = %s", self.committed_position)
        return self.committed_position

    def _commit0(self, buffer: memoryview) -> None:
        # Differs: a failed write is the caller's to see; the original logs it, and goes on
        write_pos = self.wrote_position
        written = self.committed_position
        while written < write_pos:
            with buffer[written:write_pos] as waiting:
                written += os.pwrite(self._fd, waiting, written)
        # only whole: readers take the end of what is committed for the end of a record
        self.committed_position = write_pos

    def _return_write_buffer(self) -> None:
        buffer, self.write_buffer = self.write_buffer, None
        if buffer is not None and self.transient_store_pool is not None:
            self.transient_store_pool.return_buffer(buffer)

    def _is_able_to_commit(self, commit_least_pages: int) -> bool:
        commit, write = self.committed_position, self.wrote_position
        if self.is_full:
            return True
        if commit_least_pages > 0:
            return write // OS_PAGE_SIZE - commit // OS_PAGE_SIZE >= commit_least_pages
        return write > commit

    def _force(self) -> None:
        # fdatasync writes the pages dirtied through the map like msync does, and lets go of the GIL.
        if self._fd >= 0:
            os.fdatasync(self._fd)
            self._sync_name()
            return
        try:
            fd = open_to_force(self.file_name, os.O_RDWR)
        except FileNotFoundError:
            log.info("%s is deleted, nothing to force", self.file_name)
            return
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self._sync_name()

    def _sync_name(self) -> None:
        """The first time: a file that is on the disk under no name is lost.

        Differs: the original leaves the names of new files to the file system.
        """
        if self._folders_to_sync:
            for folder in self._folders_to_sync:
                fsync_folder(folder)
            self._folders_to_sync = []

    def _sync_new_folders(self) -> None:
        """Those that were made for a file that goes before it was ever flushed: others lie in them by now."""
        folders, self._folders_to_sync = self._folders_to_sync[1:], []
        for folder in folders:
            try:
                fsync_folder(folder)
            except OSError as error:
                log.error("the names in %s can't be forced to the disk: %s", folder, error)

    def _is_able_to_flush(self, flush_least_pages: int) -> bool:
        flush, write = self.flushed_position, self.read_position
        if self.is_full:
            return True
        if flush_least_pages > 0:
            return write // OS_PAGE_SIZE - flush // OS_PAGE_SIZE >= flush_least_pages
        return write > flush

    @property
    def is_full(self) -> bool:
        """True when not one byte is left."""
        return self.file_size == self.wrote_position

    # Reading: any thread.

    def select_mapped_buffer(self, pos: int, size: int | None = None) -> SelectMappedBufferResult | None:
        """The `size` bytes at `pos`, or all readable from `pos` on; None when they are not there, or the file goes."""
        read_position = self.wrote_position if self.write_buffer is None else self.committed_position
        if size is None:
            if not 0 <= pos < read_position or not self.hold():
                return None
            view = (self._view or self._map_or_release())[pos:read_position]
            self.is_touched = True
            return SelectMappedBufferResult(self.file_from_offset + pos, view, read_position - pos, self)
        if pos < 0 or size < 0 or pos + size > read_position:
            log.warning("selectMappedBuffer request pos invalid, request pos: %s, size: %s, fileFromOffset: %s",
                        pos, size, self.file_from_offset)
            return None
        if not self.hold():
            log.warning("matched, but hold failed, request pos: %s, fileFromOffset: %s", pos, self.file_from_offset)
            return None
        view = (self._view or self._map_or_release())[pos:pos + size]
        self.is_touched = True
        return SelectMappedBufferResult(self.file_from_offset + pos, view, size, self)

    def _map_or_release(self) -> memoryview:
        try:
            return self._map()
        except OSError:
            self.release()
            raise

    def slice_byte_buffer(self) -> memoryview:
        """The whole map, writable; only for the owner, who knows that the file stays."""
        return self._view or self._map()

    # Going away.

    def cleanup(self, current_ref: int) -> bool:
        """Unmap.

        Differs: the original unmaps under its last readers' feet once the forcible interval is over. A Python view
        keeps its memory: the file is closed and deleted, the memory goes with the last view.
        """
        if self.available:
            log.error("this file[REF:%s] %s have not shutdown, stop unmapping.", current_ref, self.file_name)
            return False
        if self.cleanup_over:
            log.error("this file[REF:%s] %s have cleanup, do not do it again.", current_ref, self.file_name)
            return True
        # Differs: uncommitted or not, the buffer goes back; the original never sees it again
        self._return_write_buffer()
        if self._map_keeper is not None:
            self._map_keeper.forget(self)
        mapped, self._mmap, view, self._view = self._mmap, None, self._view, None
        if mapped is not None and view is not None:
            view.release()
            try:
                mapped.close()
            except BufferError:
                log.warning("%s is still read, its memory goes with the last reader", self.file_name)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        log.info("unmap file[REF:%s] %s OK", current_ref, self.file_name)
        return True

    def destroy(self, interval_forcibly_ms: int) -> bool:
        """Shut down, and delete the file once nobody reads it; False when somebody still does."""
        self.shutdown(interval_forcibly_ms)
        if not self.is_cleanup_over:
            log.warning("destroy mapped file[REF:%s] %s Failed. cleanupOver: %s",
                        self.ref_count, self.file_name, self.cleanup_over)
            return False
        self.delete()
        return True

    def delete(self) -> None:
        """Delete the file. Readers keep what they see until they let go of it."""
        begin = time.monotonic_ns()
        self._sync_new_folders()
        try:
            os.unlink(self.file_name)
            deleted = True
        except OSError as error:
            deleted = isinstance(error, FileNotFoundError)
            log.warning("delete file %s Failed. %s", self.file_name, error)
        log.info("delete file[REF:%s] %s%s W:%s M:%s, %s", self.ref_count, self.file_name,
                 " OK, " if deleted else " Failed, ", self.wrote_position, self.flushed_position,
                 (time.monotonic_ns() - begin) // 1_000_000)

    @property
    def read_position(self) -> int:
        """End of the readable bytes."""
        return self.wrote_position if self.write_buffer is None else self.committed_position

    def set_positions(self, position: int) -> None:
        """Set the write, commit and flush positions at once: recovery found the end of the data."""
        self.wrote_position = position
        self.committed_position = position
        self.flushed_position = position

    def go_back_to(self, position: int) -> None:
        """The data ends at `position`, or goes on there; what is not flushed stays so.

        Differs: the original takes all that is left for flushed.
        """
        # what lies in the buffer alone has still to be committed
        self.committed_position = position if self.write_buffer is None else min(self.committed_position, position)
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def take_back(self, position: int) -> None:
        """Forget what was appended to the buffer from `position` on, of which nothing is committed."""
        size, self.wrote_position = self.wrote_position - position, position
        try:  # a write may have come to a part of it, and what is written there next may be shorter
            os.pwrite(self._fd, bytes(size), position)
        except OSError as error:
            log.error("%s bytes at %s of %s can't be set to zero: %s", size, position, self.file_name, error)

    def zero_from(self, position: int) -> None:
        """Set everything behind `position` to zero and force it to the disk. Holes of a sparse file stay holes.

        Differs: recovery of the original only moves its positions back; what lies behind them can come to life again
        when the next crash finds it after newer records.
        """
        fd = os.open(self.file_name, os.O_RDWR | os.O_CLOEXEC)
        try:
            changed = False
            for start, end in _data_extents(fd, position, self.file_size):
                changed |= self._zero_range(start, end)
            if changed:
                os.fdatasync(fd)
        finally:
            os.close(fd)

    def _zero_range(self, start: int, end: int) -> bool:
        changed, view = False, self.slice_byte_buffer()
        zeros = bytes(min(_ZERO_STEP, end - start))
        for at in range(start, end, _ZERO_STEP):
            stop = min(at + _ZERO_STEP, end)
            if bytes(view[at:stop]) != zeros[:stop - at]:
                view[at:stop] = zeros[:stop - at]
                changed = True
        return changed

    def first_byte_behind(self, position: int) -> int:
        """Where something but zeros lies, from `position` on; -1: nowhere. Holes of a sparse file are not read."""
        view = self.slice_byte_buffer()
        for start, end in self.data_extents(position):
            for at in range(start, end, _ZERO_STEP):
                data = bytes(view[at:min(at + _ZERO_STEP, end)])
                rest = data.lstrip(b"\0")
                if rest:
                    return at + len(data) - len(rest)
        return -1

    def data_extents(self, position: int) -> list[tuple[int, int]]:
        """The parts of the file from `position` on that are not holes."""
        fd = os.open(self.file_name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _data_extents(fd, position, self.file_size)
        finally:
            os.close(fd)

    def warm_mapped_file(self, sync_flush: bool, pages: int) -> None:
        """Touch every page so that the first writes meet no page fault, and lock them in memory.

        With `sync_flush` each `pages` pages are forced to the disk.
        """
        begin = time.monotonic_ns()
        if self._allocated_to < self.file_size:
            self.allocate(0, self.file_size)
        flushed, view = 0, self.slice_byte_buffer()
        for at in range(0, self.file_size, OS_PAGE_SIZE):
            view[at] = 0
            if sync_flush and at // OS_PAGE_SIZE - flushed // OS_PAGE_SIZE >= pages:
                flushed = at
                self._force()
        if sync_flush:
            self._force()
        log.info("mapped file warm-up done. mappedFile=%s, costTime=%s", self.file_name,
                 (time.monotonic_ns() - begin) // 1_000_000)
        self.mlock()

    def _own_map(self) -> mmap.mmap:
        """Of a file without a keeper that is not closed."""
        assert self._mmap is not None
        return self._mmap

    def mlock(self) -> bool:
        """Lock the map in memory, and have it read ahead; False when the system does not lock it."""
        mapped = self._own_map()
        result = mapped_memory.mlock(mapped, self.file_name)
        mapped.madvise(mmap.MADV_WILLNEED)
        return result

    def set_read_ahead(self, enabled: bool) -> None:
        """Have the kernel read ahead, as it does by itself, or not."""
        self._own_map().madvise(mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)

    def munlock(self) -> bool:
        """Undo `mlock`; False when the file is gone, or the system says no."""
        if not self.hold():
            return False
        try:
            return mapped_memory.munlock(self._mmap, self.file_name)
        finally:
            self.release()

    def __repr__(self) -> str:
        return self.file_name


def fsync_folder(folder: str) -> None:
    """Have the names in `folder` on the disk as they are now. A folder that is gone has none.

    OSError; NotAskedError when it can't be opened.
    """
    with suppress(FileNotFoundError):
        fsync_path(folder)


def is_no_space(error: OSError) -> bool:
    """True when the disk or a quota is full."""
    return error.errno in _NO_SPACE


def ensure_dir_ok(dir_name: str, splitter: str = ",") -> None:
    """Make the folder (or each of several, joined by the splitter) when it is not there.

    Java: org.apache.rocketmq.store.MappedFile#ensureDirOK (4.9.8)
    """
    for path in dir_name.strip().split(splitter):
        if path and not os.path.exists(path):
            changed = _folders_that_change(path)
            os.makedirs(path, exist_ok=True)
            for folder in changed:
                fsync_folder(folder)
            log.info("%s mkdir OK", path)


def _open_or_create(file_name: str) -> int:
    """A descriptor; the folder is made, too, and again when a queue that is being deleted takes it away meanwhile."""
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            os.makedirs(os.path.dirname(file_name), exist_ok=True)
            return os.open(file_name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except (FileExistsError, FileNotFoundError):  # it was there for makedirs, or for open no more
            if attempt == _OPEN_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _folders_that_change(path: str) -> list[str]:
    """The folders that get a new name when `path` is made, and what of its folders is missing; the lowest first."""
    folders = []
    while path and not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
        folders.append(path or ".")
    return folders


def _data_extents(fd: int, start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of a file between `start` and `stop` that are not holes."""
    extents = []
    at = start
    while at < stop:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only holes up to the end
                break
            return [(start, stop)]  # the file system knows no holes
        if begin >= stop:
            break
        at = min(os.lseek(fd, begin, os.SEEK_HOLE), stop)
        extents.append((max(begin, start), at))
    return extents
