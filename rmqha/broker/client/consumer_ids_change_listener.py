"""Who wants to know of changes of consumer groups."""
from typing import Protocol

from rmqha.broker.client.consumer_group_event import ConsumerGroupEvent


class ConsumerIdsChangeListener(Protocol):
    """Told of each event; `args` hold the channels (CHANGE) or the subscriptions (REGISTER).

    Java: org.apache.rocketmq.broker.client.ConsumerIdsChangeListener (4.9.8)
    """

    def handle(self, event: ConsumerGroupEvent, group: str, *args: object) -> None:
        """The event happened."""
