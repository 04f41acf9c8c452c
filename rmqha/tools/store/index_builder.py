"""Index files from keys in the order of the log: the same bytes as a broker writes, some entries at a time."""
import os
from array import array
from collections.abc import Callable
from typing import Protocol

from rmqha.store.index.index_layout import (ENTRY, HASH_SLOT_SIZE, HEADER, INDEX_HEADER_SIZE, INDEX_SIZE, file_size,
                                            index_key_hash_method, time_diff_seconds)
from rmqha.tools.store.index_reader import IndexReader, Shape
from rmqha.tools.store.segments import read_at

_FLUSH_BYTES = 1 << 20
_LITTLE_ENDIAN = array("i", [1]).tobytes()[0] == 1


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
        self._slots = array("i")
        self._chunk = bytearray()
        self._chunk_at = 0
        self._used = 0
        self._number = 0  # of the next entry
        self._begin = self._end = (0, 0)  # store time (ms) and offset of the first and the last entry

    def put(self, key: str, phy_offset: int, store_timestamp: int) -> None:
        """Add one "topic#key"."""
        if self._sink is None or self._number >= self.shape.entries:
            self._roll()
        key_hash = index_key_hash_method(key)
        slot = key_hash % self.shape.slots
        previous = self._slots[slot]
        self._chunk += ENTRY.pack(key_hash, phy_offset, time_diff_seconds(store_timestamp, self._begin[0]), previous)
        self._slots[slot] = self._number
        self._used += not previous
        self._end = store_timestamp, phy_offset
        if self._number == 1:
            self._begin = self._end
        self._number += 1
        self.keys += 1
        if len(self._chunk) >= _FLUSH_BYTES:
            self._flush()

    def _roll(self) -> None:
        """Begin a file; it takes over the end of the one before, as the original's does."""
        self.finish()
        self._sink = self._open_sink()
        self.files += 1
        self._slots = array("i", bytes(self.shape.slots * HASH_SLOT_SIZE))
        self._chunk_at = INDEX_HEADER_SIZE + self.shape.slots * HASH_SLOT_SIZE + INDEX_SIZE  # entry 0 is never used
        self._used, self._number = 0, 1
        self._begin = self._end

    def _flush(self) -> None:
        if self._chunk and self._sink is not None:
            self._sink.entries(self._chunk_at, bytes(self._chunk))
            self._chunk_at += len(self._chunk)
            self._chunk.clear()

    def finish(self) -> None:
        """Complete the current file."""
        if self._sink is None:
            return
        self._flush()
        header = HEADER.pack(self._begin[0], self._end[0], self._begin[1], self._end[1], self._used, self._number)
        if _LITTLE_ENDIAN:
            self._slots.byteswap()
        self._sink.finish(header, self._slots.tobytes())
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
        if self.difference is not None or self.live:
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
