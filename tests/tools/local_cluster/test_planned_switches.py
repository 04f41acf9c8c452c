"""`ha switch` again and again while 16 producers send: nothing is lost, and all go on.

Five times; 100 times in the tier `long`.
"""
import threading
from collections import Counter

import pytest

from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.local_cluster.layout import load
from rmqha.tools.local_cluster.processes import find
from rmqha.tools.messages.consume import EARLIEST, Position, QueueFeed
from rmqha.tools.messages.produce import new_consumer, read_queues
from rmqha.tools.replication.switch import switch
from tests.support import tiers
from tests.support.wait import wait_until
from tests.tools.local_cluster.support import rmqha

TOPIC, PRODUCERS = "Switched", 16
SWITCHES = tiers.pick(5, long=100)


class Load:
    """Producers; each sends a message again until it is acknowledged."""

    def __init__(self, namesrv):
        self.producer = DefaultMQProducer("makers", namesrv)
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(PRODUCERS)]

    def __enter__(self):
        self.producer.start()
        self.producer.admin.create_topic("TBW102", TOPIC, 4)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.producer.shutdown()

    def wait_for_all(self):
        """Until each producer has had ten more acknowledgements."""
        begin = len(self.acknowledged)

        def has_each_ten():
            counts = Counter(key.partition("-")[0] for key in self.acknowledged[begin:])
            return len(counts) == PRODUCERS and min(counts.values()) >= 10
        wait_until(has_each_ten, 240_000, "every producer goes on")

    def _run(self, number):
        count = 0
        while not self._stop.is_set():
            key = f"{number}-{count}"
            try:
                sent = self.producer.send(Message(TOPIC, b"x" * 100, keys=key), 3_000).send_status is SendStatus.SEND_OK
            except CLIENT_ERRORS:
                sent = False
            if sent:
                self.acknowledged.append(key)
                count += 1


@pytest.fixture
def layout(tmp_path):
    """One broker name with three replicas."""
    rmqha(tmp_path, "up", "--wait", "--masters", 1, "--slaves", 2, "--auto-failover")
    yield load(tmp_path / "rmqha" / "default")
    for node in load(tmp_path / "rmqha" / "default").nodes:
        if (process := find(node)) is not None:
            process.kill()


def stored(namesrv):
    keys = []
    with new_consumer(namesrv) as consumer:
        feed = QueueFeed(consumer, MessageSelector.by_tag("*"))
        for queue in read_queues(consumer, TOPIC):
            feed.open(queue, Position(word=EARLIEST).offset_of(consumer, queue))
        for batch in feed.batches(1.0):
            keys += [message.keys for message in batch.messages]
    return keys


@pytest.mark.timeout(60 + 3 * SWITCHES)
def test_planned_switches_lose_nothing_and_producers_go_on(layout):
    namesrv, replicas = layout.namesrv.address, [node.address for node in layout.replicas]
    with Load(namesrv) as sending, ClusterAdmin(namesrv) as admin:
        for number in range(SWITCHES):
            sending.wait_for_all()
            switch(admin, replicas[(number + 1) % len(replicas)], [], 30, lambda _line: None)
        sending.wait_for_all()
    keys = stored(namesrv)
    assert set(sending.acknowledged) <= set(keys)
    assert len(keys) - len(set(keys)) <= PRODUCERS * SWITCHES  # sent again because their acknowledgement did not come
