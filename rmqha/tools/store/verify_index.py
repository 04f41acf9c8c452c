"""Index files held against the log, in one pass over both: their entries stand in the order of the log."""
import sys
from array import array
from collections.abc import Iterator

from rmqha.common.filesystem import read_at
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.index.index_file import Shape
from rmqha.store.index.index_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    SLOT,
    index_key_hash_method,
    time_diff_seconds,
)
from rmqha.tools.store.findings import Findings
from rmqha.tools.store.index_reader import IndexEntry, IndexReader
from rmqha.tools.store.record_scan import LogRecord
from rmqha.tools.store.store_reader import StoreReader

_COUNT_AT, _SLOT_COUNT_AT, _END_AT = 36, 32, 24
_ROWS_AT_ONCE = 1 << 17  # the most keys that are compared at once


class IndexCheck:
    """Call it with the keys of each record of the log in order, then `finish`."""

    def __init__(self, store: StoreReader, files: list[IndexReader], findings: Findings) -> None:
        self.store = store
        self.files = [reader for reader in files if reader.shape is not None and not reader.is_empty]
        self.findings = findings
        self.keys = 0  # of the log
        self.entries = 0  # of the index
        checkpoint = store.checkpoint()
        self._flushed_to = checkpoint.index_msg_timestamp if checkpoint is not None else 0
        self._entries = _EntryWalk(self)
        self._at: tuple[IndexReader, IndexEntry] | None = None  # the current entry, and its file; None at the end
        self._file: IndexReader | None = None  # of the last entry
        self._first_offset: int | None = None
        self._uncovered = 0  # keys in front of the first entry
        self._late = 0  # keys behind the last entry
        self._late_from = 0
        self._last_offset = -1
        self._advance()

    def record(self, record: LogRecord, keys: list[str]) -> None:
        """Compare the keys of one record."""
        if not keys:
            return
        self.keys += len(keys)
        offset = record.offset
        self._skip_to(offset)
        expected = {index_key_hash_method(key) for key in keys}
        if self._at is None:
            if not self._late:
                self._late_from = offset
            self._late += len(keys)
            return
        if self._first_offset is not None and offset < self._first_offset:
            self._uncovered += len(keys)
            return
        found = self._take(record)
        if found == expected:
            return
        lost = expected - found
        reader, entry = self._at if self._at is not None else (self._file, None)
        if lost and self._at is None and self.store.may_be_torn:  # its keys were being added one by one
            self._late, self._late_from = len(lost), offset
        elif lost:
            names = [key.partition("#")[2] for key in keys if index_key_hash_method(key) in lost]
            self._flaw(reader, entry, f"no entry for key {names[0]!r} of the record at {offset}")
        if found - expected:
            self._flaw(reader, entry,
                       f"an entry in front of this one points at {offset}, whose record has no such key")

    def _take(self, record: LogRecord) -> set[int]:
        """The hashes of the entries that point at `record`."""
        found = set()
        while self._at is not None and self._at[1].phy_offset == record.offset:
            reader, entry = self._at
            begin = reader.head.begin_timestamp
            found.add(entry.key_hash)
            # the first entry counts from the end of the file before
            if entry.number > 1 and entry.seconds != time_diff_seconds(record.store_timestamp, begin):
                self._flaw(reader, entry, f"the time of entry {entry.number} is {entry.seconds} s behind the "
                           f"file's first, the record's {time_diff_seconds(record.store_timestamp, begin)} s")
            self._advance()
        return found

    def _skip_to(self, offset: int) -> None:
        """Pass entries in front of `offset`: they point at no record with keys."""
        while self._at is not None and self._at[1].phy_offset < offset:
            self._astray(*self._at)
            self._advance()

    def _astray(self, reader: IndexReader, entry: IndexEntry) -> None:
        if entry.phy_offset >= self.store.log.min_offset:
            self._flaw(reader, entry, f"entry {entry.number} points at {entry.phy_offset}, where no record has its key")

    def _advance(self) -> None:
        self._at = next(self._entries, None)
        if self._at is not None:
            self._file, entry = self._at
            self.entries += 1
            if self._first_offset is None:
                self._first_offset = entry.phy_offset

    def _flaw(self, reader: IndexReader | None, entry: IndexEntry | None, what: str) -> None:
        """A flaw, unless the next start drops the file anyway."""
        reader = reader or self.files[-1]
        if self.store.crashed and reader.head.end_timestamp > self._flushed_to:
            self.findings.note(f"index file {reader.name} has flaws: it was not flushed, and the next start drops it")
            return
        self.findings.flaw(reader.path, None if entry is None else _position(_shape_of(reader), entry.number), what)

    def take_rows(self, rows: bytes) -> bool:
        """`record` for the key rows of a bulk scan when the next entries are theirs, one by one; else false."""
        count = len(rows) // KEY.size
        if count and self._at is None:
            if not self._late:
                self._late_from = KEY.unpack_from(rows)[0]
            self._late += count
        elif count and self._at is not None:
            if not self._entries.take_rows(*self._at, rows):
                return False
            self.entries += count - 1
            self._advance()
        self.keys += count
        return True

    def check_entry(self, reader: IndexReader, entry: IndexEntry, newest: int, before: int) -> None:
        """Check an entry's own structure. `newest`: the newest entry so far of its slot; `before`: the last offset."""
        if entry.key_hash < 0:
            self._flaw(reader, entry, f"entry {entry.number} has the hash {entry.key_hash}")
        if entry.previous != newest:
            self._flaw(reader, entry, f"entry {entry.number} chains to entry {entry.previous}, not {newest}")
        if entry.phy_offset < before:
            self._flaw(reader, entry, f"entry {entry.number} points at {entry.phy_offset}, the one before at {before}")

    def check_totals(self, reader: IndexReader, last: "array[int]", used: int, number: int,
                     end_offset: int) -> None:
        """Check what a file says of itself against its entries, of which `number` was the last one."""
        head = reader.head
        if self.store.live and reader is self.files[-1]:
            return  # it is being written
        if number != head.index_count - 1:
            self._flaw_at(reader, _COUNT_AT, f"it counts {head.index_count - 1} entries, and has room for {number}")
        if used != head.slot_count:
            self._flaw_at(reader, _SLOT_COUNT_AT, f"it counts {head.slot_count} used slots, and has {used}")
        if end_offset != head.end_phy_offset:
            self._flaw_at(reader, _END_AT, f"it ends with offset {head.end_phy_offset}, its last entry with "
                          f"{end_offset}")
        slots = reader.slots(_shape_of(reader))
        if slots != last:
            slot = next(index for index, (one, other) in enumerate(zip(slots, last)) if one != other)
            self._flaw_at(reader, INDEX_HEADER_SIZE + slot * HASH_SLOT_SIZE,
                          f"slot {slot} begins with entry {slots[slot]}, not {last[slot]}")

    def _flaw_at(self, reader: IndexReader, position: int, what: str) -> None:
        if self.store.crashed and reader.head.end_timestamp > self._flushed_to:
            self._flaw(reader, None, what)
        else:
            self.findings.flaw(reader.path, position, what)

    def finish(self, log_end: int) -> None:
        """What is left when the log is at its end."""
        while self._at is not None:
            reader, entry = self._at
            if entry.phy_offset < log_end:
                self._astray(reader, entry)
            elif not self.store.may_be_torn:
                self._flaw(reader, entry, f"entry {entry.number} points at {entry.phy_offset}, behind the end of the "
                           f"log at {log_end}")
            self._advance()
        if self._uncovered:
            self._flaw(self.files[0], None, f"the index begins at offset {self._first_offset}: {self._uncovered} keys "
                       "of records before it are not found")
        if not self._late:
            return
        what = f"{self._late} keys of records from offset {self._late_from} on are not found"
        if not self.files:
            self.findings.note(f"there is no index: {what} (messageIndexEnable=false?)")
        elif self.store.may_be_torn:
            self.findings.note(f"the index ends before the log: {what}")
        else:
            self._flaw(self.files[-1], None, what)


