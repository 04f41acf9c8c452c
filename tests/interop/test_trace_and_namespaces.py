"""Traces, namespaces and compression between the official client and rmqha's, with rmqha's broker and the real one."""
import re
import threading

import pytest

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus as Status
from rmqha.client.hooks import LocalTransactionState, TransactionListener
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.client.trace import TraceView
from rmqha.common.message.message import Message, MessageExt
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.common.sys_flags import CompressionType
from tests.support.nodes import BrokerNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SPACE = "MQ_INST_1_shop"


@pytest.fixture(scope="module", params=["rmqha", pytest.param("java", marks=in_long)])
def broker(request, client_broker, java_driver):
    """Return a broker with the trace topic, and a topic for each test."""
    broker = client_broker(request.param)
    for topic in ("TracedByPython", "TracedByJava", "Squeezed", f"{SPACE}%Orders", "Orders"):
        java_driver.create_topic(broker.namesrv, broker.address, topic, 1)
    return broker


class Always(TransactionListener):
    """A transaction listener that commits everything."""

    def execute_local_transaction(self, msg, arg):
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, msg):
        return LocalTransactionState.COMMIT_MESSAGE


def receive(broker: BrokerNode, topic: str, group: str, until: int, fail_first: int = 0, **options) -> list[MessageExt]:
    """Return the messages that rmqha's push consumer gets of a topic; it refuses the first `fail_first`."""
    seen: list[MessageExt] = []
    # so that exactly `fail_first` calls fail
    lock = threading.Lock()

    def listener(messages):
        with lock:
            seen.extend(messages)
            return Status.CONSUME_SUCCESS if len(seen) > fail_first else Status.RECONSUME_LATER

    consumer = DefaultMQPushConsumer(group, broker.namesrv, listener, **options)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic, "*")
    with consumer:
        wait_until(lambda: len(seen) >= until, 60_000, f"{until} messages of {topic}")
        wait_for_traces(consumer)
    return seen


def wait_for_traces(client: DefaultMQProducer | DefaultMQPushConsumer) -> None:
    """Wait until all events are at the broker. A shutdown waits, too, but on a busy machine not long enough."""
    dispatcher = client.trace_dispatcher
    if dispatcher is not None:
        wait_until(lambda: not dispatcher._on_their_way, 60_000, "the answers to traces")


def traced_by_python(broker: BrokerNode, _driver) -> list[str]:
    """Send a message and one in a transaction with rmqha's client; consume one of them twice; return both ids."""
    ids = []
    producer = DefaultMQProducer("python-send", broker.namesrv, enable_msg_trace=True)
    # a retry would leave an event of its own
    producer.send_msg_timeout = 60_000
    with producer:
        ids.append(producer.send(Message("TracedByPython", b"12345", tags="red", keys="k1 k2")).msg_id)
        wait_for_traces(producer)
    producer = TransactionMQProducer("python-tx", broker.namesrv, Always(), enable_msg_trace=True)
    producer.send_msg_timeout = 60_000
    with producer:
        msg = Message("TracedByPython", b"12345", tags="red", keys="k3")
        ids.append(producer.send_message_in_transaction(msg).msg_id)
        wait_for_traces(producer)
    receive(broker, "TracedByPython", "python-read", 3, fail_first=1, enable_msg_trace=True)
    return ids


def traced_by_java(broker: BrokerNode, driver) -> list[str]:
    """Do the same as traced_by_python with the official client."""
    common = {"namesrv": broker.namesrv, "topic": "TracedByJava", "bodies": ["12345"], "tags": "red", "trace": True}
    sent = driver.submit("send", group="java-send", keys="k1 k2", **common).result()["ids"]
    in_transaction = driver.submit("send", group="java-tx", keys="k3", inTransaction=True, **common).result()["ids"]
    driver.submit("receive", namesrv=broker.namesrv, topic="TracedByJava", group="java-read", until=3, failFirst=1,
                  trace=True).result()
    return sent + in_transaction


