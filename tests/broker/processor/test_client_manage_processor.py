"""Heartbeats, unregistering, consumer lists and offsets: which clients are connected, and which hold which queues."""
import pytest

from rmqha.broker.client import client_channels
from rmqha.broker.client.client_channels import ClientChannelInfo, ConsumerGroupEvent
from rmqha.broker.client.consumer_manager import ConsumerManager
from rmqha.broker.client.producer_manager import ProducerManager
from rmqha.broker.client.rebalance_lock_manager import RebalanceLockManager
from rmqha.common import subscriptions as filter_api
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    QueryConsumerOffsetRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import CheckClientRequestBody
from rmqha.common.subscriptions import ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.header_codec import LanguageCode
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.support.wait import wait_until

# Heartbeats, unregistering, consumer lists and consumer offsets.


def test_heartbeat_creates_group_and_retry_topic(broker):
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
def test_invalid_heartbeat_registers_no_client(shared_broker, body):
    before = dict(shared_broker.controller.producer_manager.group_channel_table)
    response = shared_broker.call(request_code.HEART_BEAT, body=body)
    assert response.code == response_code.SYSTEM_ERROR and response.remark
    assert shared_broker.controller.producer_manager.group_channel_table == before


def test_group_name_that_is_a_path_gets_no_topic(broker):
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


def test_unregistered_client_is_removed(broker):
    broker.heartbeat("readers", "Topic", producers=("writers",))
    header = UnregisterClientRequestHeader("client-1", "writers", "readers")
    assert broker.call(request_code.UNREGISTER_CLIENT, header).code == response_code.SUCCESS
    assert broker.controller.consumer_manager.get_consumer_group_info("readers") is None
    assert broker.controller.producer_manager.find_channel("client-1") is None
    header = UnregisterClientRequestHeader("client-1", "unknown", "unknown")
    assert broker.call(request_code.UNREGISTER_CLIENT, header).code == response_code.SUCCESS
    assert "unknown" not in broker.controller.subscription_group_manager.subscription_group_table


@pytest.mark.parametrize("kind, code", [("TAG", 0), (None, 0), ("SQL92", 1), ("MAGIC", 1)])
def test_only_tag_subscriptions_pass_the_check(shared_broker, kind, code):
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


def test_offset_is_stored_and_returned(broker):
    broker.send("Topic")
    header = UpdateConsumerOffsetRequestHeader("readers", "Topic", 0, 42)
    assert broker.call(request_code.UPDATE_CONSUMER_OFFSET, header).code == response_code.SUCCESS
    assert query(broker, "readers").ext_fields == {"offset": "42"}


def test_new_group_starts_at_the_beginning_of_a_young_queue(broker):
    broker.send("Topic")
    broker.next_offset("Topic")
    assert query(broker, "new").ext_fields == {"offset": "0"}


