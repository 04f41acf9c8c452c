"""`rmqha produce`."""
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import BinaryIO

import click

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendResult, SendStatus
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.program import interrupted_later
from rmqha.tools.dialect.errors import CLIENT_ERRORS, one_line
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.options import namesrv_option, output_option, topic_option
from rmqha.tools.dialect.output import emit, put
from rmqha.tools.messages.clients import PRODUCER_GROUP, chosen_queues, new_producer, queues_to_be
from rmqha.tools.messages.json_lines import LONGEST_BODY, LONGEST_LINE, lines_of, parsed
from rmqha.tools.messages.message_json import Outgoing, decorate, outgoing
from rmqha.tools.store.output import counted

_FAILURES_IN_A_ROW = 5
LONGEST_SENT = 4 << 20  # bytes, what a producer sends by default


@dataclass(frozen=True)
class Decoration:
    """What the options give each message."""

    key: str | None
    tag: str | None
    properties: dict[str, str]
    delay: int | None
    queue: int | None
    broker: str | None

    def given_to(self, message: Message) -> Outgoing:
        """A message with all of it; ValueError for what can't be sent."""
        decorate(message, self.key, self.tag, self.properties, self.delay)
        return Outgoing(message, self.queue, self.broker)

    def defaults_of(self, given: Outgoing) -> Outgoing:
        """A message with what it lacks itself."""
        message = given.message
        missing = {name: value for name, value in self.properties.items() if name not in message.properties}
        decorate(message, None if message.keys else self.key, None if message.tags else self.tag, missing,
                 None if message.delay_time_level else self.delay)
        return Outgoing(message, self.queue if given.queue is None else given.queue, given.broker or self.broker)


@dataclass(frozen=True)
class Item:
    """One message of the input, or why it is not one; `place` is file:line."""

    place: str
    outgoing: Outgoing | None
    error: str = ""


