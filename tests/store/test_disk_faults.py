"""Failing and full disks, and a shortage of descriptors: only safe puts are acknowledged, and a restart finds them."""
import errno
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmqha.common import filesystem, mix_all
from rmqha.controller import local_store
from rmqha.controller.local_store import StoreFailedError
from rmqha.store import consume_queue, mapped_file
from rmqha.store.index import index_service
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_checkpoint import StoreCheckpoint
from tests.store.support import FILE_SIZE, bodies, crash, message, new_store, open_store, put, wait_dispatched
from tests.support import store_compare
from tests.support.wait import wait_until

# Opens and fsyncs that fail on a drawn schedule, compared with a model of the disk.
#
# The model holds the part of the log that would survive a loss of power: the bytes of each file at its last successful
# fsync, and the names in the folder at the folder's. Every acknowledged message has to be there. A store stops after a
# failed fsync, and only then; once the failures are over, everything is flushed.

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)
PARTS = ("commitlog", "consumequeue", "index")
KEYS = {"flushIntervalConsumeQueue": 10, "flushConsumeQueueThoroughInterval": 30, "flushIntervalCommitLog": 10,
        "flushCommitLogThoroughInterval": 20, "syncFlushTimeout": 300}


class Disk:
    """A wrapper of os.open, os.fsync and os.fdatasync for everything below `root`; see the comment above."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = str(root)
        self.lock = threading.Lock()
        # Path of a log file -> (start of its last successful fsync, its bytes at that time).
        self.images: dict[str, tuple[int, bytes]] = {}
        self.began = 0
        # Paths in the log's folder at the folder's last successful fsync.
        self.names: set[str] = set()
        self.fault = None  # (calls, part, errno, only folders)
        self.failed_opens = self.failed_syncs = 0
        self.real = {name: getattr(os, name) for name in ("open", "fsync", "fdatasync")}
        for name in self.real:
            monkeypatch.setattr(os, name, getattr(self, name))

    def hits(self, call: str, path: str) -> bool:
        if self.fault is None or not path.startswith(self.root):
            return False
        calls, part, _errno, only_folders = self.fault
        return call in calls and part in path and (not only_folders or os.path.isdir(path))

    def error(self, path: str) -> OSError:
        return OSError(self.fault[2], os.strerror(self.fault[2]), path)

    def open(self, path, *arguments, **keys):
        with self.lock:
            if self.hits("open", str(path)):
                self.failed_opens += 1
                raise self.error(path)
        return self.real["open"](path, *arguments, **keys)

    def fsync(self, fd):
        self.sync("fsync", fd)

    def fdatasync(self, fd):
        self.sync("fdatasync", fd)

    def sync(self, name, fd):
        path = os.readlink(f"/proc/self/fd/{fd}")
        in_log = f"{os.sep}commitlog" in path
        with self.lock:
            self.began += 1
            began = self.began
        held = Path(path).read_bytes() if in_log and os.path.isfile(path) else b""
        names = {entry.path for entry in os.scandir(path)} if in_log and os.path.isdir(path) else set()
        with self.lock:
            if self.hits("sync", path):
                self.failed_syncs += 1
                raise self.error(path)
        self.real[name](fd)
        with self.lock:
            self.names |= names
            if held:
                self.images[path] = max(self.images.get(path, (0, b"")), (began, held))

    def has(self, store, result) -> bool:
        """Return whether a record would survive a loss of power."""
        offset, size = result.wrote_offset, result.wrote_bytes
        file = store.commit_log.mapped_file_queue.find_mapped_file_by_offset(offset)
        at = offset - file.file_from_offset
        return file.file_name in self.names and \
            self.images.get(file.file_name, (0, b""))[1][at:at + size] == bytes(file.slice_byte_buffer()[at:at + size])


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr(index_service, "_RETRY_MS", 10)
    monkeypatch.setattr(consume_queue, "_RETRY_MS", 10)
    return Disk(tmp_path, monkeypatch)


def is_all_flushed(store) -> bool:
    log = store.commit_log.mapped_file_queue
    return (log.flushed_where == log.get_max_offset() > 0 and store.dispatch_behind_bytes() <= 0
            and all(queue.is_flushed_to(queue.written_to()) for queue in store.all_consume_queues()))


def drawn_fault(draw: random.Random):
    kind = draw.choice(("open", "open", "open of a folder", "sync"))
    part = draw.choice((*PARTS, ""))
    if kind == "open":
        return ("open",), part, draw.choice(SHORTAGES), False
    if kind == "open of a folder":
        return ("open",), part, draw.choice((*SHORTAGES, errno.EACCES, errno.EIO, errno.EINTR)), True
    return ("sync",), draw.choice((*PARTS, "checkpoint")), draw.choice(DISK_ERRORS), False


@pytest.mark.parametrize("seed", range(60))
def test_store_stops_only_for_failed_fsyncs_and_acknowledges_only_synced_bytes(tmp_path, disk, seed):
    draw = random.Random(seed)
    fault, kind = drawn_fault(draw), draw.choice(list(FlushDiskType))
    begin = draw.randrange(12)
    end = begin + draw.randrange(1, 8)
    with open_store(tmp_path, flushDiskType=kind, **KEYS) as store:
        stored = 0
        for number in range(22):
            if number == begin:
                disk.fault = fault
            if number == end:
                disk.fault = None
            result = store.put_message(message(body=bytes(draw.randrange(10, 3000)), KEYS=f"k{number}"))
            appended = result.append_message_result
            stored += appended is not None
            if result.put_message_status is PutMessageStatus.PUT_OK and kind is FlushDiskType.SYNC_FLUSH:
                assert disk.has(store, appended), (seed, number, fault)
        stopped = disk.failed_syncs > 0
        if stopped:
            wait_until(lambda: not store.running_flags.is_writeable, 120_000, "the failed fsync is detected")
            assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        else:
            wait_until(lambda: store.put_message(message()).is_ok, 120_000, "puts are accepted")
            wait_until(lambda: is_all_flushed(store), 120_000, "everything is flushed")
            assert store.running_flags.is_writeable and not store.running_flags.is_flush_error
            found = store.query_message("T", "k0", 32, 0, 1 << 62)
            found.release()
    assert store.shut_down_normal is not stopped, (seed, fault)


@pytest.mark.parametrize("number", SHORTAGES)
def test_sync_put_waits_for_the_folder_and_is_acknowledged_once_it_can_be_opened(tmp_path, disk, number, caplog):
    keys = {**KEYS, "syncFlushTimeout": 600_000}
    with open_store(tmp_path, flushDiskType=FlushDiskType.SYNC_FLUSH, **keys) as store, \
            caplog.at_level(logging.WARNING, "RocketmqStore"):
        disk.fault = ("open",), f"{os.sep}commitlog", number, True
        future = store.async_put_message(message())
        wait_until(lambda: disk.failed_opens >= 3, 120_000, "flushes that could not open the folder")
        assert not future.is_done and store.commit_log.mapped_file_queue.flushed_where == 0
        disk.fault = None
        result = future.get(120_000)
        assert result.put_message_status is PutMessageStatus.PUT_OK and disk.has(store, result.append_message_result)
    assert store.shut_down_normal
    said = [record.getMessage() for record in caplog.records if "can't be flushed now" in record.getMessage()]
    needed = {errno.EMFILE: "ulimit -n", errno.ENFILE: "fs.file-max", errno.ENOMEM: "vm.max_map_count"}
    assert said and all(needed[number] in each for each in said)
    assert len(said) < disk.failed_opens or disk.failed_opens <= 2
    assert any("is flushed again" in record.getMessage() for record in caplog.records)


def test_sync_put_times_out_while_the_folder_cannot_be_opened(tmp_path, disk):
    with open_store(tmp_path, flushDiskType=FlushDiskType.SYNC_FLUSH, **KEYS) as store:
        disk.fault = ("open",), f"{os.sep}commitlog", errno.EMFILE, True
        assert store.put_message(message()).put_message_status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        disk.fault = None
        assert store.put_message(message()).put_message_status is PutMessageStatus.PUT_OK


def test_slave_appends_while_folders_cannot_be_opened(tmp_path, disk):
    with open_store(tmp_path / "master") as master:
        results = put(master, *(message() for _ in range(5)))
        wait_dispatched(master)
    data = (tmp_path / "master" / "commitlog" / f"{0:020}").read_bytes()
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, **KEYS) as slave:
        disk.fault = ("open",), f"{os.sep}commitlog", errno.EMFILE, True
        for result in results:
            assert slave.append_to_commit_log(result.wrote_offset, data, result.wrote_offset, result.wrote_bytes)
        wait_until(lambda: disk.failed_opens >= 3, 120_000, "flushes that could not open the folder")
        disk.fault = None
        wait_until(lambda: is_all_flushed(slave), 120_000, "everything is flushed")
    assert slave.shut_down_normal


def test_stop_without_descriptors_counts_as_a_crash_and_loses_nothing(tmp_path, disk):
    with open_store(tmp_path, flushIntervalCommitLog=60_000) as store:
        put(store, *(message(body=b"%d" % number) for number in range(3)))
        wait_dispatched(store)
        disk.fault = ("open",), "", errno.EMFILE, True
    disk.fault = None
    assert not store.shut_down_normal and (tmp_path / "abort").exists()
    with open_store(tmp_path) as again:
        assert bodies(again) == [b"0", b"1", b"2"]


def test_refused_piece_of_the_masters_log_is_logged_with_its_reason(tmp_path, disk, caplog):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(0, b"x", 0, 1)
        assert not slave.append_to_commit_log(100, b"x", 0, 1)
        slave.running_flags.make_flush_error("a flush of the commit log: OSError(5, 'Input/output error')")
        assert not slave.append_to_commit_log(1, b"x", 0, 1)
    lines = [record.getMessage() for record in caplog.records if "appendToPhyQueue failed" in record.getMessage()]
    assert len(lines) >= 2
    assert "the log ends at" in lines[-2] and "Input/output error" in lines[-1] and "Restart the broker" in lines[-1]


def test_failed_fsync_of_a_preallocated_file_stops_the_store(tmp_path, disk):
    """The file's first regular flush would not see the failure: Linux reports it only once."""
    disk.fault = ("sync",), f"commitlog{os.sep}{16384:020d}", errno.EIO, False
    with open_store(tmp_path) as store:
        put(store, message())
        wait_until(lambda: store.running_flags.is_flush_error, 120_000, "the failure is detected")
    assert disk.failed_syncs == 1


