"""All consumer groups that are online."""
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channel_info import ClientChannelInfo
from rmqha.broker.client.consumer_group_event import ConsumerGroupEvent
from rmqha.broker.client.consumer_group_info import ConsumerGroupInfo
from rmqha.broker.client.consumer_ids_change_listener import ConsumerIdsChangeListener
from rmqha.common.consumer.consume_from_where import ConsumeFromWhere
from rmqha.common.protocol.heartbeat.consume_type import ConsumeType
from rmqha.common.protocol.heartbeat.message_model import MessageModel
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
from rmqha.remoting.common.remoting_helper import parse_channel_remote_addr

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

CHANNEL_EXPIRED_TIMEOUT_MS = 120 * 1000


class ConsumerManager:
    """Consumer groups by name. The table sees single dict operations only, from any thread.

    Java: org.apache.rocketmq.broker.client.ConsumerManager (4.9.8)
    """

    def __init__(self, consumer_ids_change_listener: ConsumerIdsChangeListener) -> None:
        self._consumer_table: dict[str, ConsumerGroupInfo] = {}
        self._listener = consumer_ids_change_listener

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """The member of a group with this client id."""
        info = self._consumer_table.get(group)
        return info.find_channel(client_id) if info is not None else None

    def find_subscription_data(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group wants of a topic."""
        info = self._consumer_table.get(group)
        return info.find_subscription_data(topic) if info is not None else None

    def get_consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        """The group, or None when nobody of it is online."""
        return self._consumer_table.get(group)

    def find_subscription_data_count(self, group: str) -> int:
        """How many topics a group subscribes to; 0 when it is not online."""
        info = self._consumer_table.get(group)
        return len(info.subscription_table) if info is not None else 0

    def do_channel_close_event(self, remote_addr: str, channel: "Channel") -> None:
        """A channel is gone: its consumers leave their groups."""
        for group, info in list(self._consumer_table.items()):
            if info.do_channel_close_event(remote_addr, channel):
                self._remove_when_empty(group, info)
                self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())

    def register_consumer(self, group: str, client_channel_info: ClientChannelInfo, consume_type: ConsumeType | None,
                          message_model: MessageModel | None, consume_from_where: ConsumeFromWhere | None,
                          sub_list: Iterable[SubscriptionData], is_notify_consumer_ids_changed_enable: bool) -> bool:
        """A heartbeat of a consumer; True when members or topics changed."""
        info = self._consumer_table.get(group)
        if info is None:
            made = ConsumerGroupInfo(group, consume_type, message_model, consume_from_where)
            info = self._consumer_table.setdefault(group, made)
        channel_changed = info.update_channel(client_channel_info, consume_type, message_model, consume_from_where)
        subscription_changed = info.update_subscription(sub_list)
        changed = channel_changed or subscription_changed
        if changed and is_notify_consumer_ids_changed_enable:
            self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())
        self._listener.handle(ConsumerGroupEvent.REGISTER, group, sub_list)
        return changed

    def unregister_consumer(self, group: str, client_channel_info: ClientChannelInfo,
                            is_notify_consumer_ids_changed_enable: bool) -> None:
        """A consumer says goodbye."""
        info = self._consumer_table.get(group)
        if info is None:
            return
        info.unregister_channel(client_channel_info)
        self._remove_when_empty(group, info)
        if is_notify_consumer_ids_changed_enable:
            self._listener.handle(ConsumerGroupEvent.CHANGE, group, info.get_all_channel())

    def scan_not_active_channel(self) -> None:
        """Drop members whose last heartbeat is older than 120 s."""
        for group, info in list(self._consumer_table.items()):
            for channel, client in list(info.channel_info_table.items()):
                if client.age_ms() > CHANNEL_EXPIRED_TIMEOUT_MS:
                    log.warning("SCAN: remove expired channel from ConsumerManager consumerTable. channel=%s, "
                                "consumerGroup=%s", parse_channel_remote_addr(channel), group)
                    channel.close()
                    info.channel_info_table.pop(channel, None)
            if not info.channel_info_table:
                log.warning("SCAN: remove expired channel from ConsumerManager consumerTable, all clear, "
                            "consumerGroup=%s", group)
                self._consumer_table.pop(group, None)

    def query_topic_consume_by_who(self, topic: str) -> set[str]:
        """The groups that subscribe to a topic."""
        return {group for group, info in list(self._consumer_table.items()) if topic in info.subscription_table}

    def _remove_when_empty(self, group: str, info: ConsumerGroupInfo) -> None:
        if not info.channel_info_table and self._consumer_table.pop(group, None) is not None:
            log.info("unregister consumer ok, no any connection, and remove consumer group, %s", group)
            self._listener.handle(ConsumerGroupEvent.UNREGISTER, group)
