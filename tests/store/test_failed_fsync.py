"""An fsync fails once: what is acknowledged after it, what the checkpoint says, and what a restart finds.

Each `..._needed` takes one measure out and shows that the test beside it would fail.
"""
import errno
import os
import shutil
from pathlib import Path

import pytest

from rmqha.common import mix_all
from rmqha.store import mapped_file
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import FlushDiskType
from rmqha.store.results import PutMessageStatus
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_checkpoint import StoreCheckpoint
from tests.store.support import FILE_SIZE, bodies, crash, message, new_store, open_store, put, wait_dispatched

SYNC = {"flushDiskType": FlushDiskType.SYNC_FLUSH, "flushIntervalConsumeQueue": 60_000}


class FailsOnce:
    """fdatasync that fails once for files of the commit log, and like a kernel succeeds from then on."""

    def __init__(self, monkeypatch):
        self.real, self.armed, self.failed = os.fdatasync, False, 0
        monkeypatch.setattr(mapped_file.os, "fdatasync", self)

    def __call__(self, fd: int) -> None:
        if self.armed and f"{os.sep}commitlog{os.sep}" in os.readlink(f"/proc/self/fd/{fd}"):
            self.armed, self.failed = False, self.failed + 1
            raise OSError(errno.EIO, "Input/output error")
        self.real(fd)


@pytest.fixture
def disk(monkeypatch):
    return FailsOnce(monkeypatch)


def checkpoint_of(root: Path) -> int:
    """physicMsgTimestamp in the file."""
    checkpoint = StoreCheckpoint(str(root / "checkpoint"))
    try:
        return checkpoint.physic_msg_timestamp
    finally:
        checkpoint.shutdown()


def put_around_a_failure(root: Path, disk: FailsOnce) -> dict:
    """Two good puts, the failure, three more puts; what was answered, and what the store and the checkpoint say."""
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
    """No acknowledgement, no write, no claim after the failure."""
    return (PutMessageStatus.PUT_OK not in seen["after"] and not seen["writeable"] and not seen["normal"]
            and max(seen["told"], seen["on disk"]) <= seen["good"])


def test_nothing_is_acknowledged_after_a_failed_fsync(tmp_path, disk):
    seen = put_around_a_failure(tmp_path, disk)
    assert holds(seen), seen
    assert seen["after"] == [PutMessageStatus.FLUSH_DISK_TIMEOUT, *[PutMessageStatus.SERVICE_NOT_AVAILABLE] * 3]
    with open_store(tmp_path, **SYNC) as again:
        found = bodies(again)
        assert found[:2] == [b"good0", b"good1"] and len(found) <= 3
        assert put(again, message())[0].logics_offset == len(found)


def test_unwritable_state_after_a_failed_fsync_is_needed(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(RunningFlags, "make_flush_error", lambda self, reason="": None)
    seen = put_around_a_failure(tmp_path, disk)
    assert not holds(seen), seen
    assert PutMessageStatus.PUT_OK in seen["after"]


def dirty_tail(root: Path) -> tuple[int, int]:
    """A crashed store whose third record from the end is damaged; offsets of the damage and of what follows it."""
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
    """What is there when a store with a dirty tail takes one message as long as the damaged one, and crashes again."""
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


def test_dirty_tail_does_not_come_back(tmp_path):
    assert after_two_crashes(tmp_path) == [b"old0", b"old1", b"new2"]


def test_zeroed_tail_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(MappedFile, "zero_from", lambda self, position: None)
    assert after_two_crashes(tmp_path) == [b"old0", b"old1", b"new2", b"old3", b"old4"]


# Config JSON: a power loss may come between any two steps of saving; each step that was not yet synced may be lost.

class PowerLoss(Exception):
    """The process is gone."""


def lose_power_at(step: int, path: Path, monkeypatch) -> None:
    """Save "new" over "old"; the power goes at the `step`-th system call that changes the folder, unsynced data too."""
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
    """What 4.9 does: write, copy to .bak, delete, rename; no fsync."""
    Path(file_name + ".tmp").write_text(text, encoding="ascii")
    if os.path.exists(file_name):
        shutil.copy(file_name, file_name + ".bak")
        os.remove(file_name)
    os.replace(file_name + ".tmp", file_name)


def contents(tmp_path: Path, monkeypatch) -> set:
    """What the file holds when the power goes at each step in turn."""
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
    """The system calls of one save, in order; the data must be synced before the rename, the folder after it."""
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


def test_preallocation_leaves_no_hole_before_the_writer(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message())
        assert os.stat(tmp_path / "commitlog" / f"{0:020d}").st_blocks * 512 >= FILE_SIZE


def test_preallocation_is_needed(tmp_path):
    with open_store(tmp_path, preallocateMappedFile=False) as store:
        put(store, message())
        assert os.stat(tmp_path / "commitlog" / f"{0:020d}").st_blocks * 512 < FILE_SIZE
