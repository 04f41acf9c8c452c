"""Building index files in tasks, a large one in several: each task puts a share of the keys, in the order of the log.

An entry tells the entry before it in its slot. Within a share that is found at once; the first entry of a share in a
slot gets, in a second round, what the shares before have there. So the bytes are those that a broker wrote.
"""
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pyspark.sql import SparkSession

from rmqha.common.filesystem import pread
from rmqha.pipeline.progress import Progress
from rmqha.pipeline.tasks import run_tasks
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.index.index_layout import HASH_SLOT_SIZE, HEADER, INDEX_HEADER_SIZE, INDEX_SIZE, file_size

# Keys of one share; files are not shared out when there are enough of them for all cores.
SHARE, MOST_SHARES, ENOUGH_FILES = 1 << 20, 8, 64
_SLOTS = ".slots-"  # behind the name of an index file, and then the number of a share: its slots
_ENTRY = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("time", ">i4"), ("previous", ">i4")])
assert _ENTRY.itemsize == INDEX_SIZE
KeyFiles = tuple[tuple[str, int], ...]  # path and number of keys of each, in the order of the log


class IndexFile(NamedTuple):
    """One index file: `keys` keys from number `first` of all on."""

    path: str
    first: int
    keys: int
    slots: int
    entries: int


class Share(NamedTuple):
    """The share `number` of `shares` of an index file: `keys` keys from number `first` of the file on, from 0."""

    file: IndexFile
    parts: KeyFiles
    number: int
    shares: int
    first: int
    keys: int


def build_index(spark: SparkSession, files: Sequence[IndexFile], parts: KeyFiles,
                come_to: Progress | None = None) -> None:
    """Write all files, which are not there yet."""
    shares: list[Share] = []
    for file in files:
        count = 1 if len(files) >= ENOUGH_FILES else min(-(-file.keys // SHARE), MOST_SHARES)
        bounds = [file.keys * number // count for number in range(count + 1)]
        shares += [Share(file, parts, number, count, begin, end - begin)
                   for number, (begin, end) in enumerate(zip(bounds, bounds[1:]))]
    for file in files:
        with open(file.path, "xb") as out:
            out.truncate(file_size(file.slots, file.entries))
    run_tasks(spark, put_share, shares, come_to)
    run_tasks(spark, mend_share, [share for share in shares if share.shares > 1])
    for share in shares:
        if share.shares > 1:
            os.unlink(_slots_path(share.file, share.number))


def put_share(share: Share) -> None:
    """Write the entries of a share, and its slots: into the file when it is the only one. Runs in a task."""
    file = share.file
    keys = read_keys(share.parts, file.first + share.first, share.keys)
    entry = share.first + 1  # entries count from 1
    buffer = bytearray(INDEX_HEADER_SIZE + file.slots * HASH_SLOT_SIZE + share.keys * INDEX_SIZE)
    bulk.put_keys(buffer, file.slots, entry + share.keys, _counters(share), keys, first_entry=entry)
    entries_at = INDEX_HEADER_SIZE + file.slots * HASH_SLOT_SIZE
    view = memoryview(buffer)
    if share.shares > 1:
        with open(_slots_path(file, share.number), "wb") as out:
            out.write(view[INDEX_HEADER_SIZE:entries_at])
    fd = os.open(file.path, os.O_WRONLY | os.O_CLOEXEC)
    with open(fd, "wb"):
        if share.number == share.shares - 1:  # it has the end of the file's time and offsets
            _write(fd, view[:INDEX_HEADER_SIZE if share.shares > 1 else entries_at], 0)
        _write(fd, view[entries_at:], entries_at + entry * INDEX_SIZE)


def _counters(share: Share) -> IndexCounters:
    """What the file's header has before the share."""
    first = share.file.first + share.first
    before = KEY.unpack(read_keys(share.parts, first - 1, 1))[:2] if first else (0, 0)
    begin = before if not share.first else KEY.unpack(read_keys(share.parts, share.file.first, 1))[:2]
    return IndexCounters(begin[1], before[1], begin[0], before[0], 0, share.first + 1)


def mend_share(share: Share) -> None:
    """Let the first entry of each slot follow what the shares before have there; the last share writes the slots of the
    file. Runs in a task, when all shares have been put.
    """
    file = share.file
    slots = np.zeros(file.slots, ">i4")
    for number in range(share.number):
        _lay_over(slots, file, number)
    fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
    with open(fd, "r+b"):
        if share.number:
            at = INDEX_HEADER_SIZE + file.slots * HASH_SLOT_SIZE + (share.first + 1) * INDEX_SIZE
            entries = np.frombuffer(bytearray(pread(fd, share.keys * INDEX_SIZE, at)), _ENTRY)
            heads = entries["previous"] == 0
            entries["previous"][heads] = slots[entries["hash"][heads] % file.slots]
            _write(fd, entries.data.cast("B"), at)
        if share.number == share.shares - 1:
            _lay_over(slots, file, share.number)
            header = list(HEADER.unpack(pread(fd, INDEX_HEADER_SIZE, 0)))
            header[4] = int(np.count_nonzero(slots))
            _write(fd, memoryview(HEADER.pack(*header)), 0)
            _write(fd, slots.data.cast("B"), INDEX_HEADER_SIZE)


def _slots_path(file: IndexFile, number: int) -> str:
    folder, name = os.path.split(file.path)
    return os.path.join(os.path.dirname(folder), f"{name}{_SLOTS}{number}")


def _lay_over(slots: np.ndarray, file: IndexFile, number: int) -> None:
    """Those that a share has come in the place of what was there."""
    newer = np.fromfile(_slots_path(file, number), ">i4")
    np.copyto(slots, newer, where=newer != 0)


def _write(fd: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        data, position = data[written:], position + written


def read_keys(parts: KeyFiles, first: int, count: int) -> bytes:
    """Keys `first` to `first + count` of all."""
    found = []
    for path, size in parts:
        if count and first < size:
            take = min(count, size - first)
            with open(path, "rb") as file:
                file.seek(first * KEY.size)
                found.append(file.read(take * KEY.size))
            first, count = 0, count - take
        else:
            first -= min(first, size)
    return found[0] if len(found) == 1 else b"".join(found)
