"""The topics that administrators have changed at the name server alone, as their brokers registered them."""
from collections.abc import Container, Iterable

from rmqha.common.protocol.topic_route_data import QueueData
from rmqha.namesrv.routeinfo.registration_limits import MAX_TOPICS_OF_BROKER


class ChangedHere:
    """By broker name and topic, what stood in the table before; guarded by the table's lock.

    With it, changes of a broker give the table that all its topics give.
    """

    def __init__(self) -> None:
        self._registered: dict[str, dict[str, QueueData]] = {}
        self._gone: dict[str, set[str]] = {}  # topics in the table that the broker has no more

    def note(self, broker_name: str, topic: str, queue_data: QueueData) -> bool:
        """An administrator changes what was registered so, or has changed it before; False when these are too many."""
        if topic in self._gone.get(broker_name, ()):
            return True
        topics = self._registered.setdefault(broker_name, {})
        topics.setdefault(topic, queue_data)
        return len(topics) <= MAX_TOPICS_OF_BROKER

    def of(self, broker_name: str) -> list[tuple[str, QueueData]]:
        """The broker's topics that were changed here, as it registered them."""
        return list(self._registered.get(broker_name, {}).items())

    def is_other(self, broker_name: str, topic: str, queue_data: QueueData) -> bool:
        """Whether the broker has another topic than the one that was changed here; also when none was."""
        return self._registered.get(broker_name, {}).get(topic) != queue_data

    def forget(self, broker_name: str) -> None:
        """All its topics are as it registered them."""
        self._registered.pop(broker_name, None)

    def forget_broker(self, broker_name: str) -> None:
        """It is gone, and its topics."""
        self.forget(broker_name)
        self._gone.pop(broker_name, None)

    def forget_topic(self, broker_name: str, topic: str) -> None:
        """This topic is as the broker registers it."""
        gone = self._gone.get(broker_name)
        if gone is not None:
            gone.discard(topic)
        topics = self._registered.get(broker_name)
        if topics is not None and topics.pop(topic, None) is not None and not topics:
            del self._registered[broker_name]

    def forget_all_but(self, broker_name: str, topics: Container[str], in_table: Iterable[str]) -> None:
        """The broker has these topics only; what else the table has of it stays as it is."""
        for topic, _queue_data in self.of(broker_name):
            if topic not in topics:
                self.forget_topic(broker_name, topic)
        gone = {topic for topic in in_table if topic not in topics}  # last: `forget_topic` takes a topic out of it
        if gone:
            self._gone[broker_name] = gone
        else:
            self._gone.pop(broker_name, None)
