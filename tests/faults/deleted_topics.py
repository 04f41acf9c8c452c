"""A topic is deleted and created again under eight senders, round after round, with restarts and kills of both brokers.

The brokers are a SYNC_MASTER and its slave. After each round, every acknowledged message of the topic's last generation
is at its place, the offsets of each queue are 0 to n-1, and the slave's queues have the same units. After some rounds,
and at the end, a consumer reads the same messages from the slave, which has no other queues than its master. Otherwise
the exit code is 1, and the stores are kept.

    python -m tests.faults.deleted_topics --rounds 200 --seed 1
"""
import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.faults.pair import BOOT_MS, SMALL
from tests.faults.pair_broker import Broker
from tests.support import store_compare
from tests.support.load import TopicLoad
from tests.support.nodes import NamesrvNode
from tests.support.raw_remoting import Answer, RawClient
from tests.support.wait import wait_until

TOPIC = "Again"
DELETE_TOPIC, MOST_QUEUES = 215, 8
_SUCCESS, _TOPIC_NOT_EXIST, _PULL_NOT_FOUND = 0, 17, 19
# The slave copies its master's topics every 10 s.
_SYNC_MS = 60_000

# The events of a round, and the brokers that they happen to. The seed determines how often.
FAULTS = {"nothing": 6, "stop master": 2, "kill master": 3, "stop slave": 2, "kill slave": 3, "stop both": 1,
          "kill both": 2, "kill master while it deletes": 3}
MOMENTS = ("before the deletion", "when the topic is gone", "when it is there again")


