"""All momentary values of one name, by key."""
import logging
from collections.abc import Callable

from rmqha.common import util_all
from rmqha.common.scheduled_service import ScheduledService

MAX_KEYS = 100_000  # of one name; values of further keys are lost
_PRINT_INTERVAL_MS = 5 * 60 * 1000


class MomentStatsItem:
    """The last value set, logged every 5 minutes.

    Java: org.apache.rocketmq.common.stats.MomentStatsItem (4.9.8)
    """

    __slots__ = ("value", "stats_name", "stats_key", "_log")

    def __init__(self, stats_name: str, stats_key: str, log: logging.Logger) -> None:
        self.value = 0  # plain stores and loads from any thread
        self.stats_name = stats_name
        self.stats_key = stats_key
        self._log = log

    def print_at_minutes(self) -> None:
        """Log the value."""
        self._log.info("[%s] [%s] Stats Every 5 Minutes, Value: %d", self.stats_name, self.stats_key, self.value)


class MomentStatsItemSet:
    """Momentary values of one name by key.

    Java: org.apache.rocketmq.common.stats.MomentStatsItemSet (4.9.8)
    """

    def __init__(self, stats_name: str, log: logging.Logger) -> None:
        self.stats_name = stats_name
        self.stats_item_table: dict[str, MomentStatsItem] = {}  # single dict operations only; iterated over a copy
        self._log = log

    def init(self, scheduler: ScheduledService) -> None:
        """Schedule the log lines."""
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
        """The value's holder."""
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
