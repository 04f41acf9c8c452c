"""Where reading begins: `--from earliest|latest|committed|OFFSET|TIME`."""
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.common.message.message_queue import MessageQueue
from rmqha.tools.store.errors import StoreToolError
from rmqha.tools.store.output import parse_time

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
_NUMBER = re.compile(r"-?\d{1,12}", re.ASCII)  # more digits are ms
_AGO = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
        ago = _AGO.fullmatch(value)
        if ago is not None:
            return Position(time_ms=int(time.time() * 1000) - int(ago[1]) * _UNITS_MS[ago[2]])
        try:
            time_ms = parse_time(value, "--from")
        except StoreToolError:
            time_ms = None
        if time_ms is not None and time_ms < 1 << 63:
            return Position(time_ms=time_ms)
        self.fail(f"{value!r} is neither earliest, latest, committed, an offset (-5: the last five of each queue), "
                  "a time such as 2024-05-31T12:30:00 or in ms, nor 10m for ten minutes ago", param, ctx)
