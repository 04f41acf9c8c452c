"""`rmqha consume` and `rmqha tail`: read the messages of a topic's queues and print them.

- `QueueFeed`: reads many queues at once. It keeps one pull request per queue outstanding, which the broker holds until
  a message arrives.
- `compiled`: the format strings of `-f`, like kcat's: %s is the body of a message, \\n a newline.
- `MessagePrinter`: prints messages as they arrive: as rows of a table, JSON lines, YAML documents, or by a format
  string.
"""
import queue as thread_queue
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException
from rmqha.client.results import PullCallback, PullResult, PullStatus
from rmqha.common.compression import MissingBody
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.program import examples, interrupted_later
from rmqha.common.protocol import response_code
from rmqha.tools.connection import namesrv_option
from rmqha.tools.errors import one_line
from rmqha.tools.manage.completion import complete_topic
from rmqha.tools.messages.positions import (
    COMMITTED,
    EARLIEST,
    END,
    LATEST,
    Position,
    PositionType,
    check_range,
)
from rmqha.tools.messages.produce import NO_GROUP, as_object, chosen_queues, new_consumer, read_queues, user_properties
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    cell,
    counted,
    display_width,
    duration_type,
    emit,
    output_option,
    padded,
    put,
    time_text,
)

_AT_ONCE = 32
_RETRY_S = 1.0
_TRIES = 3
# Transient error codes: a broker that answers with one may succeed a second later.
_PASSING = frozenset({response_code.SYSTEM_ERROR, response_code.SYSTEM_BUSY, response_code.SERVICE_NOT_AVAILABLE,
                      response_code.SUBSCRIPTION_NOT_EXIST, response_code.SUBSCRIPTION_NOT_LATEST})
# A refusal with SYSTEM_ERROR that a second try does not change.
_NO_SQL = "does not support consumer to filter message by"


@dataclass(eq=False)
class _Place:
    """The read position of a queue; with `end` None the queue is followed without an end."""

    queue: MessageQueue
    offset: int
    end: int | None
    failures: int = 0
    retry_at: float | None = None  # monotonic
    asked: bool = False


@dataclass(frozen=True)
class Batch:
    """Messages of one queue in order, and the offset after the last one."""

    queue: MessageQueue
    messages: list[MessageExt]
    next_offset: int


