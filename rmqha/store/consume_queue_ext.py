"""The extension of a consume queue's 20-byte units: tags code, store time and filter bit map of a message.

    unit: size int16 | tags code int64 | store time int64 | size of the bit map int16 | bit map
    a file with less room than a unit and 4 bytes ends with an int16 of -1

The dispatching thread writes it, pulling threads read it. It is only weakly reliable: if a unit is missing, its message
is filtered only after its record was read.
"""
import logging
import os
import struct

from rmqha.common.lazy_dataclasses import dataclass
from rmqha.store.consume_queue_layout import MAX_EXT_ADDR, is_ext_addr
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.store_marks import RecoveryBase

log = logging.getLogger("RocketmqStore")

# Bytes of disk space that are reserved at a time.
ALLOCATION_UNIT = 64 * 1024
END_BLANK_DATA_LENGTH = 4
LONG_MIN = -(1 << 63)
MAX_ADDR = MAX_EXT_ADDR
MAX_REAL_OFFSET = MAX_ADDR - LONG_MIN
MIN_EXT_UNIT_SIZE = 20
MAX_EXT_UNIT_SIZE = 0x7FFF

_HEAD = struct.Struct(">hqqh")
assert _HEAD.size == MIN_EXT_UNIT_SIZE
_SIZE = struct.Struct(">h")


@dataclass
class CqExtUnit:
    """One unit of the extension. `filter_bit_map` may be None.

    Java: org.apache.rocketmq.store.ConsumeQueueExt$CqExtUnit (4.9.8)
    """

    tags_code: int = 0
    msg_store_time: int = 0  # ms
    filter_bit_map: bytes | None = None

    @property
    def size(self) -> int:
        """The unit's size on disk, in bytes."""
        return MIN_EXT_UNIT_SIZE + len(self.filter_bit_map or b"")

    def write(self) -> bytes:
        """Return the unit as bytes."""
        bit_map = self.filter_bit_map or b""
        return _HEAD.pack(self.size, self.tags_code, self.msg_store_time, len(bit_map)) + bit_map

    @staticmethod
    def read(buffer: bytes | memoryview) -> "CqExtUnit | None":
        """Return the unit at the beginning of `buffer`, or None if the buffer has no unit there."""
        if len(buffer) < _SIZE.size or _SIZE.unpack_from(buffer)[0] < 1 or len(buffer) < MIN_EXT_UNIT_SIZE:
            return None
        _size, tags_code, store_time, bit_map_size = _HEAD.unpack_from(buffer)
        if len(buffer) < MIN_EXT_UNIT_SIZE + bit_map_size:
            return None
        bit_map = bytes(buffer[MIN_EXT_UNIT_SIZE:MIN_EXT_UNIT_SIZE + bit_map_size]) if bit_map_size > 0 else None
        return CqExtUnit(tags_code, store_time, bit_map)


