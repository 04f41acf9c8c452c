"""The official client compared with rmqha's: trace texts, allocation of queues, namespaces, and both header
encodings."""
import random

import pytest

from rmqha.client.client_config import AccessChannel
from rmqha.client.consumer.allocate_message_queue_strategy import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
)
from rmqha.client.hooks import LocalTransactionState
from rmqha.client.trace import (
    TraceBean,
    TraceContext,
    TraceType,
    decoder_from_trace_data_string,
    encoder_from_context_bean,
)
from rmqha.common import mix_all
from rmqha.common.message.message import MessageQueue, MessageType
from rmqha.common.protocol import namespace_util
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol.header_codec import SerializeType
from tests.support.java_driver import JavaDriver
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


# rmqha's trace texts, allocation of queues and namespaced names equal the official client's.

_TEXTS = [None, "", "a", "Topic-1", "größe ß", "k1 k2  k3", " ", "trailing ", "世界", "null"]


def random_context(rng: random.Random) -> dict:
    """Return the fields of an event as the Java driver expects them."""
    def bean() -> dict:
        return {"topic": rng.choice(_TEXTS), "msgId": rng.choice(["0A", "AC11000200002A139C", "x"]),
                "offsetMsgId": rng.choice(_TEXTS), "tags": rng.choice(_TEXTS), "keys": rng.choice(_TEXTS),
                "storeHost": rng.choice(["127.0.0.1:10911", "h:1"]), "retryTimes": rng.randrange(-1, 17),
                "bodyLength": rng.randrange(1 << 31), "msgType": rng.randrange(4),
                "transactionState": rng.choice(list(LocalTransactionState)).name, "transactionId": rng.choice(_TEXTS),
                "fromTransactionCheck": rng.random() < 0.5}
    kind = rng.choice(list(TraceType)).name
    beans = [bean() for _ in range(rng.randrange(1, 4) if kind.startswith("Sub") else 1)]
    return {"type": kind, "timeStamp": rng.randrange(1 << 62), "regionId": rng.choice(_TEXTS),
            "groupName": rng.choice(_TEXTS), "costTime": rng.randrange(1 << 31), "success": rng.random() < 0.5,
            "requestId": rng.choice(["r", "0A0B"]), "contextCode": rng.randrange(5),
            "accessChannel": rng.choice(["LOCAL", "LOCAL", "CLOUD"]), "beans": beans}


def ours(fields: dict) -> TraceContext:
    """Return the event with the given fields."""
    beans = [TraceBean(
        topic=one["topic"], msg_id=one["msgId"], offset_msg_id=one["offsetMsgId"], tags=one["tags"], keys=one["keys"],
        store_host=one["storeHost"], retry_times=one["retryTimes"], body_length=one["bodyLength"],
        msg_type=MessageType(one["msgType"]), transaction_state=LocalTransactionState[one["transactionState"]],
        transaction_id=one["transactionId"], from_transaction_check=one["fromTransactionCheck"])
        for one in fields["beans"]]
    return TraceContext(
        TraceType[fields["type"]], fields["timeStamp"], fields["regionId"], fields["groupName"], fields["costTime"],
        fields["success"], fields["requestId"], fields["contextCode"], AccessChannel[fields["accessChannel"]], beans)


def test_events_are_written_as_java_writes_them(java_driver):
    rng = random.Random(20260)
    cases = [random_context(rng) for _ in range(400)]
    answer = java_driver.submit("traceEncode", contexts=cases).result()
    encoded = [encoder_from_context_bean(ours(fields)) for fields in cases]
    assert [bean.trans_data for bean in encoded] == answer["texts"]
    assert [sorted(bean.trans_key) for bean in encoded] == [sorted(keys) for keys in answer["keys"]]


def damaged(text: str, rng: random.Random) -> str:
    """Return the text with a field or a few characters missing, repeated or replaced."""
    at = rng.randrange(len(text))
    return rng.choice([
        text[:at], text[at:], text[:at] + text[at + 1:], text[:at] + "\x01" + text[at:], text[:at] + "\x02" + text[at:],
        text[:at] + "x" + text[at + 1:], text + text[:at]])


def test_texts_are_parsed_as_java_parses_them(java_driver):
    rng = random.Random(7)
    texts = [encoder_from_context_bean(ours(random_context(rng))).trans_data for _ in range(300)]
    texts += ["".join(rng.sample(texts, 3)) for _ in range(50)]
    texts += [damaged(rng.choice(texts[:300]), rng) for _ in range(1000)]
    java = java_driver.submit("traceDecode", texts=texts).result()["contexts"]
    differing = []
    for text, expected in zip(texts, java, strict=True):
        try:
            read = [fields_of(context) for context in decoder_from_trace_data_string(text)]
        except ValueError:
            read = "error"
        wanted = "error" if isinstance(expected, str) else [java_fields(one) for one in expected]
        if read != wanted:
            differing.append((text, read, wanted))
    assert not differing, differing[:3]
    assert sum(isinstance(one, str) for one in java) > 100 and sum(isinstance(one, list) for one in java) > 400


