"""Only a broker that says so has no offset of a group; whatever else it says, the group waits."""
from types import SimpleNamespace

import pytest

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.consumer.offset_stores import ReadOffsetType, RemoteBrokerOffsetStore
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.default_lite_pull_consumer_impl import DefaultLitePullConsumerImpl
from rmqha.client.impl.consumer.rebalance import RebalanceLitePullImpl, RebalancePushImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.wait import wait_until

MQ = MessageQueue("T", "a", 0)
CODES = sorted(value for name, value in vars(response_code).items() if name.isupper() and isinstance(value, int)
               and value != response_code.SUCCESS)
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def store_of(error: Exception) -> RemoteBrokerOffsetStore:
    """One whose broker fails like that."""
    def query(_addr, _header, _timeout_ms):
        raise error

    found = SimpleNamespace(broker_addr="127.0.0.1:1")
    routes = SimpleNamespace(find_broker_address_in_subscribe=lambda *_args, **_named: found)
    return RemoteBrokerOffsetStore(SimpleNamespace(query_consumer_offset=query), routes, "g")


@pytest.mark.parametrize("code", CODES)
def test_only_not_found_is_no_offset(code):
    store = store_of(MQBrokerException(code, "no", "127.0.0.1:1"))
    expected = -1 if code == response_code.QUERY_NOT_FOUND else -2
    assert store.read_offset(MQ, ReadOffsetType.READ_FROM_STORE) == expected
    assert store.read_offset(MQ, ReadOffsetType.MEMORY_FIRST_THEN_STORE) == expected


@pytest.mark.parametrize("kind", [RebalancePushImpl, RebalanceLitePullImpl])
@pytest.mark.parametrize(("error", "begin"), [
    (MQBrokerException(response_code.QUERY_NOT_FOUND, "no", "a"), 5_000_000),
    (MQBrokerException(response_code.SYSTEM_BUSY, "busy", "a"), -1),
    (MQBrokerException(response_code.NO_PERMISSION, "no", "a"), -1),
    (RemotingTimeoutException("a", 5000), -1), (MQClientException("no broker"), -1)], ids=repr)
def test_rebalance_begins_anew_only_without_an_offset(kind, error, begin):
    settings = SimpleNamespace(consume_from_where=LAST, consume_timestamp="")
    rebalance = kind(settings, lambda *_args: None)
    rebalance.offset_store = store_of(error)
    rebalance.mq_client_factory = SimpleNamespace(mq_admin_impl=SimpleNamespace(max_offset=lambda _mq: 5_000_000))
    assert rebalance.compute_pull_from_where_with_exception(MQ) == begin


def test_pull_consumers_say_that_the_broker_does_not():
    consumer = DefaultMQPullConsumer("g", "127.0.0.1:1")
    impl = consumer.default_mq_pull_consumer_impl
    impl._is_running, impl.offset_store = lambda: None, store_of(MQBrokerException(response_code.SYSTEM_BUSY, "", "a"))
    with pytest.raises(MQClientException, match="Fetch consume offset"):
        consumer.fetch_consume_offset(MQ, from_store=True)
    lite = SimpleNamespace(check_service_state=lambda: None, offset_store=impl.offset_store)
    with pytest.raises(MQClientException, match="Fetch consume offset"):
        DefaultLitePullConsumerImpl.committed(lite, MQ)


class BusyAtFirst:
    """Stands before a broker's processor and turns the first requests away."""

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
