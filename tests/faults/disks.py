"""Disks that fail: an fsync that ends with EIO, slow fsyncs, a file system that is full for a while."""
import errno
import os
import shutil
import time
from pathlib import Path

from tests.faults import images, network, preloads
from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.faults.power import Power
from tests.faults.senders import SENDERS
from tests.faults.verdict import Violation
from tests.support.wait import wait_until


def _free_bytes(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


class Sync(Power):
    """One cycle: an fsync of the master's log fails with EIO, or all are slow; the master acknowledges nothing after
    the failure; then it loses power, and comes back with all that was acknowledged."""

    name = "sync"

    @classmethod
    def why_not(cls) -> str | None:
        return preloads.why_not() or images.why_not()

    def sides(self) -> tuple[dict, dict]:
        master, slave = super().sides()
        self._trigger = self.folder / "trigger"
        library = preloads.compiled("failing_sync", self.folder)
        environment = {"LD_PRELOAD": str(library), "FAULTS_SYNC_TRIGGER": str(self._trigger)}
        return {**master, "env": environment}, slave

    def cycle(self) -> str:
        pair = self.pair
        pair.senders.go()
        pair.senders.wait_for_more(self.rng.randint(1, 30), BOOT_MS)
        if self.rng.random() < 0.3:
            return self._slow()
        self._trigger.touch()
        wait_until(lambda: not self._trigger.exists(), 60_000, "an fsync of the log")
        pair.senders.pause()  # answers whose fsync was before the failed one have arrived then
        before = pair.senders.snapshot()
        pair.senders.go()
        pair.senders.wait_for_answers(SENDERS, BOOT_MS)
        more = len(set(pair.senders.snapshot()) - set(before))
        if more:
            raise Violation(f"A: {more} messages are acknowledged after a failed fsync")
        return f"EIO once, then {self.lose_power_of([pair.master], 'nothing')}"

    def _slow(self) -> str:
        slow = self._trigger.with_name("trigger.slow")
        slow.touch()
        try:
            self.pair.senders.wait_for_more(6, BOOT_MS)
        finally:
            slow.unlink()
        return f"slow fsyncs: {self.pair.settle()}"


class Full(Fault):
    """One cycle: a file system of the master or of the slave is filled up, for a second or two, under load.

    In every other life the consume queues have a file system of their own, so that only the one or the other is full.
    """

    name = "full"
    cycles_per_life = 8
    _SIZE = 192 << 20
    _RESUMES_MS = 60_000

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self._mounted: list[Path] = []

    @classmethod
    def why_not(cls) -> str | None:
        if shutil.which("mount") is None or os.geteuid() != 0:
            return "needs root and mount for a small tmpfs"
        return None

    def make(self) -> Pair:
        master, slave = self.sides()
        pair = Pair(self.folder, self.seed, self.kinds,
                    {**master, "slaveTimeout": 1000, "cleanResourceInterval": 2000},
                    {**slave, "cleanResourceInterval": 2000})
        folders = [broker.store for broker in (pair.master, pair.slave)]
        if self.rng.random() < 0.5:
            folders += [broker.store / "consumequeue" for broker in (pair.master, pair.slave)]
        for folder in folders:
            folder.mkdir(parents=True)
            network.run("mount", "-t", "tmpfs", "-o", f"size={self._SIZE}", "faults", str(folder))
            self._mounted.append(folder)
        return pair

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        folder = rng.choice(self._mounted)
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 30), BOOT_MS)
        ballast = folder / "ballast"
        left = self._fill(ballast, rng.randint(0, 64 << 10))
        try:
            time.sleep(rng.uniform(0.3, 2))
            pair.check_copy(pair.slave)
            pair.check_copy(pair.master)
        finally:
            ballast.unlink()
        pair.senders.wait_for_more(1, self._RESUMES_MS)
        return f"{left} bytes left for {folder.relative_to(self.folder)}: {pair.settle()}"

    @staticmethod
    def _fill(ballast: Path, leave: int) -> int:
        """Take all space but about `leave` bytes; what is really left."""
        with open(ballast, "wb") as file:
            while (space := _free_bytes(ballast.parent)) > leave:
                try:
                    os.posix_fallocate(file.fileno(), 0, space - leave)
                    break
                except OSError as error:  # the brokers take space at the same time
                    if error.errno != errno.ENOSPC:
                        raise
        return _free_bytes(ballast.parent)

    def close(self) -> None:
        super().close()
        while self._mounted:
            network.run("umount", str(self._mounted.pop()))
