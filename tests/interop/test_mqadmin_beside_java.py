"""Java's and rmqha's mqadmin, each on a Java and an rmqha cluster after the same actions, have the same output."""
import difflib
import importlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common import mix_all
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import commons_cli, mq_admin_startup, sub_commands
from rmqha.tools.monitor import DefaultMonitorListener, MonitorConfig, MonitorService, UndoneMsgs
from tests.interop import mqadmin_cases_cluster, mqadmin_cases_messages
from tests.support import mqadmin, real_rocketmq
from tests.support.java_driver import JavaDriver, Workload
from tests.support.mqadmin import Case, Cluster, JavaMqadmin, rmqha_tool, start_endless
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

JAVA, RMQHA = mqadmin.LETTERS
KINDS = ("java", "rmqha")
CASES = [each for file in sorted(Path(__file__).parent.glob("mqadmin_cases_*.py"))
         for each in importlib.import_module(f"tests.interop.{file.stem}").CASES]
OF_MANY_BROKERS = [*mqadmin_cases_cluster.OF_MANY_BROKERS, *mqadmin_cases_messages.OF_MANY_BROKERS]
OF_4_9 = [each for each in sub_commands.SUB_COMMANDS if each not in sub_commands.SUB_COMMANDS_OF_5]
# They would also count the actions of other cases.
COUNTING = {"brokerStatus", "clusterList", "statsAll", "exports"}
MESSAGES, QUEUES = 12, 4


