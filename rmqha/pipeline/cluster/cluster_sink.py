"""The format `rocketmq` as a sink: a DataFrame or a stream into the topics of a cluster.

Columns: body or value (binary or text), and if there: topic (unless the option says it), keys or key, tags, properties
(map) or headers (as of Kafka), flag, delayLevel. Messages go in batches. A task that Spark runs again sends again what
it had sent; with `idempotent` a message's unique key is made of its topic and its key, so whoever reads can tell:
dropDuplicates(["topic", "uniqKey"]).
"""
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.send_result import SendStatus
from rmqha.common.message import message_const
from rmqha.common.message.message import Message
from rmqha.common.message.message_batch import may_join_batch, size_in_batch
from rmqha.pipeline.brief_errors import briefly
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, ClusterClient, cluster_client
from rmqha.pipeline.options import Options, PipelineError
from rmqha.pipeline.worker import settle

DEFAULT_GROUP = "rmqha-pipeline-sink"
DEFAULT_BATCH = 200
_BATCH_BYTES = 1 << 20
_TEXT, _NUMBER = (StringType, BinaryType), (IntegerType, LongType, ShortType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,), "body": _TEXT, "value": _TEXT, "keys": _TEXT, "key": _TEXT, "tags": _TEXT,
    "properties": (MapType,), "headers": (ArrayType,), "flag": _NUMBER, "delayLevel": _NUMBER,
}
_HEADERS = "array<struct<key:string,value:binary>>"
_KEPT = (message_const.PROPERTY_TAGS, message_const.PROPERTY_KEYS)


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent."""

    messages: int
    requests: int


def check_columns(schema: StructType, options: Options) -> None:
    """PipelineError for a table that can't be sent."""
    names = schema.fieldNames()
    for field in schema.fields:
        wanted = _COLUMNS.get(field.name)
        if wanted is None:
            raise PipelineError(f"{options.where}: column {field.name!r} can't be sent. Columns are: "
                                f"{', '.join(_COLUMNS)}; select them")
        if not isinstance(field.dataType, wanted):
            raise PipelineError(f"{options.where}: column {field.name} is {field.dataType.simpleString()}, it must be "
                                f"{' or '.join(kind.typeName() for kind in wanted)}")
    if ("body" in names) == ("value" in names):
        raise PipelineError(f"{options.where} needs a column body, or value")
    if {"properties", "headers"} <= set(names):
        raise PipelineError(f"{options.where}: give one of the columns properties and headers")
    if "headers" in names and schema["headers"].dataType.simpleString() != _HEADERS:
        raise PipelineError(f"{options.where}: column headers is {schema['headers'].dataType.simpleString()}, it must "
                            f"be {_HEADERS}")
    if "topic" not in names and not options.text("topic"):
        raise PipelineError(f"{options.where} needs a column topic, or the option")
    if options.boolean("idempotent", False) and not {"keys", "key"} & set(names):
        raise PipelineError(f"{options.where}: idempotent needs a column key or keys")


class MessageMaker:
    """Messages from the rows of record batches."""

    def __init__(self, options: Options) -> None:
        self._topic = options.text("topic")
        self._idempotent = options.boolean("idempotent", False)
        self._where = options.where

    def messages(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """One for each row. PipelineError for a row without a topic, or without a key where one is needed."""
        for row in batch.to_pylist():
            topic = self._topic or row.get("topic")
            if not topic:
                raise PipelineError(f"{self._where}: a row has no topic, and there is no option topic")
            message = Message(topic, _bytes(row.get("body", row.get("value"))) or b"", flag=row.get("flag") or 0)
            for name, value in _properties(row):
                if name and value and (name not in message_const.STRING_HASH_SET or name in _KEPT):
                    message.put_property(name, value)
            if tags := _text(row.get("tags")):
                message.tags = tags
            key = _text(row.get("keys", row.get("key")))
            if key:
                message.set_keys(key)
            if level := row.get("delayLevel"):
                message.delay_time_level = level
            if self._idempotent:
                self._identify(message, key)
            yield message

    def _identify(self, message: Message, key: str | None) -> None:
        if not key:
            raise PipelineError(f"{self._where}: idempotent, but a row for topic {message.topic} has no key")
        digest = hashlib.sha256(f"{message.topic}\0{key}".encode()).hexdigest()[:32].upper()
        message.put_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, digest)


