"""`rmqha export` and `rmqha import`: write topics with their messages to a file, and send them from the file.

The file has JSON lines, compressed with gzip if its name ends in .gz:

    First line: {"rmqhaExport": 1, "exportedTimestamp": ms, "exportedTime": ..., "topics": {topic: {broker: queues}}}
    Then one message per line, as `consume -o json` prints it: topic by topic, queue by queue, each in its order.
    Last line: {"end": true, "messages": count}. A file without it is truncated.
"""
import gzip
import io
import itertools
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, BinaryIO, Self, cast

import click

from rmqha.client import exception
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException, MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common import filesystem
from rmqha.common import topics as topic_validator
from rmqha.common.message import message_const as names
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message, MessageQueue, parse_int
from rmqha.common.message.message_decoder import MessageBatch, may_join_batch, size_in_batch
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.common.program import examples, interrupted_later
from rmqha.common.topics import check_topic
from rmqha.tools.connection import namesrv_option
from rmqha.tools.errors import one_line
from rmqha.tools.messages.consume import QueueFeed
from rmqha.tools.messages.positions import EARLIEST, LATEST, Position, PositionType, check_range
from rmqha.tools.messages.produce import (
    LONGEST_BODY,
    LONGEST_LINE,
    LineTooLongError,
    NoEndOfLineError,
    as_object,
    body_of,
    check_property,
    flag_of,
    needed,
    new_consumer,
    new_producer,
    number,
    parsed,
    read_line,
    read_queues,
    shown,
    skip_line,
    typed,
    write_queues,
)
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    counted,
    iso_time,
    only_one,
    progress,
    put,
    to_json,
)

VERSION = 1
STANDARD = "-"
_LONGEST_HEADER = 16 << 20  # bytes
# Per topic.
MOST_QUEUES = 1 << 16
_MOST_QUEUES_IN_ALL = 1 << 20
# Sent as numbers with a retry.
_COUNTS = (names.PROPERTY_RECONSUME_TIME, names.PROPERTY_MAX_RECONSUME_TIMES)
# Properties that belong to a store or to a delivery and would be wrong in another one: an elapsed delay, the bounds of
# a queue, the state of a transaction, and the sender's choice whether to wait.
NOT_CARRIED = frozenset({
    names.PROPERTY_MIN_OFFSET, names.PROPERTY_MAX_OFFSET, names.PROPERTY_WAIT_STORE_MSG_OK,
    names.PROPERTY_DELAY_TIME_LEVEL, names.PROPERTY_CLUSTER, names.PROPERTY_CONSUME_START_TIMESTAMP,
    names.PROPERTY_TRANSACTION_PREPARED,
    names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, names.PROPERTY_TRANSACTION_CHECK_TIMES,
    names.PROPERTY_INNER_MULTI_DISPATCH, names.PROPERTY_INNER_MULTI_QUEUE_OFFSET})

QueueName = tuple[str, int]
"""Broker name and queue id."""


class MessageFailedError(WorkFailedError):
    """One message can't be imported; the messages after it perhaps can."""


class LongLineError(MessageFailedError):
    """The message's line is too long; the rest of the line is still unread."""


@dataclass(frozen=True)
class Exported:
    """A message of a file: its line, and its original topic and queue."""

    line: int
    topic: str
    queue: QueueName
    message: Message


@contextmanager
def writing(path: str, force: bool) -> Iterator[IO[str]]:
    """Open a text stream to a pipe, standard output, or a file that gets its name only when it is complete."""
    if path == STANDARD:
        yield sys.stdout
        return
    try:
        with filesystem.writing(path, force) as file, _text(file, path) as stream:
            yield stream
    except FileExistsError:
        raise CannotAnswerError(f"'{path}' already exists; use --force to overwrite it") from None


@contextmanager
def _text(file: IO[bytes], path: str) -> Iterator[IO[str]]:
    raw = gzip.GzipFile(fileobj=file, mode="wb") if path.endswith(".gz") else file
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    try:
        yield stream
    finally:
        # Flushes; closing the file is up to its opener.
        stream.detach()
        if raw is not file:
            raw.close()


def header(topics: dict[str, dict[str, int]]) -> str:
    """Return the first line of an export."""
    now = int(time.time() * 1000)
    return to_json({"rmqhaExport": VERSION, "exportedTimestamp": now, "exportedTime": iso_time(now), "topics": topics})


def trailer(count: int) -> str:
    """Return the last line of an export."""
    return to_json({"end": True, "messages": count})


