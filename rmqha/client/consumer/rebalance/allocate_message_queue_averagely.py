"""Neighbouring queues to each consumer, as evenly as can be."""
import logging

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueStrategy
from rmqha.common.message.message_queue import MessageQueue

log = logging.getLogger("RocketmqClient")


class AbstractAllocateMessageQueueStrategy(AllocateMessageQueueStrategy):
    """The checks that all strategies share.

    Java: org.apache.rocketmq.client.consumer.rebalance.AbstractAllocateMessageQueueStrategy (4.9.8)
    """

    def check(self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]) -> bool:
        """False when this client is not (yet) in the group's list; ValueError for empty arguments."""
        if not current_cid:
            raise ValueError("currentCID is empty")
        if not mq_all:
            raise ValueError("mqAll is null or mqAll empty")
        if not cid_all:
            raise ValueError("cidAll is null or cidAll empty")
        if current_cid not in cid_all:
            log.info("[BUG] ConsumerGroup: %s The consumerId: %s not in cidAll: %s",
                     consumer_group, current_cid, cid_all)
            return False
        return True


class AllocateMessageQueueAveragely(AbstractAllocateMessageQueueStrategy):
    """A run of neighbouring queues per client; the first `queues % clients` clients get one more.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely (4.9.8)
    """

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        if not self.check(consumer_group, current_cid, mq_all, cid_all):
            return []
        index = cid_all.index(current_cid)
        size, remainder = divmod(len(mq_all), len(cid_all))
        start = index * size + min(index, remainder)
        return mq_all[start:start + size + (index < remainder)]

    def get_name(self) -> str:
        return "AVG"