class QueueFeed:
    """Yields the messages of several queues on the caller's thread. A queue with an end is read up to there."""

    def __init__(self, consumer: DefaultMQPullConsumer, selector: MessageSelector) -> None:
        self._consumer = consumer
        self._selector = selector
        self._places: dict[MessageQueue, _Place] = {}
        # (place, answer); the client's callback threads put them.
        self._answers: thread_queue.SimpleQueue[tuple[_Place, PullResult | Exception]] = thread_queue.SimpleQueue()

    @property
    def queues(self) -> set[MessageQueue]:
        """The queues that are being read."""
        return set(self._places)

    def open(self, queue: MessageQueue, offset: int, end: int | None = None) -> None:
        """Read a queue from an offset on, up to `end`."""
        if end is None or offset < end:
            self._places[queue] = _Place(queue, offset, end)

    def close(self, queue: MessageQueue) -> None:
        """Stop reading a queue; an outstanding answer is discarded."""
        self._places.pop(queue, None)

    def batches(self, timeout_s: float | None) -> Iterator[Batch]:
        """Yield batches as they arrive, until all queues are at their ends, or `timeout_s` passes without a message.

        A queue with an end raises WorkFailedError after 3 failed pulls in a row, and also when it turns out to end
        before the read position. A queue that is followed is retried forever, and its first failure is printed.
        CannotAnswerError when a broker refuses permanently. Deleted offsets are reported and skipped.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._places:
            self._ask()
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            waits = [each - now for each in (deadline, *(place.retry_at for place in self._places.values()))
                     if each is not None]
            try:
                place, answer = self._answers.get(timeout=max(min(waits), 0.001) if waits else None)
            except thread_queue.Empty:
                continue
            if self._places.get(place.queue) is not place:
                continue  # the queue was closed meanwhile
            batch = self._take(place, answer)
            if batch is not None:
                yield batch
                deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def _ask(self) -> None:
        for place in self._places.values():
            if place.asked or (place.retry_at is not None and time.monotonic() < place.retry_at):
                continue
            place.asked, place.retry_at = True, None
            callback = PullCallback(partial(self._answered, place), partial(self._answered, place))
            try:
                most = _AT_ONCE if place.end is None else min(_AT_ONCE, place.end - place.offset)
                self._consumer.pull_block_if_not_found_async(place.queue, self._selector, place.offset, most, callback)
            except CLIENT_ERRORS as error:
                self._answers.put((place, error))

    def _answered(self, place: _Place, answer: PullResult | Exception) -> None:
        self._answers.put((place, answer))

    def _take(self, place: _Place, answer: PullResult | Exception) -> Batch | None:
        place.asked = False
        if isinstance(answer, Exception):
            self._failed(place, answer)
            return None
        place.failures = 0
        messages = answer.msg_found_list if answer.pull_status is PullStatus.FOUND else []
        if answer.pull_status is PullStatus.OFFSET_ILLEGAL:
            self._moved(place, answer)
        else:
            place.offset = answer.next_begin_offset
        if place.end is not None:
            messages = [message for message in messages if message.queue_offset < place.end]
            if place.offset >= place.end:
                self.close(place.queue)
        return Batch(place.queue, messages, messages[-1].queue_offset + 1) if messages else None

    def _moved(self, place: _Place, answer: PullResult) -> None:
        """Continue at the queue's first offset: it begins after the read position, or ends before it."""
        where = _named(place.queue)
        if answer.max_offset >= place.offset:
            following = max(answer.next_begin_offset, answer.min_offset, place.offset)
            if following > place.offset:
                put(f"{where}: offsets {place.offset} to {following} are deleted; the queue begins at "
                    f"{answer.min_offset}", err=True)
            place.offset = following
            return
        reason = (f"{where} ends at offset {answer.max_offset}, before {place.offset}: the topic may have been deleted "
                  "and created again")
        if place.end is not None:
            raise WorkFailedError(f"{reason}. Run the command again")
        put(f"{reason}; reading it again from its first offset, {answer.min_offset}", err=True)
        place.offset = answer.min_offset

    def _failed(self, place: _Place, error: Exception) -> None:
        place.failures += 1
        place.retry_at = time.monotonic() + _RETRY_S
        where = _named(place.queue)
        if isinstance(error, MQBrokerException):
            if _NO_SQL in (error.error_message or ""):
                raise CannotAnswerError(f"{where}: {one_line(error)}: set enablePropertyFilter=true (rmqha cluster "
                                        "config set enablePropertyFilter=true)") from error
            if error.response_code not in _PASSING:
                raise CannotAnswerError(f"{where}: {one_line(error)}") from error
        if place.end is not None and place.failures >= _TRIES:
            raise WorkFailedError(f"can't read {where} from offset {place.offset}: {one_line(error)}") from error
        if place.end is None and place.failures == 1:
            put(f"{where}: {one_line(error)}; retrying", err=True)


def _named(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.brokerName}:{queue.queueId}"


Field = Callable[[MessageExt], bytes | str]

