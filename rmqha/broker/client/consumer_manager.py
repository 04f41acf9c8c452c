"""The consumer groups that are online."""
import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channels import (
    ClientChannelInfo,
    ConsumerGroupEvent,
    ConsumerGroupInfo,
    ConsumerIdsChangeListener,
)
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

CHANNEL_EXPIRED_TIMEOUT_MS = 120 * 1000
MAX_GROUPS_OF_CHANNEL = 2000
# Limit for the subscriptions in the last heartbeats of one connection.
MAX_SUBSCRIBED_CHARACTERS = 16 << 20
# Characters that an empty subscription counts for; each of its tags counts for a quarter of it.
_SUBSCRIPTION_OVERHEAD = 256


class _Held:
    """The groups of one connection, each with the size of its subscriptions, and their sum."""

    __slots__ = ("sizes", "total")

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.total = 0


class ConsumerManager:
    """The consumer groups by name. Any thread: only single dict operations.

    The groups and subscriptions of a connection are limited, and are removed when it closes. `has_two_addresses`: a
    client may be connected at the broker's own address and at masterAddress, and counts once.

    Java: org.apache.rocketmq.broker.client.ConsumerManager (4.9.8)
    """

    def __init__(self, consumer_ids_change_listener: ConsumerIdsChangeListener,
                 has_two_addresses: bool = False) -> None:
        self._consumer_table: dict[str, ConsumerGroupInfo] = {}
        self._listener = consumer_ids_change_listener
        self._has_two_addresses = has_two_addresses
        self._held: dict[Channel, _Held] = {}  # guarded by _lock
        self._lock = threading.Lock()

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """Return the member of a group with this client id, or None."""
        info = self._consumer_table.get(group)
        return info.find_channel(client_id) if info is not None else None

    def find_subscription_data(self, group: str, topic: str) -> SubscriptionData | None:
        """Return a group's subscription to a topic, or None."""
        info = self._consumer_table.get(group)
        return info.find_subscription_data(topic) if info is not None else None

    def get_consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group, or None when none of its consumers is online."""
        return self._consumer_table.get(group)

    def groups(self) -> list[ConsumerGroupInfo]:
        """Return the groups with consumers that are online."""
        return list(self._consumer_table.values())

    def find_subscription_data_count(self, group: str) -> int:
        """Return the number of topics that a group subscribes to; 0 when it is not online."""
        info = self._consumer_table.get(group)
        return len(info.subscription_table) if info is not None else 0

    def do_channel_close_event(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the consumers of a closed channel from their groups."""
        with self._lock:
            held = self._held.pop(channel, None)
        for group in held.sizes if held is not None else ():
            info = self._consumer_table.get(group)
            if info is not None and info.do_channel_close_event(remote_addr, channel):
                self._remove_when_empty(group, info)
                self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())

    def register_consumer(self, group: str, client_channel_info: ClientChannelInfo, consume_type: ConsumeType | None,
                          message_model: MessageModel | None, consume_from_where: ConsumeFromWhere | None,
                          sub_list: Iterable[SubscriptionData], is_notify_consumer_ids_changed_enable: bool) -> bool:
        """Process the heartbeat of a consumer; return whether members or topics changed.

        Raises RemotingCommandException when its connection exceeds a limit.
        """
        self._hold(client_channel_info.channel, group, sub_list)
        info = self._consumer_table.get(group)
        if info is None:
            made = ConsumerGroupInfo(group, consume_type, message_model, consume_from_where, self._has_two_addresses)
            info = self._consumer_table.setdefault(group, made)
        channel_changed = info.update_channel(client_channel_info, consume_type, message_model, consume_from_where)
        subscription_changed = info.update_subscription(sub_list)
        changed = channel_changed or subscription_changed
        if changed and is_notify_consumer_ids_changed_enable:
            self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())
        self._listener.handle(ConsumerGroupEvent.REGISTER, group, sub_list, info, client_channel_info.client_id)
        return changed

    def unregister_consumer(self, group: str, client_channel_info: ClientChannelInfo,
                            is_notify_consumer_ids_changed_enable: bool) -> None:
        """Unregister a consumer."""
        info = self._consumer_table.get(group)
        if info is None:
            return
        info.unregister_channel(client_channel_info)
        self._let_go(client_channel_info.channel, group)
        self._remove_when_empty(group, info)
        if is_notify_consumer_ids_changed_enable:
            self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())

    def notify_members(self, group: str) -> None:
        """Make the members of a group rebalance."""
        info = self._consumer_table.get(group)
        if info is not None:
            self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())

    def scan_not_active_channel(self) -> None:
        """Remove members whose last heartbeat is older than 120 s."""
        for group, info in list(self._consumer_table.items()):
            for channel, client in list(info.channel_info_table.items()):
                if client.age_ms() > CHANNEL_EXPIRED_TIMEOUT_MS:
                    log.warning("SCAN: remove expired channel from ConsumerManager consumerTable. channel=%s, "
                                "consumerGroup=%s", parse_channel_remote_addr(channel), group)
                    channel.close()
                    info.channel_info_table.pop(channel, None)
                    self._let_go(channel, group)
            if not info.channel_info_table:
                log.warning("SCAN: remove expired channel from ConsumerManager consumerTable, all clear, "
                            "consumerGroup=%s", group)
                self._consumer_table.pop(group, None)

    def query_topic_consume_by_who(self, topic: str) -> set[str]:
        """Return the groups that subscribe to a topic."""
        return {group for group, info in list(self._consumer_table.items()) if topic in info.subscription_table}

    def _hold(self, channel: "Channel", group: str, sub_list: Iterable[SubscriptionData]) -> None:
        # Differs: the groups and subscriptions of a connection are limited; the original accepts any number of them
        size = sum(map(size_of, sub_list))
        with self._lock:
            held = self._held.get(channel)
            if held is None:
                held = self._held[channel] = _Held()
            old = held.sizes.get(group)
            if old is None and len(held.sizes) >= MAX_GROUPS_OF_CHANNEL:
                raise RemotingCommandException("too many consumer groups on one connection: at most "
                                               f"{MAX_GROUPS_OF_CHANNEL} are allowed")
            total = held.total - (old or 0) + size
            if total > MAX_SUBSCRIBED_CHARACTERS:
                raise RemotingCommandException("the subscriptions of one connection are longer than "
                                               f"{MAX_SUBSCRIBED_CHARACTERS} characters")
            held.sizes[group], held.total = size, total

    def _let_go(self, channel: "Channel", group: str) -> None:
        with self._lock:
            held = self._held.get(channel)
            if held is not None:
                held.total -= held.sizes.pop(group, 0)
                if not held.sizes:
                    del self._held[channel]

    def _remove_when_empty(self, group: str, info: ConsumerGroupInfo) -> None:
        if not info.channel_info_table and self._consumer_table.pop(group, None) is not None:
            log.info("unregister consumer ok, no any connection, and remove consumer group, %s", group)
            self._listener.handle(ConsumerGroupEvent.UNREGISTER, group)


def size_of(subscription: SubscriptionData) -> int:
    """Return the number of characters that a subscription counts for."""
    tags = subscription.tagsSet or ()
    return (len(subscription.topic or "") + len(subscription.subString or "") + sum(map(len, map(str, tags)))
            + _SUBSCRIPTION_OVERHEAD * (4 + len(tags) + len(subscription.codeSet or ())) // 4)
