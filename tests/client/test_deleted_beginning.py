"""A new group on a topic whose beginning is deleted."""
import pytest

from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.exception import MQClientException
from rmqha.client.impl.consumer import rebalance
from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.subscriptions import ConsumeFromWhere
from tests.support.wait import wait_until

LONG_MS = 120_000
COUNT = 30


@pytest.fixture(scope="module")
def shortened(servers):
    """A topic of one queue, and the numbers of the messages that it still has."""
    topic = servers.unique("Shortened")
    broker = servers.brokers["broker-a"]
    with DefaultMQProducer(servers.unique("maker"), servers.namesrv, compress_msg_body_over_howmuch=1 << 22) \
            as producer:
        producer.admin.create_topic("TBW102", topic, 1)
        queue = MessageQueue(topic, "broker-a", 0)
        for number in range(COUNT):
            producer.send(Message(topic, b"%d " % number + b"-" * 300_000), queue=queue)
        store = broker.message_store
        wait_until(lambda: store.get_max_offset_in_queue(topic, 0) == COUNT, LONG_MS, "dispatch")
        store.commit_log.delete_expired_file(0, 0, 0, True)
        store.get_consume_queue(topic, 0).correct_min_offset(store.commit_log.get_min_offset())
        first = producer.admin.min_offset(queue)
        assert 0 < first < COUNT
    return topic, list(range(first, COUNT))


def _numbers(messages):
    return [int(bytes(message.body).split()[0]) for message in messages if message.queue_id == 0
            and message.broker_name == "broker-a"]


def _received(servers, topic, wanted):
    came = []
    consumer = DefaultMQPushConsumer(servers.unique("new"), servers.namesrv,
                                     lambda messages: came.extend(_numbers(messages)))
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    with consumer:
        wait_until(lambda: len(came) >= len(wanted), LONG_MS, "the messages that are left")
    return sorted(came)


@pytest.fixture
def corrections(monkeypatch):
    """How often a queue was dropped for 10 s because its offset was moved, as the original's clients do."""
    made = []
    real = DefaultMQPushConsumerImpl._offset_illegal

    def note(*arguments):
        made.append(arguments)
        real(*arguments)
    monkeypatch.setattr(DefaultMQPushConsumerImpl, "_offset_illegal", note)
    return made


def test_client_that_begins_at_0_as_the_originals_do_continues_without_a_correction(
        servers, shortened, corrections, monkeypatch):
    topic, left = shortened
    monkeypatch.setattr(rebalance, "_beginning", lambda mq, admin: 0)
    assert _received(servers, topic, left) == left
    assert corrections == []


def test_own_client_asks_for_the_first_offset(servers, shortened, corrections):
    topic, left = shortened
    store = servers.brokers["broker-a"].message_store
    before = store.get_max_offset_in_queue("OFFSET_MOVED_EVENT", 0)
    assert _received(servers, topic, left) == left
    assert corrections == [] and store.get_max_offset_in_queue("OFFSET_MOVED_EVENT", 0) == before


def test_lite_pull_consumer_asks_for_it_too(servers, shortened):
    topic, left = shortened
    consumer = DefaultLitePullConsumer(servers.unique("lite"), servers.namesrv)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    came = []
    with consumer:
        wait_until(lambda: came.extend(_numbers(consumer.poll(1000))) or len(came) >= len(left), LONG_MS, "messages")
    assert sorted(came) == left


@pytest.mark.parametrize("answer, begins", [(0, 0), (7, 7), (-1, 0), (MQClientException("no master"), 0)])
@pytest.mark.parametrize("topic, where", [
    ("T", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET), ("%RETRY%g", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    ("%RETRY%g", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)])
def test_where_a_new_group_begins(answer, begins, topic, where):
    class Admin:
        @staticmethod
        def min_offset(mq):
            if isinstance(answer, Exception):
                raise answer
            return answer
    assert rebalance.first_offset(MessageQueue(topic, "b", 0), where, "", Admin()) == begins
