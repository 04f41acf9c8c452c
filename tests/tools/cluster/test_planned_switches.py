"""`ha switch` again and again while 16 producers send: nothing is lost, nobody is refused for long.

Five times; 100 times with RMQHA_LONG_TESTS=1.
"""
import os
import threading
import time

import pytest

from rmqha.client.consumer.message_selector import MessageSelector
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.send_result import SendStatus
from rmqha.common.message.message import Message
from rmqha.tools.cluster.cluster_folder import load
from rmqha.tools.cluster.processes import find
from rmqha.tools.dialect.errors import CLIENT_ERRORS
from rmqha.tools.ha.broker_admin import BrokerAdmin
from rmqha.tools.ha.switch import switch
from rmqha.tools.messages.clients import new_consumer, read_queues
from rmqha.tools.messages.positions import EARLIEST, Position
from rmqha.tools.messages.queue_feed import QueueFeed
from tests.tools.cluster.support import rmqha

TOPIC, PRODUCERS = "Switched", 16
IS_LONG = os.environ.get("RMQHA_LONG_TESTS") == "1"
SWITCHES = 100 if IS_LONG else 5
LONGEST_REFUSAL_S = 1.0 if IS_LONG else 10.0  # the long one has the machine to itself


class Load:
    """Producers; each sends a message again until it is acknowledged, and notes for how long it was not."""

    def __init__(self, namesrv):
        self.producer = DefaultMQProducer("makers", namesrv)
        self.acknowledged, self.refused_s = [], []
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

    def _run(self, number):
        count, since = 0, None
        while not self._stop.is_set():
            key = f"{number}-{count}"
            try:
                sent = self.producer.send(Message(TOPIC, b"x" * 100, keys=key), 3_000).send_status is SendStatus.SEND_OK
            except CLIENT_ERRORS:
                sent = False
            if sent:
                self.acknowledged.append(key)
                self.refused_s.append(time.monotonic() - since if since else 0.0)
                count, since = count + 1, None
            else:
                since = since or time.monotonic()
            time.sleep(0.01)


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
def test_planned_switches_lose_nothing_and_refuse_nobody_for_long(layout):
    namesrv, replicas = layout.namesrv.address, [node.address for node in layout.replicas]
    seconds = []
    with Load(namesrv) as sending, BrokerAdmin(namesrv) as admin:
        time.sleep(0.5)
        for number in range(SWITCHES):
            done = switch(admin, replicas[(number + 1) % len(replicas)], [], 30, lambda _line: None)
            seconds.append(done.seconds)
            time.sleep(0.3)
    keys = stored(namesrv)
    assert set(sending.acknowledged) <= set(keys) and len(sending.acknowledged) > 100 * SWITCHES
    assert max(sending.refused_s) < LONGEST_REFUSAL_S and max(seconds) < LONGEST_REFUSAL_S
    assert len(keys) - len(set(keys)) <= PRODUCERS * SWITCHES  # sent again because their acknowledgement did not come
