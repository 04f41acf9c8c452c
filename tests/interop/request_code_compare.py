"""Calls the cases of request codes on one name server and one broker, and says how two such outcomes differ."""
import itertools
import json
import re
import threading
import time
from dataclasses import dataclass

from rmqha.remoting.protocol import fastjson
from tests.interop.request_code_cases import BROKER, CLIENT, GROUP, NAMESRV, ONLINE, PRODUCERS, TOPIC, Case, heartbeat
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import Answer, RawClient, binary_header, frame, header
from tests.support.wait import wait_until

ANSWER_S = 60.0  # a call that wants an answer gets it within, also on a busy machine
QUIET_S = 1.5  # how long after the last call the server may still answer what it should not
KEEP_ALIVE_EVERY = 100  # calls
KEEP_ALIVE = 499_999  # opaque
ONEWAY = 2
NO_ANSWER = Answer(-1, "no answer", {}, b"")
KEYS_ONLY = {28, 315}  # bodies whose values depend on the moment
REPLIES = {324, 325}
BINARY = {30003}  # its body may begin with any byte
_ADDRESS = re.compile(r"(?:localhost)?/?127\.0\.0\.1:\d+")
_MESSAGE_ID = re.compile(r"7F000001[0-9A-F]{8,56}")
_TIME = re.compile(r"\b1[6-9]\d{11}\b|\b\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}\b")
_PATH = re.compile(r"/\S+/store/commitlog")
_HASH = re.compile(r"@[0-9a-f]{5,8}\b")
_EXCEPTION = re.compile(r"^(?:[a-z]+\.)+(?:[A-Z]\w*\$?)+(?:Exception|Error)\b")
# What depends on the moment, or on the log's length.
_CLOCK_FIELDS = {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset", "bornTimestamp", "delayTime", "consumeTps"}


def normal(text: str) -> str:
    """Addresses, message ids, times and hashes of objects as placeholders."""
    for pattern, name in ((_ADDRESS, "<address>"), (_MESSAGE_ID, "<id>"), (_TIME, "<time>"), (_HASH, "@<hash>"),
                          (_PATH, "<path>")):
        text = pattern.sub(name, text)
    return text


def is_exception(remark: str | None) -> bool:
    """Whether a remark is the description of an exception, Java's or Python's, with the place where it was raised."""
    return bool(remark) and (_EXCEPTION.match(remark) is not None or remark.endswith(")") and ".py:" in remark)


def normal_value(value: object) -> object:
    """A JSON value whose lists are in order and whose texts are normal."""
    if isinstance(value, dict):
        return {normal(json.dumps(key) if isinstance(key, dict) else str(key)):
                "<clock>" if key in _CLOCK_FIELDS else normal_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((normal_value(item) for item in value), key=repr)
    return normal(value if isinstance(value, str) else json.dumps(value))


def shape(value: object) -> object:
    """The keys alone."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted({repr(shape(item)) for item in value})
    return "value"


def body_of(body: bytes, keys_only: bool) -> object:
    """A body to be compared: JSON as such, `key=value` lines as their keys, anything else as its length."""
    if not body:
        return None
    if body[:1] in b"{[":
        value = normal_value(fastjson.loads(body.decode()))
        return shape(value) if keys_only else value
    lines = body.split(b"\n")
    if len(lines) > 3 and all(b"=" in line for line in lines if line):
        return sorted(line.split(b"=")[0].decode() for line in lines if line)
    return f"{len(body)} bytes"


@dataclass
class Outcome:
    """An answer, made comparable."""

    code: int
    remark: str | None
    fields: dict[str, object]
    body: object

    @classmethod
    def of(cls, answer: Answer, case: Case) -> "Outcome":
        """An answer without what belongs to its server and its time."""
        varying = _CLOCK_FIELDS | ({"queueOffset"} if case.code.number in REPLIES else set())
        keys_only = case.code.number in KEYS_ONLY
        fields = {name: "<clock>" if name in varying else normal_value(fastjson.loads(value))
                  if value[:1] == "{" else normal(value) for name, value in answer.fields.items()}
        body = f"{len(answer.body)} bytes" if case.code.number in BINARY else body_of(answer.body, keys_only)
        return cls(answer.code, normal(answer.remark) if answer.remark else None, fields, body)

    def differences(self, other: "Outcome") -> list[str]:
        """The parts that differ: code, remark, fields, body; `words` for two descriptions of exceptions."""
        parts = [name for name in ("code", "remark", "fields", "body") if getattr(self, name) != getattr(other, name)]
        if "remark" in parts and self.code == other.code and is_exception(self.remark):
            parts[parts.index("remark")] = "words"
        return parts


class Servers:
    """A name server and a broker of one kind with a stock of topics, groups, messages and clients."""

    def __init__(self, namesrv: NamesrvNode, broker: BrokerNode):
        self.namesrv = namesrv
        self.broker = broker
        self.clients = {NAMESRV: Caller(namesrv.address), BROKER: Caller(broker.address)}
        self.online = FakeConsumer(broker.address)
        self.far = Caller(namesrv.address)  # of a broker that is not there: when it closes, that broker is gone
        self.names: dict[str, str] = {}
        self._heartbeat = json.dumps(heartbeat(CLIENT, [ONLINE], [PRODUCERS])).encode()

    def close(self) -> None:
        """End the connections."""
        for client in (*self.clients.values(), self.online, self.far):
            client.socket.close()

    def stock(self) -> None:
        """The same on both kinds."""
        client = self.clients[BROKER]
        client.create_topic(TOPIC, 4)
        for topic in ("CodesSend", "CodesBatch", "CodesGone", "CodesRoute"):
            client.create_topic(topic, 1)
        first = [client.send_message(TOPIC, b"message %d" % number, properties=f"KEYS\x01key{number}\x02TAGS\x01TagA")
                 for number in range(3)][0]
        self._half_message(client)
        for group in (GROUP, ONLINE, "codes-gone", "codes-filtered"):
            body = json.dumps({"groupName": group, "retryQueueNums": 1, "retryMaxTimes": 16}).encode()
            assert client.request(200, body).code == 0
            for queue in range(4):
                assert client.request(15, consumerGroup=group, topic=TOPIC, queueId=queue, commitOffset=2).code == 0
        self.online.begin_to_consume(self._heartbeat)
        wait_until(lambda: client.max_offset(TOPIC, 0) == 3, 60_000, "dispatched")
        offset = int(first.fields["msgId"][-16:], 16)
        now = int(time.time() * 1000)
        message_id = first.fields["msgId"]
        self.names |= {"offsetId": message_id, "offset": str(offset), "now": str(now), "later": str(now + 86_400_000),
                       "offsetIdBeyond": message_id[:-16] + f"{1 << 19:016X}"}
        self._routes()

    def _half_message(self, client: RawClient) -> None:
        answer = client.send_message("CodesSend", b"half", sysFlag=4,
                                     properties=f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02UNIQ_KEY\x01half")
        assert answer.code == 0, answer
        self.names |= {"halfId": answer.fields["msgId"], "halfQueueOffset": answer.fields["queueOffset"],
                       "halfOffset": str(int(answer.fields["msgId"][-16:], 16))}

    def _routes(self) -> None:
        """The name server knows the broker's topics, a broker that is not there, and an entry."""
        client = self.clients[NAMESRV]
        table = {"topicConfigTable": {}, "dataVersion": {"counter": 1, "timestamp": 1}}
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": table}).encode()
        answer = self.far.request(
            103, body, brokerName="broker-z", brokerAddr="127.0.0.1:9", clusterName="CodesCluster", brokerId=0,
            haServerAddr="127.0.0.1:8", compressed="false", bodyCrc32=0)
        assert answer.code == 0, answer
        assert client.request(100, namespace="codes", key="key", value="value").code == 0
        wait_until(lambda: client.request(105, topic="CodesRoute").code == 0, 60_000, "the broker is registered")

    def filled(self, text: str, number: int) -> str:
        """`text` with its placeholders filled."""
        for name, value in {**self.names, "n": str(number)}.items():
            text = text.replace("{%s}" % name, value)
        return text

    def keep_alive(self) -> None:
        """Say something on each connection: servers close those that are silent for two minutes."""
        self.online.send(frame(header(34, KEEP_ALIVE), self._heartbeat))
        for client in (self.clients[NAMESRV], self.far):
            client.request(106)


def call_all(servers: list[Servers], cases: list[Case]) -> list[list[Answer]]:
    """Call one after the other, on all servers at once; the answers of each server.

    What the original does not answer is called at the end, and not waited for long.
    """
    answers: list[dict[int, Answer]] = [{} for _ in servers]
    for number, case in enumerate(cases):
        if not case.is_silent:
            callers = [one.clients[case.code.server] for one in servers]
            opaques = [caller.begin(one, number, case) for one, caller in zip(servers, callers, strict=True)]
            for caller, opaque, found in zip(callers, opaques, answers, strict=True):
                found[number] = caller.answer_to(opaque, ANSWER_S)
        if number % KEEP_ALIVE_EVERY == 0:
            for one in servers:
                one.keep_alive()
    silent = [number for number, case in enumerate(cases) if case.is_silent]
    opaques = [[one.clients[cases[number].code.server].begin(one, number, cases[number]) for number in silent]
               for one in servers]
    deadline = time.monotonic() + QUIET_S
    for one, sent, found in zip(servers, opaques, answers, strict=True):
        for number, opaque in zip(silent, sent, strict=True):
            found[number] = one.clients[cases[number].code.server].answer_to(opaque, deadline - time.monotonic())
    return [[found[number] for number in range(len(cases))] for found in answers]


class FakeConsumer(RawClient):
    """A consumer that notes what the broker asks of it, and answers what wants an answer."""

    ANSWERS = {
        221: b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"Codes"}:7}}',
        307: b'{"jstack":"none","properties":{"a":"b"}}',
        309: b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":5}',
    }

    def __init__(self, address: str):
        super().__init__(address)
        self.asked: list[Answer] = []  # appended by the reader thread only
        self._reader = threading.Thread(target=self._serve, daemon=True)

    def begin_to_consume(self, heartbeat_body: bytes) -> None:
        """Send the first heartbeat, and answer from then on."""
        self.send(frame(header(34, 500_000), heartbeat_body))
        self._reader.start()
        wait_until(lambda: any(answer.flag & 1 for answer in self.asked), 60_000, "the heartbeat is answered")

    def questions(self) -> set[tuple]:
        """Each kind of question: code, flag, fields and body."""
        return {(asked.code, asked.flag, tuple(sorted((name, normal(text)) for name, text in asked.fields.items())),
                 json.dumps(body_of(asked.body, asked.code == 220), sort_keys=True))
                for asked in list(self.asked) if not asked.flag & 1}

    def _serve(self) -> None:
        self.socket.settimeout(None)
        try:
            while True:
                opaque, asked = self.read_frame()
                self.asked.append(asked)
                if asked.code in self.ANSWERS and not asked.flag & 3:
                    head = {"code": 0, "language": "OTHER", "version": 409, "opaque": opaque, "flag": 1}
                    self.send(frame(json.dumps(head).encode(), self.ANSWERS[asked.code]))
        except (EOFError, OSError):
            return  # closed: the test is over