class _EntryWalk:
    """The entries of all files in order, one by one or many at once; each file's own structure is checked on the way.

    The slots are kept as they become with each entry, in the form that the bulk kernel takes.
    """

    def __init__(self, check: IndexCheck) -> None:
        self._check = check
        self._shape = Shape(1, 0)  # of the file it is in
        self._slots = bytearray()  # header, slots, and room for entries
        self._entries_at = 0
        self._used = 0  # slots
        self._number = 0  # of the last entry
        self._before = -1  # offset of the last entry
        self._walk = self._all()

    def __next__(self) -> tuple[IndexReader, IndexEntry]:
        return next(self._walk)

    def __iter__(self) -> Iterator[tuple[IndexReader, IndexEntry]]:
        return self

    def _all(self) -> Iterator[tuple[IndexReader, IndexEntry]]:
        for reader in self._check.files:
            self._shape, self._used, self._number = _shape_of(reader), 0, 0
            self._entries_at = INDEX_HEADER_SIZE + self._shape.slots * HASH_SLOT_SIZE
            self._slots = bytearray(self._entries_at + _ROWS_AT_ONCE * INDEX_SIZE)
            begin = -1
            while begin != self._number:  # again behind what was taken many at once
                begin = self._number
                yield from self._one_by_one(reader, begin + 1)
            self._check.check_totals(reader, self._newest_of_slots(), self._used, self._number, self._before)

    def _one_by_one(self, reader: IndexReader, first: int) -> Iterator[tuple[IndexReader, IndexEntry]]:
        for entry in reader.entries(self._shape, first):
            slot_at = self._slot_at(entry.key_hash)
            newest = SLOT.unpack_from(self._slots, slot_at)[0]
            self._number, before = entry.number, self._before
            self._used += not newest
            SLOT.pack_into(self._slots, slot_at, entry.number)
            self._check.check_entry(reader, entry, newest, before)
            if entry.phy_offset >= before:
                self._before = entry.phy_offset
                yield reader, entry
                if self._number != entry.number:
                    return

    def _slot_at(self, key_hash: int) -> int:
        return INDEX_HEADER_SIZE + key_hash % self._shape.slots * HASH_SLOT_SIZE

    def _newest_of_slots(self) -> "array[int]":
        newest = array("i", bytes(self._slots[INDEX_HEADER_SIZE:self._entries_at]))
        if sys.byteorder == "little":
            newest.byteswap()
        return newest

    def take_rows(self, reader: IndexReader, entry: IndexEntry, rows: bytes) -> bool:
        """Go on to the last of the entries of `rows`, the first of which is `entry`, the last one that was given.

        False, and nothing is changed, when they are not all there in this file, in this order.
        """
        shape = self._shape
        count, first = len(rows) // KEY.size, entry.number
        end, begin_timestamp = first + count, reader.head.begin_timestamp
        offset, store_timestamp, key_hash, _ = KEY.unpack_from(rows)
        if first != self._number or first == 1 or end > min(reader.head.index_count, shape.entries) \
                or count > _ROWS_AT_ONCE or (entry.key_hash, entry.phy_offset, entry.seconds) != \
                (key_hash, offset, time_diff_seconds(store_timestamp, begin_timestamp)):
            return False
        there = read_at(reader.path, self._entries_at + (first + 1) * INDEX_SIZE, (count - 1) * INDEX_SIZE)
        counters = IndexCounters(begin_timestamp, 0, 0, 0, 0, first + 1)
        _, counters = bulk.put_keys(self._slots, shape.slots, end, counters, rows, 1, first_entry=first + 1)
        expected = bytes(self._slots[self._entries_at:self._entries_at + (count - 1) * INDEX_SIZE])
        if there != expected:
            for own_hash, _, _, previous in reversed(list(ENTRY.iter_unpack(expected))):
                SLOT.pack_into(self._slots, self._slot_at(own_hash), previous)
            return False
        self._used += counters.hash_slot_count
        self._number, self._before = end - 1, KEY.unpack_from(rows, len(rows) - KEY.size)[0]
        return True


def _shape_of(reader: IndexReader) -> Shape:
    """The shape of one of the files that are checked."""
    assert reader.shape is not None  # others are left out
    return reader.shape


def _position(shape: Shape, number: int) -> int:
    return INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE + number * INDEX_SIZE


