"""A group's place in a queue."""
from dataclasses import dataclass


@dataclass(slots=True)
class OffsetWrapper:
    """The queue's end, the group's offset, and the store time in ms of the last consumed message.

    Java: org.apache.rocketmq.common.admin.OffsetWrapper (4.9.8)
    """

    brokerOffset: int = 0
    consumerOffset: int = 0
    lastTimestamp: int = 0
