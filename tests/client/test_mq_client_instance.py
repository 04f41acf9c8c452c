"""The tables of a client: from routes to addresses and queues, and the stores of offsets."""
from types import SimpleNamespace

import pytest

from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueAveragely
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.consumer.offset_stores import LocalFileOffsetStore, ReadOffsetType, RemoteBrokerOffsetStore
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_routes import (
    topic_route_data2_topic_publish_info,
    topic_route_data2_topic_subscribe_info,
    topic_route_data_is_change,
)
from rmqha.client.impl.consumer.default_lite_pull_consumer_impl import DefaultLitePullConsumerImpl
from rmqha.client.impl.consumer.rebalance import RebalanceLitePullImpl, RebalancePullImpl, RebalancePushImpl
from rmqha.client.impl.mq_client_manager import MQClientManager, make_client_instance
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.producer_config import ProducerConfig
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData
from rmqha.common.subscriptions import ConsumeFromWhere, MessageModel, build_subscription_data
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.wait import wait_until

# The tables of a client: from routes to addresses; no connection is made.


def route(**addrs):
    """Return the route of a topic with two queues on each of the named brokers."""
    return TopicRouteData(queueDatas=[QueueData(name, 2, 2, 6) for name in addrs],
                          brokerDatas=[BrokerData("C", name, table) for name, table in addrs.items()])


class FakeApi:
    """Answers route requests from a dict."""

    def __init__(self):
        self.routes = {}

    def get_topic_route_info_from_name_server(self, topic, timeout_ms):
        if topic not in self.routes:
            raise MQClientException("no route", 17)
        return self.routes[topic]

    get_default_topic_route_info_from_name_server = get_topic_route_info_from_name_server


@pytest.fixture
def instance():
    return make_client_instance(ClientConfig(client_ip="127.0.0.1"), 0, "127.0.0.1@test")


@pytest.fixture
def api(instance, monkeypatch):
    fake = FakeApi()
    for name in ("get_topic_route_info_from_name_server", "get_default_topic_route_info_from_name_server"):
        monkeypatch.setattr(instance.mq_client_api_impl, name, getattr(fake, name))
    return fake


@pytest.fixture
def learn(instance, api):
    def learn(topic, **addrs):
        api.routes[topic] = route(**addrs)
        return instance.routes.update_topic_route_info_from_name_server(topic)

    return learn


def test_master_is_chosen_for_publishing_and_unknown_brokers_have_no_address(instance, learn):
    assert learn("T", a={0: "1:1", 1: "1:5"}, b={1: "1:6"})
    assert instance.routes.find_broker_address_in_publish("a") == "1:1"
    assert instance.routes.find_broker_address_in_publish("b") is None
    assert instance.routes.find_broker_address_in_publish("x") is None


def test_slave_replaces_a_missing_master_unless_only_the_master_is_allowed(instance, learn):
    learn("T", a={0: "1:1", 1: "1:5"}, b={1: "1:6", 2: "1:7"})
    find = instance.routes.find_broker_address_in_subscribe
    assert find("a", 0, True).broker_addr == "1:1" and not find("a", 0, True).slave
    assert find("a", 1, False).broker_addr == "1:5" and find("a", 1, False).slave
    assert find("b", 0, True) is None
    assert find("b", 0, False).broker_addr == "1:6" and find("b", 0, False).slave
    assert find("a", 3, False).broker_addr == "1:1"
    assert find("b", 1, True).broker_addr == "1:6"
    assert find("x", 0, False) is None


def test_next_slave_is_chosen_when_the_suggested_one_is_gone(instance, learn):
    learn("T", b={2: "1:7"})
    assert instance.routes.find_broker_address_in_subscribe("b", 1, True).broker_addr == "1:7"


def test_unchanged_route_changes_nothing(instance, learn):
    assert learn("T", a={0: "1:1"})
    assert not learn("T", a={0: "1:1"})
    assert learn("T", a={0: "1:2"})
    assert instance.routes.find_broker_address_in_publish("a") == "1:2"


def test_unknown_topic_changes_nothing(instance, api):
    assert not instance.routes.update_topic_route_info_from_name_server("nowhere")
    assert instance.routes.get_an_exist_topic_route_data("nowhere") is None


