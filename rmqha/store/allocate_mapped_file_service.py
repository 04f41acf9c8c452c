"""Creates the files of the commit log before they are needed.

    putting thread --put_request_and_return_mapped_file--> [queue] --> AllocateMappedFileService: create, map, warm
                   <-----------------waits at most 5 s---------------
"""
from __future__ import annotations

import logging
import os
import threading
from collections import deque

from rmqha.common.filesystem import NotAskedError
from rmqha.common.process import how_to_raise
from rmqha.common.service_thread import ServiceThread
from rmqha.store.mapped_file import MappedFile, fsync_folder
from rmqha.store.mapped_memory import TransientStorePool
from rmqha.store.message_store_config import FlushDiskType
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

WAIT_TIME_OUT_MS = 1000 * 5
_IDLE_MS = 60_000
# Bytes of disk space that are reserved at a time.
ALLOCATION_UNIT = 64 * 1024 * 1024
# The requested file and the one after it.
_FILES_IN_STOCK = 2


class AllocateRequest:
    """A request to create a file.

    Java: org.apache.rocketmq.store.AllocateMappedFileService$AllocateRequest (4.9.8)
    """

    __slots__ = ("file_path", "file_size", "done", "mapped_file", "error", "is_dropped")

    def __init__(self, file_path: str, file_size: int) -> None:
        self.file_path = file_path
        self.file_size = file_size
        self.done = threading.Event()
        self.mapped_file: MappedFile | None = None
        self.error: BaseException | None = None
        # True once no thread waits for the file any more. Guarded by the service's lock.
        self.is_dropped = False


