"""Raw clients that share no code with rmqha: connections, signed requests, a metrics port, and many slaves."""
import base64
import hashlib
import hmac
import http.client
import itertools
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rmqha.common.metrics import Subject
from rmqha.remoting.http_port import MetricsPort
from tests.support.wait import wait_until

# Reading a metrics port as Prometheus does.


def http_get(port: int, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


class Scrape:
    """The metrics of one answer."""

    def __init__(self, port: int) -> None:
        status, body, _headers = http_get(port, "/metrics")
        assert status == 200, body
        self.text = body.decode()
        self.families = {family.name: family for family in text_string_to_metric_families(self.text)}
        self.samples: list[Sample] = [sample for family in self.families.values() for sample in family.samples]

    def all(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of a name that have these labels."""
        return [sample for sample in self.samples
                if sample.name == name and labels.items() <= sample.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """Return the value of the one sample of a name that has these labels."""
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0].value


@contextmanager
def metrics_port(subject: Subject) -> Iterator[int]:
    """Yield a port that exposes the metrics of `subject`."""
    port = MetricsPort("127.0.0.1", 0, lambda: subject)
    port.start()
    try:
        yield port.local_port
    finally:
        port.shutdown()


# A raw remoting connection, written from the wire format without code of rmqha: the good client beside bad ones.
#
# A frame: 4 length of what follows, 1 serialize type (0 JSON, 1 ROCKETMQ), 3 header length, header, body.

SEND_MESSAGE, PULL_MESSAGE, GET_MAX_OFFSET, GET_BROKER_RUNTIME_INFO = 10, 11, 30, 28
UPDATE_TOPIC, SEND_BATCH = 17, 320
GET_BROKER_CLUSTER_INFO, REGISTER_BROKER = 106, 103
SYSTEM_BUSY = 2


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0, header_length: int | None = None) -> bytes:
    """Return a frame around any header bytes; `header_length` may be wrong."""
    length = len(header) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(header) + len(body), serialize_type << 24 | length & 0xFFFFFF) + header + body


def header(code: int, opaque: int = 1, **fields: object) -> bytes:
    """Return a JSON header."""
    return json.dumps({"code": code, "language": "OTHER", "version": 409, "opaque": opaque, "flag": 0,
                       "extFields": {key: str(value) for key, value in fields.items()}}).encode()


def binary_header(code: int, opaque: int = 1, flag: int = 0, /, **fields: object) -> bytes:
    """Return a ROCKETMQ header: code, language, version, opaque, flag, remark, fields; each text after its length."""
    pairs = b""
    for name, value in fields.items():
        key, text = name.encode(), str(value).encode()
        pairs += struct.pack(">h", len(key)) + key + struct.pack(">i", len(text)) + text
    return struct.pack(">hbhiii", code, 5, 409, opaque, flag, 0) + struct.pack(">i", len(pairs)) + pairs


def read_binary_header(head: bytes) -> dict[str, object]:
    """Return the header with the names of a JSON header."""
    code, _language, _version, opaque, flag, length = struct.unpack_from(">hbhiii", head)
    remark = head[17:17 + length].decode()
    at, fields = 17 + length + 4, {}
    while at < len(head):
        texts = []
        for size in (">h", ">i"):
            (length,) = struct.unpack_from(size, head, at)
            at += struct.calcsize(size)
            texts.append(head[at:at + length].decode())
            at += length
        fields[texts[0]] = texts[1]
    return {"code": code, "opaque": opaque, "flag": flag, "remark": remark or None, "extFields": fields}


@dataclass
class Answer:
    """A response, or a request of the other side (if `flag` is even)."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    flag: int = 1


def _unless_busy(answer: Answer) -> Answer | None:
    return None if answer.code == SYSTEM_BUSY and "busy" in (answer.remark or "") else answer


class RawClient:
    """One connection; `request` sends a request and waits for its answer."""

    def __init__(self, address: str, timeout_s: float = 60):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._opaques = itertools.count(1)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self.socket.sendall(data)

    def request(self, code: int, body: bytes = b"", **fields: object) -> Answer:
        """Send a request and wait for its answer."""
        opaque = next(self._opaques)
        self.send(frame(header(code, opaque, **fields), body))
        while True:
            answered, answer = self.read_frame()
            if answered == opaque:
                return answer

    def read_frame(self) -> tuple[int, Answer]:
        """Return the next frame: (opaque, answer). EOFError if the peer closes."""
        (length,) = struct.unpack(">i", self._read(4))
        data = self._read(length)
        mark = struct.unpack_from(">I", data)[0]
        header_length = mark & 0xFFFFFF
        head = (read_binary_header if mark >> 24 else json.loads)(data[4:4 + header_length])
        body = data[4 + header_length:]
        return head["opaque"], Answer(head["code"], head.get("remark"), head.get("extFields") or {}, body, head["flag"])

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError("the peer closed the connection")
            data += chunk
        return bytes(data)

    def answer_or_close(self, timeout_s: float = 60) -> Answer | None:
        """Return the next answer, or None if the peer closes instead; AssertionError if neither happens."""
        self.socket.settimeout(timeout_s)
        try:
            return self.read_frame()[1]
        except (EOFError, ConnectionResetError):
            return None
        except TimeoutError:
            raise AssertionError(f"neither answered nor closed within {timeout_s} s") from None

    def is_closed_by_peer(self, timeout_s: float = 60) -> bool:
        """Return whether the peer ends the connection (FIN or RST) in time; bytes that it sends before are dropped."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(65536):
                    return True
            except ConnectionResetError:
                return True
            except TimeoutError:
                break
        return False

    def send_message(self, topic: str, body: bytes, queue_id: int = 0, **changes: object) -> Answer:
        """Send SEND_MESSAGE (10), again for as long as the broker is too busy to store anything, as producers do.

        `send_message_once` is for tests of which broker accepts messages, or whether it accepts them immediately.

        A Java broker is busy without a free write buffer, while the page cache keeps it waiting for 1 s, or when the
        request has waited for 200 ms.
        """
        return wait_until(lambda: _unless_busy(self.send_message_once(topic, body, queue_id, **changes)), 60_000,
                          "the broker accepts a message")

    def send_message_once(self, topic: str, body: bytes, queue_id: int = 0, **changes: object) -> Answer:
        """Send SEND_MESSAGE (10) with the fields of a Java producer; `changes` replaces some."""
        fields = {"producerGroup": "raw-producer", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                  "queueId": queue_id, "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": 0,
                  "properties": "TAGS\x01TagA", "reconsumeTimes": 0, "unitMode": "false", "maxReconsumeTimes": 0,
                  "batch": "false", **changes}
        return self.request(SEND_MESSAGE, body, **fields)

    def pull(self, topic: str, queue_id: int, offset: int, max_nums: int = 32, **changes: object) -> Answer:
        """Send PULL_MESSAGE (11) with a subscription to all tags and without waiting."""
        fields = {"consumerGroup": "raw-consumer", "topic": topic, "queueId": queue_id, "queueOffset": offset,
                  "maxMsgNums": max_nums, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                  "subscription": "*", "subVersion": 0, "expressionType": "TAG", **changes}
        return self.request(PULL_MESSAGE, **fields)

    def create_topic(self, topic: str, queues: int) -> None:
        """Send UPDATE_AND_CREATE_TOPIC (17)."""
        answer = self.request(UPDATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=queues, perm=6,
                              writeQueueNums=queues, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false")
        assert answer.code == 0, answer

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next queue offset."""
        answer = self.request(GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        assert answer.code == 0, answer
        return int(answer.fields["offset"])


# A raw client that signs its requests, without code of rmqha, from any address of this host.


class SignedClient(RawClient):
    """A client with an `account`, (access key, secret key) or None for unsigned requests; `source` is its address."""

    def __init__(self, address: str, account: tuple[str, str] | None, source: str = "127.0.0.1"):
        host, port = address.rsplit(":", 1)
        super().__init__(address)
        self.socket.close()
        self.socket = socket.create_connection((host, int(port)), 60, source_address=(source, 0))
        # A broker's own requests, which are skipped, have small ones.
        self._opaques = itertools.count(1 << 30)
        self.account = account

    def request(self, code: int, body: bytes = b"", **fields: object) -> Answer:
        """Sign and send a request, and wait for its answer."""
        return super().request(code, body, **self.signed(fields, body))

    def signed(self, fields: dict[str, object], body: bytes) -> dict[str, object]:
        """Return the fields with key and signature."""
        if self.account is None:
            return fields
        texts = {**{name: str(value) for name, value in fields.items()}, "AccessKey": self.account[0]}
        content = "".join(texts[name] for name in sorted(texts)).encode() + body
        digest = hmac.new(self.account[1].encode(), content, hashlib.sha1).digest()
        return {**texts, "Signature": base64.b64encode(digest).decode()}

    def send_frame(self, topic: str, number: int) -> bytes:
        """Return the bytes of a signed SEND_MESSAGE_V2 (310), to be sent with others."""
        body = b"message %d" % number
        fields = {"a": "signed-producer", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "",
                  "j": 0, "k": "false", "l": 0, "m": "false"}
        return frame(header(310, next(self._opaques), **self.signed(fields, body)), body)


# Many cheap slaves of 4.9 in one process: the bytes that a master sends them are discarded.
#
#     python -m tests.support.raw_remoting PORT COUNT OFFSET
#
# Each of the COUNT connections reports OFFSET first, then the end of the last complete frame of each read, as 4.9's
# slave does, although it stores nothing. Frames that do not follow each other end the process. It prints "ready" when
# the master has sent something to each connection, if only a heartbeat, and ends when its standard input does.

_HEADER = struct.Struct(">qi")
_BUFFER = 1 << 20
# The last report is repeated, so that the master does not consider the slave dead.
_REPEAT_S = 2


class RawSlave:
    """One connection: splits the stream into frames, keeps no bodies."""

    def __init__(self, port: int, offset: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end = offset  # end of the last complete frame
        self.frames = 0
        self._head = b""  # start of an incomplete header
        self._left = 0  # remaining bytes of the current body
        self._body_end = offset
        self.report()

    def report(self) -> None:
        """Report the end of this slave's log."""
        self.socket.sendall(self.end.to_bytes(8, "big"))

    def feed(self, view: memoryview, size: int) -> None:
        """Process the next `size` bytes of the stream; report if they end a frame that is not a heartbeat."""
        at, before = 0, self.end
        while at < size:
            if self._left:
                taken = min(self._left, size - at)
                at += taken
                self._left -= taken
                if not self._left:
                    self.end = self._body_end
                continue
            if self._head or size - at < _HEADER.size:
                missing = _HEADER.size - len(self._head)
                self._head += view[at:at + missing].tobytes()
                at += missing
                if len(self._head) < _HEADER.size:
                    break
                offset, length = _HEADER.unpack(self._head)
                self._head = b""
            else:
                offset, length = _HEADER.unpack_from(view, at)
                at += _HEADER.size
            if offset != self.end:
                sys.exit(f"a frame of {offset} behind {self.end}")
            self.frames += 1
            self._left, self._body_end = length, offset + length
        if self.end != before:
            self.report()


def serve(port: int, count: int, offset: int) -> None:
    """Run the slaves until standard input ends."""
    slaves = {}
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    for _ in range(count):
        slave = RawSlave(port, offset)
        slaves[slave.socket.fileno()] = slave
        poll.register(slave.socket.fileno(), select.EPOLLIN)
    view, ready, repeat_at = memoryview(bytearray(_BUFFER)), False, time.monotonic() + _REPEAT_S
    while True:
        for descriptor, _event in poll.poll(_REPEAT_S):
            if descriptor not in slaves:
                return
            slave = slaves[descriptor]
            size = slave.socket.recv_into(view)
            if not size:
                sys.exit("the master closed a connection")
            slave.feed(view, size)
        if not ready and all([slave.frames for slave in slaves.values()]):
            ready = True
            sys.stdout.write("ready\n")
            sys.stdout.flush()
        if time.monotonic() >= repeat_at:
            repeat_at = time.monotonic() + _REPEAT_S
            for slave in slaves.values():
                slave.report()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
