"""The comparison of request codes on both kinds of server, and the page with the known differences."""
import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.protocol import fastjson
from tests.interop.request_code_cases import BROKER, CLIENT, GROUP, NAMESRV, ONLINE, PRODUCERS, TOPIC, Case, heartbeat
from tests.support.java_driver import JavaDriver, Workload
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import Answer, RawClient, binary_header, frame, header
from tests.support.wait import wait_until

# Calls of all cases on one name server and one broker, and the differences of two outcomes.

# The limit of an answer, also on a busy machine.
ANSWER_S = 60.0
# How long to wait, after the last call, for answers that the server should not send.
QUIET_S = 1.5
KEEP_ALIVE_EVERY = 100  # calls
KEEP_ALIVE = 499_999  # opaque
ONEWAY = 2
NO_ANSWER = Answer(-1, "no answer", {}, b"")
# Codes of bodies whose values change all the time.
KEYS_ONLY = {28, 315}
REPLIES = {324, 325}
# The code of a body that may begin with any byte.
BINARY = {30003, 30004}
_ADDRESS = re.compile(r"(?:localhost)?/?127\.0\.0\.1:\d+")
_MESSAGE_ID = re.compile(r"7F000001[0-9A-F]{8,56}")
_TIME = re.compile(r"\b1[6-9]\d{11}\b|\b\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}\b")
_PATH = re.compile(r"/\S+/store/commitlog")
_HASH = re.compile(r"@[0-9a-f]{5,8}\b")
_EXCEPTION = re.compile(r"^(?:[a-z]+\.)+(?:[A-Z]\w*\$?)+(?:Exception|Error)\b")
# Values that depend on the time or on the length of the log.
_CLOCK_FIELDS = {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset", "bornTimestamp", "delayTime", "consumeTps"}


def normal(text: str) -> str:
    """Replace addresses, message ids, times and hashes of objects by placeholders."""
    for pattern, name in ((_ADDRESS, "<address>"), (_MESSAGE_ID, "<id>"), (_TIME, "<time>"), (_HASH, "@<hash>"),
                          (_PATH, "<path>")):
        text = pattern.sub(name, text)
    return text


def is_exception(remark: str | None) -> bool:
    """Return whether a remark describes an exception of Java or Python, with the place where it was raised."""
    return bool(remark) and (_EXCEPTION.match(remark) is not None or remark.endswith(")") and ".py:" in remark)


def normal_value(value: object) -> object:
    """Return a JSON value with sorted lists and normalized texts."""
    if isinstance(value, dict):
        return {normal(json.dumps(key) if isinstance(key, dict) else str(key)):
                "<clock>" if key in _CLOCK_FIELDS else normal_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((normal_value(item) for item in value), key=repr)
    return normal(value if isinstance(value, str) else json.dumps(value))


def shape(value: object) -> object:
    """Return only the keys."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted({repr(shape(item)) for item in value})
    return "value"


def body_of(body: bytes, keys_only: bool) -> object:
    """Return a comparable body: JSON as such, `key=value` lines as their keys, anything else as its length."""
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
    """An answer in comparable form."""

    code: int
    remark: str | None
    fields: dict[str, object]
    body: object

    @classmethod
    def of(cls, answer: Answer, case: Case) -> "Outcome":
        """Return an answer without the parts that depend on its server or its time."""
        varying = _CLOCK_FIELDS | ({"queueOffset"} if case.code.number in REPLIES else set())
        keys_only = case.code.number in KEYS_ONLY
        fields = {name: "<clock>" if name in varying else normal_value(fastjson.loads(value))
                  if value[:1] == "{" else normal(value) for name, value in answer.fields.items()}
        body = f"{len(answer.body)} bytes" if case.code.number in BINARY else body_of(answer.body, keys_only)
        return cls(answer.code, normal(answer.remark) if answer.remark else None, fields, body)

    def differences(self, other: "Outcome") -> list[str]:
        """Return the parts that differ: code, remark, fields, body; `words` for two descriptions of exceptions."""
        parts = [name for name in ("code", "remark", "fields", "body") if getattr(self, name) != getattr(other, name)]
        if "remark" in parts and self.code == other.code and is_exception(self.remark):
            parts[parts.index("remark")] = "words"
        return parts


class Servers:
    """A name server and a broker of one kind with topics, groups, messages and clients."""

    def __init__(self, namesrv: NamesrvNode, broker: BrokerNode):
        self.namesrv = namesrv
        self.broker = broker
        self.clients = {NAMESRV: Caller(namesrv.address), BROKER: Caller(broker.address)}
        self.online = FakeConsumer(broker.address)
        # The connection of a broker that does not exist: the broker is unregistered when it closes.
        self.far = Caller(namesrv.address)
        self.names: dict[str, str] = {}
        self._heartbeat = json.dumps(heartbeat(CLIENT, [ONLINE], [PRODUCERS])).encode()

    def close(self) -> None:
        """Close the connections."""
        for client in (*self.clients.values(), self.online, self.far):
            client.socket.close()

    def stock(self) -> None:
        """Create the same data on both kinds."""
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
        """Wait until the name server knows the broker's topics; register a broker that does not exist, and an entry."""
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
        """Return `text` with its placeholders filled in."""
        for name, value in {**self.names, "n": str(number)}.items():
            text = text.replace("{%s}" % name, value)
        return text

    def keep_alive(self) -> None:
        """Send something on each connection: servers close connections that are idle for two minutes."""
        self.online.send(frame(header(34, KEEP_ALIVE), self._heartbeat))
        for client in (self.clients[NAMESRV], self.far):
            client.request(106)


def call_all(servers: list[Servers], cases: list[Case]) -> list[list[Answer]]:
    """Call the cases one after another, on all servers in parallel; return the answers of each server.

    Cases that the original does not answer are called last, and waited for only briefly.
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
    """A consumer that records the broker's requests, and answers those that expect an answer."""

    ANSWERS = {
        221: b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"Codes"}:7}}',
        307: b'{"jstack":"none","properties":{"a":"b"}}',
        309: b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":5}',
    }

    def __init__(self, address: str):
        super().__init__(address)
        # Only the reader thread appends.
        self.asked: list[Answer] = []
        self._reader = threading.Thread(target=self._serve, daemon=True)

    def begin_to_consume(self, heartbeat_body: bytes) -> None:
        """Send the first heartbeat, and answer requests from then on."""
        self.send(frame(header(34, 500_000), heartbeat_body))
        self._reader.start()
        wait_until(lambda: any(answer.flag & 1 for answer in self.asked), 60_000, "the heartbeat is answered")

    def questions(self) -> set[tuple]:
        """Return each kind of request once: code, flag, fields and body."""
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
            # closed at the end of the test
            return

