"""The checkpoint of a store: how far its commit log, consume queues and index are safe on the disk.

`StoreCheckpoint` keeps three store times in a file of one page, as the original does, and commit log offsets in a file
beside it (`PositionsFile`), which the original lacks: two slots, written in turn, each in a sector of its own:

    offset  bytes  field
    0       8      "rmqhaPOS"
    8       8      number of the write; the higher one of two good slots is the newer
    16      24     the three times that the checkpoint gets after this slot; if it has others, another program wrote it
    40      8      all of the log before this offset was forced to the disk
    48      8      the units and keys of all records before this offset were forced to the disk; at most the former
    56      4      bit 0: a slave wrote, whose log grows by pieces of records; the other bits: the id of this start of
                   the machine, shortened to them
    60      4      CRC32 of all that

At 4096, not forced to the disk, the records that look torn (see record_check) and are whole:

    0       8      offset of the first one
    8       8      end of the last one
    16      4      CRC32 of the bytes of all of them, one after the other
    20      4      CRC32 of these 20 bytes
"""
import logging
import mmap
import os
import struct
import threading
import zlib

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.util_all import time_millis_to_human_string

log = logging.getLogger("RocketmqStore")

_SLOT = struct.Struct(">8sqqqqqqI")
_CRC = struct.Struct(">I")
_MAGIC = b"rmqhaPOS"
_SLOT_AT = (0, 512)  # a disk writes 512 bytes whole, or not at all
_BY_SLAVE = 1
_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
_WHOLE_AT = 4096
_WHOLE = struct.Struct(">qqI")
_FILE_SIZE = 8192

Times = tuple[int, int, int]
"""physicMsgTimestamp, logicsMsgTimestamp and indexMsgTimestamp of the checkpoint."""


class Positions(NamedTuple):
    """Offsets of the commit log."""

    log_flushed: int
    dispatched: int  # and its units and keys flushed
    by_slave: bool
    is_same_boot: bool = True  # the machine has not been started since


class WholeRecords(NamedTuple):
    """The records between two offsets of the commit log that look torn, and are not, by the CRC32 of all of them."""

    begin: int
    end: int
    crc: int


NONE_WHOLE = WholeRecords(0, 0, 0)


class PositionsFile:
    """The file; `found` is what it had when it was opened, None when that is not of the checkpoint beside it.

    `found_whole` are the records that were noted as whole before it was opened.
    """

    def __init__(self, path: str, times: Times) -> None:
        self.number = 0  # of the last write
        self._next_slot, self._whole = 0, NONE_WHOLE
        self.found: Positions | None = None
        self._boot = boot_bits()  # once: at a write there may be no descriptor to ask with
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            for slot, at in enumerate(_SLOT_AT):
                self._read(slot, os.pread(self._fd, _SLOT.size + _CRC.size, at), times)
            self.found_whole = _whole_records(os.pread(self._fd, _WHOLE.size + _CRC.size, _WHOLE_AT))
            os.posix_fallocate(self._fd, 0, _FILE_SIZE)
        except OSError:
            self.close()
            raise

    def _read(self, slot: int, data: bytes, times: Times) -> None:
        if len(data) < _SLOT.size + _CRC.size or _CRC.unpack_from(data, _SLOT.size)[0] != zlib.crc32(data[:_SLOT.size]):
            return
        magic, number, *its_times, log_flushed, dispatched, flags = _SLOT.unpack_from(data)
        is_newest, self.number = number > self.number, max(self.number, number)
        if magic == _MAGIC and tuple(its_times) == times and (is_newest or self.found is None):
            self.found = Positions(log_flushed, dispatched, bool(flags & _BY_SLAVE),
                                   self._boot == flags & ~_BY_SLAVE and self._boot != 0)
            self._next_slot = 1 - slot

    def write(self, positions: Positions, times: Times) -> None:
        """Force `positions` to the disk, for a checkpoint that has, or is about to get, these times. OSError."""
        self.number += 1
        data = _SLOT.pack(_MAGIC, self.number, *times, positions.log_flushed,
                          min(positions.dispatched, positions.log_flushed),
                          self._boot | (_BY_SLAVE if positions.by_slave else 0))
        os.pwrite(self._fd, data + _CRC.pack(zlib.crc32(data)), _SLOT_AT[self._next_slot])
        os.fdatasync(self._fd)
        self._next_slot = 1 - self._next_slot

    def note_whole(self, offset: int, record: bytes, flushed: int) -> None:
        """The record at `offset` of the log is whole, and so are those noted before that are not `flushed`. OSError."""
        whole = self._whole if self._whole.end > flushed else WholeRecords(offset, offset, 0)
        self._whole = WholeRecords(whole.begin, offset + len(record), zlib.crc32(record, whole.crc))
        data = _WHOLE.pack(*self._whole)
        os.pwrite(self._fd, data + _CRC.pack(zlib.crc32(data)), _WHOLE_AT)

    def close(self) -> None:
        """Close it; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def boot_bits() -> int:
    """31 bits of the id of this start of the machine, bit 0 being 0; 0 when the system has none."""
    try:
        with open(_BOOT_ID_FILE, "rb") as file:
            return zlib.crc32(file.read()) & ~_BY_SLAVE
    except OSError as error:
        log.info("no boot id: %s", error)
        return 0


def _whole_records(data: bytes) -> WholeRecords:
    if len(data) < _WHOLE.size + _CRC.size or _CRC.unpack_from(data, _WHOLE.size)[0] != zlib.crc32(data[:_WHOLE.size]):
        return NONE_WHOLE
    return WholeRecords(*_WHOLE.unpack_from(data))


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