def fields_of(context: TraceContext) -> dict:
    """Return the compared fields; times and request ids that were not in the text are left out."""
    bean = context.trace_beans[0]
    is_after = context.trace_type is TraceType.SubAfter
    return {
        "type": context.trace_type.name, "region": context.region_id, "group": context.group_name,
        "time": context.time_stamp if not is_after or context.group_name else None,
        "cost": context.cost_time, "success": context.is_success, "code": context.context_code,
        "request": context.request_id if context.trace_type.name.startswith("Sub") else None,
        "topic": bean.topic, "msgId": bean.msg_id, "offsetMsgId": bean.offset_msg_id, "tags": bean.tags,
        "keys": bean.keys, "retry": bean.retry_times, "length": bean.body_length,
        "msgType": bean.msg_type and bean.msg_type.name, "transaction": bean.transaction_id,
        "state": bean.transaction_state and bean.transaction_state.name, "check": bean.from_transaction_check}


def java_fields(one: dict) -> dict:
    """Return the same fields of Java's context."""
    bean, is_after = one["traceBeans"][0], one["traceType"] == "SubAfter"
    return {
        "type": one["traceType"], "region": one["regionId"], "group": one["groupName"],
        "time": int(one["timeStamp"]) if not is_after or one["groupName"] else None,
        "cost": one["costTime"], "success": one["success"], "code": one["contextCode"],
        "request": one["requestId"] if one["traceType"].startswith("Sub") else None,
        "topic": bean["topic"], "msgId": bean["msgId"], "offsetMsgId": bean["offsetMsgId"], "tags": bean["tags"],
        "keys": bean["keys"], "retry": bean["retryTimes"], "length": bean["bodyLength"], "msgType": bean.get("msgType"),
        "transaction": bean.get("transactionId"), "state": bean.get("transactionState"),
        "check": bean["fromTransactionCheck"]}


# Allocation of queues


class RoomsByName:
    """Brokers and clients are in the machine room that their names begin with."""

    def broker_deploy_in(self, message_queue: MessageQueue) -> str:
        return message_queue.brokerName.split("@")[0]

    def consumer_deploy_in(self, client_id: str) -> str:
        return client_id.split("@")[0]


def strategy_of(case: dict):
    """Return rmqha's strategy for a case of the driver."""
    return {
        "AVG": AllocateMessageQueueAveragely,
        "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle,
        "CONFIG": lambda: AllocateMessageQueueByConfig([MessageQueue(*case["queues"][0])]),
        "MACHINE_ROOM": lambda: AllocateMessageQueueByMachineRoom(set(case["rooms"])),
        "CONSISTENT_HASH": lambda: AllocateMessageQueueConsistentHash(case["nodes"]),
        "MACHINE_ROOM_NEARBY-AVG": lambda: AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), RoomsByName()),
    }[case["strategy"]]()


def random_case(rng: random.Random, name: str) -> dict:
    """Return queues on brokers in machine rooms, and clients in machine rooms; sometimes a client that is not in the
    list, or an empty list."""
    brokers = rng.sample(["r1@a", "r1@b", "r2@a", "r3@c", "plain", "r2@a@x", "r1@", "@b", "r1@b@"], rng.randrange(1, 6))
    queues = sorted(["T", broker, queue] for broker in brokers for queue in range(rng.randrange(1, 9)))
    # Java's split finds no room there, which is an error of its own.
    if name == "MACHINE_ROOM_NEARBY-AVG":
        queues = [row for row in queues if row[1] != "@b"] or [["T", "r1@a", 0]]
    cids = sorted(f"{rng.choice(['r1', 'r2', 'r9'])}@10.0.0.{number}" for number in range(rng.randrange(0, 12)))
    cid = rng.choice(cids) if cids and rng.random() < 0.95 else "r1@stranger"
    return {"strategy": name, "queues": queues, "cids": cids, "cid": cid, "nodes": rng.choice([0, 1, 10, 50]),
            "rooms": rng.sample(["r1", "r2", "r3", ""], rng.randrange(0, 4))}


def test_every_strategy_allocates_queues_as_javas_does(java_driver):
    rng = random.Random(42)
    names = ["AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG"]
    cases = [random_case(rng, name) for name in names for _ in range(150)]
    java = java_driver.submit("allocate", cases=cases).result()["shares"]
    for case, expected in zip(cases, java, strict=True):
        strategy = strategy_of(case)
        assert strategy.get_name() == case["strategy"]
        queues = [MessageQueue(*row) for row in case["queues"]]
        try:
            share = [[mq.topic, mq.brokerName, mq.queueId] for mq in
                     strategy.allocate("group", case["cid"], queues, case["cids"])]
        except ValueError:
            share = "IllegalArgumentException"
        assert share == expected, case


