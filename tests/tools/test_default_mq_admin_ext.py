"""Requests of the admin client that no sub-command sends, or only in part, on a running cluster."""
import pytest

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.support.wait import wait_until


@pytest.fixture
def admin(cluster):
    made = DefaultMQAdminExt(cluster.namesrv)
    yield made
    made.shutdown()
    made.shutdown()


def test_no_connection_is_opened_before_the_first_request():
    admin = DefaultMQAdminExt("127.0.0.1:1")
    assert admin.namesrv_addr == "127.0.0.1:1"
    admin.shutdown()


def test_topics_and_groups_are_queried_at_one_broker(admin, cluster):
    addr = cluster.master.address
    admin.create_and_update_topic_config(addr, TopicConfig("Made", 2, 3))
    assert admin.get_user_topic_config(addr, False, 3000).topicConfigTable["Made"] == TopicConfig("Made", 2, 3)
    admin.create_and_update_subscription_group_config(addr, SubscriptionGroupConfig("made", retryMaxTimes=3))
    assert admin.examine_subscription_group_config(addr, "made").retryMaxTimes == 3
    assert list(admin.get_user_subscription_group(addr, 3000).subscriptionGroupTable) == ["made"]
    admin.delete_subscription_group(addr, "made")
    assert admin.examine_subscription_group_config(addr, "made") is None


def test_values_at_the_name_server_are_listed_and_deleted(admin):
    admin.create_and_update_kv_config("space", "a", "1")
    admin.create_and_update_kv_config("space", "b", "2")
    assert admin.get_kv_list_by_namespace("space").table == {"a": "1", "b": "2"}
    admin.delete_kv_config("space", "a")
    with pytest.raises(MQClientException, match="No config item, Namespace: space Key: a"):
        admin.get_kv_config("space", "a")


def test_brokers_of_an_order_conf_are_in_the_order_of_javas_hash_map(admin):
    names = ["broker-a", "broker-b", "third", "4"]
    for name in names:
        admin.create_or_update_order_conf("Ordered", f"{name}:4", False)
    admin.create_or_update_order_conf("Ordered", "third:5", False)
    counts = {name: 5 if name == "third" else 4 for name in names}
    assert admin.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, "Ordered") == ";".join(
        f"{name}:{counts[name]}" for name in hash_map_order(names))
    admin.create_or_update_order_conf("Ordered", "broker-a:1", True)
    assert admin.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, "Ordered") == "broker-a:1"


def test_offsets_are_copied_by_the_broker_when_it_has_the_group(admin, cluster):
    addr, queue = cluster.master.address, MessageQueue("T", "broker-a", 0)
    admin.create_and_update_topic_config(addr, TopicConfig("%RETRY%from", 1, 1))
    wait_until(lambda: "%RETRY%from" in admin.fetch_all_topic_list().topicList, 60_000, "the group's topic")
    with pytest.raises(MQClientException, match="offset table is empty") as refused:
        admin.examine_consume_stats("from")
    assert refused.value.response_code == response_code.CONSUMER_NOT_ONLINE
    admin.update_consume_offset(addr, "from", queue, 2)
    admin.clone_group_offset("from", "to", "T", False)
    assert admin.examine_consume_stats("from").offsetTable[queue].consumerOffset == 2
    assert admin.api.get_consume_stats(addr, "to", 3000).offsetTable[queue].consumerOffset == 2


def test_time_spans_are_reported_by_queue(admin):
    spans = admin.query_consume_time_span("T", "nobody")
    assert {span.messageQueue.topic for span in spans} == {"T"}
    assert all(span.minTimeStamp <= span.maxTimeStamp for span in spans)


def test_group_without_clients_has_no_status(admin):
    with pytest.raises(MQClientException, match=r"No Any Consumer online in the consumer group: \[nobody\]"):
        admin.get_consume_status("T", "nobody", None)


def test_every_name_server_is_updated_and_the_last_error_raised(admin, cluster):
    addr = cluster.namesrv
    with pytest.raises(MQClientException) as refused:
        admin.update_name_server_config({"kvConfigPath": "/elsewhere"}, [addr, addr])
    assert refused.value.response_code == response_code.NO_PERMISSION
    assert list(admin.get_name_server_config(None)) == [addr]
    assert admin.wipe_write_perm_of_broker(addr, "broker-a") > 0
    assert admin.add_write_perm_of_broker(addr, "broker-a") > 0


def test_error_of_a_broker_names_it_where_javas_does(admin, cluster):
    with pytest.raises(MQBrokerException, match=f"BROKER: {cluster.master.address}"):
        admin.api.get_topic_stats_info(cluster.master.address, "nowhere", 3000)