class Sender:
    """Sends to any queue, or to the one that is named."""

    def __init__(self, producer: DefaultMQProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._queues: list[MessageQueue] | None = None  # asked for when one is named
        self._turns: dict[tuple[str | None, int | None], Iterator[MessageQueue]] = {}

    def send(self, outgoing: Outgoing) -> SendResult:
        """Send and wait."""
        queue = None
        if outgoing.queue is not None or outgoing.broker is not None:
            queue = self._named_queue(outgoing.broker, outgoing.queue)
        return self._producer.send(outgoing.message, queue=queue)

    def _named_queue(self, broker: str | None, queue_id: int | None) -> MessageQueue:
        turn = self._turns.get((broker, queue_id))
        if turn is None:
            if self._queues is None:
                self._queues = queues_to_be(self._producer, self._topic)
            found = chosen_queues(self._queues, broker, queue_id)
            if queue_id is not None and len(found) > 1:
                names = " and ".join(queue.brokerName for queue in found)
                raise CannotAnswerError(f"queue {queue_id} is at {names}: name the broker too, with -b or `broker`")
            turn = self._turns[broker, queue_id] = cycle(found)
        return next(turn)


class Tally:
    """What became of the messages: printed if asked for, counted, and summed up in the end."""

    def __init__(self, output: str, verbose: bool) -> None:
        self._output = output
        self._verbose = verbose
        self.sent = self.failed = self.in_a_row = self.empty_lines = 0
        self.by_status: dict[str, int] = defaultdict(int)
        self.begin = time.monotonic()

    def stored(self, result: SendResult) -> None:
        """Count one that is stored, as safely as its status says."""
        self.sent, self.in_a_row = self.sent + 1, 0
        if result.send_status is not SendStatus.SEND_OK:
            self.by_status[result.send_status.name] += 1

    def show(self, result: SendResult) -> None:
        """Print where one is, if that is asked for."""
        queue, status = result.message_queue, result.send_status
        if self._output != "table":
            emit({"topic": queue.topic, "broker": queue.brokerName, "queue": queue.queueId,
                  "offset": result.queue_offset, "msgId": result.msg_id, "offsetMsgId": result.offset_msg_id,
                  "status": status.name}, self._output)
        elif self._verbose:
            put(f"{queue.brokerName}:{queue.queueId}  {result.queue_offset}  {result.msg_id}  {status.name}")

    def lost(self, place: str, error: str) -> None:
        """One that is not stored, or of which nobody knows."""
        self.failed, self.in_a_row = self.failed + 1, self.in_a_row + 1
        put(f"{click.style(place, fg='red')}: {error}", err=True)

    def sum(self) -> str:
        """The sum so far, in words."""
        seconds = time.monotonic() - self.begin
        rate = f", {self.sent / seconds:,.0f} a second" if self.sent > 1 and seconds > 0 else ""
        said = [f"{counted(self.sent, 'message')} sent in {seconds:.1f} s{rate}"]
        if self.empty_lines:
            said.append(f"{counted(self.empty_lines, 'empty line')} left out: a message needs a body")
        if self.failed:
            said.append(f"{self.failed:,} failed")
        if self.by_status:
            weak = ", ".join(f"{count:,} {name}" for name, count in sorted(self.by_status.items()))
            said.append(f"not as safe as promised: {weak}")
        return "; ".join(said)

    def tell(self) -> None:
        """Print the sum to standard error; WorkFailedError when not all is well."""
        if self.failed or self.by_status:
            raise WorkFailedError(self.sum())
        put(self.sum(), err=True)


def items(source: str, stream: BinaryIO, kind: str, topic: str, decoration: Decoration, tally: Tally) -> Iterator[Item]:
    """The messages of an input: its lines, its JSON lines, or all of it. Empty lines are counted: no message is empty.

    A line of blanks is a message; between JSON lines it is empty.
    """
    if kind == "whole":
        yield _item(source, lambda: decoration.given_to(Message(topic, _whole(stream))))
        return
    for number, line in enumerate(lines_of(stream, LONGEST_LINE if kind == "json" else LONGEST_SENT), 1):
        if isinstance(line, bytes) and not (line.strip() if kind == "json" else line.removesuffix(b"\r")):
            tally.empty_lines += 1
            continue
        yield _item(f"{source}:{number}", partial(_of_line, line, kind, topic, decoration))


def _whole(stream: BinaryIO) -> bytes:
    data = stream.read(LONGEST_SENT + 1)
    if len(data) > LONGEST_SENT:
        raise ValueError(f"more than the {LONGEST_SENT:,} bytes that a message may have")
    return data


def _of_line(line: bytes | ValueError, kind: str, topic: str, decoration: Decoration) -> Outgoing:
    if isinstance(line, ValueError):
        raise line
    if kind == "json":
        return decoration.defaults_of(outgoing(parsed(line), topic))
    return decoration.given_to(Message(topic, line))


def _item(place: str, make: Callable[[], Outgoing]) -> Item:
    try:
        return Item(place, make())
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError too
        return Item(place, None, str(error))


def _texts(texts: tuple[str, ...], count: int | None, topic: str, decoration: Decoration) -> Iterator[Item]:
    for number, text in enumerate(texts if count is None else cycle(texts), 1):
        line = text.encode("utf-8", "surrogateescape")  # whatever bytes the shell has given
        yield _item(f"-m {number}", partial(_of_line, line, "lines", topic, decoration))


def _files(files: tuple[str, ...], kind: str, topic: str, decoration: Decoration, tally: Tally) -> Iterator[Item]:
    for name in files or ("-",):
        if name == "-":
            if sys.stdin.isatty():
                put("one message a line; Ctrl-D ends", err=True)
            yield from items("stdin", sys.stdin.buffer, kind, topic, decoration, tally)
        else:
            with open(name, "rb") as stream:
                yield from items(name, stream, kind, topic, decoration, tally)


def _properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not name=value", param_hint="--property")
        found[name] = value
    try:
        decorate(Message("T", b"b"), None, None, found, None)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--property") from None
    return found


def send_all(sender: Sender, inputs: Iterable[Item], count: int | None, rate: float | None, tally: Tally) -> None:
    """Send one after the other; after five failures in a row the rest is not tried. An interrupt waits for the answer
    to what is on its way, and has the sum printed.
    """
    begin = tally.begin = time.monotonic()
    try:
        for number, item in enumerate(islice(inputs, count)):  # which does not read past the last
            if rate is not None:
                time.sleep(max(begin + number / rate - time.monotonic(), 0))
            _send(sender, item, tally)
            if tally.in_a_row >= _FAILURES_IN_A_ROW:
                put(f"{_FAILURES_IN_A_ROW} failures in a row: the rest is not sent", err=True)
                break
    except BaseException:
        put(tally.sum(), err=True)
        raise
    tally.tell()


def _send(sender: Sender, item: Item, tally: Tally) -> None:
    if item.outgoing is None:
        tally.lost(item.place, item.error)
        return
    try:
        with interrupted_later():
            result = sender.send(item.outgoing)
            tally.stored(result)
    except CLIENT_ERRORS as error:
        tally.lost(item.place, one_line(error))
    except CannotAnswerError as error:  # a queue that is not there
        tally.lost(item.place, error.message)
    else:
        tally.show(result)


@click.command("produce")
@namesrv_option
@topic_option
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-g", "--group", default=PRODUCER_GROUP, show_default=True, help="The producer's group.")
@click.option("-f", "--format", "kind", type=click.Choice(["lines", "json", "whole"]), default="lines",
              show_default=True, help="What the input is: a message a line, a JSON object a line, or each file a "
                                      "message.")
@click.option("-m", "--message", "texts", multiple=True,
              help="A message, instead of input; more than once for several.")
@click.option("-k", "--key", help="The messages' key; several with blanks between them.")
@click.option("--tag", help="The messages' tag.")
@click.option("-p", "--property", "pairs", multiple=True, metavar="NAME=VALUE",
              help="A property of the messages; more than once for several.")
@click.option("--delay", type=click.IntRange(1), metavar="LEVEL",
              help="Deliver later: a level of the broker's messageDelayLevel; 1 is 1 s, 4 is 30 s, 18 is 2 h.")
@click.option("-b", "--broker", help="Send to the broker with this name only.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Send to the queue with this id.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages; those of -m are repeated.")
@click.option("--rate", type=click.FloatRange(0.001), help="At most so many messages a second.")
@click.option("-v", "--verbose", is_flag=True, help="Print queue, offset, id and status of each message.")
@output_option
def produce_command(namesrv: str | None, topic: str, files: tuple[str, ...], group: str, kind: str,
                    texts: tuple[str, ...], key: str | None, tag: str | None, pairs: tuple[str, ...], delay: int | None,
                    broker: str | None, queue_id: int | None, count: int | None, rate: float | None, verbose: bool,
                    output: str) -> None:
    """Send messages to a topic: each line of standard input, or of FILES.

    JSON lines may have body or bodyBase64, keys, tags, properties, delay, queue, broker and flag. -o json prints
    where each message went. Exit code 1 when one failed, or is not as safe as its broker promises.
    """
    if texts and (files or kind != "lines"):
        raise click.UsageError("-m is the messages themselves: give neither files nor -f with it")
    decoration, tally = Decoration(key, tag, _properties(pairs), delay, queue_id, broker), Tally(output, verbose)
    inputs = _texts(texts, count, topic, decoration) if texts else _files(files, kind, topic, decoration, tally)
    with new_producer(namesrv, group) as producer:
        if kind == "json":  # what `consume` has printed; the broker decides, and counts what arrives, compressed
            producer.max_message_size = LONGEST_BODY
        send_all(Sender(producer, topic), inputs, count, rate, tally)
