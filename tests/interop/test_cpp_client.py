"""The C++ client with rmqha's broker and with the real one: the same steps have the same results.

Skipped, with the reason, if the wheel is not installed.
"""
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.exception import MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere
from tests.support import cpp_client
from tests.support.nodes import BrokerNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

_REASON = cpp_client.why_unavailable()
pytestmark = [pytest.mark.skipif(_REASON is not None, reason=str(_REASON))]

KINDS = [pytest.param("rmqha", id="rmqha"), pytest.param("java", id="java", marks=[pytest.mark.java, in_long])]


class Cluster:
    """A broker, and the C++ client with it."""

    def __init__(self, broker: BrokerNode, folder):
        self.folder = folder
        self.namesrv = broker.namesrv
        self.refused: Future | None = None

    def cpp(self, cmd: str, topic: str, group: str, **command) -> dict:
        """Run a command of the C++ client."""
        return cpp_client.run(self.folder / group, cmd=cmd, namesrv=self.namesrv, topic=topic, group=group, **command)


    def send_and_refuse(self) -> dict:
        """Return what a consumer gets that refuses the first message."""
        self.cpp("send", "CppAgain", "cpp-again", messages=[{"body": "once more"}])
        return self.cpp("receive", "CppAgain", "cpp-refusing", until=2, failFirst=1)


@pytest.fixture(scope="module", params=KINDS)
def cluster(request, client_broker, tmp_path_factory):
    """Yield the C++ client with a broker of each kind."""
    cluster = Cluster(client_broker(request.param), tmp_path_factory.mktemp("cpp"))
    with DefaultMQProducer("topics", cluster.namesrv) as producer:
        for topic in ("Cpp", "CppOrderly", "CppTransactions", "CppMixed", "CppAgain"):
            wait_until(lambda topic=topic: _made(producer, topic), 60_000, f"topic {topic}")
    # in parallel to the other tests: the C++ client looks for its retry topic only every 10 s
    with ThreadPoolExecutor(1) as pool:
        cluster.refused = pool.submit(cluster.send_and_refuse)
        yield cluster


def _made(producer, topic: str) -> bool:
    try:
        producer.admin.create_topic("TBW102", topic, 4)
        return len(producer.fetch_publish_message_queues(topic)) == 4
    except MQClientException:  # not registered yet
        return False


def test_messages_with_tags_and_keys_are_delivered(cluster):
    messages = [{"body": f"größe {index}", "tags": "ABC"[index % 3], "keys": f"key{index}"} for index in range(30)]
    sent = cluster.cpp("send", "Cpp", "cpp-send", messages=messages)["results"]
    assert [status for status, _id, _offset in sent] == ["OK"] * 30
    got = cluster.cpp("receive", "Cpp", "cpp-all", until=30)["messages"]
    assert sorted((one["id"], one["body"], one["tags"], one["keys"]) for one in got) == sorted(
        (sent[index][1], one["body"], one["tags"], one["keys"]) for index, one in enumerate(messages))
    assert {(one["topic"], one["reconsumeTimes"]) for one in got} == {("Cpp", 0)}
    tagged = cluster.cpp("receive", "Cpp", "cpp-tags", until=20, expression="A || C")["messages"]
    assert sorted(one["body"] for one in tagged) == sorted(one["body"] for one in messages if one["tags"] in "AC")


def test_orderly_consumer_gets_each_key_in_order(cluster):
    messages = [{"body": f"{key}-{step}", "shardingKey": f"order-{key}"} for step in range(8) for key in range(5)]
    sent = cluster.cpp("send", "CppOrderly", "cpp-orderly", messages=messages, orderly=True)["results"]
    assert [status for status, _id, _offset in sent] == ["OK"] * 40
    got = cluster.cpp("receive", "CppOrderly", "cpp-in-order", until=40, orderly=True)["messages"]
    for key in range(5):
        mine = [one for one in got if one["body"].startswith(f"{key}-")]
        assert [one["body"] for one in mine] == [f"{key}-{step}" for step in range(8)]
        assert len({one["queueId"] for one in mine}) == 1


def test_only_committed_messages_are_seen(cluster):
    bodies = ["c1", "r1", "c2", "r2", "c3"]
    sent = cluster.cpp("transact", "CppTransactions", "cpp-transacting", messages=[{"body": body} for body in bodies])
    assert [status for status, _id, _offset in sent["results"]] == ["OK"] * 5
    got = cluster.cpp("receive", "CppTransactions", "cpp-committed", until=3)["messages"]
    assert sorted(one["body"] for one in got) == ["c1", "c2", "c3"]


def test_rmqha_and_cpp_clients_read_each_others_messages(cluster):
    long_body = "abcdefghij" * 3000  # compressed by both
    cluster.cpp("send", "CppMixed", "cpp-mixed", messages=[
        {"body": long_body, "tags": "cpp", "properties": {"color": "blue"}}, {"body": "later", "delayLevel": 1}])
    with DefaultMQProducer("python-mixed", cluster.namesrv) as producer:
        producer.send(Message("CppMixed", long_body.encode(), tags="python", keys="k1 k2"))
    seen = []

    def listener(messages):
        seen.extend(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("python-reader", cluster.namesrv, listener)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe("CppMixed", "*")
    with consumer:
        wait_until(lambda: len(seen) >= 3, 60_000, "three messages")
    bodies = {(bytes(one.body).decode(), one.tags) for one in seen}
    assert bodies == {(long_body, "cpp"), ("later", None), (long_body, "python")}
    assert {one.get_user_property("color") for one in seen if one.tags == "cpp"} == {"blue"}
    got = cluster.cpp("receive", "CppMixed", "cpp-reader", until=3)["messages"]
    assert {(one["body"], one["tags"] or None) for one in got} == bodies
    assert {one["keys"] for one in got if one["tags"] == "python"} == {"k1 k2"}


def test_refused_message_is_delivered_again(cluster):
    got = cluster.refused.result(150)["messages"]
    assert [(one["body"], one["reconsumeTimes"]) for one in got] == [("once more", 0), ("once more", 1)]
    assert got[0]["id"] == got[1]["id"]
