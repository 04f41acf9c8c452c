"""How far messages are safe on disk: three store times in a file of one page, and offsets in a file beside it."""
import logging
import mmap
import os
import struct
import threading

from rmqha.common.util_all import time_millis_to_human_string
from rmqha.store.checkpoint_positions import Positions, PositionsFile, Times

log = logging.getLogger("RocketmqStore")

# physicMsgTimestamp at 0, logicsMsgTimestamp at 8, indexMsgTimestamp at 16; the rest of the page is zero.
_TIMES = struct.Struct(">qqq")
CHECKPOINT_SIZE = 4096
POSITIONS_SUFFIX = ".positions"


class StoreCheckpoint:
    """Store times (ms) up to which the commit log, the consume queues and the index are on disk.

    The attributes have no lock: several services set them, `flush` writes what it finds. `is_held`: nothing is written,
    since recovery does not know the offsets yet; the file keeps what was known before.

    Differs: recovery goes by offsets of the log, which a clock that is set back does not mislead. They lie in a file of
    their own; the original's times are written as ever, and count when it has written them last.

    Java: org.apache.rocketmq.store.StoreCheckpoint (4.9.8)
    """

    def __init__(self, scp_path: str) -> None:
        self._lock = threading.Lock()  # guards the map against a flush after shutdown
        self.is_held = False
        os.makedirs(os.path.dirname(scp_path), exist_ok=True)
        exists = os.path.exists(scp_path)
        fd = os.open(scp_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(fd).st_size < CHECKPOINT_SIZE:
                os.ftruncate(fd, CHECKPOINT_SIZE)
            os.posix_fallocate(fd, 0, CHECKPOINT_SIZE)  # so that a full disk shows here and not as SIGBUS
            os.fdatasync(fd)  # what is read now may not be there: a killed process has written it
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
        self._stored_times: Times = _TIMES.unpack_from(self._mmap)  # guarded by _lock
        self._positions = PositionsFile(scp_path + POSITIONS_SUFFIX, self._stored_times)
        self.found_whole = self._positions.found_whole  # by whoever had the store open before
        self.found = self._positions.found  # what was there when it was opened; None: go by the times
        # Offsets of the log: all before is on the disk, and all before has its units and keys on the disk. Set by
        # recovery, then by the services that flush.
        self.log_flushed = self.dispatched = 0
        self.by_slave = False  # the log grows by pieces of records
        # What the file has; guarded by _lock, read freely
        self.log_flushed_stored = self.found.log_flushed if self.found is not None else 0
        if not exists:
            log.info("store checkpoint file not exists, %s", scp_path)
            return
        log.info("store checkpoint file exists, %s", scp_path)
        self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = self._stored_times
        for name in ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"):
            value = getattr(self, name.replace("MsgTimestamp", "_msg_timestamp"))
            log.info("store checkpoint file %s %s, %s", name, value, time_millis_to_human_string(value))

    @property
    def number(self) -> int:
        """Of the last write of the offsets; each has another one."""
        return self._positions.number

    def shutdown(self) -> None:
        """Flush and unmap; idempotent. OSError when the disk says no."""
        self.flush()
        self.close()

    def close(self) -> None:
        """Unmap; idempotent."""
        with self._lock:
            mapped, self._mmap = self._mmap, None
            if mapped is not None:
                mapped.close()
                os.close(self._fd)
                self._positions.close()

    def flush(self) -> None:
        """Write the three times and the offsets to the disk. OSError when the disk says no."""
        with self._lock:
            if self._mmap is not None and not self.is_held:
                times = self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp
                self._write_positions(times)  # first: of what it has before and after, one fits whatever comes to pass
                self._mmap[:_TIMES.size] = _TIMES.pack(*times)
                os.fdatasync(self._fd)
                self._stored_times = times

    def flush_positions(self) -> None:
        """Write the offsets alone to the disk. OSError when the disk says no."""
        with self._lock:
            if self._mmap is not None and not self.is_held:
                self._write_positions(self._stored_times)

    def _write_positions(self, times: Times) -> None:
        log_flushed = self.log_flushed
        self._positions.write(Positions(log_flushed, self.dispatched, self.by_slave), times)
        self.log_flushed_stored = log_flushed

    def lower(self, offset: int) -> None:
        """The log was cut off at `offset`: what comes there next is not on the disk. OSError when the disk says no."""
        self.dispatched = min(self.dispatched, offset)
        if self.log_flushed > offset or self.log_flushed_stored > offset:
            self.log_flushed = min(self.log_flushed, offset)
            self.flush_positions()

    def note_whole(self, offset: int, record: bytes) -> None:
        """The record at `offset` of the log is whole, whatever it looks like. OSError."""
        with self._lock:
            if self._mmap is not None:
                self._positions.note_whole(offset, record, self.log_flushed_stored)

    def get_min_timestamp_index(self) -> int:
        """`get_min_timestamp`, or earlier when the index is behind."""
        return min(self.get_min_timestamp(), self.index_msg_timestamp)

    def get_min_timestamp(self) -> int:
        """Store time from which an abnormal recovery must look again: 3 s before the older of log and queues."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 1000 * 3, 0)