def test_new_group_must_choose_when_the_beginning_is_deleted(broker, monkeypatch):
    monkeypatch.setattr(broker.store, "get_min_offset_in_queue", lambda topic, queue_id: 7)
    response = query(broker, "new")
    assert (response.code, response.remark) == (
        response_code.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")


def test_offsets_are_saved_at_shutdown(broker):
    broker.send("Topic")
    broker.call(request_code.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("readers", "Topic", 0, 42))
    broker.controller.shutdown()
    with open(broker.controller.consumer_offset_manager.config_file_path(), encoding="utf-8") as file:
        assert '"Topic@readers":{0:42' in file.read()


# Which clients are connected, and which hold which queues.


class FakeChannel:
    """A channel that records whether it was closed."""

    def __init__(self, port=1):
        self.remote_address = ("127.0.0.1", port)
        self.attributes = {}
        self.is_active = True

    def close(self):
        self.is_active = False


class Listener:
    """Records the events."""

    def __init__(self):
        self.events = []

    def handle(self, event, group, *args):
        self.events.append((event, group, *args))


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [1_000_000]
    for module in ("client_channels", "rebalance_lock_manager"):
        monkeypatch.setattr(f"rmqha.broker.client.{module}.now_ms", lambda: now[0])
    return now


def client(channel, client_id="c1"):
    return ClientChannelInfo(channel, client_id, LanguageCode.JAVA, 409)


def register(manager, channel, *topics, client_id="c1", version=1):
    subscriptions = [filter_api.build_subscription_data(topic, "*") for topic in topics]
    for subscription in subscriptions:
        subscription.subVersion = version
    return manager.register_consumer("group", client(channel, client_id), ConsumeType.CONSUME_PASSIVELY,
                                     MessageModel.CLUSTERING, None, subscriptions, True)


def test_group_is_notified_of_a_new_consumer():
    listener = Listener()
    manager = ConsumerManager(listener)
    first, second = FakeChannel(1), FakeChannel(2)
    assert register(manager, first, "T")
    assert not register(manager, first, "T")
    assert register(manager, second, "T", client_id="c2")
    changes = [event[2] for event in listener.events if event[0] is ConsumerGroupEvent.CHANGE]
    assert changes == [[first], [first, second]]
    assert manager.get_consumer_group_info("group").get_all_client_id() == ["c1", "c2"]


def test_client_at_both_addresses_of_a_broker_counts_once():
    """With masterAddress, consumers are connected to the own address of the slave that becomes the master."""
    manager = ConsumerManager(Listener(), has_two_addresses=True)
    own, other, shared = FakeChannel(1), FakeChannel(2), FakeChannel(3)
    register(manager, own, "T")
    register(manager, other, "T", client_id="c2")
    register(manager, shared, "T")
    group = manager.get_consumer_group_info("group")
    assert group.get_all_client_id() == ["c1", "c2"] and group.get_all_channel() == [own, other, shared]
    manager.do_channel_close_event("addr", own)
    assert group.get_all_client_id() == ["c2", "c1"]


def test_two_clients_with_the_same_id_count_twice_as_in_rocketmq():
    manager = ConsumerManager(Listener())
    for port in (1, 2):
        register(manager, FakeChannel(port), "T")
    assert manager.get_consumer_group_info("group").get_all_client_id() == ["c1", "c1"]


def test_topics_missing_from_a_heartbeat_are_removed():
    manager = ConsumerManager(Listener())
    channel = FakeChannel()
    register(manager, channel, "T", "U")
    assert register(manager, channel, "U")
    assert manager.find_subscription_data("group", "T") is None
    assert manager.find_subscription_data_count("group") == 1
    assert manager.query_topic_consume_by_who("U") == {"group"} and not manager.query_topic_consume_by_who("T")


def test_newer_subscription_replaces_the_older_one_and_not_vice_versa():
    manager = ConsumerManager(Listener())
    channel = FakeChannel()
    register(manager, channel, "T", version=5)
    register(manager, channel, "T", version=4)
    assert manager.find_subscription_data("group", "T").subVersion == 5
    register(manager, channel, "T", version=6)
    assert manager.find_subscription_data("group", "T").subVersion == 6


def test_last_consumer_to_leave_removes_the_group():
    listener = Listener()
    manager = ConsumerManager(listener)
    channel = FakeChannel()
    register(manager, channel, "T")
    manager.unregister_consumer("group", client(channel), True)
    assert manager.get_consumer_group_info("group") is None
    assert [event[0] for event in listener.events][-2:] == [ConsumerGroupEvent.UNREGISTER, ConsumerGroupEvent.CHANGE]


def test_closed_channel_leaves_its_group():
    listener = Listener()
    manager = ConsumerManager(listener)
    first, second = FakeChannel(1), FakeChannel(2)
    register(manager, first, "T")
    register(manager, second, "T", client_id="c2")
    manager.do_channel_close_event("addr", first)
    assert manager.find_channel("group", "c1") is None and manager.find_channel("group", "c2").channel is second
    assert listener.events[-1] == (ConsumerGroupEvent.CHANGE, "group", [second])


def test_silent_clients_are_removed_after_two_minutes(clock):
    consumers, producers = ConsumerManager(Listener()), ProducerManager()
    silent, alive = FakeChannel(1), FakeChannel(2)
    for channel in (silent, alive):
        register(consumers, channel, "T", client_id=f"c{channel.remote_address[1]}")
        producers.register_producer("pg", client(channel))
    clock[0] += 110_000
    register(consumers, alive, "T", client_id="c2")
    producers.register_producer("pg", client(alive))
    clock[0] += 11_000
    consumers.scan_not_active_channel()
    producers.scan_not_active_channel()
    assert consumers.get_consumer_group_info("group").get_all_channel() == [alive]
    assert list(producers.group_channel_table["pg"]) == [alive]
    assert not silent.is_active and alive.is_active


def test_producers_register_and_unregister():
    manager = ProducerManager()
    channel = FakeChannel(7)
    manager.register_producer("pg", client(channel))
    assert manager.find_channel("c1") is channel
    info = manager.get_producer_table().data["pg"][0]
    assert (info.clientId, info.remoteIP, info.language, info.version) == ("c1", "/127.0.0.1:7", "JAVA", 409)
    manager.unregister_producer("pg", client(channel))
    assert manager.group_channel_table == {} and manager.find_channel("c1") is None


def test_available_channels_take_turns_and_skip_closed_ones():
    manager = ProducerManager()
    channels = [FakeChannel(port) for port in range(3)]
    for channel in channels:
        manager.register_producer("pg", client(channel))
    assert {manager.get_available_channel("pg") for _ in range(6)} == set(channels)
    channels[0].close()
    channels[1].close()
    assert {manager.get_available_channel("pg") for _ in range(6)} == {channels[2]}
    assert manager.get_available_channel("nobody") is None and manager.get_available_channel(None) is None


QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def test_queue_is_locked_by_one_client_only():
    locks = RebalanceLockManager()
    assert locks.try_lock_batch("group", QUEUES, "c1") == set(QUEUES)
    assert locks.try_lock_batch("group", QUEUES, "c2") == set()
    assert locks.try_lock_batch("group", QUEUES, "c1") == set(QUEUES)
    assert locks.try_lock_batch("other-group", QUEUES[:1], "c2")


def test_only_the_holder_can_unlock():
    locks = RebalanceLockManager()
    locks.try_lock_batch("group", QUEUES, "c1")
    locks.unlock_batch("group", QUEUES, "c2")
    assert not locks.try_lock_batch("group", QUEUES[:1], "c2")
    locks.unlock_batch("group", QUEUES[:1], "c1")
    assert locks.try_lock_batch("group", QUEUES, "c2") == {QUEUES[0]}


def test_one_host_cannot_take_every_lock(monkeypatch, clock):
    monkeypatch.setattr("rmqha.broker.client.rebalance_lock_manager.MAX_LOCKS_OF_HOST", 3)
    locks = RebalanceLockManager()
    assert locks.try_lock_batch("a", QUEUES, "c1", "10.0.0.1") == set(QUEUES)
    assert locks.try_lock_batch("b", QUEUES, "c1", "10.0.0.1") == set()
    assert locks.try_lock_batch("b", QUEUES, "c2", "10.0.0.2") == set(QUEUES)
    assert locks.try_lock_batch("a", QUEUES, "c1", "10.0.0.1") == set(QUEUES)
    locks.unlock_batch("a", QUEUES[:1], "c1")
    assert len(locks.try_lock_batch("c", QUEUES, "c1", "10.0.0.1")) == 1
    clock[0] += 60_001
    locks.remove_expired()
    assert locks.try_lock_batch("d", QUEUES, "c1", "10.0.0.1") == set(QUEUES)


def test_lock_expires_after_a_minute_without_renewal(clock):
    locks = RebalanceLockManager()
    locks.try_lock_batch("group", QUEUES[:1], "c1")
    clock[0] += 60_000
    assert not locks.try_lock_batch("group", QUEUES[:1], "c2")
    clock[0] += 1
    assert locks.try_lock_batch("group", QUEUES[:1], "c2")
    assert not locks.try_lock_batch("group", QUEUES[:1], "c1")


def test_age_is_independent_of_the_wall_clock(monkeypatch):
    info = client(FakeChannel())
    monkeypatch.setattr(client_channels.time, "time_ns", lambda: 0)
    assert info.age_ms() < 10_000
