"""Which brokers answered late, and until when they are left out."""
from dataclasses import dataclass

from rmqha.client.common.thread_local_index import ThreadLocalIndex
from rmqha.common import util_all


@dataclass
class FaultItem:
    """A broker's last latency (ms) and the monotonic time (ms) from which it may be used again.

    Java: org.apache.rocketmq.client.latency.LatencyFaultToleranceImpl$FaultItem (4.9.8)
    """

    name: str
    current_latency: int
    start_timestamp: int

    def is_available(self) -> bool:
        """Whether the broker may be used."""
        return util_all.monotonic_millis() >= self.start_timestamp


class LatencyFaultToleranceImpl:
    """Broker name -> FaultItem. Items are replaced as a whole, so readers need no guard.

    Java: org.apache.rocketmq.client.latency.LatencyFaultToleranceImpl (4.9.8)
    """

    def __init__(self) -> None:
        self._fault_item_table: dict[str, FaultItem] = {}
        self._which_item_worst = ThreadLocalIndex()

    def update_fault_item(self, name: str, current_latency: int, not_available_duration: int) -> None:
        """A broker answered after `current_latency` ms; leave it out for `not_available_duration` ms."""
        start_timestamp = util_all.monotonic_millis() + not_available_duration
        self._fault_item_table[name] = FaultItem(name, current_latency, start_timestamp)

    def is_available(self, name: str) -> bool:
        """Whether a broker may be used; unknown ones may."""
        item = self._fault_item_table.get(name)
        return item is None or item.is_available()

    def remove(self, name: str | None) -> None:
        """Forget a broker."""
        if name is not None:
            self._fault_item_table.pop(name, None)

    def pick_one_at_least(self) -> str | None:
        """One of the better half of those that were late, in turns; None when none was."""
        items = sorted(list(self._fault_item_table.values()),
                       key=lambda item: (not item.is_available(), item.current_latency, item.start_timestamp))
        if not items:
            return None
        half = len(items) // 2
        return items[self._which_item_worst.increment_and_get() % half if half else 0].name
