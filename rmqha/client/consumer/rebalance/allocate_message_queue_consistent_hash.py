"""Queues to clients by consistent hashing: when a client comes or goes, few queues change hands."""
from rmqha.client.consumer.rebalance.allocate_message_queue_averagely import AbstractAllocateMessageQueueStrategy
from rmqha.common.consistenthash.consistent_hash_router import ConsistentHashRouter, HashFunction, md5_hash
from rmqha.common.message.message_queue import MessageQueue


class AllocateMessageQueueConsistentHash(AbstractAllocateMessageQueueStrategy):
    """Each client has `virtual_node_count` places on a ring; a queue goes to the next place behind its own.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash (4.9.8)
    """

    def __init__(self, virtual_node_count: int = 10, hash_function: HashFunction = md5_hash) -> None:
        if virtual_node_count < 0:
            raise ValueError(f"illegal virtualNodeCnt :{virtual_node_count}")
        self._virtual_node_count = virtual_node_count
        self._hash_function = hash_function

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        if not self.check(consumer_group, current_cid, mq_all, cid_all):
            return []
        router = ConsistentHashRouter(cid_all, self._virtual_node_count, self._hash_function)
        return [queue for queue in mq_all if router.route_node(_text(queue)) == current_cid]

    def get_name(self) -> str:
        return "CONSISTENT_HASH"


def _text(queue: MessageQueue) -> str:
    """What is hashed: the same in every language, or two clients would take one queue."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.brokerName}, queueId={queue.queueId}]"