class ExportReader:
    """Reads an export file; a context manager, which reads the header on entry."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.topics: dict[str, dict[str, int]] = {}
        self._number = 0  # of the last line read
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Read the header. CannotAnswerError when the file is not an export."""
        with ExitStack() as stack:
            try:
                self._stream = self._opened(stack)
                first = self._parsed(self._next_line(_LONGEST_HEADER))
                if first.get("rmqhaExport") != VERSION:
                    raise CannotAnswerError(f"{self.path}:1: not an export of rmqha, or one of a newer version: the "
                                            f'first line must have "rmqhaExport": {VERSION}')
                self.topics = self._checked_topics(first)
            except WorkFailedError as error:
                raise CannotAnswerError(f"{error.message}; the file is not an export of rmqha") from None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def messages(self, skip: int = 0) -> Iterator[Exported]:
        """Yield each message after the first `skip` ones, which are not checked.

        WorkFailedError for an invalid line, and at the end of a truncated file.
        """
        for count in itertools.count():
            line = self._message_line(count < skip)
            if not line:
                raise WorkFailedError(f"{self.path}: truncated after line {self._number}: the export's last line is "
                                      "missing")
            fields = self._fields(line, count < skip)
            if fields is not None and fields.get("end") is True:
                self._check_end(fields, count)
                return
            if fields is not None and count >= skip:
                yield self._exported(fields)

    def _opened(self, stack: ExitStack) -> BinaryIO:
        if self.path == STANDARD:
            return sys.stdin.buffer
        file = stack.enter_context(open(self.path, "rb"))  # noqa: SIM115, the stack closes it
        return cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file))) if self.path.endswith(".gz") else file

    def _message_line(self, is_skipped: bool) -> bytes:
        try:
            return self._next_line(LONGEST_LINE)
        except LongLineError:
            if not is_skipped:
                raise
            self._read(skip_line)
            return b"\n"

    def _next_line(self, limit: int) -> bytes:
        """Return the next line, or b"" after the last one."""
        line = self._read(partial(read_line, limit=limit))
        self._number += 1 if line else 0
        return line

    def _read(self, read: Callable[[BinaryIO], bytes]) -> bytes:
        try:
            return read(self._stream)
        except LineTooLongError as error:
            self._number += 1
            raise LongLineError(f"{self.path}:{self._number}: {error}") from None
        except NoEndOfLineError as error:
            raise WorkFailedError(f"{self.path}:{self._number}: {error}") from None
        except (EOFError, OSError, zlib.error) as error:  # BadGzipFile is an OSError
            raise WorkFailedError(f"{self.path}: damaged after line {self._number}: {error}") from error

    def _fields(self, line: bytes, is_skipped: bool) -> dict[str, Any] | None:
        """Return the fields of a line; None for a skipped line without valid fields."""
        try:
            return self._parsed(line)
        except MessageFailedError:
            if is_skipped:
                return None
            raise

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            fields = parsed(line)
        except ValueError as error:
            raise MessageFailedError(f"{self.path}:{max(self._number, 1)}: {error}") from None
        if not isinstance(fields, dict):
            raise MessageFailedError(f"{self.path}:{self._number}: not a JSON object")
        return fields

    def _check_end(self, fields: dict[str, Any], count: int) -> None:
        if fields.get("messages") != count or self._next_line(LONGEST_LINE):
            raise WorkFailedError(f"{self.path}:{self._number}: the export contains {shown(fields.get('messages'))} "
                                  f"messages, but the file has {count}")

    def _checked_topics(self, first: dict[str, Any]) -> dict[str, dict[str, int]]:
        """Return topic -> broker -> number of queues. WorkFailedError when that is invalid, or has too many queues."""
        try:
            topics: dict[str, dict[str, int]] = needed(first, "topics", dict)
            total = 0
            for topic in topics:
                if (problem := check_topic(topic)) is not None:
                    raise ValueError(f"topic {shown(topic)}: {problem}")
                of_brokers = needed(topics, topic, dict)
                if not of_brokers:
                    raise ValueError(f"topic {shown(topic)} has no queue")
                for broker in of_brokers:
                    needed(of_brokers, broker, int)
                    total += number(of_brokers, broker, 1, MOST_QUEUES) or 0
                if sum(of_brokers.values()) > MOST_QUEUES:
                    raise ValueError(f"topic {shown(topic)} has more than {MOST_QUEUES:,} queues")
            if total > _MOST_QUEUES_IN_ALL:
                raise ValueError(f"{total:,} queues exceed the limit of {_MOST_QUEUES_IN_ALL:,}")
        except ValueError as error:
            raise WorkFailedError(f"{self.path}:1: {error}") from None
        return topics

    def _exported(self, fields: dict[str, Any]) -> Exported:
        try:
            topic, broker, queue = (needed(fields, "topic", str), needed(fields, "broker", str),
                                    needed(fields, "queue", int))
            if not 0 <= queue < self.topics.get(topic, {}).get(broker, 0):
                raise ValueError(f"queue {queue} of {shown(topic)} at {shown(broker)} is not listed in the first line")
            return Exported(self._number, topic, (broker, queue), restored(fields, topic))
        except ValueError as error:
            raise MessageFailedError(f"{self.path}:{self._number}: {error}") from None


