"""The files of the hash index: header, slots and entries; and the shape of existing files.

`index_shape` finds the numbers of slots and entries of a store's index files, which are only in the broker's
configuration. The file's size is one equation for the two numbers. The end of the last entry, whose number is in the
header, is the other. The result is verified with the entries themselves.
"""
import logging
import os
import sys
import time
from array import array
from typing import BinaryIO

from rmqha.common.filesystem import open_regular, pread
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.store import store_path_config_helper as paths
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.index.index_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    INVALID_INDEX,
    SLOT,
    file_size,
    index_key_hash_method,
    time_diff_seconds,
    walk_chain,
)
from rmqha.store.mapped_file import MappedFile


class IndexHeader:
    """The counters of one index file, in memory and in its map. Only the dispatching thread changes them.

    Java: org.apache.rocketmq.store.index.IndexHeader (4.9.8)
    """

    __slots__ = ("_buffer", "begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset",
                 "hash_slot_count", "index_count")

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.begin_timestamp = 0  # ms
        self.end_timestamp = 0  # ms
        self.begin_phy_offset = 0
        self.end_phy_offset = 0
        self.hash_slot_count = 0
        self.index_count = 1  # number of the next entry

    def load(self) -> None:
        """Read the counters from the map."""
        self.counters = IndexCounters(*HEADER.unpack_from(self._buffer))
        if self.index_count <= 0:
            self.index_count = 1

    @property
    def counters(self) -> IndexCounters:
        """All counters, as the bulk kernel uses them."""
        return IndexCounters(self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset,
                             self.hash_slot_count, self.index_count)

    @counters.setter
    def counters(self, counters: IndexCounters) -> None:
        (self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset, self.hash_slot_count,
         self.index_count) = counters

    def update_byte_buffer(self) -> None:
        """Write the counters into the map."""
        self._buffer[:INDEX_HEADER_SIZE] = HEADER.pack(
            self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset, self.hash_slot_count,
            self.index_count)


log = logging.getLogger("RocketmqStore")

_pack_entry, _pack_slot, _unpack_slot = ENTRY.pack, SLOT.pack_into, SLOT.unpack_from
# The time limit for walking over the entries of one file.
_WALK_NS = 2_000_000_000
# Entries between two reads of the clock.
_LOOK_AT_CLOCK = 1024
_NO_SECONDS, _NO_OFFSET = 1 << 31, 1 << 63
# Bytes of entries for which disk space is reserved at a time.
_ALLOCATION_UNIT = 1024 * 1024


