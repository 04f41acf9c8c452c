"""What every consumer is told."""
from rmqha.client.client_config import ClientConfig
from rmqha.client.common.lifecycle import Lifecycle
from rmqha.client.consumer.allocate_message_queue_strategy import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
)
from rmqha.common.subscriptions import MessageModel


class ConsumerFacade(Lifecycle, ClientConfig):
    """Base of the three consumers: their group, and how it shares messages and queues. Set before `start`."""

    def __init__(self, consumer_group: str, namesrv_addr: str | None, namespace: str | None) -> None:
        super().__init__()
        if namesrv_addr is not None:
            self.namesrv_addr = namesrv_addr
        self.namespace = namespace
        self.consumer_group = consumer_group
        self.message_model = MessageModel.CLUSTERING
        self.allocate_message_queue_strategy: AllocateMessageQueueStrategy = AllocateMessageQueueAveragely()
