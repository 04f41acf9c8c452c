"""mqadmin, Java's and rmqha's, on a Java cluster and on an rmqha cluster after the same actions: the same four outputs."""
import difflib
import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqha.client.consumer.listener.consume_concurrently_status import ConsumeConcurrentlyStatus
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.consumer.consume_from_where import ConsumeFromWhere
from rmqha.common.message.message import Message
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.message.message_queue import MessageQueue
from rmqha.tools.command import mq_admin_startup
from tests.support import mqadmin
from tests.support.mqadmin import Case, Cluster, rmqha_tool
from tests.support.wait import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

JAVA, RMQHA = mqadmin.LETTERS
KINDS = ("java", "rmqha")
CASES = [each for file in sorted(Path(__file__).parent.glob("mqadmin_cases_*.py"))
         for each in importlib.import_module(f"tests.interop.{file.stem}").CASES]
MESSAGES, QUEUES = 12, 4


@pytest.fixture(scope="module")
def clusters(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """A cluster of each kind, with the same messages and consumers; kind -> cluster."""
    from tests.support.nodes import BrokerNode, NamesrvNode
    with ExitStack() as running:
        started = {}
        for kind in KINDS:
            folder = tmp_path_factory.mktemp(kind)
            namesrv = NamesrvNode(kind, folder / "namesrv")
            module_nodes.append(namesrv)
            namesrv.start()
            broker = BrokerNode(kind, folder / "broker", namesrv.address)
            module_nodes.append(broker)
            broker.start()
            started[kind] = Cluster(kind, namesrv, broker, folder)
        for cluster in started.values():
            act(cluster, running)
        yield started


def act(cluster: Cluster, running: ExitStack) -> None:
    """Topics, messages, a group that has read them all, and one that stays."""
    for topic, queues in (("Orders", QUEUES), ("Empty", 1)):
        rmqha_tool(["updateTopic", "-n", cluster.namesrv.address, "-b", cluster.broker.address, "-t", topic,
                    "-r", str(queues), "-w", str(queues)])
        wait_until(lambda topic=topic: '"perm":6' in rmqha_tool(
            ["topicRoute", "-n", cluster.namesrv.address, "-t", topic]), 30_000, f"a route of {topic}")
    with DefaultMQProducer("makers", cluster.namesrv.address) as producer:
        for number in range(MESSAGES):
            queue = MessageQueue("Orders", mqadmin.BROKER_NAME, number % QUEUES)
            producer.send(Message("Orders", b"order %d" % number, tags="TagA", keys=f"key{number}"), queue=queue)
    read_all(cluster, "readers").shutdown()
    running.callback(read_all(cluster, "runners").shutdown)


def read_all(cluster: Cluster, group: str) -> DefaultMQPushConsumer:
    """A running consumer that has read all messages, and told the broker so."""
    seen: set[str] = set()

    def listen(messages: list[MessageExt]) -> ConsumeConcurrentlyStatus:
        seen.update(each.msg_id for each in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    consumer = DefaultMQPushConsumer(group, cluster.namesrv.address, listen)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe("Orders", "*")
    consumer.start()
    wait_until(lambda: len(seen) == MESSAGES, 30_000, f"all messages read by {group}")
    consumer.default_mq_push_consumer_impl.persist_consumer_offset()
    return consumer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_tools_print_the_same_on_both_clusters(case: Case, clusters, java_driver):
    tools = {JAVA: mqadmin.java_tool(java_driver), RMQHA: rmqha_tool}
    outputs = {(letter, kind): mqadmin.run(case, tool, letter, clusters[kind])
               for kind in KINDS for letter, tool in tools.items()}
    original = outputs.pop((JAVA, "java"))
    differences = [
        f"{'Java' if letter == JAVA else 'rmqha'}'s mqadmin on the {kind} cluster\n" + "\n".join(
            difflib.unified_diff(expected.splitlines(), got.splitlines(), "expected", "printed", lineterm="", n=1))
        for (letter, kind), printed in outputs.items()
        for expected, got in zip(original, printed, strict=True) if got != expected]
    assert not differences, "\n\n".join(differences)


def test_all_commands_of_the_original_are_listed_and_explained_in_its_words(java_driver):
    listed = java_driver.admin().splitlines()
    assert rmqha_tool([]).splitlines() == [line for line in listed if line.split()[:1] != ["getAclConfig"]]
    names = [command.command_name for command in mq_admin_startup.SUB_COMMANDS]
    assert len(names) == 56  # as in 4.9.8, which dropped getAclConfig
    for name in [*names, *(command.command_alias for command in mq_admin_startup.SUB_COMMANDS if command.command_alias)]:
        explained = rmqha_tool(["help", name.upper()])
        original = java_driver.admin("help", name.upper())
        assert explained.splitlines()[:-1] == original.splitlines(), name
        assert explained.endswith("prints rows and documents as JSON, an object a line.\n")


def test_unknown_commands_are_told_in_the_originals_words(java_driver):
    for args in (["nothing"], ["nothing", "-n", "127.0.0.1:1"], ["help", "nothing"], ["help"]):
        assert rmqha_tool(args) == java_driver.admin(*args)
