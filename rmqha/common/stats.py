"""Counters of a broker over time.

- The names of all counters; `mqadmin` requests them by these names.
- `LatencyHistogram`: durations counted by bucket, for operations rare enough that each can be timed.
- `MomentStatsItem`, `MomentStatsItemSet`: a current value, and all values of one name by key.
- `StatsItem`, `StatsItemSet`: a counter with windows of a minute, an hour and a day, and all counters of one name by
  key.
"""
import logging
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from rmqha.common import util_all
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.threads import ScheduledService

QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
GROUP_GET_FROM_DISK_NUMS = "GROUP_GET_FROM_DISK_NUMS"
GROUP_GET_FROM_DISK_SIZE = "GROUP_GET_FROM_DISK_SIZE"
BROKER_GET_FROM_DISK_NUMS = "BROKER_GET_FROM_DISK_NUMS"
BROKER_GET_FROM_DISK_SIZE = "BROKER_GET_FROM_DISK_SIZE"
COMMERCIAL_SEND_TIMES = "COMMERCIAL_SEND_TIMES"
COMMERCIAL_SNDBCK_TIMES = "COMMERCIAL_SNDBCK_TIMES"
COMMERCIAL_RCV_TIMES = "COMMERCIAL_RCV_TIMES"
COMMERCIAL_RCV_EPOLLS = "COMMERCIAL_RCV_EPOLLS"
COMMERCIAL_SEND_SIZE = "COMMERCIAL_SEND_SIZE"
COMMERCIAL_RCV_SIZE = "COMMERCIAL_RCV_SIZE"
COMMERCIAL_PERM_FAILURES = "COMMERCIAL_PERM_FAILURES"

GROUP_GET_FALL_SIZE = "GROUP_GET_FALL_SIZE"
GROUP_GET_FALL_TIME = "GROUP_GET_FALL_TIME"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"


# Upper bounds in seconds: from the latency of a fast disk to the time after which producers give up.
LATENCY_BOUNDS_S = (.0001, .00025, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1., 2., 5., 10.)


class Distribution(NamedTuple):
    """A histogram at one time: bounds in seconds, values in each bucket (one more than bounds), and their sum."""

    bounds_s: Sequence[float]
    counts: Sequence[int]
    sum_s: float


class LatencyHistogram:
    """Counts durations by bucket, from the start of the process.

    The caller ensures that one thread at a time calls `note`; any thread may read. A reader may miss the value that is
    being noted. `distribution` reads the sum first, so the sum never includes a value that the buckets lack.
    """

    def __init__(self, bounds_s: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self._bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self._bounds_s) + 1)
        self._sum_ns = 0

    def note(self, elapsed_ns: int) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds_s, elapsed_ns / 1e9)] += 1
        self._sum_ns += elapsed_ns

    def distribution(self) -> Distribution:
        """Return the histogram of all durations so far."""
        sum_ns = self._sum_ns
        return Distribution(self._bounds_s, tuple(self._counts), sum_ns / 1e9)


# Per name; values of further keys are dropped.
MAX_KEYS = 100_000
_PRINT_INTERVAL_MS = 5 * 60 * 1000


class MomentStatsItem:
    """The last value set, logged every 5 minutes.

    Java: org.apache.rocketmq.common.stats.MomentStatsItem (4.9.8)
    """

    __slots__ = ("value", "stats_name", "stats_key", "_log")

    def __init__(self, stats_name: str, stats_key: str, log: logging.Logger) -> None:
        # Plain stores and loads from any thread.
        self.value = 0
        self.stats_name = stats_name
        self.stats_key = stats_key
        self._log = log

    def print_at_minutes(self) -> None:
        """Log the value."""
        self._log.info("[%s] [%s] Stats Every 5 Minutes, Value: %d", self.stats_name, self.stats_key, self.value)


