"""A bare remoting connection, from the wire format and sharing no code with rmqha: the good client beside bad ones.

A frame: 4 length of what follows, 1 serialize type (0 JSON, 1 ROCKETMQ), 3 header length, header, body.
"""
import itertools
import json
import socket
import struct
import time
from dataclasses import dataclass

from tests.support.wait import wait_until

SEND_MESSAGE, PULL_MESSAGE, GET_MAX_OFFSET, GET_BROKER_RUNTIME_INFO = 10, 11, 30, 28
UPDATE_TOPIC, SEND_BATCH = 17, 320
GET_BROKER_CLUSTER_INFO, REGISTER_BROKER = 106, 103
SYSTEM_BUSY = 2


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0, header_length: int | None = None) -> bytes:
    """A frame around any header bytes; `header_length` may lie."""
    length = len(header) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(header) + len(body), serialize_type << 24 | length & 0xFFFFFF) + header + body


def header(code: int, opaque: int = 1, **fields: object) -> bytes:
    """A JSON header."""
    return json.dumps({"code": code, "language": "OTHER", "version": 409, "opaque": opaque, "flag": 0,
                       "extFields": {key: str(value) for key, value in fields.items()}}).encode()


def binary_header(code: int, opaque: int = 1, flag: int = 0, /, **fields: object) -> bytes:
    """A ROCKETMQ header: code, language, version, opaque, flag, remark, fields; each text behind its length."""
    pairs = b""
    for name, value in fields.items():
        key, text = name.encode(), str(value).encode()
        pairs += struct.pack(">h", len(key)) + key + struct.pack(">i", len(text)) + text
    return struct.pack(">hbhiii", code, 5, 409, opaque, flag, 0) + struct.pack(">i", len(pairs)) + pairs


def read_binary_header(head: bytes) -> dict[str, object]:
    """The same as the JSON one has it."""
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
    """A response, or a request of the other side (`flag` is even)."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    flag: int = 1


def _unless_busy(answer: Answer) -> Answer | None:
    return None if answer.code == SYSTEM_BUSY and "busy" in (answer.remark or "") else answer


class RawClient:
    """One connection; `request` sends and waits for the answer to it."""

    def __init__(self, address: str, timeout_s: float = 60):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._opaques = itertools.count(1)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Any bytes."""
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
        """The next frame: (opaque, answer). EOFError when the peer closes."""
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
        """The next answer, None when the peer closes instead; AssertionError when neither comes."""
        self.socket.settimeout(timeout_s)
        try:
            return self.read_frame()[1]
        except (EOFError, ConnectionResetError):
            return None
        except TimeoutError:
            raise AssertionError(f"neither answered nor closed within {timeout_s} s") from None

    def is_closed_by_peer(self, timeout_s: float = 60) -> bool:
        """Whether the peer ends the connection (FIN or RST) in time; what it sends before is dropped."""
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
        """SEND_MESSAGE (10), sent again for as long as the broker is too busy to store anything, as producers do.
        `send_message_once` is for those who ask which broker takes messages, or that it takes them at once.

        A Java broker is: with no free write buffer, behind a page cache that keeps it waiting for 1 s, or when the
        request has waited for 200 ms.
        """
        return wait_until(lambda: _unless_busy(self.send_message_once(topic, body, queue_id, **changes)), 60_000,
                          "the broker takes a message")

    def send_message_once(self, topic: str, body: bytes, queue_id: int = 0, **changes: object) -> Answer:
        """SEND_MESSAGE (10) with the fields that a Java producer gives; `changes` replaces some."""
        fields = {"producerGroup": "raw-producer", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                  "queueId": queue_id, "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": 0,
                  "properties": "TAGS\x01TagA", "reconsumeTimes": 0, "unitMode": "false", "maxReconsumeTimes": 0,
                  "batch": "false", **changes}
        return self.request(SEND_MESSAGE, body, **fields)

    def pull(self, topic: str, queue_id: int, offset: int, max_nums: int = 32, **changes: object) -> Answer:
        """PULL_MESSAGE (11) with a subscription to all tags and no waiting."""
        fields = {"consumerGroup": "raw-consumer", "topic": topic, "queueId": queue_id, "queueOffset": offset,
                  "maxMsgNums": max_nums, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                  "subscription": "*", "subVersion": 0, "expressionType": "TAG", **changes}
        return self.request(PULL_MESSAGE, **fields)

    def create_topic(self, topic: str, queues: int) -> None:
        """UPDATE_AND_CREATE_TOPIC (17)."""
        answer = self.request(UPDATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=queues, perm=6,
                              writeQueueNums=queues, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false")
        assert answer.code == 0, answer

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The next queue offset."""
        answer = self.request(GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        assert answer.code == 0, answer
        return int(answer.fields["offset"])
