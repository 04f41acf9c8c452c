"""`rmqha consume` and `rmqha tail`: read the messages of a topic's queues and print them.

- `Position`: where reading begins: `--from earliest|latest|committed|OFFSET|TIME`.
- `QueueFeed`: reads many queues at once. It keeps one pull per queue outstanding, which the broker holds until there
  is a message.
- `compiled`: the format strings of `-f`, like kcat's: %s is a message's body, \\n the end of a line.
- `MessagePrinter`: prints messages as they arrive: as rows of a table, JSON lines, YAML documents, or by a format
  string.
"""
import queue as thread_queue
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException
from rmqha.client.results import PullCallback, PullResult, PullStatus
from rmqha.common import units
from rmqha.common.compression import MissingBody
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.program import interrupted_later
from rmqha.common.protocol import response_code
from rmqha.tools.errors import one_line
from rmqha.tools.messages.produce import NO_GROUP, as_object, chosen_queues, new_consumer, read_queues, user_properties
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    cell,
    counted,
    display_width,
    duration_type,
    emit,
    namesrv_option,
    output_option,
    padded,
    put,
    time_text,
    topic_option,
)

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
_NUMBER = re.compile(r"-?\d{1,12}", re.ASCII)  # more digits are ms


@dataclass(frozen=True)
class Position:
    """A word, an offset (below 0: so many before the end), or a time in ms."""

    word: str | None = None
    offset: int | None = None
    time_ms: int | None = None

    def offset_of(self, consumer: DefaultMQPullConsumer, queue: MessageQueue) -> int:
        """The first offset to read in a queue; -1 when the group has none of its own (COMMITTED)."""
        admin = consumer.admin
        if self.word == COMMITTED:
            return consumer.fetch_consume_offset(queue, from_store=True)
        if self.word == LATEST:
            return admin.max_offset(queue)
        if self.time_ms is not None:
            # Of several of one ms the broker finds any, so it is asked for the ms before; who reads leaves out what is
            # older.
            return admin.search_offset(queue, max(self.time_ms - 1, 0))
        least = admin.min_offset(queue)
        if self.offset is None:
            return least
        return max(least, self.offset if self.offset >= 0 else admin.max_offset(queue) + self.offset)


if TYPE_CHECKING:
    _PositionParam = click.ParamType[Position]
else:
    _PositionParam = click.ParamType  # generic from click 8.4 on; 8.1 will do