@pytest.fixture(scope="module")
def clusters(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Yield kind -> a cluster with the same messages and consumers, for commands that keep the clusters alike."""
    with pair_of_clusters(module_nodes, tmp_path_factory) as started:
        yield started


@pytest.fixture(scope="module")
def restless_clusters(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Yield two more, for commands that send and read until they are stopped: the numbers differ afterwards."""
    with pair_of_clusters(module_nodes, tmp_path_factory) as started:
        yield started


@pytest.fixture(scope="module")
def untouched_clusters(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Yield two more, for commands that count everything that a broker has done, and change nothing."""
    with pair_of_clusters(module_nodes, tmp_path_factory) as started:
        yield started


@contextmanager
def pair_of_clusters(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Start and fill a pair of clusters."""
    from tests.support.nodes import BrokerNode, NamesrvNode
    with ExitStack() as running:
        started = {}
        for kind in KINDS:
            folder = tmp_path_factory.mktemp(kind)
            namesrv = NamesrvNode(kind, folder / "namesrv", shared_jvm=True)
            module_nodes.append(namesrv)
            namesrv.start()
            broker = BrokerNode(kind, folder / "broker", namesrv.address, shared_jvm=True)
            module_nodes.append(broker)
            broker.start()
            started[kind] = Cluster(kind, namesrv, broker, folder)
        for cluster in started.values():
            act(cluster, running)
            # in its first second the original cannot return its runtime information
            wait_until(lambda cluster=cluster: "putTps" in rmqha_tool(
                ["brokerStatus", "-n", cluster.namesrv.address, "-b", cluster.broker.address]), 60_000, "its runtime")
        yield started


@pytest.fixture(scope="module")
def wide_cluster(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster of two rmqha masters, one of them with a slave."""
    from tests.support.nodes import BrokerNode, NamesrvNode
    folder = tmp_path_factory.mktemp("wide")
    namesrv = NamesrvNode("rmqha", folder / "namesrv")
    module_nodes.append(namesrv)
    namesrv.start()
    brokers = [BrokerNode("rmqha", folder / name, namesrv.address, name, **properties) for name, properties in (
        ("a", {}), ("b", {"brokerName": "broker-b"}), ("slave", {"brokerId": 1, "brokerRole": "SLAVE"}))]
    module_nodes.extend(brokers)
    for broker in brokers:
        broker.start()
    cluster = Cluster("rmqha", namesrv, brokers[0], folder, tuple(brokers[1:]))
    wait_until(lambda: rmqha_tool(["clusterList", "-n", namesrv.address]).count("InteropCluster") == 3, 60_000,
               "three brokers in the list")
    with ExitStack() as running:
        act(cluster, running)
        yield cluster


ACCOUNTS = """\
accounts:
- accessKey: rootKey
  secretKey: rootSecret
  admin: true
"""
CREDENTIALS = "accessKey: rootKey\nsecretKey: rootSecret\n"


@pytest.fixture(scope="module")
def guarded_clusters(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cluster]:
    """Return a broker of each kind with access control. Its home, and that of the tools, is `folder`/home."""
    from tests.support.nodes import BrokerNode, NamesrvNode
    started = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(f"guarded-{kind}")
        (folder / "home" / "conf").mkdir(parents=True)
        # Files that Java's broker and mqadmin need.
        for name in ("broker", "tools"):
            shutil.copy(real_rocketmq.jars().parent / "home" / "conf" / f"logback_{name}.xml", folder / "home" / "conf")
        (folder / "home" / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "ascii")
        (folder / "home" / "conf" / "tools.yml").write_text(CREDENTIALS, "ascii")
        namesrv = NamesrvNode("rmqha", folder / "namesrv")
        module_nodes.append(namesrv)
        namesrv.start()
        broker = BrokerNode(kind, folder / "broker", namesrv.address, aclEnable="true")
        broker._env["ROCKETMQ_HOME"] = str(folder / "home")
        module_nodes.append(broker)
        broker.start()
        started[kind] = Cluster(kind, namesrv, broker, folder)
    for cluster in started.values():
        namesrv, home = cluster.namesrv.address, cluster.folder / "home"
        rmqha_tool(["updateTopic", "-n", namesrv, "-b", cluster.broker.address, "-t", "Orders"], home)
        wait_until(lambda namesrv=namesrv: '"perm":6' in rmqha_tool(["topicRoute", "-n", namesrv, "-t", "Orders"]),
                   60_000, "a route of Orders")
    return started


def act(cluster: Cluster, running: ExitStack) -> None:
    """Create topics, messages, a group that has read them all, and a consumer and a producer that stay connected."""
    for topic, queues in (("Orders", QUEUES), ("Empty", 1)):
        rmqha_tool(["updateTopic", "-n", cluster.namesrv.address, "-c", mqadmin.CLUSTER, "-t", topic,
                    "-r", str(queues), "-w", str(queues)])
        wait_until(lambda topic=topic: '"perm":6' in rmqha_tool(
            ["topicRoute", "-n", cluster.namesrv.address, "-t", topic]), 60_000, f"a route of {topic}")
    with DefaultMQProducer("makers", cluster.namesrv.address) as producer:
        for number in range(MESSAGES):
            queue = MessageQueue("Orders", mqadmin.BROKER_NAME, number % QUEUES)
            producer.send(Message("Orders", b"order %d" % number, tags="TagA", keys=f"key{number}"), queue=queue)
    keeper = running.enter_context(DefaultMQProducer("keepers", cluster.namesrv.address))
    client = keeper.default_mq_producer_impl.mq_client_factory
    client.routes.update_topic_route_info_from_name_server("Orders")
    client.send_heartbeat_to_all_broker_with_lock(wait=True)
    read_all(cluster, "readers").shutdown()
    running.callback(read_all(cluster, "runners").shutdown)


def read_all(cluster: Cluster, group: str) -> DefaultMQPushConsumer:
    """Return a running consumer that has read all messages and reported its offsets to the broker."""
    seen: set[str] = set()

    def listen(messages: list[MessageExt]) -> ConsumeConcurrentlyStatus:
        seen.update(each.msg_id for each in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    consumer = DefaultMQPushConsumer(group, cluster.namesrv.address, listen)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe("Orders", "*")
    consumer.start()
    wait_until(lambda: len(seen) == MESSAGES, 60_000, f"all messages read by {group}")

    # the client counts a message as consumed some time after its listener
    def told() -> bool:
        consumer.default_mq_push_consumer_impl.persist_consumer_offset()
        return "Diff Total: 0" in rmqha_tool(["consumerProgress", "-n", cluster.namesrv.address, "-g", group])
    wait_until(told, 60_000, f"offsets of {group} at the broker")
    return consumer


@pytest.mark.parametrize("case", [each for each in CASES if each.name not in COUNTING], ids=lambda case: case.name)
def test_both_tools_print_the_same_on_both_clusters(case: Case, clusters, java_driver):
    check(case, clusters, java_driver)


@pytest.mark.parametrize("case", [each for each in CASES if each.name in COUNTING], ids=lambda case: case.name)
def test_both_tools_print_the_same_counts_on_both_clusters(case: Case, untouched_clusters, java_driver):
    check(case, untouched_clusters, java_driver)


@pytest.mark.parametrize("case", OF_MANY_BROKERS, ids=lambda case: case.name)
def test_both_tools_print_the_same_with_several_brokers(case: Case, wide_cluster, java_driver):
    check(case, {"rmqha": wide_cluster}, java_driver)


@pytest.mark.parametrize("case", mqadmin_cases_cluster.OF_ACCOUNTS, ids=lambda case: case.name)
def test_both_tools_print_the_same_with_an_account(case: Case, guarded_clusters, java_driver):
    check(case, guarded_clusters, java_driver, guarded_clusters["java"].folder / "home")


@pytest.mark.parametrize("case", mqadmin_cases_cluster.OF_STRANGERS, ids=lambda case: case.name)
def test_both_tools_print_the_same_without_an_account(case: Case, guarded_clusters, java_driver):
    check(case, guarded_clusters, java_driver)


def test_each_command_that_returns_has_a_case():
    run = {command.line.split()[0].lower() for case in [*CASES, *mqadmin_cases_cluster.OF_ACCOUNTS]
           for command in case.commands}
    endless = {"startmonitoring", "clusterrt"}  # tested below
    assert {command.command_name.lower() for command in OF_4_9} - run == endless
    assert {case.name for case in CASES} > COUNTING


def test_both_tools_reach_a_consumer_written_in_java_through_both_brokers(restless_clusters, java_driver):
    consuming, load = [], Workload("Beans", 4, [20])
    for cluster in restless_clusters.values():
        address = cluster.namesrv.address
        java_driver.create_topic(address, cluster.broker.address, load.topic, 1)
        assert all(sent.ok for sent in java_driver.produce(address, load, threads=1))
        consuming.append(java_driver.start_consume(address, load.part(0, 5), "coffee"))
    check(mqadmin_cases_messages.A_JAVA_CONSUMER, restless_clusters, java_driver)
    for cluster, job in zip(restless_clusters.values(), consuming, strict=True):
        java_driver.produce(cluster.namesrv.address, load.part(4, 1), threads=1)  # the message it waits for
        assert job.result(90)["distinct"] == 5


def test_both_tools_measure_a_cluster_round_after_round(restless_clusters, module_nodes, tmp_path):
    printed, java = [], JavaMqadmin(tmp_path / "java")
    for cluster in restless_clusters.values():
        args = ["clusterRT", "-n", cluster.namesrv.address, "-a", "2", "-s", "20", "-i", "0"]
        endless = ServerProcess(f"clusterRT-{cluster.kind}", [*java.command, *args], tmp_path, "", java.env)
        module_nodes.append(endless)
        start_endless(endless, lambda endless=endless: wait_until(
            lambda: endless.output().rpartition("\n")[0].count("broker-a") >= 2, 60_000,
            "the whole line of a second round"))
        endless.kill()
        printed.append(endless.output().splitlines()[:3])
        admin, kind = DefaultMQAdminExt(cluster.namesrv.address), mq_admin_startup.find_sub_command("clusterRT")
        parts = kind().execute(commons_cli.parse(kind.options_to_parse(), args[3:]), admin)
        printed.append([next(parts).text.rstrip("\n") for _ in range(3)])
        parts.close()
        admin.shutdown()
    rounds = [[re.sub(r"\d+\.\d\d +", "<rt> ", line) for line in lines] for lines in printed]
    assert rounds == rounds[:1] * 4


class Listener(DefaultMonitorListener):
    """A listener that records all calls, like the Java driver's."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin_round(self) -> None:
        self.heard.append("begin")

    def report_undone_msgs(self, undone_msgs: UndoneMsgs) -> None:
        self.heard.append(str(undone_msgs))

    def report_consumer_running_info(self, cri_table: Mapping[str, ConsumerRunningInfo]) -> None:
        self.heard += [f"running in group {info.properties['consumerGroup']}" for info in cri_table.values()]

    def end_round(self) -> None:
        self.heard.append("end")


def one_round(namesrv: str) -> list[str]:
    """Run one round of rmqha's monitor, and return its findings."""
    listener = Listener()
    service = MonitorService(MonitorConfig(namesrv), listener)
    service.start()
    try:
        service.do_monitor_work()
    finally:
        service.shutdown()
    return listener.heard


def test_both_monitors_find_the_same_in_a_round(restless_clusters, java_driver):
    found = []
    for cluster in restless_clusters.values():
        address = cluster.namesrv.address
        for look in (lambda address: java_driver.submit("monitor", namesrv=address).result()["heard"], one_round):
            heard: list[str] = []

            def has_caught_up(look=look, address=address, heard=heard) -> bool:  # cases change the group's offsets
                heard[:] = look(address)
                return any("=runners, topic=Orders, undoneMsgsTotal=0," in line for line in heard)
            wait_until(has_caught_up, 60_000, "runners' messages consumed")
            assert (heard[0], heard[-1]) == ("begin", "end")
            found.append(sorted(re.sub(r"DelayTimeMills=\d+", "DelayTimeMills=<ms>", line) for line in heard
                                if "=runners, topic=Orders" in line or line.endswith(" runners")))
    assert found == found[:1] * 4 and "running in group runners" in found[0]


def test_both_tools_start_a_monitor_without_output(restless_clusters, module_nodes, tmp_path):
    group, told, java = mix_all.MONITOR_CONSUMER_GROUP, [], JavaMqadmin(tmp_path / "java")
    for cluster in restless_clusters.values():
        address = cluster.namesrv.address
        connections = ["consumerConnection", "-n", address, "-g", group]

        def wait_until_told(part: str, what: str, connections: list[str] = connections) -> None:
            wait_until(lambda: part in rmqha_tool(connections), 60_000, what)
        own = [sys.executable, "-m", "rmqha.tools.command.mq_admin_startup"]
        for letter, mqadmin_of in ((JAVA, java.command), (RMQHA, own)):
            endless = ServerProcess(f"startMonitoring-{cluster.kind}-{letter}",
                                    [*mqadmin_of, "startMonitoring", "-n", address], tmp_path, "", java.env)
            module_nodes.append(endless)
            wait_up = partial(wait_until_told, "OFFSET_MOVED_EVENT", "its consumer at the broker")
            wait_gone = partial(wait_until_told, "not online", "it is gone")
            if letter == JAVA:
                start_endless(endless, wait_up, wait_gone)
            else:
                endless.launch()
                wait_up()
            connected = re.sub(r"\S+@MonitorService_-?\d+ +127\S+", "<client>", rmqha_tool(connections))
            told.append([endless.is_alive, endless.output(), re.sub(*mqadmin_cases_cluster.VERSION, connected)])
            endless.kill()
            wait_gone()
    assert told == told[:1] * 4


def check(case: Case, clusters: dict[str, Cluster], java_driver: JavaDriver, home: Path | None = None) -> None:
    """Run a case with both tools on all clusters, and compare with Java's tool on the first cluster."""
    tools = {JAVA: mqadmin.java_tool(java_driver, home), RMQHA: lambda args: rmqha_tool(args, home)}
    outputs = {(letter, kind): mqadmin.run(case, tool, letter, cluster)
               for kind, cluster in clusters.items() for letter, tool in tools.items()}
    original = outputs.pop((JAVA, next(iter(clusters))))
    differences = [
        f"{'Java' if letter == JAVA else 'rmqha'}'s mqadmin on the {kind} cluster\n" + "\n".join(
            difflib.unified_diff(expected.splitlines(), got.splitlines(), "expected", "printed", lineterm="", n=1))
        for (letter, kind), printed in outputs.items()
        for expected, got in zip(original, printed, strict=True) if got != expected]
    assert not differences, "\n\n".join(differences)


def test_help_of_all_commands_matches_the_originals(java_driver):
    listed = java_driver.admin().splitlines()
    of_5 = {command.command_name for command in sub_commands.SUB_COMMANDS_OF_5}
    ours = [line for line in rmqha_tool([]).splitlines() if not of_5 & set(line.split()[:1])]
    assert ours == [line for line in listed if line.split()[:1] != ["getAclConfig"]]
    names = [command.command_name for command in OF_4_9]
    # as in 4.9.8, which dropped getAclConfig
    assert len(names) == 56
    aliases = [command.command_alias for command in OF_4_9 if command.command_alias]
    for name in names + aliases:
        explained = rmqha_tool(["help", name.upper()])
        original = java_driver.admin("help", name.upper())
        assert explained.splitlines()[:-1] == original.splitlines(), name
        assert explained.endswith("prints rows and documents as JSON, one object per line.\n")


def test_unknown_commands_get_the_originals_message(java_driver):
    for args in (["nothing"], ["nothing", "-n", "127.0.0.1:1"], ["help", "nothing"]):
        assert rmqha_tool(args) == java_driver.admin(*args)
