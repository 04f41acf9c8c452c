"""Build index files from keys, and consume queue files from units, both in the order of the log.

The results are byte for byte what a broker writes. They are passed to sinks in parts, so memory is bounded.
"""
import os
import shutil
import time
from collections.abc import Callable
from typing import Protocol

from rmqha.common.filesystem import open_regular, read_at
from rmqha.common.util_all import offset2file_name
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.consume_queue_layout import PRE_BLANK_UNIT
from rmqha.store.index.index_file import Shape
from rmqha.store.index.index_layout import (
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    file_size,
    index_key_hash_method,
)
from rmqha.tools.store_files.readers import UNIT, IndexReader, QueueReader, unpack
from rmqha.tools.terminal import CannotAnswerError

_WINDOW = 1 << 16  # entries
_ROWS_AT_ONCE = 4096 * KEY.size
_NONE = IndexCounters(0, 0, 0, 0, 0, 1)


class IndexSink(Protocol):
    """Receives one file: entries from front to back, then header and slots."""

    def entries(self, position: int, data: bytes) -> None:
        """Receive entries that belong at a byte position of the file."""

    def finish(self, header: bytes, slots: bytes) -> None:
        """Receive header and slots; the file is complete."""


class IndexBuilder:
    """Builds index files from keys, and passes each file to a sink that `open_sink` returns."""

    def __init__(self, shape: Shape, open_sink: Callable[[], IndexSink]) -> None:
        self.shape = shape
        self.files = 0
        self.keys = 0
        self._open_sink = open_sink
        self._sink: IndexSink | None = None
        self._entries_at = INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE
        # Header, slots, and the entries that the sink does not have yet.
        self._window = bytearray()
        # The number of the first entry in the window.
        self._window_first = 0
        self._counters = _NONE
        self._rows = bytearray()  # of single keys, to be added together

    def put(self, key: str, phy_offset: int, store_timestamp: int) -> None:
        """Add one "topic#key"."""
        self._rows += KEY.pack(phy_offset, store_timestamp, index_key_hash_method(key), 0)
        self.keys += 1
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._put_single_keys()

    def put_rows(self, rows: bytes) -> None:
        """Add the keys of a bulk scan."""
        self._put_single_keys()
        self.keys += len(rows) // KEY.size
        self._add(rows)

    def _put_single_keys(self) -> None:
        rows, self._rows = bytes(self._rows), bytearray()
        self._add(rows)

    def _add(self, rows: bytes) -> None:
        first, last = 0, len(rows) // KEY.size
        while first < last:
            if self._sink is None or self._counters.index_count >= self.shape.entries:
                self._roll()
            end = min(self._window_first + _WINDOW, self.shape.entries)
            first, self._counters = bulk.put_keys(self._window, self.shape.slots, end, self._counters, rows, first,
                                                  first_entry=self._window_first)
            if self._counters.index_count >= end:
                self._flush()

    def _roll(self) -> None:
        """Begin a file; its header continues the end of the previous file's, as in RocketMQ."""
        if self.shape.entries <= 1:
            raise CannotAnswerError(f"an index file with {self.shape.entries} entries can't hold any: give the "
                                    "broker's maxHashSlotNum and maxIndexNum")
        self._close()
        self._sink = self._open_sink()
        self.files += 1
        self._window = bytearray(self._entries_at + _WINDOW * INDEX_SIZE)
        self._window_first = 1  # entry 0 is never used
        _, end_timestamp, _, end_phy_offset, _, _ = self._counters
        self._counters = IndexCounters(end_timestamp, end_timestamp, end_phy_offset, end_phy_offset, 0, 1)

    def _flush(self) -> None:
        count = self._counters.index_count - self._window_first
        if count and self._sink is not None:
            self._sink.entries(self._entries_at + self._window_first * INDEX_SIZE,
                               bytes(self._window[self._entries_at:self._entries_at + count * INDEX_SIZE]))
            self._window_first += count

    def finish(self) -> None:
        """Complete the current file after the last key."""
        self._put_single_keys()
        self._close()

    def _close(self) -> None:
        if self._sink is None:
            return
        self._flush()
        self._sink.finish(HEADER.pack(*self._counters), bytes(self._window[INDEX_HEADER_SIZE:self._entries_at]))
        self._sink = None