# Letter -> (description, function that returns the field).
FIELDS: dict[str, tuple[str, Field]] = {
    "t": ("topic", lambda message: message.topic),
    "b": ("broker's name", lambda message: message.broker_name or ""),
    "p": ("queue id", lambda message: str(message.queue_id)),
    "o": ("offset in the queue", lambda message: str(message.queue_offset)),
    "k": ("keys, separated by blanks", lambda message: message.keys or ""),
    "K": ("size of the keys in bytes", lambda message: str(len((message.keys or "").encode()))),
    "g": ("tag", lambda message: message.tags or ""),
    "s": ("body, unchanged", lambda message: bytes(message.body)),
    "S": ("size of the body in bytes", lambda message: str(len(message.body))),
    "h": ("the producer's properties, `name=value`, separated by commas",
          lambda message: _pairs(user_properties(message))),
    "H": ("all properties, including the system's", lambda message: _pairs(message.properties)),
    "T": ("time of storing, in ms", lambda message: str(message.store_timestamp)),
    "D": ("time of storing, as local time", lambda message: time_text(message.store_timestamp)),
    "B": ("time of sending, in ms", lambda message: str(message.born_timestamp)),
    "i": ("message id assigned by the producer", lambda message: message.msg_id or ""),
    "I": ("message id assigned by the broker: its address and the commit log offset",
          lambda message: getattr(message, "offset_msg_id", None) or ""),
    "%": ("a percent sign", lambda message: "%"),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)


def _pairs(properties: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in properties.items())


def compiled(text: str) -> Callable[[MessageExt], bytes]:
    """Compile a format string to a function that renders a message; CannotAnswerError when it is invalid."""
    parts = [_part(text, match) for match in _TOKEN.finditer(text)]

    def render(message: MessageExt) -> bytes:
        return b"".join(part if isinstance(part, bytes) else _bytes(part(message)) for part in parts)
    return render


def _bytes(value: bytes | str) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else value


def _part(text: str, match: re.Match[str]) -> bytes | Field:
    if match["text"] is not None:
        return match["text"].encode()
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    if match["escape"] is not None:
        if match["escape"] not in _ESCAPES:
            raise CannotAnswerError(f"-f {text!r}: unknown escape \\{match['escape']}; valid escapes are "
                                    + ", ".join(f"\\{letter}" for letter in _ESCAPES) + " and \\xFF")
        return _ESCAPES[match["escape"]]
    if match["field"] not in FIELDS:
        raise CannotAnswerError(f"-f {text!r}: unknown field %{match['field']}; valid fields are "
                                + ", ".join(f"%{letter}" for letter in FIELDS))
    return FIELDS[match["field"]][1]


_HEADINGS = ("stored", "ms", "topic", "queue", "offset", "tag", "keys", "body")
_RIGHT = {"ms", "offset"}
_LEAST = {"stored": 23, "ms": 13, "offset": 6}


class MessagePrinter:
    """Prints messages to standard output as they arrive."""

    def __init__(self, output: str, format_string: str | None, queues: Iterable[MessageQueue]) -> None:
        self._output = output
        self._render: Callable[[MessageExt], bytes] | None = None if format_string is None else compiled(format_string)
        self._widths = {heading: max(_LEAST.get(heading, 0), len(heading)) for heading in _HEADINGS}
        queues = list(queues)
        names = [f"{queue.brokerName}:{queue.queueId}" for queue in queues]
        self._widths["queue"] = max(map(display_width, ["queue", *names]))
        topics = {queue.topic for queue in queues}
        self._widths["topic"] = max(map(display_width, ["topic", *topics]))
        self._headings = [heading for heading in _HEADINGS if heading != "topic" or len(topics) > 1]
        self._is_begun = False

    def print(self, message: MessageExt) -> None:
        """Print a message."""
        if self._render is not None:
            if isinstance(message.body, MissingBody):
                put(f"{message.topic} {message.broker_name}:{message.queue_id} at {message.queue_offset}: "
                    f"{message.body.reason}", err=True)
            sys.stdout.buffer.write(self._render(message))
        elif self._output != "table":
            emit(as_object(message), self._output)
        else:
            self._print_row(message)

    def flush(self) -> None:
        """Flush standard output."""
        (sys.stdout if self._render is None else sys.stdout.buffer).flush()

    def _print_row(self, message: MessageExt) -> None:
        if not self._is_begun:
            self._is_begun = True
            put(click.style(self._line({heading: heading for heading in self._headings}), bold=True))
        put(self._line({
            "stored": time_text(message.store_timestamp), "ms": str(message.store_timestamp),
            "topic": cell(message.topic), "queue": f"{cell(message.broker_name or '')}:{message.queue_id}",
            "offset": str(message.queue_offset), "tag": cell(message.tags or ""), "keys": cell(message.keys or ""),
            "body": _body_text(message.body)}))

    def _line(self, cells: Mapping[str, str]) -> str:
        parts = []
        for heading in self._headings:
            text = cells[heading]
            width = self._widths[heading]
            # These columns grow to the widest cell so far.
            if heading in ("tag", "keys", "offset"):
                width = self._widths[heading] = max(width, display_width(text))
            parts.append(text if heading == "body" else padded(text, width, heading in _RIGHT))
        return "  ".join(parts).rstrip()