def restored(fields: dict[str, Any], topic: str) -> Message:
    """Return the message of an export's line, with all properties that can be carried over, including its message id.

    ValueError names the invalid field.
    """
    needed(fields, "flag", int)
    message = Message(topic, body_of(fields), flag=flag_of(fields))
    # Brokers keep this property only in a batch.
    message.clear_property(names.PROPERTY_WAIT_STORE_MSG_OK)
    for name, value in {**needed(fields, "properties", dict), **needed(fields, "system", dict)}.items():
        check_property(name, value)
        if name not in NOT_CARRIED:
            message.put_property(name, value)
    for name, field in ((names.PROPERTY_KEYS, "keys"), (names.PROPERTY_TAGS, "tags")):
        if field not in fields:
            raise ValueError(f"{field} is missing")
        value = typed(fields, field, str)
        if value is not None:
            check_property(name, value)
            message.put_property(name, value)
    for name in _COUNTS:
        if name in message.properties:
            try:
                parse_int(message.properties[name])
            except ValueError:
                raise ValueError(f"property {name}: expected a number, not "
                                 f"{shown(message.properties[name])}") from None
    return message


_ASK_TIMEOUT_MS = 3_000


def own_topics(consumer: DefaultMQPullConsumer) -> list[str]:
    """Return the user topics: no system topics, retry or dead-letter topics, or topics of brokers and clusters."""
    api = consumer.api
    info = api.get_broker_cluster_info(_ASK_TIMEOUT_MS)
    names = {*info.brokerAddrTable, *info.clusterAddrTable}
    return sorted(topic for topic in api.get_topic_list_from_name_server(_ASK_TIMEOUT_MS).topicList or ()
                  if topic not in names and not topic_validator.is_system_topic(topic)
                  and not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)))


def queue_counts(queues: list[MessageQueue]) -> dict[str, int]:
    """Return broker -> number of queues, including unreadable ones below the highest queue id."""
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.brokerName] = max(counts.get(queue.brokerName, 0), queue.queueId + 1)
    return counts


@dataclass(frozen=True)
class Span:
    """Which messages of a queue are exported: offsets from `first` to before `end`, stored within `times` (ms)."""

    first: int
    end: int
    times: tuple[int, int]


def export_queue(consumer: DefaultMQPullConsumer, queue: MessageQueue, span: Span, stream: IO[str]) -> int:
    """Write a queue's messages; return their number."""
    count, feed = 0, QueueFeed(consumer, MessageSelector.by_tag("*"))
    feed.open(queue, span.first, span.end)
    for batch in feed.batches(None):
        for message in batch.messages:
            if span.times[0] <= message.store_timestamp <= span.times[1]:
                stream.write(to_json(as_object(message)) + "\n")
                count += 1
    return count


_ALL_TIMES = (-(1 << 63), (1 << 63) - 1)
_EXPORT_BEGIN = PositionType([EARLIEST], offsets=False)
_EXPORT_END = PositionType([LATEST], offsets=False)


def _spans(consumer: DefaultMQPullConsumer, queues: Iterable[MessageQueue], begin: Position, end: Position
           ) -> dict[MessageQueue, Span]:
    times = (_ALL_TIMES[0] if begin.time_ms is None else begin.time_ms,
             _ALL_TIMES[1] if end.time_ms is None else end.time_ms)
    return {queue: Span(begin.offset_of(consumer, queue), end.end_of(consumer, queue), times) for queue in queues}


@click.command("export", epilog=examples(
    "rmqha export -n 127.0.0.1:9876 -t orders orders.jsonl.gz",
    "rmqha export -t orders --from 2026-03-01 --to 2026-03-02 day.jsonl.gz",
    "rmqha export -n 127.0.0.1:9876 --all everything.jsonl.gz"))
