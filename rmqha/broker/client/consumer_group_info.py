"""One consumer group: members and subscriptions."""
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channel_info import ClientChannelInfo
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")


class ConsumerGroupInfo:
    """Members by channel and subscriptions by topic. Both tables see single dict operations only.

    Java: org.apache.rocketmq.broker.client.ConsumerGroupInfo (4.9.8)
    """

    def __init__(self, group_name: str, consume_type: ConsumeType | None, message_model: MessageModel | None,
                 consume_from_where: ConsumeFromWhere | None) -> None:
        self.group_name = group_name
        self.subscription_table: dict[str, SubscriptionData] = {}
        self.channel_info_table: dict[Channel, ClientChannelInfo] = {}
        self.consume_type = consume_type
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        self.last_update_timestamp = _epoch_ms()

    def find_channel(self, client_id: str) -> ClientChannelInfo | None:
        """The member with this client id."""
        for info in list(self.channel_info_table.values()):
            if info.client_id == client_id:
                return info
        return None

    def get_all_channel(self) -> "list[Channel]":
        """The channels of all members."""
        return list(self.channel_info_table)

    def get_all_client_id(self) -> list[str]:
        """The client ids of all members."""
        return [info.client_id for info in list(self.channel_info_table.values())]

    def unregister_channel(self, client_channel_info: ClientChannelInfo) -> None:
        """The member left."""
        old = self.channel_info_table.pop(client_channel_info.channel, None)
        if old is not None:
            log.info("unregister a consumer[%s] from consumerGroupInfo %s", self.group_name, old)

    def do_channel_close_event(self, remote_addr: str, channel: "Channel") -> bool:
        """The channel is gone; True when it was a member's."""
        info = self.channel_info_table.pop(channel, None)
        if info is None:
            return False
        log.warning("NETTY EVENT: remove not active channel[%s] from ConsumerGroupInfo groupChannelTable, "
                    "consumer group: %s", info, self.group_name)
        return True

    def update_channel(self, info_new: ClientChannelInfo, consume_type: ConsumeType | None,
                       message_model: MessageModel | None, consume_from_where: ConsumeFromWhere | None) -> bool:
        """A heartbeat came; True when the member is new."""
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
        """Take over the subscriptions of a heartbeat; True when a topic came or went."""
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
        """The subscription of a topic."""
        return self.subscription_table.get(topic)


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000