class DeletedTopics:
    """A pair of brokers in `folder`, and the rounds with it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._namesrv = NamesrvNode("rmqha", folder / "namesrv")
        common = {**SMALL, "namesrvAddr": self._namesrv.address, "autoCreateTopicEnable": "false"}
        self.master = Broker("rmqha", folder / "master", "master", **{**common, "brokerRole": "SYNC_MASTER"})
        self.slave = Broker("rmqha", folder / "slave", "slave", **{
            **common, "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": self.master.ha_address})
        self.load = TopicLoad(self.master.address, TOPIC, 4)
        self.faults: Counter[str] = Counter()
        # `checked`: acknowledged messages of the last generation of each round.
        self.rounds = self.checked = 0

    def __enter__(self) -> "DeletedTopics":
        self._namesrv.start(BOOT_MS)
        self.master.start(BOOT_MS)
        self.slave.start(BOOT_MS)
        self._create()
        self.load.__enter__()
        self.load.wait_for_more(100)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.load.__exit__()
        for server in (self.slave, self.master, self._namesrv):
            server.kill()

    def run(self, deep: bool) -> str:
        """Run one round and describe it. Raise AssertionError if something does not hold."""
        fault = self._rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        moment = self._rng.choice(MOMENTS)
        self.rounds += 1
        self.faults[fault] += 1
        self.load.wait_for_more(self._rng.randint(20, 400))
        if fault == "kill master while it deletes":
            self._kill_while_it_deletes()
            moment = "after up to 60 ms"
        elif moment == MOMENTS[0]:
            self._do(fault)
        self._delete()
        if moment == MOMENTS[1]:
            self._do(fault)
        self._create()
        self.load.generation += 1
        if moment == MOMENTS[2]:
            self.load.wait_for_more(self._rng.randint(20, 200))
            self._do(fault)
        self.load.wait_for_more(200)
        self.load.pause()
        self._check(deep)
        self.load.go()
        return f"{fault}, {moment}; {self.load.queues} queues, {len(self.load.acknowledged)} acknowledged"

    # Events.

    def _do(self, fault: str) -> None:
        how, _, who = fault.partition(" ")
        brokers = {"master": [self.master], "slave": [self.slave], "both": [self.master, self.slave]}.get(who, [])
        for broker in brokers:
            _ = broker.stop() if how == "stop" else broker.kill()
        for broker in brokers:
            broker.start(BOOT_MS)

    def _kill_while_it_deletes(self) -> None:
        deleting = threading.Thread(target=self._try_to_delete)
        deleting.start()
        time.sleep(self._rng.random() * 0.06)
        self.master.kill()
        deleting.join()
        self.master.start(BOOT_MS)

    def _try_to_delete(self) -> None:
        try:
            self._ask(DELETE_TOPIC, topic=TOPIC)
        except (OSError, EOFError):
            return  # killed before it could answer

    def _delete(self) -> None:
        answer = self._ask(DELETE_TOPIC, topic=TOPIC)
        assert answer.code == _SUCCESS, answer

    def _create(self) -> None:
        queues = self._rng.randint(1, MOST_QUEUES)
        with RawClient(self.master.address) as client:
            client.create_topic(TOPIC, queues)
        self.load.queues = queues

    def _ask(self, code: int, **fields: object) -> Answer:
        with RawClient(self.master.address) as client:
            return client.request(code, **fields)

    # Invariants.

    def _check(self, deep: bool) -> None:
        self.master.wait_until_dispatched()
        queues = read_queues(self.master)
        expected = self.load.of_generation(self.load.generation)
        self.checked += len(expected)
        wrong = [sent for sent in expected
                 if queues.get(sent.queue_id, [])[sent.queue_offset:sent.queue_offset + 1] != [sent.body]]
        assert not wrong, f"{len(wrong)} of {len(expected)} acknowledged messages are not there, as {wrong[:3]}"
        read = [body for bodies in queues.values() for body in bodies]
        assert len(set(read)) == len(read), "messages are there twice"
        ours = units(self.master)
        assert {queue_id: len(bodies) for queue_id, bodies in queues.items() if bodies} == \
            {queue_id: len(own) for queue_id, own in ours.items()}
        wait_until(lambda: self._is_slave_equal(ours), _SYNC_MS, "the same units on the slave")
        if deep:
            wait_until(lambda: units_now(self.slave) == ours, _SYNC_MS, "no old queues on the slave")
            wait_until(lambda: self._can_read_from_slave(), _SYNC_MS, "the topic on the slave")
            assert read_queues(self.slave) == queues, "a consumer reads other messages from the slave"

    def _is_slave_equal(self, ours: dict[int, list]) -> bool:
        theirs = units_now(self.slave)
        return theirs is not None and all(theirs.get(queue_id) == own for queue_id, own in ours.items())

    def _can_read_from_slave(self) -> bool:
        with RawClient(self.slave.address) as client:
            last = client.pull(TOPIC, self.load.queues - 1, 0).code
            return last in (_SUCCESS, _PULL_NOT_FOUND) and \
                client.pull(TOPIC, self.load.queues, 0).code not in (_SUCCESS, _PULL_NOT_FOUND)


def units(broker: Broker) -> dict[int, list]:
    """Return (index, unit) of all units in the files of each queue of the topic that is not empty."""
    return {queue_id: list(store_compare.units(folder))
            for (topic, queue_id), folder in store_compare.queues_on_disk(broker.store).items() if topic == TOPIC}


def units_now(broker: Broker) -> dict[int, list] | None:
    """Return the units while queues may be deleted; None if one was."""
    try:
        return units(broker)
    except FileNotFoundError:
        return None


def read_queues(broker: Broker) -> dict[int, list[bytes]]:
    """Return the bodies in each queue of the topic as a consumer gets them, with offsets 0 to n-1."""
    queues: dict[int, list[bytes]] = {}
    with RawClient(broker.address) as client:
        for queue_id in range(MOST_QUEUES):
            found: list[bytes] = []
            while (answer := client.pull(TOPIC, queue_id, len(found))).code == _SUCCESS:
                records = list(store_compare.records_in(answer.body))
                assert [record.queue_offset for record in records] == \
                    list(range(len(found), len(found) + len(records))), f"queue {queue_id} continues at a wrong offset"
                found += [record.body for record in records]
            if answer.code != _PULL_NOT_FOUND:
                assert not found, answer
                break  # no more queues
            queues[queue_id] = found
    return queues


def main() -> int:
    """Run, and print a line per round; the exit code shows whether everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.deleted_topics", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deep", type=int, default=10, help="each so many rounds the slave is read from, too")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="deleted-topics-", dir=memory if memory.is_dir() else None))
    begin = time.monotonic()
    with DeletedTopics(folder, options.seed) as life:
        for number in range(1, options.rounds + 1):
            try:
                told = life.run(number % options.deep == 0 or number == options.rounds)
            except AssertionError as failure:
                print(f"round {number} FAILED: {failure}; the stores: {folder}", flush=True)
                return 1
            print(f"round {number}: {told}", flush=True)
    print(f"{life.rounds} rounds hold, {time.monotonic() - begin:.0f} s, seed {options.seed}: "
          f"{len(life.load.acknowledged)} messages acknowledged, {life.checked} of them by a last generation and all "
          f"readable on master and slave, {sum(life.load.others.values())} answers that were not acknowledgements; "
          + ", ".join(f"{count} x {fault}" for fault, count in sorted(life.faults.items())))
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
