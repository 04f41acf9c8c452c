"""A group's offsets as its clients see them."""
from dataclasses import dataclass, field

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class GetConsumerStatusBody:
    """One client's queues, or those of all clients by client id.

    Java: org.apache.rocketmq.common.protocol.body.GetConsumerStatusBody (4.9.8)
    """

    messageQueueTable: dict[MessageQueue, int] = field(default_factory=dict)
    consumerTable: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
