"""One counter and its three windows."""
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

_MINUTE_SAMPLES = 7  # of 10 seconds
_HOUR_SAMPLES = 7  # of 10 minutes
_DAY_SAMPLES = 25  # of an hour
_SECONDS_10_MS = 10 * 1000
_MINUTES_10_MS = 10 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


@dataclass(slots=True)
class StatsSnapshot:
    """Sum, sum per second, calls, and sum per call over one window.

    Java: org.apache.rocketmq.common.stats.StatsSnapshot (4.9.8)
    """

    sum: int = 0
    tps: float = 0.0
    times: int = 0
    avgpt: float = 0.0


class CallSnapshot(NamedTuple):
    """The counter at one time.

    Java: org.apache.rocketmq.common.stats.CallSnapshot (4.9.8)
    """

    timestamp: int  # ms, monotonic
    times: int
    value: int


class StatsItem:
    """A sum of values and of calls; sampled every 10 s, 10 min and 1 h by its set's timer.

    Differs from Java in that a clock jump does not show in a window's rate: samples carry monotonic time.

    Java: org.apache.rocketmq.common.stats.StatsItem (4.9.8)
    """

    __slots__ = ("value", "times", "stats_name", "stats_key", "_log", "_lock", "_minute", "_hour", "_day")

    def __init__(self, stats_name: str, stats_key: str, log: logging.Logger) -> None:
        self.value = 0  # written under _lock
        self.times = 0  # written under _lock
        self.stats_name = stats_name
        self.stats_key = stats_key
        self._log = log
        self._lock = threading.Lock()
        self._minute: deque[CallSnapshot] = deque(maxlen=_MINUTE_SAMPLES)  # these three: owned by the timer,
        self._hour: deque[CallSnapshot] = deque(maxlen=_HOUR_SAMPLES)  # read by anybody through the ends
        self._day: deque[CallSnapshot] = deque(maxlen=_DAY_SAMPLES)

    def add(self, value: int, times: int) -> None:
        """Count `value` in `times` calls."""
        with self._lock:
            self.value += value
            self.times += times

    def get_stats_data_in_minute(self) -> StatsSnapshot:
        """The last minute."""
        return _compute_stats_data(self._minute)

    def get_stats_data_in_hour(self) -> StatsSnapshot:
        """The last hour."""
        return _compute_stats_data(self._hour)

    def get_stats_data_in_day(self) -> StatsSnapshot:
        """The last day."""
        return _compute_stats_data(self._day)

    def sampling_in_seconds(self) -> None:
        """Take the sample of each 10 seconds."""
        self._sample(self._minute, _SECONDS_10_MS)

    def sampling_in_minutes(self) -> None:
        """Take the sample of each 10 minutes."""
        self._sample(self._hour, _MINUTES_10_MS)

    def sampling_in_hour(self) -> None:
        """Take the sample of each hour."""
        self._sample(self._day, _HOUR_MS)

    def print_at_minutes(self) -> None:
        """Log the last minute."""
        self._print("Minute", self._minute)

    def print_at_hour(self) -> None:
        """Log the last hour."""
        self._print("Hour", self._hour)

    def print_at_day(self) -> None:
        """Log the last day."""
        self._print("Day", self._day)

    def stat_print_detail(self, snapshot: StatsSnapshot) -> str:
        """The text of a window in the log."""
        return f"SUM: {snapshot.sum} TPS: {snapshot.tps:.2f} AVGPT: {snapshot.avgpt:.2f}"

    def _print(self, window: str, samples: deque[CallSnapshot]) -> None:
        if self._log.isEnabledFor(logging.INFO):
            detail = self.stat_print_detail(_compute_stats_data(samples))
            self._log.info("[%s] [%s] Stats In One %s, %s", self.stats_name, self.stats_key, window, detail)

    def _sample(self, samples: deque[CallSnapshot], interval_ms: int) -> None:
        now_ms = time.monotonic_ns() // 1_000_000
        if not samples:
            samples.append(CallSnapshot(now_ms - interval_ms, 0, 0))
        with self._lock:
            times, value = self.times, self.value
        samples.append(CallSnapshot(now_ms, times, value))


def _compute_stats_data(samples: deque[CallSnapshot]) -> StatsSnapshot:
    window = tuple(samples)  # one atomic copy: the timer may append meanwhile
    if not window:
        return StatsSnapshot()
    first, last = window[0], window[-1]
    total = last.value - first.value
    elapsed_ms = last.timestamp - first.timestamp
    times = last.times - first.times
    return StatsSnapshot(
        sum=total,
        tps=total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
        times=times,
        avgpt=total / times if times > 0 else 0.0,
    )


class RTStatsItem(StatsItem):
    """A counter whose value is a time: the log shows calls and the average.

    Java: org.apache.rocketmq.common.stats.RTStatsItem (4.9.8)
    """

    __slots__ = ()

    def stat_print_detail(self, snapshot: StatsSnapshot) -> str:
        return f"TIMES: {snapshot.times} AVGRT: {snapshot.avgpt:.2f}"