class MomentStatsItemSet:
    """Current values of one name by key.

    Java: org.apache.rocketmq.common.stats.MomentStatsItemSet (4.9.8)
    """

    def __init__(self, stats_name: str, log: logging.Logger) -> None:
        self.stats_name = stats_name
        # Single dict operations only; iterated over a copy.
        self.stats_item_table: dict[str, MomentStatsItem] = {}
        self._log = log

    def init(self, scheduler: ScheduledService) -> None:
        """Schedule the lines in the log."""
        delay_ms = _until(util_all.compute_next_minutes_time_millis())
        scheduler.schedule_at_fixed_rate(self.print_at_minutes, delay_ms, _PRINT_INTERVAL_MS)

    def print_at_minutes(self) -> None:
        """Log each value."""
        for item in list(self.stats_item_table.values()):
            item.print_at_minutes()

    def set_value(self, stats_key: str, value: int) -> None:
        """Set the value of a key."""
        self.get_and_create_stats_item(stats_key).value = value

    def del_value_by_infix_key(self, stats_key: str, separator: str) -> None:
        """Forget the keys that hold `stats_key` between two separators."""
        self._delete(lambda key: separator + stats_key + separator in key)

    def del_value_by_suffix_key(self, stats_key: str, separator: str) -> None:
        """Forget the keys that end with `separator + stats_key`."""
        self._delete(lambda key: key.endswith(separator + stats_key))

    def get_and_create_stats_item(self, stats_key: str) -> MomentStatsItem:
        """Return the item of a key, created if new. Beyond MAX_KEYS a new item is not kept."""
        item = self.stats_item_table.get(stats_key)
        if item is None:
            item = MomentStatsItem(self.stats_name, stats_key, self._log)
            if len(self.stats_item_table) < MAX_KEYS:
                item = self.stats_item_table.setdefault(stats_key, item)
        return item

    def _delete(self, matches: Callable[[str], bool]) -> None:
        for key in list(self.stats_item_table):
            if matches(key):
                self.stats_item_table.pop(key, None)


def _until(time_ms: int) -> int:
    return max(0, time_ms - util_all.current_time_millis())


_MINUTE_SAMPLES = 7  # of 10 seconds
_HOUR_SAMPLES = 7  # of 10 minutes
_DAY_SAMPLES = 25  # of an hour
_SECONDS_10_MS = 10 * 1000
_MINUTES_10_MS = 10 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


@dataclass(slots=True)
class StatsSnapshot:
    """The sum, the sum per second, the number of calls, and the sum per call over one window.

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
    """A sum of values and a number of calls, sampled every 10 s, 10 min and 1 h by its set's timer.

    Differs from Java in that a clock jump does not distort a window's rate: samples carry monotonic time.

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
        # Only the timer appends to these three; any thread may read them, by an atomic copy.
        self._minute: deque[CallSnapshot] = deque(maxlen=_MINUTE_SAMPLES)
        self._hour: deque[CallSnapshot] = deque(maxlen=_HOUR_SAMPLES)
        self._day: deque[CallSnapshot] = deque(maxlen=_DAY_SAMPLES)

    def add(self, value: int, times: int) -> None:
        """Add `value`, from `times` calls."""
        with self._lock:
            self.value += value
            self.times += times

    def get_stats_data_in_minute(self) -> StatsSnapshot:
        """Return the window of the last minute."""
        return _compute_stats_data(self._minute)

    def get_stats_data_in_hour(self) -> StatsSnapshot:
        """Return the window of the last hour."""
        return _compute_stats_data(self._hour)

    def get_stats_data_in_day(self) -> StatsSnapshot:
        """Return the window of the last day."""
        return _compute_stats_data(self._day)

    def sampling_in_seconds(self) -> None:
        """Take a sample for the window of a minute; called every 10 seconds."""
        self._sample(self._minute, _SECONDS_10_MS)

    def sampling_in_minutes(self) -> None:
        """Take a sample for the window of an hour; called every 10 minutes."""
        self._sample(self._hour, _MINUTES_10_MS)

    def sampling_in_hour(self) -> None:
        """Take a sample for the window of a day; called every hour."""
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
        """Return the text of a window for the log."""
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
    # One atomic copy: the timer may append meanwhile.
    window = tuple(samples)
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
    """A counter of response times. The log shows the number of calls and their average time.

    Java: org.apache.rocketmq.common.stats.RTStatsItem (4.9.8)
    """

    __slots__ = ()

    def stat_print_detail(self, snapshot: StatsSnapshot) -> str:
        return f"TIMES: {snapshot.times} AVGRT: {snapshot.avgpt:.2f}"


_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_DAY_MS = 24 * _HOUR_MS


