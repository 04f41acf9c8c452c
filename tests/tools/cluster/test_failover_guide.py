"""docs/how-to/automatic-failover.md from step 2 to the way back, as it stands: its commands, its lines in files.

Boxes of the page are brokers of this host; only addresses and folders are replaced. Files are edited as a person does.
"""
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.send_result import SendStatus
from rmqha.common.java_properties import load
from rmqha.common.message.message import Message
from rmqha.tools.command import mq_admin_startup
from rmqha.tools.dialect.errors import CLIENT_ERRORS
from rmqha.tools.rmqha_command import rmqha
from tests.support.controller_nodes import ControllerNode, sync_state
from tests.support.guide import Section, keys_to_remove, keys_to_set, remove_keys, set_lines
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

PAGE, NAME, TOPIC = "how-to/automatic-failover.md", "broker-a", "Orders"
WAIT_MS = 120_000
pytestmark = pytest.mark.timeout(900)


class Boxes:
    """The four boxes of the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namesrv = NamesrvNode("rmqha", folder / "namesrv").start()
        self.controller = ControllerNode("rmqha", folder / "controller")
        self.brokers = {"10.0.0.2": BrokerNode("rmqha", folder / "two", self.namesrv.address, "broker-a",
                                               brokerClusterName="DefaultCluster")}
        self.brokers["10.0.0.3"] = BrokerNode(
            "rmqha", folder / "three", self.namesrv.address, "broker-a-s", brokerClusterName="DefaultCluster",
            brokerId=1, brokerRole="SLAVE")
        self.brokers["10.0.0.4"] = BrokerNode("rmqha", folder / "four", self.namesrv.address, "broker-a-c",
                                              brokerClusterName="DefaultCluster")
        self._environment = {"NAMESRV_ADDR": ""}
        self._last = self.brokers["10.0.0.2"]  # whose file was written of last

    def here(self, text: str, box: BrokerNode | None = None) -> str:
        """A text of the page for this host; folders are those of a box."""
        for address, broker in self.brokers.items():
            text = text.replace(f"{address}:10911", broker.address)
            text = text.replace(f"/etc/rocketmq/{broker.base_name}.properties", str(broker.config_file))
        text = text.replace("10.0.0.1:9878", self.controller.address).replace("10.0.0.1:9876", self.namesrv.address)
        text = text.replace("/etc/rocketmq/controller.conf", str(self.controller.config_file))
        text = text.replace("/data/", f"{(box or self._last).folder}/data/")
        assert "10.0.0." not in text and "/etc/" not in text, text
        return text

    def in_sync(self) -> int:
        """How many replicas the controller holds for in sync."""
        state = sync_state([self.controller.address], NAME)
        return len(state["inSyncReplicas"]) if state else 0

    def edit(self, address: str, lines: str) -> None:
        """Set lines in a box's file."""
        self._last = self.brokers[address]
        set_lines(self._last.config_file, self.here(lines))

    def run(self, line: str) -> str:
        """Run a command line of the page; what it prints. It has to succeed."""
        program, *words = shlex.split(self.here(line), comments=True)
        if line.startswith("export "):
            name, _equals, value = words[0].partition("=")
            self._environment[name] = value
            return ""
        if program == "bin/mqshutdown":
            self._last.stop()  # the box whose file was edited; on this host it would end all brokers
            return ""
        if program in ("bin/mqbroker", "bin/mqcontroller"):
            node = next(each for each in (*self.brokers.values(), self.controller) if str(each.config_file) == words[1])
            node.start()
            return ""
        if words[-1] == "--watch":
            wanted = 1 + sum(broker.is_alive for broker in self.brokers.values() if broker is not self.brokers[
                "10.0.0.2"] and "enableControllerMode=true" in broker.config_file.read_text("utf-8"))
            wait_until(lambda: self.in_sync() == wanted, WAIT_MS, f"{wanted} replicas in sync")
            words = words[:-1]
        return self._tool(program, words)

    def _tool(self, program: str, words: list[str]) -> str:
        if program == "bin/mqadmin":
            result = CliRunner().invoke(_mqadmin, words, env=self._environment)
        else:
            assert program == "bin/rmqha", program
            result = CliRunner().invoke(rmqha, words, env=self._environment)
        assert result.exit_code == 0, f"{program} {shlex.join(words)}\n{result.output}"
        return result.output

    def close(self) -> None:
        """Kill all."""
        for node in (*self.brokers.values(), self.controller, self.namesrv):
            node.kill()


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def _mqadmin(words):
    raise SystemExit(mq_admin_startup.main(list(words)))