def trace_messages(broker: BrokerNode) -> list[MessageExt]:
    """Return all messages of the trace topic."""
    with DefaultMQPullConsumer("trace-reader", broker.namesrv) as consumer:
        found = []
        for queue in consumer.fetch_subscribe_message_queues(TRACE_TOPIC):
            offset, end = 0, consumer.admin.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, "*", offset, 32)
                found += result.msg_found_list
                offset = result.next_begin_offset
        return found


def events_of(broker: BrokerNode, ids: list[str], count: int) -> dict[str, list[TraceView]]:
    """Wait for `count` events; return rmqha's view of each message from the trace topic."""
    events: dict[str, list[TraceView]] = {}

    def all_arrived() -> bool:
        messages = trace_messages(broker)
        for msg_id in ids:
            events[msg_id] = [view for msg in messages for view in TraceView.decode_from_trace_trans_data(msg_id, msg)]
        return sum(map(len, events.values())) >= count
    wait_until(all_arrived, 60_000, f"{count} events")
    return events


def essence(events: dict[str, list[TraceView]], who: str) -> list[tuple]:
    """Return the parts that do not depend on the client, without the keys: the refused message is chosen by chance."""
    rows = []
    for view in (view for views in events.values() for view in views):
        is_consumed = view.msg_type.startswith("Sub")
        rows.append((view.msg_type, view.topic.replace(who, "Who"), view.tags, "" if is_consumed else view.keys,
                     view.group_name.replace(who.lower(), "who"), view.status, bool(view.off_set_msg_id)))
    return sorted(rows)


def printed(driver, broker: BrokerNode, msg_id: str, who: str) -> list[str]:
    """Return the lines that the official mqadmin prints for a trace, without ids, times and addresses."""
    text = driver.admin("queryMsgTraceById", "-n", broker.namesrv, "-i", msg_id)
    assert msg_id in text or "Pub" in text, text
    text = text.replace(who.lower(), "who").replace(who, "Who")
    text = re.sub(r"\d{4}-\d\d-\d\d [\d:,.]+|\d+\.\d+\.\d+\.\d+(:\d+)?|\d+ms|\b[0-9A-F]{32}\b", "#", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())


def test_both_clients_write_the_same_traces_and_read_each_others(broker, java_driver):
    # two sends and an end; three listener calls with begin and end
    count = 3 + 6
    ids = {"Python": traced_by_python(broker, java_driver), "Java": traced_by_java(broker, java_driver)}
    events = {who: events_of(broker, mine, count) for who, mine in ids.items()}
    assert essence(events["Python"], "Python") == essence(events["Java"], "Java")
    assert len(essence(events["Java"], "Java")) == count
    bodies = [bytes(msg.body).decode() for msg in trace_messages(broker)]
    for msg_id in ids["Python"] + ids["Java"]:
        views = [view for body in bodies
                 for view in java_driver.submit("traceViews", key=msg_id, body=body).result()["views"]]
        ours = events["Python"].get(msg_id) or events["Java"][msg_id]
        assert [fields(view) for view in ours] == [java_fields(view) for view in views]
    lines = {who: sorted(line for msg_id in mine for line in printed(java_driver, broker, msg_id, who))
             for who, mine in ids.items()}
    assert lines["Python"] == lines["Java"] and "Pub who-tx # # # success" in lines["Java"], lines


def fields(view: TraceView) -> tuple:
    """Return all fields of the text."""
    return (view.msg_type, view.msg_id, view.topic, view.tags, view.keys, view.group_name, view.status, view.cost_time,
            view.off_set_msg_id, view.time_stamp)


def java_fields(view: dict) -> tuple:
    """Return the same fields of Java's view."""
    return (view["msgType"], view["msgId"], view["topic"], view["tags"], view["keys"], view["groupName"],
            view["status"], view["costTime"], view["offSetMsgId"], int(view["timeStamp"]))


# ---- namespaces


