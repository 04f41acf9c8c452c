"""All counters of one name, by key."""
import logging
from collections.abc import Callable

from rmqha.common import util_all
from rmqha.common.scheduled_service import ScheduledService
from rmqha.common.stats.stats_item import RTStatsItem, StatsItem, StatsSnapshot

MAX_KEYS = 100_000  # of one name; counts of further keys are lost

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS


class StatsItemSet:
    """Counters of one name by key, sampled and logged by one timer. Unknown keys are made on the first count.

    Java: org.apache.rocketmq.common.stats.StatsItemSet (4.9.8)
    """

    def __init__(self, stats_name: str, log: logging.Logger) -> None:
        self.stats_name = stats_name
        self._log = log
        self._stats_item_table: dict[str, StatsItem] = {}  # single dict operations only; iterated over a copy

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
        """Count."""
        self.get_and_create_stats_item(stats_key).add(inc_value, inc_times)

    def add_rt_value(self, stats_key: str, inc_value: int, inc_times: int) -> None:
        """Count a response time, in ms."""
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
        """The counter of the key."""
        item = self._stats_item_table.get(stats_key)
        return item if item is not None else self._added(StatsItem(self.stats_name, stats_key, self._log))

    def get_and_create_rt_stats_item(self, stats_key: str) -> StatsItem:
        """The counter of the key, as one of response times."""
        item = self._stats_item_table.get(stats_key)
        return item if item is not None else self._added(RTStatsItem(self.stats_name, stats_key, self._log))

    def _added(self, item: StatsItem) -> StatsItem:
        """The key's counter, this one if it is new. Beyond MAX_KEYS it is not kept."""
        # Differs: there is a greatest number of keys; the original counts for each name that it ever hears
        if len(self._stats_item_table) >= MAX_KEYS:
            return item
        return self._stats_item_table.setdefault(item.stats_key, item)

    def get_stats_data_in_minute(self, stats_key: str) -> StatsSnapshot:
        """The last minute of a key; zeros when it is unknown."""
        item = self._stats_item_table.get(stats_key)
        return item.get_stats_data_in_minute() if item else StatsSnapshot()

    def get_stats_data_in_hour(self, stats_key: str) -> StatsSnapshot:
        """The last hour of a key; zeros when it is unknown."""
        item = self._stats_item_table.get(stats_key)
        return item.get_stats_data_in_hour() if item else StatsSnapshot()

    def get_stats_data_in_day(self, stats_key: str) -> StatsSnapshot:
        """The last day of a key; zeros when it is unknown."""
        item = self._stats_item_table.get(stats_key)
        return item.get_stats_data_in_day() if item else StatsSnapshot()

    def get_stats_item(self, stats_key: str) -> StatsItem | None:
        """The counter of the key, or None."""
        return self._stats_item_table.get(stats_key)

    def items(self) -> list[StatsItem]:
        """All counters, as they are at the call."""
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


def _until(time_ms: int) -> int:
    return max(0, time_ms - util_all.current_time_millis())
