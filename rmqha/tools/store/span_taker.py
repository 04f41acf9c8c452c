"""Taking the records of a block at once, through the bulk kernel, as long as nothing about them is odd."""
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Span
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, unpack_unit
from rmqha.tools.store.dispatch import Dispatcher


class RunOfUnits(NamedTuple):
    """Units of one queue that follow one another; `first_index` is that of the first."""

    topic: str
    queue_id: int
    first_index: int
    units: bytes

    @property
    def end(self) -> int:
        """Index behind the last unit."""
        return self.first_index + len(self.units) // CQ_STORE_UNIT_SIZE


class SpanTaker(NamedTuple):
    """`take(span)`: true when it has taken all of the span; false, and nothing is done, when it wants the records."""

    delays_ms: list[int]
    take: Callable[[Span], bool]

    def scan(self, data: bytes, base: int, check_crc: bool) -> Span:
        """The good records at the beginning of a block, which begins at offset `base` of the log."""
        return bulk.scan(data, 0, len(data), base, check_crc, self.delays_ms, True)


def span_taker(dispatcher: Dispatcher, take: Callable[[Span], bool]) -> SpanTaker | None:
    """What takes spans; None where it would not pay."""
    # without levels the broker has a delay of its own for delayed messages
    return SpanTaker(dispatcher.delays_ms, take) if bulk.is_compiled() and dispatcher.delays_ms else None


def has_dead(runs: list[RunOfUnits], marks: Mapping[str, int]) -> bool:
    """Whether any unit is of a record that was deleted with its topic; `marks`: see Dispatcher."""
    return bool(marks) and any(unpack_unit(run.units)[0] < marks.get(run.topic, 0) for run in runs)


def runs_of(span: Span) -> list[RunOfUnits] | None:
    """The runs of a span; None when a queue has more than one, and so a place where its indices do not go on."""
    size, runs = CQ_STORE_UNIT_SIZE, []
    for run in span.runs:
        units = span.units[run.first_unit * size:(run.first_unit + run.count) * size]
        runs.append(RunOfUnits(span.topics[run.topic].name, run.queue_id, run.queue_offset, units))
    return runs if len({run[:2] for run in runs}) == len(runs) else None