class IndexWriter:
    """Writes a new file; it is sparse where it has no entries, as in RocketMQ."""

    def __init__(self, path: str, shape: Shape) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, file_size(*shape))

    def entries(self, position: int, data: bytes) -> None:
        """Write entries."""
        write_all(self._fd, data, position)

    def finish(self, header: bytes, slots: bytes) -> None:
        """Write header and slots, and force the file to disk."""
        write_all(self._fd, header + slots, 0)
        os.fsync(self._fd)
        os.close(self._fd)


class IndexComparer:
    """Compares with an existing file; `difference` is the first one. A running broker (`live`) may be writing to it."""

    def __init__(self, reader: IndexReader | None, live: bool) -> None:
        self.reader = reader
        self.live = live
        self.difference: str | None = None if reader is not None or live else "missing"

    def entries(self, position: int, data: bytes) -> None:
        """Compare entries; in a file that is being written, only those already present."""
        if self.difference is not None or self.reader is None:
            return
        there = read_at(self.reader.path, position, len(data))
        if there != data and not (self.live and data.startswith(there.rstrip(b"\0"))):
            at = next((index for index in range(0, len(data), INDEX_SIZE)
                       if there[index:index + INDEX_SIZE] != data[index:index + INDEX_SIZE]), 0)
            self.difference = f"different from the entry at {position + at} on"

    def finish(self, header: bytes, slots: bytes) -> None:
        """Compare header and slots."""
        if self.difference is not None or self.live or self.reader is None:
            return
        if read_at(self.reader.path, 0, INDEX_HEADER_SIZE) != header:
            self.difference = "different in the header"
        elif read_at(self.reader.path, INDEX_HEADER_SIZE, len(slots)) != slots:
            self.difference = "different in the slots"


