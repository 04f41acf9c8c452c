"""The interface of those who want to know which queues a topic has."""
from rmqha.common.message.message_queue import MessageQueue


class TopicMessageQueueChangeListener:
    """Told when the queues of a topic are others than before.

    Java: org.apache.rocketmq.client.consumer.TopicMessageQueueChangeListener (4.9.8)
    """

    def on_changed(self, topic: str, message_queues: set[MessageQueue]) -> None:
        """`message_queues`: all that the topic has now."""
        raise NotImplementedError
