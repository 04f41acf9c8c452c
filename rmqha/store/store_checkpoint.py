"""The checkpoint of a store: how far its commit log, consume queues and index are safely on the disk.

`StoreCheckpoint` keeps three store times in a file of one page, as the original does, and commit log offsets in a
second file (`PositionsFile`), which the original lacks. It has two slots that are written in turn, each in its own
sector:

    offset  bytes  field
    0       8      "rmqhaPOS"
    8       8      number of the write; of two valid slots the one with the higher number is newer
    16      24     the three times that the checkpoint gets after this slot; if it has others, another program wrote it
    40      8      the log before this offset was forced to the disk
    48      8      the units and keys of all records before this offset were forced to the disk; at most the value at 40
    56      4      bit 0: written by a slave, whose log grows by pieces of records; the other bits: the id of this boot
                   of the machine, shortened
    60      4      CRC32 of the slot

At 4096, not forced to the disk: the whole records that look torn (see record_check):

    0       8      offset of the first one
    8       8      end of the last one
    16      4      CRC32 of the bytes of all of them, in order
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
# A disk writes a sector of 512 bytes completely or not at all.
_SLOT_AT = (0, 512)
_BY_SLAVE = 1
_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
_WHOLE_AT = 4096
_WHOLE = struct.Struct(">qqI")
_FILE_SIZE = 8192

Times = tuple[int, int, int]
"""The checkpoint's physicMsgTimestamp, logicsMsgTimestamp and indexMsgTimestamp."""


class Positions(NamedTuple):
    """The commit log offsets of a checkpoint.

    `dispatched`: records before it also have their units and keys on the disk. `is_same_boot`: the machine was not
    restarted since.
    """

    log_flushed: int
    dispatched: int
    by_slave: bool
    is_same_boot: bool = True


class WholeRecords(NamedTuple):
    """The range of whole records that look torn, with the CRC32 of all of them."""

    begin: int
    end: int
    crc: int


NONE_WHOLE = WholeRecords(0, 0, 0)


