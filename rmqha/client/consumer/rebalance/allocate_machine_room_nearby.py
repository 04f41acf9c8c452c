"""Queues to the clients in the same machine room."""
from typing import Protocol

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueStrategy
from rmqha.client.consumer.rebalance.allocate_message_queue_averagely import AbstractAllocateMessageQueueStrategy
from rmqha.common.message.message_queue import MessageQueue


class MachineRoomResolver(Protocol):
    """Knows where brokers and clients stand. Must not give None or an empty name.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby$MachineRoomResolver (4.9.8)
    """

    def broker_deploy_in(self, message_queue: MessageQueue) -> str:
        """The machine room of a queue's broker."""

    def consumer_deploy_in(self, client_id: str) -> str:
        """The machine room of a client."""


class AllocateMachineRoomNearby(AbstractAllocateMessageQueueStrategy):
    """Another strategy per machine room; queues of rooms without clients are shared by all clients.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby (4.9.8)
    """

    def __init__(
        self, allocate_message_queue_strategy: AllocateMessageQueueStrategy, machine_room_resolver: MachineRoomResolver
    ) -> None:
        self._strategy = allocate_message_queue_strategy
        self._resolver = machine_room_resolver

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        if not self.check(consumer_group, current_cid, mq_all, cid_all):
            return []
        queues: dict[str, list[MessageQueue]] = {}
        for queue in mq_all:
            room = self._resolver.broker_deploy_in(queue)
            if not room:
                raise ValueError(f"Machine room is null for mq {queue}")
            queues.setdefault(room, []).append(queue)
        clients: dict[str, list[str]] = {}
        for cid in cid_all:
            room = self._resolver.consumer_deploy_in(cid)
            if not room:
                raise ValueError(f"Machine room is null for consumer id {cid}")
            clients.setdefault(room, []).append(cid)
        own_room = self._resolver.consumer_deploy_in(current_cid)
        share = []
        if own_room in queues:
            share += self._strategy.allocate(consumer_group, current_cid, queues.pop(own_room), clients[own_room])
        for room in sorted(queues):
            if room not in clients:
                share += self._strategy.allocate(consumer_group, current_cid, queues[room], cid_all)
        return share

    def get_name(self) -> str:
        return "MACHINE_ROOM_NEARBY-" + self._strategy.get_name()
