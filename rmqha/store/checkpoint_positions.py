"""How far the store is on the disk, as offsets of the commit log: a file of ours beside the original's checkpoint.

Two slots, written in turn, each in a sector of its own:

    offset  bytes  field
    0       8      "rmqhaPOS"
    8       8      number of the write; the higher one of two good slots is the newer
    16      24     the three times that the checkpoint gets after this slot; others there: somebody else wrote it
    40      8      all of the log before this offset was forced to the disk
    48      8      the units and keys of all records before this offset were forced to the disk; at most the former
    56      4      bit 0: a slave wrote, whose log grows by pieces of records; the other bits: what this start of the
                   machine is called, shortened to them
    60      4      CRC32 of all that

At 4096, not forced to the disk: of the records that look torn (see torn_record), which ones are whole:

    0       8      offset of the first one
    8       8      end of the last one
    16      4      CRC32 of the bytes of all of them, one behind the other
    20      4      CRC32 of these 20 bytes
"""
import logging
import os
import struct
import zlib
from typing import NamedTuple

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
