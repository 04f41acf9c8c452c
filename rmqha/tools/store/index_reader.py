"""One file of the hash index, read with pread. The file does not say its shape: the caller does, or it is found out."""
import os
import struct
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from rmqha.common.filesystem import open_regular, read_at
from rmqha.store.index.index_file import USUAL, Shape, shape_of
from rmqha.store.index.index_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    SLOT,
    file_size,
    index_key_hash_method,
)

ENTRIES_AT_ONCE = 65536
_MAX_CHAIN = 1 << 20


class IndexHead(NamedTuple):
    """The header of a file; times in ms."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    slot_count: int
    index_count: int


class IndexEntry(NamedTuple):
    """Entry `number` of a file."""

    number: int
    key_hash: int
    phy_offset: int
    seconds: int
    previous: int


class IndexReader:
    """A file; `head` is what it had when this was made. `shape` is None when it can't be found out."""

    def __init__(self, path: str, size: int, told: Shape | None = None) -> None:
        self.path = path
        self.size = size
        self._read_head()
        self.shape = told if told is not None else self._find_shape()
        if self.shape is None and not self.is_empty:  # a running broker was changing the head
            self._read_head()
            self.shape = self._find_shape()

    def _read_head(self) -> None:
        data = read_at(self.path, 0, INDEX_HEADER_SIZE).ljust(INDEX_HEADER_SIZE, b"\0")
        head = IndexHead._make(HEADER.unpack(data))
        self.head_count_on_disk = head.index_count
        self.head = head._replace(index_count=max(head.index_count, 1))

    @property
    def name(self) -> str:
        """The file's name: the local time at which it was made."""
        return os.path.basename(self.path)

    @property
    def is_empty(self) -> bool:
        """Whether no entry was written yet."""
        return self.head.index_count <= 1

    def _find_shape(self) -> Shape | None:
        """The usual shape when the size is the usual one, else that which the entries tell."""
        if self.size == file_size(*USUAL):
            return USUAL
        with open(open_regular(self.path), "rb") as file:
            return shape_of(file)

    def entries(self, shape: Shape, first: int = 1, end: int | None = None) -> Iterator[IndexEntry]:
        """Entries `first` up to `end` (by default all that the header counts); fewer when the file ends before."""
        end = min(self.head.index_count if end is None else end, shape.entries)
        at = INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE
        for number in range(first, end, ENTRIES_AT_ONCE):
            count = min(ENTRIES_AT_ONCE, end - number)
            data = read_at(self.path, at + number * INDEX_SIZE, count * INDEX_SIZE)
            whole = len(data) // INDEX_SIZE
            for index, fields in enumerate(ENTRY.iter_unpack(data[:whole * INDEX_SIZE]), number):
                yield IndexEntry(index, *fields)
            if whole < count:
                return

    def slots(self, shape: Shape) -> "array[int]":
        """The slots: number of the newest entry of each; padded with 0 when the file ends before."""
        size = shape.slots * HASH_SLOT_SIZE
        slots = array("i", read_at(self.path, INDEX_HEADER_SIZE, size).ljust(size, b"\0"))
        if struct.pack("=i", 1) != struct.pack(">i", 1):
            slots.byteswap()
        return slots

    def find(self, topic: str, key: str) -> Iterator[int]:
        """Commit log offsets of messages that may have `key`, newest first."""
        if self.shape is None:
            return
        key_hash = index_key_hash_method(f"{topic}#{key}")
        at = INDEX_HEADER_SIZE + self.shape.slots * HASH_SLOT_SIZE
        data = read_at(self.path, INDEX_HEADER_SIZE + key_hash % self.shape.slots * HASH_SLOT_SIZE, HASH_SLOT_SIZE)
        number = SLOT.unpack(data)[0] if len(data) == HASH_SLOT_SIZE else 0
        bound = self.head.index_count
        for _ in range(_MAX_CHAIN):
            if not 0 < number < bound:
                return
            data = read_at(self.path, at + number * INDEX_SIZE, INDEX_SIZE)
            if len(data) < INDEX_SIZE:
                return
            entry_hash, phy_offset, _seconds, previous = ENTRY.unpack(data)
            if entry_hash == key_hash:
                yield phy_offset
            bound, number = number, previous


def list_index(path: str, told: Shape | None = None) -> tuple[list[IndexReader], list[str]]:
    """The index files, oldest first, and the paths of all other entries. The last known shape helps empty files."""
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except FileNotFoundError:
        return [], []
    readers, foreign = [], []
    for entry in entries:
        if entry.is_file() and entry.name.isascii() and entry.name.isdigit():
            readers.append(IndexReader(entry.path, entry.stat().st_size, told))
        else:
            foreign.append(entry.path)
    known = {reader.size: reader.shape for reader in readers if reader.shape is not None}
    for reader in readers:
        if reader.shape is None:
            reader.shape = known.get(reader.size)
    return readers, foreign