def _body_text(body: bytes | memoryview) -> str:
    if isinstance(body, MissingBody):
        return cell(f"({body.reason})")
    data = bytes(body)
    try:
        return cell(data.decode())
    except UnicodeDecodeError:
        return f"({len(data)} bytes) {data.hex()}"


F = TypeVar("F", bound=Callable[..., Any])

# Time until a group must have given this consumer queues, and the poll interval meanwhile.
_SHARE_WAIT_S, _SHARE_STEP_S = 30, 0.1
# Time for the shares of the other topics, once one topic has one.
_SHARE_REST_S = 5
# Interval between two checks of the group's share while no message arrives.
_SHARE_LOOK_S = 0.5


@dataclass(frozen=True)
class Wanted:
    """A request to read. `count` None: all messages; `timeout_s` None: only up to `end`, unless `follow`.

    `end` None: the present end of the queues.
    """

    topics: tuple[str, ...]
    group: str
    begin: Position | None
    end: Position | None
    selector: MessageSelector
    broker: str | None
    queue_id: int | None
    count: int | None = None
    timeout_s: float | None = None
    follow: bool = False


class Reading:
    """Reads a topic's queues. With a group it reads only the group's share, and commits the printed offsets."""

    def __init__(self, consumer: DefaultMQPullConsumer, wanted: Wanted) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._feed = QueueFeed(consumer, wanted.selector)
        self._has_group = wanted.group != NO_GROUP
        self.printed = 0
        self.queues = [queue for topic in wanted.topics for queue in chosen_queues(
            read_queues(consumer, topic), wanted.broker, wanted.queue_id)]

    def run(self, printer: MessagePrinter) -> None:
        """Print messages until `count` is reached, or no more arrive."""
        wanted = self._wanted
        self._open_all(self._wait_for_share() if self._has_group else self.queues)
        if wanted.count == 0:
            return
        if self._has_group:
            self._run_in_group(printer)
            return
        for batch in self._feed.batches(wanted.timeout_s):
            if self._print(batch, printer):
                return

    def _run_in_group(self, printer: MessagePrinter) -> None:
        """Print as above, and follow the group's share: its queues change as other consumers join and leave."""
        timeout_s, last = self._wanted.timeout_s, time.monotonic()
        while True:
            batch = next(self._feed.batches(_SHARE_LOOK_S), None)
            self._follow_share()
            if batch is not None:
                last = time.monotonic()
                if batch.queue in self._share() and self._print(batch, printer):
                    return
            elif not self._waits and not self._feed.queues:
                return
            elif timeout_s is not None and time.monotonic() - last >= timeout_s:
                return
            elif not self._feed.queues:
                time.sleep(_SHARE_STEP_S)

    @property
    def _waits(self) -> bool:
        return self._wanted.follow or self._wanted.timeout_s is not None

    def _print(self, batch: Batch, printer: MessagePrinter) -> bool:
        """Print and commit a batch; return whether `count` is reached."""
        wanted, next_offset = self._wanted, batch.next_offset
        since = wanted.begin.time_ms if wanted.begin is not None else None
        until = wanted.end.time_ms if wanted.end is not None else None
        # An interrupt waits: every printed message is committed.
        with interrupted_later():
            for message in batch.messages:
                # Brokers also find the message before a time. A clock that was set back may mix times.
                if (since is not None and message.store_timestamp < since
                        or until is not None and message.store_timestamp > until):
                    continue
                printer.print(message)
                self.printed += 1
                if self.printed == wanted.count:
                    next_offset = message.queue_offset + 1
                    break
            printer.flush()
            if self._has_group:
                self._consumer.update_consume_offset(batch.queue, next_offset)
        return wanted.count is not None and self.printed >= wanted.count

    def _open_all(self, queues: list[MessageQueue]) -> None:
        last = self._wanted.end or Position(word=LATEST)
        for queue in queues:
            end = None if self._waits else last.end_of(self._consumer, queue)
            self._feed.open(queue, self._first_offset(queue, self._wanted.begin), end)

    def _first_offset(self, queue: MessageQueue, begin: Position | None) -> int:
        if begin is None:
            begin = Position(word=COMMITTED) if self._has_group else Position(word=EARLIEST)
        offset = begin.offset_of(self._consumer, queue)
        return offset if offset >= 0 else Position(word=EARLIEST).offset_of(self._consumer, queue)

    def _share(self) -> list[MessageQueue]:
        mine = {queue for topic in self._wanted.topics
                for queue in self._consumer.fetch_message_queues_in_balance(topic)}
        return [queue for queue in self.queues if queue in mine]

    def _wait_for_share(self) -> list[MessageQueue]:
        """Return the group's share, once each topic has one; it may have none, if there are more consumers than queues.
        """
        begin = time.monotonic()
        came: float | None = None
        while True:
            share, now = self._share(), time.monotonic()
            if share:
                came = now if came is None else came
                is_whole = {queue.topic for queue in share} == {queue.topic for queue in self.queues}
                if is_whole or now - came > _SHARE_REST_S:
                    return share
            elif now - begin > _SHARE_WAIT_S:
                topics = ", ".join(self._wanted.topics)
                raise CannotAnswerError(f"group {self._wanted.group} got no queue of {topics} within "
                                        f"{_SHARE_WAIT_S} s: its other consumers have them all; --group none reads "
                                        "without a share")
            time.sleep(_SHARE_STEP_S)

    def _follow_share(self) -> None:
        share = set(self._share())
        for queue in self._feed.queues - share:
            self._feed.close(queue)
        # A queue that another consumer has given up continues at its committed offset.
        if self._waits:
            for queue in sorted(share - self._feed.queues):
                self._feed.open(queue, self._first_offset(queue, None))


