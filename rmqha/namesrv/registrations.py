"""Limits of the route table: per name, per registration, per connection, and in total.

Also the topics that administrators have changed at the name server only, as their brokers registered them.
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
# Combinations of cluster, name, id and address that one connection may register; a broker has one.
MAX_PLACES_OF_CHANNEL = 1000
MAX_TOPICS_OF_BROKER = 100_000
MAX_QUEUE_DATAS = 2_000_000  # topics of all brokers
MAX_FILTER_SERVERS = 100


class RegistrationError(RemotingCommandException):
    """A registration that is invalid or exceeds a limit; the tables are unchanged."""


class RegistrationLimits:
    """Counts registrations and topics, and checks the limits. Guarded by its owner's lock."""

    # Differs: the brokers, clusters and topics of a name server are limited in number and length of names; the original
    # accepts any number, with names of any length, from any client
    def __init__(self) -> None:
        self._places: dict[int, tuple[Channel, set[tuple[str, str, int, str]]]] = {}  # by id of the channel
        self._topics: dict[str, set[str]] = {}  # by broker name
        self._count = 0  # of the topics of all brokers

    def take_place(self, channel: "Channel | None", place: tuple[str, str, int, str]) -> None:
        """Count a registration under (cluster, name, id, address).

        Raises RegistrationError when its connection has too many.
        """
        if channel is None:
            return
        _channel, places = self._places.setdefault(id(channel), (channel, set()))
        if place not in places and len(places) >= MAX_PLACES_OF_CHANNEL:
            raise RegistrationError(f"one connection may register at most {MAX_PLACES_OF_CHANNEL} brokers")
        places.add(place)

    def channel_gone(self, channel: "Channel | None") -> set[str]:
        """Forget a closed connection, and return the addresses that registered through it."""
        _channel, places = self._places.pop(id(channel), (None, set()))
        return {addr for _cluster, _name, _broker_id, addr in places}

    def check_topics(self, broker_name: str, table: "dict[str, TopicConfig]", put_back: Iterable[str] = ()) -> None:
        """Check the number and the names of these topics of a broker. Raises RegistrationError.

        `put_back`: topics that are restored together with them.
        """
        known = self._topics.get(broker_name, set())
        names = {config.topicName for config in table.values()}.union(put_back)
        longest = max(map(len, names), default=0)
        if longest > MAX_NAME_LENGTH:
            raise RegistrationError(f"the name of a topic of {broker_name} is too long: {longest} characters")
        new = len(names - known)
        if new and (len(known) + new > MAX_TOPICS_OF_BROKER or self._count + new > MAX_QUEUE_DATAS):
            raise RegistrationError(f"too many topics: {broker_name} has {len(known) + new}, all brokers together have "
                                    f"{self._count + new}")

    def topic_added(self, broker_name: str, topic: str) -> None:
        """Count a topic of a broker."""
        topics = self._topics.setdefault(broker_name, set())
        if topic not in topics:
            topics.add(topic)
            self._count += 1

    def topic_removed(self, broker_name: str, topic: str) -> None:
        """Remove a topic of a broker from the count."""
        topics = self._topics.get(broker_name, set())
        if topic in topics:
            topics.discard(topic)
            self._count -= 1
            if not topics:
                del self._topics[broker_name]

    def topics_of(self, broker_name: str) -> list[str]:
        """Return the topics of a broker."""
        return list(self._topics.get(broker_name, ()))


def check_names(*names: str | None) -> None:
    """Check the length of names. Raises RegistrationError."""
    problem = too_long(*names)
    if problem is not None:
        raise RegistrationError(problem)


class ChangedHere:
    """The registered values of topics that administrators changed here, by broker name and topic.

    A broker of ours sends only its changes. Applied to the registered values, they give the same table as a
    registration of all topics. Guarded by the table's lock.
    """

    def __init__(self) -> None:
        self._registered: dict[str, dict[str, QueueData]] = {}
        # Topics in the table that the broker no longer has.
        self._gone: dict[str, set[str]] = {}

    def note(self, broker_name: str, topic: str, queue_data: QueueData) -> bool:
        """Note the registered value of a topic before its first change here; return False if there are too many."""
        if topic in self._gone.get(broker_name, ()):
            return True
        topics = self._registered.setdefault(broker_name, {})
        topics.setdefault(topic, queue_data)
        return len(topics) <= MAX_TOPICS_OF_BROKER

    def of(self, broker_name: str) -> list[tuple[str, QueueData]]:
        """Return the broker's topics that were changed here, as it registered them."""
        return list(self._registered.get(broker_name, {}).items())

    def is_other(self, broker_name: str, topic: str, queue_data: QueueData) -> bool:
        """Return whether the broker's topic differs from the registered value; True also if it was not changed here."""
        return self._registered.get(broker_name, {}).get(topic) != queue_data

    def forget(self, broker_name: str) -> None:
        """Forget the broker's changes: all its topics are as it registered them."""
        self._registered.pop(broker_name, None)

    def forget_broker(self, broker_name: str) -> None:
        """Forget a broker that was removed with its topics."""
        self.forget(broker_name)
        self._gone.pop(broker_name, None)

    def forget_topic(self, broker_name: str, topic: str) -> None:
        """Forget the change of a topic: it is as the broker registers it."""
        gone = self._gone.get(broker_name)
        if gone is not None:
            gone.discard(topic)
        topics = self._registered.get(broker_name)
        if topics is not None and topics.pop(topic, None) is not None and not topics:
            del self._registered[broker_name]

    def forget_all_but(self, broker_name: str, topics: Container[str], in_table: Iterable[str]) -> None:
        """Forget the changes of all topics except these, the only ones of the broker; the table is not changed."""
        for topic, _queue_data in self.of(broker_name):
            if topic not in topics:
                self.forget_topic(broker_name, topic)
        # After the loop, because `forget_topic` removes topics from `_gone`.
        gone = {topic for topic in in_table if topic not in topics}
        if gone:
            self._gone[broker_name] = gone
        else:
            self._gone.pop(broker_name, None)