class PositionType(_PositionParam):
    """The option's text as a Position."""

    name = "earliest|latest|OFFSET|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        """Parse; a usage error for anything else."""
        if isinstance(value, Position):
            return value
        if value in (EARLIEST, LATEST, COMMITTED):
            return Position(word=value)
        if _NUMBER.fullmatch(value):
            return Position(offset=int(value))
        try:
            return Position(time_ms=units.parse_time(str(value)))
        except units.UnitError:
            self.fail(f"{value!r} is neither earliest, latest, committed, an offset (-5: the last five of each queue), "
                      f"nor a time: {units.TIMES}", param, ctx)


_AT_ONCE = 32
_RETRY_S = 1.0
_TRIES = 3
# A broker that answers with one of these may answer otherwise in a second.
_PASSING = frozenset({response_code.SYSTEM_ERROR, response_code.SYSTEM_BUSY, response_code.SERVICE_NOT_AVAILABLE,
                      response_code.SUBSCRIPTION_NOT_EXIST, response_code.SUBSCRIPTION_NOT_LATEST})


@dataclass(eq=False)
class _Place:
    """How far a queue is read: `end` None follows it for ever."""

    queue: MessageQueue
    offset: int
    end: int | None
    failures: int = 0
    retry_at: float | None = None  # monotonic
    asked: bool = False


@dataclass(frozen=True)
class Batch:
    """Messages of one queue in order, and the offset behind them."""

    queue: MessageQueue
    messages: list[MessageExt]
    next_offset: int


class QueueFeed:
    """Hands out what the queues have, on the caller's thread. A queue that has an end is left there."""

    def __init__(self, consumer: DefaultMQPullConsumer, selector: MessageSelector) -> None:
        self._consumer = consumer
        self._selector = selector
        self._places: dict[MessageQueue, _Place] = {}
        # (place, answer), put by the client's callback threads
        self._answers: thread_queue.SimpleQueue[tuple[_Place, PullResult | Exception]] = thread_queue.SimpleQueue()

    @property
    def queues(self) -> set[MessageQueue]:
        """Those that are read."""
        return set(self._places)

    def open(self, queue: MessageQueue, offset: int, end: int | None = None) -> None:
        """Read a queue from an offset on, up to `end`."""
        if end is None or offset < end:
            self._places[queue] = _Place(queue, offset, end)

    def close(self, queue: MessageQueue) -> None:
        """Read it no longer; an answer on its way is thrown away."""
        self._places.pop(queue, None)

    def batches(self, timeout_s: float | None) -> Iterator[Batch]:
        """What comes, until all queues are at their ends, or for `timeout_s` nothing came.

        WorkFailedError when a queue with an end can't be read three times in a row; one that is followed is tried
        for ever, and the first failure is told. CannotAnswerError when a broker refuses for good. Offsets that are gone
        are reported; a queue with an end that ends before what was read is a WorkFailedError.
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
                continue  # closed meanwhile
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
                self._consumer.pull_block_if_not_found_async(
                    place.queue, self._selector, place.offset, _AT_ONCE, callback)
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
        """Read on at the queue's beginning: it begins after what was read, or ends before."""
        where = _named(place.queue)
        if answer.max_offset >= place.offset:
            following = max(answer.next_begin_offset, answer.min_offset, place.offset)
            if following > place.offset:
                put(f"{where}: offsets {place.offset} to {following} are gone, the queue begins at {answer.min_offset}",
                    err=True)
            place.offset = following
            return
        reason = (f"{where} ends at offset {answer.max_offset}, before {place.offset}: the topic may have been deleted "
                  "and made again")
        if place.end is not None:
            raise WorkFailedError(f"{reason}. Run the command again")
        put(f"{reason}; it is read from its beginning, offset {answer.min_offset}", err=True)
        place.offset = answer.min_offset

    def _failed(self, place: _Place, error: Exception) -> None:
        place.failures += 1
        place.retry_at = time.monotonic() + _RETRY_S
        where = _named(place.queue)
        if isinstance(error, MQBrokerException) and error.response_code not in _PASSING:
            raise CannotAnswerError(f"{where}: {one_line(error)}") from error
        if place.end is not None and place.failures >= _TRIES:
            raise WorkFailedError(f"{where} can't be read from offset {place.offset} on: {one_line(error)}") from error
        if place.end is None and place.failures == 1:
            put(f"{where}: {one_line(error)}; trying again", err=True)


def _named(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.brokerName}:{queue.queueId}"


Field = Callable[[MessageExt], bytes | str]

# letter -> what it is, and how to get it
FIELDS: dict[str, tuple[str, Field]] = {
    "t": ("topic", lambda message: message.topic),
    "b": ("broker's name", lambda message: message.broker_name or ""),
    "p": ("queue id", lambda message: str(message.queue_id)),
    "o": ("offset in the queue", lambda message: str(message.queue_offset)),
    "k": ("keys, separated by blanks", lambda message: message.keys or ""),
    "K": ("bytes of the keys", lambda message: str(len((message.keys or "").encode()))),
    "g": ("tag", lambda message: message.tags or ""),
    "s": ("body, as it is", lambda message: bytes(message.body)),
    "S": ("bytes of the body", lambda message: str(len(message.body))),
    "h": ("the producer's properties, `name=value`, separated by commas",
          lambda message: _pairs(user_properties(message))),
    "H": ("all properties, the system's too", lambda message: _pairs(message.properties)),
    "T": ("when it was stored, in ms", lambda message: str(message.store_timestamp)),
    "D": ("when it was stored, in local time", lambda message: time_text(message.store_timestamp)),
    "B": ("when it was sent, in ms", lambda message: str(message.born_timestamp)),
    "i": ("message id, of its producer", lambda message: message.msg_id or ""),
    "I": ("message id, of its broker: address and place in the log",
          lambda message: getattr(message, "offset_msg_id", None) or ""),
    "%": ("a percent sign", lambda message: "%"),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)


def _pairs(properties: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in properties.items())


