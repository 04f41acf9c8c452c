"""Commands on a cluster in which brokers have no master, or no address: no question goes to a name server instead."""
import json

import pytest

from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.common.protocol.table_bodies import ConsumeStats, OffsetWrapper
from rmqha.common.protocol.topic_route_data import BrokerData, TopicRouteData
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.tools.command import commons_cli
from rmqha.tools.command.broker import GetBrokerConfigCommand
from rmqha.tools.command.consumer import GetConsumerConfigSubCommand
from rmqha.tools.command.export import ExportConfigsCommand
from rmqha.tools.command.offset import CloneGroupOffsetCommand
from rmqha.tools.command.sub_command import Heading, JavaException

BROKERS = {"a": BrokerData("C", "a", {1: "a1:1"}), "b": BrokerData("C", "b", {0: "b0:1", 1: "b1:1"}),
           "c": BrokerData("C", "c", {1: "c1:1", 2: "c2:1"}), "d": BrokerData("C", "d", {})}


class Admin:
    """Answers for the brokers above, and notes whom it asked."""

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
    """run(command, *args) -> its parts."""
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


def test_a_group_is_looked_up_where_brokers_have_addresses(run, admin):
    assert [part.value["brokerName"] for part in run(GetConsumerConfigSubCommand, "-g", "G")] == ["a", "b", "c"]
    assert len(admin.asked) == 3 and None not in admin.asked


def test_an_offset_for_a_broker_without_an_address_is_an_error_that_names_it(run, admin):
    with pytest.raises(JavaException, match="brokerName=d, queueId=0.*no address of this broker"):
        run(CloneGroupOffsetCommand, "-s", "G", "-d", "H", "-t", "T")
    assert admin.asked == [("b0:1", "H", "b", 5)]
