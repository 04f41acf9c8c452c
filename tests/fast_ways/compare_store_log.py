"""Fast ways of writing the commit log: a slave's long pieces with a write; many rows with one call."""
from __future__ import annotations

import contextlib
import errno
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

from rmqha.store import allocate_mapped_file_service, mapped_file
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.mapped_file import MappedFile
from tests.fast_ways.support_store import (
    NEVER,
    counting,
    has_space_again,
    loaded_store,
    log_bytes,
    log_state,
    same,
    scratch,
    stopped_clock,
)
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.store.support import message

_DISK_SAYS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _Disk:
    """Writes that are cut short, and fail when `fails_after` bytes are written; reserving that fails so many times."""

    def __init__(self, seed: int, fails_after: int | None, no_blocks: int) -> None:
        self.random = random.Random(seed)
        self.fails_after = fails_after
        self.no_blocks = no_blocks
        self.wrote = self.failed = False

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Have all writes and reservations of the process go here."""
        pwrite, fallocate = os.pwrite, os.posix_fallocate

        def write(fd: int, data: memoryview, position: int) -> int:
            self.wrote = True
            if self.fails_after is None:
                return pwrite(fd, data[:self.random.randint(1, len(data))] if len(data) else data, position)
            if self.failed:
                return pwrite(fd, data, position)
            if self.fails_after <= 0:
                self.failed = True
                raise OSError(self.random.choice(_DISK_SAYS), "planned")
            done = pwrite(fd, data[:self.random.randint(1, self.fails_after)], position)
            self.fails_after -= done
            return done

        def reserve(fd: int, begin: int, size: int) -> None:
            if self.no_blocks > 0:
                self.no_blocks -= 1
                raise OSError(errno.ENOSPC, "planned")
            fallocate(fd, begin, size)

        with mock.patch.object(os, "pwrite", write), mock.patch.object(os, "posix_fallocate", reserve):
            yield


class _SlaveWrites:
    """One case: the same pieces of a log into two stores, of which one always goes through the map."""

    def __init__(self, rng: random.Random, fast: DefaultMessageStore, plain: DefaultMessageStore, threshold: int,
                 largest: int) -> None:
        self.rng, self.fast, self.plain = rng, fast, plain
        self.threshold, self.largest = threshold, largest
        self.file_size = fast.commit_log.mapped_file_size
        self.reserved_alike = True

    def append(self) -> None:
        """One piece, of any size, out of a buffer that has others the moment it is written."""
        rng, end = self.rng, self.fast.commit_log.mapped_file_queue.get_max_wrote_position()
        room = self.file_size - end % self.file_size
        unit = allocate_mapped_file_service.ALLOCATION_UNIT
        size = some_size(rng, (self.threshold, room, mapped_file.OS_PAGE_SIZE, unit), self.largest)
        if rng.random() < 0.8:
            size = min(size, room)
        lead = rng.choice((0, 0, 1, 7, 4095))
        data = bytes(lead) + rng.randbytes(size) + b"behind"
        start = end if rng.random() < 0.95 else end + rng.choice((-1, 1, -end, self.file_size))
        disk = None
        if rng.random() < 0.3 and not self.fast.transient_store_pool.is_in_use:
            disk = rng.random(), rng.choice((None, rng.randint(0, size))), rng.choice((0, 0, 0, 1, 2))
        kind = rng.choice((bytes, bytearray, memoryview))
        threshold = self.threshold if rng.random() < 0.8 else NEVER  # now and then the other way
        result, worked = self._append_to(self.fast, threshold, start, kind(data), lead, size, disk)
        if not result and worked is not None and worked.failed:
            self.reserved_alike = False  # it has reserved blocks for what it could not write, and made a file for it
            self.plain.commit_log.mapped_file_queue.get_last_mapped_file(start)
        else:
            expected, _disk = self._append_to(self.plain, NEVER, start, kind(data), lead, size, disk)
            same(result, expected, f"append of {size} bytes at {start}")
        has_space_again(self.fast)
        has_space_again(self.plain)

    @staticmethod
    def _append_to(store: DefaultMessageStore, threshold: int, start: int, data: Any, lead: int, size: int,
                   drawn: tuple[float, int | None, int] | None) -> tuple[bool, _Disk | None]:
        disk = _Disk(int(drawn[0] * 1e9), *drawn[1:]) if drawn is not None else None
        with lowered(mapped_file, _WRITE_FROM=threshold), disk.at_work() if disk else contextlib.nullcontext():
            done = store.append_to_commit_log(start, data, lead, size)
        if isinstance(data, bytearray):  # the next piece is received there
            data[:] = b"\xee" * len(data)
        return done, disk

    def cut(self) -> None:
        """Cut both logs off within their last two files."""
        end = self.fast.commit_log.mapped_file_queue.get_max_wrote_position()
        begin = max(self.fast.commit_log.get_min_offset(), end - self.file_size, 0)
        at = self.rng.choice((end, begin, self.rng.randint(begin, end), self.rng.randint(begin, end)))
        for store in (self.fast, self.plain):
            assert store.reset_write_offset(at)

    def flush(self) -> None:
        """Flush both, or commit only."""
        if self.rng.random() < 0.5:
            same(self.fast.flush(), self.plain.flush(), "flushed position")
        else:
            for store in (self.fast, self.plain):
                store.commit_log.mapped_file_queue.commit(0)

    def put(self) -> None:
        """A message, as when this was a master: with a pool it waits in a buffer."""
        msg = message(body=self.rng.randbytes(self.rng.randint(0, 300)))
        results = [store.put_message(msg).put_message_status for store in (self.fast, self.plain)]
        same(*results, "put")

    def read(self) -> None:
        """Some readable bytes of both."""
        begin, end = self.fast.commit_log.get_min_offset(), self.fast.get_max_phy_offset()
        offset = self.rng.randint(max(begin, 0), max(end, 0))
        found = []
        for store in (self.fast, self.plain):
            with contextlib.ExitStack() as stack:
                result = store.commit_log.get_data(offset)
                found.append(None if result is None else bytes(stack.enter_context(result).buffer))
        same(*found, f"bytes from {offset} on")

    def check(self) -> None:
        """Positions after each step."""
        same(log_state(self.fast), log_state(self.plain), "positions")
        if self.reserved_alike:
            same(*[[file._allocated_to for file in store.commit_log.mapped_file_queue.mapped_files]
                   for store in (self.fast, self.plain)], "reserved blocks")


def _compare_slave_writes(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    if rng.random() < 0.1:
        threshold, unit, file_size, largest, steps = 64 << 10, 1 << 20, 8 << 20, 4 << 20, 6
    else:
        threshold = rng.choice((1, 64, 500, 4096))
        unit, file_size = rng.choice((4096, 8192, 1 << 16)), rng.choice((1 << 14, 1 << 16))
        largest, steps = rng.choice((threshold * 3, file_size + 100)), rng.randint(1, 30)
    keys = {"mappedFileSizeCommitLog": file_size, "preallocateMappedFile": rng.random() < 0.8}
    if rng.random() < 0.25:
        keys |= {"transientStorePoolEnable": True, "transientStorePoolSize": rng.choice((1, 3))}
    with scratch() as root, lowered(allocate_mapped_file_service, ALLOCATION_UNIT=unit), stopped_clock(), \
            counting(taken, (MappedFile, "_write_to_file", FAST), (MappedFile, "write_at", PLAIN)), \
            loaded_store(root / "fast", **keys) as fast, loaded_store(root / "plain", **keys) as plain:
        case = _SlaveWrites(rng, fast, plain, threshold, largest)
        for _ in range(steps):
            rng.choice([case.append] * 12 + [case.cut, case.flush, case.put, case.read])()
            case.check()
        same(log_bytes(fast), log_bytes(plain), "log")
    return taken


def _write_once(self: MappedFile, position: int, data: memoryview) -> None:
    self.reserve(position, position + len(data))
    try:
        written = os.pwrite(self._fd, data, position)
    except OSError:
        os.pwrite(self._fd, bytes(len(data)), position)
        raise
    assert written


def _leaves_what_it_wrote(self: MappedFile, position: int, data: memoryview) -> None:
    written = 0
    self.reserve(position, position + len(data))
    while written < len(data):
        written += os.pwrite(self._fd, data[written:], position + written)


def _reserves_nothing(self: MappedFile, position: int, data: memoryview) -> None:
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(self._fd, data[written:], position + written)
    except OSError:
        os.pwrite(self._fd, bytes(written), position)
        raise


def _passes_by_the_buffer(self: MappedFile, data: bytes | bytearray | memoryview) -> bool:
    current_pos = self.wrote_position
    end = current_pos + len(data)
    if end > self.file_size:
        return False
    if len(data) >= mapped_file._WRITE_FROM and self._fd >= 0:
        self._write_to_file(current_pos, memoryview(data))
    else:
        self.write_at(current_pos, data)
    self.wrote_position = end
    return True


SLAVE_WRITES = Way(
    name="store: a slave's long pieces",
    where="rmqha/store/mapped_file.py::MappedFile._write_to_file",
    condition="a piece of the master's log has 64 KiB (_WRITE_FROM) or more, and the file no write buffer",
    plain="through the map",
    compare=_compare_slave_writes,
    plants=(
        Plant("a short write is taken for a whole one", replaced(MappedFile, "_write_to_file", _write_once)),
        Plant("what was written before a failure stays", replaced(MappedFile, "_write_to_file", _leaves_what_it_wrote)),
        Plant("no blocks are reserved", replaced(MappedFile, "_write_to_file", _reserves_nothing)),
        Plant("a write buffer is passed by", replaced(MappedFile, "append_bytes", _passes_by_the_buffer)),
    ),
    seeds=30,
)

WAYS = [SLAVE_WRITES]
