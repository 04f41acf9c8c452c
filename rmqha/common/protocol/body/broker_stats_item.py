"""One window of a statistic."""
from dataclasses import dataclass


@dataclass(slots=True)
class BrokerStatsItem:
    """Sum of the window, per second, and per call.

    Java: org.apache.rocketmq.common.protocol.body.BrokerStatsItem (4.9.8)
    """

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0