def test_new_topic_gets_the_default_topics_brokers_and_at_most_the_producers_queue_count(instance, api):
    api.routes["TBW102"] = route(a={0: "1:1"})
    config = ProducerConfig()
    config.default_topic_queue_nums = 1
    assert instance.routes.update_topic_route_info_from_name_server("New", True, config)
    assert [data.writeQueueNums for data in instance.routes.get_an_exist_topic_route_data("New").queueDatas] == [1]


def test_addresses_missing_from_all_routes_are_removed(instance, learn):
    learn("T", a={0: "1:1", 1: "1:5"}, b={0: "1:2"})
    learn("T", a={1: "1:5"})
    instance.routes.broker_addr_table["a"] = {0: "1:1", 1: "1:5"}
    instance.routes.clean_offline_broker()
    assert instance.routes.broker_addr_table == {"a": {1: "1:5"}}


def test_producers_and_consumers_are_notified_of_routes_and_groups_are_unique(instance, learn):
    heard = {}

    class Producer:
        def is_publish_topic_need_update(self, topic):
            return False

        def update_topic_publish_info(self, topic, info):
            heard[topic] = info

    assert instance.register_producer("g", Producer())
    assert not instance.register_producer("g", Producer())
    learn("T", a={0: "1:1"})
    assert len(heard["T"].message_queue_list) == 2 and heard["T"].have_topic_router_info


def test_manager_shares_instances_by_client_id():
    manager = MQClientManager()
    one, other = ClientConfig(client_ip="1"), ClientConfig(client_ip="1")
    first = manager.get_or_create_mq_client_instance(one)
    assert manager.get_or_create_mq_client_instance(other) is first
    other.instance_name = "another"
    assert manager.get_or_create_mq_client_instance(other) is not first
    manager.remove_client_factory(first.client_id)
    assert manager.get_or_create_mq_client_instance(one) is not first


# From routes to queues.

READ, WRITE = 4, 2
MASTER_A, MASTER_B = BrokerData("C", "a", {0: "1:1", 1: "1:5"}), BrokerData("C", "b", {0: "1:2"})
SLAVE_B = BrokerData("C", "b", {1: "1:6"})


def topic_route(*brokers, perm_a=READ | WRITE, perm_b=READ | WRITE, read=2, write=2):
    data = [QueueData("b", read, write, perm_b), QueueData("a", read, write, perm_a)]
    return TopicRouteData(queueDatas=data, brokerDatas=list(brokers))


def queues(broker, count):
    return [MessageQueue("T", broker, number) for number in range(count)]


def test_publish_queues_are_the_masters_writable_ones_sorted_by_broker():
    info = topic_route_data2_topic_publish_info("T", topic_route(MASTER_A, MASTER_B))
    assert info.message_queue_list == queues("a", 2) + queues("b", 2) and info.ok() and not info.order_topic


def test_broker_without_a_master_can_be_pulled_from_but_not_sent_to():
    both = topic_route(MASTER_A, SLAVE_B)
    assert topic_route_data2_topic_publish_info("T", both).message_queue_list == queues("a", 2)
    assert topic_route_data2_topic_subscribe_info("T", both) == set(queues("a", 2) + queues("b", 2))


def test_permissions_limit_the_queues():
    info = topic_route_data2_topic_publish_info("T", topic_route(MASTER_A, MASTER_B, perm_a=READ))
    assert info.message_queue_list == queues("b", 2)
    readable = topic_route_data2_topic_subscribe_info("T", topic_route(MASTER_A, MASTER_B, perm_b=WRITE))
    assert readable == set(queues("a", 2))


def test_numbers_of_read_and_write_queues_are_independent():
    both = topic_route(MASTER_A, MASTER_B, read=3, write=1)
    assert len(topic_route_data2_topic_publish_info("T", both).message_queue_list) == 2
    assert len(topic_route_data2_topic_subscribe_info("T", both)) == 6


def test_ordered_topic_takes_its_queues_from_the_configuration():
    ordered = topic_route(MASTER_A)
    ordered.orderTopicConf = "b:2;a:1;"
    info = topic_route_data2_topic_publish_info("T", ordered)
    assert info.order_topic and info.message_queue_list == queues("b", 2) + queues("a", 1)