class StatsItemSet:
    """Counters of one name by key, sampled and logged by one timer. A counter is created when its key is first counted.

    Java: org.apache.rocketmq.common.stats.StatsItemSet (4.9.8)
    """

    def __init__(self, stats_name: str, log: logging.Logger) -> None:
        self.stats_name = stats_name
        self._log = log
        # Single dict operations only; iterated over a copy.
        self._stats_item_table: dict[str, StatsItem] = {}

    def init(self, scheduler: ScheduledService) -> None:
        """Schedule the sampling and the log lines."""
        at_fixed_rate = scheduler.schedule_at_fixed_rate
        at_fixed_rate(self._each("sampling_in_seconds"), 0, 10 * _SECOND_MS)
        at_fixed_rate(self._each("sampling_in_minutes"), 0, 10 * _MINUTE_MS)
        at_fixed_rate(self._each("sampling_in_hour"), 0, _HOUR_MS)
        at_fixed_rate(self._each("print_at_minutes"), _until(util_all.compute_next_minutes_time_millis()), _MINUTE_MS)
        at_fixed_rate(self._each("print_at_hour"), _until(util_all.compute_next_hour_time_millis()), _HOUR_MS)
        at_fixed_rate(self._each("print_at_day"), _until(util_all.compute_next_morning_time_millis()), _DAY_MS)

    def add_value(self, stats_key: str, inc_value: int, inc_times: int) -> None:
        """Add to the counter of a key."""
        self.get_and_create_stats_item(stats_key).add(inc_value, inc_times)

    def add_rt_value(self, stats_key: str, inc_value: int, inc_times: int) -> None:
        """Add response times, in ms, to the counter of a key."""
        self.get_and_create_rt_stats_item(stats_key).add(inc_value, inc_times)

    def del_value(self, stats_key: str) -> None:
        """Forget one key."""
        self._stats_item_table.pop(stats_key, None)

    def del_value_by_prefix_key(self, stats_key: str, separator: str) -> None:
        """Forget the keys that begin with `stats_key + separator`."""
        self._delete(lambda key: key.startswith(stats_key + separator))

    def del_value_by_infix_key(self, stats_key: str, separator: str) -> None:
        """Forget the keys that hold `stats_key` between two separators."""
        self._delete(lambda key: separator + stats_key + separator in key)

    def del_value_by_suffix_key(self, stats_key: str, separator: str) -> None:
        """Forget the keys that end with `separator + stats_key`."""
        self._delete(lambda key: key.endswith(separator + stats_key))

    def get_and_create_stats_item(self, stats_key: str) -> StatsItem:
        """Return the counter of the key, created if new."""
        item = self._stats_item_table.get(stats_key)
        return item if item is not None else self._added(StatsItem(self.stats_name, stats_key, self._log))

    def get_and_create_rt_stats_item(self, stats_key: str) -> StatsItem:
        """Return the counter of the key, created as one of response times if new."""
        item = self._stats_item_table.get(stats_key)
        return item if item is not None else self._added(RTStatsItem(self.stats_name, stats_key, self._log))

    def _added(self, item: StatsItem) -> StatsItem:
        """Keep `item` if its key is new, and return the key's counter. Beyond MAX_KEYS the item is not kept."""
        # Differs: the number of statistics keys is limited; the original keeps a counter for every name that it ever
        # receives
        if len(self._stats_item_table) >= MAX_KEYS:
            return item
        return self._stats_item_table.setdefault(item.stats_key, item)

    def get_stats_data_in_minute(self, stats_key: str) -> StatsSnapshot:
        """Return the last minute of a key; zeros when it is unknown."""
        item = self._stats_item_table.get(stats_key)
        return item.get_stats_data_in_minute() if item else StatsSnapshot()

    def get_stats_data_in_hour(self, stats_key: str) -> StatsSnapshot:
        """Return the last hour of a key; zeros when it is unknown."""
        item = self._stats_item_table.get(stats_key)
        return item.get_stats_data_in_hour() if item else StatsSnapshot()

    def get_stats_data_in_day(self, stats_key: str) -> StatsSnapshot:
        """Return the last day of a key; zeros when it is unknown."""
        item = self._stats_item_table.get(stats_key)
        return item.get_stats_data_in_day() if item else StatsSnapshot()

    def get_stats_item(self, stats_key: str) -> StatsItem | None:
        """Return the counter of the key, or None."""
        return self._stats_item_table.get(stats_key)

    def items(self) -> list[StatsItem]:
        """Return all counters that exist at the time of the call."""
        return list(self._stats_item_table.values())

    def _each(self, method: str) -> Callable[[], None]:
        def run() -> None:
            for item in self.items():
                getattr(item, method)()

        return run

    def _delete(self, matches: Callable[[str], bool]) -> None:
        for key in list(self._stats_item_table):
            if matches(key):
                self._stats_item_table.pop(key, None)
