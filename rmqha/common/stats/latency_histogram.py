"""How long something took, as a count by bucket: for what is timed seldom enough to be timed each time."""
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

# Upper bounds in seconds: from what a fast disk takes to what makes producers give up.
LATENCY_BOUNDS_S = (.0001, .00025, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1., 2., 5., 10.)


class Distribution(NamedTuple):
    """A histogram at one time: bounds in seconds, values in each bucket (one more than bounds), and their sum."""

    bounds_s: Sequence[float]
    counts: Sequence[int]
    sum_s: float


class LatencyHistogram:
    """Counts times by bucket, from the start on. One thread at a time notes, as the caller sees to; any thread reads.

    A reader may miss the value that is being noted: `distribution` never gives more in the sum than in the buckets.
    """

    def __init__(self, bounds_s: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self._bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self._bounds_s) + 1)
        self._sum_ns = 0

    def note(self, elapsed_ns: int) -> None:
        """One more took so long."""
        self._counts[bisect_left(self._bounds_s, elapsed_ns / 1e9)] += 1
        self._sum_ns += elapsed_ns

    def distribution(self) -> Distribution:
        """What was noted so far."""
        sum_ns = self._sum_ns
        return Distribution(self._bounds_s, tuple(self._counts), sum_ns / 1e9)