def compiled(text: str) -> Callable[[MessageExt], bytes]:
    """What makes the bytes of a message; CannotAnswerError for a letter or an escape that is not known."""
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
            raise CannotAnswerError(f"-f {text!r}: \\{match['escape']} is not known; known are "
                                    + ", ".join(f"\\{letter}" for letter in _ESCAPES) + " and \\xFF")
        return _ESCAPES[match["escape"]]
    if match["field"] not in FIELDS:
        raise CannotAnswerError(f"-f {text!r}: %{match['field']} is not known; known are "
                                + ", ".join(f"%{letter}" for letter in FIELDS))
    return FIELDS[match["field"]][1]


_HEADINGS = ("stored", "ms", "queue", "offset", "tag", "keys", "body")
_RIGHT = {"ms", "offset"}
_LEAST = {"stored": 23, "ms": 13, "offset": 6}


class MessagePrinter:
    """Prints one message after the other to standard output."""

    def __init__(self, output: str, format_string: str | None, queues: Iterable[MessageQueue]) -> None:
        self._output = output
        self._render: Callable[[MessageExt], bytes] | None = None if format_string is None else compiled(format_string)
        self._widths = {heading: max(_LEAST.get(heading, 0), len(heading)) for heading in _HEADINGS}
        names = [f"{queue.brokerName}:{queue.queueId}" for queue in queues]
        self._widths["queue"] = max(map(display_width, ["queue", *names]))
        self._is_begun = False

    def print(self, message: MessageExt) -> None:
        """Print one."""
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
        """What was printed is to be seen now."""
        (sys.stdout if self._render is None else sys.stdout.buffer).flush()

    def _print_row(self, message: MessageExt) -> None:
        if not self._is_begun:
            self._is_begun = True
            put(click.style(self._line(_HEADINGS), bold=True))
        text = _body_text(message.body)
        put(self._line((time_text(message.store_timestamp), str(message.store_timestamp),
                        f"{cell(message.broker_name or '')}:{message.queue_id}", str(message.queue_offset),
                        cell(message.tags or ""), cell(message.keys or ""), text)))

    def _line(self, cells: Iterable[str]) -> str:
        parts = []
        for heading, text in zip(_HEADINGS, cells):
            width = self._widths[heading]
            if heading in ("tag", "keys", "offset"):  # as wide as the widest so far
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

_SHARE_WAIT_S, _SHARE_STEP_S = 30, 0.1  # until a group has shared its queues out, and between two looks meanwhile
_SHARE_LOOK_S = 0.5  # between two looks when nothing comes


@dataclass(frozen=True)
class Wanted:
    """What to read. `count` None: all; `timeout_s` None: only what is there, unless it is followed for ever."""

    topic: str
    group: str
    begin: Position | None
    selector: MessageSelector
    broker: str | None
    queue_id: int | None
    count: int | None = None
    timeout_s: float | None = None
    follow: bool = False


class Reading:
    """Reads a topic's queues, all of them or the group's share, and commits what was printed when there is a group."""

    def __init__(self, consumer: DefaultMQPullConsumer, wanted: Wanted) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._feed = QueueFeed(consumer, wanted.selector)
        self._has_group = wanted.group != NO_GROUP
        self.printed = 0
        self.queues = chosen_queues(read_queues(consumer, wanted.topic), wanted.broker, wanted.queue_id)

    def run(self, printer: MessagePrinter) -> None:
        """Print until there is enough, or no more."""
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
        """The same, and look at the group's share meanwhile: queues come and go with its other consumers."""
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
        """Print and commit; whether there is enough."""
        wanted, next_offset = self._wanted, batch.next_offset
        since = wanted.begin.time_ms if wanted.begin is not None else None
        with interrupted_later():  # what is printed is committed
            for message in batch.messages:
                if since is not None and message.store_timestamp < since:
                    continue  # brokers find the message before a time too
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
        for queue in queues:
            end = None if self._waits else self._consumer.admin.max_offset(queue)
            self._feed.open(queue, self._first_offset(queue, self._wanted.begin), end)

    def _first_offset(self, queue: MessageQueue, begin: Position | None) -> int:
        if begin is None:
            begin = Position(word=COMMITTED) if self._has_group else Position(word=EARLIEST)
        offset = begin.offset_of(self._consumer, queue)
        return offset if offset >= 0 else Position(word=EARLIEST).offset_of(self._consumer, queue)

    def _share(self) -> list[MessageQueue]:
        mine = self._consumer.fetch_message_queues_in_balance(self._wanted.topic)
        return [queue for queue in self.queues if queue in mine]

    def _wait_for_share(self) -> list[MessageQueue]:
        deadline = time.monotonic() + _SHARE_WAIT_S
        while not (share := self._share()):
            if time.monotonic() > deadline:
                raise CannotAnswerError(f"the group {self._wanted.group} has no queue of {self._wanted.topic} to spare "
                                        f"within {_SHARE_WAIT_S} s: its other consumers have them; --group none reads "
                                        "beside them")
            time.sleep(_SHARE_STEP_S)
        return share

    def _follow_share(self) -> None:
        share = set(self._share())
        for queue in self._feed.queues - share:
            self._feed.close(queue)
        if self._waits:  # what another consumer has left is read on where it was
            for queue in sorted(share - self._feed.queues):
                self._feed.open(queue, self._first_offset(queue, None))


