"""What an orderly listener may say beyond its status."""
from dataclasses import dataclass

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """The queue, whether SUCCESS moves the offset on (`auto_commit`), and for how long (ms) a suspended queue waits.

    `suspend_current_queue_time_millis`: -1 for the consumer's setting; 10 ms to 30 s.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext (4.9.8)
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_millis: int = -1
