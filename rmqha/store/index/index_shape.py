"""How many slots and entries a store's index files have, which only the broker's configuration says in words.

A file's size is one equation for the two; where its last entry ends, of which the header tells the number, is the
other. What comes out is tried on the entries themselves.
"""
import os
from typing import BinaryIO, NamedTuple

from rmqha.common.filesystem import open_regular, pread
from rmqha.store.config import store_path_config_helper as paths
from rmqha.store.index.index_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    SLOT,
    file_size,
)

_BLOCK = 4 << 20
_TRIED = 1000  # entries


class Shape(NamedTuple):
    """maxHashSlotNum and maxIndexNum."""

    slots: int
    entries: int


USUAL = Shape(5_000_000, 20_000_000)  # where the configuration says nothing


def index_shape(root: str) -> Shape | None:
    """That of the index files of the store at `root`; None when none has an entry, or when it can't be told."""
    folder = paths.get_store_path_index(root)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        with open(open_regular(os.path.join(folder, name)), "rb") as file:
            found = shape_of(file)
        if found is not None:
            return found
    return None


def shape_of(file: BinaryIO) -> Shape | None:
    """That of an index file; None when it has no entry, or its entries contradict what was found."""
    size = os.fstat(file.fileno()).st_size
    head = pread(file.fileno(), INDEX_HEADER_SIZE, 0)
    if len(head) < INDEX_HEADER_SIZE:
        return None
    used = HEADER.unpack(head)[5]  # the number of the next entry
    end = _end_of_data(file.fileno(), size)
    if used < 2 or end <= INDEX_HEADER_SIZE:
        return None
    # The last byte that is not 0 lies in entry used - 1, so five numbers of slots are possible; the file's size, of
    # which slots * 4 + entries * 20 is left, leaves one of them.
    last_entry_begins = end - INDEX_SIZE * used - INDEX_HEADER_SIZE
    most = (end - 1 - INDEX_HEADER_SIZE - INDEX_SIZE * (used - 1)) // HASH_SLOT_SIZE
    for slots in range(most, max(-(-last_entry_begins // HASH_SLOT_SIZE), 1) - 1, -1):
        entries, rest = divmod(size - INDEX_HEADER_SIZE - slots * HASH_SLOT_SIZE, INDEX_SIZE)
        if rest == 0 and entries >= used and file_size(slots, entries) == size and _fits(file.fileno(), slots, used):
            return Shape(slots, entries)
    return None


def _end_of_data(fd: int, size: int) -> int:
    """Behind the last byte that is not 0."""
    position = size
    while position > 0:
        begin = max(position - _BLOCK, 0)
        data = pread(fd, position - begin, begin).rstrip(b"\0")
        if data:
            return begin + len(data)
        position = begin
    return 0


def _fits(fd: int, slots: int, used: int) -> bool:
    """Whether the first entries are found by their slots, and each is younger than the one that it names."""
    entries_at = INDEX_HEADER_SIZE + slots * HASH_SLOT_SIZE
    count = min(used - 1, _TRIED)
    data = pread(fd, count * INDEX_SIZE, entries_at + INDEX_SIZE)
    for number, (key_hash, offset, seconds, previous) in enumerate(ENTRY.iter_unpack(data), 1):
        newest = SLOT.unpack(pread(fd, HASH_SLOT_SIZE, INDEX_HEADER_SIZE + key_hash % slots * HASH_SLOT_SIZE))[0]
        if key_hash < 0 or offset < 0 or seconds < 0 or not 0 <= previous < number <= newest < used:
            return False
    return True
