"""One statistic of a broker."""
from dataclasses import dataclass

from rmqha.common.protocol.body.broker_stats_item import BrokerStatsItem


@dataclass(slots=True)
class BrokerStatsData:
    """The last minute, hour and day (answer of VIEW_BROKER_STATS_DATA).

    Java: org.apache.rocketmq.common.protocol.body.BrokerStatsData (4.9.8)
    """

    statsMinute: BrokerStatsItem | None = None
    statsHour: BrokerStatsItem | None = None
    statsDay: BrokerStatsItem | None = None
