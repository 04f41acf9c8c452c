"""A master and its slave under load: how they are started, and held against what was acknowledged."""
from pathlib import Path

from tests.faults import verdict
from tests.faults.offsets import Commits
from tests.faults.pair_broker import Broker
from tests.faults.senders import Senders
from tests.faults.verdict import Violation
from tests.support.nodes import NamesrvNode

KIB = 1024
# Small files, so that a cycle rolls some of them; quick heartbeats, so that a cut is seen soon.
SMALL = {
    "mappedFileSizeCommitLog": 256 * KIB, "mappedFileSizeConsumeQueue": 100 * 20, "maxHashSlotNum": 150,
    "maxIndexNum": 600, "maxMessageSize": 128 * KIB, "haSendHeartbeatInterval": 300, "haHousekeepingInterval": 3000,
    "slaveTimeout": 3000, "syncFlushTimeout": 5000, "flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": 4,
    "flushConsumerOffsetInterval": 1000, "fileReservedTime": 720, "cleanFileForciblyEnable": "false",
}
BOOT_MS = 120_000


class Pair:
    """SYNC_MASTER with SYNC_FLUSH and one slave, in `folder`; `senders` send to the master, `commits` commit to it.

    `namesrv`: with a name server, so that the slave finds its master's tables.
    `options` of each side: properties, and `prefix`, `env`, `plants` of Broker.
    """

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, str] = ("rmqha", "rmqha"),
                 master: dict | None = None, slave: dict | None = None, namesrv: bool = False, **senders: object):
        self.folder = folder
        self.namesrv = NamesrvNode("rmqha", folder / "namesrv") if namesrv else None
        registered = {"namesrvAddr": self.namesrv.address} if namesrv else {}
        self.master = Broker(kinds[0], folder / "master", "master",
                             **{"brokerRole": "SYNC_MASTER", **SMALL, **registered, **(master or {})})
        self.slave = Broker(kinds[1], folder / "slave", "slave",
                            **{"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": self.master.ha_address, **SMALL,
                               **registered, **(slave or {})})
        self._seed = seed
        self._senders_options = senders
        self.senders: Senders | None = None
        self.commits: Commits | None = None
        # After a loss of power the original believes a checkpoint that is ahead of its queues, and goes on where they
        # end: it gives indices again, and its slave has both messages. Not ours to mend.
        self.original_may_lose_units = False
        self.flawed_queues: list[Broker] = []

    def open(self, master_address: str) -> "Pair":
        """Start both, and send until the slave has a first message."""
        if self.namesrv is not None:
            self.namesrv.start(BOOT_MS)
        self.master.start(BOOT_MS)
        self.slave.start(BOOT_MS)
        self.commits = Commits(master_address, self.master, self.slave, self._seed)
        self.commits.go()
        self.senders = Senders(master_address, f"s{self._seed}", self._seed,
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
        if self.namesrv is not None:
            self.namesrv.kill()
        if self.senders is not None:
            self.senders.close()
        if self.commits is not None:
            self.commits.close()

    def settle(self) -> str:
        """Pause the senders, wait until the slave has all, and hold everything against what was acknowledged."""
        self.senders.pause()
        for broker in (self.master, self.slave):
            if not broker.is_alive:
                raise Violation(f"{broker.name} has ended by itself: {broker.tail()[-2000:]}")
        begin, end = verdict.check_equal(self.master, self.slave)
        acknowledged = self.senders.snapshot()
        for broker in (self.master, self.slave):
            verdict.check_acknowledged(broker, acknowledged)
            self._check_queues(broker)
        if self.senders.unanswered:
            raise Violation(f"E: {self.senders.unanswered[:3]}")
        self.commits.pause()
        self.commits.check()
        self.commits.go()
        return f"acknowledged {len(acknowledged)} maybe {self.senders.maybe} log {begin}..{end}"

    def _check_queues(self, broker: Broker) -> None:
        if broker in self.flawed_queues:
            return
        try:
            verdict.check_queues(broker)
        except Violation as violation:
            by_original = broker.kind != "rmqha" or (
                isinstance(violation, verdict.Repeat) and self.master in self.flawed_queues)
            if not by_original or not self.original_may_lose_units:
                raise
            self.flawed_queues.append(broker)

    def check_copy(self, broker: Broker) -> None:
        """Each message that is acknowledged by now is in this broker's log, whatever the state of the other one."""
        verdict.check_acknowledged(broker, self.senders.snapshot())
        self.commits.look()
