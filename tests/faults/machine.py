"""One machine of a simulated pair: its disk, its store without threads, and the data that must survive."""
from __future__ import annotations

import functools
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Completable
from rmqha.common.message.message_layout import END_FILE_MIN_BLANK_LENGTH, body_crc32
from rmqha.common.service_thread import ServiceThread
from rmqha.store import store_checkpoint
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_services import GroupCommitService
from rmqha.store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmqha.store.results import PutMessageResult, PutMessageStatus
from tests.store.support import batch, config, message
from tests.support import store_compare

# A folder with two contents: that of the page cache (the files themselves) and that forced to the disk.
#
# While a SyncedDisk is in use, each `os.fsync` and `os.fdatasync` of a file in its folder records the file's content,
# and that of a folder records its names. A loss of power returns to that, plus anything that the kernel happened to
# have written: any later sectors of each file, any later names of each folder.

SECTOR = 512
PAGE = 4096


class PowerCut(BaseException):
    """A stop of the machine in the middle of a sync. Not an Exception, so that the store does not catch it."""


class NothingByChance(random.Random):
    """A source of chance with which only forced data reaches the disk."""

    def choice(self, seq):
        """Return the first option: no sector, the synced length, the synced names."""
        return seq[0]

    def random(self) -> float:
        """Return a number that is not less than any probability."""
        return 1.0


class EverythingByChance(NothingByChance):
    """A source of chance with which all written data reaches the disk."""

    def choice(self, seq):
        """Return the last option."""
        return seq[-1]

    def random(self) -> float:
        """Return a number that is less than any probability."""
        return -1.0


class _File(NamedTuple):
    # Held open, so that its inode number is not reused.
    fd: int
    synced: bytes


class _Image(NamedTuple):
    files: dict[str, bytes]
    folders: list[str]


