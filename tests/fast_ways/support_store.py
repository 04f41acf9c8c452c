"""Stores and logs for the comparisons, without their services, and changes to their files."""
from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.common import filesystem, sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_layout as layout
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.store import commit_log
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.dispatch import MessageArrivingListener
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_life import first_offset
from tests.fast_ways.way import some_size
from tests.store.support import new_store, tree

# Stores for the comparisons: loaded, but without their services, so that only the comparison acts on them.

NOW = 1_700_000_000_000
_SHARED_MEMORY, _ROOM = "/dev/shm", 512 << 20
NEVER = 1 << 60  # a threshold that nothing reaches


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Create a folder for one case. Nothing is forced to disk or logged, because neither is compared."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(dir=_in_memory()) as folder, mock.patch.object(os, "fsync", _nothing), \
                mock.patch.object(os, "fdatasync", _nothing), mock.patch.object(filesystem, "fsync_path", _nothing):
            yield Path(folder)
    finally:
        logging.disable(before)


def _in_memory() -> str | None:
    """Return a folder that is not on a disk, if there is one with space for some stores."""
    with contextlib.suppress(OSError):
        found = os.statvfs(_SHARED_MEMORY)
        if os.access(_SHARED_MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= _ROOM:
            return _SHARED_MEMORY
    return None


def _nothing(*_args: object) -> None:
    """Do nothing, as if the disk had everything."""


class _Caller:
    """Replaces a pool: submitted calls run on the calling thread."""

    def submit(self, call: Callable[..., object], *args: object) -> None:
        """Run the call immediately."""
        call(*args)

    def shutdown(self) -> None:
        """Do nothing, because nothing waits."""


class _FilesAtOnce:
    """Creates the files of the log as AllocateMappedFileService does, but on request and on the caller's thread."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self.store = store

    def put_request_and_return_mapped_file(self, path: str, _next_path: str, size: int) -> MappedFile | None:
        """Create a file; return None if there is no space for it."""
        pool, queue = self.store.transient_store_pool, self.store.commit_log.mapped_file_queue
        made = MappedFile(path, size, queue.allocation_unit, queue.keep_descriptor, pool if pool.is_in_use else None)
        try:
            if queue.allocation_unit:
                made.allocate(0, 1)
            return made
        except OSError:
            made.destroy(0)
            return None


@contextlib.contextmanager
def loaded_store(root: Path, listener: MessageArrivingListener | None = None, broker: BrokerConfig | None = None,
                 **keys: object) -> Iterator[DefaultMessageStore]:
    """A store that accepts puts and pieces of a log; only the caller dispatches and flushes."""
    store = new_store(root, listener, broker, **keys)
    assert store.load(), root
    store.commit_log.mapped_file_queue.allocate_mapped_file_service = _FilesAtOnce(store)
    store.index_service.shutdown()
    store.index_service._flush_pool = _Caller()
    store.state.is_shutdown = False
    try:
        yield store
    finally:
        # Nothing is flushed, and no queue ends are saved.
        store.state.is_shutdown = True
        store.shutdown()


@contextlib.contextmanager
def counting(taken: Counter[str], *calls: tuple[object, str, str]) -> Iterator[None]:
    """Count calls in `taken`; `calls` has the class or module, the name of its function, and the way that it belongs
    to."""
    with contextlib.ExitStack() as stack:
        for owner, name, way in calls:
            stack.enter_context(mock.patch.object(owner, name, _counted(getattr(owner, name), taken, way)))
        yield


def _counted(function: Callable[..., object], taken: Counter[str], way: str) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        taken[way] += 1
        return function(*args, **kwargs)

    return call


def stopped_clock() -> contextlib.AbstractContextManager[object]:
    """Let the log store all messages at the same time."""
    return mock.patch.object(commit_log, "current_time_millis", lambda: NOW)


def has_space_again(store: DefaultMessageStore) -> None:
    """Forget that a write found no space."""
    store.state.running_flags = store.running_flags = RunningFlags()


def log_state(store: DefaultMessageStore) -> list[tuple[object, ...]]:
    """Return the place and the positions of each file of the log."""
    return [(file.file_from_offset, file.wrote_position, file.read_position, file.is_full, file.write_buffer is None)
            for file in store.commit_log.mapped_file_queue.mapped_files]


def log_bytes(store: DefaultMessageStore) -> list[bytes]:
    """Return the files of the log as a reader of the disk sees them, which must equal their maps."""
    found = []
    for file in store.commit_log.mapped_file_queue.mapped_files:
        with open(file.file_name, "rb") as stream:
            found.append(stream.read())
        assert file.slice_byte_buffer() == found[-1], f"the map of {file.file_name} shows other bytes"
    return found


def same(fast: object, plain: object, what: str) -> None:
    """Raise AssertionError with the first place where they differ."""
    if fast == plain:
        return
    if isinstance(fast, bytes) and isinstance(plain, bytes):
        at = next((at for at, pair in enumerate(zip(fast, plain)) if pair[0] != pair[1]), min(len(fast), len(plain)))
        raise AssertionError(f"{what}: {len(fast)} and {len(plain)} bytes differ at {at}: "
                             f"{fast[at:at + 40]!r}, plain {plain[at:at + 40]!r}")
    if isinstance(fast, dict) and isinstance(plain, dict):
        same(sorted(fast), sorted(plain), f"{what}: names")
        for name, value in fast.items():
            same(value, plain[name], f"{what}: {name}")
    if isinstance(fast, (list, tuple)) and isinstance(plain, (list, tuple)) and len(fast) == len(plain):
        for number, pair in enumerate(zip(fast, plain)):
            same(*pair, f"{what}: {number}")
    raise AssertionError(f"{what}: {fast!r:.1500}, plain {plain!r:.1500}")


def cuts(data: bytes | bytearray, positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each piece of `data`, cut at `positions`."""
    begin = 0
    for end in [*sorted(position for position in positions if 0 < position < len(data)), len(data)]:
        if end > begin:
            yield begin, end
        begin = end


# Logs for the comparisons: bytes as a master writes them, of messages of all kinds, with unusual ones on demand.

HOSTS = tuple(layout.host_to_bytes((host, 10911)) for host in ("10.0.0.1", "10.0.0.1", "2001:db8::1"))
TOPICS = ("T", "orders", "\u4e3b\u9898", "\U0001f600", RMQ_SYS_SCHEDULE_TOPIC)
ODD_TOPICS = (b"a/b", b"..", b"\xff\xfe", b"T" * 127, b"\xed\xa0\x80", "\u4e3b".encode()[:2])
WORDS = (b"a", b"order-1", "\u6807\u7b7e".encode(), "\U0001f600x".encode(), b"polygenelubricants", b"k" * 40)
ODD_WORDS = (b"\xff", b"\xc3", b"\xf4\x90\x80\x80", b"")
LEVELS = (b"17", b"18", b"1", b"0", b"-3", b"99")
ODD_LEVELS = (b"x", b"2147483648", b"", b"1 ")
KINDS = (0, 0, 0, 0, sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_COMMIT_TYPE,
         sys_flags.TRANSACTION_ROLLBACK_TYPE)


@dataclass(frozen=True)
class Record:
    """A record of the log."""

    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    has_unit: bool
    store_timestamp: int  # ms, different for each record
    body: range  # its places in the log


@dataclass
class LogMaker:
    """Makes the log of a master, record by record.

    `odd`: how often something is unusual, from 0 to 1: names and texts that are not UTF-8, wrong indexes and places,
    further queues. `bodies`: the limit of their length. `repeats`: a message may have a key twice.
    """

    rng: random.Random
    file_size: int
    odd: float = 0.0
    bodies: int = 300
    repeats: bool = True
    topics: tuple[str, ...] = TOPICS
    data: bytearray = field(default_factory=bytearray)
    records: list[Record] = field(default_factory=list)
    next_offsets: dict[tuple[bytes, int], int] = field(default_factory=dict)
    clock: int = NOW

    def add(self, count: int) -> None:
        """Append `count` more records."""
        for _ in range(count):
            self._add()

    def _add(self) -> None:
        rng, is_odd = self.rng, self.rng.random() < self.odd
        topic = rng.choice(ODD_TOPICS) if is_odd and rng.random() < 0.3 else rng.choice(self.topics).encode()
        queue_id, kind = rng.choice((0, 0, 1, 2)), rng.choice(KINDS)
        queue_offset = self.next_offsets.get((topic, queue_id), 0)
        has_unit = kind not in (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)
        if is_odd and rng.random() < 0.2:
            queue_offset = max(0, rng.choice((queue_offset + 1, queue_offset + 5, queue_offset - 1, 0, 1 << 40)))
        body = rng.randbytes(some_size(rng, (), min(self.bodies, self.file_size - 2000)))
        properties = self._properties(is_odd)
        born, store = rng.choice(HOSTS), rng.choice(HOSTS)
        self.clock += 1
        size = layout.cal_msg_length(layout.host_flags(born, store), len(body), len(topic), len(properties))
        self._begin_file(size)
        offset = len(self.data)
        said = offset + rng.choice((1, -1, self.file_size)) if is_odd and rng.random() < 0.05 else offset
        self.data += layout.encode_record(
            layout.body_crc32(body), queue_id, 7, queue_offset if has_unit else 0, said,
            kind | layout.host_flags(born, store), self.clock - 5, born, self.clock, store, 0, 0, body,
            bytes((len(topic),)) + topic, properties)
        if has_unit:
            self.next_offsets[topic, queue_id] = queue_offset + 1 if queue_offset < 1 << 40 else 0
        behind = offset + size - len(topic) - len(properties) - layout.LENGTHS_SIZE
        self.records.append(Record(offset, size, topic, queue_id, queue_offset, has_unit, self.clock,
                                   range(behind - len(body), behind)))

    def _properties(self, is_odd: bool) -> bytes:
        rng, entries = self.rng, []
        words = WORDS + ODD_WORDS if is_odd else WORDS
        if rng.random() < 0.6:
            entries.append(b"TAGS\x01" + rng.choice(words))
        if rng.random() < 0.6:
            entries.append(b"KEYS\x01" + rng.choice((b" ", b"  ")).join(
                (rng.choices if self.repeats else rng.sample)(words, k=rng.randrange(5))))
        if rng.random() < 0.7:
            entries.append(b"UNIQ_KEY\x01" + (b"%032X" % rng.getrandbits(128) if not self.repeats or rng.random() < 0.9
                                              else rng.choice(words)))
        if rng.random() < 0.3:
            entries.append(b"DELAY\x01" + rng.choice(LEVELS + ODD_LEVELS if is_odd else LEVELS))
        if is_odd and rng.random() < 0.3:
            entries.append(b"INNER_MULTI_DISPATCH\x01" + rng.choice((b"%LMQ%a", b"%LMQ%a,other", b"other")))
            entries.append(b"INNER_MULTI_QUEUE_OFFSET\x01" + rng.choice((b"0", b"0,0", b"3", b"1,1", b"x")))
        rng.shuffle(entries)
        return b"\x02".join(entries) + rng.choice((b"", b"\x02"))

    def _begin_file(self, size: int) -> None:
        """Close the file with a blank if a record of `size` bytes does not fit into it."""
        room = self.file_size - len(self.data) % self.file_size
        if size + 8 > room:
            self.data += layout.encode_blank(room) + bytes(room - 8)

    def cut(self, offset: int, marks: Mapping[str, int]) -> None:
        """Remove everything from `offset` on, where a record begins. `marks`: the offset of each deleted topic below
        which its records are dead."""
        del self.data[offset:]
        self.records = [record for record in self.records if record.offset < offset]
        below = {topic.encode(): mark for topic, mark in marks.items()}
        self.next_offsets = {(record.topic, record.queue_id): record.queue_offset + 1 for record in self.records
                             if record.has_unit and record.offset >= below.get(record.topic, 0)}


# Stores that are not running, and changes to their files in the meantime.


def write_store(rng: random.Random, root: Path, maker: LogMaker, clean: bool, **keys: Any) -> None:
    """Write a store with the log of `maker` that has run, dispatched and stopped, cleanly or by a crash.

    A slave may have a part of a record at its end. After a crash some records may not be dispatched.
    """
    with loaded_store(root, **keys) as store:
        end = len(maker.data)
        if keys.get("brokerRole") is BrokerRole.SLAVE and rng.random() < 0.3 and end:
            end = rng.randrange(end)
        begin = 0
        while begin < end:
            stop = min(end, store.commit_log.roll_next_file(begin))
            assert store.append_to_commit_log(begin, maker.data, begin, stop - begin)
            begin = stop
            if rng.random() < 0.3:
                store.reput_message_service.do_reput()
                store.flush()
                store.flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)
        if clean or rng.random() < 0.7:
            store.reput_message_service.do_reput()
        if clean:
            store.shutdown()
            assert store.shut_down_normal
    if not clean:
        (root / "abort").touch()


