"""The format `rocketmq`: queues of a live cluster as a table or as a stream, and a cluster as a sink.

    spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()
"""
import heapq
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rmqha.client.results import PullStatus
from rmqha.common.compression import MissingBody
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.pipeline import trigger_delay
from rmqha.pipeline.cluster import stream_planner
from rmqha.pipeline.cluster.cluster_client import CLIENT_OPTIONS, SECRETS, cluster_client
from rmqha.pipeline.cluster.cluster_queues import (
    EARLIEST,
    LATEST,
    OTHER_LIFE,
    VERSION,
    ClusterQueues,
    Mark,
    QueueOffsets,
    QueuePuller,
    as_text,
    decode,
    encode,
    get_offset,
    named,
    of_checkpoint,
    set_offset,
    subscription,
    walk,
)
from rmqha.pipeline.cluster.cluster_sink import ClusterWriter
from rmqha.pipeline.cluster.stream_planner import StreamPlanner, begin_of, end_of
from rmqha.pipeline.format_options import MOST_INT, Options, PipelineError
from rmqha.pipeline.streams import lag_metrics
from rmqha.pipeline.table import KAFKA_SOURCE, arrow_schema, check_schema, is_kafka, table_schema
from rmqha.pipeline.table_options import all_options, options_of_new_table, reader_options, with_options
from rmqha.pipeline.trigger_delay import TriggerDelay
from rmqha.pipeline.worker import briefly, micros, settle

log = logging.getLogger("RocketmqPipeline")

FORMAT = "rocketmq"
COMMON_OPTIONS = ("nameServer", "namesrvAddr", "topic", *CLIENT_OPTIONS)
READ_OPTIONS = (*COMMON_OPTIONS, "subscribe", "subscribePattern", "subExpression", *stream_planner.OPTIONS,
                *trigger_delay.OPTIONS, "minPartitions", "maxPartitions", "maxRecordsPerPartition", "failOnDataLoss",
                "group", "consumerGroup", "groupIdPrefix", "pullBatchSize", "pullTimeoutMs", "schema", "columns",
                "includeHeaders")
WRITE_OPTIONS = ("idempotent", "producerGroup", "batchSize", "sendTimeoutMs", "compressOver", "systemProperties",
                 "maxDelayLevel")
_COMPLETE = ("nameServer", "namesrvAddr", "rocketmq.namesrvAddr")
# Other options that a stream writer gets.
_SPARKS_OWN = ("checkpointLocation", "path", "queryName")
_BATCH_BYTES = 4 << 20
_MOST_PARTITIONS = 1000
# A stream's offset as its reader returns it and Spark keeps it.
_Offset = dict[str, Any]


class ClusterDataSource(DataSource):
    """The format. Options are checked when a table or a stream is created."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that `.format(...)` takes."""
        return FORMAT

    @briefly
    def writer(self, schema: StructType, overwrite: bool) -> ClusterWriter:
        """Return a writer of a table. PipelineError for mode("overwrite"): messages can't be overwritten."""
        if overwrite:
            raise PipelineError(f"{FORMAT}: messages can only be appended to a topic: use mode('append')")
        return self.streamWriter(schema, overwrite)

    @briefly
    def streamWriter(self, schema: StructType, overwrite: bool) -> ClusterWriter:  # Spark's name
        """Return a writer of a stream's batches."""
        given = all_options(self._given, schema, FORMAT, _COMPLETE)
        # They come from a table, which is read as well.
        if given != self._given:
            given = _only(given, WRITE_OPTIONS + COMMON_OPTIONS)
        return ClusterWriter(Options(given, (*WRITE_OPTIONS, *COMMON_OPTIONS, *_SPARKS_OWN), FORMAT), schema)

    def _options(self, given: dict[str, str]) -> Options:
        options = Options(given, READ_OPTIONS, FORMAT)
        options.boolean("failOnDataLoss", True)
        _partition_limits(options)
        cluster_client(options)
        subscription(options)
        return options

    @briefly
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        of_table = options_of_new_table(self._given, FORMAT, SECRETS)
        if of_table is None:
            return table_schema(self._options(self._given))
        Options(of_table, READ_OPTIONS + WRITE_OPTIONS, FORMAT)
        schema = table_schema(self._options(_only(of_table, READ_OPTIONS)))
        return with_options(schema, of_table, FORMAT)

    def _reader_options(self, schema: StructType) -> Options:
        given = reader_options(self._given, schema, FORMAT, _COMPLETE)
        return self._options(given if given == self._given else _only(given, READ_OPTIONS))

    @briefly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the messages that the queues have when the query is planned."""
        return ClusterReader(self._reader_options(schema), schema)

    @briefly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """Return a reader of messages as they arrive."""
        return ClusterStreamReader(self._reader_options(schema), schema)


def _only(given: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options with these names: a table that is read and written has options of both kinds."""
    lower = {name.lower() for name in names}
    return {name: value for name, value in given.items() if name.lower() in lower}


