"""Positions in the queues of a topic where reading begins and ends, and the option types for them.

- `Position`: a word, an offset or a time. `offset_of` is where reading begins there, `end_of` where it ends: a message
  at that offset or of that time is still read, as by `store dump --to`.
- `PositionType`: the type of `--from`; `END`: the type of `--to`; `check_range`: do the two fit together?
- `first_after`: the first offset of a queue whose message was stored after a time.
"""
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.results import PullStatus
from rmqha.common import units
from rmqha.common.message.message import MessageQueue
from rmqha.tools.terminal import END_WORDS

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
# A number with more digits is a time in ms.
_NUMBER = re.compile(r"-?\d{1,12}", re.ASCII)


@dataclass(frozen=True)
class Position:
    """A position in each queue: a word, an offset (-N: N messages before the end), or a time in ms."""

    word: str | None = None
    offset: int | None = None
    time_ms: int | None = None

    def offset_of(self, consumer: DefaultMQPullConsumer, queue: MessageQueue) -> int:
        """Return the first offset to read in a queue; -1 for COMMITTED when the group has no offset there."""
        admin = consumer.admin
        if self.word == COMMITTED:
            return consumer.fetch_consume_offset(queue, from_store=True)
        if self.word == LATEST:
            return admin.max_offset(queue)
        if self.time_ms is not None:
            # Among several messages of one ms the broker may find any. So it is asked for the ms before, and the reader
            # skips what is older.
            return admin.search_offset(queue, max(self.time_ms - 1, 0))
        least = admin.min_offset(queue)
        if self.offset is None:
            return least
        return max(least, self.offset if self.offset >= 0 else admin.max_offset(queue) + self.offset)

    def end_of(self, consumer: DefaultMQPullConsumer, queue: MessageQueue) -> int:
        """Return the offset after the last one to read in a queue, at most its present end."""
        if self.time_ms is not None and self.time_ms < time.time() * 1000:
            return first_after(consumer, queue, self.time_ms)
        end = consumer.admin.max_offset(queue)
        if self.offset is None:
            return end
        return min((self.offset if self.offset >= 0 else end + self.offset) + 1, end)


def first_after(consumer: DefaultMQPullConsumer, queue: MessageQueue, time_ms: int) -> int:
    """Return the first offset of a queue whose message was stored after a time; the queue's end without one.

    The broker's search finds any of several messages of one ms, or a neighbour of the time. So the search continues
    from there, with a few pulls of one message.
    """
    low, high = consumer.admin.min_offset(queue), consumer.admin.max_offset(queue)
    found = consumer.admin.search_offset(queue, time_ms + 1) if low < high else low
    guesses = iter((found, found + 1))
    while low < high:
        probe = next(guesses, (low + high) // 2)
        probe = min(max(probe, low), high - 1)
        answer = consumer.pull(queue, "*", probe, 1)
        if answer.pull_status is PullStatus.FOUND and answer.msg_found_list[0].store_timestamp > time_ms:
            high = probe
        elif answer.pull_status is PullStatus.OFFSET_ILLEGAL:  # deleted meanwhile
            low = min(max(probe + 1, answer.min_offset), high)
        else:
            low = probe + 1
    return low


if TYPE_CHECKING:
    _PositionParam = click.ParamType[Position]
else:
    _PositionParam = click.ParamType  # generic only from click 8.4 on


class PositionType(_PositionParam):
    """The option type for a Position. `words`: those that it accepts; `offsets`: whether it accepts offsets."""

    def __init__(self, words: Sequence[str] = (EARLIEST, LATEST, COMMITTED), offsets: bool = True) -> None:
        self._words = words
        self._offsets = offsets
        self.name = "|".join([*(word for word in words if word != COMMITTED), *(["OFFSET"] if offsets else []), "TIME"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        """Parse the option's text; a usage error when it is invalid."""
        if isinstance(value, Position):
            return value
        word = END_WORDS.get(value, value)
        if word in self._words:
            return Position(word=word)
        if self._offsets and _NUMBER.fullmatch(value):
            return Position(offset=int(value))
        try:
            if word not in (EARLIEST, LATEST, COMMITTED) and not _NUMBER.fullmatch(value):
                return Position(time_ms=units.parse_time(str(value)))
        except units.UnitError:
            pass
        known = [*self._words, *(["an offset (-5: the last 5 of each queue)"] if self._offsets else [])]
        self.fail(f"{value!r} is not {', '.join(known)} or a time: {units.TIMES}", param, ctx)


END = PositionType([LATEST])


def check_range(begin: Position | None, end: Position | None) -> None:
    """Check that a range does not end before it begins; a usage error if that is certain."""
    if begin is None or end is None:
        return
    for first, last in ((begin.time_ms, end.time_ms), (begin.offset, end.offset)):
        if first is not None and last is not None and (first < 0) == (last < 0) and first > last:
            raise click.UsageError("--to is before --from: nothing is in between")
