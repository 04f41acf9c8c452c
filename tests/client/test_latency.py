"""Leaving out brokers that answer late."""
import pytest

from rmqha.client.impl.client_routes import TopicPublishInfo
from rmqha.client.mq_fault_strategy import LatencyFaultToleranceImpl, MQFaultStrategy
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common import sys_flags, util_all
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol.topic_route_data import QueueData, TopicRouteData

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]


@pytest.fixture
def info():
    """Two queues on each of three brokers."""
    data = [QueueData(brokerName=name, readQueueNums=2, writeQueueNums=2,
                      perm=sys_flags.PERM_READ | sys_flags.PERM_WRITE) for name in "abc"]
    return TopicPublishInfo(message_queue_list=QUEUES, topic_route_data=TopicRouteData(queueDatas=data))


@pytest.fixture
def strategy():
    """One that is on."""
    strategy = MQFaultStrategy()
    strategy.send_latency_fault_enable = True
    return strategy


@pytest.mark.parametrize(("latency", "left_out_ms"), [
    (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 30_000), (999, 30_000), (1_000, 60_000), (2_000, 120_000),
    (3_000, 180_000), (14_999, 180_000), (15_000, 600_000), (1 << 40, 600_000)])
def test_the_later_the_answer_the_longer_a_broker_is_left_out(strategy, latency, left_out_ms, monkeypatch):
    now = util_all.monotonic_millis()
    monkeypatch.setattr(util_all, "monotonic_millis", lambda: now)
    strategy.update_fault_item("a", latency, isolation=False)
    item = strategy.latency_fault_tolerance._fault_item_table["a"]
    assert item.start_timestamp - now == left_out_ms and item.is_available() == (left_out_ms == 0)


def test_a_broker_that_failed_counts_as_thirty_seconds_late(strategy, info):
    strategy.update_fault_item("a", 3, isolation=True)
    assert {strategy.select_one_message_queue(info).brokerName for _ in range(60)} == {"b", "c"}
    strategy.latency_fault_tolerance.remove("a")
    assert {strategy.select_one_message_queue(info).brokerName for _ in range(60)} == {"a", "b", "c"}


def test_when_all_are_late_one_of_the_better_half_is_taken(strategy, info):
    for name, latency in (("a", 600), ("b", 700), ("c", 800)):
        strategy.update_fault_item(name, latency, isolation=False)
    chosen = {strategy.select_one_message_queue(info) for _ in range(60)}
    assert chosen == {MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)}


def test_a_late_broker_that_has_the_topic_no_more_is_forgotten(strategy, info):
    info.message_queue_list = [queue for queue in QUEUES if queue.brokerName != "a"]
    info.topic_route_data.queueDatas = [data for data in info.topic_route_data.queueDatas if data.brokerName != "a"]
    for name, latency in (("a", 600), ("b", 700), ("c", 800)):
        strategy.update_fault_item(name, latency, isolation=False)
    assert strategy.select_one_message_queue(info).brokerName in ("b", "c")
    assert strategy.latency_fault_tolerance.is_available("a")


def test_switched_off_nothing_is_remembered(info):
    strategy = MQFaultStrategy()
    strategy.update_fault_item("a", 60_000, isolation=True)
    assert {strategy.select_one_message_queue(info).brokerName for _ in range(60)} == {"a", "b", "c"}
    assert {strategy.select_one_message_queue(info, "a").brokerName for _ in range(60)} == {"b", "c"}


def test_unknown_brokers_may_be_used():
    tolerance = LatencyFaultToleranceImpl()
    assert tolerance.is_available("new") and tolerance.pick_one_at_least() is None
    tolerance.remove(None)


def test_a_producer_passes_a_dead_broker_over_from_the_second_message_on(servers, monkeypatch):
    topic = servers.unique("Latency")
    with DefaultMQProducer(servers.unique("latency"), servers.namesrv) as producer:
        producer.send_latency_fault_enable = True
        strategy, routes = (getattr(producer.default_mq_producer_impl, name)
                            for name in ("mq_fault_strategy", "routes"))
        strategy.latency_max, strategy.not_available_duration = [15_000], [600_000]  # a slow machine leaves nobody out
        producer.admin.create_topic("TBW102", topic, 2)
        producer.fetch_publish_message_queues(topic)
        find = routes.find_broker_address_in_publish  # the table behind it is filled again by every look at the routes
        monkeypatch.setattr(routes, "find_broker_address_in_publish",
                            lambda name: "127.0.0.1:1" if name == "broker-b" else find(name))
        brokers = [producer.send(Message(topic, b"x"), 10_000).message_queue.brokerName for _ in range(20)]
    assert set(brokers) == {"broker-a"}
    assert not strategy.latency_fault_tolerance.is_available("broker-b")


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_step_of_the_clock_neither_frees_nor_keeps_a_broker(strategy, monkeypatch, step_ms):
    real = util_all.current_time_millis
    strategy.update_fault_item("a", 1_000, isolation=False)
    monkeypatch.setattr(util_all, "current_time_millis", lambda: real() + step_ms)
    tolerance = strategy.latency_fault_tolerance
    assert not tolerance.is_available("a")
    later = util_all.monotonic_millis() + 61_000
    monkeypatch.setattr(util_all, "monotonic_millis", lambda: later)
    assert tolerance.is_available("a")
