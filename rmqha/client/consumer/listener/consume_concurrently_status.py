"""What a listener says about its messages."""
from enum import Enum


class ConsumeConcurrentlyStatus(Enum):
    """Done, or again later (the broker delivers the message once more after a delay, at most 16 times by default).

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus (4.9.8)
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
