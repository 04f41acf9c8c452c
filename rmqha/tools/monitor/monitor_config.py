"""What a monitor is told."""
from dataclasses import dataclass


@dataclass(slots=True)
class MonitorConfig:
    """The name servers, and the time between two rounds in ms.

    Java: org.apache.rocketmq.tools.monitor.MonitorConfig (4.9.8)
    """

    namesrvAddr: str | None = None
    roundInterval: int = 60_000