def reading_options(command: F) -> F:
    """What `consume` and `tail` share."""
    for option in (
            output_option,
            click.option("-f", "--format", "format_string",
                         help="How to print each message: %s body, %k keys, %t topic, %p queue, %o offset, %T ms, "
                              "%h properties, \\n ...; see docs/commands.md."),
            click.option("--sql", help="Only messages whose properties match, in SQL92: \"region = 'north'\"."),
            click.option("--tag", help="Only messages with one of these tags: \"paid || refunded\"."),
            click.option("--queue", "queue_id", type=click.IntRange(0), help="Only the queue with this id."),
            click.option("-b", "--broker", help="Only the queues of the broker with this name."),
            click.option("-g", "--group", default=NO_GROUP, show_default=True,
                         help="Take the group's share of the queues and commit what was printed; none: read only."),
            topic_option,
            namesrv_option):
        command = option(command)
    return command


def _selector(tag: str | None, sql: str | None) -> MessageSelector:
    if tag is not None and sql is not None:
        raise click.UsageError("--tag and --sql are two filters: give one of them")
    return MessageSelector.by_tag(tag or "*") if sql is None else MessageSelector.by_sql(sql)


def _read(namesrv: str | None, wanted: Wanted, output: str, format_string: str | None) -> int:
    """Read and print; how many were printed."""
    if format_string is not None and output != "table":
        raise click.UsageError("-f and -o are two ways to print: give one of them")
    MessagePrinter(output, format_string, ())  # a format that is wrong is told before anything is connected
    with new_consumer(namesrv, wanted.group, wanted.topic) as consumer:
        reading = Reading(consumer, wanted)
        reading.run(MessagePrinter(output, format_string, reading.queues))
    return reading.printed


@click.command("consume")
@reading_options
@click.option("--from", "begin", type=PositionType(),
              help="Where to begin: also committed, -5 (the last five of each queue), 10m (ago). By default where the "
                   "group is, or earliest.")
@click.option("--count", type=click.IntRange(0), help="End after so many messages; exit code 1 when there are fewer.")
@click.option("--timeout", "timeout_s", type=duration_type(0.1),
              help="Wait for more, until for so many seconds none came. By default only what is there is printed.")
def consume_command(namesrv: str | None, topic: str, group: str, broker: str | None, queue_id: int | None,
                    tag: str | None, sql: str | None, format_string: str | None, output: str, begin: Position | None,
                    count: int | None, timeout_s: float | None) -> None:
    """Print the messages of a topic, and end. Without a group nothing changes at the broker.

    Each queue is printed in its order; queues are mixed as they answer.
    """
    wanted = Wanted(topic, group, begin, _selector(tag, sql), broker, queue_id, count, timeout_s)
    printed = _read(namesrv, wanted, output, format_string)
    if count is not None and printed < count:
        raise WorkFailedError(f"only {counted(printed, 'message')} of {count} came")


@click.command("tail")
@reading_options
@click.option("--from", "begin", type=PositionType(), default=LATEST, show_default=True,
              help="Where to begin: also committed, -5 (the last five of each queue), 10m (ago).")
def tail_command(namesrv: str | None, topic: str, group: str, broker: str | None, queue_id: int | None,
                 tag: str | None, sql: str | None, format_string: str | None, output: str, begin: Position) -> None:
    """Print the messages of a topic as they come, until Ctrl-C (exit code 130) or SIGTERM (143)."""
    wanted = Wanted(topic, group, begin, _selector(tag, sql), broker, queue_id, follow=True)
    _read(namesrv, wanted, output, format_string)