def test_queue_choice_rotates_and_avoids_the_last_broker():
    info = topic_route_data2_topic_publish_info("T", topic_route(MASTER_A, MASTER_B))
    assert {info.select_one_message_queue() for _ in range(4)} == set(info.message_queue_list)
    assert {info.select_one_message_queue("a").brokerName for _ in range(8)} == {"b"}
    alone = topic_route_data2_topic_publish_info("T", topic_route(MASTER_A))
    assert alone.select_one_message_queue("a").brokerName == "a", "the only broker is chosen again"
    assert info.get_queue_id_by_broker("a") == 2 and info.get_queue_id_by_broker("x") == -1


def test_routes_are_compared_by_content_not_by_order():
    one, other = topic_route(MASTER_A, MASTER_B), topic_route(MASTER_B, MASTER_A)
    other.queueDatas.reverse()
    assert not topic_route_data_is_change(one, other)
    assert topic_route_data_is_change(one, topic_route(MASTER_A, SLAVE_B))
    assert topic_route_data_is_change(None, one)


# Offsets of broadcasting consumers.

MQ = [MessageQueue("T", "a", number) for number in range(3)]
STORE = ReadOffsetType.READ_FROM_STORE


@pytest.fixture
def make_store(tmp_path):
    return lambda: LocalFileOffsetStore("1.1.1.1@x", "g", str(tmp_path))


def test_offsets_are_loaded_from_the_file(make_store):
    store = make_store()
    store.load()
    store.update_offset(MQ[0], 17, increase_only=False)
    store.update_offset(MQ[1], 5, increase_only=False)
    store.persist_all(MQ[:1])
    again = make_store()
    again.load()
    assert again.read_offset(MQ[0], STORE) == 17 and again.read_offset(MQ[1], STORE) == -1


def test_increase_only_keeps_the_higher_offset(make_store):
    store = make_store()
    for offset, increase_only, expected in ((5, True, 5), (3, True, 5), (3, False, 3), (9, True, 9)):
        store.update_offset(MQ[0], offset, increase_only)
        assert store.read_offset(MQ[0], STORE) == expected
    assert store.clone_offset_table("T") == {MQ[0]: 9} and store.clone_offset_table("U") == {}


def test_backup_is_read_when_the_file_is_damaged(make_store):
    store = make_store()
    for offset in (1, 2):
        store.update_offset(MQ[0], offset, increase_only=False)
        store.persist_all(MQ)
    with open(store.store_path, "w", encoding="utf-8") as file:
        file.write("{broken")
    again = make_store()
    again.load()
    assert again.read_offset(MQ[0], STORE) == 1


def test_damaged_file_and_backup_are_an_error(make_store):
    store = make_store()
    for _ in range(2):
        store.update_offset(MQ[0], 1, increase_only=False)
        store.persist_all(MQ)
    for path in (store.store_path, store.store_path + ".bak"):
        with open(path, "w", encoding="utf-8") as file:
            file.write("{broken")
    with pytest.raises(MQClientException):
        make_store().load()


# A group has no offset only if the broker says so; after any other answer, the group waits.

REMOTE_STORE_MQ = MessageQueue("T", "a", 0)
CODES = sorted(value for name, value in vars(response_code).items() if name.isupper() and isinstance(value, int)
               and value != response_code.SUCCESS)
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def store_of(error: Exception) -> RemoteBrokerOffsetStore:
    """Return a store whose broker fails with this error."""
    def query(_addr, _header, _timeout_ms):
        raise error

    found = SimpleNamespace(broker_addr="127.0.0.1:1")
    routes = SimpleNamespace(find_broker_address_in_subscribe=lambda *_args, **_named: found)
    return RemoteBrokerOffsetStore(SimpleNamespace(query_consumer_offset=query), routes, "g")


@pytest.mark.parametrize("code", CODES)
def test_only_not_found_means_no_offset(code):
    store = store_of(MQBrokerException(code, "no", "127.0.0.1:1"))
    expected = -1 if code == response_code.QUERY_NOT_FOUND else -2
    assert store.read_offset(REMOTE_STORE_MQ, ReadOffsetType.READ_FROM_STORE) == expected
    assert store.read_offset(REMOTE_STORE_MQ, ReadOffsetType.MEMORY_FIRST_THEN_STORE) == expected


