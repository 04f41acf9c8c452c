"""One queue of a topic on one broker."""
from dataclasses import dataclass

from rmqha.common.later import LATER


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """Topic, broker and queue number: hashable, ordered in this order. Field names are the JSON's.

    Java: org.apache.rocketmq.common.message.MessageQueue (4.9.8)
    """

    topic: str = LATER
    brokerName: str = LATER
    queueId: int = 0

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.brokerName}, queueId={self.queueId}]"


@dataclass(frozen=True, order=True, slots=True)
class MessageQueueForC:
    """A queue with an offset, the form for clients in C++.

    Java: org.apache.rocketmq.common.message.MessageQueueForC (4.9.8)
    """

    topic: str = LATER
    brokerName: str = LATER
    queueId: int = 0
    offset: int = 0
