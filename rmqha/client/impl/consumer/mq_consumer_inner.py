"""What a client instance needs of a consumer."""
from typing import Protocol

from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


class MQConsumerInner(Protocol):
    """A push or pull consumer as the instance sees it: for heartbeats, routes, rebalance and offsets.

    Java: org.apache.rocketmq.client.impl.consumer.MQConsumerInner (4.9.8)
    """

    def group_name(self) -> str:
        """The consumer group."""

    def message_model(self) -> MessageModel:
        """Each message to one of the group, or to all."""

    def consume_type(self) -> ConsumeType:
        """Who decides when to pull: the library (passively) or the user (actively)."""

    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a new group begins."""

    def subscriptions(self) -> list[SubscriptionData]:
        """What the group is interested in."""

    def do_rebalance(self) -> None:
        """Take the queues that are this consumer's share."""

    def persist_consumer_offset(self) -> None:
        """Store how far the group has come."""

    def update_topic_subscribe_info(self, topic: str, info: set[MessageQueue]) -> None:
        """The queues of a topic changed."""

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """True when the topic is subscribed to and its queues are not known yet."""

    def is_unit_mode(self) -> bool:
        """True for a unit's consumer."""

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """What this consumer does now, for the admin commands."""