def test_each_queue_is_allocated_to_exactly_one_client_of_the_group():
    rng = random.Random(5)
    for name in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG"):
        for _ in range(50):
            case = random_case(rng, name)
            case["nodes"] = case["nodes"] or 1
            queues = [MessageQueue(*row) for row in case["queues"]]
            cids = sorted(set(case["cids"])) or ["r1@only"]
            shares = [strategy_of(case).allocate("g", cid, queues, cids) for cid in cids]
            assert sorted(mq for share in shares for mq in share) == queues, case


# Names in namespaces


def test_names_are_wrapped_and_unwrapped_as_java_does_it(java_driver):
    resources = ["", "T", "TBW102", "%RETRY%g", "%DLQ%g", "%RETRY%NS%g", "%DLQ%NS%g", "NS%T", "NS2%T", "NS%NS%T", "%T",
                 "rmq_sys_x", "CID_RMQ_SYS_x", "RMQ_SYS_TRACE_TOPIC", "%RETRY%", "%RETRY%%DLQ%g", "%DLQ%CID_RMQ_SYS_a",
                 "NS%", "NS%TBW102", "SELF_TEST_TOPIC", "TOOLS_CONSUMER", "NS%rmq_sys_x"]
    cases = [[namespace, resource] for namespace in ("", "NS", "MQ_INST_1_x", "%", "RETRY") for resource in resources]
    java = java_driver.submit("namespaces", cases=cases).result()["results"]
    for (namespace, resource), expected in zip(cases, java, strict=True):
        made = [namespace_util.wrap_namespace(namespace, resource), namespace_util.without_namespace(resource),
                namespace_util.without_namespace(resource, namespace),
                namespace_util.is_already_with_namespace(resource, namespace)]
        assert made == expected[:4], (namespace, resource)


# The official client with both header encodings, JSON and ROCKETMQ, connected to rmqha's name server and brokers.


class Kinds(RPCHook):
    """Records the header encoding of each request."""

    def __init__(self):
        self.seen = set()

    def do_before_request(self, remote_addr, request):
        self.seen.add((request.code, request.serialize_type))

    def do_after_response(self, remote_addr, request, response):
        """Record nothing."""


@pytest.fixture(scope="module", params=list(SerializeType), ids=lambda kind: kind.name)
def driver(request, tmp_path_factory, java_driver):
    """A JVM whose client uses one header encoding."""
    if request.param is SerializeType.JSON:
        yield request.param, java_driver
        return
    other = JavaDriver(tmp_path_factory.mktemp("driver"))
    other._server._env["ROCKETMQ_SERIALIZE_TYPE"] = request.param.name
    other.start()
    yield request.param, other
    other.shutdown()


def test_official_client_sends_receives_and_administers(servers, driver):
    kind, java = driver
    # At one broker only: the other keeps the fast path, without hooks.
    kinds = Kinds()
    servers.brokers["broker-a"].remoting_server.register_rpc_hook(kinds)
    topic, group = servers.unique(f"Headers{kind.name}"), servers.unique("headers")
    for broker in servers.brokers.values():
        java.create_topic(servers.namesrv, broker.broker_addr, topic, 2)
        # The client would notice a topic created later only after up to 50 s.
        java.create_topic(servers.namesrv, broker.broker_addr, mix_all.get_retry_topic(group), 1)
    bodies = ["plain", "größe 世界", "x" * 5000]
    sent = java.submit("send", namesrv=servers.namesrv, topic=topic, group=group, bodies=bodies, tags="t", keys="k1 k2",
                       compressOver=1000, compressType="ZLIB", compressLevel="5").result()
    assert len(set(sent["ids"])) == 3
    got = java.submit("receive", namesrv=servers.namesrv, topic=topic, group=group, until=4, failFirst=1).result()
    assert sorted({one["body"] for one in got["messages"]}) == sorted(bodies)
    assert [one["reconsumeTimes"] for one in got["messages"]].count(1) == 1
    # A client asks any of the brokers for the consumers of its group.
    for _ in range(20):
        in_order = java.submit("receive", namesrv=servers.namesrv, topic=topic, group=servers.unique("ordered"),
                               until=3, orderly=True).result()
        assert sorted(one["body"] for one in in_order["messages"]) == sorted(bodies)
        if any(code == 38 and seen is kind for code, seen in list(kinds.seen)):
            break
    in_transaction = java.submit("send", namesrv=servers.namesrv, topic=topic, group=group, bodies=["committed"],
                                 inTransaction=True).result()
    wait_until(lambda: sent["ids"][0] in java.admin(
        "queryMsgByKey", "-n", servers.namesrv, "-t", topic, "-k", "k1"), 60_000, "the message by its key")
    assert len(in_transaction["ids"]) == 1
    codes = {code for code, seen in list(kinds.seen) if seen is kind}
    # send, pull, heartbeat, consumer ids, lock
    assert {310, 11, 34, 38, 41} <= codes
