"""Checks of a store's files: commit log, consume queues, index and checkpoint.

- `Findings`: the flaws and notes of a check.
- `check_commit_log_files`, `check_queue_files`, `check_index_files`: check names and sizes, and look for missing files.
- `IndexCheck`: compares the index files with the log in one pass over both, since their entries are in log order.
- `QueuesCheck`: compares the consume queues with the log: each record has its unit, each unit its record.
- `commitlog_option`, `delay_levels_option`, `index_shape_options`: options that several store commands share.
"""
import os
import struct
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from rmqha.common.filesystem import read_at
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, CQ_UNIT
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
from rmqha.store.index.index_layout import file_size as index_file_size
from rmqha.tools.store_files.readers import (
    UNIT,
    IndexEntry,
    IndexReader,
    QueueKey,
    QueueReader,
    StoreReader,
    Unit,
    ext_position,
    unpack,
)
from rmqha.tools.store_files.reading import DEFAULT_DELAY_LEVELS, Folder, LogRecord, RunOfUnits
from rmqha.tools.store_files.reading import DispatchedUnit as DispatchUnit
from rmqha.tools.terminal import CannotAnswerError, time_text

F = TypeVar("F", bound=Callable[..., Any])

commitlog_option = click.option(
    "--commitlog", multiple=True, type=click.Path(exists=True, file_okay=False),
    help="The folder of the commit log, if it is not ROOT/commitlog. Can be repeated.")
delay_levels_option = click.option(
    "--delay-levels", default=DEFAULT_DELAY_LEVELS, help="The broker's messageDelayLevel, if it is not the default.")


def index_shape_options(command: F) -> F:
    """Add --index-slots and --index-entries."""
    command = click.option("--index-entries", type=click.IntRange(1),
                           help="The broker's maxIndexNum; by default it is detected.")(command)
    return click.option("--index-slots", type=click.IntRange(1),
                        help="The broker's maxHashSlotNum; by default it is detected.")(command)


def index_shape(slots: int | None, entries: int | None) -> Shape | None:
    """Return the shape that the options give, if any."""
    if (slots is None) != (entries is None):
        raise CannotAnswerError("--index-slots and --index-entries go together: give both or neither")
    return Shape(slots, entries) if slots is not None and entries is not None else None


class EnoughFlawsError(Exception):
    """The requested number of flaws has been found."""


@dataclass(frozen=True)
class Flaw:
    """A flaw, described by `what`, at byte `position` of a file; None when it concerns the whole file."""

    file: str
    position: int | None
    what: str

    def text(self) -> str:
        """Return the flaw as one line."""
        return f"{self.file}{'' if self.position is None else f' at {self.position}'}: {self.what}"


@dataclass
class Findings:
    """Flaws up to `limit`, and notes: observations that are not flaws, with their counts."""

    limit: int
    flaws: list[Flaw] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def flaw(self, file: str, position: int | None, what: str) -> None:
        """Record a flaw. EnoughFlawsError at the last one."""
        self.flaws.append(Flaw(file, position, what))
        if len(self.flaws) >= self.limit:
            raise EnoughFlawsError

    def note(self, what: str) -> None:
        """Record something that a restart repairs, or that only looks like a flaw."""
        self.notes[what] += 1


_DAY_MS = 24 * 3600 * 1000


def check_commit_log_files(store: StoreReader, findings: Findings) -> None:
    """Check the names, sizes and order of the commit log's files."""
    for path in store.log.folder.foreign:
        findings.flaw(path, None, "it is not a commit log file; a broker does not start while it is there")
    _check_folder(store.log.folder, store.log.file_size, 1, store.live, findings)


def check_queue_files(readers: dict[QueueKey, QueueReader], foreign: list[str], live: bool,
                      findings: Findings) -> None:
    """Check the names, sizes and order of the consume queues' files."""
    for path in foreign:
        findings.note(f"{path} is not a consume queue; brokers ignore it")
    for reader in readers.values():
        for path in reader.folder.foreign:
            findings.flaw(path, None, "it is not a consume queue file; a broker does not start while it is there")
        _check_folder(reader.folder, reader.file_size, CQ_STORE_UNIT_SIZE, live, findings)


def common_file_size(readers: dict[QueueKey, QueueReader]) -> int:
    """Return the size that most consume queue files have, over all queues."""
    return Folder([segment for reader in readers.values() for segment in reader.folder.segments], []).file_size


