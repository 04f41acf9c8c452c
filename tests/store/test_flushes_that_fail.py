"""Opens and fsyncs that fail as a drawn schedule says, against a model of the disk.

The model keeps what a loss of power would leave of the log: the bytes of each file at its last good fsync, and the
names of the folder at the folder's. Whatever is acknowledged has to be there. A store stops when an fsync has failed,
and only then; once the failures are over, everything is flushed.
"""
import errno
import logging
import os
import random
import threading
from pathlib import Path

import pytest

from rmqha.common import filesystem, mix_all
from rmqha.controller import local_store
from rmqha.controller.local_store import StoreFailedError
from rmqha.store import consume_queue
from rmqha.store.index import index_service
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from tests.store.support import bodies, message, open_store, put, wait_dispatched
from tests.support.wait import wait_until

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)
PARTS = ("commitlog", "consumequeue", "index")
KEYS = {"flushIntervalConsumeQueue": 10, "flushConsumeQueueThoroughInterval": 30, "flushIntervalCommitLog": 10,
        "flushCommitLogThoroughInterval": 20, "syncFlushTimeout": 300}


class Disk:
    """Stands in front of os.open, os.fsync and os.fdatasync for what lies below `root`; see the module."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = str(root)
        self.lock = threading.Lock()
        # Path of a file of the log -> when its last good fsync began, and its bytes then
        self.images: dict[str, tuple[int, bytes]] = {}
        self.began = 0
        self.names: set[str] = set()  # paths in the folder of the log, at the folder's last good fsync
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
        """Whether a record would be there after a loss of power."""
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
def test_store_stops_for_failed_fsyncs_alone_and_acknowledges_what_is_on_the_disk(tmp_path, disk, seed):
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
            wait_until(lambda: not store.running_flags.is_writeable, 120_000, "the failed fsync is known")
            assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        else:
            wait_until(lambda: store.put_message(message()).is_ok, 120_000, "puts are taken")
            wait_until(lambda: is_all_flushed(store), 120_000, "everything is flushed")
            assert store.running_flags.is_writeable and not store.running_flags.is_flush_error
            found = store.query_message("T", "k0", 32, 0, 1 << 62)
            found.release()
    assert store.shut_down_normal is not stopped, (seed, fault)


@pytest.mark.parametrize("number", SHORTAGES)
def test_sync_put_waits_for_the_folder_and_is_acknowledged_once_it_could_be_opened(tmp_path, disk, number, caplog):
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


def test_stop_without_descriptors_is_taken_for_a_crash_and_loses_nothing(tmp_path, disk):
    with open_store(tmp_path, flushIntervalCommitLog=60_000) as store:
        put(store, *(message(body=b"%d" % number) for number in range(3)))
        wait_dispatched(store)
        disk.fault = ("open",), "", errno.EMFILE, True
    disk.fault = None
    assert not store.shut_down_normal and (tmp_path / "abort").exists()
    with open_store(tmp_path) as again:
        assert bodies(again) == [b"0", b"1", b"2"]


def test_refused_piece_of_the_masters_log_has_its_reason_in_the_line(tmp_path, disk, caplog):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(0, b"x", 0, 1)
        assert not slave.append_to_commit_log(100, b"x", 0, 1)
        slave.running_flags.make_flush_error("a flush of the commit log: OSError(5, 'Input/output error')")
        assert not slave.append_to_commit_log(1, b"x", 0, 1)
    lines = [record.getMessage() for record in caplog.records if "appendToPhyQueue failed" in record.getMessage()]
    assert len(lines) >= 2
    assert "the log ends at" in lines[-2] and "Input/output error" in lines[-1] and "Restart the broker" in lines[-1]


def test_failed_fsync_of_a_file_made_in_advance_stops_the_store(tmp_path, disk):
    """Its first flush would be told of no failure: Linux reports one once."""
    disk.fault = ("sync",), f"commitlog{os.sep}{16384:020d}", errno.EIO, False
    with open_store(tmp_path) as store:
        put(store, message())
        wait_until(lambda: store.running_flags.is_flush_error, 120_000, "the failure is known")
    assert disk.failed_syncs == 1


@pytest.mark.parametrize("number", SHORTAGES)
def test_file_is_replaced_whole_or_not_at_all_without_descriptors(tmp_path, disk, number):
    path = tmp_path / "config.json"
    mix_all.string2file("old", str(path))
    disk.fault = ("open",), str(tmp_path), number, True
    with pytest.raises(filesystem.NotAskedError):
        mix_all.string2file("new", str(path))
    assert path.read_text() == "old"
    disk.fault = None
    mix_all.string2file("new", str(path))
    assert path.read_text() == "new"


def test_controller_leads_on_when_its_folder_cannot_be_opened_for_a_while(tmp_path, disk):
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