def test_java_and_rmqha_read_each_others_messages_in_a_namespace(broker, java_driver):
    bodies = [f"order {number}" for number in range(5)]
    producer = DefaultMQProducer("shop", broker.namesrv, namespace=SPACE)
    producer.send_msg_timeout = 60_000
    with producer:
        assert producer.producer_group == f"{SPACE}%shop"
        assert {mq.topic for mq in producer.fetch_publish_message_queues("Orders")} == {"Orders"}
        results = [producer.send(Message("Orders", body.encode(), tags="t")) for body in bodies]
    assert {result.message_queue.topic for result in results} == {"Orders"}
    got = java_driver.submit("receive", namesrv=broker.namesrv, namespace=SPACE, topic="Orders", group="java-shop",
                             until=6, failFirst=1).result()["messages"]
    assert sorted({one["body"] for one in got}) == bodies and len(got) == 6
    assert {(one["topic"], one["instance"]) for one in got} == {("Orders", SPACE)}
    assert sorted(one["reconsumeTimes"] for one in got) == [0, 0, 0, 0, 0, 1]
    sent = java_driver.submit("send", namesrv=broker.namesrv, namespace=SPACE, topic="Orders", group="java-send",
                              bodies=["from java"]).result()
    assert sent["topics"] == ["Orders"]
    ours = receive(broker, "Orders", "python-shop", 7, fail_first=1, namespace=SPACE)
    assert sorted({bytes(one.body).decode() for one in ours}) == ["from java", *bodies] and len(ours) == 7
    assert {(one.topic, one.instance_id) for one in ours} == {("Orders", SPACE)}
    assert sorted(one.reconsume_times for one in ours) == [0, 0, 0, 0, 0, 0, 1]

    check_names(broker, java_driver)


def check_names(broker: BrokerNode, java_driver) -> None:
    """Assert that both clients created topics of the same form, and a client outside the namespace sees no messages."""
    topics = java_driver.admin("topicList", "-n", broker.namesrv)
    names = sorted(line.strip() for line in topics.splitlines() if SPACE in line)
    assert f"{SPACE}%Orders" in names
    assert f"%RETRY%{SPACE}%java-shop" in names and f"%RETRY%{SPACE}%python-shop" in names
    # another topic of the same name
    with DefaultMQPullConsumer("outside", broker.namesrv) as outside:
        queues = outside.fetch_subscribe_message_queues("Orders")
        assert [outside.admin.max_offset(queue) for queue in queues] == [0]
    with DefaultMQPullConsumer("inside", broker.namesrv, namespace=SPACE) as inside:
        [queue] = inside.fetch_subscribe_message_queues("Orders")
        found = inside.pull(queue, "*", 0, 32).msg_found_list
        assert queue.topic == "Orders" and {msg.topic for msg in found} == {"Orders"} and len(found) == 6
        inside.update_consume_offset(queue, 4)
        wait_until(lambda: inside.fetch_consume_offset(queue, from_store=True) == 4, 60_000, "the offset is reported")


# ---- compression


@pytest.mark.parametrize("kind", list(CompressionType), ids=lambda kind: kind.name)
def test_each_client_reads_messages_that_the_other_compressed(broker, java_driver, kind):
    body = "".join(f"line {number} of a body that can be squeezed;" for number in range(400))
    group = f"squeeze-{kind.name}"
    producer = DefaultMQProducer(group, broker.namesrv)
    producer.compress_msg_body_over_howmuch, producer.compress_type = 1000, kind
    with producer:
        producer.send(Message("Squeezed", body.encode(), tags=f"py-{kind.name}"))
    java_driver.submit("send", namesrv=broker.namesrv, topic="Squeezed", group=f"java-{group}", bodies=[body],
                       tags=f"java-{kind.name}", compressOver=1000, compressType=kind.name, compressLevel="5").result()
    [got] = java_driver.submit("receive", namesrv=broker.namesrv, topic="Squeezed", group=f"java-{group}", until=1,
                               expression=f"py-{kind.name}").result()["messages"]
    assert got["body"] == body and got["sysFlag"] & 0x701 == kind.value << 8 | 1
    with DefaultMQPullConsumer(group, broker.namesrv) as consumer:
        [queue] = consumer.fetch_subscribe_message_queues("Squeezed")
        [ours] = consumer.pull(queue, f"java-{kind.name}", 0, 32).msg_found_list
        assert bytes(ours.body).decode() == body and ours.sys_flag & 0x701 == kind.value << 8 | 1
        assert ours.store_size < len(body) // 2
