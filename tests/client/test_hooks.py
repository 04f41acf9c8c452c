"""Hooks into sends, pulls and listeners; traces; and errors in users' code."""
import logging
import signal
import threading
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.client import trace
from rmqha.client.async_trace_dispatcher import QUEUE_CAPACITY, AsyncTraceDispatcher
from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    ConsumeReturnType,
    MessageListenerOrderly,
    MessageQueueListener,
)
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus as Status
from rmqha.client.consumer.mq_pull_consumer_schedule_service import MQPullConsumerScheduleService
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import (
    CheckForbiddenHook,
    ConsumeMessageHook,
    FilterMessageHook,
    LocalTransactionState,
    SendMessageHook,
)
from rmqha.client.impl.consumer.pulling import ConsumerHooks
from rmqha.client.impl.mq_client_instance import MQClientInstance
from rmqha.client.impl.transaction_mq_producer_impl import TransactionMQProducerImpl
from rmqha.client.life import CauseLog
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.request_response_future import RequestFutureHolder, RequestResponseFuture
from rmqha.client.results import CommunicationMode, SendCallback
from rmqha.client.trace import TraceBean, TraceContext, TraceDispatcherType, TraceType, TraceView
from rmqha.common import mix_all
from rmqha.common.message.message import Message, MessageType
from rmqha.common.protocol import response_code
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.exception import RemotingTimeoutException
from tests.support.wait import own_threads, wait_until

# Hooks that users can add to sends, pulls and calls of a listener.


class Sends(SendMessageHook):
    """Records sends, and fails at each."""

    def __init__(self):
        self.before, self.after = [], []

    def hook_name(self):
        return "sends"

    def send_message_before(self, context):
        self.before.append(context)
        raise RuntimeError("a failing hook must do no harm")

    def send_message_after(self, context):
        self.after.append((context.send_result, context.exception))


class Forbids(CheckForbiddenHook):
    """Forbids bodies that ask for it."""

    def hook_name(self):
        return "forbids"

    def check_forbidden(self, context):
        if context.message.body == b"forbidden":
            raise MQClientException("not this one")


def test_send_hooks_see_every_kind_of_send(servers):
    topic, hook, results = servers.unique("Hooked"), Sends(), []
    producer = DefaultMQProducer(servers.unique("hooked"), servers.namesrv)
    producer.register_send_message_hook(hook)
    with producer:
        first = producer.send(Message(topic, b"x"))
        producer.send_oneway(Message(topic, b"x"))
        delayed = Message(topic, b"x")
        delayed.delay_time_level = 1
        producer.send_async(delayed, SendCallback(results.append))
        wait_until(lambda: results and len(hook.after) == 3, 60_000, "the asynchronous answer")
    assert [context.communication_mode for context in hook.before] == [
        CommunicationMode.SYNC, CommunicationMode.ONEWAY, CommunicationMode.ASYNC]
    assert [context.msg_type for context in hook.before] == [
        MessageType.Normal_Msg, MessageType.Normal_Msg, MessageType.Delay_Msg]
    assert hook.after == [(first, None), (None, None), (results[0], None)]


def test_hook_can_forbid_a_send(servers):
    topic = servers.unique("Hooked")
    producer = DefaultMQProducer(servers.unique("hooked"), servers.namesrv)
    producer.register_check_forbidden_hook(Forbids())
    with producer:
        producer.send(Message(topic, b"allowed"))
        with pytest.raises(MQClientException) as raised:
            producer.send(Message(topic, b"forbidden"))
    assert "not this one" in str(raised.value.__cause__)


def test_consume_hooks_see_outcomes_and_filter_hooks_remove_messages(servers):
    topic, got, outcomes = servers.unique("Hooked"), [], []

    class Consumes(ConsumeMessageHook):
        def hook_name(self):
            return "consumes"

        def consume_message_after(self, context):
            outcomes.append((bytes(context.msg_list[0].body), context.success, context.props["ConsumeContextType"]))

    class Filters(FilterMessageHook):
        def hook_name(self):
            return "filters"

        def filter_message(self, context):
            context.msg_list[:] = [msg for msg in context.msg_list if msg.body != b"secret"]

    def listener(messages):
        body = bytes(messages[0].body)
        got.append(body)
        if body == b"raise":
            raise ValueError("the user's fault")
        return {b"null": None, b"later": Status.RECONSUME_LATER}.get(body, Status.CONSUME_SUCCESS)

    with DefaultMQProducer(servers.unique("hooked"), servers.namesrv) as producer:
        for body in (b"secret", b"fine", b"raise", b"null", b"later"):
            producer.send(Message(topic, body))
    consumer = DefaultMQPushConsumer(servers.unique("hooked"), servers.namesrv, listener)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.register_consume_message_hook(Consumes())
    consumer.register_filter_message_hook(Filters())
    consumer.subscribe(topic)
    with consumer:
        wait_until(lambda: len(set(outcomes)) >= 4, 60_000, "four outcomes")
    assert set(outcomes) == {(b"fine", True, "SUCCESS"), (b"raise", False, "EXCEPTION"), (b"null", False, "RETURNNULL"),
                             (b"later", False, "FAILED")}
    assert b"secret" not in got


