"""The format `rocketmq` as a sink: a DataFrame or a stream into the topics of a cluster.

Columns: body or value (binary or text), and if there: topic (unless the option says it), keys or key, tags, properties
(map) or headers (as of Kafka), flag, delayLevel. What a message can't have as the row has it is an error (`sink_rows`).
Messages go in batches. A task that Spark runs again sends again what it had sent; with `idempotent` a message's unique
key is made of its topic and its key, so whoever reads can tell: dropDuplicates(["topic", "uniqKey"]).
"""
from collections.abc import Iterator
from dataclasses import dataclass

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
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from rmqha.common.message.message_decoder import may_join_batch, size_in_batch
from rmqha.pipeline.brief_errors import briefly
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, ClusterClient, cluster_client
from rmqha.pipeline.cluster.sink_rows import MessageMaker
from rmqha.pipeline.options import MOST_INT, Options, PipelineError
from rmqha.pipeline.worker import settle

DEFAULT_GROUP = "rmqha-pipeline-sink"
DEFAULT_BATCH = 200
_BATCH_BYTES = 1 << 20
_TEXT, _NUMBER = (StringType, BinaryType), (IntegerType, LongType, ShortType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,), "body": _TEXT, "value": _TEXT, "keys": _TEXT, "key": _TEXT, "tags": _TEXT,
    "properties": (MapType,), "headers": (ArrayType,), "flag": _NUMBER, "delayLevel": _NUMBER,
}
_NESTED = {"headers": "array<struct<key:string,value:binary>>", "properties": "map<string,string>"}


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent."""

    messages: int
    requests: int


def check_columns(schema: StructType, options: Options) -> None:
    """PipelineError for a table that can't be sent."""
    names = schema.fieldNames()
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise PipelineError(f"{options.where}: there are two columns {twice[0]!r}; select one")
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
    for name, wanted_kind in _NESTED.items():
        if name in names and schema[name].dataType.simpleString() != wanted_kind:
            raise PipelineError(f"{options.where}: column {name} is {schema[name].dataType.simpleString()}, it must be "
                                f"{wanted_kind}")
    if "topic" not in names and not options.text("topic"):
        raise PipelineError(f"{options.where} needs a column topic, or the option")
    if options.boolean("idempotent", False) and not {"keys", "key"} & set(names):
        raise PipelineError(f"{options.where}: idempotent needs a column key or keys")


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
        self._batch_size = options.integer("batchSize", DEFAULT_BATCH, 1, MOST_INT)
        self._timeout_ms = options.integer("sendTimeoutMs", 10_000, 1, MOST_INT)
        self._compress_over = options.size("compressOver", 4096)
        MessageMaker(options)  # which looks at its own options

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
