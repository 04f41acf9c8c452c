"""What a listener may say beyond its status."""
from dataclasses import dataclass

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """The queue that the messages came from, and how to go on with those that failed.

    `delay_level_when_next_consume`: -1 to the dead letters at once, 0 the broker chooses (3 + times consumed), above 0
    that delay level. `ack_index`: the last message of the list that succeeded; the ones behind it come again.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext (4.9.8)
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = 0x7FFFFFFF
