"""Offsets of groups that do not run, as resetOffsetByTime and skipAccumulatedMessage print them."""
from collections.abc import Iterator

from rmqha.common.admin.stats_tables import RollbackStats
from rmqha.tools.command.output import Part, Table

QUEUES = Table("%-20.32s  %-20d  %-20d  %-20d  %-20d  %-20d\n", {
    "brokerName": "#brokerName", "queueId": "#queueId", "brokerOffset": "#brokerOffset",
    "consumerOffset": "#consumerOffset", "timestampOffset": "#timestampOffset", "rollbackOffset": "#rollbackOffset"})


def rolled_back(stats: list[RollbackStats]) -> Iterator[Part]:
    """The queues with their offsets before and after.

    Java: org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand#resetOffset (4.9.8)
    """
    # Differs: queues stand sorted, where Java's stand as its hash table has them
    yield QUEUES.heading()
    for each in sorted(stats, key=lambda one: (one.brokerName, one.queueId)):
        yield QUEUES.row(each.brokerName, each.queueId, each.brokerOffset, each.consumerOffset, each.timestampOffset,
                         each.rollbackOffset)
