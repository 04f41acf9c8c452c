"""The queues that somebody named."""
from rmqha.client.consumer.rebalance.allocate_message_queue_averagely import AbstractAllocateMessageQueueStrategy
from rmqha.common.message.message_queue import MessageQueue


class AllocateMessageQueueByConfig(AbstractAllocateMessageQueueStrategy):
    """Always `message_queue_list`, whatever the other clients have.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig (4.9.8)
    """

    def __init__(self, message_queue_list: list[MessageQueue]) -> None:
        self.message_queue_list = message_queue_list

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        return self.message_queue_list

    def get_name(self) -> str:
        return "CONFIG"