class IndexFile:
    """A mapped index file. The dispatching thread writes it, queries read it.

    Java: org.apache.rocketmq.store.index.IndexFile (4.9.8)
    """

    def __init__(self, file_name: str, hash_slot_num: int, index_num: int, end_phy_offset: int = 0,
                 end_timestamp: int = 0, preallocate: bool = False) -> None:
        self.mapped_file = MappedFile(file_name, file_size(hash_slot_num, index_num),
                                      _ALLOCATION_UNIT if preallocate else 0)
        self.hash_slot_num = hash_slot_num
        self.index_num = index_num
        self._buffer = self.mapped_file.slice_byte_buffer()
        self._entries_at = INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE
        self._slots_allocated = not preallocate
        # Set by the flushing thread, once the file is full and flushed.
        self.is_flushed_full = False
        self.index_header = IndexHeader(self._buffer)
        if end_phy_offset > 0:
            self.index_header.begin_phy_offset = self.index_header.end_phy_offset = end_phy_offset
        if end_timestamp > 0:
            self.index_header.begin_timestamp = self.index_header.end_timestamp = end_timestamp

    @property
    def file_name(self) -> str:
        """The path of the file. Its name is the local time of its creation."""
        return self.mapped_file.file_name

    def load(self) -> None:
        """Read the header of an existing file."""
        header = self.index_header
        header.load()
        # Differs: a damaged number of used slots in an index file, which is only informational, is moved into its range
        # before it is incremented further.
        header.hash_slot_count = min(max(header.hash_slot_count, 0), self.hash_slot_num)

    def flush(self) -> None:
        """Force the file to the disk. Raise OSError if the disk fails."""
        begin, is_full = time.monotonic_ns(), self.is_write_full
        self.mapped_file.force()
        self.is_flushed_full = is_full
        log.info("flush index file elapsed time(ms) %s", (time.monotonic_ns() - begin) // 1_000_000)

    def cut_back(self, timestamp: int) -> bool:
        """Keep, after a crash, the entries that were stored (and so flushed) up to `timestamp` (ms).

        Return False if no entry is kept. The entries are in order, and each refers only to older ones, so the kept
        entries need no change. The slots are computed from them again.
        """
        limit = (timestamp - self.index_header.begin_timestamp) // 1000 - 1  # entries contain whole seconds
        return self._cut_back(limit, _NO_OFFSET)

    def cut_back_to_offset(self, offset: int) -> bool:
        """Keep, after a crash, the entries of records before an offset of the commit log; see `cut_back`."""
        return self._cut_back(_NO_SECONDS, offset)

    def _cut_back(self, limit: int, offset_limit: int) -> bool:
        header = self.index_header
        slots = array("i", bytes(self.hash_slot_num * HASH_SLOT_SIZE))
        entries = self._buffer[self._entries_at + INDEX_SIZE:self._entries_at + header.index_count * INDEX_SIZE]
        kept, end_phy_offset, end_seconds = 0, 0, 0
        for key_hash, phy_offset, seconds, previous in ENTRY.iter_unpack(entries[:len(entries)]):
            if key_hash < 0 or not 0 <= seconds <= limit or not 0 <= previous <= kept or \
                    not end_phy_offset <= phy_offset < offset_limit:
                break
            kept += 1
            slots[key_hash % self.hash_slot_num] = kept
            end_phy_offset, end_seconds = phy_offset, seconds
        if not kept:
            return False
        header.index_count = kept + 1
        header.hash_slot_count = self.hash_slot_num - slots.count(0)
        header.end_phy_offset, header.end_timestamp = end_phy_offset, header.begin_timestamp + end_seconds * 1000
        if sys.byteorder == "little":
            slots.byteswap()
        self._allocate_slots()
        self._buffer[INDEX_HEADER_SIZE:self._entries_at] = slots.tobytes()
        header.update_byte_buffer()
        self.flush()
        return True

    def mend_slots(self) -> None:
        """Move slots, after a crash, from entries that are not counted in the header back to counted entries.

        Differs: after a crash, index slots that point to entries not counted in the header are moved back to counted
        entries. The original leaves such slots, and loses the older entries of the slot.
        """
        slots = array("i", bytes(self._buffer[INDEX_HEADER_SIZE:self._entries_at]))
        if sys.byteorder == "little":
            slots.byteswap()
        count = self.index_header.index_count
        if max(slots, default=INVALID_INDEX) < count:
            return
        for slot, pointed in enumerate(slots):
            number = pointed
            while number >= count:
                number = self._predecessor(number, slot)
            if number != pointed:
                _pack_slot(self._buffer, INDEX_HEADER_SIZE + slot * HASH_SLOT_SIZE, number)

    def _predecessor(self, number: int, slot: int) -> int:
        if number < self.index_num:
            previous: int
            key_hash, _, _, previous = ENTRY.unpack_from(self._buffer, self._entries_at + number * INDEX_SIZE)
            if key_hash % self.hash_slot_num == slot and INVALID_INDEX < previous < number:
                return previous
        return INVALID_INDEX

    def _allocate_slots(self) -> None:
        if not self._slots_allocated:
            self.mapped_file.allocate(0, self._entries_at)
            self._slots_allocated = True

    @property
    def is_write_full(self) -> bool:
        """True if the file has no room for another entry."""
        return self.index_header.index_count >= self.index_num

    def destroy(self, interval_forcibly_ms: int) -> bool:
        """Delete the file; return False if it is still being read."""
        return self.mapped_file.destroy(interval_forcibly_ms)

    def put_key(self, key: str, phy_offset: int, store_timestamp: int) -> bool:
        """Add an entry; return False if the file is full. Raise OSError if the disk is full."""
        if self.is_write_full:
            log.warning("Over index file capacity: index count = %s; index max num = %s",
                        self.index_header.index_count, self.index_num)
        return self.put_keys([key], phy_offset, store_timestamp) == 1

    def put_keys(self, keys: list[str], phy_offset: int, store_timestamp: int) -> int:
        """Add an entry for each key of one record until the file is full; return the number of added entries.

        Raise OSError if the disk is full.
        """
        header, buffer, slot_num, entries_at = self.index_header, self._buffer, self.hash_slot_num, self._entries_at
        number = header.index_count
        keys = keys[:max(self.index_num - number, 0)]
        if not self._slots_allocated:
            self._allocate_slots()
        entries: list[bytes] = []
        slots: dict[int, int] = {}
        new_slots = 0
        seconds = time_diff_seconds(store_timestamp, header.begin_timestamp)
        for key in keys:
            key_hash = index_key_hash_method(key)
            slot_at = INDEX_HEADER_SIZE + key_hash % slot_num * HASH_SLOT_SIZE
            previous = slots.get(slot_at) or _unpack_slot(buffer, slot_at)[0]
            # Differs: the number of an index entry that is not written yet (after a crash between slot and count) is
            # ignored. In the original an entry could become its own predecessor.
            if not INVALID_INDEX < previous < number:
                previous = INVALID_INDEX
                new_slots += 1
            entries.append(_pack_entry(key_hash, phy_offset, seconds, previous))
            if number == 1:
                header.begin_phy_offset, header.begin_timestamp = phy_offset, store_timestamp
                seconds = 0
            slots[slot_at] = number
            number += 1
        if not entries:
            return 0
        self.mapped_file.write_at(entries_at + header.index_count * INDEX_SIZE, b"".join(entries))
        for slot_at, value in slots.items():
            _pack_slot(buffer, slot_at, value)
        header.index_count = number
        header.hash_slot_count += new_slots
        header.end_phy_offset, header.end_timestamp = phy_offset, store_timestamp
        header.update_byte_buffer()
        return len(entries)

    def put_key_rows(self, rows: bytes, first: int) -> int:
        """Add the keys of a bulk scan from row `first` on until the file is full; return the first row not added.

        Raise OSError if the disk is full; then no key was added.
        """
        header = self.index_header
        stop = min(len(rows) // KEY.size, first + max(self.index_num - header.index_count, 0))
        if stop <= first:
            return first
        self._allocate_slots()
        at = self._entries_at + header.index_count * INDEX_SIZE
        self.mapped_file.reserve(at, at + (stop - first) * INDEX_SIZE)
        first, header.counters = bulk.put_keys(self._buffer, self.hash_slot_num, self.index_num, header.counters, rows,
                                               first, stop)
        return first

    def has_entry(self, key_hash: int, phy_offset: int) -> bool:
        """Return whether the file has a key with this hash for the record at `phy_offset`, the file's last record."""
        for entry_hash, entry_offset, _seconds, _number in walk_chain(
                self._buffer, self.hash_slot_num, self.index_header.index_count, key_hash % self.hash_slot_num):
            if entry_offset < phy_offset:
                return False
            if entry_hash == key_hash and entry_offset == phy_offset:
                return True
        return False

    @property
    def begin_timestamp(self) -> int:
        """The store time (ms) of the first entry."""
        return self.index_header.begin_timestamp

    @property
    def end_timestamp(self) -> int:
        """The store time (ms) of the last entry."""
        return self.index_header.end_timestamp

    @property
    def end_phy_offset(self) -> int:
        """The commit log offset of the last entry."""
        return self.index_header.end_phy_offset

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Return whether the file may have entries between two store times (ms)."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select_phy_offset(self, phy_offsets: list[int], key: str, max_num: int, begin: int, end: int) -> None:
        """Append the commit log offsets of `key` between two store times (ms), newest first, up to `max_num`."""
        if not self.mapped_file.hold():
            return
        try:
            header = self.index_header
            key_hash = index_key_hash_method(key)
            if len(phy_offsets) >= max_num:
                return
            walked, end_ns = 0, time.monotonic_ns() + _WALK_NS
            for entry_hash, phy_offset, seconds, _number in walk_chain(
                    self._buffer, self.hash_slot_num, header.index_count, key_hash % self.hash_slot_num):
                walked += 1  # noqa: SIM113, enumerate would make a pair per step
                # Differs: a query by key leaves a chain of millions of entries (a key that all messages have) after 2
                # s.
                if seconds < 0 or walked % _LOOK_AT_CLOCK == 0 and time.monotonic_ns() > end_ns:
                    break
                store_time = header.begin_timestamp + seconds * 1000
                if entry_hash == key_hash and begin <= store_time <= end:
                    phy_offsets.append(phy_offset)
                    if len(phy_offsets) >= max_num:
                        break
                if store_time < begin:
                    break
        finally:
            self.mapped_file.release()


_BLOCK = 4 << 20
_TRIED = 1000  # entries


class Shape(NamedTuple):
    """maxHashSlotNum and maxIndexNum."""

    slots: int
    entries: int


# The default configuration.
USUAL = Shape(5_000_000, 20_000_000)


def index_shape(root: str) -> Shape | None:
    """Return the shape of the index files of the store at `root`, or None without entries or a certain result."""
    folder = paths.get_store_path_index(root)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        with open(open_regular(os.path.join(folder, name)), "rb") as file:
            found = shape_of(file)
        if found is not None:
            return found
    return None


def shape_of(file: BinaryIO) -> Shape | None:
    """Return the shape of an index file, or None if it has no entries or if they contradict every possible shape."""
    size = os.fstat(file.fileno()).st_size
    head = pread(file.fileno(), INDEX_HEADER_SIZE, 0)
    if len(head) < INDEX_HEADER_SIZE:
        return None
    used = HEADER.unpack(head)[5]  # the number of the next entry
    end = _end_of_data(file.fileno(), size)
    if used < 2 or end <= INDEX_HEADER_SIZE:
        return None
    # The last byte that is not 0 lies in entry used - 1, so five numbers of slots are possible. The file's size, which
    # is the header + slots * 4 + entries * 20, leaves one of them.
    last_entry_begins = end - INDEX_SIZE * used - INDEX_HEADER_SIZE
    most = (end - 1 - INDEX_HEADER_SIZE - INDEX_SIZE * (used - 1)) // HASH_SLOT_SIZE
    for slots in range(most, max(-(-last_entry_begins // HASH_SLOT_SIZE), 1) - 1, -1):
        entries, rest = divmod(size - INDEX_HEADER_SIZE - slots * HASH_SLOT_SIZE, INDEX_SIZE)
        if rest == 0 and entries >= used and file_size(slots, entries) == size and _fits(file.fileno(), slots, used):
            return Shape(slots, entries)
    return None


def _end_of_data(fd: int, size: int) -> int:
    """Return the position after the last byte that is not 0."""
    position = size
    while position > 0:
        begin = max(position - _BLOCK, 0)
        data = pread(fd, position - begin, begin).rstrip(b"\0")
        if data:
            return begin + len(data)
        position = begin
    return 0


def _fits(fd: int, slots: int, used: int) -> bool:
    """Return whether the slots lead to the first entries, and each entry is newer than its predecessor."""
    entries_at = INDEX_HEADER_SIZE + slots * HASH_SLOT_SIZE
    count = min(used - 1, _TRIED)
    data = pread(fd, count * INDEX_SIZE, entries_at + INDEX_SIZE)
    for number, (key_hash, offset, seconds, previous) in enumerate(ENTRY.iter_unpack(data), 1):
        newest = SLOT.unpack(pread(fd, HASH_SLOT_SIZE, INDEX_HEADER_SIZE + key_hash % slots * HASH_SLOT_SIZE))[0]
        if key_hash < 0 or offset < 0 or seconds < 0 or not 0 <= previous < number <= newest < used:
            return False
    return True
