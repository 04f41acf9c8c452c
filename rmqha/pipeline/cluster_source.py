"""The format `rocketmq`: queues of a live cluster as a table or as a stream, and a cluster to write to.

    spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()
"""
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.pull_result import PullStatus
from rmqha.common.message import message_const
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.message.message_queue import MessageQueue
from rmqha.pipeline.cluster_queues import (
    DEFAULT_GROUP,
    EARLIEST,
    LATEST,
    UNREACHABLE,
    ClusterQueues,
    QueueOffsets,
    as_text,
    get_offset,
    name_server_of,
    new_consumer,
    set_offset,
    walk,
)
from rmqha.pipeline.cluster_sink import ClusterWriter
from rmqha.pipeline.options import Options, PipelineError
from rmqha.pipeline.table import KAFKA_SOURCE, arrow_schema, check_schema, table_schema

log = logging.getLogger("RocketmqPipeline")

FORMAT = "rocketmq"
COMMON_OPTIONS = ("nameServer", "namesrvAddr", "topic")
READ_OPTIONS = (*COMMON_OPTIONS, "subscribe", "subscribePattern", "subExpression", "startingOffsets", "endingOffsets",
                "startingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "consumerGroup",
                "pullBatchSize", "pullTimeoutMs", "schema", "columns")
WRITE_OPTIONS = ("idempotent", "producerGroup", "batchSize", "sendTimeoutMs", "compressOver")
_SPARKS_OWN = ("checkpointLocation", "path", "queryName")  # what a stream writer is given besides
_VERSION = 1
_BATCH_BYTES = 4 << 20
_Offset = dict[str, Any]  # of a stream: what its reader says of it, as Spark keeps it