def _check_folder(folder: Folder, file_size: int, unit: int, live: bool, findings: Findings) -> None:
    before = None
    for segment in folder.segments:
        is_last = segment is folder.segments[-1]
        is_being_made = live and is_last and segment.size < file_size
        if segment.size != file_size and not is_being_made:
            findings.flaw(segment.path, None, f"it has {segment.size} bytes, the others have {file_size}"
                          if len(folder.segments) > 1 else f"it has {segment.size} bytes, not {file_size}")
        if file_size and (segment.start % file_size or segment.start % unit):
            findings.flaw(segment.path, None, f"its name is not a multiple of the file size {file_size}")
        if before is not None and segment.start != before.start + file_size:
            findings.flaw(segment.path, None,
                          f"it follows {before.name}; expected {before.start + file_size:020d}")
        before = segment


def check_index_files(files: list[IndexReader], foreign: list[str], live: bool, findings: Findings) -> None:
    """Check the names, sizes and shapes of the index files."""
    for path in foreign:
        findings.note(f"{path} is not an index file; brokers ignore it")
    sizes = [reader.size for reader in files]
    for reader in files:
        if reader.size <= INDEX_HEADER_SIZE:
            if not live:
                findings.flaw(reader.path, None, f"it has {reader.size} bytes")
        elif reader.shape is None:
            if not reader.is_empty and not live:
                findings.flaw(reader.path, None, "can't detect maxHashSlotNum and maxIndexNum from its contents: it is "
                              "damaged, or give them with --index-slots and --index-entries")
        elif reader.size != index_file_size(*reader.shape):
            findings.flaw(reader.path, None, f"it has {reader.size} bytes, not {index_file_size(*reader.shape)}")
        elif reader.head_count_on_disk < 0:
            findings.flaw(reader.path, 36, f"it counts {reader.head_count_on_disk} entries")
        if reader.shape is None and sizes.count(reader.size) * 2 < len(sizes):
            findings.flaw(reader.path, None, f"it has {reader.size} bytes, the other index files have another size")


def check_checkpoint(store: StoreReader, last_store_timestamp: int, findings: Findings) -> None:
    """Check the three times: not negative, and not in the future."""
    path, checkpoint = store.checkpoint_path, store.checkpoint()
    if checkpoint is None:
        if os.path.exists(path):
            findings.flaw(path, None, f"it has {os.path.getsize(path)} bytes, instead of 4096")
        elif last_store_timestamp and not store.live:
            findings.note("the checkpoint is missing, so recovery after a crash scans the whole log")
        return
    limit = int(time.time() * 1000) + _DAY_MS
    for position, (name, timestamp) in enumerate(checkpoint._asdict().items()):
        if timestamp < 0 or timestamp > max(limit, last_store_timestamp + _DAY_MS):
            findings.flaw(path, position * 8, f"{name} is {timestamp} ({time_text(timestamp)})")
        elif timestamp > last_store_timestamp > 0 and not store.live:
            findings.note(f"{name} in the checkpoint is newer than the last message")


_COUNT_AT, _SLOT_COUNT_AT, _END_AT = 36, 32, 24
_ROWS_AT_ONCE = 1 << 17  # the most keys that are compared at once


