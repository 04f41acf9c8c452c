"""Heartbeats, goodbyes, consumer lists and consumer offsets."""
import pytest

from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    QueryConsumerOffsetRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import CheckClientRequestBody
from rmqha.common.subscriptions import SubscriptionData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.support.wait import wait_until


def test_heartbeat_makes_group_and_retry_topic(broker):
    assert broker.heartbeat("readers", "Topic", producers=("writers",)).code == response_code.SUCCESS
    assert "readers" in broker.controller.subscription_group_manager.subscription_group_table
    config = broker.controller.topic_config_manager.select_topic_config("%RETRY%readers")
    assert (config.readQueueNums, config.writeQueueNums, config.perm) == (1, 1, 6)
    assert broker.controller.producer_manager.find_channel("client-1") is not None


def test_heartbeat_on_the_fast_port_counts_as_well(broker):
    request = RemotingCommand.create_request_command(request_code.HEART_BEAT)
    request.body = b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[{"groupName":"p"}]}'
    assert broker.client.invoke_sync(broker.fast_address, request, 30_000).code == response_code.SUCCESS
    assert broker.controller.producer_manager.find_channel("c") is not None


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b'{"clientID":null}', b'{"clientID":"c","producerDataSet":[{}]}',
    b'{"clientID":"c","consumerDataSet":[{}]}', b'{"clientID":"c","consumerDataSet":[null]}',
    b'{"clientID":"c","consumerDataSet":5}',
    b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],'
    b'"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"subString":"*"}]}]}',
], ids=str)
def test_bad_heartbeat_registers_nobody(shared_broker, body):
    before = dict(shared_broker.controller.producer_manager.group_channel_table)
    response = shared_broker.call(request_code.HEART_BEAT, body=body)
    assert response.code == response_code.SYSTEM_ERROR and response.remark
    assert shared_broker.controller.producer_manager.group_channel_table == before


def test_group_that_would_be_a_path_gets_no_topic(broker):
    assert broker.heartbeat("../../evil", "Topic").code == response_code.SUCCESS
    topics = broker.controller.topic_config_manager.topic_config_table
    assert not any("evil" in topic for topic in topics)


def test_closed_connection_removes_the_client(broker):
    other = RemotingClient(RemotingClientConfig())
    other.start()
    request = RemotingCommand.create_request_command(request_code.HEART_BEAT)
    request.body = b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[{"groupName":"p"}]}'
    other.invoke_sync(broker.address, request, 30_000)
    assert broker.controller.producer_manager.find_channel("c") is not None
    other.shutdown()
    wait_until(lambda: broker.controller.producer_manager.find_channel("c") is None, 60_000, "the close event")


def test_client_that_says_goodbye_is_gone(broker):
    broker.heartbeat("readers", "Topic", producers=("writers",))
    header = UnregisterClientRequestHeader("client-1", "writers", "readers")
    assert broker.call(request_code.UNREGISTER_CLIENT, header).code == response_code.SUCCESS
    assert broker.controller.consumer_manager.get_consumer_group_info("readers") is None
    assert broker.controller.producer_manager.find_channel("client-1") is None
    header = UnregisterClientRequestHeader("client-1", "unknown", "unknown")
    assert broker.call(request_code.UNREGISTER_CLIENT, header).code == response_code.SUCCESS
    assert "unknown" not in broker.controller.subscription_group_manager.subscription_group_table


@pytest.mark.parametrize("kind, code", [("TAG", 0), (None, 0), ("SQL92", 1), ("MAGIC", 1)])
def test_only_tags_pass_the_check_of_a_subscription(shared_broker, kind, code):
    body = CheckClientRequestBody("c", "g", SubscriptionData("T", "a > 1", expressionType=kind))
    response = shared_broker.call(request_code.CHECK_CLIENT_CONFIG, body=body)
    assert response.code == code
    if code:
        assert response.remark == f"The broker does not support consumer to filter message by {kind}"


def test_members_of_a_group_are_listed(broker):
    header = GetConsumerListByGroupRequestHeader("readers")
    response = broker.call(request_code.GET_CONSUMER_LIST_BY_GROUP, header)
    assert (response.code, response.remark) == (response_code.SYSTEM_ERROR, "no consumer for this group, readers")
    broker.heartbeat("readers", "Topic")
    response = broker.call(request_code.GET_CONSUMER_LIST_BY_GROUP, header)
    body = remoting_serializable.from_json(GetConsumerListByGroupResponseBody, response.body)
    assert body.consumerIdList == ["client-1"]


def query(broker, group, topic="Topic", queue_id=0):
    return broker.call(request_code.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(group, topic, queue_id))


def test_offset_is_kept_and_told(broker):
    broker.send("Topic")
    header = UpdateConsumerOffsetRequestHeader("readers", "Topic", 0, 42)
    assert broker.call(request_code.UPDATE_CONSUMER_OFFSET, header).code == response_code.SUCCESS
    assert query(broker, "readers").ext_fields == {"offset": "42"}


def test_new_group_begins_at_the_start_of_a_young_queue(broker):
    broker.send("Topic")
    broker.next_offset("Topic")
    assert query(broker, "new").ext_fields == {"offset": "0"}


def test_new_group_must_choose_where_the_start_is_gone(broker, monkeypatch):
    monkeypatch.setattr(broker.store, "get_min_offset_in_queue", lambda topic, queue_id: 7)
    response = query(broker, "new")
    assert (response.code, response.remark) == (
        response_code.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")


def test_offsets_are_saved_when_the_broker_ends(broker):
    broker.send("Topic")
    broker.call(request_code.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("readers", "Topic", 0, 42))
    broker.controller.shutdown()
    with open(broker.controller.consumer_offset_manager.config_file_path(), encoding="utf-8") as file:
        assert '"Topic@readers":{0:42' in file.read()