class SyncedDisk:
    """The disk below `root`, a folder that always survives. Inode numbers identify files and folders.

    `journaled`: a sync of a new file also writes its name, as on ext4 and XFS. POSIX does not promise that.
    """

    def __init__(self, root: Path, journaled: bool = False) -> None:
        self.root = Path(root)
        self.journaled = journaled
        self.root.mkdir(parents=True, exist_ok=True)
        self._prefix = str(self.root)
        self._files: dict[int, _File] = {}
        # Descriptor, and the names that are on the disk.
        self._folders: dict[int, tuple[int, dict[str, int]]] = {}
        # True if a PowerCut was raised since the last start.
        self.is_cut = False
        # The number of syncs before a PowerCut; None: no PowerCut.
        self.syncs_left: int | None = None
        self.note_all()

    # Writes to the disk.

    def note_all(self) -> None:
        """Record the current content of all files and folders as on the disk."""
        self.close()
        for folder, _folders, names in os.walk(self.root):
            self._note_folder(_open_folder(folder), own=True)
            for name in names:
                self._note_file(os.open(os.path.join(folder, name), os.O_RDONLY), own=True)

    def close(self) -> None:
        """Close all descriptors."""
        for file in self._files.values():
            os.close(file.fd)
        for fd, _names in self._folders.values():
            os.close(fd)
        self._files.clear()
        self._folders.clear()

    def holds(self, fd: int) -> bool:
        """Return whether `fd` belongs to a file or folder of this disk."""
        path = os.readlink(f"/proc/self/fd/{fd}")
        return path.startswith(self._prefix) and path[len(self._prefix):len(self._prefix) + 1] in ("", os.sep)

    def sync(self, fd: int) -> None:
        """Record that `fd` was forced to the disk."""
        if self.syncs_left is not None and not os.readlink(f"/proc/self/fd/{fd}").endswith(f"{os.sep}lock"):
            if self.syncs_left == 0:
                self.is_cut = True
                raise PowerCut
            self.syncs_left -= 1
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self._note_folder(fd)
        else:
            self._note_file(fd)

    def _note_file(self, fd: int, own: bool = False) -> None:
        inode = os.fstat(fd).st_ino
        known = self._files.get(inode)
        # opened again: a duplicate would keep its locks
        held = known.fd if known is not None else fd if own else os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        self._files[inode] = _File(held, _content(held))
        if self.journaled and not own and known is None:
            self._note_names_of(Path(os.readlink(f"/proc/self/fd/{fd}")))

    def _note_names_of(self, path: Path) -> None:
        """Record a new file's name, and those of new folders above it: the journal writes them with the file."""
        if path.exists() and path != self.root:
            number, folder = path.stat().st_ino, _open_folder(str(path.parent))
            inode = os.fstat(folder).st_ino
            if inode in self._folders:
                self._folders[inode][1][path.name] = number
                os.close(folder)
            else:
                self._folders[inode] = folder, {path.name: number}
            self._note_names_of(path.parent)

    def _note_folder(self, fd: int, own: bool = False) -> None:
        inode = os.fstat(fd).st_ino
        known = self._folders.get(inode)
        held = known[0] if known is not None else fd if own else _open_folder(f"/proc/self/fd/{fd}")
        self._folders[inode] = held, _names(fd)

    def write_back(self, rng: random.Random) -> None:
        """Let some unforced data reach the disk by chance, as when the kernel writes pages back."""
        for inode, file in list(self._files.items()):
            if rng.random() < 0.3:
                self._files[inode] = _File(file.fd, _mixed(file.synced, _content(file.fd), rng))
        for inode, (fd, names) in list(self._folders.items()):
            if rng.random() < 0.3:
                self._folders[inode] = fd, _mixed_names(names, _names(fd), rng)

    # A loss of power.

    def lose_power(self, rng: random.Random) -> None:
        """Keep only the data on the disk, and by chance some that was on its way there. No file may be in use."""
        image = _Image({}, [])
        self._take_folder("", os.stat(self.root).st_ino, rng, image)
        self.syncs_left, self.is_cut = None, False
        for entry in os.scandir(self.root):
            shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
        for folder in image.folders:
            (self.root / folder).mkdir()
        for name, content in image.files.items():
            (self.root / name).write_bytes(content)
        self.note_all()

    def _take_folder(self, path: str, inode: int, rng: random.Random, image: _Image) -> None:
        known = self._folders.get(inode)
        now = _names(known[0]) if known is not None else _names_in(self.root / path)
        for name, number in sorted(_mixed_names(known[1] if known is not None else {}, now, rng).items()):
            below = os.path.join(path, name)
            file = self._files.get(number)
            if file is not None:
                image.files[below] = _mixed(file.synced, _content(file.fd), rng)
            elif number in self._folders or (self.root / below).is_dir():
                image.folders.append(below)
                self._take_folder(below, number, rng, image)
            elif (self.root / below).exists():
                image.files[below] = _mixed(b"", (self.root / below).read_bytes(), rng)


@contextmanager
def in_use(*disks: SyncedDisk) -> Iterator[None]:
    """Send `os.fsync` and `os.fdatasync` of this process to `disks`; skip those of other files."""
    real = os.fsync, os.fdatasync

    def sync(fd: int) -> None:
        for disk in disks:
            if disk.holds(fd):
                disk.sync(fd)

    os.fsync = os.fdatasync = sync
    try:
        yield
    finally:
        os.fsync, os.fdatasync = real
        for disk in disks:
            disk.close()


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _names(fd: int) -> dict[str, int]:
    with os.scandir(fd) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _names_in(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _mixed(synced: bytes, now: bytes, rng: random.Random) -> bytes:
    """Return `synced` with any of the sectors in which `now` differs."""
    if synced == now:
        return now
    chance, unit = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)), rng.choice((SECTOR, SECTOR, PAGE))
    length = rng.choice((len(synced), len(now)))
    mixed = bytearray(synced[:length].ljust(length, b"\0"))
    for at in range(0, length, unit):
        if rng.random() < chance:
            mixed[at:at + unit] = now[at:min(at + unit, length)].ljust(len(mixed[at:at + unit]), b"\0")
    return bytes(mixed)


