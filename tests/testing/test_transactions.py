"""Transactions: outcomes and checks under a test's control, and what consumers get of them."""
import pytest

from rmqha import LocalTransactionState, Message, TransactionListener, TransactionProducer
from rmqha.testing import EmbeddedError, EmbeddedRocketMQ, NotSupportedError, RemoteRocketMQ
from rmqha.testing.isolated_topic import IsolatedTopic
from rmqha.testing.transactions import Transactions
from tests.testing.support import JAVA, JAVA_5, OURS, bodies

COMMIT, ROLLBACK, UNKNOWN = (LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE,
                             LocalTransactionState.UNKNOW)
in_each_backend = pytest.mark.parametrize("cluster", [*OURS, JAVA, JAVA_5], indirect=True)


@pytest.fixture(scope="module")
def started():
    """A cluster of one master, shared by the module."""
    with EmbeddedRocketMQ() as mq:
        yield mq


@pytest.fixture
def tx(started, request):
    """Transactions in a clean cluster."""
    started.reset()
    transactions = Transactions(started, request.node.name)
    yield transactions
    transactions.close()


@in_each_backend
def test_consumers_get_what_is_committed_at_the_send_or_after_a_check(cluster):
    tx = Transactions(cluster, "consumers get")
    topic = IsolatedTopic.create(cluster, "consumers get")
    for body, outcome in ((b"committed", COMMIT), (b"rolled back", ROLLBACK)):
        tx.send(Message(topic, body), outcome)
    late, never = (tx.send(Message(topic, body), UNKNOWN) for body in (b"late", b"never"))
    failed = tx.send(Message(topic, b"failed"), ValueError("the local transaction"), on_check=COMMIT)
    tx.check()
    assert {one.body for one in tx.open(topic)} - {b"failed"} == {b"late", b"never"}
    assert all(one.checks for one in tx.open(topic))
    tx.answer(late, COMMIT)
    tx.answer(never, ROLLBACK)
    assert tx.check() >= 2
    tx.settle(topic)
    assert sorted(bodies(tx.visible(topic))) == [b"committed", b"failed", b"late"]
    assert sorted(bodies(tx.consume(topic))) == [b"committed", b"failed", b"late"]
    assert len(tx.listener.executed) == 5
    assert {late.msg_id, never.msg_id, failed.msg_id} == {one.transaction_id for one in tx.listener.checked}
    tx.close()
    topic.delete()


def test_each_check_asks_and_the_answers_can_change(tx):
    tx.mq.create_topic("orders")
    result = tx.send(Message("orders", b"1"), UNKNOWN)
    for count in (1, 2, 3):
        assert tx.check() == 1
        assert len(tx.listener.checked) >= count and tx.open()[0].checks >= count
    tx.listener.on_check = COMMIT  # applies only to messages without an answer of their own
    tx.check()
    assert len(tx.open("orders")) == 1 and tx.open("other") == []
    tx.answer(result.msg_id, RuntimeError("still unknown"))
    tx.check()
    assert tx.visible("orders") == []
    tx.answer(result, COMMIT)
    tx.check()
    tx.settle()
    assert bodies(tx.visible("orders")) == [b"1"] and tx.check() == 0


def test_message_that_is_immune_is_left_out_of_checks(tx):
    tx.mq.create_topic("orders")
    message = Message("orders", b"1")
    message.put_user_property("CHECK_IMMUNITY_TIME_IN_SECONDS", "3600")
    tx.send(message, UNKNOWN)
    assert tx.check() == 0 and [one.is_immune for one in tx.open()] == [True]


def test_broker_gives_up_after_fifteen_checks(tx):
    tx.mq.create_topic("orders")
    tx.send(Message("orders", b"1"), UNKNOWN)
    assert tx.check() == 1
    # The broker may give up between `open` and `check`.
    while tx.open():
        tx.check()
    assert tx.visible("orders") == [] and len(tx.listener.checked) == 15
    assert bodies(tx.visible("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"1"]


class Remembering(TransactionListener):
    """A user's listener, whose outcomes outlive its producer."""

    outcome = UNKNOWN

    def execute_local_transaction(self, msg, arg):
        return UNKNOWN

    def check_local_transaction(self, msg):
        return self.outcome


def test_producer_that_has_crashed_is_replaced_by_another_of_its_group(tx):
    tx.mq.create_topic("orders")
    listener = Remembering()
    with TransactionProducer("shop", tx.namesrv_addr, listener) as producer:
        producer.send_message_in_transaction(Message("orders", b"1"))
    with pytest.raises(EmbeddedError, match="knows no producer of the group shop; start one"):
        tx.check(timeout_s=0.05)
    with pytest.raises(EmbeddedError, match="there are open transactions: b'1' of orders, checked 0 times"):
        tx.settle(timeout_s=0.01)
    listener.outcome = COMMIT
    with TransactionProducer("shop", tx.namesrv_addr, listener, heartbeat_broker_interval=100):
        tx.check()
        tx.settle()
    assert bodies(tx.consume("orders")) == [b"1"]


def test_brokers_check_at_their_own_times_again_afterwards(tx):
    config = tx.mq.broker("broker-a").controller.broker_config
    before = config.transactionTimeOut
    tx.mq.create_topic("orders")
    tx.send(Message("orders", b"1"), UNKNOWN, on_check=COMMIT)
    tx.check()
    assert config.transactionTimeOut == before == 6_000


def test_existing_cluster_is_not_hurried(tx):
    remote = RemoteRocketMQ(tx.namesrv_addr)
    with pytest.raises(NotSupportedError, match="was not started by this test"):
        Transactions(remote, "remote").check()
    remote.close()


def test_answer_needs_a_transaction(tx):
    with pytest.raises(EmbeddedError, match="was not sent in a transaction"):
        tx.answer(Message("orders", b"1"), COMMIT)
