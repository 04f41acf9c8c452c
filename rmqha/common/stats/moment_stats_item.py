"""A value of the moment, not a sum."""
import logging


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