@pytest.fixture
def boxes(tmp_path):
    made = Boxes(tmp_path)
    try:
        yield made
    finally:
        made.close()


def send(address, count=3):
    """How many of some messages are acknowledged with SEND_OK; those of others raise or say so."""
    done = 0
    with DefaultMQProducer("makers", address) as producer:
        for number in range(count):
            try:
                done += producer.send(Message(TOPIC, b"x" * 100, keys=str(number)),
                                      3_000).send_status is SendStatus.SEND_OK
            except CLIENT_ERRORS:  # counted as not acknowledged
                done += 0
    return done


def goes_on(boxes):
    wait_until(lambda: send(boxes.namesrv.address, 1), WAIT_MS, "a message is acknowledged")


def setting(broker, key):
    return load(broker.config_file.read_bytes()).get(key)


def test_the_page_as_it_stands(boxes):
    two, three, four = boxes.brokers.values()
    two.start()
    three.start()
    two.wait_for_slave(WAIT_MS)
    goes_on(boxes)
    for title, address in (("2. Start the controller", None), ("3. Give the master to the controller", "10.0.0.2"),
                           ("4. Bring the other replicas, one at a time", "10.0.0.4")):
        section = Section(PAGE, title)
        if address is not None:
            boxes.edit(address, section.settings())
        for line in section.commands():
            if line == "bin/mqshutdown broker" and title.startswith("4"):
                boxes.edit("10.0.0.3", section.settings())  # "set the same keys in the old slave's file"
            said = boxes.run(line)
            if line.startswith("bin/mqbroker"):
                goes_on(boxes)
    assert said.startswith("HA OK"), "the last command of step 4"
    assert boxes.in_sync() == 3
    assert [setting(broker, "minInSyncReplicas") for broker in (two, three, four)] == ["2"] * 3
    assert all("enableAutoSwitchHA" not in broker.config_file.read_text() for broker in (two, three, four))
    promise_of_two_disks(boxes, two, three, four)
    for line in Section(PAGE, "5. Rehearse it").commands():
        if "cleanBrokerMetadata" in line:  # of a replica that is gone for good, which none is
            continue
        boxes.run(line)
        goes_on(boxes)
    for line in Section(PAGE, "What the monitoring should ask").commands():
        boxes.run(line)
    back(boxes, two, three, four)


def promise_of_two_disks(boxes, two, three, four):
    """After a failover, too, nothing is acknowledged that is on one disk alone; then all are there again."""
    two.kill()
    goes_on(boxes)
    master = sync_state([boxes.controller.address], NAME)["masterAddress"]
    other, = [broker for broker in (three, four) if broker.address != master]
    other.kill()
    assert send(boxes.namesrv.address, 3) == 0, "one disk alone"
    other.start()
    two.start()
    wait_until(lambda: boxes.in_sync() == 3, WAIT_MS, "all in sync")
    goes_on(boxes)


def back(boxes, two, three, four):
    """The way back; then neither a controller nor an epoch is needed."""
    section = Section(PAGE, "The way back")
    first, *checks = section.commands()
    boxes.run(first)
    assert "Stop the other replicas" in section.step(1)
    three.stop()
    four.stop()
    gone = keys_to_remove(section.step(2))
    assert {"enableControllerMode", "minInSyncReplicas", "enableAutoSwitchHA"} < set(gone)
    remove_keys(two.config_file, gone)
    set_lines(two.config_file, keys_to_set(section.step(2)))
    assert "Restart the master" in section.step(3)
    two.stop()
    two.start()
    assert "waits for a role" not in two.output().split("boot success")[-2]
    goes_on(boxes)
    remove_keys(three.config_file, gone)
    set_lines(three.config_file, keys_to_set(section.step(4)))
    three.start()
    two.wait_for_slave(WAIT_MS)
    assert "Stop the controller" in section.step(5)
    boxes.controller.stop()
    goes_on(boxes)
    for line in checks:
        boxes.run(line)
    assert (setting(two, "brokerRole"), setting(three, "brokerRole")) == ("ASYNC_MASTER", "SLAVE")
