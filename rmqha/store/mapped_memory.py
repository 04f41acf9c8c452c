"""Memory of mapped files: reference counts, locked pages, and a pool of write buffers.

- `mlock`, `munlock`: keep memory from being swapped out, by the C library.
- `ReferenceResource`: counts the references to a resource that is deleted while other threads may still read it.
- `TransientStorePool`: buffers through which commit log files are written, so that a put touches no page of the file:

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
    """Lock the pages of a writable buffer in memory. False, with the reason in the log, when the system says no."""
    return _call_on(_LIB_C.mlock, memory, what)


def munlock(memory: Any, what: str) -> bool:
    """Give the pages of a writable buffer free. False, with the reason in the log, when the system says no."""
    return _call_on(_LIB_C.munlock, memory, what)


def _call_on(call: Any, memory: Any, what: str) -> bool:
    size = len(memory)
    first = ctypes.c_char.from_buffer(memory)  # keeps the buffer where it is during the call
    ret = call(ctypes.addressof(first), size)
    if ret == 0:
        log.info("%s %s %s ret = %s", call.__name__, what, size, ret)
        return True
    # The original tells no reason. Nearly always it is the limit of locked memory (ulimit -l).
    log.warning("%s %s %s ret = %s: %s; see the limit of locked memory (ulimit -l)", call.__name__, what, size, ret,
                os.strerror(ctypes.get_errno()))
    return False


class ReferenceResource:
    """Counts holders; the owner counts as one. `shutdown` gives the owner's share back, the last release cleans up.

    Java: org.apache.rocketmq.store.ReferenceResource (4.9.8)
    """

    def __init__(self) -> None:
        self._ref_lock = threading.Lock()
        self.ref_count = 1  # written under _ref_lock
        self.available = True  # written under _ref_lock; once False it stays so
        self.cleanup_over = False  # written under _clean_lock
        self._clean_lock = threading.Lock()
        self._first_shutdown_ns = 0  # monotonic

    def hold(self) -> bool:
        """Take a share; False when the resource is going away."""
        with self._ref_lock:
            if self.available and self.ref_count > 0:
                self.ref_count += 1
                return True
        return False

    def shutdown(self, interval_forcibly_ms: int) -> None:
        """Refuse new holders; called again after the interval it takes the shares of those that never let go."""
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
        """Give a share back; the last one cleans up."""
        with self._ref_lock:
            self.ref_count -= 1
            value = self.ref_count
        if value > 0:
            return
        with self._clean_lock:
            self.cleanup_over = self.cleanup(value)

    def cleanup(self, current_ref: int) -> bool:
        """Free the resource; True when it is free."""
        raise NotImplementedError

    @property
    def is_cleanup_over(self) -> bool:
        """True when nobody holds it and it is freed."""
        return self.ref_count <= 0 and self.cleanup_over


_UNLIMITED = 0x7FFF_FFFF
_WARN_BELOW = 0.4  # part of the pool


class TransientStorePool:
    """`transientStorePoolSize` buffers of the size of a commit log file, locked in memory as far as the system allows.

    Any thread borrows and returns: both are single operations of a deque.

    Java: org.apache.rocketmq.store.TransientStorePool (4.9.8)
    """

    def __init__(self, store_config: MessageStoreConfig) -> None:
        self.pool_size = store_config.transientStorePoolSize
        self.file_size = store_config.mappedFileSizeCommitLog
        self._buffers: list[mmap.mmap] = []  # written by init and destroy, on the store's opening and closing thread
        self._available_buffers: deque[memoryview] = deque()
        self.is_in_use = False  # True between `init` and `destroy`

    def init(self) -> None:
        """Make the buffers. OSError when there is no memory for them. Idempotent."""
        while len(self._buffers) < self.pool_size:
            buffer = mmap.mmap(-1, self.file_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mlock(buffer, f"buffer {len(self._buffers)} of the TransientStorePool")
            self._buffers.append(buffer)
            self._available_buffers.append(memoryview(buffer))
            self.is_in_use = True

    def destroy(self) -> None:
        """Give the memory back; the files have returned their buffers before. Idempotent."""
        while self._available_buffers:
            self._available_buffers.popleft().release()
        for buffer in self._buffers:
            try:
                buffer.close()  # unlocks it too
            except BufferError:
                log.warning("a buffer of the TransientStorePool is still in use, its memory goes with its file")
        self._buffers.clear()
        self.is_in_use = False

    def return_buffer(self, buffer: memoryview) -> None:
        """Take back a buffer that `borrow_buffer` gave; its content stays."""
        self._available_buffers.appendleft(buffer)

    def borrow_buffer(self) -> memoryview | None:
        """A buffer with whatever it held last; None when all are in use."""
        try:
            buffer = self._available_buffers.popleft()
        except IndexError:
            buffer = None
        remaining = len(self._available_buffers)
        if remaining < self.pool_size * _WARN_BELOW:
            log.warning("TransientStorePool only remain %s sheets.", remaining)
        return buffer

    def available_buffer_nums(self) -> int:
        """Free buffers; as many as an int can say when the pool is not in use."""
        return len(self._available_buffers) if self.is_in_use else _UNLIMITED