class Span(NamedTuple):
    """Offsets [begin, end) of one queue. `last`: the last message of the batch in that queue, if known."""

    queue: MessageQueue
    begin: int
    end: int
    last: Mark | None = None

    def has_not(self, message: MessageExt) -> bool:
        """Return whether a message at one of these offsets belongs to another life of the queue than `last`."""
        if self.last is None:
            return False
        if message.queue_offset == self.last.offset:
            return (message.commit_log_offset, message.store_timestamp) != (self.last.physical, self.last.stored)
        return message.commit_log_offset > self.last.physical


class QueuePartition(InputPartition):
    """The work of one task."""

    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__([(span.queue.topic, span.queue.brokerName, span.queue.queueId, span.begin, span.end)
                          for span in spans])
        self.spans = tuple(spans)


class QueueReader:
    """Pulls partitions in the tasks; shared by the table and the stream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = check_schema(schema, options)
        self.cluster = cluster_client(options)
        self.kafka = is_kafka(options)
        self.fail_on_data_loss = options.boolean("failOnDataLoss", True)
        self._sub_expression = options.text("subExpression", "*")
        self._pull_batch_size = options.integer("pullBatchSize", 32, 1, MOST_INT)
        self._pull_timeout_ms = options.integer("pullTimeoutMs", 10_000, 1, MOST_INT)

    @briefly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        assert isinstance(partition, QueuePartition)
        settle()
        if not partition.spans:
            return
        schema = arrow_schema(self.schema)
        with self.cluster.consumer() as consumer:
            taken: list[MessageExt] = []
            size = 0
            puller = QueuePuller(self.cluster, consumer, self._sub_expression, self._pull_batch_size,
                                 self._pull_timeout_ms)
            for span in partition.spans:
                for message in self._messages(puller, span):
                    taken.append(message)
                    size += len(message.body)
                    if size >= _BATCH_BYTES:
                        yield message_batch(taken, schema, self.kafka)
                        taken, size = [], 0
            if taken:
                yield message_batch(taken, schema, self.kafka)

    def _messages(self, puller: QueuePuller, wanted: Span) -> Iterator[MessageExt]:
        queue, offset = wanted.queue, wanted.begin
        while offset < wanted.end:
            result = puller.pull(queue, offset)
            if result.pull_status in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MSG):
                following = max(result.next_begin_offset, result.min_offset)
                if self.fail_on_data_loss:
                    raise lost(queue, offset, min(max(following, offset + 1), wanted.end), result.min_offset)
                following = wanted.end if following <= offset else min(following, wanted.end)
                log.warning("%s: offsets %d to %d are gone, it has %d to %d now", named(queue), offset, following,
                            result.min_offset, result.max_offset)
                offset = following
                continue
            for message in result.msg_found_list:
                if message.queue_offset >= wanted.end:
                    return
                if wanted.has_not(message):
                    self._changed(wanted, message.queue_offset)
                    return
                message.broker_name = queue.brokerName
                yield message
            offset = max(result.next_begin_offset, offset + 1)


    def _changed(self, span: Span, offset: int) -> None:
        """Raise the error for a queue that was replaced after the batch was planned, or warn of it."""
        reason = (f"{named(span.queue)} has another message at offset {offset} than when the query was planned: "
                  f"{OTHER_LIFE}")
        if self.fail_on_data_loss:
            raise PipelineError(f"{reason}. Read a table again; with failOnDataLoss=false a stream skips the missing "
                                "part of the queue, and reads the queue from its beginning in the next batch.")
        log.warning("%s; skipping the rest in this batch, a stream's next batch reads the queue from its beginning",
                    reason)


def lost(queue: MessageQueue, begin: int, end: int, min_offset: int) -> PipelineError:
    """Return the error for messages that are lost."""
    return PipelineError(f"{named(queue)}: offsets {begin} to {end} are gone, the queue begins at {min_offset}. "
                         "They may have been deleted. With failOnDataLoss=false the query continues without them.")


def message_batch(messages: list[MessageExt], schema: pa.Schema, kafka: bool) -> pa.RecordBatch:
    """Return a record batch of pulled messages. crcOk is null, since the client has already decompressed the bodies."""
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
    "body": lambda message: None if isinstance(message.body, MissingBody) else bytes(message.body),
    "properties": lambda message: list(message.properties.items()),
    "brokerName": lambda message: message.broker_name,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "bornTimestamp": lambda message: micros(message.born_timestamp),
    "storeTimestamp": lambda message: micros(message.store_timestamp),
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
    "headers": lambda message: [{"key": name, "value": value.encode("utf-8", "replace")}
                                for name, value in message.properties.items()] or None,
    "envelope": lambda message: None,
    "storedBody": lambda message: None,
    "tagsCode": lambda message: None,
    "segment": lambda message: None,
}


def _partition_limits(options: Options) -> tuple[int, int, int | None]:
    """Return (minimum partitions, maximum partitions, most messages of one). PipelineError for contradicting ones."""
    least = options.integer("minPartitions", 1, 1)
    most = options.integer("maxPartitions", max(_MOST_PARTITIONS, least), 1)
    if least > most:
        raise PipelineError(f"{options.where}: minPartitions={least} is more than maxPartitions={most}")
    return least, most, options.integer("maxRecordsPerPartition", least=1)


def partitions_of(begin: QueueOffsets, end: QueueOffsets, options: Options,
                  last: Mapping[MessageQueue, Mark | None] | None = None) -> list[QueuePartition]:
    """Return a partition for each queue that has messages. Long queues are split if `minPartitions` or
    `maxRecordsPerPartition` requires it; if there are more than `maxPartitions`, several are combined. `last`: the
    messages before the ends.
    """
    least, most, records = _partition_limits(options)
    queues = [Span(queue, get_offset(begin, queue, 0), stop) for queue, stop in walk(end)]
    queues = [span for span in queues if span.end > span.begin]
    total = sum(span.end - span.begin for span in queues)
    size = max(total // least, 1) if least > len(queues) else max(total, 1)
    size = min(size, records or size)
    last = last or {}
    spans = [Span(each.queue, at, min(at + size, each.end), last.get(each.queue)) for each in queues
             for at in range(each.begin, each.end, size)]
    return [QueuePartition(part) for part in _shared_out(spans, most)]


def _shared_out(spans: list[Span], most: int) -> list[list[Span]]:
    """Distribute the spans over at most `most` parts with about the same number of messages: the longest first, each to
    the part that has least.
    """
    if len(spans) <= most:
        return [[span] for span in spans]
    parts: list[list[Span]] = [[] for _ in range(most)]
    room = [(0, number) for number in range(most)]
    for span in sorted(spans, key=lambda each: (each.begin - each.end, each.queue, each.begin)):
        taken, number = heapq.heappop(room)
        parts[number].append(span)
        heapq.heappush(room, (taken + span.end - span.begin, number))
    return [sorted(part) for part in parts]


class ClusterReader(QueueReader, DataSourceReader):
    """The table: all messages that exist when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        stream_planner.check_batch(options)
        for name in trigger_delay.OPTIONS:
            if name in options:
                log.warning("%s: %s is for streams; ignoring it for a table", options.where, name)

    @briefly
    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each queue, or as the limits of partitions require."""
        with ClusterQueues(self.options) as queues:
            end = end_of(queues)
            begin = begin_of(queues, EARLIEST)
            _check_begin(queues, begin, self.fail_on_data_loss)
            looks = queues.looks([(queue, stop - 1) for queue, stop in walk(end) if get_offset(begin, queue, 0) < stop])
        last = {queue: look.mark for queue, look in looks.items()}
        return partitions_of(begin, end, self.options, last) or [QueuePartition(())]


def _check_begin(queues: ClusterQueues, begin: QueueOffsets, fail_on_data_loss: bool) -> None:
    """Raise an error for offsets below the first ones, or correct them. A queue without one begins at its first."""
    for queue, bounds in queues.bounds().items():
        wanted = get_offset(begin, queue)
        if wanted is not None and wanted < bounds.first and fail_on_data_loss:
            raise lost(queue, wanted, bounds.first, bounds.first)
        if wanted is None or wanted < bounds.first:
            set_offset(begin, queue, bounds.first)


class ClusterStreamReader(QueueReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream. Its offsets are those of `cluster_queues`. They contain where the batch that ends there begins,
    because Spark does not keep where the first batch of a query began, and asks again when it must repeat that batch.
    Offsets of the first releases have no "begin"; those of later ones may have no "last", which identifies a queue.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        stream_planner.check_stream(options)
        self._queues: ClusterQueues | None = None
        self._delay = TriggerDelay(options)
        self._planner = StreamPlanner(self.fail_on_data_loss)
        # For Trigger.AvailableNow: the ends when the query began.
        self._stop_at: dict[MessageQueue, int] | None = None
        # The ends when the batch was planned.
        self._seen: QueueOffsets = {}
        # Messages after the batch planned last.
        self._left: dict[MessageQueue, int] = {}
        # Where a new query begins.
        self._initial: _Offset | None = None
        # The end of the batch planned last.
        self._planned: _Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the connection: tasks open their own."""
        return {**self.__dict__, "_queues": None}

    def _connected(self) -> ClusterQueues:
        if self._queues is None:
            self._queues = ClusterQueues(self.options)
            self._queues.start()
        return self._queues

    @briefly
    def initialOffset(self) -> _Offset:  # Spark's name
        """Return where a new query begins: at the end, unless the options say otherwise."""
        self._initial = {"version": VERSION, "queues": begin_of(self._connected(), LATEST)}
        return self._initial

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:  # Spark's name
        """Remember the current ends: the query stops there."""
        self._stop_at = {queue: each.end for queue, each in self._connected().seen().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # Spark's name
        """Return maxOffsetsPerTrigger, minOffsetsPerTrigger, or all."""
        return self._delay.limit

    @briefly
    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:  # Spark's name
        """Return where the next batch ends: at the ends, or after a fair share of each queue's backlog; at `start` if
        so little is new that it can wait. A query that stops at the ends does not wait.
        """
        plan = self._planner.plan(
            self._connected(), decode(start), self._stop_at,
            lambda waiting: self._stop_at is None and self._delay.holds_back(waiting, limit),
            limit.max_rows if isinstance(limit, ReadMaxRows) else None, start == self._initial)
        self._seen, self._left = _offsets(plan.ends), plan.left
        if not plan.is_new:
            return start
        self._planned = encode(plan.positions, _offsets(plan.begin))
        log.debug("the next batch ends at %s", as_text(self._planned["queues"]))
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:  # Spark's name
        """Return the ends of the queues when the batch was planned, and the backlog, for the progress that Spark
        reports.
        """
        if not self._left:
            return None
        return {"version": VERSION, "queues": self._seen, "metrics": lag_metrics(list(self._left.values()))}

    @briefly
    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """Return a partition for each queue, or as the limits of partitions require."""
        if start == end:
            # `begin` would be that of the previous batch.
            return []
        began = of_checkpoint(end, "begin") if "begin" in end else of_checkpoint(start)
        begin: dict[MessageQueue, int] = dict(walk(began))
        after = decode(end)
        if all(begin.get(queue, -1) >= each.offset for queue, each in after.items()):
            return []
        begin = self._planner.read(self._connected(), begin, after, end == self._planned)
        return partitions_of(_offsets(begin), _offsets({queue: after[queue].offset for queue in begin}), self.options,
                             {queue: after[queue].mark for queue in begin})

    def commit(self, end: _Offset) -> None:
        """Do nothing at the brokers: Spark's checkpoint keeps the offsets."""
        log.debug("read up to %s", as_text(end["queues"]))

    def stop(self) -> None:
        """Disconnect."""
        if self._queues is not None:
            self._queues.close()
            self._queues = None


def _offsets(of: Mapping[MessageQueue, int]) -> QueueOffsets:
    """Return offsets in the layout of the JSON."""
    found: QueueOffsets = {}
    for queue, offset in sorted(of.items()):
        set_offset(found, queue, offset)
    return found
