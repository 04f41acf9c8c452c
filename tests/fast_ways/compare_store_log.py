"""Fast paths of writing the commit log, and of skipping the holes of a file."""
from __future__ import annotations

import contextlib
import errno
import importlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

from rmqha.common.message.message_decoder import message_properties2string
from rmqha.common.message.message_layout import body_crc32
from rmqha.store import allocate_mapped_file_service, append, commit_log, mapped_file
from rmqha.store.append import MessageExtBrokerInner, MessageRow, PutMessageContext, Records
from rmqha.store.commit_log import CommitLog
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
from tests.fuzz.native_sanitizers import TARGETS, Inputs
from tests.store.support import message

# Fast paths of writing the commit log: a slave's long pieces with one write; many rows with one call.

_DISK_SAYS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _Disk:
    """Writes that are partial, and fail after `fails_after` bytes; reservations that fail a given number of times."""

    def __init__(self, seed: int, fails_after: int | None, no_blocks: int) -> None:
        self.random = random.Random(seed)
        self.fails_after = fails_after
        self.no_blocks = no_blocks
        self.wrote = self.failed = False

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Route all writes and reservations of the process through this disk."""
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
    """One case: the same pieces of a log into two stores, of which one always writes through the map."""

    def __init__(self, rng: random.Random, fast: DefaultMessageStore, plain: DefaultMessageStore, threshold: int,
                 largest: int) -> None:
        self.rng, self.fast, self.plain = rng, fast, plain
        self.threshold, self.largest = threshold, largest
        self.file_size = fast.commit_log.mapped_file_size
        self.reserved_alike = True

    def append(self) -> None:
        """Append one piece, of any size, from a buffer whose contents change as soon as it is written."""
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
        threshold = self.threshold if rng.random() < 0.8 else NEVER  # sometimes the other way
        result, worked = self._append_to(self.fast, threshold, start, kind(data), lead, size, disk)
        if not result and worked is not None and worked.failed:
            # The store has reserved blocks for bytes that it could not write, and created a file for them.
            self.reserved_alike = False
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
        """Truncate both logs within their last two files."""
        end = self.fast.commit_log.mapped_file_queue.get_max_wrote_position()
        begin = max(self.fast.commit_log.get_min_offset(), end - self.file_size, 0)
        at = self.rng.choice((end, begin, self.rng.randint(begin, end), self.rng.randint(begin, end)))
        for store in (self.fast, self.plain):
            assert store.reset_write_offset(at)

    def flush(self) -> None:
        """Flush both, or only commit."""
        if self.rng.random() < 0.5:
            same(self.fast.flush(), self.plain.flush(), "flushed position")
        else:
            for store in (self.fast, self.plain):
                store.commit_log.mapped_file_queue.commit(0)

    def put(self) -> None:
        """Put a message, as when this was a master: with a pool it waits in a buffer."""
        msg = message(body=self.rng.randbytes(self.rng.randint(0, 300)))
        results = [store.put_message(msg).put_message_status for store in (self.fast, self.plain)]
        same(*results, "put")

    def read(self) -> None:
        """Compare some readable bytes of both."""
        begin, end = self.fast.commit_log.get_min_offset(), self.fast.get_max_phy_offset()
        offset = self.rng.randint(max(begin, 0), max(end, 0))
        found = []
        for store in (self.fast, self.plain):
            with contextlib.ExitStack() as stack:
                result = store.commit_log.get_data(offset)
                found.append(None if result is None else bytes(stack.enter_context(result).buffer))
        same(*found, f"bytes from {offset} on")

    def check(self) -> None:
        """Compare the positions after each step."""
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
    condition="a piece of the master's log has 64 KiB (_WRITE_FROM) or more, and the file has no write buffer",
    plain="through the map",
    compare=_compare_slave_writes,
    plants=(
        Plant("a short write counts as a complete one", replaced(MappedFile, "_write_to_file", _write_once)),
        Plant("bytes written before a failure stay", replaced(MappedFile, "_write_to_file", _leaves_what_it_wrote)),
        Plant("no blocks are reserved", replaced(MappedFile, "_write_to_file", _reserves_nothing)),
        Plant("a write buffer is bypassed", replaced(MappedFile, "append_bytes", _passes_by_the_buffer)),
    ),
    seeds=30,
)

WAYS = [SLAVE_WRITES]


# Fast paths of putting: rows that arrived together with one call, and the compiled kernels beside their Python twins.

_HOSTS = (("10.1.2.3", 40000), ("2001:db8::7", 10911))
_WORDS = ("a", "TagA", "\u6807\u7b7e", "x" * 300, "with\0nul", "\0" * 1100, "")


def _some_message(rng: random.Random, room: int, file_size: int, store_host: tuple[str, int]) -> MessageExtBrokerInner:
    """Return a message of any size; sometimes one that just fits, or just does not."""
    properties = {name: rng.choice(_WORDS) for name in rng.sample(("TAGS", "KEYS", "UNIQ_KEY", "k"), rng.randrange(4))}
    size = some_size(rng, (max(0, room - 150), file_size), rng.choice((100, file_size + 100)))
    msg = message(rng.choice(("T", "orders", "\u4e3b\u9898")), rng.choice((0, 0, 1, 2)), rng.randbytes(size))
    msg.properties = properties
    msg.properties_string = message_properties2string(properties)
    msg.born_host, msg.store_host = rng.choice(_HOSTS), store_host
    msg.flag = rng.choice((0, 7, -1, 2**31 - 1, 2**31))  # the last one does not fit into its field
    msg.reconsume_times = rng.randrange(4)
    return msg


def _row_of(store: DefaultMessageStore, msg: MessageExtBrokerInner) -> MessageRow | None:
    """Return the row that the express lane makes of a send, or None if the store does not accept such a message."""
    msg.body_crc = body_crc32(msg.body) if msg.body else 0
    commit_log._set_v6_flags(msg)
    row = store.commit_log.message_ext_encoder.encode(msg)
    return row if isinstance(row, MessageRow) else None


def _put_single(store: DefaultMessageStore, msg: MessageExtBrokerInner) -> tuple[Any, ...]:
    result = store.put_message(msg)
    appended = result.append_message_result
    if not result.is_ok or appended is None:
        return (result.put_message_status,)
    return appended.logics_offset, appended.wrote_offset, appended.wrote_bytes


def _put_together(store: DefaultMessageStore, messages: list[MessageExtBrokerInner]) -> list[tuple[Any, ...]]:
    """Put messages as the express lane does: those that are not accepted together are put one by one."""
    found: list[tuple[Any, ...]] = []
    while len(found) < len(messages):
        rest = messages[len(found):]
        rows = [row for row in (_row_of(store, msg) for msg in rest) if row is not None]
        context = store.put_rows(rows, rest[0].store_host_bytes) if len(rows) == len(rest) else None
        if context is None:
            found.append(_put_single(store, rest[0]))
            continue
        store.count_rows(context)
        found += zip(context.queue_offsets, context.physical_offsets, [row.size for row in context.rows])
    return found


def _state(store: DefaultMessageStore) -> dict[str, Any]:
    log, stats = store.commit_log, store.store_stats_service
    return {"files": log_state(store), "next": dict(log.topic_queue_table), "unsure": list(log.unsure_ends),
            "uncommitted": list(log._uncommitted), "times": dict(stats.put_message_topic_times_total),
            "sizes": dict(stats.put_message_topic_size_total), "log": log_bytes(store)}


def _compare_rows(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    file_size = rng.choice((700, 2000, 16384, 16384, 1 << 20))
    keys: dict[str, Any] = {"mappedFileSizeCommitLog": file_size, "maxMessageSize": 4 << 20}
    if rng.random() < 0.2:
        keys |= {"transientStorePoolEnable": True, "transientStorePoolSize": 2}
    with scratch() as root, stopped_clock(), \
            counting(taken, (CommitLog, "put_rows", FAST), (CommitLog, "_put", PLAIN)), \
            loaded_store(root / "fast", **keys) as fast, loaded_store(root / "plain", **keys) as plain:
        for _ in range(rng.randint(1, 6)):
            end = fast.commit_log.mapped_file_queue.get_max_wrote_position()
            host, records = rng.choice(_HOSTS), commit_log.records_of_rows
            make = rng.choice((records, append.records_in_python))
            count, seed = rng.choice((1, 2, 5, 30)), rng.random()
            sides = []
            for _side in (0, 1):
                drawn = random.Random(seed)
                sides.append([_some_message(drawn, file_size - end % file_size, file_size, host)
                              for _ in range(count)])
            with lowered(commit_log, records_of_rows=make):
                together = _put_together(fast, sides[0])
            same(together, [_put_single(plain, msg) for msg in sides[1]], "results")
        for store in (fast, plain):
            while store.commit_log.remain_how_many_data_to_commit():
                store.commit_log.mapped_file_queue.commit(0)
        same(_state(fast), _state(plain), "state")
    return taken


def _fits_without_the_blank(self: PutMessageContext, room: int, real: Any = PutMessageContext.keep_what_fits) -> bool:
    return bool(real(self, room + 8))


def _first_of_each_queue(rows: list[MessageRow], total: int, table: dict[str, int], *rest: Any,
                         real: Any = append.records_of_rows) -> Records:
    queue_offsets, places, data, next_offsets, totals, nuls = real(rows, total, table, *rest)
    return (queue_offsets, places, data, {key: table.get(key, 0) + 1 for key in next_offsets}, totals, nuls)


def _one_total(rows: list[MessageRow], *rest: Any, real: Any = append.records_of_rows) -> Records:
    *others, totals, nuls = real(rows, *rest)
    return (*others, {rows[0].topic: (len(rows), sum(row.size for row in rows))} if totals else totals, nuls)


def _first_nul(rows: list[MessageRow], *rest: Any, real: Any = append.records_of_rows) -> Records:
    *others, nuls = real(rows, *rest)
    return (*others, nuls[:1] if nuls else nuls)


@contextlib.contextmanager
def _records_made_by(make: Any) -> Any:
    with lowered(commit_log, records_of_rows=make), lowered(append, records_in_python=make):
        yield


ROWS = Way(
    name="store: rows read together",
    where="rmqha/store/commit_log.py::CommitLog.put_rows",
    condition="sends that only need to be appended are read together",
    plain="put_message of each",
    compare=_compare_rows,
    plants=(
        Plant("a row is put where the file's blank needs the space",
              replaced(PutMessageContext, "keep_what_fits", _fits_without_the_blank)),
        Plant("of several rows of a queue only one is counted", partial(_records_made_by, _first_of_each_queue)),
        Plant("all rows count for the first one's topic", partial(_records_made_by, _one_total)),
        Plant("of several rows with a NUL only the first is noted", partial(_records_made_by, _first_nul)),
    ),
    seeds=24,
)


# The kernels.

def _compare_twins(source: str, rng: random.Random) -> Counter[str]:
    module, make = TARGETS[source]
    target, inputs = make(importlib.import_module(module)), Inputs(rng.randrange(1 << 32))
    for _ in range(60):
        target(inputs)
    calls = sum(count for outcome, count in inputs.outcomes.items() if outcome.endswith(": same"))
    return Counter({FAST: calls, PLAIN: calls})


@contextlib.contextmanager
def _changed(module: str, name: str, change: Any) -> Any:
    """Replace a compiled function by one whose result is sometimes different."""
    target = importlib.import_module(module)
    real = getattr(target, name)
    with mock.patch.object(target, name, lambda *args: change(args, real(*args))):
        yield


def _one_record_less(_args: Any, result: Any) -> Any:
    count, *rest = result
    return (count - (count > 2), *rest)


def _last_key_missing(_args: Any, result: Any) -> Any:
    *rest, keys = result
    return (*rest, keys[:-24])


def _one_index_further(args: Any, result: Any) -> Any:
    queue_offsets, *rest = result
    rows = args[0]
    return ([offset + (rows[number].sys_flag == 8) for number, offset in enumerate(queue_offsets)], *rest)


def _twins(source: str, where: str, *plants: Plant) -> Way:
    module = TARGETS[source][0]
    return Way(name=f"store: {source.rpartition('/')[2]} beside Python", where=f"{source}::{where}",
               condition="a C compiler was available at installation", plain="the twin in Python",
               compare=partial(_compare_twins, source), plants=plants, needs=(module,), seeds=8)


BULK = _twins("rmqha/native/_bulk.c", "walk",
              Plant("a walk counts one too few", partial(_changed, "rmqha.native._bulk", "walk", _one_record_less)),
              Plant("a scan lacks its last key", partial(_changed, "rmqha.native._bulk", "scan", _last_key_missing)))
RECORDS = _twins("rmqha/native/_message_rows.c", "records_of_rows",
                 Plant("committed messages get the next queue offset",
                       partial(_changed, "rmqha.native._message_rows", "records_of_rows", _one_index_further)))
WAYS += [ROWS, BULK, RECORDS]


# Fast path of checking and clearing a file after its data: its holes are not read.


def _whole(_fd: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Return one range, as on a file system that does not report holes."""
    return [(start, stop)] if start < stop else []