def reading_options(command: F) -> F:
    """Add the options that `consume` and `tail` share."""
    for option in (
            output_option,
            click.option("-f", "--format", "format_string",
                         help="The format of each message: %s body, %k keys, %t topic, %p queue, %o offset, %T ms, "
                              "%h properties, \\n ...; see docs/commands.md."),
            click.option("--sql", help="Only messages whose properties match, in SQL92: \"region = 'north'\". Needs "
                                       "brokers with enablePropertyFilter=true."),
            click.option("--tag", help="Only messages with one of these tags: \"paid || refunded\"."),
            click.option("--queue", "queue_id", type=click.IntRange(0), help="Only the queue with this id."),
            click.option("-b", "--broker", help="Only the queues of the broker with this name."),
            click.option("-g", "--group", default=NO_GROUP, show_default=True,
                         help="Join this group: read its share of the queues and commit the printed offsets. none: "
                              "read all queues, commit nothing."),
            click.option("-t", "--topic", "more_topics", multiple=True, shell_complete=complete_topic,
                         help="The topic, instead of TOPIC. Can be repeated."),
            namesrv_option,
            click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)):
        command = option(command)
    return command


def _topics(topics: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topics of both kinds, each once; a usage error without any."""
    if not topics and not more:
        name = click.get_current_context().info_name
        raise click.UsageError(f"give a topic: rmqha {name} orders, or rmqha {name} -t orders")
    return tuple(dict.fromkeys((*topics, *more)))


def _selector(tag: str | None, sql: str | None) -> MessageSelector:
    if tag is not None and sql is not None:
        raise click.UsageError("--tag and --sql exclude each other")
    return MessageSelector.by_tag(tag or "*") if sql is None else MessageSelector.by_sql(sql)


def _read(namesrv: str | None, wanted: Wanted, output: str, format_string: str | None) -> int:
    """Read and print messages; return the number printed."""
    if format_string is not None and output != "table":
        raise click.UsageError("-f and -o exclude each other")
    # Report an invalid format before connecting.
    MessagePrinter(output, format_string, ())
    with new_consumer(namesrv, wanted.group, wanted.topics) as consumer:
        reading = Reading(consumer, wanted)
        reading.run(MessagePrinter(output, format_string, reading.queues))
    return reading.printed


@click.command("consume", epilog=examples(
    "rmqha consume -n 127.0.0.1:9876 orders --from earliest --count 10",
    "rmqha consume orders --from 48h --to 24h",
    "rmqha consume -n 127.0.0.1:9876 -t orders --tag new -o json > orders.jsonl"))
@reading_options
@click.option("--from", "begin", type=PositionType(),
              help="The start position: earliest, latest, committed, an offset, -5 (the last 5 messages of each queue) "
                   "or a time, such as 10m (10 minutes ago). Default: the group's committed offsets; without a group, "
                   "earliest.")
@click.option("--to", "end", type=END,
              help="The last message: of this time, or with --queue this offset; both are included. latest or end, the "
                   "default: the last one stored when the command starts.")
@click.option("--count", type=click.IntRange(0), help="Stop after N messages; exit code 1 when there are fewer.")
@click.option("--timeout", "timeout_s", type=duration_type(0.1),
              help="Wait for more messages until none arrived for this many seconds. By default stop at the present "
                   "end of the queues.")
def consume_command(topics: tuple[str, ...], namesrv: str | None, more_topics: tuple[str, ...], group: str,
                    broker: str | None, queue_id: int | None, tag: str | None, sql: str | None,
                    format_string: str | None, output: str, begin: Position | None, end: Position | None,
                    count: int | None, timeout_s: float | None) -> None:
    """Print the messages of a topic, then exit. Without a group nothing changes at the broker.

    Messages of one queue are printed in order; the queues are interleaved in the order of the brokers' answers.
    """
    if end is not None and timeout_s is not None:
        raise click.UsageError("--to and --timeout exclude each other: --to reads only what is there")
    if end is not None and end.offset is not None and queue_id is None:
        raise click.UsageError("--to with an offset needs --queue: offsets count the messages of one queue")
    check_range(begin, end)
    wanted = Wanted(_topics(topics, more_topics), group, begin, end, _selector(tag, sql), broker, queue_id, count,
                    timeout_s)
    printed = _read(namesrv, wanted, output, format_string)
    if count is not None and printed < count:
        raise WorkFailedError(f"received only {counted(printed, 'message')} of {count}")


@click.command("tail", epilog=examples(
    "rmqha tail -n 127.0.0.1:9876 orders",
    "rmqha tail -n 127.0.0.1:9876 orders payments --from 10m -f '%k %s\\n'"))
@reading_options
@click.option("--from", "begin", type=PositionType(), default=LATEST, show_default=True,
              help="The start position: earliest, latest, committed, an offset, -5 (the last 5 messages of each queue) "
                   "or a time, such as 10m (10 minutes ago).")
def tail_command(topics: tuple[str, ...], namesrv: str | None, more_topics: tuple[str, ...], group: str,
                 broker: str | None, queue_id: int | None, tag: str | None, sql: str | None,
                 format_string: str | None, output: str, begin: Position) -> None:
    """Print the messages of a topic as they arrive, until Ctrl-C (exit code 130) or SIGTERM (143)."""
    wanted = Wanted(_topics(topics, more_topics), group, begin, None, _selector(tag, sql), broker, queue_id,
                    follow=True)
    _read(namesrv, wanted, output, format_string)
