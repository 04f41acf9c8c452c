"""Random sequences on disks that forget what was not forced to them; the long form is in power_sequences.py."""
import os
import random

import pytest

from tests.faults.power_sequences import run_some
from tests.faults.synced_disk import PAGE, SECTOR, NothingByChance, SyncedDisk, in_use
from tests.support import tiers

_SEQUENCES = tiers.pick(40, all=200, long=20_000)


@pytest.mark.timeout(3600)
def test_nothing_that_was_acknowledged_is_lost_and_all_queues_follow_from_the_log():
    failures, steps = run_some(1, _SEQUENCES)
    assert not failures
    assert all(any(step.endswith(name) for step in steps) for name in ("power", "kill", "restart", "append", "feed"))


@pytest.mark.parametrize("seed", [513918, 901034, 906421, 1301775, 1303997])
def test_sequences_that_once_failed_hold(seed):
    assert run_some(seed, 1)[0] == []


def test_disk_forgets_what_was_not_forced_to_it(tmp_path):
    disk = SyncedDisk(tmp_path)
    with in_use(disk):
        with open(tmp_path / "synced", "wb", buffering=0) as file:
            file.write(b"a" * PAGE)
            os.fsync(file.fileno())
            file.seek(0)
            file.write(b"b" * SECTOR)
        (tmp_path / "nameless").write_bytes(b"c")
        with open(tmp_path / "nameless", "rb") as file:
            os.fsync(file.fileno())
        fd = os.open(tmp_path, os.O_RDONLY)
        os.unlink(tmp_path / "nameless")
        os.fsync(fd)
        os.close(fd)
        disk.lose_power(NothingByChance())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"synced": b"a" * PAGE}


def test_any_later_sectors_may_be_there(tmp_path):
    seen = set()
    for seed in range(60):
        path = tmp_path / str(seed)
        disk = SyncedDisk(path)
        with in_use(disk):
            for round_ in (b"a", b"b"):
                with open(path / "file", "wb", buffering=0) as file:
                    file.write(round_ * 2 * SECTOR)
                    if round_ == b"a":
                        os.fsync(file.fileno())
                        fd = os.open(path, os.O_RDONLY)
                        os.fsync(fd)
                        os.close(fd)
            disk.lose_power(random.Random(seed))
            content = (path / "file").read_bytes()
            assert content[:SECTOR] in (b"a" * SECTOR, b"b" * SECTOR)
            seen.add((content[0], content[-1]))
    assert seen == {(first, last) for first in b"ab" for last in b"ab"}
