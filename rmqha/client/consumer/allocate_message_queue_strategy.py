"""Strategies that divide a topic's queues among the consumers of a group: the interface and its implementations."""
import logging
from typing import Protocol

from rmqha.common.consistent_hash_router import ConsistentHashRouter, HashFunction, md5_hash
from rmqha.common.message.message import MessageQueue


class AllocateMessageQueueStrategy:
    """Decides which queues of a topic one consumer of a group takes.

    Each consumer computes its own share, so all of them must arrive at the same division.

    Java: org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy (4.9.8)
    """

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        """Return the queues of `mq_all` (sorted) for client `current_cid` among `cid_all` (sorted)."""
        raise NotImplementedError

    def get_name(self) -> str:
        """Return a short name for log lines."""
        raise NotImplementedError


log = logging.getLogger("RocketmqClient")


class AbstractAllocateMessageQueueStrategy(AllocateMessageQueueStrategy):
    """The checks that all strategies share.

    Java: org.apache.rocketmq.client.consumer.rebalance.AbstractAllocateMessageQueueStrategy (4.9.8)
    """

    def check(self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]) -> bool:
        """Return False if this client is not (yet) in the group's list; ValueError for empty arguments."""
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
    """Gives each client a run of adjacent queues; the first `queues % clients` clients get one more.

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


class AllocateMessageQueueAveragelyByCircle(AbstractAllocateMessageQueueStrategy):
    """Gives client i of n the queues i, i + n, i + 2n, ...

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


class AllocateMessageQueueByConfig(AbstractAllocateMessageQueueStrategy):
    """Always returns `message_queue_list`, regardless of the other clients.

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


class AllocateMessageQueueByMachineRoom(AbstractAllocateMessageQueueStrategy):
    """Divides the queues of brokers named `room@name` whose room is in `consumeridcs`.

    Each client gets the same number of queues; the remaining ones go to the first clients, one each.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom (4.9.8)
    """

    def __init__(self, consumeridcs: set[str]) -> None:
        self.consumeridcs = consumeridcs

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        if not self.check(consumer_group, current_cid, mq_all, cid_all):
            return []
        queues = [queue for queue in mq_all if self._room_of(queue.brokerName or "") in self.consumeridcs]
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


class MachineRoomResolver(Protocol):
    """Maps brokers and clients to machine rooms. It must not return None or an empty name.

    Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby$MachineRoomResolver (4.9.8)
    """

    def broker_deploy_in(self, message_queue: MessageQueue) -> str:
        """Return the machine room of a queue's broker."""

    def consumer_deploy_in(self, client_id: str) -> str:
        """Return the machine room of a client."""


class AllocateMachineRoomNearby(AbstractAllocateMessageQueueStrategy):
    """Applies another strategy within each machine room. Queues in rooms without clients are shared by all clients.

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


class AllocateMessageQueueConsistentHash(AbstractAllocateMessageQueueStrategy):
    """Places each client at `virtual_node_count` points on a hash ring; a queue goes to the next point on the ring.

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
    """Return the text to hash. It is the same in every language; otherwise two clients would take the same queue."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.brokerName}, queueId={queue.queueId}]"
