"""A queue's range."""
from dataclasses import dataclass


@dataclass(slots=True)
class TopicOffset:
    """First and next offset, and the store time in ms of the last message.

    Java: org.apache.rocketmq.common.admin.TopicOffset (4.9.8)
    """

    minOffset: int = 0
    maxOffset: int = 0
    lastUpdateTimestamp: int = 0
