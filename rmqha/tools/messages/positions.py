"""Where reading begins: `--from earliest|latest|committed|OFFSET|TIME`."""
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.common import units
from rmqha.common.message.message import MessageQueue

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
