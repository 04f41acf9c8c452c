"""What happened to a consumer group."""
from enum import Enum


class ConsumerGroupEvent(Enum):
    """CHANGE: members or topics changed. REGISTER, UNREGISTER: the group came, went.

    Java: org.apache.rocketmq.broker.client.ConsumerGroupEvent (4.9.8)
    """

    CHANGE = 0
    UNREGISTER = 1
    REGISTER = 2
