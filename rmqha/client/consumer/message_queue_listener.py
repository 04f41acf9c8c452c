"""The interfaces of those who want to know which queues are theirs, and which a topic has."""
from rmqha.common.message.message import MessageQueue


class MessageQueueListener:
    """Told, on the rebalance thread, when a consumer's share of a topic changed.

    Java: org.apache.rocketmq.client.consumer.MessageQueueListener (4.9.8)
    """

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """`mq_all`: the topic's queues; `mq_divided`: those of this consumer now. Names as brokers know them."""
        raise NotImplementedError


class TopicMessageQueueChangeListener:
    """Told when the queues of a topic are others than before.

    Java: org.apache.rocketmq.client.consumer.TopicMessageQueueChangeListener (4.9.8)
    """

    def on_changed(self, topic: str, message_queues: set[MessageQueue]) -> None:
        """`message_queues`: all that the topic has now."""
        raise NotImplementedError
