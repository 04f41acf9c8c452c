"""Traces of rmqha's own client at rmqha's own broker, and text that is no trace."""
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.client import trace
from rmqha.client.async_trace_dispatcher import QUEUE_CAPACITY, AsyncTraceDispatcher
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus as Status
from rmqha.client.consumer.listeners import ConsumeReturnType
from rmqha.client.exception import MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendCallback
from rmqha.client.trace import TraceBean, TraceContext, TraceDispatcherType, TraceType, TraceView
from rmqha.common.message.message import Message
from rmqha.common.protocol import response_code
from rmqha.common.subscriptions import ConsumeFromWhere
from tests.support.wait import wait_until

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
        """The events of a message, in the order of their kinds."""
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


def test_a_sent_and_consumed_message_leaves_three_events(servers, traces):
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
            wait_until(lambda: len(got) >= 2, 60_000, "the message and its second coming")
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


def test_the_trace_message_is_found_by_message_id_and_keys(servers, traces):
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


def test_a_full_queue_throws_events_away_and_counts_them():
    dispatcher = AsyncTraceDispatcher("g", TraceDispatcherType.PRODUCE, None, DefaultMQProducer(""))
    bean = TraceBean(msg_id="1")
    kept = [dispatcher.append(TraceContext(TraceType.SubBefore, trace_beans=[bean])) for _ in range(QUEUE_CAPACITY + 3)]
    assert kept == [True] * QUEUE_CAPACITY + [False] * 3
    assert dispatcher.discard_count == 3
    assert dispatcher.trace_topic_name == "RMQ_SYS_TRACE_TOPIC"
    dispatcher.shutdown()


def test_return_types_have_the_numbers_that_traces_carry():
    assert [kind.name for kind in sorted(ConsumeReturnType, key=lambda kind: kind.value)] == [
        "SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]


@given(st.text(alphabet=st.sampled_from("\x01\x02 PubSefortA019tru-") | st.characters(max_codepoint=200), max_size=200))
@example("Pub\x01" + "\x01".join("123456789abcd") + "\x02")
@example("Pub\x011\x02")
@example("SubAfter\x01r\x01m\x01x\x01true\x01k\x02")
@example("EndTransaction\x011\x01r\x01g\x01t\x01m\x01\x01\x01h\x019\x01t\x01COMMIT_MESSAGE\x01true\x02")
def test_any_text_is_events_or_a_clear_error(text):
    try:
        contexts = trace.decoder_from_trace_data_string(text)
    except ValueError as error:
        assert "no trace: " in str(error)
    else:
        assert all(len(context.trace_beans) == 1 for context in contexts)