def _properties(row: dict[str, Any]) -> Iterable[tuple[str, str | None]]:
    if "headers" in row:
        return [(each["key"], _text(each["value"])) for each in row["headers"] or () if each is not None]
    return row.get("properties") or ()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class MessageSender:
    """Sends messages, as many together as may be."""

    def __init__(self, producer: DefaultMQProducer, batch_size: int, cluster: ClusterClient) -> None:
        self._producer, self._batch_size, self._cluster = producer, batch_size, cluster
        self._waiting: dict[str, list[Message]] = {}
        self._bytes: dict[str, int] = {}
        self.sent = Sent(0, 0)

    def put(self, message: Message) -> None:
        """Take one; PipelineError when a broker does not."""
        waiting = self._waiting.setdefault(message.topic, [])
        if self._batch_size == 1 or not may_join_batch(message):
            if waiting and message.delay_time_level <= 0:  # it comes behind them
                self._send(message.topic, waiting)
                waiting.clear()
            self._send(message.topic, [message])
            return
        size = size_in_batch(message)
        if waiting and (self._bytes[message.topic] + size > _BATCH_BYTES or len(waiting) >= self._batch_size):
            self._send(message.topic, waiting)
            waiting.clear()
        self._bytes[message.topic] = size + (self._bytes[message.topic] if waiting else 0)
        waiting.append(message)

    def finish(self) -> Sent:
        """Send what is left."""
        for topic, waiting in self._waiting.items():
            if waiting:
                self._send(topic, waiting)
        self._waiting.clear()
        return self.sent

    def _send(self, topic: str, messages: list[Message]) -> None:
        try:
            result = (self._producer.send(messages[0]) if len(messages) == 1
                      else self._producer.send_batch(list(messages)))
        except UNREACHABLE as error:
            raise PipelineError(f"{len(messages)} messages for topic {topic} were not sent: "
                                f"{self._cluster.said(error)}") from None
        if result.send_status is not SendStatus.SEND_OK:
            raise PipelineError(f"{len(messages)} messages for topic {topic} are stored, but "
                                f"{result.send_status.name}: they may be sent again when the task is")
        self.sent.messages += len(messages)
        self.sent.requests += 1


class ClusterWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Writes a table or the batches of a stream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options
        self._cluster = cluster_client(options)
        self._batch_size = options.integer("batchSize", DEFAULT_BATCH, 1)
        self._timeout_ms = options.integer("sendTimeoutMs", 10_000, 1)
        self._compress_over = options.size("compressOver", 4096)
        options.boolean("idempotent", False)

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task."""
        settle()
        producer = self._cluster.producer(self.options.text("producerGroup", DEFAULT_GROUP))
        producer.send_msg_timeout = self._timeout_ms
        producer.compress_msg_body_over_howmuch = self._compress_over
        maker = MessageMaker(self.options)
        try:
            producer.start()
        except UNREACHABLE as error:
            raise PipelineError(f"{self.options.where}: {self._cluster.said(error)}") from None
        try:
            sender = MessageSender(producer, self._batch_size, self._cluster)
            for batch in iterator:
                for message in maker.messages(batch):
                    sender.put(message)
            return sender.finish()
        finally:
            producer.shutdown()

    def commit(self, messages: list[Sent | None], batchId: int | None = None) -> None:  # Spark's name
        """Everything was sent by the tasks."""

    def abort(self, messages: list[Sent | None], batchId: int | None = None) -> None:  # Spark's name
        """What was sent can't be taken back; see `idempotent`."""
