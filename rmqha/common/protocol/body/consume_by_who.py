"""Which groups consumed a message."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class ConsumeByWho:
    """Which groups consumed a message, which did not. Unused by 4.9's servers.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeByWho (4.9.8)
    """

    consumedGroup: set[str] = field(default_factory=set)
    notConsumedGroup: set[str] = field(default_factory=set)
    topic: str | None = None
    queueId: int = 0
    offset: int = 0
