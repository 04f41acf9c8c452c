"""Queues of some machine rooms only."""
from rmqha.client.consumer.rebalance.allocate_message_queue_averagely import AbstractAllocateMessageQueueStrategy
from rmqha.common.message.message_queue import MessageQueue


class AllocateMessageQueueByMachineRoom(AbstractAllocateMessageQueueStrategy):
    """Of brokers named `room@name` those whose room is in `consumeridcs`: evenly, what is left over to the first.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom (4.9.8)
    """

    def __init__(self, consumeridcs: set[str]) -> None:
        self.consumeridcs = consumeridcs

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        if not self.check(consumer_group, current_cid, mq_all, cid_all):
            return []
        queues = [queue for queue in mq_all if self._room_of(queue.brokerName) in self.consumeridcs]
        index, clients = cid_all.index(current_cid), len(cid_all)
        size, left_over = divmod(len(queues), clients)
        share = queues[index * size:(index + 1) * size]
        if index < left_over:
            share.append(queues[clients * size + index])
        return share

    @staticmethod
    def _room_of(broker_name: str) -> str | None:
        room, separator, name = broker_name.partition("@")
        return room if separator and name.rstrip("@") and "@" not in name.rstrip("@") else None

    def get_name(self) -> str:
        return "MACHINE_ROOM"
