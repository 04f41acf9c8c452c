"""One turn of the pull loop."""
from dataclasses import dataclass

from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True, eq=False)
class PullRequest:
    """Which queue to pull next for which group, and from where; it goes round between pull thread and callbacks.

    Java: org.apache.rocketmq.client.impl.consumer.PullRequest (4.9.8)
    """

    consumer_group: str
    message_queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False  # an orderly consumer has begun to pull

    def __str__(self) -> str:
        return (f"PullRequest [consumerGroup={self.consumer_group}, messageQueue={self.message_queue}, "
                f"nextOffset={self.next_offset}]")
