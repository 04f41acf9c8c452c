"""Statistics about how fast consumers pull and consume."""
import logging

from rmqha.common.protocol.client_bodies import ConsumeStatus
from rmqha.common.stats import StatsItemSet, StatsSnapshot
from rmqha.common.threads import ScheduledService

log = logging.getLogger("RocketmqClient")


class ConsumerStatsManager:
    """Counters by `topic@group`: pulls, consumed and failed messages, and their times (ms).

    Java: org.apache.rocketmq.client.stat.ConsumerStatsManager (4.9.8)
    """

    def __init__(self) -> None:
        self._consume_ok_tps = StatsItemSet("CONSUME_OK_TPS", log)
        self._consume_rt = StatsItemSet("CONSUME_RT", log)
        self._consume_failed_tps = StatsItemSet("CONSUME_FAILED_TPS", log)
        self._pull_tps = StatsItemSet("PULL_TPS", log)
        self._pull_rt = StatsItemSet("PULL_RT", log)

    def start(self, scheduler: ScheduledService) -> None:
        """Start taking samples on a scheduler's thread."""
        for items in (self._consume_ok_tps, self._consume_rt, self._consume_failed_tps, self._pull_tps, self._pull_rt):
            items.init(scheduler)

    def inc_pull_rt(self, group: str, topic: str, rt_ms: int) -> None:
        """Count the time of a pull."""
        self._pull_rt.add_rt_value(f"{topic}@{group}", rt_ms, 1)

    def inc_pull_tps(self, group: str, topic: str, msgs: int) -> None:
        """Count the messages of a pull."""
        self._pull_tps.add_value(f"{topic}@{group}", msgs, 1)

    def inc_consume_rt(self, group: str, topic: str, rt_ms: int) -> None:
        """Count the time of a listener's call."""
        self._consume_rt.add_rt_value(f"{topic}@{group}", rt_ms, 1)

    def inc_consume_ok_tps(self, group: str, topic: str, msgs: int) -> None:
        """Count consumed messages."""
        self._consume_ok_tps.add_value(f"{topic}@{group}", msgs, 1)

    def inc_consume_failed_tps(self, group: str, topic: str, msgs: int) -> None:
        """Count failed messages."""
        self._consume_failed_tps.add_value(f"{topic}@{group}", msgs, 1)

    def consume_status(self, group: str, topic: str) -> ConsumeStatus:
        """Return the statistics of a topic over the last minute (failed messages: the last hour)."""
        key = f"{topic}@{group}"
        return ConsumeStatus(
            pullRT=self._pull_rt.get_stats_data_in_minute(key).avgpt,
            pullTPS=self._pull_tps.get_stats_data_in_minute(key).tps,
            consumeRT=self._get_consume_rt(key).avgpt,
            consumeOKTPS=self._consume_ok_tps.get_stats_data_in_minute(key).tps,
            consumeFailedTPS=self._consume_failed_tps.get_stats_data_in_minute(key).tps,
            consumeFailedMsgs=self._consume_failed_tps.get_stats_data_in_hour(key).sum,
        )

    def _get_consume_rt(self, key: str) -> StatsSnapshot:
        minute = self._consume_rt.get_stats_data_in_minute(key)
        return minute if minute.sum else self._consume_rt.get_stats_data_in_hour(key)
