"""docs/how-to/automatic-failover.md: from a pair of 4.9 to replicas of rmqha under a controller, and back to Java.

A producer sends all the time, and every message that got SEND_OK must exist at the end. The config files are edited as
the page describes, and keep the lines that brokers have written into them.
"""
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from rmqha.tools.messages.consume import QueueFeed
from rmqha.tools.messages.positions import EARLIEST, Position
from rmqha.tools.messages.produce import new_consumer, read_queues
from rmqha.tools.rmqha_command import rmqha
from tests.support.guide import Section, keys_to_remove, keys_to_set, remove_keys, set_lines
from tests.support.mqadmin import rmqha_tool
from tests.support.nodes import BrokerNode, ControllerNode, NamesrvNode, sync_state
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

PAGE, NAME, TOPIC = "how-to/automatic-failover.md", "broker-a", "Orders"
WAIT_MS = 90_000


class Sending:
    """A producer that sends without a pause, and retries each message until it is acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self._producer = DefaultMQProducer("makers", namesrv)
        self._producer.poll_name_server_interval = 1_000
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._run, name="sending")

    def start(self) -> None:
        self._producer.start()
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                result = self._producer.send(Message(TOPIC, b"x" * 200, keys=str(number)), 2_000)
                if result.send_status is SendStatus.SEND_OK:
                    self.acknowledged.append(str(number))
            except CLIENT_ERRORS:
                self._stop.wait(0.1)
            self._stop.wait(0.01)

    def goes_on(self) -> None:
        """Wait until more messages are acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before + 20, WAIT_MS, "sends are acknowledged")

    def end(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        self._producer.shutdown()
        return self.acknowledged


def command(*args: str) -> str:
    """Run `rmqha`, and return its output."""
    result = CliRunner().invoke(rmqha, list(args))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def make(nodes: list, tmp_path: Path) -> Callable[..., BrokerNode]:
    """Return a function that makes brokers with folders below tmp_path."""
    def made(kind: str, name: str, namesrv: str, **properties: object) -> BrokerNode:
        nodes.append(BrokerNode(kind, tmp_path / name, namesrv, name, **properties))
        return nodes[-1]
    return made


def test_java_pair_moves_to_automatic_failover_and_back(make, nodes, tmp_path):
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    one = make("java", "one", namesrv.address)
    two = make("java", "two", namesrv.address, brokerId=1, brokerRole="SLAVE")
    one.start()
    rmqha_tool(["updateTopic", "-n", namesrv.address, "-b", one.address, "-t", TOPIC, "-r", "2", "-w", "2"])
    two.start()
    one.wait_for_slave(WAIT_MS)
    sending = Sending(namesrv.address)
    sending.start()
    try:
        sending.goes_on()
        for broker in (two, one):  # 1. rmqha, the slave first
            broker.stop()
            broker.become("rmqha", keep_file=True).start()
            sending.goes_on()
        one.wait_for_slave(WAIT_MS)
        three = forth(make, nodes, tmp_path, namesrv, one, two, sending)
        back(namesrv, one, two, three, sending)
    finally:
        acknowledged = sending.end()
    wait_until(lambda: read_keys(namesrv.address) >= set(acknowledged), WAIT_MS, "every acknowledged message")
    wait_until(lambda: same_log(one, two), WAIT_MS, "the slave has all, byte for byte")


def forth(make, nodes: list, folder: Path, namesrv: NamesrvNode, one: BrokerNode, two: BrokerNode,
          sending: Sending) -> BrokerNode:
    """Follow steps 2 to 5, and return the third broker."""
    controller = ControllerNode("rmqha", folder / "controller")  # 2.
    nodes.append(controller)
    controller.start()

    def in_sync() -> int:
        state = sync_state([controller.address], NAME)
        return len(state["inSyncReplicas"]) if state else 0

    def edit(broker: BrokerNode, step: str) -> None:
        lines = Section(PAGE, step).settings().replace("10.0.0.1:9878", controller.address)
        set_lines(broker.config_file, lines.replace("/data/", f"{broker.folder}/data/"))
    one.stop()  # 3.
    edit(one, "3. Give the master to the controller")
    one.start()
    sending.goes_on()
    assert in_sync() == 1
    three = make("rmqha", "three", namesrv.address)  # 4.
    for number, broker in ((2, three), (3, two)):
        broker.stop()
        edit(broker, "4. Bring the other replicas, one at a time")
        broker.start()
        wait_until(lambda wanted=number: in_sync() == wanted, WAIT_MS, f"{number} replicas in sync")
    two.store = two.folder / "data" / "replica"
    for broker in (one, two, three):
        rmqha_tool(["updateBrokerConfig", "-n", namesrv.address, "-b", broker.address, "-k", "minInSyncReplicas", "-v",
                    "2"])
    sending.goes_on()
    assert command("check", "ha", "-n", namesrv.address).startswith("HA OK")  # 5.
    for broker in (three, one):
        assert "is the master of epoch" in command("ha", "switch", broker.address)
        sending.goes_on()
    return three


def back(namesrv: NamesrvNode, one: BrokerNode, two: BrokerNode, three: BrokerNode, sending: Sending) -> None:
    """Undo the steps, and return to Java."""
    section = Section(PAGE, "How to undo it")
    three.stop()
    two.stop()
    one.stop()
    for broker, step in ((one, 2), (two, 4)):
        remove_keys(broker.config_file, keys_to_remove(section.step(2)))
        set_lines(broker.config_file, keys_to_set(section.step(step)))
    for kind in ("rmqha", "java"):
        for broker in (one, two):
            if broker.is_alive:
                broker.stop()
            broker.become(kind, keep_file=True).start()
            sending.goes_on()
        one.wait_for_slave(WAIT_MS)
    assert namesrv.is_alive


def read_keys(namesrv: str) -> set[str]:
    """Return the keys of all stored messages."""
    keys: set[str] = set()
    with new_consumer(namesrv) as consumer:
        feed = QueueFeed(consumer, MessageSelector.by_tag("*"))
        for queue in read_queues(consumer, TOPIC):
            feed.open(queue, Position(word=EARLIEST).offset_of(consumer, queue))
        for batch in feed.batches(1.0):
            keys.update(message.keys or "" for message in batch.messages)
    return keys


def same_log(one: BrokerNode, two: BrokerNode) -> bool:
    """Return whether both logs have the same bytes. The next file may already exist, empty."""
    logs = [b"".join(path.read_bytes() for path in sorted(broker.commit_log.iterdir())).rstrip(b"\0")
            for broker in (one, two)]
    return logs[0] == logs[1]
