"""Bodies of statistics: a broker's counters, and the progress of its groups."""
from dataclasses import dataclass, field

from rmqha.common.admin.stats_tables import ConsumeStats
from rmqha.common.later import LATER


@dataclass(slots=True)
class BrokerStatsItem:
    """Sum of the window, per second, and per call.

    Java: org.apache.rocketmq.common.protocol.body.BrokerStatsItem (4.9.8)
    """

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStatsData:
    """The last minute, hour and day (answer of VIEW_BROKER_STATS_DATA).

    Java: org.apache.rocketmq.common.protocol.body.BrokerStatsData (4.9.8)
    """

    statsMinute: BrokerStatsItem = LATER
    statsHour: BrokerStatsItem = LATER
    statsDay: BrokerStatsItem = LATER


@dataclass(slots=True)
class ConsumeStatsList:
    """Per group a list of ConsumeStats (answer of GET_BROKER_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.body.ConsumeStatsList (4.9.8)
    """

    consumeStatsList: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    brokerAddr: str | None = None
    totalDiff: int = 0
