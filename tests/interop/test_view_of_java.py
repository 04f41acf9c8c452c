"""The visible state of servers of both kinds: log files, `rmqha top` and `rmqha console`."""
import json
import re
from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from click.testing import CliRunner

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.view.snapshot import Collector
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


# The output of `rmqha top` and `rmqha console` for a cluster of the original and a mixed one.


@pytest.mark.parametrize("slave_kind", ["java", "rmqha"])
def test_java_master_and_its_slave_are_shown(real_namesrv, make_broker, slave_kind):
    master = make_broker("java", real_namesrv.address, "master", shared_jvm=True)
    slave = make_broker(slave_kind, real_namesrv.address, "slave", shared_jvm=True, brokerId=1, brokerRole="SLAVE",
                        haMasterAddress=master.ha_address)
    names = real_namesrv.address
    with DefaultMQProducer("makers", names) as producer, Collector(names, 5_000) as collector:
        wait_until(lambda: len(collector.collect().brokers) == 2, what="both brokers")

        def follows():
            producer.send(Message("TopicTest", b"x" * 500))
            now = collector.collect()
            return [(each.address, each.status.name, each.in_sync) for each in now.replication[0].slaves] == [
                (slave.address, "OK", True)]
        wait_until(follows, what="a slave that follows")
        result = CliRunner().invoke(rmqha, ["top", "-n", names, "--once", "-i", "1", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = {broker["address"]: broker for broker in json.loads(result.output)["brokers"]}
    assert told[master.address]["role"] == "ASYNC_MASTER" and told[slave.address]["role"] == "SLAVE"
    assert told[master.address]["put_total"] > 0 and told[master.address]["max_offset"] > 500
    assert told[master.address]["in_msgs_per_s"] == 0.0 and 0 < told[master.address]["disk_used"] < 1


# The log folders of the real broker and rmqha's after the same actions: the same files, and each line in the same file.

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "logback.json").read_text("utf-8"))


def logback(what: str, folder: Path) -> str:
    """Return the original's logback file, rebuilt from the golden file, without a date before each line."""
    parts = []
    for number, file in enumerate(GOLDEN[what]["files"]):
        encoder = f"<encoder><pattern>{escape(file['pattern'] or '%m%n')}</pattern></encoder>"
        parts.append(f'<appender name="A{number}" class="ch.qos.logback.core.FileAppender">'
                     f"<file>{folder}/{file['file']}</file>{encoder}</appender>")
        for name in file["loggers"]:
            tag = f'logger name="{name}" additivity="false" level="INFO"' if name else 'root level="INFO"'
            parts.append(f'<{tag}><appender-ref ref="A{number}"/></{tag.split()[0]}>')
    return "<configuration>" + "".join(parts) + "</configuration>"


def java_home(folder: Path) -> Path:
    """Return a ROCKETMQ_HOME whose broker logs like the distribution's, below `folder`/logs/rocketmqlogs."""
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_broker.xml").write_text(logback("broker", folder / "logs" / "rocketmqlogs"), "utf-8")
    return home


class InOrder(MessageListenerOrderly):
    """A listener that counts messages."""

    def __init__(self):
        self.count = 0

    def consume_message(self, msgs, context):
        self.count += len(msgs)
        return ConsumeOrderlyStatus.SUCCESS


def act(broker: BrokerNode, driver) -> None:
    """Do the daily work of operators and clients."""
    with DefaultMQProducer("log-producer", broker.namesrv) as producer:
        producer.send(Message("LogAuto", b"made by sending"))
        producer.admin.create_topic("TBW102", "LogTopic", 2)
        for queue in range(2):
            producer.send(Message("LogTopic", b"x", keys="k"), queue=MessageQueue("LogTopic", "broker-a", queue))
        listener = InOrder()
        consumer = DefaultMQPushConsumer("log-group", broker.namesrv, listener)
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe("LogTopic", "*")
        with consumer:
            wait_until(lambda: listener.count >= 2, 60_000, "two messages in order")
    driver.admin("updateBrokerConfig", "-n", broker.namesrv, "-b", broker.address, "-k", "flushDelayOffsetInterval",
                 "-v", "9000")
    driver.admin("updateSubGroup", "-n", broker.namesrv, "-b", broker.address, "-g", "log-group")
    driver.admin("deleteSubGroup", "-n", broker.namesrv, "-b", broker.address, "-g", "log-group")
    driver.admin("deleteTopic", "-n", broker.namesrv, "-c", "InteropCluster", "-t", "LogAuto")


@pytest.fixture(scope="module")
def folders(module_nodes, tmp_path_factory, java_driver) -> dict[str, Path]:
    """Return the log folders of a broker of each kind and of rmqha's name server, after they are stopped."""
    found = {}
    for kind in ("java", "rmqha"):
        folder = tmp_path_factory.mktemp(kind)
        namesrv = NamesrvNode("rmqha", folder / "namesrv")
        broker = BrokerNode(kind, folder, namesrv.address)
        module_nodes.extend([namesrv, broker])
        if kind == "java":
            broker.command = [f"-Drocketmq.home.dir={java_home(folder)}" if part.startswith("-Xms") else part
                              for part in broker.command]
        namesrv.start()
        broker.start()
        act(broker, java_driver)
        for node in (broker, namesrv):
            node.stop()
        found[kind] = folder / "logs" / "rocketmqlogs"
    return found


def lines_of(folder: Path) -> dict[str, set[str]]:
    """Return the constant part of a line -> the files that have it."""
    files = defaultdict(set)
    for file in folder.glob("*.log"):
        for line in file.read_text("utf-8", "replace").splitlines():
            text = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line)  # rmqha's
            text = re.sub(r"^(INFO|WARN|ERROR)? ?.*? ?- ", r"\1 - ", text, count=1)
            text = re.sub(r"/tmp\S*|\[.*?\]|\d[\d.:#]*|\S+@\S+", "#", text)
            files[text].add(file.name)
    return files


def test_both_brokers_have_the_same_files(folders):
    names = {kind: sorted(file.name for file in folder.glob("*.log")) for kind, folder in folders.items()}
    assert names["rmqha"] == names["java"]
    assert {"broker.log", "store.log", "remoting.log", "watermark.log"} <= set(names["rmqha"])


def test_common_log_lines_are_in_the_same_file(folders):
    java, ours = lines_of(folders["java"]), lines_of(folders["rmqha"])
    common = java.keys() & ours.keys()
    misplaced = {text: (java[text], ours[text]) for text in common if java[text].isdisjoint(ours[text])}
    assert not misplaced
    assert len([text for text in common if "=" not in text]) > 60
    assert {name for text in common for name in java[text]} >= {"broker.log", "store.log", "remoting.log"}