@namesrv_option
@click.option("-t", "--topic", "topics", multiple=True, help="A topic to export. Can be repeated.")
@click.option("--all", "all_topics", is_flag=True, help="Export all topics except system and retry topics.")
@click.option("--from", "begin", type=_EXPORT_BEGIN, default=EARLIEST, show_default=True,
              help="Only messages stored at this time or later.")
@click.option("--to", "end", type=_EXPORT_END, default=LATEST, show_default=True,
              help="Only messages stored at this time or earlier.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def export_command(namesrv: str | None, topics: tuple[str, ...], all_topics: bool, begin: Position, end: Position,
                   force: bool, file: str) -> None:
    """Write the messages of topics to a file.

    FILE is gzip-compressed if its name ends in .gz; - is standard output.

    The file has JSON lines; the last one holds the number of messages, see docs/commands.md. `rmqha import` reads it.
    """
    if bool(topics) == all_topics:
        raise click.UsageError("give topics with -t, or use --all")
    check_range(begin, end)
    with new_consumer(namesrv) as consumer:
        wanted = own_topics(consumer) if all_topics else list(dict.fromkeys(topics))
        queues = {topic: read_queues(consumer, topic) for topic in wanted}
        spans = _spans(consumer, (queue for each in queues.values() for queue in each), begin, end)
        sizes = {queue: max(span.end - span.first, 0) for queue, span in spans.items()}
        with writing(file, force) as stream, progress("export", sum(sizes.values())) as come_to:
            stream.write(header({topic: queue_counts(each) for topic, each in queues.items()}) + "\n")
            count, passed = 0, 0
            for queue, span in spans.items():
                count, passed = count + export_queue(consumer, queue, span, stream), passed + sizes[queue]
                come_to(passed)
            stream.write(trailer(count) + "\n")
    put(f"{counted(count, 'message')} of {counted(len(wanted), 'topic')} exported", err=True)


_BATCH_MESSAGES, _BATCH_BYTES = 64, 256 * 1024
_ROUTE_WAIT_S, _ROUTE_STEP_S = 10, 0.1
# The broker refused, or nothing was sent: the message is certainly not stored.
_REFUSALS = (MQClientException, MQBrokerException)


def target_queues(source: list[QueueName], target: list[MessageQueue], merge: bool) -> dict[QueueName, MessageQueue]:
    """Map each queue of a topic to its target: the queue of the same name if all exist, else the queue of its rank.

    Without `merge`, two queues never go to one, which would mix their messages: CannotAnswerError when there are too
    few.
    """
    by_name = {(queue.brokerName, queue.queueId): queue for queue in target}
    if all(name in by_name for name in source):
        return {name: by_name[name] for name in source}
    if len(source) > len(target) and not merge:
        raise CannotAnswerError(f"topic {target[0].topic!r} has only {counted(len(target), 'queue')} to send to, "
                                f"the export {len(source)}: add queues (mqadmin updateTopic), or mix them with --merge")
    return {name: target[rank % len(target)] for rank, name in enumerate(source)}


def queues_made(producer: DefaultMQProducer, topic: str, source: dict[str, int]) -> list[MessageQueue]:
    """Return the queues of a topic; if it is missing, create it with as many queues as in the export."""
    try:
        return write_queues(producer, topic)
    except CannotAnswerError:
        masters = len({queue.brokerName for queue in write_queues(producer, producer.create_topic_key)})
    total, most = sum(source.values()), max(source.values())
    each = most if masters >= len(source) else -(-total // masters)
    producer.admin.create_topic(producer.create_topic_key, topic, each)
    deadline = time.monotonic() + _ROUTE_WAIT_S
    while True:
        try:
            return write_queues(producer, topic)
        except CannotAnswerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_ROUTE_STEP_S)


def runs(messages: Iterable[Exported]) -> Iterator[list[Exported]]:
    """Group messages into batches of one queue, up to 64 and 256 KiB. An error is raised after the last batch."""
    run: list[Exported] = []
    # `is_open`: other messages may join the run.
    size, failure, is_open = 0, None, False
    try:
        for each in messages:
            length, may_join = size_in_batch(each.message), may_join_batch(each.message)
            if run and (not is_open or not may_join or each.queue != run[0].queue or each.topic != run[0].topic
                        or len(run) == _BATCH_MESSAGES or size + length > _BATCH_BYTES):
                yield run
                run, size = [], 0
            run.append(each)
            size, is_open = size + length, may_join
    except WorkFailedError as error:
        failure = error
    if run:
        yield run
    if failure is not None:
        raise failure


