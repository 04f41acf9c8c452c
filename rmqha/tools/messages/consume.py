"""`rmqha consume` and `rmqha tail`."""
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.common.message.message import MessageQueue
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.options import namesrv_option, output_option, topic_option
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.messages.clients import NO_GROUP, chosen_queues, new_consumer, read_queues
from rmqha.tools.messages.positions import COMMITTED, EARLIEST, LATEST, Position, PositionType
from rmqha.tools.messages.printing import MessagePrinter
from rmqha.tools.messages.queue_feed import Batch, QueueFeed
from rmqha.tools.store.output import counted

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