class IndexCheck:
    """Compares the index with the log: call it with the keys of each record in order, then `finish`."""

    def __init__(self, store: StoreReader, files: list[IndexReader], findings: Findings) -> None:
        self.store = store
        self.files = [reader for reader in files if reader.shape is not None and not reader.is_empty]
        self.findings = findings
        self.keys = 0  # of the log
        self.entries = 0  # of the index
        checkpoint = store.checkpoint()
        self._flushed_to = checkpoint.index_msg_timestamp if checkpoint is not None else 0
        self._entries = _EntryWalk(self)
        # The current entry and its file; None at the end.
        self._at: tuple[IndexReader, IndexEntry] | None = None
        self._file: IndexReader | None = None  # of the last entry
        self._first_offset: int | None = None
        self._uncovered = 0  # keys before the first entry
        self._late = 0  # keys after the last entry
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
        # A crash may have interrupted adding the keys one by one.
        if lost and self._at is None and self.store.may_be_torn:
            self._late, self._late_from = len(lost), offset
        elif lost:
            names = [key.partition("#")[2] for key in keys if index_key_hash_method(key) in lost]
            self._flaw(reader, entry, f"no entry for key {names[0]!r} of the record at {offset}")
        if found - expected:
            self._flaw(reader, entry,
                       f"an entry before this one points at {offset}, whose record has no such key")

    def _take(self, record: LogRecord) -> set[int]:
        """Consume the entries that point at `record`; return their hashes."""
        found = set()
        while self._at is not None and self._at[1].phy_offset == record.offset:
            reader, entry = self._at
            begin = reader.head.begin_timestamp
            found.add(entry.key_hash)
            # The first entry counts from the end of the previous file.
            if entry.number > 1 and entry.seconds != time_diff_seconds(record.store_timestamp, begin):
                self._flaw(reader, entry, f"the time of entry {entry.number} is {entry.seconds} s after the file's "
                           f"first, the record's {time_diff_seconds(record.store_timestamp, begin)} s")
            self._advance()
        return found

    def _skip_to(self, offset: int) -> None:
        """Skip entries before `offset`: they point at no record with keys."""
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
        """Record a flaw, unless the next start drops the file anyway."""
        reader = reader or self.files[-1]
        if self.store.crashed and reader.head.end_timestamp > self._flushed_to:
            self.findings.note(f"index file {reader.name} has flaws: it was not flushed, and the next start drops it")
            return
        self.findings.flaw(reader.path, None if entry is None else _position(_shape_of(reader), entry.number), what)

    def take_rows(self, rows: bytes) -> bool:
        """Process the key rows of a bulk scan like `record`, if the next entries are exactly theirs; else False."""
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
        """Check an entry's structure. `newest`: the newest entry so far in its slot; `before`: the previous offset."""
        if entry.key_hash < 0:
            self._flaw(reader, entry, f"entry {entry.number} has the hash {entry.key_hash}")
        if entry.previous != newest:
            self._flaw(reader, entry, f"entry {entry.number} chains to entry {entry.previous}, not {newest}")
        if entry.phy_offset < before:
            self._flaw(reader, entry, f"entry {entry.number} points at {entry.phy_offset}, the previous one at "
                       f"{before}")

    def check_totals(self, reader: IndexReader, last: "array[int]", used: int, number: int,
                     end_offset: int) -> None:
        """Check the header of a file against its entries, of which `number` is the last."""
        head = reader.head
        if self.store.live and reader is self.files[-1]:
            return  # the file is being written
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
        """Check the entries that are left at the end of the log."""
        while self._at is not None:
            reader, entry = self._at
            if entry.phy_offset < log_end:
                self._astray(reader, entry)
            elif not self.store.may_be_torn:
                self._flaw(reader, entry, f"entry {entry.number} points at {entry.phy_offset}, after the end of the "
                           f"log at {log_end}")
            self._advance()
        if self._uncovered:
            self._flaw(self.files[0], None, f"the index begins at offset {self._first_offset}: {self._uncovered} keys "
                       "of records before it are not found")
        if not self._late:
            return
        what = f"{self._late} keys of records from offset {self._late_from} on are not found"
        if not self.files:
            self.findings.note(f"the index is missing: {what} (messageIndexEnable=false?)")
        elif self.store.may_be_torn:
            self.findings.note(f"the index ends before the log: {what}")
        else:
            self._flaw(self.files[-1], None, what)


