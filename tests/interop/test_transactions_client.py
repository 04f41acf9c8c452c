"""rmqha's producers and consumers on a real broker: transactions, order, requests, SQL92."""
import threading
from collections import Counter, defaultdict

import pytest

from rmqha.client import results
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import LocalTransactionState, TransactionListener
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

LONG_MS = 60_000
DONE = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@pytest.fixture(scope="module")
def real(module_nodes, tmp_path_factory):
    """A real broker that checks transactions each second."""
    folder = tmp_path_factory.mktemp("real")
    namesrv = NamesrvNode("rmqha", folder / "namesrv")
    broker = BrokerNode("java", folder / "broker", namesrv.address, shared_jvm=True, enablePropertyFilter="true",
                        transactionCheckInterval=1000, transactionTimeOut=1000)
    module_nodes += [namesrv, broker]
    namesrv.start()
    return broker.start()


@pytest.fixture(scope="module")
def sender(real):
    """A producer; the topics that the tests use are there."""
    with DefaultMQProducer("senders", real.namesrv) as producer:
        for topic in ("Transactions", "Ordered", "Requests", "Selected"):
            producer.admin.create_topic("TBW102", topic, 4)
        for topic in ("Transactions", "Ordered", "Requests", "Selected"):
            wait_until(lambda: queues_of(producer, topic) == 4, LONG_MS, f"queues of {topic}")
        yield producer


def queues_of(producer, topic):
    try:
        return len(producer.fetch_publish_message_queues(topic))
    except MQClientException:
        return 0


def reading(real, topic, listener, expression="*", kind=None):
    consumer = DefaultMQPushConsumer(f"{topic}-readers", real.namesrv, listener, client_manager=MQClientManager())
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic, expression, kind)
    return consumer


class Outcomes(TransactionListener):
    """The argument of the send is the outcome; what has none is committed when the broker asks. It may ask for
    others as well, before it has their outcome."""

    def execute_local_transaction(self, msg, arg):
        return arg

    def check_local_transaction(self, msg):
        known = LocalTransactionState[msg.body.decode()]
        return LocalTransactionState.COMMIT_MESSAGE if known is LocalTransactionState.UNKNOW else known


def test_transactions_of_rmqhas_producer_end_on_a_real_broker(real, sender):
    bodies, lock = Counter(), threading.Lock()

    def listener(messages):
        with lock:
            bodies.update(message.body for message in messages)
        return DONE

    with reading(real, "Transactions", listener), \
            TransactionMQProducer("outcomes", real.namesrv, Outcomes(), client_manager=MQClientManager()) as producer:
        for state in LocalTransactionState:
            result = producer.send_message_in_transaction(Message("Transactions", state.name.encode()), state)
            assert result.local_transaction_state is state
        wait_until(lambda: len(bodies) == 2, LONG_MS, "what was committed, at once and when asked")
    assert set(bodies) == {b"COMMIT_MESSAGE", b"UNKNOW"}


class InOrder(MessageListenerOrderly):
    """Keeps the bodies of each queue; one of them has to come twice."""

    def __init__(self):
        self.seen = defaultdict(list)

    def consume_message(self, msgs, context):
        seen = self.seen[context.message_queue]
        seen.extend(int(msg.body) for msg in msgs)
        again = seen[-1] == 17 and seen.count(17) == 1
        context.suspend_current_queue_time_millis = 10
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if again else ConsumeOrderlyStatus.SUCCESS


def test_rmqhas_orderly_consumer_locks_queues_of_a_real_broker(real, sender):
    queues, listener = sorted(sender.fetch_publish_message_queues("Ordered")), InOrder()
    for number in range(100):
        sender.send(Message("Ordered", b"%d" % number), queue=queues[number % 4])
    with reading(real, "Ordered", listener):
        wait_until(lambda: sum(map(len, listener.seen.values())) == 101, LONG_MS, "all messages, one of them twice")
    assert sorted(listener.seen.values()) == [
        sorted([*range(first, 100, 4)] + ([17] if first == 1 else [])) for first in range(4)]


def test_request_and_reply_of_rmqhas_client_through_a_real_broker(real, sender):
    def listener(messages):
        for message in messages:
            sender.send(results.create_reply_message(message, message.body[::-1]))
        return DONE

    with reading(real, "Requests", listener), \
            DefaultMQProducer("askers", real.namesrv, client_manager=MQClientManager()) as asker:
        for body in (b"abc", b"x" * 10_000 + b"y"):
            assert asker.request(Message("Requests", body), LONG_MS).body == body[::-1]


def test_rmqhas_consumer_selects_by_sql_on_a_real_broker(real, sender):
    seen = []

    def listener(messages):
        seen.extend(int(message.body) for message in messages)
        return DONE

    for number in range(40):
        message = Message("Selected", b"%d" % number)
        message.put_user_property("number", str(number))
        sender.send(message)
    with reading(real, "Selected", listener, "number BETWEEN 10 AND 19", "SQL92"):
        wait_until(lambda: len(seen) == 10, LONG_MS, "the selected messages")
    assert sorted(seen) == list(range(10, 20))
    with pytest.raises(MQClientException, match="Encountered"), \
            reading(real, "Selected", listener, "number BETWEEN", "SQL92"):
        pass