class AllocateMappedFileService(ServiceThread):
    """The thread that keeps one file of the commit log ready for use.

    `allocation_unit`: the number of bytes of each file for which disk blocks are reserved at a time; 0 reserves none.

    Java: org.apache.rocketmq.store.AllocateMappedFileService (4.9.8)
    """

    def __init__(self, state: StoreState, transient_store_pool: TransientStorePool) -> None:
        super().__init__()
        config = state.config
        unit = min(ALLOCATION_UNIT, config.mappedFileSizeCommitLog)
        self.allocation_unit = unit if config.preallocateMappedFile else 0
        self._state = state
        self._transient_store_pool = transient_store_pool
        self._lock = threading.Lock()
        self._request_table: dict[str, AllocateRequest] = {}  # guarded by _lock
        self._request_queue: deque[AllocateRequest] = deque()  # guarded by _lock

    def put_request_and_return_mapped_file(self, next_file_path: str, next_next_file_path: str,
                                           file_size: int) -> MappedFile | None:
        """Return the file at `next_file_path`, and have the one after it prepared.

        Return None if the file can't be created, or not within 5 s. With fastFailIfNoBufferInStorePool, also return
        None if the TransientStorePool has no buffer for the file.

        Differs: if a new file of the log can't be created, the put fails at once, and the next one tries again. The
        original retries forever in a loop of 1 ms and refuses all requests meanwhile.
        """
        with self._lock:
            self._drop_twins_of(next_file_path)
            self._drop_twins_of(next_next_file_path)
            can_submit = self._can_submit_requests()
            request = self._submit(next_file_path, file_size, can_submit > 0)
            if request is None:
                log.warning("[NOTIFYME]TransientStorePool is not enough, so create mapped file error, "
                            "RequestQueueSize : %s", len(self._request_queue))
                return None
            if self._request_queue and self._request_queue[-1] is request:
                can_submit -= 1
            if self._submit(next_next_file_path, file_size, can_submit > 0) is None:
                log.warning("[NOTIFYME]TransientStorePool is not enough, so skip preallocate mapped file, "
                            "RequestQueueSize : %s", len(self._request_queue))
        self.wakeup()
        finished = request.done.wait(WAIT_TIME_OUT_MS / 1000)
        if not finished:
            log.warning("create mmap timeout %s %s", request.file_path, request.file_size)
            return None
        with self._lock:
            self._request_table.pop(next_file_path, None)
        return request.mapped_file

    def _drop_twins_of(self, file_path: str) -> None:
        """Forget and delete a file with the same offset in another folder. The caller holds the lock.

        Differs: when a disk fills up, the log continues in another folder than the one in which its next file was
        already created. The original keeps both files, and its next start may open the log with either.
        """
        name = os.path.basename(file_path)
        for path in [path for path in self._request_table if path != file_path and os.path.basename(path) == name]:
            request = self._request_table.pop(path)
            request.is_dropped = True
            if request in self._request_queue:
                self._request_queue.remove(request)
            elif request.done.is_set():
                self._delete(request)

    @staticmethod
    def _delete(request: AllocateRequest) -> None:
        if request.mapped_file is not None:
            log.info("delete pre allocated maped file, %s", request.mapped_file.file_name)
            request.mapped_file.destroy(1000)
        elif os.path.exists(request.file_path):
            # The disk had room for the file's name only.
            os.unlink(request.file_path)
        try:
            fsync_folder(os.path.dirname(request.file_path))
        except NotAskedError as error:
            # A power loss may bring the file back. It has no records, so recovery treats it as after any crash.
            log.error("can't force the deletion of %s to the disk now: %s%s", request.file_path, error,
                      how_to_raise(error))

    def _can_submit_requests(self) -> int:
        """Return the number of files that may be requested. The caller holds the lock."""
        config, pool = self._state.config, self._transient_store_pool
        if pool.is_in_use and config.fastFailIfNoBufferInStorePool and not self._state.role.is_slave:
            return pool.available_buffer_nums() - len(self._request_queue)
        return _FILES_IN_STOCK

    def _submit(self, file_path: str, file_size: int, may_submit: bool) -> AllocateRequest | None:
        request = self._request_table.get(file_path)
        if request is None or request.error is not None:
            if not may_submit:
                return None
            request = self._request_table[file_path] = AllocateRequest(file_path, file_size)
            self._request_queue.append(request)
        return request

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop, and delete the files that were created in advance."""
        super().shutdown(interrupt)
        with self._lock:
            requests = list(self._request_table.values())
            self._request_table.clear()
            self._request_queue.clear()
        for request in requests:
            # A waiting thread gets None.
            request.done.set()
            self._delete(request)

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            with self._lock:
                request = self._request_queue.popleft() if self._request_queue else None
            if request is None:
                self.wait_for_running(_IDLE_MS)
            else:
                self._mmap_operation(request)
        log.info("%s service end", self.get_service_name())

    def _mmap_operation(self, request: AllocateRequest) -> None:
        config, pool, mapped_file = self._state.config, self._transient_store_pool, None
        try:
            mapped_file = MappedFile(request.file_path, request.file_size, self.allocation_unit, True,
                                     pool if pool.is_in_use else None)
            if self.allocation_unit:
                mapped_file.allocate(0, 1)
            if not config.dataReadAheadEnable:
                mapped_file.set_read_ahead(False)
            if mapped_file.file_size >= config.mappedFileSizeCommitLog and config.warmMapedFileEnable:
                mapped_file.warm_mapped_file(config.flushDiskType is FlushDiskType.SYNC_FLUSH,
                                             config.flushLeastPagesWhenWarmMapedFile)
            request.mapped_file = mapped_file
        except BaseException as error:
            log.warning("%s service has exception. ", self.get_service_name(), exc_info=error)
            request.error = error
            if mapped_file is not None:
                # The next attempt maps it again.
                mapped_file.shutdown(0)
        finally:
            request.done.set()
        with self._lock:
            if request.is_dropped:
                self._delete(request)
                return
        if request.mapped_file is not None:
            self._sync(request.mapped_file)

    def _sync(self, mapped_file: MappedFile) -> None:
        """Force a new file's length and name to the disk before the next file is created.

        Differs: a crash never leaves the later of two files without the earlier one. The original leaves that to the
        file system.
        """
        try:
            mapped_file.sync_length_and_name()
        except NotAskedError as error:
            # The file's first flush does it.
            log.error("can't force the name of %s to the disk now: %s%s", mapped_file.file_name, error,
                      how_to_raise(error))
        except OSError as error:
            # The disk reports a failure only once: the file's first flush would report a false success.
            log.exception("can't force %s to the disk; the store is now read-only", mapped_file.file_name)
            self._state.running_flags.make_flush_error(f"a flush of {mapped_file.file_name}: {error!r}")
