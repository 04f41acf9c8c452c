"""How far messages are safe on disk, as three store times in a file of one page."""
import logging
import mmap
import os
import struct
import threading

from rmqha.common.util_all import time_millis_to_human_string

log = logging.getLogger("RocketmqStore")

# physicMsgTimestamp at 0, logicsMsgTimestamp at 8, indexMsgTimestamp at 16; the rest of the page is zero.
_TIMES = struct.Struct(">qqq")
CHECKPOINT_SIZE = 4096


class StoreCheckpoint:
    """Store times (ms) up to which the commit log, the consume queues and the index are on disk.

    The attributes are plain: several services set them, `flush` writes what it finds.

    Java: org.apache.rocketmq.store.StoreCheckpoint (4.9.8)
    """

    def __init__(self, scp_path: str) -> None:
        self._lock = threading.Lock()  # guards the map against a flush after shutdown
        os.makedirs(os.path.dirname(scp_path), exist_ok=True)
        exists = os.path.exists(scp_path)
        fd = os.open(scp_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(fd).st_size < CHECKPOINT_SIZE:
                os.ftruncate(fd, CHECKPOINT_SIZE)
            os.posix_fallocate(fd, 0, CHECKPOINT_SIZE)  # so that a full disk shows here and not as SIGBUS
            self._mmap: mmap.mmap | None = mmap.mmap(fd, CHECKPOINT_SIZE)
        except (OSError, ValueError):
            os.close(fd)
            raise
        self._fd = fd
        # Differs: what was dispatched is kept apart from what was flushed, so that a flush of the file never claims
        # more than is on disk; the original writes the dispatched time. Not stored.
        self.dispatched_timestamp = 0
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        if not exists:
            log.info("store checkpoint file not exists, %s", scp_path)
            return
        log.info("store checkpoint file exists, %s", scp_path)
        self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = _TIMES.unpack_from(self._mmap)
        for name in ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"):
            value = getattr(self, name.replace("MsgTimestamp", "_msg_timestamp"))
            log.info("store checkpoint file %s %s, %s", name, value, time_millis_to_human_string(value))

    def shutdown(self) -> None:
        """Flush and unmap; idempotent."""
        self.flush()
        with self._lock:
            mapped, self._mmap = self._mmap, None
            if mapped is not None:
                mapped.close()
                os.close(self._fd)

    def flush(self) -> None:
        """Write the three times to the disk. OSError when the disk says no."""
        with self._lock:
            if self._mmap is not None:
                self._mmap[:_TIMES.size] = _TIMES.pack(self.physic_msg_timestamp, self.logics_msg_timestamp,
                                                       self.index_msg_timestamp)
                os.fdatasync(self._fd)

    def get_min_timestamp_index(self) -> int:
        """`get_min_timestamp`, or earlier when the index is behind."""
        return min(self.get_min_timestamp(), self.index_msg_timestamp)

    def get_min_timestamp(self) -> int:
        """Store time from which an abnormal recovery must look again: 3 s before the older of log and queues."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 1000 * 3, 0)
