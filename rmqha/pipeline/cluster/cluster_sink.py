"""The format `rocketmq` as a sink: writes a DataFrame or a stream to the topics of a cluster.

Columns: body or value (binary or text), and optionally topic (required without the option), keys or key, tags,
properties (map) or headers (as in Kafka's connector), flag, delayLevel.

Each message has exactly the values of its row, or the row is refused with an error that names row and column: brokers
and readers would drop or truncate such a value silently. A property is `name \\x01 value \\x02` on the wire, text in
UTF-8, one value per name, and neither may be empty.

Delivery guarantee, and how to get exactly-once. Messages are sent in batches, and a broker has no transaction that
covers the messages of a task. If a task fails after it sent some of its rows, or Spark repeats a batch because it was
not yet noted as committed, the same rows are sent again: the sink alone is at-least-once, and `commit` and `abort` have
nothing to do. Exactly-once needs three parts:

1. The source gives the same rows when Spark repeats a batch (the stream sources of this package do).
2. With `idempotent`, a message's unique key is a hash of its topic and its key, not a new id for each send. So all
   copies of a message have the same unique key, whichever task sent them. The rows' keys must be unique per topic: two
   rows with the same key count as copies. A row without a key is refused.
3. Readers remove the copies: dropDuplicates(["topic", "uniqKey"]).
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

from rmqha.client import exception
from rmqha.client.exception import MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message import message_const
from rmqha.common.message.message import Message
from rmqha.common.message.message_decoder import may_join_batch, properties_size, size_in_batch
from rmqha.common.message.message_layout import MAX_PROPERTIES_LENGTH
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, ClusterClient, cluster_client
from rmqha.pipeline.format_options import MOST_INT, Options, PipelineError
from rmqha.pipeline.worker import briefly, settle

# Bytes; the brokers' default limit.
LONGEST_BODY = 4 << 20
# The number of levels in the default messageDelayLevel.
USUAL_LEVELS = 18
ERROR, DROP = SYSTEM_PROPERTIES = ("error", "drop")
_AFTER_NAME, _AFTER_VALUE = "\x01", "\x02"
_LEAST_INT = -MOST_INT - 1
# Up to this number of characters always fits, even with four bytes each and with the separators.
_SURE_CHARACTERS = MAX_PROPERTIES_LENGTH // 8
# The most characters of a name, key or value shown in an error.
_SHOWN = 60
_OF_A_COLUMN = {message_const.PROPERTY_KEYS: "keys", message_const.PROPERTY_TAGS: "tags"}
_DECIDES = "select other values, or leave out the rows"


class RowError(ValueError):
    """The reason why a row can't be sent. `column`: the column at fault."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column