def _compare(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    size = rng.choice((4096, 65536, 1 << 20))
    writes = [(at, rng.randbytes(min(some_size(rng, (4096,), 20_000), size - at)) if rng.random() < 0.7
               else bytes(min(5000, size - at)))
              for at in (rng.randrange(size) for _ in range(rng.choice((0, 1, 3, 9))))]
    places = [rng.choice((0, size, size - 1, rng.randrange(size), rng.randrange(size) // 4096 * 4096,
                          *[at + len(data) for at, data in writes])) for _ in range(5)]
    reserves, end = rng.random() < 0.3, rng.choice(places)
    with scratch() as root, lowered(mapped_file, _ZERO_STEP=rng.choice((512, 4096, 1 << 20))):
        found = []
        for name, way, extents in (("fast", FAST, mapped_file._data_extents), ("plain", PLAIN, _whole)):
            file = MappedFile(str(root / name / f"{0:020d}"), size)
            for at, data in writes:
                file.write_at(at, data)
            if reserves:
                fd = os.open(file.file_name, os.O_RDWR)
                os.posix_fallocate(fd, 0, size // 2)
                os.close(fd)
            with mock.patch.object(mapped_file, "_data_extents", extents), \
                    counting(taken, (mapped_file, "_data_extents", way)):
                behind = [file.first_byte_behind(place) for place in places]
                file.zero_from(end)
                behind.append(file.first_byte_behind(end))
            found.append((behind, bytes(file.slice_byte_buffer())))
            file.destroy(0)
        same(*found, f"{size} bytes, cleared from {end} on")
        assert found[0][0][-1] == -1
    return taken


def _whole_pages(fd: int, start: int, stop: int, real: Any = mapped_file._data_extents) -> list[tuple[int, int]]:
    return [(begin, end) for begin, end in real(fd, -(-start // 4096) * 4096, stop) if begin < end]


def _first_extent(fd: int, start: int, stop: int, real: Any = mapped_file._data_extents) -> list[tuple[int, int]]:
    return list(real(fd, start, stop)[:1])


HOLES = Way(
    name="store: holes after the data",
    where="rmqha/store/mapped_file.py::_data_extents",
    condition="the file system reports the holes of a sparse file",
    plain="all bytes are read",
    compare=_compare,
    plants=(
        Plant("data is taken to begin with the next page", replaced(mapped_file, "_data_extents", _whole_pages)),
        Plant("data is taken to end with the first hole", replaced(mapped_file, "_data_extents", _first_extent)),
    ),
    seeds=30,
)
WAYS += [HOLES]
