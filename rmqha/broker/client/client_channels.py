"""Clients of a broker by connection: the members of a group, notification of changes, and removal of silent clients.

- `ClientChannelInfo`: the client at the other end of a channel.
- `ConsumerGroupInfo`: members and subscriptions of one consumer group.
- `ConsumerGroupEvent`, `ConsumerIdsChangeListener`: changes of a consumer group, and the listener for them.
  `DefaultConsumerIdsChangeListener` notifies the group's consumers.
- `ClientHousekeepingService`: removes clients that disconnected or stopped sending heartbeats.

    NettyEventExecutor --channel events--> managers <--scan every 10 s-- ClientHousekeepingScheduledThread1
"""
import logging
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.common.threads import ScheduledService
from rmqha.remoting.interfaces import ChannelEventListener

if TYPE_CHECKING:
    from rmqha.broker.consumer_filter_manager import ConsumerFilterManager
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.protocol.header_codec import LanguageCode


RELAYED = "relayed"
"""The attribute of a channel that carries the requests of another replica's client: the id of that replica."""


def now_ms() -> int:
    """Return the monotonic clock in milliseconds, for measuring ages."""
    return time.monotonic_ns() // 1_000_000


class ClientChannelInfo:
    """A client: its channel, id, language, version, and the time of its last heartbeat. Compared by channel.

    Java: org.apache.rocketmq.broker.client.ClientChannelInfo (4.9.8)
    """

    __slots__ = ("channel", "client_id", "language", "version", "last_update_timestamp", "last_update_monotonic_ms",
                 "access_key")

    def __init__(self, channel: "Channel", client_id: str, language: "LanguageCode | None" = None,
                 version: int = 0, access_key: str | None = None) -> None:
        self.channel = channel
        self.client_id = client_id
        self.language = language
        self.version = version
        # The account that signed the heartbeat; None without access control.
        self.access_key = access_key
        self.touch()

    def touch(self) -> None:
        """Note a heartbeat now."""
        # ms since the epoch, for display only; ages are measured with the monotonic clock.
        self.last_update_timestamp = time.time_ns() // 1_000_000
        self.last_update_monotonic_ms = now_ms()

    def age_ms(self) -> int:
        """Return the milliseconds since the last heartbeat."""
        return now_ms() - self.last_update_monotonic_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientChannelInfo) and other.channel is self.channel

    def __hash__(self) -> int:
        return hash(self.channel)

    def __repr__(self) -> str:
        language = getattr(self.language, "name", None)
        return (f"ClientChannelInfo [channel={self.channel}, clientId={self.client_id}, language={language}, "
                f"version={self.version}, lastUpdateTimestamp={self.last_update_timestamp}]")


log = logging.getLogger("RocketmqBroker")


