"""The queues dealt out one by one."""
from rmqha.client.consumer.rebalance.allocate_message_queue_averagely import AbstractAllocateMessageQueueStrategy
from rmqha.common.message.message_queue import MessageQueue


class AllocateMessageQueueAveragelyByCircle(AbstractAllocateMessageQueueStrategy):
    """Client i of n gets the queues i, i + n, i + 2n, ...

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle (4.9.8)
    """

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        if not self.check(consumer_group, current_cid, mq_all, cid_all):
            return []
        return mq_all[cid_all.index(current_cid)::len(cid_all)]

    def get_name(self) -> str:
        return "AVG_BY_CIRCLE"