class MessageMaker:
    """Makes messages from the rows of one task's record batches."""

    def __init__(self, options: Options) -> None:
        self._topic = options.text("topic")
        if self._topic and (reason := _why_no_topic(self._topic)):
            raise options.wrong("topic", f"a topic to send to: {reason}")
        self._idempotent = options.boolean("idempotent", False)
        self._levels = options.integer("maxDelayLevel", USUAL_LEVELS, 1, MOST_INT)
        self._drops_system = options.choice("systemProperties", SYSTEM_PROPERTIES, ERROR) == DROP
        self._where = options.where
        self._row = 0

    def messages(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """Yield a message for each row. PipelineError for the first row that can't be sent as it is."""
        columns = {name: self._values(name, column)
                   for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        for number in range(batch.num_rows):
            self._row += 1
            row = {name: values[number] for name, values in columns.items()}
            try:
                message = self._message(row)
            except RowError as error:
                raise self._refused(error, row) from None
            yield message

    def _values(self, name: str, column: pa.Array) -> list[Any]:
        try:
            return list(column.to_pylist())
        # Spark's texts may be any bytes.
        except UnicodeDecodeError:
            pass
        for number, value in enumerate(column):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                self._row += number + 1
                wrong = RowError(name, f"the text is not UTF-8 at byte {error.start}: cast it to binary, or leave out "
                                       "the row")
                raise self._refused(wrong, {}) from None
        raise AssertionError(f"column {name} can be read value by value")

    def _refused(self, error: RowError, row: dict[str, Any]) -> PipelineError:
        known = [f"{name} {_shown(row[name])}" for name in ("topic", "keys", "key") if row.get(name)]
        of_row = f" ({', '.join(known)})" if known else ""
        return PipelineError(f"{self._where}: row {self._row}{_task()}{of_row}, {error}. Earlier rows may already have "
                             "been sent")

    def _message(self, row: dict[str, Any]) -> Message:
        message = Message(self._topic_of(row), _body(row), flag=_number(row, "flag", _LEAST_INT, MOST_INT) or 0)
        for column, name, value in _properties(row):
            self._put(message, column, name, value)
        for column, name in (("tags", message_const.PROPERTY_TAGS), ("keys", message_const.PROPERTY_KEYS),
                             ("key", message_const.PROPERTY_KEYS)):
            if (given := row.get(column)) is not None:
                _put_once(message, column, name, _text(column, given), given)
        if level := _number(row, "delayLevel", 0, MOST_INT):
            if level > self._levels:
                raise RowError("delayLevel", f"{level} is above {self._levels}, and a broker would use its longest "
                                             "delay; if its messageDelayLevel has more, set the option maxDelayLevel")
            message.delay_time_level = level
        if self._idempotent:
            _identify(message)
        _check_size(message, row)
        return message

    def _topic_of(self, row: dict[str, Any]) -> str:
        topic = self._topic or row.get("topic")
        if not topic:
            raise RowError("topic", "it is empty or null, and the option topic is not set")
        if topic != self._topic and (reason := _why_no_topic(topic)):
            raise RowError("topic", reason)
        return str(topic)

    def _put(self, message: Message, column: str, name: str, value: str) -> None:
        if name in message_const.STRING_HASH_SET and name not in _OF_A_COLUMN:
            if self._drops_system:
                return
            raise RowError(column, f"the property {name} is RocketMQ's own: use another name, leave it out, or, for "
                                   "rows that were read from a topic, set the option systemProperties=drop")
        _put_once(message, column, name, value, value)


def _why_no_topic(topic: str) -> str:
    """Return why no client may send to a topic of this name; "" if clients may."""
    try:
        exception.check_topic(topic)
        exception.is_not_allowed_send_topic(topic)
    except MQClientException as error:
        return ascii(error.error_message)[1:-1]
    return ""


def _put_once(message: Message, column: str, name: str, value: str, given: str | bytes) -> None:
    """Set a property, unless the message has it with another value."""
    _check(column, name, value)
    had = message.properties.get(name)
    if had is not None and had != value:
        raise RowError(column, f"{_shown(given)} contradicts the row's property {name}, which is {_shown(had)}; give "
                               "only one of them")
    message.put_property(name, value)


def _check(column: str, name: str, value: str) -> None:
    """Raise RowError for a property that the wire can't carry. A value may have a \\x01: the first one ends the name.
    """
    is_own = column in _OF_A_COLUMN.values() or column == "key"
    shown = "" if is_own else f"property {_shown(name)}: "
    if not name:
        raise RowError(column, f"a name is empty: {_DECIDES}")
    if not value:
        raise RowError(column, f"{shown}the value is empty, which no message can have: "
                               f"{'make it null' if is_own else 'leave it out'}")
    if _AFTER_NAME in name or _AFTER_VALUE in name or _AFTER_VALUE in value:
        raise RowError(column, f"{shown}the characters \\x01 and \\x02 separate properties on the wire: {_DECIDES}")


def _properties(row: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Yield (column, name, value) of all properties. RowError if one is null or occurs twice."""
    found: dict[str, str] = {}
    column = "headers" if "headers" in row else "properties"
    for entry in row.get(column) or ():
        if entry is None:
            raise RowError(column, "a header is null: leave it out, with filter(headers, h -> h is not null)")
        name, value = (entry["key"], entry["value"]) if column == "headers" else entry
        if name is None:
            raise RowError(column, f"a name is null: {_DECIDES}")
        if value is None:
            raise RowError(column, f"{_shown(name)} is null: leave it out, because null can't be sent")
        if name in found:
            raise RowError(column, f"{_shown(name)} occurs twice, but a message has one value per name: {_DECIDES}")
        found[name] = _text(column, value, name)
        yield column, name, found[name]


def _body(row: dict[str, Any]) -> bytes:
    column = "body" if "body" in row else "value"
    value = row.get(column)
    if not value:
        raise RowError(column, f"it is {'null' if value is None else 'empty'}, and every message needs a body: "
                               f"{_DECIDES}")
    body: bytes = value.encode() if isinstance(value, str) else value
    if len(body) > LONGEST_BODY:
        raise RowError(column, f"{len(body)} bytes, but a message has at most {LONGEST_BODY}: {_DECIDES}")
    return body


def _text(column: str, value: str | bytes, name: str = "") -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        of_name = f"{_shown(name)} " if name else ""
        raise RowError(column, f"{of_name}is not UTF-8 at byte {error.start}, but properties are text: write it as "
                               "text, for instance with base64(...)") from None


def _number(row: dict[str, Any], column: str, least: int, most: int) -> int | None:
    value: int | None = row.get(column)
    if value is not None and not least <= value <= most:
        raise RowError(column, f"{value} is not from {least} to {most}")
    return value


def _identify(message: Message) -> None:
    key = message.keys
    if not key:
        raise RowError("keys", "idempotent needs a key, and the row has none")
    digest = hashlib.sha256(f"{message.topic}\0{key}".encode()).hexdigest()[:32].upper()
    message.put_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, digest)


def _check_size(message: Message, row: dict[str, Any]) -> None:
    """Raise RowError if the properties exceed the limit of a message. With few characters no bytes are counted."""
    if sum(len(name) + len(value) for name, value in message.properties.items()) <= _SURE_CHARACTERS:
        return
    size = properties_size(message)
    if size > MAX_PROPERTIES_LENGTH:
        raise RowError(_widest(row), f"properties, keys and tags have {size} bytes together, but a message has room "
                                     f"for {MAX_PROPERTIES_LENGTH}: {_DECIDES}")


def _widest(row: dict[str, Any]) -> str:
    """Return the largest column of properties, keys and tags."""
    return max((name for name in ("properties", "headers", "keys", "key", "tags") if row.get(name)),
               key=lambda name: len(str(row[name])))


def _task() -> str:
    """Return the number of this task in its job, if Spark provides it."""
    from pyspark import TaskContext
    context = TaskContext.get()
    return "" if context is None else f" of partition {context.partitionId()}"


def _shown(value: str | bytes) -> str:
    """Return a value for an error message, in ASCII and truncated if it is long."""
    text = ascii(value[:_SHOWN + 1])
    return text if len(value) <= _SHOWN else text[:_SHOWN] + "..."


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
    """The messages and requests that a task sent."""

    messages: int
    requests: int


def check_columns(schema: StructType, options: Options) -> None:
    """Raise PipelineError for a table that can't be sent."""
    names = schema.fieldNames()
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise PipelineError(f"{options.where}: there are two columns {twice[0]!r}; select one")
    for field in schema.fields:
        wanted = _COLUMNS.get(field.name)
        if wanted is None:
            raise PipelineError(f"{options.where}: column {field.name!r} can't be sent. Valid columns: "
                                f"{', '.join(_COLUMNS)}; select them")
        if not isinstance(field.dataType, wanted):
            raise PipelineError(f"{options.where}: column {field.name} is {field.dataType.simpleString()}, it must be "
                                f"{' or '.join(kind.typeName() for kind in wanted)}")
    if ("body" in names) == ("value" in names):
        raise PipelineError(f"{options.where} needs a column body or value")
    if {"properties", "headers"} <= set(names):
        raise PipelineError(f"{options.where}: give only one of the columns properties and headers")
    for name, wanted_kind in _NESTED.items():
        if name in names and schema[name].dataType.simpleString() != wanted_kind:
            raise PipelineError(f"{options.where}: column {name} is {schema[name].dataType.simpleString()}, it must be "
                                f"{wanted_kind}")
    if "topic" not in names and not options.text("topic"):
        raise PipelineError(f"{options.where} needs a column topic, or the option topic")
    if options.boolean("idempotent", False) and not {"keys", "key"} & set(names):
        raise PipelineError(f"{options.where}: idempotent needs a column key or keys")


class MessageSender:
    """Sends messages, in batches that are as large as allowed."""

    def __init__(self, producer: DefaultMQProducer, batch_size: int, cluster: ClusterClient) -> None:
        self._producer, self._batch_size, self._cluster = producer, batch_size, cluster
        self._waiting: dict[str, list[Message]] = {}
        self._bytes: dict[str, int] = {}
        self.sent = Sent(0, 0)

    def put(self, message: Message) -> None:
        """Queue a message and send full batches. PipelineError if a broker refuses one."""
        waiting = self._waiting.setdefault(message.topic, [])
        if self._batch_size == 1 or not may_join_batch(message):
            # It must come after them.
            if waiting and message.delay_time_level <= 0:
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
        """Send the messages that are left."""
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
                                f"{result.send_status.name}: they may be sent again when the task is repeated")
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
        # It checks its own options.
        MessageMaker(options)

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
        """Do nothing: the tasks have sent everything."""

    def abort(self, messages: list[Sent | None], batchId: int | None = None) -> None:  # Spark's name
        """Do nothing: sent messages can't be taken back; see `idempotent`."""