class ClusterDataSource(DataSource):
    """The format. Options are checked when a table or a stream is made of it."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """The name that `.format(...)` takes."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> ClusterWriter:
        """A writer of a table. PipelineError for mode("overwrite"): messages can't be."""
        if overwrite:
            raise PipelineError(f"{FORMAT}: messages are only added to a topic: use mode('append')")
        return self.streamWriter(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ClusterWriter:  # Spark's name
        """A writer of a stream's batches."""
        return ClusterWriter(Options(self._given, (*WRITE_OPTIONS, *COMMON_OPTIONS, *_SPARKS_OWN), FORMAT), schema)

    def _options(self) -> Options:
        options = Options(self._given, READ_OPTIONS, FORMAT)
        options.boolean("failOnDataLoss", True)
        options.integer("minPartitions", least=1)
        ClusterQueues(options)
        return options

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return table_schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of what is in the queues when the query is planned."""
        return ClusterReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """A reader of what comes into the queues."""
        return ClusterStreamReader(self._options(), schema)


class QueuePartition(InputPartition):
    """Offsets [begin, end) of one queue."""

    def __init__(self, queue: MessageQueue, begin: int, end: int) -> None:
        super().__init__((queue.topic, queue.brokerName, queue.queueId, begin, end))
        self.queue = queue
        self.begin = begin
        self.end = end


class QueueReader:
    """Pulls partitions, in the tasks. Shared by the table and the stream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = check_schema(schema, options)
        self.kafka = options.choice("schema", ("rocketmq", "kafka"), "rocketmq") == "kafka"
        self.fail_on_data_loss = options.boolean("failOnDataLoss", True)
        self._sub_expression = options.text("subExpression", "*")
        self._pull_batch_size = options.integer("pullBatchSize", 32, 1)
        self._pull_timeout_ms = options.integer("pullTimeoutMs", 10_000, 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of a partition."""
        assert isinstance(partition, QueuePartition)
        schema = arrow_schema(self.schema)
        group = self.options.text("consumerGroup", DEFAULT_GROUP)
        with new_consumer(name_server_of(self.options), group) as consumer:
            taken: list[MessageExt] = []
            size = 0
            for message in self._messages(consumer, partition):
                taken.append(message)
                size += len(message.body)
                if size >= _BATCH_BYTES:
                    yield message_batch(taken, schema, self.kafka)
                    taken, size = [], 0
            if taken:
                yield message_batch(taken, schema, self.kafka)

    def _messages(self, consumer: DefaultMQPullConsumer, wanted: QueuePartition) -> Iterator[MessageExt]:
        queue, offset = wanted.queue, wanted.begin
        # the pull consumer knows a broker once it has the route of the topic
        consumer.fetch_subscribe_message_queues(queue.topic)
        while offset < wanted.end:
            try:
                result = consumer.pull(queue, self._sub_expression, offset, self._pull_batch_size,
                                       self._pull_timeout_ms)
            except UNREACHABLE as error:
                raise PipelineError(f"{queue} at offset {offset}: {error}") from error
            if result.pull_status in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MSG):
                following = max(result.next_begin_offset, result.min_offset)
                if self.fail_on_data_loss or following <= offset:
                    if self.fail_on_data_loss:
                        raise lost(queue, offset, min(max(following, offset + 1), wanted.end), result.min_offset)
                    return
                log.warning("%s: offsets %d to %d are gone", queue, offset, following)
                offset = following
                continue
            for message in result.msg_found_list:
                if message.queue_offset >= wanted.end:
                    return
                message.broker_name = queue.brokerName
                yield message
            offset = max(result.next_begin_offset, offset + 1)


def lost(queue: MessageQueue, begin: int, end: int, min_offset: int) -> PipelineError:
    """The error for messages that are gone."""
    return PipelineError(f"{queue}: offsets {begin} to {end} are gone, the queue begins at {min_offset}. They may have "
                         "been deleted. With failOnDataLoss=false the query goes on without them.")


def message_batch(messages: list[MessageExt], schema: pa.Schema, kafka: bool) -> pa.RecordBatch:
    """A record batch of pulled messages. crcOk is null: the client has inflated the bodies."""
    arrays = []
    for field in schema:
        name = KAFKA_SOURCE.get(field.name) if kafka else field.name
        values: list[Any]
        values = [1] * len(messages) if name is None else [_VALUES[name](message) for message in messages]
        if pa.types.is_binary(field.type) and name == "keys":
            values = [value and value.encode("utf-8", "replace") for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _host(host: tuple[str, int] | None) -> str | None:
    return None if host is None else f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


_VALUES: dict[str, Callable[[MessageExt], Any]] = {
    "topic": lambda message: message.topic,
    "flag": lambda message: message.flag,
    "body": lambda message: bytes(message.body),
    "properties": lambda message: list(message.properties.items()),
    "brokerName": lambda message: message.broker_name,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "bornTimestamp": lambda message: message.born_timestamp * 1000,
    "storeTimestamp": lambda message: message.store_timestamp * 1000,
    "keys": lambda message: message.keys,
    "tags": lambda message: message.tags,
    "uniqKey": lambda message: message.properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
    "physicalOffset": lambda message: message.commit_log_offset,
    "storeSize": lambda message: message.store_size,
    "sysFlag": lambda message: message.sys_flag,
    "bodyCrc": lambda message: message.body_crc,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "preparedTransactionOffset": lambda message: message.prepared_transaction_offset,
    "bornHost": lambda message: _host(message.born_host),
    "storeHost": lambda message: _host(message.store_host),
    "crcOk": lambda message: None,
    "envelope": lambda message: None,
    "storedBody": lambda message: None,
    "tagsCode": lambda message: None,
    "segment": lambda message: None,
}


def partitions_of(begin: QueueOffsets, end: QueueOffsets, at_least: int) -> list[QueuePartition]:
    """One partition for each queue that has messages; more when `at_least` asks for them."""
    spans = [(queue, get_offset(begin, queue, 0), stop) for queue, stop in walk(end)]
    spans = [(queue, start, stop) for queue, start, stop in spans if stop > start]
    total = sum(stop - start for _, start, stop in spans)
    size = max(total // at_least, 1) if at_least > len(spans) else max(total, 1)
    return [QueuePartition(queue, at, min(at + size, stop)) for queue, start, stop in spans
            for at in range(start, stop, size)]


class ClusterReader(QueueReader, DataSourceReader):
    """The table: the messages that are there when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Offsets of each queue."""
        with ClusterQueues(self.options) as queues:
            end = queues.wanted("endingOffsets", LATEST)
            timestamp = self.options.integer("startingTimestamp")
            begin = (queues.wanted("startingOffsets", EARLIEST) if timestamp is None
                     else queues.offsets(EARLIEST, timestamp))
            _check_begin(queues, begin, self.fail_on_data_loss)
        found = partitions_of(begin, end, self.options.integer("minPartitions", 1))
        return found or [QueuePartition(MessageQueue("", "", 0), 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of a partition."""
        return iter(()) if partition.end <= partition.begin else super().read(partition)


def _check_begin(queues: ClusterQueues, begin: QueueOffsets, fail_on_data_loss: bool) -> None:
    """Offsets below the first ones: an error, or put right."""
    for queue, first in walk(queues.offsets(EARLIEST)):
        wanted = get_offset(begin, queue)
        if wanted is not None and wanted < first:
            if fail_on_data_loss:
                raise lost(queue, wanted, first, first)
            set_offset(begin, queue, first)


class ClusterStreamReader(QueueReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream. Offsets: {"version": 1, "queues": topic -> broker -> queue id -> offset}."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._queues: ClusterQueues | None = None
        self._max_rows = options.integer("maxOffsetsPerTrigger", least=1)
        self._stop_at: QueueOffsets | None = None  # of Trigger.AvailableNow

    def __getstate__(self) -> dict[str, Any]:
        """Without the connection: tasks open their own."""
        return {**self.__dict__, "_queues": None}

    def _connected(self) -> ClusterQueues:
        if self._queues is None:
            self._queues = ClusterQueues(self.options)
            self._queues.start()
        return self._queues

    def initialOffset(self) -> _Offset:  # Spark's name
        """Where a new query begins: at the end, unless the options say otherwise."""
        timestamp = self.options.integer("startingTimestamp")
        queues = self._connected()
        found = queues.wanted("startingOffsets", LATEST) if timestamp is None else queues.offsets(EARLIEST, timestamp)
        return {"version": _VERSION, "queues": found}

    def prepareForTriggerAvailableNow(self) -> None:  # Spark's name
        """Remember the ends: the query stops there."""
        self._stop_at = self._connected().offsets(LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:  # Spark's name
        """maxOffsetsPerTrigger, if given."""
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:  # Spark's name
        """How far the next batch goes: up to the ends, or a fair share of each queue's backlog."""
        ends = self._stop_at if self._stop_at is not None else self._connected().offsets(LATEST)
        begins, backlog = {}, {}
        for queue, end in walk(ends):
            begin = get_offset(start["queues"], queue, 0)  # 0: the queue is new since the query began
            begins[queue], backlog[queue] = begin, max(end - begin, 0)
        if isinstance(limit, ReadMaxRows):
            backlog = shares(backlog, limit.max_rows)
        found: QueueOffsets = {}
        for queue, offset in walk(start["queues"]):
            set_offset(found, queue, offset)
        for queue, count in backlog.items():
            set_offset(found, queue, begins[queue] + count)
        log.debug("the next batch goes to %s", as_text(found))
        return {"version": _VERSION, "queues": found}

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """One for each queue."""
        begin: QueueOffsets = {}
        for queue, offset in walk(start["queues"]):
            set_offset(begin, queue, offset)
        if begin != end["queues"]:
            _check_begin(self._connected(), begin, self.fail_on_data_loss)
        return partitions_of(begin, end["queues"], self.options.integer("minPartitions", 1))

    def commit(self, end: _Offset) -> None:
        """Nothing is kept at the brokers: Spark's checkpoint has the offsets."""
        log.debug("taken up to %s", as_text(end["queues"]))

    def stop(self) -> None:
        """Disconnect."""
        if self._queues is not None:
            self._queues.close()
            self._queues = None


def shares(backlog: dict[MessageQueue, int], rows: int) -> dict[MessageQueue, int]:
    """At most `rows` messages in all: as many of each queue as its part of the backlog, at least one of some."""
    total = sum(backlog.values())
    if total <= rows:
        return backlog
    found = {queue: count * rows // total for queue, count in backlog.items()}
    left = rows - sum(found.values())
    for queue in sorted(backlog, key=lambda each: (found[each] - backlog[each], each)):
        if left and found[queue] < backlog[queue]:
            found[queue] += 1
            left -= 1
    return found
