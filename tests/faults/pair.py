"""A master and its slave under load: how they are started, and held against what was acknowledged."""
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

from tests.faults import last_word, verdict
from tests.faults.drawn_messages import KIB, Drawing
from tests.faults.log_copy import LogCopy
from tests.faults.offsets import Commits
from tests.faults.pair_broker import Broker
from tests.faults.senders import QUEUES, TOPICS, Senders
from tests.faults.verdict import Violation
from tests.support.nodes import NamesrvNode

# Small files, so that a cycle rolls some of them; quick heartbeats, so that a cut is seen soon.
SMALL = {
    "mappedFileSizeCommitLog": 256 * KIB, "mappedFileSizeConsumeQueue": 100 * 20, "maxHashSlotNum": 150,
    "maxIndexNum": 600, "maxMessageSize": 128 * KIB, "haSendHeartbeatInterval": 300, "haHousekeepingInterval": 3000,
    "slaveTimeout": 3000, "syncFlushTimeout": 5000, "flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": QUEUES,
    "flushConsumerOffsetInterval": 1000, "fileReservedTime": 720, "cleanFileForciblyEnable": "false",
    "slaveReadEnable": "true",
}
# Of the commit log, and the largest body: half of the lives roll their files often, half of them have the largest ones.
_FILE_SIZES = ((256 * KIB, 128 * KIB), (256 * KIB, 128 * KIB), (2048 * KIB, 1024 * KIB), (16384 * KIB, 4096 * KIB))
BOOT_MS = 120_000


def some_file_sizes(seed: str) -> dict[str, object]:
    """Properties of both brokers of one life."""
    file_size, largest = random.Random(f"files {seed}").choice(_FILE_SIZES)
    return {"mappedFileSizeCommitLog": file_size, "maxMessageSize": largest}


class Pair:
    """SYNC_MASTER with SYNC_FLUSH and one slave, in `folder`; `senders` send to the master, `commits` commit to it.

    `namesrv`: with a name server, so that the slave finds its master's tables.
    Options of each side: properties, and `prefix`, `env`, `plants` of Broker. Bodies are of up to the master's
    maxMessageSize; all of `fixed_size` bytes, if that is given.
    """

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, str] = ("rmqha", "rmqha"),
                 master: dict | None = None, slave: dict | None = None, namesrv: bool = False,
                 fixed_size: int | None = None, **senders: object):
        self.folder = folder
        self.namesrv = NamesrvNode("rmqha", folder / "namesrv") if namesrv else None
        registered = {"namesrvAddr": self.namesrv.address} if namesrv else {}
        self.master = Broker(kinds[0], folder / "master", "master",
                             **{"brokerRole": "SYNC_MASTER", **SMALL, **registered, **(master or {})})
        self.slave = Broker(kinds[1], folder / "slave", "slave",
                            **{"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": self.master.ha_address, **SMALL,
                               **registered, **(slave or {})})
        self.copies = {broker.base_name: LogCopy(broker.commit_log) for broker in (self.master, self.slave)}
        # calls something where the slave's ports can be reached
        self.near_slave: Callable[[Callable[[], tuple[int, int]]], tuple[int, int]] = lambda action: action()
        self._seed = seed
        largest = int(self.master.properties["maxMessageSize"])
        self._senders_options = {"drawing": Drawing(largest, fixed_size=fixed_size), **senders}
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
        self.give_topics(self.slave)
        self.slave.start(BOOT_MS)
        self.commits = Commits(master_address, self.master, self.slave, self._seed)
        self.commits.go()
        self.senders = Senders(master_address, f"s{self._seed}", self._seed,
                               self.folder / "acknowledged.jsonl", **self._senders_options)
        self.senders.go()
        self.senders.wait_for_more(20, BOOT_MS)
        return self

    def end(self) -> str:
        """The last word on a life that went well, see last_word.py; what it was about."""
        self.copies = {broker.base_name: LogCopy(broker.commit_log) for broker in (self.master, self.slave)}
        told = self.settle()
        by_offset, by_queue = self.near_slave(self._read_from_slave)
        for broker in (self.master, self.slave):
            if broker not in self.flawed_queues:
                last_word.check_store(broker)
        return f"{told}; {by_offset} read from the slave by offset, {by_queue} by queue; both stores are clean"

    def _read_from_slave(self) -> tuple[int, int]:
        slave, copy = self.slave, self.copies["slave"]
        wanted = [(name, placed) for name, placed in self.senders.snapshot().items() if placed.offset >= copy.begin]
        return (last_word.check_by_offset(slave.address, "slave", wanted),
                0 if self.flawed_queues else last_word.check_by_queue(slave.address, "slave", copy))

    @staticmethod
    def give_topics(broker: Broker) -> None:
        """The topics to a slave that may have no name server to find its master by: consumers read from it."""
        table = {topic: {"order": False, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
                         "topicName": topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0} for topic in TOPICS}
        config = broker.store / "config"
        config.mkdir(parents=True, exist_ok=True)
        with open(config / "topics.json", "w", encoding="ascii") as file:
            json.dump({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}, file)
            file.flush()
            os.fsync(file.fileno())  # the next loss of power takes what is not forced

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
        begin, end = verdict.check_equal(self.master, self.slave, self.copies)
        acknowledged = self.senders.snapshot()
        for broker in (self.master, self.slave):
            verdict.check_acknowledged(broker, self.copies[broker.base_name], acknowledged, limit=end)
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
            verdict.check_queues(broker, self.copies[broker.base_name])
        except Violation as violation:
            by_original = broker.kind != "rmqha" or (
                isinstance(violation, verdict.Repeat) and self.master in self.flawed_queues)
            if not by_original or not self.original_may_lose_units:
                raise
            self.flawed_queues.append(broker)

    def check_copy(self, broker: Broker) -> None:
        """Each message that is acknowledged by now is in this broker's log, whatever the state of the other one."""
        verdict.check_acknowledged(broker, self.copies[broker.base_name], self.senders.snapshot())
        self.commits.look()
