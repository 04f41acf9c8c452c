"""A master and its slave under load: how they are started, killed and held against what was acknowledged."""
import os
import random
import signal
import sys
from pathlib import Path

import psutil

from tests.faults import verdict
from tests.faults.senders import Senders
from tests.faults.verdict import Violation
from tests.support.nodes import BrokerNode
from tests.support.wait import wait_until

KIB = 1024
# Small files, so that a cycle rolls some of them; quick heartbeats, so that a cut is seen soon.
SMALL = {
    "mappedFileSizeCommitLog": 256 * KIB, "mappedFileSizeConsumeQueue": 100 * 20, "maxHashSlotNum": 500,
    "maxIndexNum": 2000, "maxMessageSize": 128 * KIB, "haSendHeartbeatInterval": 300, "haHousekeepingInterval": 3000,
    "slaveTimeout": 3000, "syncFlushTimeout": 5000, "flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": 4,
    "flushConsumerOffsetInterval": 1000, "fileReservedTime": 720, "cleanFileForciblyEnable": "false",
}
BOOT_MS = 120_000


class Broker(BrokerNode):
    """A broker of either kind. `prefix` goes before its command, `plants` are faults of planted.py (rmqha only)."""

    def __init__(self, kind: str, folder: Path, name: str, prefix: tuple[str, ...] = (),
                 env: dict[str, str] | None = None, plants: tuple[str, ...] = (), **properties: object):
        self._prefix, self._extra_env, self._plants = prefix, env or {}, plants
        super().__init__(kind, folder, None, name, **properties)

    def become(self, kind: str) -> "Broker":
        """As BrokerNode's, with prefix, environment and plants."""
        super().become(kind)
        if self._plants:
            assert kind == "rmqha", "faults are planted in rmqha only"
            self.command = [sys.executable, "-m", "tests.faults.planted", ",".join(self._plants),
                            "-c", str(self.config_file)]
        self.command = [*self._prefix, *self.command]
        self._env.update(self._extra_env)
        return self

    def freeze(self) -> None:
        """SIGSTOP, until the kernel says that all threads stand."""
        process = psutil.Process(self.pid)
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 10_000, f"{self.name} stopped")

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)


class Holdings:
    """Descriptors, but for files of the store, and threads of a broker, taken now: what a fault must not leave behind.

    The JVM makes and ends threads by dozens as it likes; rmqha's pools make theirs on demand.
    """

    def __init__(self, broker: Broker):
        self._broker = broker
        self._spare = {"descriptors": 4, "threads": 60 if broker.kind == "java" else 4}
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        process = psutil.Process(self._broker.pid)
        links = (os.readlink(fd) for fd in Path(f"/proc/{process.pid}/fd").iterdir() if os.path.lexists(fd))
        descriptors = sum(not link.startswith(str(self._broker.folder)) for link in links)
        return {"descriptors": descriptors, "threads": process.num_threads()}

    def __str__(self) -> str:
        return ", ".join(f"{what} {count} -> {self._now()[what]}" for what, count in self._before.items())

    def assert_returned(self, timeout_ms: int = 30_000) -> None:
        """Wait until no more is held than at the beginning, and a few more."""
        def returned() -> bool:
            return all(count <= self._before[what] + self._spare[what] for what, count in self._now().items())
        try:
            wait_until(returned, timeout_ms)
        except AssertionError:
            raise Violation(f"F: {self._broker.name} held {self._before}, and holds {self._now()} now") from None


class Pair:
    """SYNC_MASTER with SYNC_FLUSH and one slave, in `folder`; `senders` send to the master.

    `options` of each side: properties, and `prefix`, `env`, `plants` of Broker.
    """

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, str] = ("rmqha", "rmqha"),
                 master: dict | None = None, slave: dict | None = None, **senders: object):
        self.folder = folder
        self.rng = random.Random(f"pair {seed}")
        self.master = Broker(kinds[0], folder / "master", "master",
                             **{"brokerRole": "SYNC_MASTER", **SMALL, **(master or {})})
        self.slave = Broker(kinds[1], folder / "slave", "slave",
                            **{"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": self.master.ha_address, **SMALL,
                               **(slave or {})})
        self._seed = seed
        self._senders_options = senders
        self.senders: Senders | None = None
        self.units = 0

    def open(self, master_address: str | None = None) -> "Pair":
        """Start both, and send until the slave has a first message."""
        self.master.start(BOOT_MS)
        self.slave.start(BOOT_MS)
        self.senders = Senders(master_address or self.master.address, f"s{self._seed}", self._seed,
                               self.folder / "acknowledged.jsonl", **self._senders_options)
        self.senders.go()
        self.senders.wait_for_more(20, BOOT_MS)
        return self

    def close(self) -> None:
        """Kill all; idempotent."""
        for broker in (self.slave, self.master):
            if broker.is_alive:
                broker.thaw()
            broker.kill()
        if self.senders is not None:
            self.senders.close()

    def settle(self) -> str:
        """Pause the senders, wait until the slave has all, and hold everything against what was acknowledged."""
        self.senders.pause()
        for broker in (self.master, self.slave):
            if not broker.is_alive:
                raise Violation(f"{broker.name} has ended by itself: {broker.tail()[-2000:]}")
        begin, end = verdict.check_equal(self.master.commit_log, self.slave.commit_log)
        acknowledged = self.senders.snapshot()
        for broker in (self.master, self.slave):
            verdict.check_acknowledged(broker.commit_log, acknowledged, broker.base_name)
            self.units = verdict.check_queues(broker.store, broker.base_name)
        if self.senders.unanswered:
            raise Violation(f"E: {self.senders.unanswered[:3]}")
        return f"acknowledged {len(acknowledged)} maybe {self.senders.maybe} log {begin}..{end}"

    def check_copy(self, broker: Broker) -> None:
        """Each message that is acknowledged by now is in this broker's log, whatever the state of the other one."""
        verdict.check_acknowledged(broker.commit_log, self.senders.snapshot(), broker.base_name)
