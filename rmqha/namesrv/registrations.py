"""How much the route table takes: of a name, of one registration, of one connection, of all.

The topics that administrators have changed at the name server alone, as their brokers registered them.
"""
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from rmqha.common.protocol.topic_route_data import QueueData
from rmqha.common.texts import MAX_NAME_LENGTH, too_long
from rmqha.remoting.exception import RemotingCommandException

if TYPE_CHECKING:
    from rmqha.common.topics import TopicConfig
    from rmqha.remoting.channel import Channel


MAX_BROKERS = 10_000  # addresses, and names
MAX_PLACES_OF_CHANNEL = 1000  # names, ids and clusters that one connection registers under; a broker has one
MAX_TOPICS_OF_BROKER = 100_000
MAX_QUEUE_DATAS = 2_000_000  # topics of all brokers
MAX_FILTER_SERVERS = 100


class RegistrationError(RemotingCommandException):
    """A registration that makes no sense, or is too much; the tables are as they were."""


class RegistrationLimits:
    """Counts what was taken. Guarded by its owner's lock."""

    # Differs: the original takes any number of brokers, clusters and topics of any length from whoever comes
    def __init__(self) -> None:
        self._places: dict[int, tuple[Channel, set[tuple[str, str, int, str]]]] = {}  # by id of the channel
        self._topics: dict[str, set[str]] = {}  # by broker name
        self._count = 0  # of the topics of all brokers

    def take_place(self, channel: "Channel | None", place: tuple[str, str, int, str]) -> None:
        """One registration under (cluster, name, id, address). RegistrationError when its connection has too many."""
        if channel is None:
            return
        _channel, places = self._places.setdefault(id(channel), (channel, set()))
        if place not in places and len(places) >= MAX_PLACES_OF_CHANNEL:
            raise RegistrationError(f"one connection registers {MAX_PLACES_OF_CHANNEL} brokers")
        places.add(place)

    def channel_gone(self, channel: "Channel | None") -> set[str]:
        """The connection is over; the addresses that registered through it."""
        _channel, places = self._places.pop(id(channel), (None, set()))
        return {addr for _cluster, _name, _broker_id, addr in places}

    def check_topics(self, broker_name: str, table: "dict[str, TopicConfig]", put_back: Iterable[str] = ()) -> None:
        """RegistrationError when these topics of a broker are too many, or have names that are too long.

        `put_back`: those that come back with them.
        """
        known = self._topics.get(broker_name, set())
        names = {config.topicName for config in table.values()}.union(put_back)
        longest = max(map(len, names), default=0)
        if longest > MAX_NAME_LENGTH:
            raise RegistrationError(f"a topic of {broker_name} has a name of {longest} characters")
        new = len(names - known)
        if new and (len(known) + new > MAX_TOPICS_OF_BROKER or self._count + new > MAX_QUEUE_DATAS):
            raise RegistrationError(f"{broker_name} has {len(known) + new} topics, all brokers have "
                                    f"{self._count + new}: that is too many")

    def topic_added(self, broker_name: str, topic: str) -> None:
        """A broker has a topic."""
        topics = self._topics.setdefault(broker_name, set())
        if topic not in topics:
            topics.add(topic)
            self._count += 1

    def topic_removed(self, broker_name: str, topic: str) -> None:
        """A broker's topic is deleted."""
        topics = self._topics.get(broker_name, set())
        if topic in topics:
            topics.discard(topic)
            self._count -= 1
            if not topics:
                del self._topics[broker_name]

    def topics_of(self, broker_name: str) -> list[str]:
        """The topics of a broker."""
        return list(self._topics.get(broker_name, ()))


def check_names(*names: str | None) -> None:
    """RegistrationError when one is too long."""
    problem = too_long(*names)
    if problem is not None:
        raise RegistrationError(problem)


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