class ConsumerGroupInfo:
    """A consumer group: its members by channel and its subscriptions by topic. Only single dict operations on both.

    Java: org.apache.rocketmq.broker.client.ConsumerGroupInfo (4.9.8)
    """

    def __init__(self, group_name: str, consume_type: ConsumeType | None, message_model: MessageModel | None,
                 consume_from_where: ConsumeFromWhere | None, has_two_addresses: bool = False) -> None:
        self.group_name = group_name
        # Clients reach this broker at two addresses: its own while it is a slave, and masterAddress.
        self._has_two_addresses = has_two_addresses
        self.subscription_table: dict[str, SubscriptionData] = {}
        self.channel_info_table: dict[Channel, ClientChannelInfo] = {}
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        self.last_update_timestamp = _epoch_ms()

    def find_channel(self, client_id: str) -> ClientChannelInfo | None:
        """Return the member with this client id, or None."""
        for info in list(self.channel_info_table.values()):
            if info.client_id == client_id:
                return info
        return None

    def get_all_channel(self) -> "list[Channel]":
        """Return the channels of all members."""
        return list(self.channel_info_table)

    def get_all_client_id(self) -> list[str]:
        """Return the client ids of all members.

        A client counts once if it is also connected through another replica, or at the broker's other address.
        Otherwise it would leave half of its queues to a member that does not exist.
        """
        infos = list(self.channel_info_table.values())
        # Differs: with masterAddress, members are counted by their ids; the original counts connections
        if self._has_two_addresses:
            return list(dict.fromkeys(info.client_id for info in infos))
        ids = [info.client_id for info in infos if RELAYED not in info.channel.attributes]
        if len(ids) < len(infos):
            ids += {info.client_id for info in infos}.difference(ids)
        return ids

    def unregister_channel(self, client_channel_info: ClientChannelInfo) -> None:
        """Remove a member that unregistered."""
        old = self.channel_info_table.pop(client_channel_info.channel, None)
        if old is not None:
            log.info("unregister a consumer[%s] from consumerGroupInfo %s", self.group_name, old)

    def do_channel_close_event(self, remote_addr: str, channel: "Channel") -> bool:
        """Remove the member whose channel closed; return whether it was a member."""
        info = self.channel_info_table.pop(channel, None)
        if info is None:
            return False
        log.warning("NETTY EVENT: remove not active channel[%s] from ConsumerGroupInfo groupChannelTable, "
                    "consumer group: %s", info, self.group_name)
        return True

    def update_channel(self, info_new: ClientChannelInfo, consume_type: ConsumeType | None,
                       message_model: MessageModel | None, consume_from_where: ConsumeFromWhere | None) -> bool:
        """Update a member after a heartbeat; return whether it is new."""
        updated = False
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        info_old = self.channel_info_table.get(info_new.channel)
        if info_old is None:
            updated = self.channel_info_table.setdefault(info_new.channel, info_new) is info_new
            log.info("new consumer connected, group: %s %s %s channel: %s", self.group_name,
                     getattr(consume_type, "name", None), getattr(message_model, "name", None), info_new)
            info_old = info_new
        elif info_old.client_id != info_new.client_id:
            log.error("[BUG] consumer channel exist in broker, but clientId not equal. GROUP: %s OLD: %s NEW: %s ",
                      self.group_name, info_old, info_new)
            self.channel_info_table[info_new.channel] = info_new
        self.last_update_timestamp = _epoch_ms()
        info_old.touch()
        return updated

    def update_subscription(self, sub_list: Iterable[SubscriptionData]) -> bool:
        """Set the subscriptions from a heartbeat; return whether a topic was added or removed."""
        updated = False
        topics = set()
        for sub in sub_list:
            topics.add(sub.topic)
            old = self.subscription_table.get(sub.topic)
            if old is None:
                self.subscription_table[sub.topic] = sub
                updated = True
                log.info("subscription changed, add new topic, group: %s %s", self.group_name, sub)
            elif sub.subVersion > old.subVersion:
                if self.consume_type is ConsumeType.CONSUME_PASSIVELY:
                    log.info("subscription changed, group: %s OLD: %s NEW: %s", self.group_name, old, sub)
                self.subscription_table[sub.topic] = sub
        for old_topic in list(self.subscription_table):
            if old_topic not in topics:
                removed = self.subscription_table.pop(old_topic, None)
                log.warning("subscription changed, group: %s remove topic %s %s", self.group_name, old_topic, removed)
                updated = True
        self.last_update_timestamp = _epoch_ms()
        return updated

    def find_subscription_data(self, topic: str) -> SubscriptionData | None:
        """Return the subscription to a topic, or None."""
        return self.subscription_table.get(topic)


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


class ConsumerGroupEvent(Enum):
    """An event of a consumer group. CHANGE: members or topics changed. REGISTER: a heartbeat with subscriptions
    arrived. UNREGISTER: the last member left.

    Java: org.apache.rocketmq.broker.client.ConsumerGroupEvent (4.9.8)
    """

    CHANGE = 0
    UNREGISTER = 1
    REGISTER = 2


