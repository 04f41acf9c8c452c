"""A consumer asked for an offset that a queue does not have."""
from dataclasses import dataclass

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class OffsetMovedEvent:
    """Body of the messages in OFFSET_MOVED_EVENT.

    Java: org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent (4.9.8)
    """

    consumerGroup: str | None = None
    messageQueue: MessageQueue | None = None
    offsetRequest: int = 0
    offsetNew: int = 0
