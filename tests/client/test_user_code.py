"""What listeners, hooks, selectors and callbacks do wrong is said once for each cause, counted, and does no harm."""
import logging
import signal
import threading
from types import SimpleNamespace

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import LocalTransactionState
from rmqha.client.impl.consumer.pulling import ConsumerHooks
from rmqha.client.impl.mq_client_instance import MQClientInstance
from rmqha.client.impl.transaction_mq_producer_impl import TransactionMQProducerImpl
from rmqha.client.life import CauseLog
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.request_response_future import RequestFutureHolder, RequestResponseFuture
from rmqha.client.results import SendCallback
from rmqha.common import mix_all
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere
from tests.support.own_threads import own_threads
from tests.support.wait import wait_until


def warnings(caplog, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records
            if record.levelno >= logging.WARNING and text in record.getMessage()]


def test_each_cause_is_said_once_and_counted(caplog):
    causes = CauseLog(logging.getLogger("RocketmqClient"))

    def fail(kind):
        raise kind("number")

    for _ in range(3):
        for kind in (ValueError, KeyError):
            try:
                fail(kind)
            except Exception as error:
                causes.raised(error, "listener of %s", "g")
        causes.returned(None, "returned null")
    assert len(warnings(caplog, "listener of g")) == 2 and len(warnings(caplog, "returned null")) == 1
    assert sorted(causes.counts.values()) == [3, 3, 3]


class Bad(MessageListenerOrderly):
    """Does what `outcomes` say, in turn, and then well."""

    def __init__(self, outcomes, good) -> None:
        self.outcomes, self.good, self.calls = list(outcomes), good, 0

    def consume_message(self, _messages, _context=None):
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else self.good
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrently", "orderly"])
def test_bad_listener_is_said_once_and_gets_its_messages_again(servers, caplog, is_orderly):
    topic, group = servers.unique("Bad"), servers.unique("bad")
    good = ConsumeOrderlyStatus.SUCCESS if is_orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    outcomes = [ValueError("x"), ValueError("y"), SystemExit(1), None, None, True, "CONSUME_SUCCESS"]
    bad = Bad(outcomes, good)
    with DefaultMQProducer(servers.unique("p"), servers.namesrv) as producer:
        for name in (topic, mix_all.get_retry_topic(group)):  # it hears of one made later within 50 s only
            producer.admin.create_topic("TBW102", name, 1)
        for number in range(4):
            producer.send(Message(topic, b"%d" % number))
    listener = bad if is_orderly else lambda messages: bad.consume_message(messages)
    consumer = DefaultMQPushConsumer(group, servers.namesrv, listener)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.consume_thread_min = consumer.consume_thread_max = 1
    consumer.suspend_current_queue_time_millis = 10
    consumer.subscribe(topic, "*")
    with consumer:
        wait_until(lambda: bad.calls >= len(outcomes) + 4, what="all messages, at last")
        causes = consumer.default_mq_push_consumer_impl.consume_message_service.causes
    assert len(warnings(caplog, "consumeMessage exception")) == 2  # ValueError and SystemExit
    assert len(warnings(caplog, "no Consume")) == 3  # None, bool, str
    assert sum(causes.counts.values()) == len(outcomes)


def test_bad_selector_send_callback_and_hook_are_said_once(servers, caplog):
    topic, told = servers.unique("BadCallback"), []
    with DefaultMQProducer(servers.unique("p"), servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", topic, 1)
        impl = producer.default_mq_producer_impl

        def on_success(_result):
            told.append(threading.current_thread())
            raise RuntimeError("callback")

        for _ in range(5):
            producer.send_async(Message(topic, b"b"), SendCallback(on_success))
        wait_until(lambda: len(told) == 5)
        for answer in (None, 3):
            for _ in range(3):
                with pytest.raises(MQClientException, match="select message queue return"):
                    impl.select_queue(Message(topic, b"b"), lambda *_args, answer=answer: answer, None)
    assert len(warnings(caplog, "send callback exception")) == 1
    assert len(warnings(caplog, "select message queue return")) == 2
    hooks = ConsumerHooks()

    def broken(_context):
        raise OSError("hook")

    for _ in range(3):
        hooks._call(broken, SimpleNamespace())
    assert len(warnings(caplog, "failed to execute")) == 1


@pytest.mark.parametrize("answer", [None, True, "COMMIT_MESSAGE", RuntimeError("listener"), SystemExit(1)], ids=repr)
def test_bad_transaction_listener_leaves_the_outcome_open(caplog, answer):
    def listener(_msg, _arg):
        if isinstance(answer, BaseException):
            raise answer
        return answer

    causes = CauseLog(logging.getLogger("RocketmqClient"))
    impl = TransactionMQProducerImpl.__new__(TransactionMQProducerImpl)
    impl.hooks = SimpleNamespace(causes=causes)
    bad = SimpleNamespace(execute_local_transaction=listener)
    for _ in range(3):
        assert impl._execute(Message("T", b"b"), bad, None)[0] is LocalTransactionState.UNKNOW
    assert list(causes.counts.values()) == [3]
    assert len(warnings(caplog, "executeLocalTransaction")) == 1


def test_requests_that_wait_are_told_when_the_client_ends():
    holder, errors, causes = RequestFutureHolder(), [], CauseLog(logging.getLogger("RocketmqClient"))

    def on_exception(error):
        errors.append(error)
        raise ValueError("callback")

    for number in range(3):
        callback = SimpleNamespace(on_exception=on_exception)
        holder.request_future_table[str(number)] = RequestResponseFuture(str(number), 1000, callback, causes)
    holder.fail_all(MQClientException("over"))
    assert len(errors) == 3 and not holder.request_future_table and list(causes.counts.values()) == [3]


def test_each_asynchronous_send_is_answered_once_when_the_client_ends(servers):
    topic, answers = servers.unique("Ending"), []
    producer = DefaultMQProducer(servers.unique("p"), servers.namesrv)
    producer.start()
    producer.admin.create_topic("TBW102", topic, 1)
    producer.send(Message(topic, b"first"))
    for number in range(200):
        def answered(_result_or_error, number=number):
            answers.append(number)

        producer.send_async(Message(topic, b"b"), SendCallback(answered, answered))
    producer.shutdown()
    wait_until(lambda: len(answers) >= 200, what="an answer to each")
    assert sorted(answers) == list(range(200))


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("make", [
    lambda: DefaultMQProducer("interrupted", "127.0.0.1:9"),
    lambda: DefaultMQPushConsumer("interrupted", "127.0.0.1:9",
                                  lambda _messages: ConsumeConcurrentlyStatus.CONSUME_SUCCESS),
], ids=["producer", "consumer"])
def test_interrupt_while_a_client_starts_leaves_no_thread(make, monkeypatch):
    client, before = make(), own_threads()
    real = MQClientInstance.start

    def start(factory):
        real(factory)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(MQClientInstance, "start", start)
    try:
        with pytest.raises(KeyboardInterrupt):
            client.start()
        assert own_threads() - before
    finally:
        client.shutdown()
    wait_until(lambda: not own_threads() - before, 60_000, "its threads have ended")