class _EntryWalk:
    """The entries of all files in order, singly or many at once; the structure of each file is checked on the way.

    The slots are kept as they become with each entry, in the form that the bulk kernel takes.
    """

    def __init__(self, check: IndexCheck) -> None:
        self._check = check
        self._shape = Shape(1, 0)  # of the current file
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
            # Again, after entries that were taken many at once.
            while begin != self._number:
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
        """Advance to the last entry of `rows`; the first of them is `entry`, the last one returned.

        False, and nothing changes, unless all of them are in this file in this order.
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
    """Return the shape of a checked file."""
    assert reader.shape is not None  # files without one are not checked
    return reader.shape


def _position(shape: Shape, number: int) -> int:
    return INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE + number * INDEX_SIZE


_EXT_HEAD = struct.Struct(">hqqh")
_ZEROS = bytes(UNIT)
_CHUNK_UNITS = 65536
_DISPATCH_WAIT_S = 3.0
_POLL_S = 0.05
# Within this time a unit that is being written is complete.
_SETTLE_S = 0.02

_pack_unit = CQ_UNIT.pack


class _QueueState:
    """The progress of comparing one queue."""

    __slots__ = ("reader", "first", "next", "missing", "missing_from", "missing_unit")

    def __init__(self, reader: QueueReader) -> None:
        self.reader = reader
        self.first: int | None = None  # index of its first record in the log
        self.next = 0  # index after its last record so far
        # Records at the end so far that have no unit, the index of the first, and the unit of the last of them.
        self.missing = 0
        self.missing_from = 0
        self.missing_unit = b""


class QueuesCheck:
    """Compares the consume queues with the log: call it with each record in order, then `finish`."""

    def __init__(self, store: StoreReader, readers: dict[QueueKey, QueueReader], findings: Findings) -> None:
        self.store = store
        self.findings = findings
        self.units = 0
        self._states = {key: _QueueState(reader) for key, reader in readers.items()}
        self._ext_folders: dict[QueueKey, Folder] = {}

    def record(self, record: LogRecord, units: list[DispatchUnit], place: tuple[str, int]) -> None:
        """Compare the units of one record, located at `place`."""
        for topic, queue_id, index, tags_code in units:
            state = self._states.get((topic, queue_id)) or self._new_queue(topic, queue_id)
            if index != state.next and state.first is not None:
                self.findings.flaw(*place, f"index {index} of queue {topic}/{queue_id} follows index {state.next - 1}")
            if state.first is None:
                state.first = index
            state.next = index + 1
            self.units += 1
            expected = _pack_unit(record.offset, record.size, tags_code)
            if state.reader.unit_bytes(index) != expected:
                self._look_closer(state, index, expected)
            elif state.missing:
                self._hole(state, index)

    def fits(self, run: RunOfUnits) -> bool:
        """Return whether the queue continues with exactly the units of a bulk scan."""
        state = self._states.get((run.topic, run.queue_id))
        return state is not None and not state.missing and (state.first is None or run.first_index == state.next) \
            and state.reader.read(run.first_index, len(run.units) // UNIT) == run.units

    def take(self, run: RunOfUnits) -> None:
        """Advance past units that fit."""
        state = self._states[run.topic, run.queue_id]
        if state.first is None:
            state.first = run.first_index
        state.next = run.end
        self.units += len(run.units) // UNIT

    def _new_queue(self, topic: str, queue_id: int) -> _QueueState:
        """Add a queue that had no folder when the store was opened; a running broker may have created it since."""
        path = f"{self.store.consume_queue_path}/{topic}/{queue_id}"
        state = self._states[topic, queue_id] = _QueueState(QueueReader(topic, queue_id, path))
        return state

    def _look_closer(self, state: _QueueState, index: int, expected: bytes) -> None:
        reader = state.reader
        data = reader.fresh_unit(index, look_for_files=self.store.live) if index >= reader.first_index else b""
        if data in (b"", _ZEROS):
            if not state.missing:
                state.missing_from = index
            state.missing += 1
            state.missing_unit = expected
            return
        if state.missing:
            self._hole(state, index)
        if data == expected:
            return  # it was written after its block was read
        if self.store.live:
            time.sleep(_SETTLE_S)
            data = reader.fresh_unit(index)
        found, wanted = unpack(data), unpack(expected)
        if found == wanted or self._is_ext_of(reader, found, wanted):
            return
        what = (f"index {index} of queue {reader.name} points at {found.offset} with size {found.size} and tags code "
                f"{found.tags_code}; by the log it is {wanted.offset}, {wanted.size}, {wanted.tags_code}")
        if found[:2] == wanted[:2] and reader.topic.startswith("SCHEDULE_TOPIC"):
            what += " (the time of delivery: is --delay-levels the broker's messageDelayLevel?)"
        self.findings.flaw(*reader.position(index), what)

    def _is_ext_of(self, reader: QueueReader, found: Unit, wanted: Unit) -> bool:
        """Return whether the tags code is an address in the extension files; check the code there."""
        position = ext_position(found.tags_code)
        if position is None or found[:2] != wanted[:2]:
            return False
        key = reader.topic, reader.queue_id
        folder = self._ext_folders.get(key) or self._ext_folders.setdefault(key, self.store.ext_folder(key))
        at = folder.at(position)
        segment = folder.segments[at] if at >= 0 else None
        data = read_at(segment.path, position - segment.start, _EXT_HEAD.size) if segment is not None else b""
        if segment is None or len(data) < _EXT_HEAD.size:
            self.findings.note("queue entries whose extension is missing")
            return True
        size, tags_code, _store_time, _map_size = _EXT_HEAD.unpack(data)
        if size < _EXT_HEAD.size or tags_code != wanted.tags_code:
            self.findings.flaw(segment.path, position - segment.start,
                               f"the extension of {reader.name} has tags code {tags_code}, not {wanted.tags_code}")
        return True

    def _hole(self, state: _QueueState, index: int) -> None:
        """Report units missing before an existing one, unless they have been written since."""
        count, first = state.missing, state.missing_from
        is_written = self._is_dispatched(state, index - 1)
        state.missing = 0
        if is_written:
            return
        self.findings.flaw(*state.reader.position(first),
                           f"queue {state.reader.name} has no entry for {_messages(count, first)}, but one for {index}")

    def finish(self, log_end: int, last_store_timestamp: int) -> None:
        """Check what is left at the end of the log: records without a unit, units without a record."""
        self._wait_for_dispatch()
        for state in self._states.values():
            if state.missing:
                self._missing(state)
            self._before(state)
            self._behind(state, log_end, last_store_timestamp)

    def _wait_for_dispatch(self) -> None:
        """Wait for a running broker, which writes the units of its newest records a little later."""
        deadline = time.monotonic() + _DISPATCH_WAIT_S
        while self.store.live and time.monotonic() < deadline:
            late = False
            for state in self._states.values():
                if state.missing and self._is_dispatched(state, state.next - 1):
                    state.missing = 0
                late |= state.missing > 0
            if not late:
                return
            time.sleep(_POLL_S)

    def _is_dispatched(self, state: _QueueState, last: int) -> bool:
        """Return whether a running broker has written the missing units; it writes in order, and `last` is the last."""
        return self.store.live and state.reader.fresh_unit(last, look_for_files=True) == state.missing_unit

    def _missing(self, state: _QueueState) -> None:
        what = f"queue {state.reader.name} has no entry for {_messages(state.missing, state.missing_from)}"
        if self.store.live:
            self.findings.note(f"{what}: they are not dispatched yet")
        elif self.store.crashed:
            self.findings.note(f"{what}: they are dispatched at the next start")
        else:
            self.findings.flaw(*state.reader.position(state.missing_from), what)

    def _before(self, state: _QueueState) -> None:
        """Check the units before the first record in the log: those of deleted messages, or fillers."""
        reader, log_min = state.reader, self.store.log.min_offset
        index = reader.first_index
        end = reader.end_index() if state.first is None else state.first
        while index < end:
            data = reader.read(index, min(_CHUNK_UNITS, end - index))
            for number, (offset, size, _tags_code) in enumerate(CQ_UNIT.iter_unpack(data), index):
                if state.first is None and not (offset < log_min or (offset, size) == (0, 0x7FFF_FFFF)):
                    return  # `_behind` checks these
                if offset >= log_min and (offset, size) != (0, 0x7FFF_FFFF):
                    self.findings.flaw(*reader.position(number), f"index {number} of queue {reader.name} points at "
                                       f"{offset}, which is not a record of this queue")
                state.next = max(state.next, number + 1)
            if not data:
                return
            index += len(data) // UNIT

    def _behind(self, state: _QueueState, log_end: int, last_store_timestamp: int) -> None:
        """Check the units after the last record in the log."""
        reader = state.reader
        index = max(state.next, reader.first_index)
        while index < reader.files_end:
            data = reader.read(index, _CHUNK_UNITS)
            if not data:
                return
            rest = data.lstrip(b"\0")
            if rest:
                self._extra(reader, index + (len(data) - len(rest)) // UNIT, log_end, last_store_timestamp)
                return
            index += len(data) // UNIT

    def _extra(self, reader: QueueReader, index: int, log_end: int, last_store_timestamp: int) -> None:
        unit = unpack(reader.fresh_unit(index).ljust(UNIT, b"\0"))
        what = (f"index {index} of queue {reader.name} points at {unit.offset} with size {unit.size}, "
                "which is not a record of this queue")
        behind = unit.is_valid and unit.offset >= log_end and not unit.is_filler
        if behind and self.store.crashed:
            self.findings.note(f"queue {reader.name} continues after the end of the log: the next start truncates it")
            return
        if behind:
            record = self.store.log_now().record_at(unit.offset)
            if record is not None and self.store.live and record.size == unit.size:
                return  # it was appended meanwhile
            if record is not None and record.store_timestamp < last_store_timestamp:
                self.findings.note(f"queue {reader.name} has entries after its end, left by an earlier crash")
                return
        self.findings.flaw(*reader.position(index), what)


def _messages(count: int, first: int) -> str:
    return f"index {first}" if count == 1 else f"{count} messages from index {first} on"
