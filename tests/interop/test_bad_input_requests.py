"""Requests that are well-formed and wrong: rmqha answers with the original's code and remark, and nothing is stored.

The table of answers was taken from the original; where Java is there, the same test holds it against the original.
"""
import json
import random
import re
import struct
import zlib
from dataclasses import dataclass, field

import pytest

from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, REGISTER_BROKER, SEND_BATCH, Answer, RawClient
from tests.support.wait import wait_until
from tests.support.watch import GoodClient

TOPIC = "BadInput"
QUEUES = 4
STORED = 3  # messages in queue 0
KINDS = ["rmqha", pytest.param("java", marks=pytest.mark.java)]
MAX_BODY = 4 * 1024 * 1024
PULL_BYTES = 1 << 20  # more than any pull may give here

GET_ALL_TOPIC_LIST = 206
SUCCESS, SYSTEM_ERROR, ILLEGAL, NO_PERMISSION, NO_TOPIC, OFFSET_MOVED, NO_GROUP = 0, 1, 13, 16, 17, 21, 24
TOO_BIG = "the message is illegal, maybe msg body or properties length not matched"
CHARACTERS = re.escape("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
NUMBER = ""  # a number that cannot be read: the original's remark is a Java exception


@dataclass
class Row:
    """A bad request and the original's answer.

    Where the original takes it (`lax`) or answers with a Java exception (no `remark`), rmqha may say ILLEGAL instead.
    """

    fields: dict[str, object]
    code: int
    remark: str = ""
    body: bytes = b"x"
    lax: bool = False
    answer: dict[str, str] = field(default_factory=dict)

    def check(self, answer: Answer, kind: str) -> None:
        """Code, the beginning of the remark, and some fields."""
        if kind == "rmqha" and (self.lax or not self.remark) and answer.code != self.code:
            assert answer.code in (SYSTEM_ERROR, ILLEGAL), answer
            return
        assert answer.code == self.code and re.match(self.remark, answer.remark or ""), answer
        assert self.answer.items() <= answer.fields.items(), answer


def batch_of(*bodies: bytes, total: int | None = None, length: int | None = None, properties_length: int = 0) -> bytes:
    """The body of a batch; sizes may lie."""
    parts = []
    for body in bodies:
        sizes = 22 + len(body) if total is None else total, 0, 0, 0, len(body) if length is None else length
        parts.append(struct.pack(">iiiii", *sizes) + body + struct.pack(">h", properties_length))
    return b"".join(parts)


def batch(code: int, body: bytes, remark: str = "", lax: bool = False, **changes: object) -> Row:
    """A SEND_BATCH_MESSAGE; its fields have the short names."""
    fields = {"a": "raw-producer", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
              "k": "false", "l": 0, "m": "true", **changes}
    return Row(fields, code, remark, body, lax)


SENDS = {
    "topic with ../": Row({"topic": "../etc/passwd"}, SYSTEM_ERROR, CHARACTERS),
    "topic with a slash": Row({"topic": "a/b"}, SYSTEM_ERROR, CHARACTERS),
    "topic of 128 characters": Row({"topic": "t" * 128}, SYSTEM_ERROR, "The specified topic is longer than topic max"),
    "topic empty": Row({"topic": ""}, SYSTEM_ERROR, "The specified topic is blank"),
    "topic blank": Row({"topic": "  "}, SYSTEM_ERROR, "The specified topic is blank"),
    "schedule topic": Row({"topic": "SCHEDULE_TOPIC_XXXX"}, NO_PERMISSION, r"Sending message to topic\[SCHEDULE_TOPIC"),
    "half topic": Row({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, NO_PERMISSION, r"Sending message to topic\[RMQ_SYS_TRANS"),
    "self test topic": Row({"topic": "SELF_TEST_TOPIC"}, NO_PERMISSION, r"Sending message to topic\[SELF_TEST_TOPIC\]"),
    "topic unknown": Row({"topic": "Nobody", "defaultTopic": "NoSuchDefault"}, NO_TOPIC,
                         r"topic\[Nobody\] not exist, apply first please!\nSee http"),
    "queue id 4": Row({"queueId": 4}, SYSTEM_ERROR, r"request queueId\[4\] is illegal, TopicConfig \[topicName=BadInput"
                      r", readQueueNums=4, writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, or"),
    "queue id 2^31 - 1": Row({"queueId": 2**31 - 1}, SYSTEM_ERROR, r"request queueId\[2147483647\] is illegal"),
    "queue id 2^31": Row({"queueId": 2**31}, SYSTEM_ERROR, NUMBER),
    "queue id no number": Row({"queueId": "one"}, SYSTEM_ERROR, NUMBER),
    "body above the maximum": Row({}, ILLEGAL, TOO_BIG, bytes(MAX_BODY + 1)),
    "properties above 32,767": Row({"properties": "k\x01" + "v" * 32_767}, ILLEGAL, TOO_BIG),
    "properties above 32,767 in UTF-8": Row({"properties": "k\x01" + "\u00e9" * 20_000}, ILLEGAL, TOO_BIG),
    "batch above the maximum": batch(ILLEGAL, batch_of(bytes(MAX_BODY + 1)), TOO_BIG),
    "batch with a delay": batch(ILLEGAL, batch_of(b"abc"), TOO_BIG, i="DELAY\x011"),
    "batch body length -1": batch(SYSTEM_ERROR, batch_of(b"abc", length=-1)),
    "batch body length too big": batch(SYSTEM_ERROR, batch_of(b"abc", length=1000)),
    "batch body length 2^31 - 1": batch(SYSTEM_ERROR, batch_of(b"abc", length=2**31 - 1)),
    "batch properties length too big": batch(SYSTEM_ERROR, batch_of(b"abc", properties_length=30_000)),
    "batch properties length -1": batch(SYSTEM_ERROR, batch_of(b"abc", properties_length=-1)),
    "batch whose second one is cut": batch(SYSTEM_ERROR, batch_of(b"abc", b"defghijk")[:-5]),
    "batch of three bytes": batch(SYSTEM_ERROR, b"abc"),
}
LAX_BATCHES = {  # the original does not look at the total sizes
    "total size too big": batch(SUCCESS, batch_of(b"abc", total=1000), lax=True),
    "total size 2^31 - 1": batch(SUCCESS, batch_of(b"abc", total=2**31 - 1), lax=True),
    "total size -1": batch(SUCCESS, batch_of(b"abc", total=-1), lax=True),
}
ENDS = {"minOffset": "0", "maxOffset": str(STORED)}
PULLS = {
    "offset -1": Row({"queueOffset": -1}, OFFSET_MOVED, "OFFSET_TOO_SMALL", answer={"nextBeginOffset": "0", **ENDS}),
    "offset at the end": Row({"queueOffset": STORED}, 19, "OFFSET_OVERFLOW_ONE",
                             answer={"nextBeginOffset": "3", **ENDS}),
    "offset max + 1": Row({"queueOffset": 4}, OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", answer={"nextBeginOffset": "3"}),
    "offset 2^63 - 1": Row({"queueOffset": 2**63 - 1}, OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY",
                           answer={"nextBeginOffset": "3", **ENDS}),
    "offset 2^63": Row({"queueOffset": 2**63}, SYSTEM_ERROR, NUMBER),
    "max nums 2^31": Row({"maxMsgNums": 2**31}, SYSTEM_ERROR, NUMBER),
    "queue id -1": Row({"queueId": -1}, SYSTEM_ERROR, r"queueId\[-1\] is illegal, topic:\[BadInput\] "
                       r"topicConfig.readQueueNums:\[4\] consumer:\[/127.0.0.1:\d+\]"),
    "queue id 99": Row({"queueId": 99}, SYSTEM_ERROR, r"queueId\[99\] is illegal, topic:\[BadInput\]"),
    "topic unknown": Row({"topic": "Nobody"}, NO_TOPIC, r"topic\[Nobody\] not exist, apply first please! \nSee http"),
    "expression type unknown": Row({"expressionType": "NONSENSE"}, SYSTEM_ERROR,
                                   "The broker does not support consumer to filter message by NONSENSE"),
    "SQL while it is off": Row({"expressionType": "SQL92", "subscription": "a > 1"}, SYSTEM_ERROR,
                               "The broker does not support consumer to filter message by SQL92"),
    "no subscription known": Row({"sysFlag": 0}, NO_GROUP, "the consumer's group info not exist\nSee http"),
}
GREEDY_PULLS = {"-1": -1, "0": 0, "2^31 - 1": 2**31 - 1}  # the original: an exception, one message, OutOfMemoryError


@pytest.fixture(scope="module", params=KINDS)
def servers(request, module_nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad-requests")
    namesrv = NamesrvNode(request.param, folder / "namesrv")
    module_nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode(request.param, folder / "broker", namesrv.address, mappedFileSizeCommitLog=16 << 20)
    module_nodes.append(broker)
    broker.start()
    with RawClient(broker.address) as client:
        client.create_topic(TOPIC, QUEUES)
        client.create_topic("Lax", 1)
        for number in range(STORED):
            assert client.send_message(TOPIC, b"message %d" % number).code == SUCCESS
        wait_until(lambda: client.max_offset(TOPIC, 0) == STORED, 60_000, "dispatched")
    good = GoodClient(broker.address)
    yield namesrv, broker, good
    good.close()


def send(client: RawClient, row: Row) -> Answer:
    if "a" in row.fields:
        return client.request(SEND_BATCH, row.body, **row.fields)
    fields = {"queueId": 0, **row.fields}
    return client.send_message(fields.pop("topic", TOPIC), row.body, fields.pop("queueId"), **fields)


def pull(client: RawClient, changes: dict[str, object]) -> Answer:
    fields = {"topic": TOPIC, "queueId": 0, "queueOffset": 0, **changes}
    return client.pull(fields.pop("topic"), fields.pop("queueId"), fields.pop("queueOffset"), **fields)


@pytest.mark.parametrize("what", SENDS)
def test_bad_send_is_refused_as_by_the_original(servers, what):
    _, broker, good = servers
    with RawClient(broker.address) as client:
        before = [client.max_offset(TOPIC, queue) for queue in range(QUEUES)]
        SENDS[what].check(send(client, SENDS[what]), broker.kind)
        assert [client.max_offset(TOPIC, queue) for queue in range(QUEUES)] == before
    good.check()


@pytest.mark.parametrize("what", LAX_BATCHES)
def test_batch_with_lying_total_sizes_is_stored_whole_or_refused(servers, what):
    _, broker, good = servers
    row = LAX_BATCHES[what]
    row.fields["b"] = "Lax"
    with RawClient(broker.address) as client:
        before = client.max_offset("Lax", 0)
        answer = send(client, row)
        row.check(answer, broker.kind)
        stored = answer.code == SUCCESS
        wait_until(lambda: client.max_offset("Lax", 0) == before + stored, 60_000, "dispatched")
        if stored:
            assert b"abc" in client.pull("Lax", 0, before).body
    good.check()


def test_negative_queue_id_gets_any_queue(servers):
    with RawClient(servers[1].address) as client:
        client.create_topic("Anywhere", QUEUES)
        answer = client.send_message("Anywhere", b"x", -1)
        assert answer.code == SUCCESS and int(answer.fields["queueId"]) in range(QUEUES), answer


@pytest.mark.parametrize("what", PULLS)
def test_bad_pull_is_answered_as_by_the_original(servers, what):
    _, broker, good = servers
    with RawClient(broker.address) as client:
        PULLS[what].check(pull(client, PULLS[what].fields), broker.kind)
    good.check()


@pytest.mark.parametrize("what", GREEDY_PULLS)
def test_greedy_pull_is_bounded(servers, what):
    _, broker, good = servers
    with RawClient(broker.address) as client:
        answer = pull(client, {"maxMsgNums": GREEDY_PULLS[what]})
    assert answer.code in (SUCCESS, SYSTEM_ERROR) and len(answer.body) < PULL_BYTES, answer
    good.check()


def registration(body: bytes, crc: int | None = None, **changes: object) -> tuple[bytes, dict[str, object]]:
    """Body and fields of a REGISTER_BROKER whose CRC is right unless `crc` is given; None leaves a field out."""
    fields = {"brokerName": "bad-broker", "brokerAddr": "127.0.0.1:1", "clusterName": "BadCluster", "brokerId": 0,
              "haServerAddr": "127.0.0.1:2", "compressed": "false",
              "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc, **changes}
    return body, {key: value for key, value in fields.items() if value is not None}


def compressed(data: bytes, **changes: object) -> tuple[bytes, dict[str, object]]:
    """The same with a deflated body."""
    return registration(zlib.compress(data), compressed="true", **changes)


WRAPPER = {"topicConfigTable": {}, "dataVersion": {"counter": 1, "timestamp": 1}}
RIGHT = json.dumps({"topicConfigSerializeWrapper": WRAPPER, "filterServerList": []}).encode()
NOISE = random.Random(1).randbytes(1000)
REGISTRATIONS = {
    "wrong CRC": (registration(RIGHT, crc=12345), "crc32 not match"),
    "noise": (registration(NOISE), ""),
    "noise said to be deflated": (registration(NOISE, compressed="true"), ""),
    "count of 2^31 - 1": (compressed(struct.pack(">i", 2**31 - 1)), ""),
    "count of -1": (compressed(struct.pack(">i", -1)), ""),
    "50 MB out of 50 kB": (compressed(struct.pack(">i", 10) + bytes(50_000_000)), ""),
    "version count of 2^31 - 1": (compressed(struct.pack(">i", 0) + RIGHT + struct.pack(">i", 2**31 - 1)), ""),
    "deep JSON": (registration(b'{"topicConfigSerializeWrapper":' + b"[" * 100_000), ""),
    "a list": (registration(b"[]"), ""),
    "wrong types": (registration(b'{"topicConfigSerializeWrapper":7,"filterServerList":{}}'), ""),
    "broker id no number": (registration(RIGHT, brokerId="x"), ""),
}
REFUSED_HERE = {  # the original takes these
    "broker id -1": registration(RIGHT, brokerId=-1),
    "no broker name": registration(RIGHT, brokerName=None),
}


def register(namesrv: NamesrvNode, body: bytes, fields: dict[str, object]) -> Answer:
    def tables() -> tuple[bytes, list[str]]:
        topics = json.loads(client.request(GET_ALL_TOPIC_LIST).body)["topicList"]
        return client.request(GET_BROKER_CLUSTER_INFO).body, sorted(topics)
    with RawClient(namesrv.address) as client:
        before = tables()
        answer = client.request(REGISTER_BROKER, body, **fields)
        assert tables() == before or answer.code == SUCCESS
    return answer


@pytest.mark.parametrize("what", REGISTRATIONS)
def test_bad_registration_is_refused_and_the_route_table_unchanged(servers, what):
    (body, fields), remark = REGISTRATIONS[what]
    answer = register(servers[0], body, fields)
    assert answer.code == SYSTEM_ERROR and re.match(remark, answer.remark), answer


@pytest.mark.parametrize("what", REFUSED_HERE)
def test_registration_that_only_rmqha_refuses(servers, what):
    if servers[0].kind == "java":
        pytest.skip("the original takes it")
    assert register(servers[0], *REFUSED_HERE[what]).code == SYSTEM_ERROR


@pytest.mark.parametrize("fields", [{"namespace": "n", "value": "v"}, {"key": "k", "value": "v"}])
def test_kv_entry_without_key_or_namespace_is_refused(servers, fields):
    with RawClient(servers[0].address) as client:
        answer = client.request(100, **fields)
        assert (answer.code, answer.remark) == (SYSTEM_ERROR, "namespace or key is null")


def test_route_of_no_topic_is_a_typed_answer(servers):
    with RawClient(servers[0].address) as client:
        for topic in ("Nobody", "a" * 100_000):
            answer = client.request(105, topic=topic)
            assert answer.code == NO_TOPIC and answer.remark.startswith("No topic route info in name server"), answer
        assert client.request(105).code in (NO_TOPIC, SYSTEM_ERROR)  # the original looks for a topic named null
