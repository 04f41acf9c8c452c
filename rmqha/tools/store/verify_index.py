"""Index files held against the log, in one pass over both: their entries stand in the order of the log."""
from array import array
from collections.abc import Iterator

from rmqha.store.index.index_layout import (HASH_SLOT_SIZE, INDEX_HEADER_SIZE, INDEX_SIZE, index_key_hash_method,
                                            time_diff_seconds)
from rmqha.tools.store.findings import Findings
from rmqha.tools.store.index_reader import IndexEntry, IndexReader, Shape
from rmqha.tools.store.record_scan import LogRecord
from rmqha.tools.store.store_reader import StoreReader

_COUNT_AT, _SLOT_COUNT_AT, _END_AT = 36, 32, 24


class IndexCheck:
    """Is told the keys of each record of the log in order, then `finish`."""

    def __init__(self, store: StoreReader, files: list[IndexReader], findings: Findings) -> None:
        self.store = store
        self.files = [reader for reader in files if reader.shape is not None and not reader.is_empty]
        self.findings = findings
        self.keys = 0  # of the log
        self.entries = 0  # of the index
        checkpoint = store.checkpoint()
        self._flushed_to = checkpoint.index_msg_timestamp if checkpoint is not None else 0
        self._entries = self._all_entries()
        self._file: IndexReader | None = None  # of the current entry
        self._entry: IndexEntry | None = None
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
        if self._entry is None:
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
        if lost and self._entry is None and self.store.may_be_torn:  # its keys were being added one by one
            self._late, self._late_from = len(lost), offset
        elif lost:
            names = [key.partition("#")[2] for key in keys if index_key_hash_method(key) in lost]
            self._flaw(self._file, self._entry, f"no entry for key {names[0]!r} of the record at {offset}")
        if found - expected:
            self._flaw(self._file, self._entry,
                       f"an entry in front of this one points at {offset}, whose record has no such key")

    def _take(self, record: LogRecord) -> set[int]:
        """The hashes of the entries that point at `record`."""
        found = set()
        while self._entry is not None and self._entry.phy_offset == record.offset:
            entry, begin = self._entry, self._file.head.begin_timestamp
            found.add(entry.key_hash)
            # the first entry counts from the end of the file before
            if entry.number > 1 and entry.seconds != time_diff_seconds(record.store_timestamp, begin):
                self._flaw(self._file, entry, f"the time of entry {entry.number} is {entry.seconds} s behind the "
                           f"file's first, the record's {time_diff_seconds(record.store_timestamp, begin)} s")
            self._advance()
        return found

    def _skip_to(self, offset: int) -> None:
        """Pass entries in front of `offset`: they point at no record with keys."""
        while self._entry is not None and self._entry.phy_offset < offset:
            self._astray(self._file, self._entry)
            self._advance()

    def _astray(self, reader: IndexReader, entry: IndexEntry) -> None:
        if entry.phy_offset >= self.store.log.min_offset:
            self._flaw(reader, entry, f"entry {entry.number} points at {entry.phy_offset}, where no record has its key")

    def _advance(self) -> None:
        self._file, self._entry = next(self._entries, (self._file, None))
        if self._entry is not None:
            self.entries += 1
            if self._first_offset is None:
                self._first_offset = self._entry.phy_offset

    def _flaw(self, reader: IndexReader | None, entry: IndexEntry | None, what: str) -> None:
        """A flaw, unless the next start drops the file anyway."""
        reader = reader or self.files[-1]
        if self.store.crashed and reader.head.end_timestamp > self._flushed_to:
            self.findings.note(f"index file {reader.name} has flaws: it was not flushed, and the next start drops it")
            return
        self.findings.flaw(reader.path, None if entry is None else _position(reader.shape, entry.number), what)

    def _all_entries(self) -> Iterator[tuple[IndexReader, IndexEntry]]:
        """The entries of all files; each file's own structure is checked on the way."""
        before = -1
        for reader in self.files:
            last = array("i", bytes(4 * reader.shape.slots))  # newest entry so far of each slot
            used, number = 0, 0
            for entry in reader.entries(reader.shape):
                number = entry.number
                if entry.key_hash < 0:
                    self._flaw(reader, entry, f"entry {number} has the hash {entry.key_hash}")
                slot = entry.key_hash % reader.shape.slots
                if entry.previous != last[slot]:
                    self._flaw(reader, entry, f"entry {number} chains to entry {entry.previous}, not {last[slot]}")
                used += not last[slot]
                last[slot] = number
                if entry.phy_offset < before:
                    self._flaw(reader, entry,
                               f"entry {number} points at {entry.phy_offset}, the one before at {before}")
                else:
                    before = entry.phy_offset
                    yield reader, entry
            self._check_totals(reader, last, used, number, before)

    def _check_totals(self, reader: IndexReader, last: array, used: int, number: int, end_offset: int) -> None:
        head, shape = reader.head, reader.shape
        if self.store.live and reader is self.files[-1]:
            return  # it is being written
        if number != head.index_count - 1:
            self._flaw_at(reader, _COUNT_AT, f"it counts {head.index_count - 1} entries, and has room for {number}")
        if used != head.slot_count:
            self._flaw_at(reader, _SLOT_COUNT_AT, f"it counts {head.slot_count} used slots, and has {used}")
        if end_offset != head.end_phy_offset:
            self._flaw_at(reader, _END_AT, f"it ends with offset {head.end_phy_offset}, its last entry with "
                          f"{end_offset}")
        slots = reader.slots(shape)
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
        while self._entry is not None:
            if self._entry.phy_offset < log_end:
                self._astray(self._file, self._entry)
            elif not self.store.may_be_torn:
                self._flaw(self._file, self._entry, f"entry {self._entry.number} points at {self._entry.phy_offset}, "
                           f"behind the end of the log at {log_end}")
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


def _position(shape: Shape, number: int) -> int:
    return INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE + number * INDEX_SIZE