def test_pull_consumer_is_notified_of_its_queues_and_sends_back(servers):
    topic, group, told = servers.unique("Hooked"), servers.unique("pulling"), []

    class Listener(MessageQueueListener):
        def message_queue_changed(self, topic, mq_all, mq_divided):
            told.append((topic, mq_all == mq_divided, len(mq_divided)))

    with DefaultMQProducer(servers.unique("hooked"), servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", topic, 1)
        sent = producer.send(Message(topic, b"back"))
    consumer = DefaultMQPullConsumer(group, servers.namesrv)
    consumer.register_message_queue_listener(topic, Listener())
    with consumer:
        wait_until(lambda: told, 60_000, "the share")
        assert told[0] == (topic, True, 2)
        [msg] = consumer.pull(sent.message_queue, "*", 0, 32).msg_found_list
        consumer.send_message_back(msg, 1)
        retry = f"%RETRY%{group}"

        def came_again():
            try:
                queues = consumer.fetch_subscribe_message_queues(retry)
            # Not known at the name server yet.
            except MQClientException:
                return False
            return any(consumer.pull(queue, "*", 0, 32).msg_found_list for queue in queues)
        wait_until(came_again, 60_000, "the message in the group's retry topic")


def test_scheduled_function_pulls_each_allocated_queue(servers):
    topic, group, seen, calls = servers.unique("Scheduled"), servers.unique("scheduled"), [], []

    def pull(queue, context):
        calls.append(queue)
        if len(calls) == 1:
            raise ValueError("the user's fault; the queue comes again")
        offset = max(0, context.pull_consumer.fetch_consume_offset(queue, from_store=False))
        result = context.pull_consumer.pull(queue, "*", offset, 32)
        seen.extend(bytes(msg.body) for msg in result.msg_found_list)
        context.pull_consumer.update_consume_offset(queue, result.next_begin_offset)
        context.pull_next_delay_time_millis = 20

    with DefaultMQProducer(servers.unique("hooked"), servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", topic, 2)
        for number in range(8):
            producer.send(Message(topic, b"%d" % number))
    service = MQPullConsumerScheduleService(group, servers.namesrv, pull_thread_nums=2)
    service.register_pull_task_callback(topic, pull)
    with service:
        wait_until(lambda: len(seen) >= 8, 60_000, "eight messages")
    assert sorted(seen) == [b"%d" % number for number in range(8)]
    assert len(set(calls)) == 4


@pytest.mark.own_timeouts
def test_asynchronous_sends_beyond_the_permits_are_refused(servers):
    errors, results = [], []
    with DefaultMQProducer(servers.unique("pressed"), servers.namesrv) as producer:
        topic = servers.unique("Pressed")
        producer.send(Message(topic, b"x"))
        client = producer.default_mq_producer_impl.mq_client_factory.mq_client_api_impl.remoting_client
        taken = 0
        while client.semaphore_async.acquire(blocking=False):
            taken += 1
        producer.retry_times_when_send_async_failed = 0
        producer.send_async(Message(topic, b"x"), SendCallback(results.append, errors.append), 2000)
        wait_until(lambda: errors, 60_000, "the refusal")
        client.semaphore_async.release(taken)
        producer.send_async(Message(topic, b"x"), SendCallback(results.append, errors.append))
        wait_until(lambda: results, 60_000, "the answer")
    assert len(errors) == 1 and isinstance(errors[0], RemotingTimeoutException)


@pytest.mark.parametrize(("addr", "namespace", "plain"), [
    ("127.0.0.1:9876", None, "127.0.0.1:9876"),
    ("http://MQ_INST_1_shop.example.org:80", "MQ_INST_1_shop", "MQ_INST_1_shop.example.org:80"),
    ("MQ_INST_1_shop.example.org:80", "MQ_INST_1_shop", "MQ_INST_1_shop.example.org:80"),
    ("http://example.org:80", None, "example.org:80"), ("MQ_INST_x:80", None, "MQ_INST_x:80")])
def test_instance_address_contains_its_namespace(addr, namespace, plain):
    config = ClientConfig(namesrv_addr=addr)
    assert (config.get_namespace(), config.get_namesrv_addr()) == (namespace, plain)
    assert ClientConfig(namesrv_addr=addr, namespace="other").get_namespace() == "other"


# An error in a listener, hook, selector or callback is logged once per cause, counted, and does no harm.


def warnings(caplog, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records
            if record.levelno >= logging.WARNING and text in record.getMessage()]


def test_each_cause_is_logged_once_and_counted(caplog):
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
    """Does what `outcomes` say, one per call, and then succeeds."""

    def __init__(self, outcomes, good) -> None:
        self.outcomes, self.good, self.calls = list(outcomes), good, 0

    def consume_message(self, _messages, _context=None):
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else self.good
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrently", "orderly"])
def test_failing_listener_is_logged_once_and_gets_its_messages_again(servers, caplog, is_orderly):
    topic, group = servers.unique("Bad"), servers.unique("bad")
    good = ConsumeOrderlyStatus.SUCCESS if is_orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    outcomes = [ValueError("x"), ValueError("y"), SystemExit(1), None, None, True, "CONSUME_SUCCESS"]
    bad = Bad(outcomes, good)
    with DefaultMQProducer(servers.unique("p"), servers.namesrv) as producer:
        # The client would notice a topic created later only after up to 50 s.
        for name in (topic, mix_all.get_retry_topic(group)):
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
        wait_until(lambda: bad.calls >= len(outcomes) + 4, what="all messages in the end")
        causes = consumer.default_mq_push_consumer_impl.consume_message_service.causes
    assert len(warnings(caplog, "consumeMessage exception")) == 2  # ValueError and SystemExit
    assert len(warnings(caplog, "not a Consume")) == 3  # None, bool, str
    assert sum(causes.counts.values()) == len(outcomes)


def test_failing_selector_send_callback_and_hook_are_logged_once(servers, caplog):
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
def test_failing_transaction_listener_leaves_the_outcome_open(caplog, answer):
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


def test_pending_requests_are_completed_at_shutdown():
    holder, errors, causes = RequestFutureHolder(), [], CauseLog(logging.getLogger("RocketmqClient"))

    def on_exception(error):
        errors.append(error)
        raise ValueError("callback")

    for number in range(3):
        callback = SimpleNamespace(on_exception=on_exception)
        holder.request_future_table[str(number)] = RequestResponseFuture(str(number), 1000, callback, causes)
    holder.fail_all(MQClientException("over"))
    assert len(errors) == 3 and not holder.request_future_table and list(causes.counts.values()) == [3]


def test_every_asynchronous_send_is_completed_once_at_shutdown(servers):
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


# Traces of rmqha's own client at rmqha's own broker, and texts that are not traces.

TRACES = "TracesOfOurOwn"


class TraceReader:
    """Reads a trace topic from its first message on."""

    def __init__(self, servers, topic: str):
        self.messages = []
        self.consumer = DefaultMQPushConsumer(servers.unique("trace-reader"), servers.namesrv, self.take)
        self.consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        self.consumer.subscribe(topic, "*")

    def take(self, messages):
        self.messages.extend(messages)
        return Status.CONSUME_SUCCESS

    def views(self, msg_id: str) -> list[TraceView]:
        """Return the events of a message, in the order of their kinds."""
        views = [view for msg in list(self.messages) for view in TraceView.decode_from_trace_trans_data(msg_id, msg)]
        return sorted(views, key=lambda view: (view.msg_type, view.time_stamp))


@pytest.fixture(scope="module")
def traces(servers):
    """A reader of the trace topic."""
    reader = TraceReader(servers, TRACES)
    with DefaultMQProducer("topic-maker", servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", TRACES, 2)
    with reader.consumer:
        yield reader


def test_sent_and_consumed_message_leaves_three_events(servers, traces):
    topic, group = servers.unique("Traced"), servers.unique("traced")
    got = []
    with DefaultMQProducer(group, servers.namesrv, enable_msg_trace=True, customized_trace_topic=TRACES) as producer:
        result = producer.send(Message(topic, b"12345", tags="red", keys="k1 k2"))

        def listener(messages):
            got.extend(messages)
            return Status.RECONSUME_LATER if len(got) == 1 else Status.CONSUME_SUCCESS

        consumer = DefaultMQPushConsumer(group, servers.namesrv, listener, enable_msg_trace=True,
                                         customized_trace_topic=TRACES)
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe(topic, "*")
        with consumer:
            wait_until(lambda: len(got) >= 2, 60_000, "the message and its redelivery")
    wait_until(lambda: len(traces.views(result.msg_id)) >= 5, 60_000, "five events")
    views = traces.views(result.msg_id)
    assert [view.msg_type for view in views] == ["Pub", "SubAfter", "SubAfter", "SubBefore", "SubBefore"]
    pub = views[0]
    assert (pub.topic, pub.tags, pub.keys, pub.group_name, pub.status) == (topic, "red", "k1 k2", group, "success")
    assert pub.off_set_msg_id == result.offset_msg_id
    assert pub.store_host == servers.brokers[result.message_queue.brokerName].broker_addr
    assert [view.status for view in views[1:3]] == ["failed", "success"]
    assert {view.group_name for view in views[1:]} == {group}


def test_asynchronous_sends_are_traced_and_oneway_ones_are_not(servers, traces):
    topic = servers.unique("Traced")
    results = []
    producer = DefaultMQProducer(servers.unique("traced"), servers.namesrv, enable_msg_trace=True,
                                 customized_trace_topic=TRACES)
    with producer:
        silent = Message(topic, b"x")
        producer.send_oneway(silent)
        producer.send_async(Message(topic, b"x"), SendCallback(results.append))
        wait_until(lambda: results, 60_000, "the answer")
    wait_until(lambda: traces.views(results[0].msg_id), 60_000, "its event")
    assert traces.views(silent.properties["UNIQ_KEY"]) == []


def test_trace_message_is_found_by_message_id_and_keys(servers, traces):
    producer = DefaultMQProducer(servers.unique("traced"), servers.namesrv, enable_msg_trace=True,
                                 customized_trace_topic=TRACES)
    with producer:
        msg_id = producer.send(Message(servers.unique("Traced"), b"x", keys="k7 k8")).msg_id
    with DefaultMQProducer(servers.unique("asker"), servers.namesrv) as asker:
        now = 1 << 62

        def found(key):
            try:
                return asker.admin.query_message(TRACES, key, 32, 0, now).message_list
            except MQClientException as error:
                assert error.response_code == response_code.NO_MESSAGE
                return []
        for key in (msg_id, "k7", "k8"):
            wait_until(lambda key=key: found(key), 60_000, f"the trace by {key}")


def test_full_queue_discards_events_and_counts_them():
    dispatcher = AsyncTraceDispatcher("g", TraceDispatcherType.PRODUCE, None, DefaultMQProducer(""))
    bean = TraceBean(msg_id="1")
    kept = [dispatcher.append(TraceContext(TraceType.SubBefore, trace_beans=[bean])) for _ in range(QUEUE_CAPACITY + 3)]
    assert kept == [True] * QUEUE_CAPACITY + [False] * 3
    assert dispatcher.discard_count == 3
    assert dispatcher.trace_topic_name == "RMQ_SYS_TRACE_TOPIC"
    dispatcher.shutdown()


def test_return_types_have_the_numbers_used_in_traces():
    assert [kind.name for kind in sorted(ConsumeReturnType, key=lambda kind: kind.value)] == [
        "SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]


@given(st.text(alphabet=st.sampled_from("\x01\x02 PubSefortA019tru-") | st.characters(max_codepoint=200), max_size=200))
@example("Pub\x01" + "\x01".join("123456789abcd") + "\x02")
@example("Pub\x011\x02")
@example("SubAfter\x01r\x01m\x01x\x01true\x01k\x02")
@example("EndTransaction\x011\x01r\x01g\x01t\x01m\x01\x01\x01h\x019\x01t\x01COMMIT_MESSAGE\x01true\x02")
def test_any_text_is_parsed_as_events_or_a_clear_error(text):
    try:
        contexts = trace.decoder_from_trace_data_string(text)
    except ValueError as error:
        assert "not a valid trace: " in str(error)
    else:
        assert all(len(context.trace_beans) == 1 for context in contexts)
