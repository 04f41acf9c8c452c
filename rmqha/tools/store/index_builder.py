"""Index files from keys in the order of the log: the same bytes as a broker writes, some entries at a time."""
import os
from collections.abc import Callable
from typing import Protocol

from rmqha.common.filesystem import read_at
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.index.index_file import Shape
from rmqha.store.index.index_layout import (
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    file_size,
    index_key_hash_method,
)
from rmqha.tools.store.errors import StoreToolError
from rmqha.tools.store.index_reader import IndexReader

_WINDOW = 1 << 16  # entries
_ROWS_AT_ONCE = 4096 * KEY.size
_NONE = IndexCounters(0, 0, 0, 0, 0, 1)


class IndexSink(Protocol):
    """Takes one file: entries from front to back, then header and slots."""

    def entries(self, position: int, data: bytes) -> None:
        """Entries that belong at a byte position of the file."""

    def finish(self, header: bytes, slots: bytes) -> None:
        """The file is complete."""


class IndexBuilder:
    """Adds keys, and hands each file to a sink that `open_sink` gives."""

    def __init__(self, shape: Shape, open_sink: Callable[[], IndexSink]) -> None:
        self.shape = shape
        self.files = 0
        self.keys = 0
        self._open_sink = open_sink
        self._sink: IndexSink | None = None
        self._entries_at = INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE
        self._window = bytearray()  # header, slots, and the entries that the sink does not have yet
        self._window_first = 0  # number of the first of them
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
        """Begin a file; it takes over the end of the one before, as the original's does."""
        if self.shape.entries <= 1:
            raise StoreToolError(f"an index file of {self.shape.entries} entries has room for none: tell the broker's "
                                 "maxHashSlotNum and maxIndexNum")
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
        """The last key is in: complete the current file."""
        self._put_single_keys()
        self._close()

    def _close(self) -> None:
        if self._sink is None:
            return
        self._flush()
        self._sink.finish(HEADER.pack(*self._counters), bytes(self._window[INDEX_HEADER_SIZE:self._entries_at]))
        self._sink = None


class IndexWriter:
    """Writes a new file; sparse where it has no entries, as the original's."""

    def __init__(self, path: str, shape: Shape) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, file_size(*shape))

    def entries(self, position: int, data: bytes) -> None:
        """Write entries."""
        write_all(self._fd, data, position)

    def finish(self, header: bytes, slots: bytes) -> None:
        """Write header and slots, and force all to the disk."""
        write_all(self._fd, header + slots, 0)
        os.fsync(self._fd)
        os.close(self._fd)


class IndexComparer:
    """Compares with an existing file; `difference` says where it differs first. A running broker (`live`) writes on."""

    def __init__(self, reader: IndexReader | None, live: bool) -> None:
        self.reader = reader
        self.live = live
        self.difference: str | None = None if reader is not None or live else "missing"

    def entries(self, position: int, data: bytes) -> None:
        """Compare entries; of a file that is being written only those that are there."""
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
    """pwrite until all is written. OSError when the disk says no."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written