def _mixed_names(synced: dict[str, int], now: dict[str, int], rng: random.Random) -> dict[str, int]:
    """Return the names of `synced` with any of the changes that lead to `now`."""
    if synced == now:
        return now
    mixed, chance = dict(synced), rng.choice((0.0, 0.5, 1.0))
    for name in sorted(synced.keys() | now.keys()):
        if synced.get(name) != now.get(name) and rng.random() < chance:
            if name in now:
                mixed[name] = now[name]
            else:
                del mixed[name]
    return mixed


# A store without threads: its services work only when they are called, on the caller's thread.


class SteppedStore(DefaultMessageStore):
    """A store without threads: `open`, then any of the steps, then `shutdown` (the real one) or `kill`."""

    def __init__(self, config: MessageStoreConfig) -> None:
        super().__init__(config, None, None, _broker_config())
        self.index_flushes = _Later()
        self._dispatch_limit: int | None = None
        self._take_threads_away()

    def _take_threads_away(self) -> None:
        for service in (self.ha_service, self.schedule_message_service, self.store_stats_service,
                        self.commit_log.flush_disk_watcher):
            service.start = _nothing
        for service in (self.commit_log.flush_commit_log_service, self.commit_log.commit_log_service,
                        self.flush_consume_queue_service):
            service.start = _nothing
            service.shutdown = _last_round_of(service)
        self.allocate_mapped_file_service.start = _nothing
        self.allocate_mapped_file_service.wakeup = self._make_files
        self.index_service._flush_pool = self.index_flushes
        reput = self.reput_message_service
        self._limit_of_reput, reput._limit = reput._limit, self._limit
        reput.start = _nothing
        reput.is_alive = lambda: True
        reput.wait_caught_up = self._dispatch_all
        reput.shutdown = lambda *_: self._dispatch_all(0)
        self._add_schedule_task = _nothing

    # The work of the services.

    def _make_files(self) -> None:
        service = self.allocate_mapped_file_service
        while service._request_queue:
            service._mmap_operation(service._request_queue.popleft())

    def _limit(self) -> int:
        limit = self._limit_of_reput()
        return limit if self._dispatch_limit is None else min(limit, self._dispatch_limit)

    def _dispatch_all(self, _timeout_ms: int) -> bool:
        self._dispatch_limit = None
        self.reput_message_service.do_reput()
        return self.reput_message_service.behind() <= 0

    def dispatch(self, up_to: int | None = None) -> None:
        """Do the work of ReputMessageService: for the whole log, or up to an offset."""
        self._dispatch_limit = up_to
        try:
            self.reput_message_service.do_reput()
        finally:
            self._dispatch_limit = None

    def commit_buffers(self, least_pages: int) -> None:
        """Do one round of CommitRealTimeService."""
        self.commit_log.commit_log_service._commit(least_pages)

    def flush_log(self, least_pages: int = 0) -> None:
        """Do one round of GroupCommitService or FlushRealTimeService."""
        service = self.commit_log.flush_commit_log_service
        if isinstance(service, GroupCommitService):
            service._swap_requests()
            service._do_commit()
        else:
            service.flush(least_pages)

    def flush_queues(self, thoroughly: bool) -> None:
        """Do one round of FlushConsumeQueueService."""
        service = self.flush_consume_queue_service
        service._last_flush_ms = 0.0 if thoroughly else float("inf")
        service._try_flush(1)

    # Start and end.

    def open(self) -> bool:
        """Recover and start the store. Return False if it cannot be used."""
        if not self.load():
            return False
        self.start()
        return True

    def kill(self) -> None:
        """End like a killed process: without flushing, logging or cleanup."""
        if self.store_checkpoint is not None:
            self.store_checkpoint.flush = _nothing
        for request in self.allocate_mapped_file_service._request_table.values():
            if request.mapped_file is not None:
                request.mapped_file.shutdown(0)
        self._unmap()
        self.transient_store_pool.destroy()
        self._store_lock.release()


