"""Calls the cases of request codes on both kinds of server, says how outcomes differ, and writes the table of what
may."""
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

# Calls the cases of request codes on one name server and one broker, and says how two such outcomes differ.

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


# Consumers that brokers ask: Java's on rmqha's broker, and rmqha's on Java's. Whoever asks gets the same answers.

QUESTIONS_TOPIC, QUESTIONS_GROUP = "CodesAsked", "codes-asked"
LOAD = Workload(QUESTIONS_TOPIC, 11, [40])
FIRST = 10  # of the eleven; the last one ends the consumer's job
LONG_MS = 60_000


@dataclass
class Asked:
    """A consumer that has consumed the first ten messages of queue 0."""

    broker: RawClient
    client_id: str
    message_id: str
    consumed: Callable[[], int]  # messages that its listener has got, repeats counted

    def ask(self, code: int, **fields: object) -> object:
        """The JSON of a successful answer."""
        answer = self.broker.request(code, **fields)
        assert answer.code == 0, answer
        return fastjson.loads(answer.body)


@contextmanager
def java_consumer(servers: Servers, driver: JavaDriver) -> Iterator[Asked]:
    """The official push consumer, in the driver's JVM."""
    with _filled(servers, driver) as (broker, message_id):
        namesrv = servers.namesrv.address
        job = driver.start_consume(namesrv, LOAD, QUESTIONS_GROUP)
        job.wait_progress(0)
        client_id = _client_id(broker)
        taken: list[int] = []

        def consumed() -> int:
            """Ends the consumer."""
            if not taken:
                driver.produce(namesrv, LOAD.part(FIRST, 1), threads=1)
                report = job.result()
                taken.append(report["distinct"] - 1 + report["repeats"])
            return taken[0]
        yield Asked(broker, client_id, message_id, consumed)
        consumed()


@contextmanager
def rmqha_consumer(servers: Servers, driver: JavaDriver) -> Iterator[Asked]:
    """rmqha's push consumer, in this process."""
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


# What is known to differ from the answers of the original, and the table of docs/reference/request-codes.md.

HEAD = """# Request codes, beside the original

Each code that RocketMQ's broker and name server handle, and 30003 of rmqha's own, is called on a real 4.9.7 and on
rmqha, which hold the same topics, groups, messages and clients: with right fields, without each field, with each field
wrong in several ways (empty, no number, negative, beyond its width, unknown, illegal, too long), without any field,
with a right, a missing and a broken body, one-way, and with both kinds of header. Compared are response code, remark,
fields of the header and the body; addresses, times, message ids and hashes of objects left out.
`tests/interop/request_code_cases.py` has the cases. This page is written by
`python -m tests.interop.test_request_codes_beside_java`.

- **same**: all of that is equal.
- **words**: the same code, and the original's remark is the text of a Java exception (mostly a NullPointerException).
  rmqha says what is wrong with the request: `the custom field <topic> is null`.
- **differs**: listed below, with the reason.

"""


@dataclass(frozen=True)
class Known:
    """A difference that is meant, or the original's: `cases` is a pattern of what is called."""

    reason: str
    codes: dict[int, str]
    server: str = BROKER

    def covers(self, case: Case) -> bool:
        """Whether it is this case's."""
        pattern = self.codes.get(case.code.number)
        return pattern is not None and case.code.server == self.server and re.fullmatch(pattern, case.what) is not None


