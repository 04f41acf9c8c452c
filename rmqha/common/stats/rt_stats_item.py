"""A counter of response times."""
from rmqha.common.stats.stats_item import StatsItem
from rmqha.common.stats.stats_snapshot import StatsSnapshot


class RTStatsItem(StatsItem):
    """A counter whose value is a time: the log shows calls and the average.

    Java: org.apache.rocketmq.common.stats.RTStatsItem (4.9.8)
    """

    __slots__ = ()

    def stat_print_detail(self, snapshot: StatsSnapshot) -> str:
        return f"TIMES: {snapshot.times} AVGRT: {snapshot.avgpt:.2f}"