@functools.cache
def _broker_config() -> BrokerConfig:
    """Return one configuration for all: finding this machine's address takes longer than opening a store."""
    return BrokerConfig()


class _Later:
    """FlushIndexFileThread without a thread: submitted files wait for `run`."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def submit(self, flush: Callable[..., None], *args: object) -> None:
        """Add a file to flush later."""
        self._waiting.append(lambda: flush(*args))

    def run(self) -> None:
        """Flush the waiting files."""
        while self._waiting:
            self._waiting.pop(0)()

    def shutdown(self) -> None:
        """Flush the waiting files when the store closes."""
        self.run()


class Clock:
    """The simulated `time.time_ns`."""

    def __init__(self, rng: random.Random) -> None:
        self.now_ms = 1_600_000_000_000 + rng.randrange(1_000_000)

    def __call__(self) -> int:
        return self.now_ms * 1_000_000


def _last_round_of(service: ServiceThread) -> Callable[..., None]:
    def shutdown(*_args: object) -> None:
        service._stopped = True
        service.run()

    return shutdown


def _nothing(*_args: object) -> None:
    """Replace a method of a service that has no thread."""


# One machine of a simulated pair: its disk, its store, and what must be there whatever happens.

__all__ = ["Clock", "Machine", "Wrong"]

_TOPICS = ("T", "U", "VeryLongTopicName" * 3)
# The size of a record without body, topic and properties.
_HEAD = 91
_HOST = bytes(8)


class Wrong(AssertionError):
    """An error: acknowledged or written data is not as it must be."""


class Machine:
    """A machine. `history` is all that the log has held; the remaining part must not change. Offsets are the log's."""

    def __init__(self, root: Path, role: BrokerRole, keys: dict[str, object], rng: random.Random,
                 journaled: bool = False) -> None:
        self.rng = rng
        self.disk = SyncedDisk(root, journaled)
        self.role = role
        self._config = config(root, brokerRole=role, **keys)
        self.store: SteppedStore | None = None
        # The maximum number of mapped consume queue files.
        self.maps = 1000
        self._runs = False
        self.history = bytearray()  # from offset 0
        # The end of the data in the page cache.
        self._written = 0
        # The end of the data that was acknowledged as on the disk, or is reported to be.
        self._safe = 0
        # Requests, and the ends of their messages.
        self._acknowledged: list[tuple[Completable, int]] = []
        self._number = 0
        # The number of the machine's present start: even.
        self._boot = 2

    # Starts and stops.

    def open(self) -> None:
        """Start the store."""
        self.store = SteppedStore(self._config)
        self.store.map_keeper.limit = self.maps
        with mock.patch.object(store_checkpoint, "boot_bits", lambda: self._boot):
            if not self.store.open():
                raise Wrong(f"{self.disk.root.name} does not start")
        self._tell_boot_at_writes()
        self._runs = True

    def _tell_boot_at_writes(self) -> None:
        positions = self.store.store_checkpoint._positions
        write = positions.write

        def write_in_this_boot(*args: object) -> None:
            with mock.patch.object(store_checkpoint, "boot_bits", lambda: self._boot):
                write(*args)

        positions.write = write_in_this_boot

    @property
    def begin(self) -> int:
        """The offset at which the log begins."""
        return max(self.store.get_min_phy_offset(), 0)

    @property
    def end(self) -> int:
        """The offset at which the log ends."""
        return self.store.get_max_phy_offset()

    def kill(self) -> None:
        """Kill the process with kill -9, and start it again."""
        self._stop()
        self.open()

    def lose_power(self) -> None:
        """Stop the machine, and start it again."""
        self._stop()
        self._written = self._safe
        self.disk.lose_power(self.rng)
        self._boot += 2
        self.open()

    def restart(self) -> None:
        """Shut down cleanly, and start again."""
        self._note()
        self._runs = False
        self.store.shutdown()
        if not self.store.shut_down_normal:
            raise Wrong(f"{self.disk.root.name} did not shut down well")
        if self.role is not BrokerRole.SLAVE:
            self._safe = self._written
        self.open()

    def _stop(self) -> None:
        if self._runs:
            self._note()
            self._runs = False
        self._acknowledged.clear()
        self.store.kill()

    def give_up(self) -> None:
        """End the sequence."""
        if self.store is not None:
            self.store.kill()

    def stops_in(self, what: str) -> bool:
        """Do something that a PowerCut may end; return whether it did."""
        try:
            if what in ("power", "kill", "restart"):
                {"power": self.lose_power, "kill": self.kill, "restart": self.restart}[what]()
            elif what == "append":
                self.append(3)
            else:
                self.step(what)
        except PowerCut:
            return True
        except Wrong:
            if not self.disk.is_cut:
                raise
        # even if a flushing service has caught it
        return self.disk.is_cut

    def set_up_anew(self) -> None:
        """Start a slave with an empty disk."""
        self._stop()
        for entry in sorted(self.disk.root.rglob("*"), reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()
        self.disk.note_all()
        self._written = self._safe = 0
        self.history.clear()
        self.open()

    # Steps.

    def step(self, name: str) -> None:
        """Do one step of a service, by its name."""
        store, rng = self.store, self.rng
        if name == "flush_log":
            store.commit_buffers(0)
            store.flush_log()
        elif name == "flush_log_a_little":
            store.commit_buffers(rng.choice((0, 1)))
            store.flush_log(rng.choice((1, 4)))
        elif name == "dispatch":
            store.dispatch()
        elif name == "dispatch_some":
            store.dispatch(rng.randrange(self.begin, self.end + 1) // SECTOR * SECTOR)
        elif name == "flush_queues":
            store.flush_queues(thoroughly=True)
        elif name == "flush_queues_a_little":
            store.flush_queues(thoroughly=False)
        elif name == "flush_index":
            store.index_flushes.run()
        elif name == "write_back":
            self.disk.write_back(rng)
        elif name == "clean":
            self._clean()
        self._note()

    def _clean(self) -> None:
        """Delete the oldest file of the log as expired, and the units that point to it."""
        store, queue = self.store, self.store.commit_log.mapped_file_queue
        files = queue.mapped_files
        if len(files) > 2 and store.dispatch_behind_bytes() <= 0 and queue.flushed_where >= files[1].file_from_offset:
            # the last file is never deleted
            queue.mapped_files, rest = files[:2], files[1:]
            try:
                queue.delete_expired_file_by_time(0, 0, 0, True)
            finally:
                queue.mapped_files = rest
            store.clean_consume_queue_service.run()

    def append(self, count: int) -> None:
        """Append messages, of which some end at the end of a sector or file, and some have NULs in their properties."""
        store, rng = self.store, self.rng
        for _ in range(count):
            kind = rng.choice(("one", "one", "row", "batch"))
            topic, queue_id = rng.choice(_TOPICS), rng.randrange(2)
            if kind == "batch":
                bodies = [self._body(rng.randrange(200)) for _ in range(rng.randint(1, 3))]
                self._note_put(store.async_put_messages(batch(bodies, topic, queue_id)))
                continue
            msg = message(topic, queue_id, b"", **self._properties())
            msg.body = self._body(self._length_of_body(len(topic) + len(msg.properties_string.encode())))
            if kind == "one":
                self._note_put(store.async_put_message(msg))
            else:
                self._put_row(msg)
        self._note()

    def _put_row(self, msg) -> None:
        send = self.store.commit_log.message_ext_encoder.encode(msg)._replace(crc=body_crc32(msg.body), born_host=_HOST)
        result = self.store.put_rows([send], _HOST)
        if result is None:
            self._note_put(self.store.async_put_message(msg))
        else:
            self._acknowledged.append((result.status, result.physical_offsets[-1] + send.size))

    def _body(self, length: int) -> bytes:
        self._number += 1
        filler = self.rng.choice((b"\0", b"x"))
        return (b"%d" % self._number).ljust(length, filler)

    def _properties(self) -> dict[str, str]:
        rng = self.rng
        properties = {}
        if rng.random() < 0.6:
            properties["KEYS"] = rng.choice(("k", f"k{self._number}", f"a{self._number} b"))
        if rng.random() < 0.3:
            properties["TAGS"] = rng.choice("AB")
        if rng.random() < 0.3:
            properties["p"] = "p" * rng.choice((1, 100, 700))
        if rng.random() < 0.15:
            properties["z"] = "z" * rng.choice((0, 300)) + "\0" * rng.choice((1, 2, 600)) + rng.choice(("", "end"))
        return properties

    def _length_of_body(self, rest: int) -> int:
        """Draw a length, so that the record ends near the end of a sector or of the file, or anywhere."""
        size = self._config.mappedFileSizeCommitLog
        at = self.store.commit_log.mapped_file_queue.get_max_wrote_position() % size
        kind = self.rng.choice(("any", "any", "sector", "file"))
        length = self.rng.choice((0, 10, 100, 500))
        if kind == "sector":
            length = (-(at + _HEAD + rest + length)) % SECTOR + length + self.rng.choice((-1, 0, 1, 2, 20, 60))
        elif kind == "file":
            length = size - at - _HEAD - rest - END_FILE_MIN_BLANK_LENGTH - self.rng.choice((-1, 0, 0, 1, 2, 4, 10))
        return min(max(length, 0), size - _HEAD - rest - 2 * END_FILE_MIN_BLANK_LENGTH)

    def _note_put(self, future) -> None:
        put = future.get() if future.is_done else None
        if put is not None and not put.is_ok:
            if put.put_message_status is not PutMessageStatus.MESSAGE_ILLEGAL:
                raise Wrong(f"a put was refused: {put}")
            return
        self._acknowledged.append((future, self.store.commit_log.mapped_file_queue.get_max_wrote_position()))

    def feed(self, master: Machine) -> None:
        """Give a slave some of its master's log, in pieces of any size."""
        for _ in range(self.rng.choice((1, 3, 10))):
            start = self.end if self.store.commit_log.mapped_file_queue.mapped_files else master.begin
            if start < master.begin:
                self.set_up_anew()
                continue
            data = master.store.get_commit_log_data(start)
            if data is None:
                break
            with data:
                length = self.rng.choice((data.size, data.size, self.rng.randint(1, data.size)))
                if not self.store.append_to_commit_log(start, bytes(data.buffer[:length]), 0, length):
                    raise Wrong(f"the slave does not accept {length} bytes at {start}")
        self._note()

    # Invariants.

    def _note(self) -> None:
        """Record the log's new data, and the end of the data that is reported as safe."""
        queue = self.store.commit_log.mapped_file_queue
        self.history[self._written:] = b""
        for mapped_file in queue.mapped_files:
            begin = max(self._written, mapped_file.file_from_offset)
            end = mapped_file.file_from_offset + mapped_file.read_position
            if begin < end:
                self.history += bytes(max(begin - len(self.history), 0))
                view = mapped_file.slice_byte_buffer()
                self.history[begin:end] = view[begin - mapped_file.file_from_offset:end - mapped_file.file_from_offset]
            if mapped_file.read_position < mapped_file.wrote_position:
                # the rest is in the buffer
                break
        # Then a kill may lose everything beyond the committed end.
        with_pool = self.store.commit_log.transient_store_pool.is_in_use
        self._written = max(self._written, min(len(self.history), queue.committed_where) if with_pool
                            else len(self.history))
        waiting = []
        for future, end in self._acknowledged:
            if not future.is_done:
                waiting.append((future, end))
            elif self._config.flushDiskType is FlushDiskType.SYNC_FLUSH and _status(future) is PutMessageStatus.PUT_OK:
                self._safe = max(self._safe, end)
        self._acknowledged = waiting
        if self.role is not BrokerRole.SLAVE:
            self._safe = max(self._safe, queue.flushed_where)

    def check(self) -> None:
        """After a start, check that the log has everything it must have, and that all other files follow from it."""
        name, begin, end = self.disk.root.name, self.begin, self.end
        if self.role is not BrokerRole.SLAVE and end < self._written:
            raise Wrong(f"{name}: the log ends at {end}, but it had {self._written}")
        log_bytes = self.log_bytes(begin, end)
        if self.role is BrokerRole.SLAVE or self.store.commit_log.transient_store_pool.is_in_use:
            # a part of a record whose rest is NULs is the whole record; buffered data is in the file
            self.history += log_bytes[len(self.history) - begin:] if end > len(self.history) else b""
        if log_bytes != self.history[begin:end]:
            pairs = zip(log_bytes, self.history[begin:end], strict=False)
            at = next((at for at, (one, other) in enumerate(pairs) if one != other), -1)
            raise Wrong(f"{name}: the log has changed at {begin + at}")
        self._written = end
        del self.history[end:]
        self._safe = min(self._safe, end)
        records = list(store_compare.walk(self.disk.root / "commitlog", end))
        self._check_queues(name, begin)
        for record in records[-3:] + self.rng.sample(records, min(3, len(records))):
            self._check_keys(name, record)
        self._note()

    def log_bytes(self, begin: int, end: int) -> bytes:
        """Return the log between two offsets, without the blank ends of files, which are never read."""
        return b"".join(
            bytes(file.slice_byte_buffer()[max(begin - file.file_from_offset, 0):end - file.file_from_offset])
            for file in self.store.commit_log.mapped_file_queue.mapped_files if begin - file.file_size
            < file.file_from_offset < end)

    def _check_queues(self, name: str, begin: int) -> None:
        expected = store_compare.rebuild_consume_queues(self.disk.root / "commitlog", self.end)
        on_disk = store_compare.queues_on_disk(self.disk.root)
        for key, units in expected.items():
            found = {index: unit for index, unit in store_compare.units(on_disk[key]) if unit[0] >= begin} \
                if key in on_disk else {}
            if sorted(found) != list(range(min(units), max(units) + 1)):
                raise Wrong(f"{name}: queue {key} has {_span(found)}, and the log {_span(units)}")
            if begin == 0 and min(units) != 0:
                raise Wrong(f"{name}: queue {key} begins at {min(units)}")
            queue = self.store.get_consume_queue(*key)
            for index, unit in units.items():
                offset, size, tags_code = found[index]
                if queue.is_ext_addr(tags_code):
                    ext = queue.get_ext(tags_code)
                    tags_code = ext.tags_code if ext is not None else None
                if (offset, size, tags_code) != unit:
                    raise Wrong(f"{name}: unit {index} of {key} is {found[index]}, expected {unit}")
            if queue.get_max_offset_in_queue() != max(units) + 1:
                raise Wrong(f"{name}: queue {key} ends at {queue.get_max_offset_in_queue()}")
        for key, folder in on_disk.items():
            surplus = [index for index, unit in store_compare.units(folder) if unit[0] >= begin]
            if key not in expected and surplus:
                raise Wrong(f"{name}: queue {key} has {surplus}, and the log nothing")

    def _check_keys(self, name: str, record: store_compare.Record) -> None:
        for key in record.properties.get("KEYS", "").split():
            if key == "k":
                # the key of too many messages
                continue
            found = self.store.query_message(record.topic, key, 32, 0, 1 << 62)
            sizes = [len(buffer) for buffer in found.message_buffer_list]
            found.release()
            if record.size not in sizes:
                raise Wrong(f"{name}: key {key} of the record at {record.offset} is not found")

    def check_against(self, master: Machine) -> None:
        """Check that a slave has the same log as its master."""
        begin, end = max(self.begin, master.begin), min(self.end, master.end)
        if self.log_bytes(begin, end) != master.log_bytes(begin, end):
            raise Wrong(f"slave and master are not the same between {begin} and {end}")


def _status(future: Completable) -> PutMessageStatus:
    value = future.get()
    return value.put_message_status if isinstance(value, PutMessageResult) else value


def _span(units: dict[int, object]) -> str:
    return f"{len(units)} units from {min(units)} to {max(units)}" if units else "none"