class Caller(RawClient):
    """A connection that keeps the answers that it is not waiting for."""

    def __init__(self, address: str):
        super().__init__(address)
        # The server's own requests have small numbers.
        self._opaques = itertools.count(500_000)
        self.kept: dict[int, Answer] = {}

    def begin(self, servers: Servers, number: int, case: Case) -> int:
        """Send a case, and return its opaque."""
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
        """Return the answer, or NO_ANSWER if none arrives in time or the peer closes the connection."""
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


# Consumers that brokers send requests to: Java's at rmqha's broker, and rmqha's at Java's. Both give the same answers.

QUESTIONS_TOPIC, QUESTIONS_GROUP = "CodesAsked", "codes-asked"
LOAD = Workload(QUESTIONS_TOPIC, 11, [40])
# Of eleven messages; the last one ends the consumer's job.
FIRST = 10
LONG_MS = 60_000


@dataclass
class Asked:
    """A consumer that has consumed the first ten messages of queue 0."""

    broker: RawClient
    client_id: str
    message_id: str
    # Returns how many messages the listener has got, repeats included.
    consumed: Callable[[], int]

    def ask(self, code: int, **fields: object) -> object:
        """Send a request, and return the JSON of its successful answer."""
        answer = self.broker.request(code, **fields)
        assert answer.code == 0, answer
        return fastjson.loads(answer.body)


