"""Consumers whose master ends: they pull from the next master, although they never poll routes."""
from collections import deque
from itertools import count
from types import SimpleNamespace

import pytest

from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_routes import ClientRoutes
from rmqha.client.impl.consumer import pulling
from rmqha.client.impl.consumer.pulling import PullAPIWrapper, PullRetries
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.exception import RemotingConnectException
from tests.broker.relay.replicas import replicas
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until

NEVER_MS = 3_600_000
TOPIC = "Retries"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(100)]


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_consumer_finds_the_next_master(tmp_path, kind):
    """Neither a poll of routes nor a relay helps."""
    with running_name_server(tmp_path) as address, \
            replicas(tmp_path, 2, relayToMaster=False, namesrvAddr=address) as ha:
        ha.wait_in_sync()
        first = ha.master
        send(address, "before")
        received = deque()
        consumer = consumer_of(kind, address, received)
        with consumer:
            wait_until(lambda: b"before" in bodies(consumer, received), 60_000, "the first message")
            ha.brokers.remove(first)
            first.shutdown()
            assert ha.master is not first
            send(address, "after")
            wait_until(lambda: b"after" in bodies(consumer, received), 60_000, "a message of the next master")


def consumer_of(kind, address, received):
    if kind == "lite":
        consumer = DefaultLitePullConsumer("lite-group", address)
        consumer.subscribe(TOPIC, "*")
    else:
        consumer = DefaultMQPushConsumer("push-group", address)
        consumer.subscribe(TOPIC, "*")

        def listen(msgs):
            received.extend(message.body for message in msgs)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        consumer.register_message_listener(listen)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.poll_name_server_interval = NEVER_MS
    return consumer


def bodies(consumer, received):
    if isinstance(consumer, DefaultLitePullConsumer):
        received.extend(message.body for message in consumer.poll(100))
    return received


def send(address, body):
    with DefaultMQProducer("retries-producer", address) as producer:
        wait_until(lambda: sent(producer, body), 60_000, "the message is sent")


def sent(producer, body):
    try:
        producer.send(Message(TOPIC, body.encode()))
    except MQClientException:  # the route has no master yet
        return False
    return True


class Clock:
    """Scheduled tasks, and a time that moves to the next one."""

    def __init__(self):
        self.now_ns = 10 ** 15
        self.tasks = []
        self._order = count()

    def later(self, task, delay_ms):
        self.tasks.append((self.now_ns + int(delay_ms * 1e6), next(self._order), task))

    def run(self):
        """Run all tasks in order."""
        while self.tasks:
            item = min(self.tasks)
            self.tasks.remove(item)
            self.now_ns = max(self.now_ns, item[0])
            item[2]()


@pytest.fixture
def setting(monkeypatch):
    """A clock, retries, the times in ms at which the route was asked for, and what happens then."""
    clock = Clock()
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic_ns=lambda: clock.now_ns))
    routes = ClientRoutes(ClientConfig(), "client", None, {}, {})
    routes.broker_addr_table["broker-a"] = {0: "old:1", 1: "new:1"}
    start, asked, change = clock.now_ns, [], []

    def ask(topic):
        assert topic == TOPIC
        asked.append((clock.now_ns - start) // 1_000_000)
        for each in change:
            each(asked[-1])

    monkeypatch.setattr(routes, "update_topic_route_info_from_name_server", ask)
    wrapper = PullAPIWrapper(SimpleNamespace(pull_message_async=lambda *_: None), routes, "group", False)
    for queue in QUEUES:
        wrapper.pull_kernel_impl(queue, "*", "TAG", 0, 0, 32, 0, 0, 0, 0, SimpleNamespace())
    retries = PullRetries(wrapper, routes)
    pulled = []

    def fail(error, queue=QUEUES[0]):
        retries.repeat(queue, error, lambda: pulled.append((clock.now_ns - start) // 1_000_000), 1_000, clock.later)

    return SimpleNamespace(clock=clock, routes=routes, asked=asked, change=change, pulled=pulled, fail=fail)


def test_pauses_between_questions_grow(setting):
    setting.fail(RemotingConnectException("old:1"))
    setting.clock.run()
    assert (setting.asked, setting.pulled) == ([0, 20, 60, 140, 300, 620], [1_000])
    setting.fail(RemotingConnectException("old:1"))
    setting.clock.run()
    assert (setting.asked[6:], setting.pulled) == ([1_260], [1_000, 2_000])


def test_pulls_as_soon_as_the_route_changes(setting):
    def change(now_ms):
        if now_ms >= 60:
            setting.routes.broker_addr_table["broker-a"] = {0: "new:1", 1: "old:1"}

    setting.change.append(change)
    setting.fail(MQClientException("unknown reason"))
    setting.clock.run()
    assert (setting.asked, setting.pulled) == ([0, 20, 60], [60])


def test_queues_of_a_broker_ask_once(setting):
    for queue in QUEUES:
        setting.fail(RemotingConnectException("old:1"), queue)
    setting.clock.run()
    assert setting.asked == [0, 20, 60, 140, 300, 620]
    assert setting.pulled == [1_000] * len(QUEUES)


@pytest.mark.parametrize("error", [MQClientException("no route"), ValueError("an answer that is no route")])
def test_failing_name_server_is_asked_no_more_often(setting, error):
    def refuse(_now_ms):
        raise error

    setting.change.append(refuse)
    setting.fail(RemotingConnectException("old:1"))
    setting.clock.run()
    assert (setting.asked, setting.pulled) == ([0, 20, 60, 140, 300, 620], [1_000])


@pytest.mark.parametrize("addresses", [{0: "old:1"}, {}])
def test_broker_without_replicas_is_not_asked_for(setting, addresses):
    setting.routes.broker_addr_table["broker-a"] = addresses
    setting.fail(RemotingConnectException("old:1"))
    setting.clock.run()
    assert (setting.asked, setting.pulled) == ([], [1_000])


@pytest.mark.parametrize(("code", "asks"), [
    (response_code.SERVICE_NOT_AVAILABLE, True), (response_code.NO_PERMISSION, False),
    (response_code.SUBSCRIPTION_NOT_EXIST, False)])
def test_answers_of_a_running_broker(setting, code, asks):
    setting.fail(MQBrokerException(code, "refused", "old:1"))
    setting.clock.run()
    assert (bool(setting.asked), setting.pulled) == (asks, [1_000])
