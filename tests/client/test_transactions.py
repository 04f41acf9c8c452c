"""Transactions with rmqha's own servers in this process."""
import threading

import pytest

from rmqha.client.exception import MQClientException
from rmqha.client.hooks import LocalTransactionState, TransactionListener
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from tests.client.test_client_with_servers import OK, Seen, consuming, make_topic, producer  # noqa: F401
from tests.support.wait import wait_until

COMMIT, ROLLBACK, UNKNOW = (LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE,
                            LocalTransactionState.UNKNOW)
LONG_MS = 60_000


class Outcomes(TransactionListener):
    """Says what the argument of the send is; an exception is raised. Asked later, it says commit."""

    def __init__(self):
        self.asked = []
        self._lock = threading.Lock()

    def execute_local_transaction(self, msg, arg):
        if isinstance(arg, Exception):
            raise arg
        return arg

    def check_local_transaction(self, msg):
        with self._lock:
            self.asked.append((msg.topic, bytes(msg.body), msg.flag, msg.transaction_id))
        return COMMIT


@pytest.fixture
def checking(servers):
    """The brokers ask after a second, each second."""
    configs = [broker.broker_config for broker in servers.brokers.values()]
    for config in configs:
        config.transactionTimeOut = config.transactionCheckInterval = 1000
    for broker in servers.brokers.values():
        broker.transactional_message_check_service.wakeup()
    yield
    for config in configs:
        config.transactionTimeOut, config.transactionCheckInterval = 6_000, 60_000


def test_only_what_is_committed_arrives(servers, make_topic):
    topic, listener, seen = make_topic("Trans"), Outcomes(), Seen()
    with consuming(servers, servers.unique("trans_readers"), topic, seen):
        with TransactionMQProducer(servers.unique("trans"), servers.namesrv, listener) as transactions:
            for body, outcome in ((b"yes", COMMIT), (b"no", ROLLBACK), (b"big" * 4000, COMMIT)):
                result = transactions.send_message_in_transaction(Message(topic, body, tags="T"), outcome)
                assert (result.send_status, result.local_transaction_state) == (SendStatus.SEND_OK, outcome)
                assert result.message_queue.topic == topic
            wait_until(lambda: len(seen.bodies) == 2, LONG_MS, "the committed messages")
    assert dict(seen.bodies) == {b"yes": 1, b"big" * 4000: 1}
    assert {msg.tags for msg in seen.messages} == {"T"}


def test_broker_asks_about_what_nobody_ended(servers, make_topic, checking):
    topic, listener, seen = make_topic("Late"), Outcomes(), Seen()
    with consuming(servers, servers.unique("late_readers"), topic, seen):
        with TransactionMQProducer(servers.unique("late"), servers.namesrv, listener) as transactions:
            unsure = Message(topic, b"unsure", flag=7)
            transactions.send_message_in_transaction(unsure, UNKNOW)
            failed = transactions.send_message_in_transaction(Message(topic, b"failed"), RuntimeError("disk full"))
            assert failed.local_transaction_state is UNKNOW
            wait_until(lambda: len(seen.bodies) == 2, LONG_MS, "the messages that were asked about")
    assert {asked[:3] for asked in listener.asked} == {(topic, b"unsure", 7), (topic, b"failed", 0)}
    assert unsure.transaction_id in {asked[3] for asked in listener.asked}
    assert {msg.flag for msg in seen.messages if msg.body == b"unsure"} == {7}


def test_listener_is_needed(servers):
    with TransactionMQProducer(servers.unique("none"), servers.namesrv) as transactions:
        with pytest.raises(MQClientException, match="TransactionListener is null"):
            transactions.send_message_in_transaction(Message("Any", b"x"))
