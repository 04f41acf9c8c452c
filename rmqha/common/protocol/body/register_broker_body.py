"""What a broker registers: its topics and filter servers.

Uncompressed it is the JSON of RegisterBrokerBody (of remoting's serializer). The compressed form is a zlib stream of

    4 bytes length, the DataVersion as JSON
    4 bytes number of topics; for each 4 bytes length, `name read write perm filterType`
    4 bytes length, the filter servers as a JSON array

Topics of the compressed form lose topicSysFlag and order.
"""
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from rmqha.common.data_version import DataVersion
from rmqha.common.json_text import JsonTextError, parse_json
from rmqha.common.protocol.body.list_bodies import KVTable
from rmqha.common.protocol.body.serialize_wrappers import TopicConfigSerializeWrapper
from rmqha.common.topic_config import TopicConfig

BEST_COMPRESSION = 9
# Differs: Java inflates whatever comes; a body that inflates beyond this is refused, and so are lengths beyond its end,
# and more topics, or filter servers, than these.
MAX_INFLATED_SIZE = 32 * 1024 * 1024
FREE_INFLATED_SIZE = 256 * 1024  # however short the body is
MAX_RATIO = 64  # inflated bytes for one; lists of topics have 10 to 20
MAX_TOPICS = 200_000
MAX_JSON_MARKS = 10_000  # in the data version, and in the list of filter servers

_LENGTH = struct.Struct(">i")


class RegisterBrokerBodyError(ValueError):
    """Bytes that are no compressed RegisterBrokerBody."""


@dataclass(slots=True)
class RegisterBrokerBody:
    """Topics and filter servers of one broker (body of REGISTER_BROKER).

    Java: org.apache.rocketmq.common.protocol.body.RegisterBrokerBody (4.9.8)
    """

    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)
    filterServerList: list[str] = field(default_factory=list)

    def encode_compressed(self) -> bytes:
        """The compressed form."""
        version = self.topicConfigSerializeWrapper.dataVersion
        topics = list(self.topicConfigSerializeWrapper.topicConfigTable.values())
        parts = [_block(f'{{"counter":{version.counter},"timestamp":{version.timestamp}}}'), _LENGTH.pack(len(topics))]
        parts += [_block(topic.encode()) for topic in topics]
        parts.append(_block(json.dumps(self.filterServerList, ensure_ascii=False, separators=(",", ":"))))
        return zlib.compress(b"".join(parts), BEST_COMPRESSION)

    @staticmethod
    def decode_compressed(data: bytes | bytearray | memoryview) -> "RegisterBrokerBody":
        """The body of a compressed form; RegisterBrokerBodyError for anything else."""
        reader = _Reader(_inflate(data))
        body = RegisterBrokerBody()
        wrapper = body.topicConfigSerializeWrapper
        wrapper.dataVersion = _data_version(reader.json())
        topics = reader.count()
        if topics > MAX_TOPICS:
            raise RegisterBrokerBodyError(f"{topics} topics, the limit is {MAX_TOPICS}")
        for _ in range(topics):
            topic = _topic(reader.text())
            wrapper.topicConfigTable[topic.topicName] = topic
        filter_servers = reader.json()
        if not isinstance(filter_servers, list) or not all(isinstance(server, str) for server in filter_servers):
            raise RegisterBrokerBodyError("the filter servers are no list of texts")
        body.filterServerList = filter_servers
        return body


def _block(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return _LENGTH.pack(len(data)) + data


def _inflate(data: bytes | bytearray | memoryview) -> bytes:
    limit = min(MAX_INFLATED_SIZE, FREE_INFLATED_SIZE + MAX_RATIO * len(data))
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit)
    except zlib.error as error:
        raise RegisterBrokerBodyError(f"no zlib stream: {error}") from error
    if len(plain) >= limit:
        raise RegisterBrokerBodyError(f"the body of {len(data)} bytes inflates to {limit} bytes and more")
    return plain


def _data_version(fields: Any) -> DataVersion:
    if not isinstance(fields, dict):
        raise RegisterBrokerBodyError("the data version is no object")
    timestamp, counter = fields.get("timestamp", 0), fields.get("counter", 0)
    if type(timestamp) is not int or type(counter) is not int:
        raise RegisterBrokerBodyError("the data version's fields are no numbers")
    return DataVersion(timestamp, counter)


def _topic(text: str) -> TopicConfig:
    topic = TopicConfig()
    try:
        decoded = topic.decode(text)
    except ValueError as error:
        raise RegisterBrokerBodyError(f"topic {text[:100]!r}: {error}") from error
    if not decoded:
        raise RegisterBrokerBodyError(f"topic {text[:100]!r} has not five parts")
    return topic


class _Reader:
    """Blocks of the inflated form, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        """A number that may not be negative nor more than the bytes that are left."""
        end = self._position + _LENGTH.size
        if end > len(self._data):
            raise RegisterBrokerBodyError("End of compressed data has reached")
        value: int = _LENGTH.unpack_from(self._data, self._position)[0]
        if not 0 <= value <= len(self._data) - end:
            raise RegisterBrokerBodyError(f"a length of {value} where {len(self._data) - end} bytes are left")
        self._position = end
        return value

    def text(self) -> str:
        """A block of UTF-8."""
        length = self.count()
        start, self._position = self._position, self._position + length
        return str(self._data[start:self._position], "utf-8", "replace")

    def json(self) -> Any:
        """A block of JSON."""
        text = self.text()
        marks = sum(map(text.count, "{[,:\\"))
        if marks > MAX_JSON_MARKS:
            raise RegisterBrokerBodyError(f"{marks} elements of JSON, the limit is {MAX_JSON_MARKS}")
        try:
            return parse_json(text, "a block")
        except JsonTextError as error:
            raise RegisterBrokerBodyError(f"no JSON: {error.reason}") from error


@dataclass(slots=True)
class RegisterBrokerResult:
    """A slave's master, and the order topics.

    Java: org.apache.rocketmq.common.namesrv.RegisterBrokerResult (4.9.8)
    """

    haServerAddr: str | None = None
    masterAddr: str | None = None
    kvTable: KVTable | None = None