@pytest.mark.parametrize("number", SHORTAGES)
def test_file_is_replaced_completely_or_not_at_all_without_descriptors(tmp_path, disk, number):
    path = tmp_path / "config.json"
    mix_all.string2file("old", str(path))
    disk.fault = ("open",), str(tmp_path), number, True
    with pytest.raises(filesystem.NotAskedError):
        mix_all.string2file("new", str(path))
    assert path.read_text() == "old"
    disk.fault = None
    mix_all.string2file("new", str(path))
    assert path.read_text() == "new"


def test_controller_keeps_leading_while_its_folder_cannot_be_opened(tmp_path, disk):
    store = local_store.LocalStore(str(tmp_path), "n0", "127.0.0.1:1")
    store.start()
    disk.fault = ("open",), str(tmp_path), errno.EMFILE, True
    with pytest.raises(StoreFailedError):
        store.put("a", 0, None)
    assert store.leads
    disk.fault = None
    assert store.put("a", 0, None).version == 1
    disk.fault = ("sync",), str(tmp_path), errno.EIO, True
    with pytest.raises(StoreFailedError):
        store.put("a", 1, None)
    assert not store.leads
    disk.fault = None
    store.shutdown()


# An fsync fails once: later acknowledgements, the checkpoint, and the result of a restart.
#
# Each `..._needed` removes one safeguard and shows that the test beside it would fail.