NUMBER = "(empty|no number|a fraction|2\\^31|2\\^63)"
KNOWN = [
    Known("A missing or malformed field on which the answer depends is refused by its name; the original goes on with "
          "null or 0, and finds, commits, clones or resets something else.",
          {14: "without consumerGroup", 15: "without (consumerGroup|topic)", 222: f"timestamp: {NUMBER}",
           223: "without topic", 308: "without compareGroup", 314: "without (srcGroup|destGroup)"}),
    Known("The first thing that is wrong is another one: the field, not the topic that is missing too.",
          {code: "no (fields|extFields).*" for code in (10, 310, 320, 324, 325, 17)}),
    Known("A reply's sysFlag is read, and so has to be there; the original does not look at it.",
          {324: f"(without sysFlag|sysFlag: {NUMBER})", 325: "without f"}),
    Known("A number of messages that no array of Java's can have is an exception there; rmqha gives what fits.",
          {11: "maxMsgNums: (negative|2\\^31 - 1)", 12: "maxNum: (negative|2\\^31 - 1)"}),
    Known("Java's int wraps when so many units are asked for, and none are given.", {321: "count: 2\\^31 - 1"}),
    Known("The original makes a consume queue of any name that is asked about, and folders outside of its own; rmqha "
          "has no queue for such a name.", {31: "topic: (empty|illegal)",
                                            321: "topic: .*|queueId: (negative|2\\^31 - 1)"}),
    Known("An offset of a topic or a queue that the broker does not have is refused; the original keeps it for ever.",
          {15: "topic: (empty|unknown|illegal|too long)|queueId: (negative|2\\^31 - 1)"}),
    Known("A batch that cannot be read is an illegal message; the original ends in an exception.",
          {320: "(no body|body of noise|body cut)"}),
    Known("A body that is no object is refused; the original takes it for an absent one, and says SUCCESS without "
          "having done anything.", {46: "body (\\[\\]|null)", 200: "body (\\[\\]|null)"}),
    Known("A heartbeat without a client id registers nobody.", {34: "(body {}|no client)"}),
    Known("Numbers of queues below 0 or above 65536 are refused; the original stores them, and then each send fails, "
          "or a question for the topic's offsets takes all memory.",
          {17: "(read|write)QueueNums: (negative|2\\^31 - 1)"}),
    Known("A change that is answered with SUCCESS has happened: a bad value is refused.", {25: "no number"}),
    Known("4.9.8 has this black list, 4.9.7 not yet.", {25: "black listed key"}),
    Known("rmqha has configuration keys of its own, and those of 4.9.8.", {26: ".*"}),
    Known("rmqha tells about replication, too.", {28: ".*"}),
    Known("Without access control there is nothing to change: said in so many words, where the original's remark is "
          "that of a NullPointerException.", {50: ".*", 51: ".*", 53: ".*"}),
    Known("The original gives no answer when access control is off.", {52: ".*"}),
    Known("The original does not have this request, by which replicas of rmqha are compared.", {30003: ".*"}),
    Known("The original answers a one-way request that finds messages.", {12: "one-way", 33: "one-way"}),
    Known("A broker without a name, an address or a cluster, or with a negative id, is not registered.",
          {103: "(without |)(brokerName|brokerAddr|clusterName)(: empty|)|brokerId: negative"}, NAMESRV),
    Known("A checksum that is no number is refused; the original does without the check.",
          {103: "bodyCrc32: (empty|no number)"}, NAMESRV),
    Known("An entry without a value is refused; the original stores null.", {100: "without value"}, NAMESRV),
    Known("A body that is no object is refused; the original takes it for an absent one.",
          {322: "body (\\[\\]|null)"}, NAMESRV),
    Known("A change that is answered with SUCCESS has happened: what is no boolean is refused; the original takes it "
          "for false.", {318: "no boolean"}, NAMESRV),
    Known("4.9.8 has this black list, 4.9.7 not yet.", {318: "black listed key"}, NAMESRV),
    Known("rmqha has the configuration keys of 4.9.8.", {319: ".*"}, NAMESRV),
]


@dataclass
class Row:
    """A case and the two outcomes."""

    case: Case
    java: Outcome
    rmqha: Outcome

    @property
    def differences(self) -> list[str]:
        """See Outcome.differences."""
        return self.java.differences(self.rmqha)

    @property
    def known(self) -> int | None:
        """Index of the entry of KNOWN that covers this case."""
        return next((index for index, entry in enumerate(KNOWN) if entry.covers(self.case)), None)

    @property
    def verdict(self) -> str:
        """same, words, or differs."""
        parts = self.differences
        return "same" if not parts else "words" if parts == ["words"] else "differs"

    def unexplained(self) -> str | None:
        """What differs and is in no entry, for people to read."""
        if self.verdict != "differs" or self.known is not None:
            return None
        code = self.case.code
        return (f"{code.server} {code.number} {code.name}, {self.case.what}: {', '.join(self.differences)}\n"
                f"  original: {self.java}\n  rmqha:    {self.rmqha}")


def render(rows: list[Row]) -> str:
    """docs/reference/request-codes.md."""
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
        answer = "REQUEST_CODE_NOT_SUPPORTED" if server == BROKER else "no answer"
        parts.append(f"\n{len(others)} other codes (those of the other server, those that are defined and not handled, "
                     f"and unknown ones): {answer}, the same in {sum(row.verdict == 'same' for row in others)}.\n\n")
    parts.append("## What differs, and why\n\n")
    parts += [f"{number}. {KNOWN[index].reason}\n" for number, index in enumerate(notes, 1)]
    total = Counter(row.verdict for row in rows)
    parts.append(f"\nOf {len(rows)} cases {total['same']} are the same, {total['words']} have other words, "
                 f"{total['differs']} differ.\n")
    return "".join(parts)


def _line(number: int, name: str, found: list[Row], notes: list[int]) -> str:
    count = Counter(row.verdict for row in found)
    reasons: Counter[int] = Counter(row.known for row in found if row.verdict == "differs" and row.known is not None)
    notes += [index for index in reasons if index not in notes]
    marks = ", ".join(f"{times} ({notes.index(index) + 1})" for index, times in reasons.items())
    numbers = " | ".join(str(count[verdict] or "") for verdict in ("same", "words"))
    return f"| {number} | {name} | {len(found)} | {numbers} | {marks} |\n"