class Importer:
    """Sends the messages of a file, in order within each queue."""

    def __init__(self, producer: DefaultMQProducer, reader: ExportReader, rename: str | None, merge: bool) -> None:
        self._producer = producer
        self._reader = reader
        # The broker checks the size: it counts the compressed body that arrives.
        producer.max_message_size = LONGEST_BODY
        self._names = {topic: rename or topic for topic in reader.topics}
        for topic in self._names.values():
            exception.check_topic(topic)
        self._queues = {(topic, name): queue for topic, source in reader.topics.items()
                        for name, queue in self._targets(topic, source, merge).items()}
        self.count = 0

    def _targets(self, topic: str, source: dict[str, int], merge: bool) -> dict[QueueName, MessageQueue]:
        names = [(broker, number) for broker, count in sorted(source.items()) for number in range(count)]
        return target_queues(names, queues_made(self._producer, self._names[topic], source), merge)

    def run(self, skip: int) -> None:
        """Send all messages after the first `skip`; WorkFailedError, with the progress, at the first failure."""
        self.count = skip
        try:
            for run in runs(self._reader.messages(skip)):
                self._send(run)
        except WorkFailedError as error:
            left_out = f"; --skip {self.count + 1} skips this one" if isinstance(error, MessageFailedError) else ""
            raise WorkFailedError(f"{error.message}; {self._done()}{left_out}") from error
        except BaseException:
            put(self._done(), err=True)
            raise

    def _done(self) -> str:
        if not self.count:
            return "nothing was imported"
        return f"the first {counted(self.count, 'message')} of the file were imported; continue with --skip " \
            f"{self.count}"

    def _send(self, run: list[Exported]) -> None:
        try:
            self._send_together(run)
        except _REFUSALS as error:
            if len(run) == 1:
                raise MessageFailedError(f"{self._place(run)}: {one_line(error)}") from error
            # The batch was refused as a whole: send its messages one by one to find the cause.
            for each in run:
                self._send([each])
        except CLIENT_ERRORS as error:
            raise WorkFailedError(f"{self._place(run)}: {one_line(error)}; the broker may or may not have stored "
                                  f"{'it' if len(run) == 1 else 'them'}") from error

    def _send_together(self, run: list[Exported]) -> None:
        """Send one message or a batch, and count it before an interrupt is handled."""
        queue = self._queues[run[0].topic, run[0].queue]
        for each in run:
            each.message.topic = queue.topic
        is_single = len(run) == 1 and (len(run[0].message.body) > 0 or not may_join_batch(run[0].message))
        with interrupted_later():
            result = self._producer.send(run[0].message if is_single else _batch(run), queue=queue)
            self.count += len(run)
        if result.send_status is not SendStatus.SEND_OK:
            raise WorkFailedError(f"{self._place(run)}: stored, but with status {result.send_status.name}")

    def _place(self, run: list[Exported]) -> str:
        lines = f"{run[0].line}" if len(run) == 1 else f"{run[0].line}-{run[-1].line}"
        return f"{self._reader.path}:{lines}"


def _batch(run: list[Exported]) -> MessageBatch:
    """Return a batch marked as checked, since an exported body may be empty, which producers refuse."""
    batch = MessageBatch.generate_from_list([each.message for each in run])
    for message in batch:
        message_decoder.set_uniq_id(message)
    batch.body = batch.encode()
    batch.is_checked = True
    return batch


@click.command("import", epilog=examples(
    "rmqha import -n 127.0.0.1:9876 orders.jsonl.gz",
    "rmqha import -n 127.0.0.1:9876 -t orders --skip 1000 orders.jsonl.gz"))
@namesrv_option
@click.option("-t", "--topic", multiple=True, callback=only_one,
              help="Import into this topic; only for a file of one topic.")
@click.option("--merge", is_flag=True, help="Mix several queues into one if the topic has fewer queues than before.")
@click.option("--skip", type=click.IntRange(0), default=0, show_default=True,
              help="Skip the first N messages of the file, which an earlier run imported.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def import_command(namesrv: str | None, topic: str | None, merge: bool, skip: int, file: str) -> None:
    """Send the messages of a file that `export` wrote.

    They are sent to their original topics, or to another one. Queues and their order are kept; so are body, keys, tag,
    properties, flag and message id. Times and offsets are new. A missing topic is created.
    """
    with ExportReader(file) as reader:
        if topic is not None and len(reader.topics) > 1:
            raise click.UsageError(f"-t needs a file with one topic; {file} has {', '.join(sorted(reader.topics))}")
        with new_producer(namesrv) as producer:
            importer = Importer(producer, reader, topic, merge)
            importer.run(skip)
    put(f"{counted(importer.count - skip, 'message')} imported", err=True)
