"""Places in queues: where a topic's queues begin and end, and how far a group has come."""
from dataclasses import dataclass, field

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class TopicOffset:
    """First and next offset, and the store time in ms of the last message.

    Java: org.apache.rocketmq.common.admin.TopicOffset (4.9.8)
    """

    minOffset: int = 0
    maxOffset: int = 0
    lastUpdateTimestamp: int = 0


@dataclass(slots=True)
class TopicStatsTable:
    """The answer of GET_TOPIC_STATS_INFO.

    Java: org.apache.rocketmq.common.admin.TopicStatsTable (4.9.8)
    """

    offsetTable: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


@dataclass(slots=True)
class OffsetWrapper:
    """The queue's end, the group's offset, and the store time in ms of the last consumed message.

    Java: org.apache.rocketmq.common.admin.OffsetWrapper (4.9.8)
    """

    brokerOffset: int = 0
    consumerOffset: int = 0
    lastTimestamp: int = 0


@dataclass(slots=True)
class ConsumeStats:
    """Places by queue, and messages per second (answer of GET_CONSUME_STATS).

    Java: org.apache.rocketmq.common.admin.ConsumeStats (4.9.8)
    """

    offsetTable: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consumeTps: float = 0.0

    def compute_total_diff(self) -> int:
        """How many messages the group is behind."""
        return sum(place.brokerOffset - place.consumerOffset for place in self.offsetTable.values())


@dataclass(slots=True)
class RollbackStats:
    """Offsets of a queue before and after.

    Java: org.apache.rocketmq.common.admin.RollbackStats (4.9.8)
    """

    brokerName: str | None = None
    queueId: int = 0
    brokerOffset: int = 0
    consumerOffset: int = 0
    timestampOffset: int = 0
    rollbackOffset: int = 0
