"""Latency fault tolerance: a producer avoids brokers that answer slowly.

A broker that is overloaded, or whose disk is slow, still answers, but every send to it takes long. A producer that
takes its queues in turn would keep sending to it. With `send_latency_fault_enable` the producer measures the latency
of each try of a synchronous send, and avoids a slow broker for a time that depends only on its last latency: not at
all below 550 ms, 30 s from 550 ms, up to 10 minutes from 15 s (`latency_max` and `not_available_duration` of
`MQFaultStrategy`). A failed try counts as a latency of 30 s, so its broker is avoided for 10 minutes.

Each try replaces the broker's FaultItem, so a quick answer to a later try ends the penalty early. No thread polls the
brokers: an item expires when its time has passed, and the broker gets sends again.

The producer must be able to send even if every broker is slow. If no queue is on an available broker, the producer
picks one of the better half of the recorded brokers, in turns. It must not always pick the best one: that broker
would then get all the load. If the picked broker has no writable queues of the topic, it is forgotten, and the
producer takes the next queue in turn.

It is off by default, as in Java. Then a retry only avoids the broker that has just failed.
"""
from bisect import bisect_right

from rmqha.client.impl.client_routes import TopicPublishInfo
from rmqha.client.life import ThreadLocalIndex
from rmqha.common import util_all
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageQueue


@dataclass
class FaultItem:
    """A broker's last latency (ms) and the monotonic time (ms) from which it may be used again.

    Java: org.apache.rocketmq.client.latency.LatencyFaultToleranceImpl$FaultItem (4.9.8)
    """

    name: str
    current_latency: int
    start_timestamp: int

    def is_available(self) -> bool:
        """Return True if the broker may be used."""
        return util_all.monotonic_millis() >= self.start_timestamp


class LatencyFaultToleranceImpl:
    """A table of broker names and FaultItems. Items are replaced as a whole, so readers need no lock.

    Java: org.apache.rocketmq.client.latency.LatencyFaultToleranceImpl (4.9.8)
    """

    def __init__(self) -> None:
        self._fault_item_table: dict[str, FaultItem] = {}
        self._which_item_worst = ThreadLocalIndex()

    def update_fault_item(self, name: str, current_latency: int, not_available_duration: int) -> None:
        """Record that a broker answered after `current_latency` ms; avoid it for `not_available_duration` ms."""
        start_timestamp = util_all.monotonic_millis() + not_available_duration
        self._fault_item_table[name] = FaultItem(name, current_latency, start_timestamp)

    def is_available(self, name: str) -> bool:
        """Return True if a broker may be used; an unknown one may."""
        item = self._fault_item_table.get(name)
        return item is None or item.is_available()

    def remove(self, name: str | None) -> None:
        """Forget a broker."""
        if name is not None:
            self._fault_item_table.pop(name, None)

    def pick_one_at_least(self) -> str | None:
        """Return one of the better half of the recorded brokers, in turns; None if the table is empty."""
        items = sorted(list(self._fault_item_table.values()),
                       key=lambda item: (not item.is_available(), item.current_latency, item.start_timestamp))
        if not items:
            return None
        half = len(items) // 2
        return items[self._which_item_worst.increment_and_get() % half if half else 0].name


ISOLATION_LATENCY_MS = 30_000


class MQFaultStrategy:
    """The choice of a queue for each try of a send; the module's docstring explains the strategy.

    A broker whose latency was `latency_max[i]` ms or more is avoided for `not_available_duration[i]` ms.

    Java: org.apache.rocketmq.client.latency.MQFaultStrategy (4.9.8)
    """

    def __init__(self) -> None:
        self.latency_fault_tolerance = LatencyFaultToleranceImpl()
        self.send_latency_fault_enable = False
        self.latency_max = [50, 100, 550, 1000, 2000, 3000, 15000]
        self.not_available_duration = [0, 0, 30000, 60000, 120000, 180000, 600000]

    def select_one_message_queue(self, info: TopicPublishInfo, last_broker_name: str | None = None) -> MessageQueue:
        """Return the queue for the next try."""
        if not self.send_latency_fault_enable:
            return info.select_one_message_queue(last_broker_name)
        tolerance, queues = self.latency_fault_tolerance, info.message_queue_list
        index = info.send_which_queue.increment_and_get()
        for step in range(len(queues)):
            queue = queues[(index + step) % len(queues)]
            if tolerance.is_available(queue.brokerName):
                return queue
        broker_name = tolerance.pick_one_at_least()
        write_queue_nums = info.get_queue_id_by_broker(broker_name) if broker_name is not None else -1
        if broker_name is None or write_queue_nums <= 0:
            tolerance.remove(broker_name)
            return info.select_one_message_queue()
        topic = info.select_one_message_queue().topic
        return MessageQueue(topic, broker_name, info.send_which_queue.increment_and_get() % write_queue_nums)

    def update_fault_item(self, broker_name: str, current_latency: int, isolation: bool) -> None:
        """Record the latency (ms) of a try at a broker; with `isolation` the try failed."""
        if self.send_latency_fault_enable:
            duration = self._compute_not_available_duration(ISOLATION_LATENCY_MS if isolation else current_latency)
            self.latency_fault_tolerance.update_fault_item(broker_name, current_latency, duration)

    def _compute_not_available_duration(self, current_latency: int) -> int:
        index = bisect_right(self.latency_max, current_latency) - 1
        return self.not_available_duration[index] if index >= 0 else 0