def write_all(fd: int, data: bytes, position: int) -> None:
    """Call pwrite until all bytes are written. OSError when writing fails."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written


_REST_UNITS = 65536
# Within this time a unit that is being written is complete.
_SETTLE_S = 0.02


class QueueSink(Protocol):
    """Receives the units of one queue from front to back."""

    def units(self, index: int, data: bytes) -> None:
        """Receive units from `index` on."""

    def finish(self, end_index: int) -> None:
        """Receive the end of the queue: it ends before `end_index`."""

    def begin_anew(self) -> None:
        """Forget all units so far: they belong to a deleted queue."""


class QueueBuilder:
    """Builds one queue. `max_gap`: the longest gap of indices that is filled with blank units.

    A topic that is deleted and created again leaves records of both lives under one name in the log, and the indices of
    the second life begin at 0 again. So a record with index 0 after others starts the queue from scratch. But a record
    may also contain a wrong index 0; discarding all earlier units for that would lose the queue. The next record
    distinguishes the two cases, so the unit is held back (`_zero`) until then. If the next index is the last one plus
    2, the held record belongs to the index between: the queue continues, as in the broker, and the problem is reported.
    With any other index the queue begins again.
    """

    def __init__(self, sink: QueueSink, file_size: int, flush_bytes: int, max_gap: int) -> None:
        self.sink = sink
        self.units = 0
        self.first_index: int | None = None
        self.next_index = 0
        self._per_file = file_size // UNIT
        self._flush_bytes = flush_bytes
        self._max_gap = max_gap
        self._chunk = bytearray()
        self._chunk_index = 0
        # The unit of a message with index 0 that follows others.
        self._zero: bytes | None = None

    def put(self, index: int, unit: bytes) -> str | None:
        """Add the unit of message `index`; return what is wrong with that index, or None.

        A message 0 after others begins the queue again, unless the next message shows that the index 0 is wrong.
        """
        problem = None
        if self._zero is not None:
            if index == self.next_index + 1:
                # A broker also stores it here.
                self._append(self._zero)
                self.next_index += 1
                self.units += 1
                problem = f"index 0 follows {index - 2}, and is followed by {index}"
            else:
                self._begin_anew(self._zero)
            self._zero = None
        elif index == 0 and self.next_index > 0:
            self._zero = unit
            return None
        if self.first_index is None:
            if index < 0:
                return f"index {index} is skipped"
            # If the first file begins in the middle, blank units fill it up to there.
            self.first_index, self._chunk_index = index, index - index % self._per_file
            self._chunk += PRE_BLANK_UNIT * (index % self._per_file)
        elif index != self.next_index:
            problem = f"index {index} follows {self.next_index - 1}"
            if index < self.next_index:
                return f"{problem}: it is skipped"
            if index - self.next_index > self._max_gap:
                return f"{problem}: it is skipped, since the log is too short for such a gap"
            for _ in range(index - self.next_index):
                self._append(PRE_BLANK_UNIT)
        self._append(unit)
        self.next_index = index + 1
        self.units += 1
        return problem

    def _begin_anew(self, zero: bytes) -> None:
        self._chunk.clear()
        self.sink.begin_anew()
        self.first_index = self._chunk_index = 0
        self._chunk += zero
        self.next_index = self.units = 1

    def goes_on_at(self, index: int) -> bool:
        """Return whether the unit of message `index` would be the next one, or the first."""
        if self._zero is not None:
            return False
        return index >= 0 if self.first_index is None else index == self.next_index

    def put_run(self, index: int, units: bytes) -> None:
        """Add consecutive units at the end of the queue."""
        self.put(index, units[:UNIT])
        self._append(units[UNIT:])
        self.next_index += len(units) // UNIT - 1
        self.units += len(units) // UNIT - 1

    def _append(self, unit: bytes) -> None:
        self._chunk += unit
        if len(self._chunk) >= self._flush_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._chunk:
            self.sink.units(self._chunk_index, bytes(self._chunk))
            self._chunk_index += len(self._chunk) // UNIT
            self._chunk.clear()

    def finish(self) -> None:
        """Complete the queue after the last record."""
        if self._zero is not None:
            self._begin_anew(self._zero)
        self._flush()
        self.sink.finish(self.next_index)

    @property
    def files(self) -> int:
        """The number of files that the units take."""
        if self.first_index is None:
            return 0
        return (self.next_index - 1) // self._per_file - self.first_index // self._per_file + 1


class QueueWriter:
    """Writes the files of a new queue folder."""

    def __init__(self, path: str, file_size: int) -> None:
        self.path = path
        self.file_size = file_size

    def units(self, index: int, data: bytes) -> None:
        """Write units, file by file."""
        os.makedirs(self.path, exist_ok=True)
        address = index * UNIT
        while data:
            position = address % self.file_size
            part = data[:self.file_size - position]
            self._write(os.path.join(self.path, offset2file_name(address - position)), position, part)
            address, data = address + len(part), data[len(part):]

    def _write(self, path: str, position: int, data: bytes) -> None:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(fd, self.file_size)
            write_all(fd, data, position)
        finally:
            os.close(fd)

    def begin_anew(self) -> None:
        """Delete what was written."""
        shutil.rmtree(self.path, ignore_errors=True)

    def finish(self, end_index: int) -> None:
        """Force all files to disk."""
        if not os.path.isdir(self.path):
            return
        for entry in os.scandir(self.path):
            fd = open_regular(entry.path)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


class QueueComparer:
    """Compares with an existing queue; `difference` is the first one.

    Units before the first one, of messages that are no longer in the log, count as equal.
    """

    def __init__(self, reader: QueueReader | None, live: bool) -> None:
        self.reader = reader
        self.live = live
        self.difference: str | None = None if reader is not None or live else "missing"

    def units(self, index: int, data: bytes) -> None:
        """Compare units."""
        if self.difference is not None:
            return
        if self.reader is None:
            # A running broker will create it.
            return
        there = self.reader.read(index, len(data) // UNIT) if index >= self.reader.first_index else b""
        if self.live and not data.startswith(there.rstrip(b"\0")):
            time.sleep(_SETTLE_S)
            there = self.reader.read(index, len(data) // UNIT)
        if there == data or (self.live and data.startswith(there.rstrip(b"\0"))):
            return
        for at in range(0, len(data), UNIT):
            expected, found = data[at:at + UNIT], there[at:at + UNIT]
            if found != expected and not (expected == PRE_BLANK_UNIT or self._is_ext(found, expected)):
                self.difference = f"different from index {index + at // UNIT} on"
                return

    @staticmethod
    def _is_ext(found: bytes, expected: bytes) -> bool:
        """Return whether a unit is the expected one, but with its tags code in an extension file."""
        return len(found) == UNIT and found[:12] == expected[:12] and unpack(found).tags_code < -(1 << 31)

    def begin_anew(self) -> None:
        """Discard the comparison so far: its units should not exist."""
        self.difference = None if self.reader is not None or self.live else "missing"

    def finish(self, end_index: int) -> None:
        """Compare what follows the last unit."""
        if self.difference is not None or self.live or self.reader is None:
            return
        index = max(end_index, self.reader.first_index)
        while data := self.reader.read(index, _REST_UNITS):
            if data.strip(b"\0"):
                self.difference = f"there are more entries from index {end_index} on"
                return
            index += len(data) // UNIT
