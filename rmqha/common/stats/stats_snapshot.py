"""What a window of a counter says."""
from dataclasses import dataclass


@dataclass(slots=True)
class StatsSnapshot:
    """Sum, sum per second, calls, and sum per call over one window.

    Java: org.apache.rocketmq.common.stats.StatsSnapshot (4.9.8)
    """

    sum: int = 0
    tps: float = 0.0
    times: int = 0
    avgpt: float = 0.0
