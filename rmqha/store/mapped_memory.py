"""The memory of mapped files: reference counts, locked pages and a pool of write buffers.

- `mlock`, `munlock`: the calls of the C library that prevent memory from being swapped out.
- `ReferenceResource`: a reference count for a resource that is deleted while other threads may still read it.
- `TransientStorePool`: the off-heap buffers through which commit log files are written, so that a put touches no page
  of the file:

    AllocateMappedFileService --borrow_buffer--> MappedFile: puts write the buffer
    CommitRealTimeService     --commit--> pwrite into the file; a full file, all committed --return_buffer--> pool

Java: org.apache.rocketmq.store.util.LibC (4.9.8)
"""
import ctypes
import logging
import mmap
import os
import threading
import time
from collections import deque
from typing import Any

from rmqha.store.message_store_config import MessageStoreConfig

log = logging.getLogger("RocketmqStore")

_LIB_C = ctypes.CDLL(None, use_errno=True)
for _call in (_LIB_C.mlock, _LIB_C.munlock):
    _call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    _call.restype = ctypes.c_int


def mlock(memory: Any, what: str) -> bool:
    """Lock the pages of a writable buffer in memory. If the system refuses, log the reason and return False."""
    return _call_on(_LIB_C.mlock, memory, what)


def munlock(memory: Any, what: str) -> bool:
    """Unlock the pages of a writable buffer. If the system refuses, log the reason and return False."""
    return _call_on(_LIB_C.munlock, memory, what)


def _call_on(call: Any, memory: Any, what: str) -> bool:
    size = len(memory)
    first = ctypes.c_char.from_buffer(memory)  # pins the buffer during the call
    ret = call(ctypes.addressof(first), size)
    if ret == 0:
        log.info("%s %s %s ret = %s", call.__name__, what, size, ret)
        return True
    # The original logs no reason. It is nearly always the limit of locked memory (ulimit -l).
    log.warning("%s %s %s ret = %s: %s; see the limit of locked memory (ulimit -l)", call.__name__, what, size, ret,
                os.strerror(ctypes.get_errno()))
    return False


class ReferenceResource:
    """A reference count, in which the owner counts too. `shutdown` releases the owner's reference.

    The last release cleans up.

    Java: org.apache.rocketmq.store.ReferenceResource (4.9.8)
    """

    def __init__(self) -> None:
        self._ref_lock = threading.Lock()
        # Written under _ref_lock.
        self.ref_count = 1
        # Written under _ref_lock. Once False, it stays False.
        self.available = True
        # Written under _clean_lock.
        self.cleanup_over = False
        self._clean_lock = threading.Lock()
        self._first_shutdown_ns = 0  # monotonic

    def hold(self) -> bool:
        """Take a reference; return False if the resource has been shut down."""
        with self._ref_lock:
            if self.available and self.ref_count > 0:
                self.ref_count += 1
                return True
        return False

    def shutdown(self, interval_forcibly_ms: int) -> None:
        """Refuse new holders. A second call, after the interval, drops the references that were never released."""
        with self._ref_lock:
            if self.available:
                self.available = False
                self._first_shutdown_ns = time.monotonic_ns()
            elif self.ref_count > 0:
                if time.monotonic_ns() - self._first_shutdown_ns < interval_forcibly_ms * 1_000_000:
                    return
                self.ref_count = -1000 - self.ref_count
            else:
                return
        self.release()

    def release(self) -> None:
        """Release a reference. The last release cleans up."""
        with self._ref_lock:
            self.ref_count -= 1
            value = self.ref_count
        if value > 0:
            return
        with self._clean_lock:
            self.cleanup_over = self.cleanup(value)

    def cleanup(self, current_ref: int) -> bool:
        """Free the resource; return True if it is free."""
        raise NotImplementedError

    @property
    def is_cleanup_over(self) -> bool:
        """True if the resource is not held any more and has been freed."""
        return self.ref_count <= 0 and self.cleanup_over


_UNLIMITED = 0x7FFF_FFFF
# A fraction of the pool.
_WARN_BELOW = 0.4


class TransientStorePool:
    """The pool of `transientStorePoolSize` buffers, each of the size of a commit log file.

    The buffers are locked in memory as far as the system allows. Any thread may borrow and return buffers: both are
    single operations of a deque.

    Java: org.apache.rocketmq.store.TransientStorePool (4.9.8)
    """

    def __init__(self, store_config: MessageStoreConfig) -> None:
        self.pool_size = store_config.transientStorePoolSize
        self.file_size = store_config.mappedFileSizeCommitLog
        # Written by `init` and `destroy`, on the thread that opens and closes the store.
        self._buffers: list[mmap.mmap] = []
        self._available_buffers: deque[memoryview] = deque()
        # True between `init` and `destroy`.
        self.is_in_use = False

    def init(self) -> None:
        """Allocate the buffers. Raise OSError if there is not enough memory. Idempotent."""
        while len(self._buffers) < self.pool_size:
            buffer = mmap.mmap(-1, self.file_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mlock(buffer, f"buffer {len(self._buffers)} of the TransientStorePool")
            self._buffers.append(buffer)
            self._available_buffers.append(memoryview(buffer))
            self.is_in_use = True

    def destroy(self) -> None:
        """Free the memory. The files must have returned their buffers before. Idempotent."""
        while self._available_buffers:
            self._available_buffers.popleft().release()
        for buffer in self._buffers:
            try:
                buffer.close()  # unlocks it too
            except BufferError:
                log.warning("a buffer of the TransientStorePool is still in use; its memory is freed with its file")
        self._buffers.clear()
        self.is_in_use = False

    def return_buffer(self, buffer: memoryview) -> None:
        """Take back a borrowed buffer. Its content stays."""
        self._available_buffers.appendleft(buffer)

    def borrow_buffer(self) -> memoryview | None:
        """Return a buffer, with its old content, or None if all buffers are in use."""
        try:
            buffer = self._available_buffers.popleft()
        except IndexError:
            buffer = None
        remaining = len(self._available_buffers)
        if remaining < self.pool_size * _WARN_BELOW:
            log.warning("TransientStorePool only remain %s sheets.", remaining)
        return buffer

    def available_buffer_nums(self) -> int:
        """Return the number of free buffers; the maximum of an int if the pool is not in use."""
        return len(self._available_buffers) if self.is_in_use else _UNLIMITED