class ConsumerIdsChangeListener(Protocol):
    """A listener for each event.

    `args` are the channels (CHANGE), or the subscriptions, the group and the client id (REGISTER).

    Java: org.apache.rocketmq.broker.client.ConsumerIdsChangeListener (4.9.8)
    """

    def handle(self, event: ConsumerGroupEvent, group: str, *args: object) -> None:
        """Process an event."""


class KeptMembers(Protocol):
    """The groups that the broker keeps over a restart: ConsumerSubscriptionManager."""

    def on_heartbeat(self, info: ConsumerGroupInfo, reported: Iterable[SubscriptionData], client_id: str) -> None:
        """Take over the subscriptions of a group, after a member has reported its own ones."""

    def on_unregistered(self, name: str) -> None:
        """Drop a group whose last member has left."""

    def channels(self, name: str) -> "list[Channel]":
        """Return the connections of members that have sent no heartbeat yet."""


class DefaultConsumerIdsChangeListener:
    """The listener of the broker: on CHANGE it asks each member to rebalance.

    The other events update the filters and the kept subscriptions.

    Java: org.apache.rocketmq.broker.client.DefaultConsumerIdsChangeListener (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, filters: "ConsumerFilterManager",
                 kept: "KeptMembers", notify: "Callable[[Channel, str | None], None]") -> None:
        self._config = broker_config
        self._filters, self._kept = filters, kept
        # Asks the consumer at a channel to rebalance.
        self._notify = notify

    def handle(self, event: ConsumerGroupEvent, group: str, *args: object) -> None:
        """Process an event. `args` are the channels (CHANGE), or the subscriptions, group and client id (REGISTER)."""
        if event is ConsumerGroupEvent.UNREGISTER:
            self._filters.un_register(group)
            self._kept.on_unregistered(group)
        elif event is ConsumerGroupEvent.REGISTER and args:
            self._filters.register(group, args[0])  # type: ignore[arg-type]  # see above
            self._kept.on_heartbeat(args[1], args[0], args[2])  # type: ignore[arg-type]  # see above
        if event is not ConsumerGroupEvent.CHANGE or not args:
            return
        if not self._config.notifyConsumerIdsChangedEnable:
            return
        for channel in {*args[0], *self._kept.channels(group)}:  # type: ignore[misc]  # see above
            self._notify(channel, group)


_SCAN_INTERVAL_MS = 10 * 1000


class ClientHousekeepingService(ChannelEventListener):
    """Removes the clients of closed channels, and scans for expired clients.

    Java: org.apache.rocketmq.broker.client.ClientHousekeepingService (4.9.8)
    """

    def __init__(self, forget: "Iterable[Callable[[str, Channel], None]]", scan: Iterable[Callable[[], None]]) -> None:
        # Each is called with a closed channel and its address, and removes its clients.
        self._forgets = tuple(forget)
        # Each removes expired entries.
        self._scans = tuple(scan)
        self._scheduler = ScheduledService("ClientHousekeepingScheduledThread1")

    def start(self) -> None:
        """Start the scans."""
        self._scheduler.schedule_at_fixed_rate(self._scan_exception_channel, _SCAN_INTERVAL_MS, _SCAN_INTERVAL_MS)

    def shutdown(self) -> None:
        """Stop the scans. Idempotent."""
        self._scheduler.shutdown()

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """Do nothing: a client counts from its first heartbeat."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the channel's clients."""
        self._forget(remote_addr, channel)

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the channel's clients."""
        self._forget(remote_addr, channel)

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the channel's clients."""
        self._forget(remote_addr, channel)

    def _scan_exception_channel(self) -> None:
        for scan in self._scans:
            scan()

    def _forget(self, remote_addr: str, channel: "Channel") -> None:
        for forget in self._forgets:
            forget(remote_addr, channel)
