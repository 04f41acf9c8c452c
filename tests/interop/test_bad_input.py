"""Invalid frames, requests and config files for whole processes: refused, without effect on other clients."""
import json
import random
import re
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmqha.common.protocol import request_code
from tests.support.mqadmin import single
from tests.support.nodes import BrokerNode, NamesrvNode, write_properties
from tests.support.raw_remoting import (
    GET_BROKER_CLUSTER_INFO,
    GET_MAX_OFFSET,
    REGISTER_BROKER,
    SEND_BATCH,
    Answer,
    RawClient,
    frame,
    header,
)
from tests.support.wait import wait_until
from tests.support.watch import GoodClient, Holdings

# Bytes that are not remoting frames, on all ports: the server answers or closes, and other clients are unaffected.

MAX_FRAME = 16 * 1024 * 1024
PORTS = ["namesrv", "broker", "fast"]
CLIENT_HELLO = (bytes.fromhex("16030100bd010000b90303") + bytes(range(32)) + bytes.fromhex("00000213010100008e")
                + bytes(142))
MUST_CLOSE = {
    "length 0": struct.pack(">i", 0),
    "length 3": struct.pack(">i", 3) + b"abc",
    "negative length": struct.pack(">i", -1) + b"abcdefgh",
    "lowest length": struct.pack(">i", -2**31) + b"abcdefgh",
    "length 16 MiB + 1": struct.pack(">i", MAX_FRAME + 1 - 4),
    "length 2^31 - 1": struct.pack(">i", 2**31 - 1),
    "header beyond the frame": frame(b"{}", header_length=1000),
    "header of 2^24 - 1": frame(b"{}", header_length=0xFFFFFF),
    "unknown serialize type": frame(header(GET_BROKER_CLUSTER_INFO), serialize_type=5),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "binary header cut": frame(b"\0\x6a\0\1\x99", serialize_type=1),
    "binary header with a lying length": frame(struct.pack(">hbhiii", 106, 0, 409, 1, 0, 2**31 - 1), serialize_type=1),
}
MAY_ANSWER = {
    "header length 0": frame(b""),
    "header no JSON": frame(b"\xff\xfe\x00garbage"),
    "header deep": frame(b'{"code":106,"extFields":' + b"[" * 200_000),
    "header deep and closed": frame(b'{"code":106,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "header NaN": frame(b'{"code":NaN,"opaque":1,"flag":0,"language":"JAVA","version":409}'),
    "header wrong types": frame(b'{"code":"x","opaque":[],"flag":{},"language":7,"version":null,"extFields":[1]}'),
    "header a list": frame(b"[1,2,3]"),
    "header null": frame(b"null"),
    "huge integer": frame(b'{"code":' + b"9" * 5000 + b',"opaque":1,"flag":0}'),
    "fields null": frame(b'{"code":106,"opaque":1,"flag":0,"language":"JAVA","version":409,"extFields":{"a":null}}'),
    "unknown language": frame(b'{"code":106,"opaque":1,"flag":0,"language":"KLINGON","version":409}'),
    "response to nothing": frame(b'{"code":0,"opaque":77,"flag":1,"language":"JAVA","version":409}'),
}


@pytest.fixture(scope="module", params=single("rmqha"))
def servers(request, module_nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad-frames")
    namesrv = NamesrvNode(request.param, folder / "namesrv")
    module_nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode(request.param, folder / "broker", namesrv.address)
    module_nodes.append(broker)
    broker.start()
    good = GoodClient(broker.address)
    yield namesrv, broker, good
    good.close()


def address(servers, port: str) -> str:
    namesrv, broker, _ = servers
    return {"namesrv": namesrv.address, "broker": broker.address, "fast": f"127.0.0.1:{broker.port - 2}"}[port]


def assert_unharmed(servers) -> None:
    namesrv, broker, good = servers
    good.check()
    for target in (namesrv.address, f"127.0.0.1:{broker.port - 2}"):
        with RawClient(target) as client:
            answer = client.request(GET_BROKER_CLUSTER_INFO) if target == namesrv.address else client.request(
                GET_MAX_OFFSET, topic="GoodTopic", queueId=0)
            assert answer.code == 0, answer
    assert namesrv.is_alive and broker.is_alive


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", MUST_CLOSE)
def test_frame_that_cannot_be_read_closes_the_connection(servers, port, what):
    with RawClient(address(servers, port)) as client:
        client.send(MUST_CLOSE[what])
        assert client.is_closed_by_peer(), what
    assert_unharmed(servers)


@pytest.mark.parametrize("port", PORTS)
def test_tls_on_a_plain_connection_never_hangs(servers, port):
    """The server closes the connection, or sends an alert or, with TLS, a server hello."""
    with RawClient(address(servers, port)) as client:
        client.send(CLIENT_HELLO)
        client.socket.settimeout(60)
        try:
            first = client.socket.recv(1)
        except ConnectionResetError:
            first = b""
        assert first in (b"", b"\x15", b"\x16")
    assert_unharmed(servers)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", MAY_ANSWER)
def test_invalid_header_is_answered_or_closed_and_the_next_client_is_served(servers, port, what):
    with RawClient(address(servers, port)) as client:
        try:
            client.send(MAY_ANSWER[what])
            client.send(frame(header(GET_BROKER_CLUSTER_INFO if port == "namesrv" else 9999, opaque=2)))
        except ConnectionError:  # closed before everything was sent
            assert client.is_closed_by_peer()
        else:
            # to the bad request, or to the good one after it
            answer = client.answer_or_close()
            assert answer is None or isinstance(answer.code, int)
    assert_unharmed(servers)


@pytest.mark.parametrize("port", ["namesrv", "broker"])
def test_frame_of_exactly_16_mib_is_accepted(servers, port):
    code, fields = (GET_BROKER_CLUSTER_INFO, {}) if port == "namesrv" else (GET_MAX_OFFSET, {"topic": "GoodTopic",
                                                                                          "queueId": 0})
    head = header(code, opaque=5, **fields)
    with RawClient(address(servers, port), timeout_s=60) as client:
        client.send(frame(head, bytes(MAX_FRAME - 8 - len(head))))
        opaque, answer = client.read_frame()
    assert (opaque, answer.code) == (5, 0)
    assert_unharmed(servers)


def test_unknown_code_gets_code_3_from_the_broker(servers):
    with RawClient(servers[1].address) as client:
        answer = client.request(9999)
        assert answer.code == 3 and "9999" in answer.remark, answer


@pytest.mark.parametrize("port", ["namesrv", "broker"])
def test_a_thousand_slow_senders_delay_no_other_client(servers, port):
    """Each holds a connection with a few bytes of a frame. Other clients are served, and all resources are freed."""
    server = servers[0] if port == "namesrv" else servers[1]
    # allocates what the first request needs
    assert_unharmed(servers)
    holdings = Holdings(server)
    part = frame(header(GET_BROKER_CLUSTER_INFO))[:6]
    clients = []
    try:
        for _ in range(1000):
            clients.append(RawClient(address(servers, port)))
        for byte in part:
            for client in clients:
                client.send(bytes([byte]))
            assert_unharmed(servers)
    finally:
        for client in clients:
            client.socket.close()
    holdings.assert_returned()
    assert_unharmed(servers)


def test_many_connects_and_closes_leak_nothing(servers):
    namesrv, broker, _ = servers
    for server, target in ((namesrv, namesrv.address), (broker, broker.address), (broker, broker.ha_address)):
        if server.kind == "java" and target == broker.ha_address:
            # the original keeps threads and descriptors of such connections
            continue
        holdings = Holdings(server)
        for _ in range(1000):
            RawClient(target).socket.close()
        holdings.assert_returned()
    assert_unharmed(servers)


def test_pipelined_requests_are_all_answered(servers):
    """Every request of one large write, which the socket splits anywhere, gets its answer."""
    count = 500
    data = b"".join(frame(header(GET_MAX_OFFSET, opaque, topic="GoodTopic", queueId=0)) for opaque in range(count))
    with RawClient(servers[1].address) as client:
        for at in range(0, len(data), 777):
            client.send(data[at:at + 777])
        answers = dict(client.read_frame() for _ in range(count))
    assert sorted(answers) == list(range(count)) and {answer.code for answer in answers.values()} == {0}


def test_log_reports_bad_frames_and_the_broker_list_is_complete(servers):
    """The name server still lists the broker after all tests above."""
    namesrv, broker, _ = servers

    def listed() -> bool:
        with RawClient(namesrv.address) as client:
            body = client.request(GET_BROKER_CLUSTER_INFO).body.decode()
        return broker.address in body and "broker-a" in json.dumps(body)
    wait_until(listed, 60_000, "the broker is registered")


# Well-formed but invalid requests: rmqha answers with the original's code and remark, and nothing is stored.
#
# The table of answers was recorded from the original. Where Java is installed, the same tests check it there.

TOPIC = "BadInput"
QUEUES = 4
STORED = 3  # messages in queue 0
KINDS = ["rmqha", pytest.param("java", marks=pytest.mark.java)]
MAX_BODY = 4 * 1024 * 1024
# More than any pull may return here.
PULL_BYTES = 1 << 20

GET_ALL_TOPIC_LIST = 206
SUCCESS, SYSTEM_ERROR, ILLEGAL, NO_PERMISSION, NO_TOPIC, OFFSET_MOVED, NO_GROUP = 0, 1, 13, 16, 17, 21, 24
TOO_BIG = "the message is illegal, maybe msg body or properties length not matched"
CHARACTERS = re.escape("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
# For a number that cannot be parsed the original's remark is a Java exception.
NUMBER = ""


@dataclass
class Row:
    """A bad request and the original's answer.

    If the original accepts it (`lax`) or answers with a Java exception (no `remark`), rmqha may answer ILLEGAL.
    """

    fields: dict[str, object]
    code: int
    remark: str = ""
    body: bytes = b"x"
    lax: bool = False
    answer: dict[str, str] = field(default_factory=dict)

    def check(self, answer: Answer, kind: str) -> None:
        """Assert that code, the beginning of the remark, and some fields are as expected."""
        if kind == "rmqha" and (self.lax or not self.remark) and answer.code != self.code:
            assert answer.code in (SYSTEM_ERROR, ILLEGAL), answer
            return
        assert answer.code == self.code and re.match(self.remark, answer.remark or ""), answer
        assert self.answer.items() <= answer.fields.items(), answer


def batch_of(*bodies: bytes, total: int | None = None, length: int | None = None, properties_length: int = 0) -> bytes:
    """Return the body of a batch, whose sizes may be wrong."""
    parts = []
    for body in bodies:
        sizes = 22 + len(body) if total is None else total, 0, 0, 0, len(body) if length is None else length
        parts.append(struct.pack(">iiiii", *sizes) + body + struct.pack(">h", properties_length))
    return b"".join(parts)


def batch(code: int, body: bytes, remark: str = "", lax: bool = False, **changes: object) -> Row:
    """Return the row of a SEND_BATCH_MESSAGE, whose fields have the short names."""
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
# The original ignores the total sizes.
LAX_BATCHES = {
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
# The original: an exception, one message, OutOfMemoryError.
GREEDY_PULLS = {"-1": -1, "0": 0, "2^31 - 1": 2**31 - 1}


@pytest.fixture(scope="module", params=KINDS)
def requests_servers(request, module_nodes, tmp_path_factory):
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
def test_bad_send_is_refused_like_in_the_original(requests_servers, what):
    _, broker, good = requests_servers
    with RawClient(broker.address) as client:
        before = [client.max_offset(TOPIC, queue) for queue in range(QUEUES)]
        SENDS[what].check(send(client, SENDS[what]), broker.kind)
        assert [client.max_offset(TOPIC, queue) for queue in range(QUEUES)] == before
    good.check()


@pytest.mark.parametrize("what", LAX_BATCHES)
def test_batch_with_wrong_total_sizes_is_stored_completely_or_refused(requests_servers, what):
    _, broker, good = requests_servers
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


def test_negative_queue_id_gets_any_queue(requests_servers):
    with RawClient(requests_servers[1].address) as client:
        client.create_topic("Anywhere", QUEUES)
        answer = client.send_message("Anywhere", b"x", -1)
        assert answer.code == SUCCESS and int(answer.fields["queueId"]) in range(QUEUES), answer


@pytest.mark.parametrize("what", PULLS)
def test_bad_pull_is_answered_like_in_the_original(requests_servers, what):
    _, broker, good = requests_servers
    with RawClient(broker.address) as client:
        PULLS[what].check(pull(client, PULLS[what].fields), broker.kind)
    good.check()


@pytest.mark.parametrize("what", GREEDY_PULLS)
def test_greedy_pull_is_bounded(requests_servers, what):
    _, broker, good = requests_servers
    with RawClient(broker.address) as client:
        answer = pull(client, {"maxMsgNums": GREEDY_PULLS[what]})
    assert answer.code in (SUCCESS, SYSTEM_ERROR) and len(answer.body) < PULL_BYTES, answer
    good.check()


def registration(body: bytes, crc: int | None = None, **changes: object) -> tuple[bytes, dict[str, object]]:
    """Return body and fields of a REGISTER_BROKER with the right CRC unless `crc` is given; None omits a field."""
    fields = {"brokerName": "bad-broker", "brokerAddr": "127.0.0.1:1", "clusterName": "BadCluster", "brokerId": 0,
              "haServerAddr": "127.0.0.1:2", "compressed": "false",
              "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc, **changes}
    return body, {key: value for key, value in fields.items() if value is not None}


def compressed(data: bytes, **changes: object) -> tuple[bytes, dict[str, object]]:
    """Return body and fields of a REGISTER_BROKER with a deflated body."""
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
REFUSED_HERE = {  # the original accepts these
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
def test_bad_registration_is_refused_and_the_route_table_unchanged(requests_servers, what):
    (body, fields), remark = REGISTRATIONS[what]
    answer = register(requests_servers[0], body, fields)
    assert answer.code == SYSTEM_ERROR and re.match(remark, answer.remark), answer


@pytest.mark.parametrize("what", REFUSED_HERE)
def test_invalid_registration_that_the_original_accepts_is_refused(requests_servers, what):
    if requests_servers[0].kind == "java":
        pytest.skip("the original accepts it")
    assert register(requests_servers[0], *REFUSED_HERE[what]).code == SYSTEM_ERROR


@pytest.mark.parametrize("fields", [{"namespace": "n", "value": "v"}, {"key": "k", "value": "v"}])
def test_kv_entry_without_key_or_namespace_is_refused(requests_servers, fields):
    with RawClient(requests_servers[0].address) as client:
        answer = client.request(100, **fields)
        assert (answer.code, answer.remark) == (SYSTEM_ERROR, "namespace or key is null")


def test_route_request_without_a_topic_gets_a_typed_answer(requests_servers):
    with RawClient(requests_servers[0].address) as client:
        for topic in ("Nobody", "a" * 100_000):
            answer = client.request(105, topic=topic)
            assert answer.code == NO_TOPIC and answer.remark.startswith("No topic route info in name server"), answer
        # the original looks up a topic named null
        assert client.request(105).code in (NO_TOPIC, SYSTEM_ERROR)


# Invalid config files: an unknown key is a warning with the nearest name, any other error ends with exit code 2.


def run_to_the_end(node, config: Path | None = None) -> tuple[int, str]:
    """Start a server that should refuse its config; return its exit code and output."""
    if config is not None:
        node.command = [str(config) if part == str(node.config_file) else part for part in node.command]
    node.launch()
    wait_until(lambda: not node.is_alive, 60_000, f"{node.name} ends")
    return node.process.returncode, node.output()


@pytest.fixture
def broker(nodes, tmp_path) -> BrokerNode:
    node = BrokerNode("rmqha", tmp_path / "broker", None)
    nodes.append(node)
    return node


@pytest.fixture
def namesrv(nodes, tmp_path) -> NamesrvNode:
    node = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(node)
    return node


# Unusual values that the original accepts.
ODD_VALUES = {
    "autoCreateTopicEnable": "no", "traceOn": "off", "brokerId": -1, "deleteWhen": "004;23;",
    "registerNameServerPeriod": -1, "messageDelayLevel": "1s 5s ", "diskMaxUsedSpaceRatio": 5, "haMasterAddress": "",
    "serverCallbackExecutorThreads": -5,
    "flushIntervalConsumeQueue": 0, "fileReservedTime": 0, "regionId": "", "startAcceptSendRequestTimeStamp": -1,
    "shortPollingTimeMills": 0, "maxTransferCountOnMessageInDisk": 0, "serverSelectorThreads": 0,
}
BAD_VALUES = [("listenPort", "1091l"), ("flushDiskType", "SOMETIMES_FLUSH"), ("brokerRole", "BOSS"),
              ("mappedFileSizeCommitLog", "1e6"), ("brokerId", "one"), ("slaveTimeout", "99999999999999999999"),
              ("aclEnable", "yes"), ("fileReservedTime", "-4"), ("mappedFileSizeCommitLog", "-1"), ("deleteWhen", "99"),
              ("brokerName", ""), ("listenPort", "70000"), ("brokerIP1", "10.0.0.1:10911")]


@pytest.mark.parametrize("key, value", BAD_VALUES)
def test_bad_value_is_refused_with_file_key_and_line(broker, key, value):
    properties = {name: old for name, old in broker.properties.items() if name != key}
    write_properties(broker.config_file, {**properties, key: value})
    line = len(broker.config_file.read_text("utf-8").splitlines())
    code, output = run_to_the_end(broker)
    assert code == 2 and f"{broker.config_file}:{line}: {key}: " in output and value in output, output
    assert "expected" in output and "Traceback" not in output, output
    assert not (broker.store / "commitlog").exists()


@pytest.mark.java
def test_odd_values_that_the_original_accepts_are_accepted(make_broker):
    """Both brokers return the same configuration."""
    told = []
    for kind in ("java", "rmqha"):
        node = make_broker(kind, None, kind, **ODD_VALUES)
        with RawClient(node.address) as client:
            answer = client.request(request_code.GET_BROKER_CONFIG)
        properties = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
        told.append({key: properties.get(key) for key in ODD_VALUES})
    assert told[0] == told[1] and told[1]["autoCreateTopicEnable"] == "false" and told[1]["brokerId"] == "0"


def test_slave_with_the_masters_id_is_refused(broker):
    write_properties(broker.config_file, {**broker.properties, "brokerRole": "SLAVE", "brokerId": 0})
    code, output = run_to_the_end(broker)
    assert code == 2 and str(broker.config_file) in output and "brokerId" in output, output


def test_missing_config_file_is_named_in_the_error(broker, namesrv, tmp_path):
    for node in (broker, namesrv):
        code, output = run_to_the_end(node, tmp_path / "nowhere.properties")
        assert code == 2 and "nowhere.properties" in output, output


@pytest.mark.parametrize("tail", [b"brokerName=caf\xe9\n", b"brokerName=\xff\xfe\x00\n"])
def test_latin_1_bytes_never_cause_a_traceback(broker, tail):
    """Java reads properties files as latin-1. The broker either starts, or exits with an error that names the file."""
    broker.config_file.write_bytes(broker.config_file.read_bytes() + tail)
    broker.launch()
    wait_until(lambda: not broker.is_alive or "boot success" in broker.output(), 60_000, "the broker to start or exit")
    output = broker.output()
    assert "Traceback" not in output, output
    if not broker.is_alive:
        assert broker.process.returncode == 2 and str(broker.config_file) in output, output


def test_malformed_escape_is_refused_with_its_line(broker):
    lines = len(broker.config_file.read_text("utf-8").splitlines())
    broker.config_file.write_text(broker.config_file.read_text("utf-8") + "brokerName=\\u12xz\n", "utf-8")
    code, output = run_to_the_end(broker)
    assert code == 2 and f"{broker.config_file}:{lines + 1}" in output, output


def test_unknown_key_is_a_warning_with_the_nearest_name(broker):
    broker.config_file.write_text(broker.config_file.read_text("utf-8") + "flushDiskTyp=SYNC_FLUSH\n", "utf-8")
    broker.start()
    logs = "".join(f.read_text("utf-8", "replace") for f in broker.folder.rglob("*.log") if f.is_file())
    told = broker.output() + logs
    assert "unknown key flushDiskTyp" in told and "flushDiskType" in told, told


@pytest.mark.parametrize("key, value", [("listenPort", "many"), ("listenPort", "99999999999")])
def test_name_server_refuses_bad_values_too(namesrv, key, value):
    lines = [old for old in namesrv.config_file.read_text("utf-8").splitlines() if not old.startswith(f"{key}=")]
    namesrv.config_file.write_text("\n".join([*lines, f"{key}={value}"]) + "\n", "utf-8")
    code, output = run_to_the_end(namesrv)
    assert code == 2 and f"{namesrv.config_file}:{len(lines) + 1}: {key}" in output, output


def test_port_in_use_is_reported_without_a_traceback(broker, nodes, tmp_path):
    broker.start()
    second = BrokerNode("rmqha", tmp_path / "second", None, "second", listenPort=broker.port)
    nodes.append(second)
    code, output = run_to_the_end(second)
    assert code != 0 and "in use" in output and "Traceback" not in output, output


def test_store_that_is_in_use_is_refused(broker, nodes, tmp_path):
    broker.start()
    second = BrokerNode("rmqha", tmp_path / "second", None, "second", storePathRootDir=broker.store,
                        storePathCommitLog=broker.commit_log)
    nodes.append(second)
    code, output = run_to_the_end(second)
    assert code != 0 and "lock" in output.lower(), output
    assert broker.is_alive