def test_pull_consumer_never_sees_a_part_of_a_new_share():
    consumer = DefaultMQPullConsumer("readers", "127.0.0.1:1")
    # a listener that changes the set that it gets
    consumer.message_queue_listener = SimpleNamespace(message_queue_changed=lambda _topic, _all, share: share.clear())
    rebalance = RebalancePullImpl(consumer)
    queues = {MessageQueue("T", "broker-a", number) for number in range(4)}
    seen = []
    rebalance.offset_store = SimpleNamespace(remove_offset=lambda _mq: seen.append(rebalance.share("T")))
    rebalance.consumer_group, rebalance.message_model = "readers", MessageModel.CLUSTERING
    rebalance.allocate_message_queue_strategy = AllocateMessageQueueAveragely()
    rebalance.mq_client_factory = SimpleNamespace(
        client_id="me", routes=SimpleNamespace(find_consumer_id_list=lambda _topic, _group: ["me"]))
    rebalance.put_subscription("T", build_subscription_data("T", "*"))
    rebalance.update_topic_subscribe_info("T", queues)
    rebalance.do_rebalance()
    assert seen == [set()] * 4 and rebalance.share("T") == queues


@pytest.mark.parametrize("kind", [RebalancePushImpl, RebalanceLitePullImpl])
@pytest.mark.parametrize(("error", "begin"), [
    (MQBrokerException(response_code.QUERY_NOT_FOUND, "no", "a"), 5_000_000),
    (MQBrokerException(response_code.SYSTEM_BUSY, "busy", "a"), -1),
    (MQBrokerException(response_code.NO_PERMISSION, "no", "a"), -1),
    (RemotingTimeoutException("a", 5000), -1), (MQClientException("no broker"), -1)], ids=repr)
def test_rebalance_starts_from_scratch_only_without_an_offset(kind, error, begin):
    settings = SimpleNamespace(consume_from_where=LAST, consume_timestamp="")
    rebalance = kind(settings, lambda *_args: None)
    rebalance.offset_store = store_of(error)
    rebalance.mq_client_factory = SimpleNamespace(mq_admin_impl=SimpleNamespace(max_offset=lambda _mq: 5_000_000))
    assert rebalance.compute_pull_from_where_with_exception(REMOTE_STORE_MQ) == begin


def test_pull_consumers_raise_an_error_when_the_broker_is_busy():
    consumer = DefaultMQPullConsumer("g", "127.0.0.1:1")
    impl = consumer.default_mq_pull_consumer_impl
    impl._is_running, impl.offset_store = lambda: None, store_of(MQBrokerException(response_code.SYSTEM_BUSY, "", "a"))
    with pytest.raises(MQClientException, match="Fetch consume offset"):
        consumer.fetch_consume_offset(REMOTE_STORE_MQ, from_store=True)
    lite = SimpleNamespace(check_service_state=lambda: None, offset_store=impl.offset_store)
    with pytest.raises(MQClientException, match="Fetch consume offset"):
        DefaultLitePullConsumerImpl.committed(lite, REMOTE_STORE_MQ)


class BusyAtFirst:
    """Wraps a broker's processor and refuses the first requests."""

    def __init__(self, processor, times: int) -> None:
        self._processor, self.left = processor, times

    def process_request(self, channel, request):
        if self.left:
            self.left -= 1
            return RemotingCommand.create_response_command(response_code.SYSTEM_BUSY, "[OVERLOAD]system busy")
        return self._processor.process_request(channel, request)

    def reject_request(self) -> bool:
        return self._processor.reject_request()


def test_group_of_a_busy_broker_skips_nothing_of_its_backlog(servers, monkeypatch):
    topic, group, got = servers.unique("Backlog"), servers.unique("backlog"), []
    with DefaultMQProducer(servers.unique("p"), servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", topic, 1)
        sent = {producer.send(Message(topic, b"%d" % number)).msg_id for number in range(20)}
    for broker in servers.brokers.values():
        broker.consumer_offset_manager.commit_offset("test", group, topic, 0, 0)
        pair = broker.remoting_server.processor_table[request_code.QUERY_CONSUMER_OFFSET]
        busy = BusyAtFirst(pair.processor, 6)
        monkeypatch.setitem(broker.remoting_server.processor_table, request_code.QUERY_CONSUMER_OFFSET,
                            pair._replace(processor=busy))

    def listener(messages):
        got.extend(message.msg_id for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer(group, servers.namesrv, listener)
    consumer.consume_from_where = LAST
    consumer.subscribe(topic, "*")
    with consumer:
        factory = consumer.default_mq_push_consumer_impl.mq_client_factory
        wait_until(lambda: factory.rebalance_immediately() or sent <= set(got), what="the backlog")
