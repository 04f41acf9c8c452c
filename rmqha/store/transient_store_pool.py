"""Buffers that commit log files are written through: a put touches no page of the file.

    AllocateMappedFileService --borrow_buffer--> MappedFile: puts write the buffer
    CommitRealTimeService     --commit--> pwrite into the file; a full file, all committed --return_buffer--> pool
"""
import logging
import mmap
from collections import deque

from rmqha.store.config.message_store_config import MessageStoreConfig
from rmqha.store.util import lib_c

log = logging.getLogger("RocketmqStore")

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
            lib_c.mlock(buffer, f"buffer {len(self._buffers)} of the TransientStorePool")
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
