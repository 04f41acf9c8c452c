"""Who gets which queues."""
from dataclasses import dataclass, field

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class RebalanceResult:
    """Queues by consumer.

    Java: org.apache.rocketmq.tools.command.topic.RebalanceResult (4.9.8)
    """

    result: dict[str, list[MessageQueue]] = field(default_factory=dict)
