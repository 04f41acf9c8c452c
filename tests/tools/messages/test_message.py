"""`rmqha message`: messages found by id and by key on two masters, with the groups' states; also on RocketMQ."""
import base64
import json

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from tests.support.wait import wait_until
from tests.tools.manage.two_masters import FakeServer, Line, two_masters, unreachable_master

yaml = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two masters with a topic on both, and a message on each."""
    with two_masters(tmp_path_factory.mktemp("message")) as masters:
        masters.ok("topic", "create", "Orders", "-q", 2, "--wait", 60)
        masters.sent = {name: send(masters.namesrv, "Orders", name, b"to " + name.encode(), keys=f"k {name}",
                                   tags="paid", x="1 2") for name in masters.brokers}
        masters.dispatched()
        yield masters


def send(namesrv, topic, broker, body, queue=1, keys=None, tags=None, **properties):
    """Send a message to a queue, and return the result."""
    message = Message(topic, body, tags=tags, keys=keys)
    for name, value in properties.items():
        message.put_user_property(name, value)
    with DefaultMQProducer("p", namesrv) as producer:
        sent = producer.send(message, queue=MessageQueue(topic, broker, queue))
    assert sent.send_status is SendStatus.SEND_OK
    return sent


@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
def test_message_is_shown_by_both_of_its_ids(cluster, name):
    sent = cluster.sent[name]
    (found,) = cluster.objects("message", "show", sent.msg_id, "-t", "Orders")
    assert cluster.objects("message", "show", sent.offset_msg_id) == [found]
    assert cluster.objects("message", "show", sent.offset_msg_id, "-t", "Orders") == [found]
    (consumed,) = [row for row in map(json.loads, cluster.ok(
        "consume", "Orders", "-b", name, "--count", 1, "-o", "json").stdout.splitlines())]
    wanted = {key: value for key, value in consumed.items() if key not in ("body", "system")}
    assert {key: found[key] for key in wanted} == wanted and found["properties"] == {"x": "1 2"}
    assert found["body"] == {"size": 11, "text": f"to {name}", "cut": False} and found["commitLogOffset"] >= 0
    (document,) = yaml.safe_load_all(cluster.ok("message", "show", sent.msg_id, "-t", "Orders", "-o", "yaml").stdout)
    assert document == found
    text = cluster.ok("message", "show", sent.msg_id, "-t", "Orders").stdout
    for part in (sent.msg_id, sent.offset_msg_id, f"{name}:1@0", f"at {cluster.brokers[name].address}, commit log",
                 "x=1 2", f"k {name}", f"to {name}", "paid"):
        assert part in text


def test_groups_are_shown_with_what_they_have_consumed(cluster):
    topic = cluster.unique("Consumed")
    cluster.ok("topic", "create", topic, "-q", 2, "--wait", 60)
    first = send(cluster.namesrv, topic, "broker-a", b"1", tags="a")
    cluster.dispatched()
    assert cluster.object("message", "show", first.msg_id, "-t", topic)["groups"] == []
    assert cluster.ok("message", "show", first.offset_msg_id).stdout.endswith("\nno group consumes this topic\n")
    group = cluster.unique("group")
    seen = []
    consumer = DefaultMQPushConsumer(group, cluster.namesrv, lambda messages: (
        seen.extend(messages) or ConsumeConcurrentlyStatus.CONSUME_SUCCESS))
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic, "a")

    def state(sent):
        """The state by the offset, which the consumer stores every 5 s and at its end."""
        (found,) = cluster.object("message", "show", sent.msg_id, "-t", topic)["groups"] or [{}]
        return found
    with consumer:
        wait_until(lambda: len(seen) == 1, 120_000, "it is consumed")
        consumer.default_mq_push_consumer_impl.persist_consumer_offset()
        wait_until(lambda: state(first).get("consumed") is True, 120_000, "the broker has the offset")
        assert state(first) == {"group": group, "consumed": True, "members": 1, "filtered": False, "pulls": False}
        other = send(cluster.namesrv, topic, "broker-a", b"2", tags="b")
        cluster.dispatched()
        assert state(other)["filtered"] is True
    last = send(cluster.namesrv, topic, "broker-a", b"3", tags="a")
    cluster.dispatched()
    assert state(last) == {"group": group, "consumed": False, "members": 0, "filtered": False, "pulls": False}
    rows = cluster.ok("message", "show", last.msg_id, "-t", topic).stdout.splitlines()
    assert rows[-1].split() == [group, "not", "yet", "0"]


def test_messages_are_found_by_key_on_all_masters_the_newest_first(cluster):
    key = cluster.unique("order")
    for number in range(6):
        send(cluster.namesrv, "Orders", f"broker-{'ab'[number % 2]}", b"%d" % number, keys=f"{key} other{number}")
    send(cluster.namesrv, "Orders", "broker-a", b"x", keys=f"{key}0")
    cluster.dispatched()
    found = cluster.objects("message", "find", "-t", "Orders", "--key", key)
    times = [each["storeTimestamp"] for each in found]
    assert times == sorted(times, reverse=True) and {each["body"]["text"] for each in found} == set("012345")
    (third,) = cluster.objects("message", "find", "-t", "Orders", "-k", "other3")
    assert third["body"]["text"] == "3"
    result = cluster.ok("message", "find", "-t", "Orders", "--key", key, "--count", 2)
    assert len(result.stdout.splitlines()) == 4 and "these are the newest" in result.stderr
    assert cluster.ok("message", "find", "-t", "Orders", "--key", key).stderr == ""


def test_body_is_cut_and_its_control_characters_are_escaped(cluster):
    key = cluster.unique("body")
    text = send(cluster.namesrv, "Orders", "broker-a", b"a\x1b[0m\n" + b"x" * 5000, keys=key)
    binary = send(cluster.namesrv, "Orders", "broker-b", b"\xff\x00" * 300, keys=key)
    cluster.dispatched()
    for sent, begin in ((text, "(5006 bytes) 611b5b306d0a78"), (binary, "(600 bytes) ff00ff00")):
        shown = cluster.ok("message", "show", sent.offset_msg_id).stdout
        assert begin in shown and " ...\n" in shown and "\x1b" not in shown and len(shown) < 1500
        assert begin in cluster.ok("message", "find", "-t", "Orders", "--key", key).stdout
    (found,) = cluster.objects("message", "show", binary.offset_msg_id)
    assert base64.b64decode(found["body"].pop("base64")) == b"\xff\x00" * 128
    assert found["body"] == {"size": 600, "cut": True}
    (whole,) = cluster.objects("message", "show", binary.offset_msg_id, "--body", "1M")
    assert whole["body"] == {"size": 600, "base64": "/wD/AP8A" * 100, "cut": False}
    plain = send(cluster.namesrv, "Orders", "broker-b", b"line\n" + "é".encode() * 200)
    cluster.dispatched()
    shown = cluster.ok("message", "show", plain.offset_msg_id, "--body", 8).stdout
    assert "body          line\\u000aé ...\n" in shown
    assert cluster.ok("message", "show", plain.offset_msg_id, "--body", "1K").stdout.count("é") == 200


def test_nothing_found_is_exit_code_1_and_a_wrong_use_2(cluster):
    for arguments, code, said in (
            (("find", "-t", "Orders", "--key", "none"), 1, "no message with key none in topic Orders"),
            (("show", "0" * 32, "-t", "Orders"), 1, f"no message with id {'0' * 32} in topic Orders"),
            (("show", cluster.sent["broker-a"].offset_msg_id[:-8] + "0000ffff"), 1, "no message with id"),
            (("find", "-t", "Ordrs", "--key", "none"), 2, "no topic 'Ordrs' at the name server; did you mean Orders?"),
            (("show", cluster.sent["broker-a"].msg_id), 2, "give the message's topic with -t"),
            (("show", "7F000001000003090000000000000000"), 2, "give the message's topic with -t"),
            (("find", "-t", "Orders"), 2, "Missing option"),
            (("find", "-t", "a", "-t", "b", "-k", "c"), 2, "only one")):
        result = cluster.run("message", *arguments)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert said in result.stderr
    assert Line("127.0.0.1:1").run("message", "find", "-t", "Orders", "--key", "k").exit_code == 2


def test_master_that_is_gone_is_named_and_the_others_are_asked(cluster):
    with unreachable_master(cluster.namesrv):
        result = cluster.run("message", "find", "-t", "Orders", "--key", "broker-b")
        assert result.exit_code == 0 and "broker-b:1@0" in result.stdout and "broker-c (" in result.stderr
        result = cluster.run("message", "find", "-t", "Orders", "--key", "none")
        assert result.exit_code == 2
        assert "1 broker of 3 failed, and no other one has a message with key none" in result.stderr


def test_broker_with_wrong_answers_is_an_error():
    def answer(body=b"", code=0, remark=None):
        response = RemotingCommand.create_response_command(code, remark)
        response.body = body
        return lambda _request: response
    for given, said in ((answer(b"\xff" * 100), "sent an answer that can't be read"),
                        (answer(code=1, remark="no"), "returned error 1: no")):
        info = (b'{"brokerAddrTable":{"broker-x":{"brokerAddrs":{0:"%s"},"brokerName":"broker-x","cluster":"X"}},'
                b'"clusterAddrTable":{"X":["broker-x"]}}')
        with FakeServer({request_code.QUERY_MESSAGE: given}) as server:
            server.answers[request_code.GET_BROKER_CLUSTER_INFO] = info % server.address.encode()
            result = Line(server.address).run("message", "find", "-t", "T", "--key", "k")
            assert result.exit_code == 2 and said in result.stderr and "internal error" not in result.output


# ---- RocketMQ


@pytest.mark.java
def test_messages_of_rocketmq(make_namesrv, make_broker):
    namesrv = make_namesrv("java").address
    for name in ("broker-a", "broker-b"):
        make_broker("java", namesrv, name, brokerName=name)
    line = Line(namesrv)
    with ClusterAdmin(namesrv, 60_000) as admin:
        wait_until(lambda: len(admin.brokers()) == 2, 60_000, "both are registered")
    line.ok("topic", "create", "orders", "-q", 2, "--wait", 60)
    body = b"z" * 8000
    sent = {name: send(namesrv, "orders", name, body, keys="k 1001", tags="T", x="y")
            for name in ("broker-a", "broker-b")}
    wait_until(lambda: line.run("message", "find", "-t", "orders", "--key", "1001").stdout.count("broker-") == 2,
               60_000, "both are in the index")
    found = line.objects("message", "find", "-t", "orders", "--key", "1001")
    assert {(each["broker"], each["msgId"], each["offsetMsgId"]) for each in found} == {
        (name, each.msg_id, each.offset_msg_id) for name, each in sent.items()}
    assert {each["body"]["text"] for each in found} == {"z" * 256} and found[0]["body"]["size"] == 8000
    group = "billing"
    assert len(line.ok("consume", "orders", "-g", group, "-b", "broker-b", "--count", 1,
                       "-f", "x").stdout) == 1

    def states_of(name: str) -> dict[str, object]:
        (shown,) = line.objects("message", "show", sent[name].msg_id, "-t", "orders")
        return {state["group"]: state["consumed"] for state in shown["groups"]}
    wait_until(lambda: states_of("broker-b").get(group), what="the offset, which is sent one-way, has arrived")
    for name, each in sent.items():
        (by_unique,) = line.objects("message", "show", each.msg_id, "-t", "orders", "--body", "1M")
        assert line.objects("message", "show", each.offset_msg_id, "--body", "1M") == [by_unique]
        assert by_unique["body"] == {"size": 8000, "text": body.decode(), "cut": False}
        states = {state["group"]: state["consumed"] for state in by_unique["groups"]}
        assert states.get(group) == (True if name == "broker-b" else None), states
    result = line.run("message", "show", sent["broker-a"].offset_msg_id[:-8] + "0000ffff")
    assert result.exit_code == 1 and "no message with id" in result.stderr
    assert line.run("message", "show", "0" * 32, "-t", "orders").exit_code == 1