def files_of(root: Path, folder: str) -> list[Path]:
    """Return all files below a folder of a store, in order."""
    return sorted(path for path in (root / folder).rglob("*") if path.is_file())


def change(path: Path, position: int, data: bytes) -> None:
    """Write to a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def _some_bytes(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Overwrite bytes of a record of the last files; with zeros, as when a page never reached the disk."""
    if not maker.records:
        return
    record = rng.choice(maker.records[-rng.choice((3, 40, 200)):])
    at = record.offset + rng.choice((rng.randrange(record.size), rng.randrange(90), record.size - 1))
    size = rng.choice((1, 1, 2, 40))
    data = rng.choice((rng.randbytes(size), bytes(size), bytes(512 - at % 512)))
    path = root / "commitlog" / f"{at // maker.file_size * maker.file_size:020d}"
    with suppress(FileNotFoundError):
        change(path, at % maker.file_size, data[:maker.file_size - at % maker.file_size])


def _body(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Change a byte of one of the last bodies."""
    bodies = [record.body for record in maker.records[-40:] if record.body]
    if bodies:
        at = rng.choice(rng.choice(bodies))
        path = root / "commitlog" / f"{at // maker.file_size * maker.file_size:020d}"
        with suppress(FileNotFoundError):
            change(path, at % maker.file_size, bytes((maker.data[at] ^ 0x40,)))


def _no_blank(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Remove the blank at the end of a file."""
    path = rng.choice(files_of(root, "commitlog") or [None])  # type: ignore[list-item]
    if path is not None and maker.records:
        begin = int(path.name)
        end = max([record.offset + record.size - begin for record in maker.records
                   if begin <= record.offset < begin + maker.file_size], default=0)
        change(path, min(end, maker.file_size - 8), rng.choice((bytes(8), rng.randbytes(8))))


def _behind_the_end(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Write something after the log's end."""
    files = files_of(root, "commitlog")
    at = len(maker.data) % maker.file_size
    if files and at < maker.file_size - 100:
        change(files[-1], at, rng.randbytes(rng.choice((1, 4, 90))))


def _queues(rng: random.Random, root: Path, _maker: LogMaker) -> None:
    """Remove a queue, some units of it, or all queues."""
    files = files_of(root, "consumequeue")
    if not files:
        return
    path, kind = rng.choice(files), rng.randrange(5)
    if kind == 0:
        shutil.rmtree(root / "consumequeue")
    elif kind == 1:
        shutil.rmtree(path.parent)
    elif kind == 2:
        path.unlink()
    else:
        at = rng.randrange(path.stat().st_size // 20) * 20 + rng.choice((0, 0, 3))
        change(path, at, bytes(path.stat().st_size - at) if kind == 3 else rng.randbytes(1))


def _index(rng: random.Random, root: Path, _maker: LogMaker) -> None:
    """Remove the last file of the index, or all of it."""
    files = files_of(root, "index")
    for path in files[-rng.choice((1, len(files) or 1)):]:
        path.unlink()


def _last_file(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Empty or remove the last file of the log."""
    files = files_of(root, "commitlog")
    if files:
        files[-1].write_bytes(bytes(maker.file_size)) if rng.random() < 0.5 else files[-1].unlink()


def _checkpoint(_rng: random.Random, root: Path, _maker: LogMaker) -> None:
    """Lose the checkpoint, so that it is unknown what was on disk."""
    for path in root.glob("checkpoint*"):
        path.unlink()


DAMAGES: tuple[Callable[[random.Random, Path, LogMaker], None], ...] = (
    _some_bytes, _some_bytes, _body, _body, _no_blank, _behind_the_end, _queues, _queues, _index, _last_file,
    _checkpoint)


def damage(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Apply none or some of these damages."""
    if rng.random() < 0.3:
        _body(rng, root, maker)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        rng.choice(DAMAGES)(rng, root, maker)


def dispatch_rest(store: DefaultMessageStore) -> None:
    """Dispatch the rest, as a start does next."""
    reput = store.reput_message_service
    reput.reput_from_offset = first_offset(store.commit_log, store.consume_queue_table, reput)
    reput.do_reput()


def store_files(root: Path) -> dict[str, Any]:
    """Return log, queues and index; the names of index files, which are times, are left out."""
    files = tree(root)
    return {"log": {path: data for path, data in files.items() if path.startswith("commitlog/")},
            "queues": {path: data for path, data in files.items() if path.startswith("consumequeue/")},
            "index": [data for path, data in files.items() if path.startswith("index/")]}


def queue_state(store: DefaultMessageStore) -> dict[str, Any]:
    """Return everything that decides about a queue's next message and its readers."""
    return {f"{queue.topic}-{queue.queue_id}": (
        queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue(),
        queue.mapped_file_queue.flushed_where, queue.mapped_file_queue.committed_where,
        [(file.file_from_offset, file.wrote_position, file.committed_position, file.flushed_position)
         for file in queue.mapped_file_queue.mapped_files]) for queue in store.all_consume_queues()}
