"""One mapped file. Only this module maps files of the store, apart from the checkpoint and the pool.

    putting thread --append--> map ... kernel writes back ...          flushing thread --flush--> fdatasync
    HAClient, large pieces: --append--> pwrite, which the map shows
    with a buffer of the TransientStorePool:
    putting thread --append--> buffer <--commit-- committing thread --pwrite--> file
    any thread     --select--> memoryview slice of the map + a reference to the file, given back by `release`

One thread appends at a time: the holder of the commit log's put lock, or the dispatching thread for a consume queue.
Positions are integers that only grow, except when the log is truncated or an uncommitted piece is taken back. Readers
need no lock: they read a position once, and the bytes before it are complete.

A file with a MapKeeper is mapped at its first use, and again after the keeper has unmapped it. Unmapping only drops the
file's own reference to the map. A thread that is reading or writing holds another one, and the memory is freed with the
last reference. Bytes that were written through a map that is gone are in the page cache, from where they are flushed.
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
# Bytes that are compared and zeroed at a time.
_ZERO_STEP = 1 << 20
# Appends of at least this many bytes are written to the file instead of the map.
_WRITE_FROM = 64 << 10
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_MAP = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# For files with a MapKeeper, in bytes: the first reservation of disk space, and the amount of data that a file must
# have before the kernel may read ahead in it.
_FIRST_RESERVE = OS_PAGE_SIZE
_READ_AHEAD_FROM = 1 << 20
_OPEN_ATTEMPTS = 10


class Keeper(Protocol):
    """The interface of MapKeeper, which decides which of very many files are mapped."""

    @property
    def reads_ahead(self) -> bool: ...

    def note(self, mapped_file: MappedFile) -> None:
        """Note that the file has been mapped."""

    def forget(self, mapped_file: MappedFile) -> None:
        """Forget a closed file."""

    def make_room(self) -> bool:
        """Unmap files, because the system allows no more maps; return False if no file is mapped."""


class MappedFile(ReferenceResource):
    """A file of fixed size, named after the offset of its first byte, mapped completely, and only appended to.

    `allocation_unit`: disk blocks are reserved this many bytes at a time ahead of the writer; 0 leaves the file sparse.
    `keep_descriptor`: keep one descriptor open for flushing (the commit log); others open the file for each flush.
    `transient_store_pool`: write through one of its buffers, if one is free; bytes are readable once they are
    committed.
    `map_keeper`: for one of very many files, which is mapped only while it is used, and starts with few blocks.
    `is_there`: the file exists and has its full length; with a `map_keeper` it is not even opened yet.

    Java: org.apache.rocketmq.store.MappedFile (4.9.8)
    """

    def __init__(self, file_name: str, file_size: int, allocation_unit: int = 0, keep_descriptor: bool = False,
                 transient_store_pool: TransientStorePool | None = None, map_keeper: Keeper | None = None,
                 is_there: bool = False) -> None:
        super().__init__()
        self.file_name = file_name
        self.file_size = file_size
        self.file_from_offset = int(os.path.basename(file_name))
        # Bytes. Written by the appending thread.
        self.wrote_position = 0
        # Bytes; used only with a write buffer. Written by the committing thread.
        self.committed_position = 0
        # Bytes. Written by the flushing thread.
        self.flushed_position = 0
        self.store_timestamp = 0  # ms, of the last appended message
        self.first_create_in_queue = False
        self._allocation_unit = allocation_unit
        # Bytes reserved on disk. Written by the appending thread.
        self._allocated_to = file_size if allocation_unit == 0 else 0
        # The folders with new entries (files or folders) that are not on the disk yet, the file's own folder first.
        # Emptied by the first flush.
        self._folders_to_sync = [] if is_there else _folders_that_change(file_name)
        self._fd = -1
        self._map_keeper = map_keeper
        # For files with a keeper: the map was used since the keeper's last check.
        self.is_touched = False
        # Either both are set or neither. They are set under _clean_lock; the keeper clears them without the lock.
        self._mmap: mmap.mmap | None = None
        self._view: memoryview | None = None
        if map_keeper is None or not is_there:
            self._open_and_map(keep_descriptor)
        self.transient_store_pool = transient_store_pool
        # Returned by the committing thread when the file is full and committed, or by `cleanup`.
        self.write_buffer: memoryview | None = transient_store_pool.borrow_buffer() if transient_store_pool else None

    def _open_and_map(self, keep_descriptor: bool) -> None:
        fd = _open_or_create(self.file_name)
        try:
            # The length is checked before mapping, because touching a page beyond the file's end kills the process.
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
        """Return the map, after mapping the file again if the keeper has unmapped it.

        Raise OSError if that fails. Only for threads that hold the file.
        """
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
                    raise OSError(errno.EIO, "another process has truncated the file", self.file_name)
                mapped = self._map_of(fd)
            finally:
                os.close(fd)
            view = memoryview(mapped)
            self._mmap, self._view = mapped, view
            return view

    def _map_of(self, fd: int) -> mmap.mmap:
        mapped = mmap.mmap(fd, self.file_size)
        # No read-ahead in a file that is nearly all hole: it would fill memory with pages of zeros.
        if self._map_keeper is not None and not (self._map_keeper.reads_ahead
                                                 and self.wrote_position >= _READ_AHEAD_FROM):
            mapped.madvise(mmap.MADV_RANDOM)
        return mapped

    def drop_map(self) -> None:
        """Drop the map, for the keeper. Its memory is freed when the last user is done."""
        self._mmap = self._view = None

    @property
    def is_mapped(self) -> bool:
        """True if the file is mapped."""
        return self._view is not None

    @property
    def last_modified_timestamp(self) -> int:
        """The modification time of the file in ms; 0 if it is deleted."""
        try:
            return os.stat(self.file_name).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    # Appending: one thread at a time.

    def fill_up(self, blank: bytes, store_timestamp: int) -> None:
        """Close a file into which nothing more fits, with `blank` at the write position.

        Raise OSError if the disk is full.
        """
        position = self.wrote_position
        self.write_at(position, blank)
        if self.write_buffer is not None:
            # Differs: only zeros follow the blank that closes a file. In the original a reused buffer leaves bytes of
            # an older file there.
            behind = position + len(blank)
            self.write_buffer[behind:] = bytes(self.file_size - behind)
        self.wrote_position = self.file_size
        self.store_timestamp = store_timestamp

    def append_bytes(self, data: bytes | bytearray | memoryview) -> bool:
        """Append `data` unchanged; return False if it does not fit. Raise OSError if the disk is full."""
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
        """Write `data` to the map (or buffer) at `position`, without moving the write position.

        Raise OSError if the disk is full.
        """
        end = position + len(data)
        if end > self._allocated_to:
            self.allocate(position, end)
        (self.write_buffer or self._mmap or self._map())[position:end] = data

    def _write_to_file(self, position: int, data: memoryview) -> None:
        """Write `data` at `position` like `write_at`, but to the file; the map shows the bytes.

        No page has to be cleared and mapped for it, and other threads run meanwhile. Raise OSError if it fails; then
        nothing was written.
        """
        if not self.hold():  # otherwise the descriptor might be closed, and already belong to another file
            raise self._unmapped_for_good()
        written = 0
        try:
            self.reserve(position, position + len(data))
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], position + written)
        except OSError:
            # Zero what was written of `data`: only zeros may follow the log's end, and the next write may be shorter.
            os.pwrite(self._fd, bytes(written), position)
            raise
        finally:
            self.release()

    def reserve(self, start: int, end: int) -> None:
        """Ensure that disk blocks are reserved for the bytes from `start` to `end`. Raise OSError if the disk is full.
        """
        if end > self._allocated_to:
            self.allocate(start, end)

    def allocate(self, start: int, end: int) -> None:
        """Reserve disk blocks for the bytes from `start` to `end`, rounded up to the unit.

        Raise OSError if the disk is full.

        Differs: disk blocks are reserved before bytes are written; the original leaves its files sparse, and a full
        disk kills it with SIGBUS in the middle of a write.
        """
        unit, begin = self._allocation_unit, max(start, self._allocated_to)
        if self._map_keeper is not None:  # doubles the reserved bytes each time
            unit = min(unit, max(_FIRST_RESERVE, 1 << begin.bit_length() >> 1))
        stop = min(self.file_size, (end + unit - 1) // unit * unit)
        fd = self._fd if self._fd >= 0 else os.open(self.file_name, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                os.posix_fallocate(fd, begin, stop - begin)
            except OSError as error:
                if not is_no_space(error):
                    raise
                # The disk is nearly full: reserve only the pages that are needed now.
                stop = min(self.file_size, -(-end // OS_PAGE_SIZE) * OS_PAGE_SIZE)
                os.posix_fallocate(fd, begin, stop - begin)
        finally:
            if fd != self._fd:
                os.close(fd)
        self._allocated_to = stop

    # Flushing: one thread.

    def flush(self, flush_least_pages: int) -> int:
        """Flush the written bytes if they have at least `flush_least_pages` pages (0: any); return the flushed
        position.

        Raise OSError if the disk fails. The position then stays, and the caller must not retry, because Linux forgets
        the dirty pages of a failed write-back. Raise NotAskedError if the file or its folder can't be opened; then the
        caller may retry.
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
        """Force all dirty pages of the file to the disk. Raise OSError if the disk fails."""
        if self.hold():
            try:
                self._force()
            finally:
                self.release()

    def sync_length_and_name(self) -> None:
        """Force the length and the name of a new file to the disk. Raise OSError if the disk fails.

        For files that keep their descriptor.
        """
        if self.hold():
            try:
                os.fsync(self._fd)
                self._sync_name()
            finally:
                self.release()

    def commit(self, commit_least_pages: int) -> int:
        """Write the buffer to the file if at least `commit_least_pages` pages wait (0: any); return the committed
        position.

        Without a buffer nothing has to be committed; return the write position. Raise OSError if the disk fails; the
        bytes that are not committed stay in the buffer.
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
        # Differs: a failed write of a buffer is raised to the caller. The original logs it, and continues.
        write_pos = self.wrote_position
        written = self.committed_position
        while written < write_pos:
            with buffer[written:write_pos] as waiting:
                written += os.pwrite(self._fd, waiting, written)
        # The position moves only when all bytes are written, because readers treat it as the end of a record.
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
        # Like msync, fdatasync writes the pages that were dirtied through the map; it also releases the GIL.
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
        """Force the name of a new file to the disk, at its first flush. A file without a name is lost in a crash.

        Differs: the name of a new file is forced to the disk at its first flush. The original leaves that to the file
        system.
        """
        if self._folders_to_sync:
            for folder in self._folders_to_sync:
                fsync_folder(folder)
            self._folders_to_sync = []

    def _sync_new_folders(self) -> None:
        """Force the folders that were created for this file to the disk, before it is deleted without a flush.

        Other files may be in them by now.
        """
        folders, self._folders_to_sync = self._folders_to_sync[1:], []
        for folder in folders:
            try:
                fsync_folder(folder)
            except OSError as error:
                log.error("can't force the names in %s to the disk: %s", folder, error)

    def _is_able_to_flush(self, flush_least_pages: int) -> bool:
        flush, write = self.flushed_position, self.read_position
        if self.is_full:
            return True
        if flush_least_pages > 0:
            return write // OS_PAGE_SIZE - flush // OS_PAGE_SIZE >= flush_least_pages
        return write > flush

    @property
    def is_full(self) -> bool:
        """True if no byte is left."""
        return self.file_size == self.wrote_position

    # Reading: any thread.

    def select_mapped_buffer(self, pos: int, size: int | None = None) -> SelectMappedBufferResult | None:
        """Return the `size` bytes at `pos`, or all readable bytes from `pos` on.

        Return None if they are not readable, or if the file is being deleted.
        """
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
        """Return the whole map, writable. Only for the owner, which knows that the file is not deleted meanwhile."""
        return self._view or self._map()

    # Closing and deleting.

    def cleanup(self, current_ref: int) -> bool:
        """Unmap the file.

        Differs: after the forcible interval the original unmaps a file that is still being read. Here a view keeps its
        memory: the file is closed and deleted, and the memory is freed with the last view.
        """
        if self.available:
            log.error("this file[REF:%s] %s have not shutdown, stop unmapping.", current_ref, self.file_name)
            return False
        if self.cleanup_over:
            log.error("this file[REF:%s] %s have cleanup, do not do it again.", current_ref, self.file_name)
            return True
        # Differs: the write buffer of a file that is unmapped returns to the pool even with uncommitted bytes. The
        # original loses it for good.
        self._return_write_buffer()
        if self._map_keeper is not None:
            self._map_keeper.forget(self)
        mapped, self._mmap, view, self._view = self._mmap, None, self._view, None
        if mapped is not None and view is not None:
            view.release()
            try:
                mapped.close()
            except BufferError:
                log.warning("%s is still being read; its memory is freed with the last reader", self.file_name)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        log.info("unmap file[REF:%s] %s OK", current_ref, self.file_name)
        return True

    def destroy(self, interval_forcibly_ms: int) -> bool:
        """Shut down, and delete the file if it has no readers; return False if it still has some."""
        self.shutdown(interval_forcibly_ms)
        if not self.is_cleanup_over:
            log.warning("destroy mapped file[REF:%s] %s Failed. cleanupOver: %s",
                        self.ref_count, self.file_name, self.cleanup_over)
            return False
        self.delete()
        return True

    def delete(self) -> None:
        """Delete the file. Readers keep their bytes until they release them."""
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
        """The end of the readable bytes."""
        return self.wrote_position if self.write_buffer is None else self.committed_position

    def set_positions(self, position: int) -> None:
        """Set the write, commit and flush positions. For loading."""
        self.wrote_position = position
        self.committed_position = position
        self.flushed_position = position

    def go_back_to(self, position: int) -> None:
        """Set the end of the data to `position`. Bytes that are not flushed stay not flushed.

        Differs: a file that is truncated keeps its unflushed bytes unflushed; the original treats all remaining bytes
        as flushed.
        """
        # Bytes that are only in the buffer still have to be committed.
        self.committed_position = position if self.write_buffer is None else min(self.committed_position, position)
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def take_back(self, position: int) -> None:
        """Remove the uncommitted bytes that were appended to the buffer from `position` on."""
        size, self.wrote_position = self.wrote_position - position, position
        try:
            # A failed write may have written a part of them, and the next bytes written there may be fewer.
            os.pwrite(self._fd, bytes(size), position)
        except OSError as error:
            log.error("can't zero %s bytes at %s of %s: %s", size, position, self.file_name, error)

    def zero_from(self, position: int) -> None:
        """Zero everything from `position` on, and force it to the disk. Holes of a sparse file stay holes.

        Differs: what follows the end of the log is zeroed. Recovery of the original only moves its positions back.
        After the next crash the old records may then be found again, after newer ones.
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
        """Return the position of the first byte from `position` on that is not zero, or -1. Holes are not read."""
        view = self.slice_byte_buffer()
        for start, end in self.data_extents(position):
            for at in range(start, end, _ZERO_STEP):
                data = bytes(view[at:min(at + _ZERO_STEP, end)])
                rest = data.lstrip(b"\0")
                if rest:
                    return at + len(data) - len(rest)
        return -1

    def data_extents(self, position: int) -> list[tuple[int, int]]:
        """Return the parts of the file from `position` on that are not holes."""
        fd = os.open(self.file_name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _data_extents(fd, position, self.file_size)
        finally:
            os.close(fd)

    def warm_mapped_file(self, sync_flush: bool, pages: int) -> None:
        """Touch every page, so that the first writes cause no page faults, and lock the pages in memory.

        With `sync_flush`, force them to the disk after every `pages` pages.
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
        """Return the map of a file that has no keeper and is not closed."""
        assert self._mmap is not None
        return self._mmap

    def mlock(self) -> bool:
        """Lock the map in memory, and have it read ahead; return False if the system does not lock it."""
        mapped = self._own_map()
        result = mapped_memory.mlock(mapped, self.file_name)
        mapped.madvise(mmap.MADV_WILLNEED)
        return result

    def set_read_ahead(self, enabled: bool) -> None:
        """Enable or disable the kernel's read-ahead, which is on by default."""
        self._own_map().madvise(mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)

    def munlock(self) -> bool:
        """Undo `mlock`; return False if the file is closed or the system refuses."""
        if not self.hold():
            return False
        try:
            return mapped_memory.munlock(self._mmap, self.file_name)
        finally:
            self.release()

    def __repr__(self) -> str:
        return self.file_name


def fsync_folder(folder: str) -> None:
    """Force the names in `folder` to the disk. A folder that does not exist any more is ignored.

    Raise OSError if the disk fails, and NotAskedError if the folder can't be opened.
    """
    with suppress(FileNotFoundError):
        fsync_path(folder)


def is_no_space(error: OSError) -> bool:
    """Return whether the disk or a quota is full."""
    return error.errno in _NO_SPACE


def ensure_dir_ok(dir_name: str, splitter: str = ",") -> None:
    """Create the folder (or each of several, joined by the splitter) if it does not exist.

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
    """Return a descriptor of the file, and create its folder if necessary.

    The folder is created again if it is removed meanwhile with a queue that is being deleted.
    """
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            os.makedirs(os.path.dirname(file_name), exist_ok=True)
            return os.open(file_name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except (FileExistsError, FileNotFoundError):
            # Another thread has removed the folder meanwhile.
            if attempt == _OPEN_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _folders_that_change(path: str) -> list[str]:
    """Return the folders that get a new entry when `path` and its missing folders are created, the lowest first."""
    folders = []
    while path and not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
        folders.append(path or ".")
    return folders


def _data_extents(fd: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of a file between `start` and `stop` that are not holes."""
    extents = []
    at = start
    while at < stop:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only holes up to the end
                break
            return [(start, stop)]  # The file system does not support holes.
        if begin >= stop:
            break
        at = min(os.lseek(fd, begin, os.SEEK_HOLE), stop)
        extents.append((max(begin, start), at))
    return extents
