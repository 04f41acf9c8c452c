"""Sub-commands about topics, brokers, clusters, name servers and offsets: rows as JSON, and clusters without
masters."""
import json
from itertools import islice

import pytest

from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.common.protocol.table_bodies import (
    ConsumeStats,
    OffsetWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqha.common.protocol.topic_route_data import BrokerData, TopicRouteData
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import commons_cli
from rmqha.tools.command.broker import GetBrokerConfigCommand
from rmqha.tools.command.consumer import GetConsumerConfigSubCommand
from rmqha.tools.command.controller import ClusterListSubCommand
from rmqha.tools.command.export import ExportConfigsCommand, merged_groups, merged_topics
from rmqha.tools.command.mq_admin_startup import main0
from rmqha.tools.command.offset import CloneGroupOffsetCommand, parse_timestamp
from rmqha.tools.command.sub_command import Heading, JavaException
from tests.support.wait import wait_until

# Rows as JSON of sub-commands about topics, brokers, clusters, name servers and offsets, and endless commands.


@pytest.fixture
def rows(cluster, capsys, tmp_path):
    """rows(line) -> the objects that a command prints with --output json."""
    def ask(line):
        args = line.format(n=cluster.namesrv, b=cluster.master.address, s=cluster.slave.address, dir=tmp_path).split()
        assert main0([*args, "--output", "json"]) == 0, capsys.readouterr().err
        return [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    return ask


def test_brokers_are_rows_with_numbers(rows, cluster):
    wait_until(lambda: len(rows("clusterList -n {n}")) == 2, 60_000, "both brokers at the name server")
    master, slave = rows("clusterList -n {n}")
    assert (master["clusterName"], master["brokerName"], master["brokerId"]) == ("C", "broker-a", 0)
    assert (slave["brokerId"], slave["brokerAddr"]) == (1, cluster.slave.address)
    assert isinstance(master["inTps"], float) and isinstance(master["space"], float) and master["hour"] < 24
    totals = rows("clusterList -n {n} -m")
    assert [row["inTotalToday"] for row in totals] == [50, 50]
    assert {row["brokerAddr"] for row in rows("brokerStatus -n {n} -c C")} == {
        cluster.master.address, cluster.slave.address}


def test_settings_are_rows_that_name_their_broker(rows, cluster):
    settings = {(row["brokerAddr"], row["key"]): row["value"] for row in rows("getBrokerConfig -n {n} -c C")}
    assert settings[cluster.slave.address, "brokerRole"] == "SLAVE"
    assert settings[cluster.master.address, "brokerId"] == "0"
    assert {row["namesrvAddr"] for row in rows("getNamesrvConfig -n {n}")} == {cluster.namesrv}


def test_headings_name_master_and_slave(cluster, capsys):
    assert main0(["getBrokerConfig", "-n", cluster.namesrv, "-c", "C"]) == 0
    printed = capsys.readouterr().out.splitlines()
    master, slave = cluster.master.address, cluster.slave.address
    assert [line for line in printed if line.startswith("====")] == [
        f"============Master: {master}============",
        f"============My Master: {master}=====Slave: {slave}============"]


def test_topics_and_queues_are_rows(rows, cluster):
    assert {"topic": "T"} in rows("topicList -n {n}")
    assert {"clusterName": "C", "topic": "T", "consumerGroup": ""} in rows("topicList -n {n} -c")
    assert rows("topicClusterList -n {n} -t T") == [{"clusterName": "C"}]
    status = rows("topicStatus -n {n} -t T")
    assert sum(row["maxOffset"] for row in status) == 50
    assert min(row["lastUpdated"] for row in status if row["maxOffset"]) > 1_600_000_000_000
    route, = rows("topicRoute -n {n} -t T")
    listed, = rows("topicRoute -n {n} -t T -l")
    assert route["brokerDatas"][0]["brokerAddrs"] == listed["brokerAddrs"]
    assert route["queueDatas"][0]["readQueueNums"] == listed["readQueue"] == len(status)
    stats, = rows("statsAll -n {n} -t T")
    assert stats["consumerGroup"] is None and stats["accumulation"] == 0


def test_created_topic_is_a_document(rows):
    made, = rows("updateTopic -n {n} -b {b} -t Made -r 3 -w 2")
    assert (made["topicName"], made["readQueueNums"], made["writeQueueNums"]) == ("Made", 3, 2)
    wait_until(lambda: {"topic": "Made"} in rows("topicList -n {n}"), 60_000, "the topic at the name server")
    changed, = rows("updateTopicPerm -n {n} -b {b} -t Made -p 4")
    assert changed["perm"] == 4


def test_offsets_are_rows_with_old_and_new_values(rows, cluster):
    admin = DefaultMQAdminExt(cluster.namesrv)
    try:
        for queue in admin.examine_topic_stats("T").offsetTable:
            admin.update_consume_offset(cluster.master.address, "G", queue, 1)
    finally:
        admin.shutdown()
    skipped = rows("skipAccumulatedMessage -n {n} -g G -t T")
    assert sum(row["rollbackOffset"] for row in skipped) == 50
    back = rows("resetOffsetByTime -n {n} -g G -t T -s 2020-01-01#00:00:00:000")
    assert [row["rollbackOffset"] for row in back] == [0] * len(skipped)
    assert [row["queueId"] for row in back] == list(range(len(skipped)))
    # The other tests expect that no group has the topic.
    for broker in (cluster.master, cluster.slave):
        broker.controller.consumer_offset_manager.offset_table.pop("T@G", None)


def test_exports_name_their_file(rows, tmp_path):
    for command, name in (("exportConfigs", "configs"), ("exportMetadata", "metadata"), ("exportMetrics", "metrics")):
        file = tmp_path / f"{name}.json"
        assert rows(f"{command} -n {{n}} -c C -f {{dir}}") == [{"file": str(file)}]
        assert json.loads(file.read_text("utf-8"))


def test_metrics_of_a_cluster_name_brokers_without_a_master(cluster, capsys, monkeypatch, tmp_path):
    asked = DefaultMQAdminExt.examine_broker_cluster_info

    def without_masters(admin):
        info = asked(admin)
        for broker in info.brokerAddrTable.values():
            broker.brokerAddrs.pop(0)
        return info

    monkeypatch.setattr(DefaultMQAdminExt, "examine_broker_cluster_info", without_masters)
    main0(["exportMetrics", "-n", cluster.namesrv, "-c", "C", "-f", str(tmp_path)])
    assert "broker-a has no master now" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_broker_that_does_not_answer_does_not_end_a_list(cluster, capsys, monkeypatch):
    wait_until(lambda: listed(cluster, capsys) == 2, 60_000, "both brokers at the name server")
    asked = DefaultMQAdminExt.fetch_broker_runtime_stats
    monkeypatch.setattr(DefaultMQAdminExt, "fetch_broker_runtime_stats", lambda admin, addr: asked(
        admin, "127.0.0.1:1" if addr == cluster.slave.address else addr))
    for args, count in ((["clusterList"], 2), (["brokerStatus", "-c", "C"], 1)):
        assert main0([*args, "-n", cluster.namesrv]) == 0
        printed = capsys.readouterr()
        assert sum(address in printed.out for address in (cluster.master.address, cluster.slave.address)) == count
        assert "RemotingConnectException: connect to 127.0.0.1:1 failed" in printed.err


def listed(cluster, capsys):
    main0(["clusterList", "-n", cluster.namesrv, "--json"])
    return len(capsys.readouterr().out.splitlines())


def test_cluster_list_is_repeated_with_an_interval(cluster, monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    command_line = commons_cli.parse(ClusterListSubCommand.build_commandline_options(), ["-m", "-i", "7"])
    admin = DefaultMQAdminExt(cluster.namesrv)
    try:
        parts = list(islice(ClusterListSubCommand().execute(command_line, admin), 12))
    finally:
        admin.shutdown()
    assert sum(isinstance(part, Heading) for part in parts) >= 3
    assert slept[:2] == [7, 7]


def test_queues_of_a_topic_and_a_group_on_many_brokers_are_added_up():
    topics = [TopicConfigSerializeWrapper({"A": TopicConfig("A", 4, 3)}),
              TopicConfigSerializeWrapper({"B": TopicConfig("B", 1, 1), "A": TopicConfig("A", 2, 2, perm=4)})]
    assert merged_topics(topics) == {"A": TopicConfig("A", 6, 5, perm=4), "B": TopicConfig("B", 1, 1)}
    groups = [SubscriptionGroupWrapper({"g": SubscriptionGroupConfig("g", retryQueueNums=1)}),
              SubscriptionGroupWrapper({"g": SubscriptionGroupConfig("g", retryQueueNums=2, retryMaxTimes=3)})]
    assert merged_groups(groups) == {"g": SubscriptionGroupConfig("g", retryQueueNums=3, retryMaxTimes=3)}


def test_times_are_parsed_as_now_a_number_or_a_date():
    assert (parse_timestamp("now"), parse_timestamp("-1"), parse_timestamp("17")) == (-1, -1, 17)
    assert parse_timestamp("2020-01-01#00:00:00:007") % 1000 == 7
    for text in ("", "soon", "2020-01-01", "2020-01-01#00:00:00", "2020-13-01#00:00:00:000", "9" * 20):
        with pytest.raises(JavaException, match="give now, ms, or yyyy-MM-dd#HH:mm:ss:SSS"):
            parse_timestamp(text)


# Clusters in which brokers have no master, or no address: their requests must not go to a name server instead.

BROKERS = {"a": BrokerData("C", "a", {1: "a1:1"}), "b": BrokerData("C", "b", {0: "b0:1", 1: "b1:1"}),
           "c": BrokerData("C", "c", {1: "c1:1", 2: "c2:1"}), "d": BrokerData("C", "d", {})}


class Admin:
    """Answers for the brokers above, and records the queried addresses."""

    def __init__(self):
        self.asked = []

    def examine_broker_cluster_info(self):
        return ClusterInfo(BROKERS, {"C": set(BROKERS)})

    def get_name_server_address_list(self):
        return ["n:1"]

    def get_broker_config(self, addr):
        self.asked.append(addr)
        return {"brokerName": addr[0], "brokerId": addr[1]}

    def examine_subscription_group_config(self, addr, group):
        self.asked.append(addr)
        return SubscriptionGroupConfig(group)

    def examine_consume_stats(self, group):
        return ConsumeStats({MessageQueue("T", name, 0): OffsetWrapper(9, 5) for name in ("b", "d")})

    def examine_topic_route_info(self, topic):
        return TopicRouteData(brokerDatas=[BROKERS["b"], BROKERS["d"]])

    def update_consume_offset(self, addr, group, queue, offset):
        self.asked.append((addr, group, queue.brokerName, offset))


@pytest.fixture
def admin():
    return Admin()


@pytest.fixture
def run(admin):
    """run(command, *args) -> the parts of its output."""
    def execute(command, *args):
        line = commons_cli.parse(command.build_commandline_options(), args)
        return list(command().execute(line, admin))
    return execute


def test_settings_of_slaves_without_a_master_are_shown(run, admin):
    parts = run(GetBrokerConfigCommand, "-c", "C")
    assert admin.asked == ["a1:1", "b0:1", "b1:1", "c1:1", "c2:1"]
    assert [part.text for part in parts if isinstance(part, Heading) and part.text.strip()] == [
        "============My Master: null=====Slave: a1:1============\n",
        "============Master: b0:1============\n",
        "============My Master: b0:1=====Slave: b1:1============\n",
        "============My Master: null=====Slave: c1:1============\n",
        "============My Master: null=====Slave: c2:1============\n"]


def test_only_masters_are_exported_and_all_slaves_are_counted(run, admin, tmp_path):
    run(ExportConfigsCommand, "-c", "C", "-f", str(tmp_path))
    assert admin.asked == ["b0:1"]
    assert json.loads((tmp_path / "configs.json").read_text("utf-8")) == {
        "brokerConfigs": {"b": {"brokerId": "0", "brokerName": "b"}},
        "clusterScale": {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 4}}


def test_group_is_looked_up_only_at_brokers_with_addresses(run, admin):
    assert [part.value["brokerName"] for part in run(GetConsumerConfigSubCommand, "-g", "G")] == ["a", "b", "c"]
    assert len(admin.asked) == 3 and None not in admin.asked


def test_offset_change_at_a_broker_without_an_address_is_an_error_that_names_it(run, admin):
    with pytest.raises(JavaException, match="brokerName=d, queueId=0.*no address of this broker"):
        run(CloneGroupOffsetCommand, "-s", "G", "-d", "H", "-t", "T")
    assert admin.asked == [("b0:1", "H", "b", 5)]