class Caller(RawClient):
    """A connection that keeps what it is not waiting for."""

    def __init__(self, address: str):
        super().__init__(address)
        self._opaques = itertools.count(500_000)  # the server's own calls have small numbers
        self.kept: dict[int, Answer] = {}

    def begin(self, servers: Servers, number: int, case: Case) -> int:
        """Send a case; its opaque."""
        opaque = 1_000_000 + number
        flag = ONEWAY if case.oneway else 0
        fields = {name: servers.filled(value, number) for name, value in (case.fields or {}).items()}
        if case.binary:
            head = binary_header(case.code.number, opaque, flag, **fields)
        else:
            values = {"code": case.code.number, "language": "OTHER", "version": 409, "opaque": opaque,
                      "flag": flag, **({"extFields": fields} if case.fields is not None else {})}
            head = json.dumps(values).encode()
        body = case.body
        if body[:1] == b"{":
            body = servers.filled(body.decode(), number).encode()
        self.send(frame(head, body, int(case.binary)))
        return opaque

    def answer_to(self, opaque: int, timeout_s: float) -> Answer:
        """The answer, NO_ANSWER when none comes in time or the peer closes."""
        deadline = time.monotonic() + timeout_s
        while opaque not in self.kept:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                other, answer = self.read_frame()
            except TimeoutError:
                return NO_ANSWER
            finally:
                self.socket.settimeout(60)
            self.kept[other] = answer
        return self.kept.pop(opaque)
