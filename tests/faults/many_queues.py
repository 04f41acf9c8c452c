"""kill -9 under load over thousands of queues, round after round.

The brokers are a SYNC_MASTER and its slave, with the original's default file sizes. In each round senders send to all
queues in turn; then the master, the slave or both are killed and restarted. The messages acknowledged since the
previous round are pulled from the master, and at the end all messages from both. Then the brokers stop, and an oracle
that knows only the formats compares the logs and queues of both, and the queues with the log. On a failure the exit
code is 1, and the stores are kept.

    python -m tests.faults.many_queues --rounds 20 --topics 1000 --queues 8 --seed 1
"""
import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.faults.pair import BOOT_MS
from tests.faults.pair_broker import Broker
from tests.support import store_compare
from tests.support.load import Sent, TopicLoad
from tests.support.nodes import NamesrvNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

KILLED = {"master": 3, "slave": 1, "both": 1}  # relative frequencies
_STOP_S = 120
_SUCCESS = 0
_EQUAL_MS = 120_000
_SETTINGS = {"mappedFileSizeCommitLog": 64 << 20, "maxHashSlotNum": 100_000, "maxIndexNum": 400_000,
             "autoCreateTopicEnable": "false", "haSendHeartbeatInterval": 300, "slaveTimeout": 3000}


class ManyTopics(TopicLoad):
    """Senders that send to `topics` topics of `each` queues in turn."""

    def __init__(self, address: str, topics: int, each: int) -> None:
        super().__init__(address, "Many", topics * each)
        self._each = each

    def place(self, queue: int) -> tuple[str, int]:
        """Return topic and queue id of one of `queues`."""
        number, queue_id = divmod(queue, self._each)
        return f"{self.topic}_{number:05d}", queue_id


class ManyQueues:
    """A pair of brokers in `folder` with `topics` topics, and the rounds with it."""

    def __init__(self, folder: Path, topics: int, queues: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self._namesrv = NamesrvNode("rmqha", folder / "namesrv")
        common = {**_SETTINGS, "namesrvAddr": self._namesrv.address}
        self.master = Broker("rmqha", folder / "master", "master", **{**common, "brokerRole": "SYNC_MASTER"})
        self.slave = Broker("rmqha", folder / "slave", "slave", **{
            **common, "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": self.master.ha_address})
        self.load = ManyTopics(self.master.address, topics, queues)
        self.killed: Counter[str] = Counter()
        # The seconds of each start after a kill.
        self.boots: list[float] = []
        self._topics, self._queues = topics, queues
        self._checked = 0  # of `load.acknowledged`

    def __enter__(self) -> "ManyQueues":
        self._namesrv.start(BOOT_MS)
        self.master.start(BOOT_MS)
        with RawClient(self.master.address) as client:
            for number in range(self._topics):
                client.create_topic(self.load.place(number * self._queues)[0], self._queues)
        self.slave.start(BOOT_MS)
        self.load.__enter__()
        self.load.wait_for_more(self.load.queues)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.load.__exit__()
        for server in (self.slave, self.master, self._namesrv):
            server.kill()

    def run(self) -> str:
        """Run one round and describe it. Raise AssertionError if something does not hold."""
        who = self._rng.choices(list(KILLED), list(KILLED.values()))[0]
        self.load.wait_for_more(self._rng.randint(self.load.queues // 2, 2 * self.load.queues))
        brokers = [broker for broker in (self.master, self.slave) if who in ("both", broker.base_name)]
        for broker in brokers:
            broker.kill()
        for broker in brokers:
            begin = time.monotonic()
            broker.start(BOOT_MS)
            self.boots.append(time.monotonic() - begin)
        self.killed[who] += 1
        self.load.wait_for_more(1000)
        self.load.pause()
        self.master.wait_until_dispatched()
        sent = self.load.acknowledged[self._checked:]
        self.check(self.master, sent)
        self._checked += len(sent)
        self.load.go()
        return (f"{who} killed, ready in {max(self.boots[-len(brokers):]):.1f} s; {len(sent)} acknowledged messages to "
                f"{len({one.queue_id for one in sent})} queues are there")

    def end(self) -> int:
        """Assert that both are equal and have every acknowledged message; return the number of units in the queues."""
        self.load.pause()
        wait_until(lambda: self.slave.log_end() == self.master.log_end(), _EQUAL_MS, "the slave has the whole log")
        for broker in (self.master, self.slave):
            broker.wait_until_dispatched(_EQUAL_MS)
            self.check(broker, self.load.acknowledged)
            broker.stop(_STOP_S)
        store_compare.compare_commit_logs(self.master.commit_log, self.slave.commit_log)
        store_compare.check_consume_queues(self.master.store)
        return store_compare.compare_consume_queues(self.master.store, self.slave.store)

    def check(self, broker: Broker, expected: Iterable[Sent]) -> None:
        """Assert that a consumer gets each message from its queue at its offset."""
        by_queue: dict[int, dict[int, bytes]] = defaultdict(dict)
        for sent in expected:
            assert sent.queue_offset not in by_queue[sent.queue_id], f"an offset was given twice: {sent}"
            by_queue[sent.queue_id][sent.queue_offset] = sent.body
        wrong = []
        with RawClient(broker.address) as client:
            for queue, bodies in by_queue.items():
                found = self._read(client, *self.load.place(queue), min(bodies), max(bodies))
                wrong += [(self.load.place(queue), offset, body, found.get(offset)) for offset, body in bodies.items()
                          if found.get(offset) != body]
        assert not wrong, f"{len(wrong)} acknowledged messages can't be read from the {broker.base_name}: {wrong[:3]}"

    @staticmethod
    def _read(client: RawClient, topic: str, queue_id: int, begin: int, last: int) -> dict[int, bytes]:
        """Return the bodies that a consumer gets, by queue offset."""
        found: dict[int, bytes] = {}
        while begin <= last and (answer := client.pull(topic, queue_id, begin)).code == _SUCCESS:
            found |= {record.queue_offset: record.body for record in store_compare.records_in(answer.body)}
            begin = max(found) + 1
        return found


def main() -> int:
    """Run, and print a line per round; the exit code shows whether everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.many_queues", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=8, help="of each topic")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="many-queues-", dir=memory if memory.is_dir() else None))
    begin, number = time.monotonic(), 0
    with ManyQueues(folder, options.topics, options.queues, options.seed) as life:
        try:
            for number in range(1, options.rounds + 1):
                print(f"round {number}: {life.run()}", flush=True)
            units = life.end()
        except AssertionError as failure:
            print(f"round {number} FAILED: {failure}; the stores: {folder}", flush=True)
            return 1
    print(f"{options.rounds} rounds hold with {life.load.queues:,} queues, {time.monotonic() - begin:.0f} s, seed "
          f"{options.seed}: {len(life.load.acknowledged):,} messages acknowledged and readable on master and slave, "
          f"which are equal, {units:,} units; killed: "
          + ", ".join(f"{who} {count} times" for who, count in sorted(life.killed.items()))
          + f"; ready again in {min(life.boots):.1f} to {max(life.boots):.1f} s")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
