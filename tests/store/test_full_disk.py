"""A disk that is really full: a small tmpfs under the commit log, or under the consume queues, of a store in a process
of its own, so that a SIGBUS would show.
"""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import store_compare

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
        for _ in range(5):  # it stays refused, and reads go on
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
    """A tmpfs of 8 MiB, half of it taken by the file `ballast`."""
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
    """The script's report; what a signal did shows in the return code."""
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
    fill.write_bytes(bytes(ROOM - (1 << 20)))  # queues are small
    report = run(small_disk, root, storePathCommitLog=str(log))
    check(report, root, log)


def test_full_disk_needs_the_preallocation(small_disk, tmp_path):
    """Without it the same run ends in a SIGBUS: the tests above test something."""
    command = [sys.executable, "-c", SCRIPT, str(small_disk), str(tmp_path / "store"), str(small_disk / "ballast"),
               json.dumps({"storePathCommitLog": str(small_disk / "commitlog"), "preallocateMappedFile": False})]
    env = {**os.environ, "rocketmq_broker_diskSpaceWarningLevelRatio": "2"}
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=600, check=False,
                          env=env)
    assert done.returncode == -signal.SIGBUS, done.stderr[-2000:]