@contextmanager
def java_consumer(servers: Servers, driver: JavaDriver) -> Iterator[Asked]:
    """Yield the official push consumer, which runs in the driver's JVM."""
    with _filled(servers, driver) as (broker, message_id):
        namesrv = servers.namesrv.address
        job = driver.start_consume(namesrv, LOAD, QUESTIONS_GROUP)
        job.wait_progress(0)
        client_id = _client_id(broker)
        taken: list[int] = []

        def consumed() -> int:
            """Stop the consumer, and return the number of messages that it consumed."""
            if not taken:
                driver.produce(namesrv, LOAD.part(FIRST, 1), threads=1)
                report = job.result()
                taken.append(report["distinct"] - 1 + report["repeats"])
            return taken[0]
        yield Asked(broker, client_id, message_id, consumed)
        consumed()


@contextmanager
def rmqha_consumer(servers: Servers, driver: JavaDriver) -> Iterator[Asked]:
    """Yield rmqha's push consumer, which runs in this process."""
    with _filled(servers, driver) as (broker, message_id):
        bodies: list[bytes] = []

        def listener(messages: list) -> ConsumeConcurrentlyStatus:
            bodies.extend(message.body for message in messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        consumer = DefaultMQPushConsumer(QUESTIONS_GROUP, servers.namesrv.address, listener,
                                         client_manager=MQClientManager())
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe(QUESTIONS_TOPIC)
        with consumer:
            yield Asked(broker, _client_id(broker), message_id, lambda: len(bodies))


@contextmanager
def _filled(servers: Servers, driver: JavaDriver) -> Iterator[tuple[RawClient, str]]:
    with RawClient(servers.broker.address, 60) as broker:
        broker.create_topic(QUESTIONS_TOPIC, 1)
        namesrv = servers.namesrv.address
        with RawClient(namesrv) as client:
            wait_until(lambda: client.request(105, topic=QUESTIONS_TOPIC).code == 0, LONG_MS,
                       f"route of {QUESTIONS_TOPIC}")
        sent = driver.produce(namesrv, LOAD.part(0, FIRST), threads=1)
        assert all(one.ok for one in sent)
        yield broker, sent[0].offset_msg_id


def _client_id(broker: RawClient) -> str:
    def members() -> list[str]:
        answer = broker.request(38, consumerGroup=QUESTIONS_GROUP)
        return json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
    wait_until(members, LONG_MS, "the consumer is known")
    return members()[0]


# The known differences from the original's answers, and the page docs/reference/request-codes.md.

HEAD = """# Request codes, beside RocketMQ

This page shows, for each request code, whether rmqha's broker and name server answer as RocketMQ 4.9.7 does. It is for
those who write clients or tools for the remoting protocol.

Every code that RocketMQ handles, and rmqha's own codes 30003 and 30004, is called on both. The servers hold the same
topics, groups, messages and clients. The cases of a code are:

- valid fields; each field missing; all fields missing;
- each field invalid in several ways: empty, not a number, negative, too large, unknown, illegal, too long;
- a valid, a missing and a broken body;
- one-way, and with both kinds of header.

Response code, remark, header fields and body are compared, except addresses, times, message ids and hashes of objects.
`tests/interop/request_code_cases.py` has the cases. The columns of the tables count them:

- **same**: all parts are equal.
- **words**: the code is the same, and RocketMQ's remark is the text of a Java exception, mostly a
  NullPointerException. rmqha's remark says what is wrong with the request: `the custom field <topic> is null`.
- **differs**: another difference. The number in brackets is that of [its reason](#differences-and-their-reasons).

"""


@dataclass(frozen=True)
class Known:
    """A difference that is intended, or caused by the original. `cases` is the pattern of the calls."""

    reason: str
    codes: dict[int, str]
    server: str = BROKER

    def covers(self, case: Case) -> bool:
        """Return whether the difference applies to a case."""
        pattern = self.codes.get(case.code.number)
        return pattern is not None and case.code.server == self.server and re.fullmatch(pattern, case.what) is not None


NUMBER = "(empty|no number|a fraction|2\\^31|2\\^63)"
KNOWN = [
    Known("A missing or malformed field that the answer depends on is refused, and the answer names it. RocketMQ "
          "continues with null or 0, and finds, commits, clones or resets something else.",
          {14: "without consumerGroup", 15: "without (consumerGroup|topic)", 222: f"timestamp: {NUMBER}",
           223: "without topic", 308: "without compareGroup", 314: "without (srcGroup|destGroup)"}),
    Known("The request has two faults, a bad field and an unknown topic. RocketMQ reports the topic, rmqha the field.",
          {code: "no (fields|extFields).*" for code in (10, 310, 320, 324, 325, 17)}),
    Known("A reply's sysFlag is read, so it must be present. RocketMQ ignores it.",
          {324: f"(without sysFlag|sysFlag: {NUMBER})", 325: "without f"}),
    Known("RocketMQ throws an exception for a number of messages that exceeds a Java array. rmqha returns what "
          "fits.",
          {11: "maxMsgNums: (negative|2\\^31 - 1)", 12: "maxNum: (negative|2\\^31 - 1)"}),
    Known("Java's int overflows for so large a number of units, and RocketMQ returns none.",
          {321: "count: 2\\^31 - 1"}),
    Known("RocketMQ creates a consume queue for any name in the request, even with folders outside its own. rmqha "
          "has no queue for such a name.", {31: "topic: (empty|illegal)",
                                            321: "topic: .*|queueId: (negative|2\\^31 - 1)"}),
    Known("An offset of a topic or queue that the broker does not have is refused. RocketMQ keeps it for ever.",
          {15: "topic: (empty|unknown|illegal|too long)|queueId: (negative|2\\^31 - 1)"}),
    Known("A batch that cannot be parsed is an illegal message. RocketMQ throws an exception.",
          {320: "(no body|body of noise|body cut)"}),
    Known("A body that is not a JSON object is refused. RocketMQ treats it as missing, and answers SUCCESS without "
          "having done anything.", {46: "body (\\[\\]|null)", 200: "body (\\[\\]|null)"}),
    Known("A heartbeat without a client id registers no client.", {34: "(body {}|no client)"}),
    Known("Numbers of queues below 0 or above 65536 are refused. RocketMQ stores them; then every send fails, "
          "or a request for the topic's offsets takes all memory.",
          {17: "(read|write)QueueNums: (negative|2\\^31 - 1)"}),
    Known("An invalid value is refused, so that a change that is answered with SUCCESS has happened.",
          {25: "no number"}),
    Known("4.9.8 has this black list; 4.9.7 does not.", {25: "black listed key"}),
    Known("rmqha also has its own config keys and those of 4.9.8.", {26: ".*"}),
    Known("rmqha also returns the state of replication.", {28: ".*"}),
    Known("Without access control there is nothing to change, and rmqha says so. RocketMQ's remark is that of a "
          "NullPointerException.", {50: ".*", 51: ".*", 53: ".*"}),
    Known("RocketMQ does not answer when access control is off.", {52: ".*", 54: ".*"}),
    Known("RocketMQ does not have this request. rmqha compares replicas with it.", {30003: ".*"}),
    Known("RocketMQ does not have this request. rmqha lists messages without their bodies with it.", {30004: ".*"}),
    Known("RocketMQ answers even a one-way request if it finds messages.", {12: "one-way", 33: "one-way"}),
    Known("A broker without a name, address or cluster, or with a negative id, is not registered.",
          {103: "(without |)(brokerName|brokerAddr|clusterName)(: empty|)|brokerId: negative"}, NAMESRV),
    Known("A checksum that is not a number is refused. RocketMQ skips the check.",
          {103: "bodyCrc32: (empty|no number)"}, NAMESRV),
    Known("An entry without a value is refused. RocketMQ stores null.", {100: "without value"}, NAMESRV),
    Known("A body that is not a JSON object is refused. RocketMQ treats it as missing.",
          {322: "body (\\[\\]|null)"}, NAMESRV),
    Known("A value that is not a boolean is refused, so that a change that is answered with SUCCESS has happened. "
          "RocketMQ takes it for false.", {318: "no boolean"}, NAMESRV),
    Known("4.9.8 has this black list; 4.9.7 does not.", {318: "black listed key"}, NAMESRV),
    Known("rmqha has the config keys of 4.9.8.", {319: ".*"}, NAMESRV),
]


@dataclass
class Row:
    """A case and the two outcomes."""

    case: Case
    java: Outcome
    rmqha: Outcome

    @property
    def differences(self) -> list[str]:
        """The parts that differ; see Outcome.differences."""
        return self.java.differences(self.rmqha)

    @property
    def known(self) -> int | None:
        """The index of the entry in KNOWN that covers this case."""
        return next((index for index, entry in enumerate(KNOWN) if entry.covers(self.case)), None)

    @property
    def verdict(self) -> str:
        """The verdict: `same`, `words` or `differs`."""
        parts = self.differences
        return "same" if not parts else "words" if parts == ["words"] else "differs"

    def unexplained(self) -> str | None:
        """Return a readable description of a difference without an entry in KNOWN."""
        if self.verdict != "differs" or self.known is not None:
            return None
        code = self.case.code
        return (f"{code.server} {code.number} {code.name}, {self.case.what}: {', '.join(self.differences)}\n"
                f"  original: {self.java}\n  rmqha:    {self.rmqha}")


def render(rows: list[Row]) -> str:
    """Return the text of docs/reference/request-codes.md."""
    by_code: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        code = row.case.code
        if code.is_served:
            by_code.setdefault((code.server, code.number, code.name), []).append(row)
    notes: list[int] = []
    parts = [HEAD]
    for server, title in ((BROKER, "Broker"), (NAMESRV, "Name server")):
        parts.append(f"## {title}\n\n| code | name | cases | same | words | differs |\n|---|---|---|---|---|---|\n")
        parts += [_line(number, name, found, notes) for (where, number, name), found in sorted(by_code.items())
                  if where == server]
        others = [row for row in rows if row.case.code.server == server and not row.case.code.is_served]
        does = "answers REQUEST_CODE_NOT_SUPPORTED" if server == BROKER else "does not answer"
        alike = sum(row.verdict == "same" for row in others)
        parts.append(f"\n{len(others)} other codes were called: those of the other server, those that are defined but "
                     f"not handled, and unknown ones. RocketMQ {does}. rmqha does the same for "
                     f"{'all' if alike == len(others) else alike} of them.\n\n")
    parts.append("## Differences and their reasons\n\n")
    parts += [f"{number}. {KNOWN[index].reason}\n" for number, index in enumerate(notes, 1)]
    total = Counter(row.verdict for row in rows)
    parts.append(f"\nOf {len(rows)} cases, {total['same']} are the same, {total['words']} have other words, and "
                 f"{total['differs']} differ.\n\n---\n\n"
                 "`python -m tests.interop.test_request_codes_beside_java` generates this page.\n")
    return "".join(parts)


def _line(number: int, name: str, found: list[Row], notes: list[int]) -> str:
    count = Counter(row.verdict for row in found)
    reasons: Counter[int] = Counter(row.known for row in found if row.verdict == "differs" and row.known is not None)
    notes += [index for index in reasons if index not in notes]
    marks = ", ".join(f"{times} ({notes.index(index) + 1})" for index, times in reasons.items())
    numbers = " | ".join(str(count[verdict] or "") for verdict in ("same", "words"))
    return f"| {number} | {name} | {len(found)} | {numbers} | {marks} |\n"