class ConsumeQueueExt:
    """The extension of one queue. Its addresses are negative, below any tags code.

    Java: org.apache.rocketmq.store.ConsumeQueueExt (4.9.8)
    """

    def __init__(self, topic: str, queue_id: int, store_path: str, mapped_file_size: int,
                 allocation_unit: int = ALLOCATION_UNIT) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.mapped_file_size = mapped_file_size
        self.mapped_file_queue = MappedFileQueue(os.path.join(store_path, topic, str(queue_id)), mapped_file_size,
                                                 allocation_unit=allocation_unit)
        self.mapped_file_queue.can_be_built_again = True

    is_ext_addr = staticmethod(is_ext_addr)

    @staticmethod
    def un_decorate(address: int) -> int:
        """Return the real offset of an address."""
        return address - LONG_MIN if is_ext_addr(address) else address

    @staticmethod
    def decorate(offset: int) -> int:
        """Return the address of a real offset."""
        return offset if is_ext_addr(offset) else offset + LONG_MIN

    def get(self, address: int) -> CqExtUnit | None:
        """Return the unit at `address`, or None if it is deleted."""
        if not is_ext_addr(address):
            return None
        real_offset = self.un_decorate(address)
        mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(real_offset, real_offset == 0)
        if mapped_file is None:
            return None
        result = mapped_file.select_mapped_buffer(real_offset % self.mapped_file_size)
        if result is None:
            log.warning("[BUG] Consume queue extend unit(%s) is not found!", real_offset)
            return None
        with result:
            return CqExtUnit.read(result.buffer)

    def put(self, unit: CqExtUnit) -> int:
        """Append a unit and return its address, or 1 if it can't be saved."""
        size = unit.size
        if size > MAX_EXT_UNIT_SIZE:
            log.error("Size of cq ext unit is greater than %s, %s", MAX_EXT_UNIT_SIZE, unit)
            return 1
        if self.mapped_file_queue.get_max_offset() + size > MAX_REAL_OFFSET:
            log.warning("Capacity of ext is maximum!%s, %s", self.mapped_file_queue.get_max_offset(), size)
            return 1
        try:
            for _ in range(3):
                mapped_file = self.mapped_file_queue.get_last_mapped_file(0)
                if mapped_file is None:
                    log.error("Create mapped file when save consume queue extend, %s", unit)
                    continue
                position = mapped_file.wrote_position
                if size > self.mapped_file_size - position - END_BLANK_DATA_LENGTH:
                    self._full_fill_to_end(mapped_file, position)
                elif mapped_file.append_bytes(unit.write()):
                    return self.decorate(position + mapped_file.file_from_offset)
        except OSError:
            log.exception("Save consume queue extend error, %s", unit)
        return 1

    def _full_fill_to_end(self, mapped_file: MappedFile, position: int) -> None:
        mapped_file.write_at(position, _SIZE.pack(-1))
        mapped_file.wrote_position = self.mapped_file_size
        log.info("No enough space of file %s, so fill to end", mapped_file.file_name)

    def load(self) -> bool:
        """Map the files; return False if one does not fit."""
        result = self.mapped_file_queue.load()
        log.info("load consume queue extend%s-%s %s", self.topic, self.queue_id, "OK" if result else "Failed")
        return result

    def check_self(self) -> None:
        """Log an error for files that do not fit together."""
        self.mapped_file_queue.check_self()

    def recover(self, base: RecoveryBase) -> None:
        """Find the end of the units, beginning with the first file, and truncate the extension there."""
        files = self.mapped_file_queue.mapped_files
        if not files:
            return
        process_offset = 0
        for mapped_file in files:
            buffer = mapped_file.slice_byte_buffer()
            position = 0
            while position + _SIZE.size <= len(buffer) and (size := _SIZE.unpack_from(buffer, position)[0]) > 0:
                position += size
            process_offset = mapped_file.file_from_offset + min(position, self.mapped_file_size)
            if not (base.was_stopped and base.is_noted):
                # From here on these bytes count as flushed.
                mapped_file.force()
        self.mapped_file_queue.flushed_where = process_offset
        self.mapped_file_queue.committed_where = process_offset
        self.mapped_file_queue.truncate_dirty_files(process_offset)

    def truncate_by_min_address(self, min_address: int) -> None:
        """Delete files that end before `min_address`."""
        if not is_ext_addr(min_address):
            return
        log.info("Truncate consume queue ext by min %s.", min_address)
        real_offset = self.un_decorate(min_address)
        gone = [mapped_file for mapped_file in self.mapped_file_queue.mapped_files
                if mapped_file.file_from_offset + self.mapped_file_size < real_offset and mapped_file.destroy(1000)]
        self.mapped_file_queue.delete_expired_file(gone)

    def truncate_by_max_address(self, max_address: int) -> None:
        """Truncate the extension after the unit at `max_address`. For recovery."""
        if not is_ext_addr(max_address):
            return
        log.info("Truncate consume queue ext by max %s.", max_address)
        unit = self.get(max_address)
        if unit is None:
            log.error("[BUG] address %s of consume queue extend not found!", max_address)
            return
        self.mapped_file_queue.truncate_dirty_files(self.un_decorate(max_address) + unit.size)

    def flush(self, flush_least_pages: int) -> bool:
        """Flush if at least `flush_least_pages` pages are dirty; return True if there was nothing to do.

        Raise OSError if the disk fails.
        """
        return self.mapped_file_queue.flush(flush_least_pages)

    def destroy(self) -> None:
        """Delete all files."""
        self.mapped_file_queue.destroy()