SYNC = {"flushDiskType": FlushDiskType.SYNC_FLUSH, "flushIntervalConsumeQueue": 60_000}


class FailsOnce:
    """An fdatasync that fails once for files of the commit log, and succeeds from then on, as a kernel does."""

    def __init__(self, monkeypatch):
        self.real, self.armed, self.failed = os.fdatasync, False, 0
        monkeypatch.setattr(mapped_file.os, "fdatasync", self)

    def __call__(self, fd: int) -> None:
        if self.armed and f"{os.sep}commitlog{os.sep}" in os.readlink(f"/proc/self/fd/{fd}"):
            self.armed, self.failed = False, self.failed + 1
            raise OSError(errno.EIO, "Input/output error")
        self.real(fd)


@pytest.fixture
def fsync_disk(monkeypatch):
    return FailsOnce(monkeypatch)


def checkpoint_of(root: Path) -> int:
    """Return the physicMsgTimestamp in the file."""
    checkpoint = StoreCheckpoint(str(root / "checkpoint"))
    try:
        return checkpoint.physic_msg_timestamp
    finally:
        checkpoint.shutdown()


def put_around_a_failure(root: Path, disk: FailsOnce) -> dict:
    """Put twice, let an fsync fail, and put again; return the answers, and the store's and the checkpoint's state."""
    store = new_store(root, **SYNC)
    assert store.load()
    store.start()
    good = put(store, *(message(body=b"good%d" % number) for number in range(2)))[-1]
    disk.armed = True
    after = [store.put_message(message(body=b"late%d" % number)).put_message_status for number in range(4)]
    wait_dispatched(store)
    told = store.store_checkpoint.physic_msg_timestamp
    writeable = store.running_flags.is_writeable
    store.shutdown()
    assert disk.failed == 1
    return {"after": after, "writeable": writeable, "normal": store.shut_down_normal, "told": told,
            "good": good.store_timestamp, "on disk": checkpoint_of(root)}


