"""The progress of all groups of a broker."""
from dataclasses import dataclass, field

from rmqha.common.admin.consume_stats import ConsumeStats


@dataclass(slots=True)
class ConsumeStatsList:
    """Per group a list of ConsumeStats (answer of GET_BROKER_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.body.ConsumeStatsList (4.9.8)
    """

    consumeStatsList: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    brokerAddr: str | None = None
    totalDiff: int = 0
