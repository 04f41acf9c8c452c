"""A group's progress."""
from dataclasses import dataclass, field

from rmqha.common.admin.offset_wrapper import OffsetWrapper
from rmqha.common.message.message_queue import MessageQueue


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
