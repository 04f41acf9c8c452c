"""What happened to a consumer group, who wants to know, and who tells its consumers."""
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController


class ConsumerGroupEvent(Enum):
    """CHANGE: members or topics changed. REGISTER, UNREGISTER: the group came, went.

    Java: org.apache.rocketmq.broker.client.ConsumerGroupEvent (4.9.8)
    """

    CHANGE = 0
    UNREGISTER = 1
    REGISTER = 2


class ConsumerIdsChangeListener(Protocol):
    """Told of each event; `args` hold the channels (CHANGE) or the subscriptions (REGISTER).

    Java: org.apache.rocketmq.broker.client.ConsumerIdsChangeListener (4.9.8)
    """

    def handle(self, event: ConsumerGroupEvent, group: str, *args: object) -> None:
        """The event happened."""


class DefaultConsumerIdsChangeListener:
    """On CHANGE each member of the group is asked to rebalance; REGISTER and UNREGISTER feed the filters.

    Java: org.apache.rocketmq.broker.client.DefaultConsumerIdsChangeListener (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        self._broker_controller = broker_controller

    def handle(self, event: ConsumerGroupEvent, group: str, *args: object) -> None:
        """CHANGE: `args[0]` are the channels; REGISTER: the subscriptions."""
        if event is ConsumerGroupEvent.UNREGISTER:
            self._broker_controller.consumer_filter_manager.un_register(group)
        elif event is ConsumerGroupEvent.REGISTER and args:
            filters = self._broker_controller.consumer_filter_manager
            filters.register(group, args[0])  # type: ignore[arg-type]  # see above
        if event is not ConsumerGroupEvent.CHANGE or not args:
            return
        if not self._broker_controller.broker_config.notifyConsumerIdsChangedEnable:
            return
        for channel in args[0]:  # type: ignore[attr-defined]  # see above
            self._broker_controller.broker2_client.notify_consumer_ids_changed(channel, group)
