"""A metric's name, and the values that belong to it."""
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from rmqha.common.stats.latency_histogram import Distribution

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

T = TypeVar("T")
Sample = tuple[tuple[str, ...], float | Distribution]
"""The labels' values, in the order of the metric's `labels`, and what they have; a Distribution for a histogram."""


class MetricsNames(Enum):
    """Whose names a broker's metrics have, beside rmqha's own."""

    exporter = "exporter"
    otel = "otel"
    both = "both"


class Metric(NamedTuple):
    """What Prometheus and people know it by. A counter's name ends with `_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Family(NamedTuple):
    """A metric and its samples, which may be made while they are taken."""

    metric: Metric
    samples: Iterable[Sample]


class Memo(Generic[T]):
    """What an iterator gives, to be gone through several times: made once, and not before it is wanted."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = iter(source)
        self._seen: list[T] = []

    def __iter__(self) -> Iterator[T]:
        at = 0
        while True:
            while at < len(self._seen):
                yield self._seen[at]
                at += 1
            try:
                self._seen.append(next(self._source))
            except StopIteration:
                return