class PositionsFile:
    """The file with the offsets of a checkpoint.

    `found`: its content when it was opened; None if it does not belong to the checkpoint. `found_whole`: the records
    that were noted as whole before it was opened.
    """

    def __init__(self, path: str, times: Times) -> None:
        # The number of the last write.
        self.number = 0
        self._next_slot, self._whole = 0, NONE_WHOLE
        self.found: Positions | None = None
        # Read once, because at a write no descriptor may be available for it.
        self._boot = boot_bits()
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
        """Force `positions` to the disk, for a checkpoint that has these times or is about to get them.

        Raise OSError if the disk fails.
        """
        self.number += 1
        data = _SLOT.pack(_MAGIC, self.number, *times, positions.log_flushed,
                          min(positions.dispatched, positions.log_flushed),
                          self._boot | (_BY_SLAVE if positions.by_slave else 0))
        os.pwrite(self._fd, data + _CRC.pack(zlib.crc32(data)), _SLOT_AT[self._next_slot])
        os.fdatasync(self._fd)
        self._next_slot = 1 - self._next_slot

    def note_whole(self, offset: int, record: bytes, flushed: int) -> None:
        """Note that the record at `offset` of the log is whole. Earlier notes are kept unless they are `flushed`.

        Raise OSError if the disk fails.
        """
        whole = self._whole if self._whole.end > flushed else WholeRecords(offset, offset, 0)
        self._whole = WholeRecords(whole.begin, offset + len(record), zlib.crc32(record, whole.crc))
        data = _WHOLE.pack(*self._whole)
        os.pwrite(self._fd, data + _CRC.pack(zlib.crc32(data)), _WHOLE_AT)

    def close(self) -> None:
        """Close the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def boot_bits() -> int:
    """Return 31 bits of the id of this boot of the machine (bit 0 is 0), or 0 if the system has no such id."""
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


# physicMsgTimestamp at 0, logicsMsgTimestamp at 8, indexMsgTimestamp at 16. The rest of the page is zero.
_TIMES = struct.Struct(">qqq")
CHECKPOINT_SIZE = 4096
POSITIONS_SUFFIX = ".positions"


class StoreCheckpoint:
    """The checkpoint: store times (ms) and log offsets up to which log, consume queues and index are on the disk.

    The attributes have no lock: several services set them, and `flush` writes their present values. While `is_held` is
    set, nothing is written, because recovery does not know the offsets yet; the file keeps its old content.

    Differs: recovery uses the log offsets of the checkpoint, so a clock that was set back can't mislead it. They are in
    a separate file. The original's times are written too, and are used if the original wrote the checkpoint last.

    Java: org.apache.rocketmq.store.StoreCheckpoint (4.9.8)
    """

    def __init__(self, scp_path: str) -> None:
        # Protects the map from a flush after shutdown.
        self._lock = threading.Lock()
        self.is_held = False
        os.makedirs(os.path.dirname(scp_path), exist_ok=True)
        exists = os.path.exists(scp_path)
        fd = os.open(scp_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(fd).st_size < CHECKPOINT_SIZE:
                os.ftruncate(fd, CHECKPOINT_SIZE)
            # A full disk is an error here, and not a SIGBUS later.
            os.posix_fallocate(fd, 0, CHECKPOINT_SIZE)
            # A killed process may have written the present content without flushing it.
            os.fdatasync(fd)
            self._mmap: mmap.mmap | None = mmap.mmap(fd, CHECKPOINT_SIZE)
        except (OSError, ValueError):
            os.close(fd)
            raise
        self._fd = fd
        # Differs: the checkpoint's dispatched time is separate from the flushed times, and is not stored, so that the
        # file never claims more than is on disk. The original stores the dispatched time.
        self.dispatched_timestamp = 0
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        # Guarded by _lock.
        self._stored_times: Times = _TIMES.unpack_from(self._mmap)
        self._positions = PositionsFile(scp_path + POSITIONS_SUFFIX, self._stored_times)
        # The records that the previous process noted as whole.
        self.found_whole = self._positions.found_whole
        # The offsets when the file was opened; None: use the times.
        self.found = self._positions.found
        # The log before `log_flushed` is on the disk; the records before `dispatched` also have their units and keys
        # on the disk. Set by recovery, then by the flush services.
        self.log_flushed = self.dispatched = 0
        # True if the log grows by pieces of records.
        self.by_slave = False
        # The offset in the file. Guarded by _lock, read without it.
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
        """The number of the last write of the offsets. Each write has a new number."""
        return self._positions.number

    def shutdown(self) -> None:
        """Flush and unmap. Raise OSError if the disk fails. Idempotent."""
        self.flush()
        self.close()

    def close(self) -> None:
        """Unmap without a flush. Idempotent."""
        with self._lock:
            mapped, self._mmap = self._mmap, None
            if mapped is not None:
                mapped.close()
                os.close(self._fd)
                self._positions.close()

    def flush(self) -> None:
        """Write the three times and the offsets to the disk. Raise OSError if the disk fails."""
        with self._lock:
            if self._mmap is not None and not self.is_held:
                times = self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp
                # The offsets first: whenever a crash happens, one of the two slots belongs to the times in the file.
                self._write_positions(times)
                self._mmap[:_TIMES.size] = _TIMES.pack(*times)
                os.fdatasync(self._fd)
                self._stored_times = times

    def flush_positions(self) -> None:
        """Write only the offsets to the disk. Raise OSError if the disk fails."""
        with self._lock:
            if self._mmap is not None and not self.is_held:
                self._write_positions(self._stored_times)

    def _write_positions(self, times: Times) -> None:
        log_flushed = self.log_flushed
        self._positions.write(Positions(log_flushed, self.dispatched, self.by_slave), times)
        self.log_flushed_stored = log_flushed

    def lower(self, offset: int) -> None:
        """Lower the offsets, because the log was truncated at `offset`. Raise OSError if the disk fails."""
        self.dispatched = min(self.dispatched, offset)
        if self.log_flushed > offset or self.log_flushed_stored > offset:
            self.log_flushed = min(self.log_flushed, offset)
            self.flush_positions()

    def note_whole(self, offset: int, record: bytes) -> None:
        """Note that the record at `offset` of the log is whole, although it looks torn.

        Raise OSError if the disk fails.
        """
        with self._lock:
            if self._mmap is not None:
                self._positions.note_whole(offset, record, self.log_flushed_stored)

    def get_min_timestamp_index(self) -> int:
        """Return `get_min_timestamp`, or the index's time if that is earlier."""
        return min(self.get_min_timestamp(), self.index_msg_timestamp)

    def get_min_timestamp(self) -> int:
        """Return the store time from which an abnormal recovery starts: 3 s before the older of log and queues."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 1000 * 3, 0)