def holds(seen: dict) -> bool:
    """Return whether nothing was acknowledged, written or claimed as flushed after the failure."""
    return (PutMessageStatus.PUT_OK not in seen["after"] and not seen["writeable"] and not seen["normal"]
            and max(seen["told"], seen["on disk"]) <= seen["good"])


def test_nothing_is_acknowledged_after_a_failed_fsync(tmp_path, fsync_disk):
    seen = put_around_a_failure(tmp_path, fsync_disk)
    assert holds(seen), seen
    assert seen["after"] == [PutMessageStatus.FLUSH_DISK_TIMEOUT, *[PutMessageStatus.SERVICE_NOT_AVAILABLE] * 3]
    with open_store(tmp_path, **SYNC) as again:
        found = bodies(again)
        assert found[:2] == [b"good0", b"good1"] and len(found) <= 3
        assert put(again, message())[0].logics_offset == len(found)


def test_unwritable_state_after_a_failed_fsync_is_needed(tmp_path, fsync_disk, monkeypatch):
    monkeypatch.setattr(RunningFlags, "make_flush_error", lambda self, reason="": None)
    seen = put_around_a_failure(tmp_path, fsync_disk)
    assert not holds(seen), seen
    assert PutMessageStatus.PUT_OK in seen["after"]


def dirty_tail(root: Path) -> tuple[int, int]:
    """Make a crashed store with a damaged third record from the end; return the offsets of it and of the next one."""
    store = new_store(root)
    assert store.load()
    store.start()
    offsets = [put(store, message(body=b"old%d" % number))[0].wrote_offset for number in range(5)]
    wait_dispatched(store)
    crash(store)
    with open(root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(offsets[2] + 4)
        file.write(bytes(4))
    return offsets[2], offsets[3]


def after_two_crashes(root: Path) -> list[bytes]:
    """Put a message, as long as the damaged one, into a store with a dirty tail; return the messages after a crash."""
    bad, following = dirty_tail(root)
    store = new_store(root)
    assert store.load()
    store.start()
    assert store.get_max_phy_offset() == bad
    assert put(store, message(body=b"new2"))[0].wrote_bytes == following - bad
    wait_dispatched(store)
    crash(store)
    with open_store(root) as again:
        wait_dispatched(again)
        return bodies(again)


def test_truncated_records_do_not_reappear(tmp_path):
    assert after_two_crashes(tmp_path) == [b"old0", b"old1", b"new2"]


def test_zeroing_the_tail_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(MappedFile, "zero_from", lambda self, position: None)
    assert after_two_crashes(tmp_path) == [b"old0", b"old1", b"new2", b"old3", b"old4"]


# Config JSON: power may fail between any two steps of saving, and each step that is not synced yet may be lost.

class PowerLoss(Exception):
    """The process loses power."""


def lose_power_at(step: int, path: Path, monkeypatch) -> None:
    """Save "new" over "old"; lose power at the `step`-th call that changes the folder, with all unsynced data."""
    calls = [0]

    def counted(real):
        def call(*args, **kwargs):
            calls[0] += 1
            if calls[0] == step:
                raise PowerLoss
            return real(*args, **kwargs)
        return call

    with monkeypatch.context() as patched:
        for name in ("replace", "link", "remove", "fsync"):
            patched.setattr(mix_all.os, name, counted(getattr(os, name)))
        try:
            mix_all.string2file("new", str(path))
        except PowerLoss:
            pass


def java_string2file(text: str, file_name: str) -> None:
    """Write the file as 4.9 does: write, copy to .bak, delete, rename; no fsync."""
    Path(file_name + ".tmp").write_text(text, encoding="ascii")
    if os.path.exists(file_name):
        shutil.copy(file_name, file_name + ".bak")
        os.remove(file_name)
    os.replace(file_name + ".tmp", file_name)


def contents(tmp_path: Path, monkeypatch) -> set:
    """Return the contents of the file after a loss of power at each step in turn."""
    found = set()
    for step in range(1, 9):
        path = tmp_path / str(step) / "config.json"
        path.parent.mkdir()
        path.write_text("old", encoding="ascii")
        lose_power_at(step, path, monkeypatch)
        found.add(path.read_text(encoding="ascii") if path.exists() else None)
    return found


def test_config_file_is_old_or_new_at_every_step(tmp_path, monkeypatch):
    assert contents(tmp_path, monkeypatch) == {"old", "new"}


def test_atomic_rename_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(mix_all, "string2file", java_string2file)
    assert None in contents(tmp_path, monkeypatch)


def synced_before_rename(tmp_path: Path, monkeypatch) -> list[str]:
    """Return the system calls of one save, in order: the data is synced before the rename, the folder after it."""
    path, calls = tmp_path / "config.json", []
    path.write_text("old", encoding="ascii")

    def recorded(name, real):
        def call(*args, **kwargs):
            what = os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else str(args[-1])
            calls.append(f"{name} {os.path.basename(what) if what != str(tmp_path) else 'folder'}")
            return real(*args, **kwargs)
        return call

    with monkeypatch.context() as patched:
        for name in ("replace", "fsync"):
            patched.setattr(mix_all.os, name, recorded(name, getattr(os, name)))
        mix_all.string2file("new", str(path))
    return calls


def test_config_file_is_synced_before_and_its_folder_after_the_rename(tmp_path, monkeypatch):
    calls = synced_before_rename(tmp_path, monkeypatch)
    rename = calls.index("replace config.json")
    assert "fsync config.json.tmp" in calls[:rename] and "fsync folder" in calls[rename:]


def test_preallocation_leaves_no_hole_ahead_of_the_writer(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message())
        assert os.stat(tmp_path / "commitlog" / f"{0:020d}").st_blocks * 512 >= FILE_SIZE


def test_preallocation_is_needed(tmp_path):
    with open_store(tmp_path, preallocateMappedFile=False) as store:
        put(store, message())
        assert os.stat(tmp_path / "commitlog" / f"{0:020d}").st_blocks * 512 < FILE_SIZE


# A disk that is really full: a small tmpfs under the commit log, or under the consume queues. The store runs in its own
# process, so that a SIGBUS is seen.

ROOM = 4 << 20
SCRIPT = '''
import json, os, sys
from rmqha.store.results import PutMessageStatus
from tests.store.support import message, new_store
from tests.support.wait import at_least, wait_until

small, root, ballast, keys = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
store = new_store(root, mappedFileSizeCommitLog=1 << 20, mappedFileSizeConsumeQueue=20_000, messageIndexEnable=False,
                  **keys)
assert store.load()
store.start()
put, seen, was_full, resumed = 0, set(), False, False
queue = 0
while not resumed:
    result = store.put_message(message("T", queue, b"x" * 2000))
    seen.add(result.put_message_status.name)
    if result.is_ok:
        put += 1
        queue = (queue + 1) % 40
        if was_full:
            resumed = True
        elif put % 40 == 0:
            store.flush()
    elif not was_full:
        for _ in range(5):  # puts stay refused, and reads continue
            assert not store.put_message(message("T", 0, b"x" * 2000)).is_ok
        wait_until(lambda: (found := store.get_message("g", "T", 0, 0, 1)).message_buffer_list and found).release()
        os.unlink(ballast)
        was_full = True
    else:
        at_least(0.05)
for _ in range(100):
    assert store.put_message(message("T", 3, b"y")).is_ok
    put += 1
log = store.commit_log
wait_until(lambda: store.dispatch_behind_bytes() <= 0 and not log.remain_how_many_data_to_commit(), 240_000)
wait_until(lambda: store.dispatch_behind_bytes() <= 0, 240_000)
units = sum(each.get_max_offset_in_queue() for each in store.all_consume_queues())
store.shutdown()
print(json.dumps({"put": put, "units": units, "seen": sorted(seen),
                  "normal": store.shut_down_normal}))
'''


@pytest.fixture
def small_disk(tmp_path):
    """Mount a tmpfs of 8 MiB, half of it taken by the file `ballast`."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={2 * ROOM}", "none", str(folder)], capture_output=True,
                          text=True, timeout=600, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()}")
    (folder / "ballast").write_bytes(bytes(ROOM))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], timeout=600, check=True)


def run(small: Path, root: Path, **keys: object) -> dict:
    """Run the script, and return its report; a signal shows in the return code."""
    command = [sys.executable, "-c", SCRIPT, str(small), str(root), str(small / "ballast"), json.dumps(keys)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600,
                          check=False)
    assert done.returncode != -signal.SIGBUS, "killed by SIGBUS"
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def check(report: dict, root: Path, log: Path) -> None:
    assert set(report["seen"]) <= {"PUT_OK", "SERVICE_NOT_AVAILABLE", "CREATE_MAPEDFILE_FAILED"}, report
    assert len(report["seen"]) >= 2, report
    assert report["units"] == report["put"], report
    assert report["normal"], report
    assert store_compare.check_consume_queues(root, log) == report["put"]


@pytest.mark.parametrize("keys", [{}, {"transientStorePoolEnable": True}], ids=["direct", "pool"])
def test_full_disk_under_the_commit_log_refuses_puts_until_there_is_room(small_disk, tmp_path, keys):
    report = run(small_disk, tmp_path / "store", storePathCommitLog=str(small_disk / "commitlog"), **keys)
    check(report, tmp_path / "store", small_disk / "commitlog")


def test_full_disk_under_the_consume_queues_refuses_puts_until_there_is_room(small_disk, tmp_path):
    root, log = small_disk / "store", tmp_path / "commitlog"
    fill = small_disk / "more"
    # The queues are small, so leave them little room.
    fill.write_bytes(bytes(ROOM - (1 << 20)))
    report = run(small_disk, root, storePathCommitLog=str(log))
    check(report, root, log)


def test_full_disk_needs_the_preallocation(small_disk, tmp_path):
    """Without preallocation the same run ends in a SIGBUS, so the tests above do test it."""
    command = [sys.executable, "-c", SCRIPT, str(small_disk), str(tmp_path / "store"), str(small_disk / "ballast"),
               json.dumps({"storePathCommitLog": str(small_disk / "commitlog"), "preallocateMappedFile": False})]
    env = {**os.environ, "rocketmq_broker_diskSpaceWarningLevelRatio": "2"}
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=600, check=False,
                          env=env)
    assert done.returncode == -signal.SIGBUS, done.stderr[-2000:]


# A temporary shortage of descriptors: the disk was not asked, nothing is lost, and the store continues afterwards.


class NoDescriptors:
    """An os.open that fails for files below `folder` while it is set."""

    def __init__(self, monkeypatch):
        self.real, self.folder, self.failed, self.number = os.open, None, 0, errno.EMFILE
        monkeypatch.setattr(mapped_file.os, "open", self)

    def __call__(self, path, *arguments, **keys) -> int:
        if self.folder is not None and f"{os.sep}{self.folder}{os.sep}" in str(path):
            self.failed += 1
            raise OSError(self.number, os.strerror(self.number), path)
        return self.real(path, *arguments, **keys)


@pytest.fixture
def descriptors(monkeypatch):
    return NoDescriptors(monkeypatch)


def flushed(store) -> int:
    """Return the number of flushed bytes of the consume queue."""
    return store.consume_queue_table["T"][0].mapped_file_queue.flushed_where


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_flush_without_descriptors_is_retried_and_stops_no_puts(tmp_path, descriptors, folder):
    with open_store(tmp_path, flushIntervalConsumeQueue=10, flushConsumeQueueThoroughInterval=0) as store:
        put(store, message(KEYS="a"))
        wait_dispatched(store)
        descriptors.folder = folder
        put(store, message(KEYS="b"))
        wait_until(lambda: descriptors.failed >= 3, 60_000, "flushes failed for lack of a descriptor")
        assert not store.running_flags.is_flush_error and store.running_flags.is_writeable
        descriptors.folder = None
        put(store, message(KEYS="c"))
        wait_until(lambda: flushed(store) == 3 * 20, 60_000, "everything is flushed")
        assert len(bodies(store)) == 3


def test_index_file_waits_for_a_descriptor_without_limit(tmp_path, descriptors, monkeypatch):
    monkeypatch.setattr("rmqha.store.index.index_service._RETRY_MS", 10)
    with open_store(tmp_path) as store:
        descriptors.folder = "index"
        put(store, message(KEYS="a"))
        wait_until(lambda: descriptors.failed > 10, 60_000, "several attempts to create the file")
        assert store.put_message(message(KEYS="b")).put_message_status is PutMessageStatus.PUT_OK
        descriptors.folder = None
        wait_dispatched(store)
        for key in ("a", "b"):
            found = store.query_message("T", key, 32, 0, 1 << 62)
            assert len(found.message_maped_list) == 1
            found.release()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_dispatch_waits_for_the_end_of_a_shortage_without_limit(tmp_path, descriptors, monkeypatch, folder,
                                                                          number):
    monkeypatch.setattr("rmqha.store.index.index_service._RETRY_MS", 1)
    monkeypatch.setattr("rmqha.store.consume_queue._RETRY_MS", 1)
    descriptors.number = number
    with open_store(tmp_path) as store:
        descriptors.folder = folder
        put(store, message(KEYS="a"))
        wait_until(lambda: descriptors.failed > 60, 60_000, "several attempts to create the file")
        assert store.put_message(message(KEYS="b")).put_message_status is PutMessageStatus.PUT_OK
        descriptors.folder = None
        wait_dispatched(store)
        assert len(bodies(store)) == 2 and store.running_flags.is_writeable
