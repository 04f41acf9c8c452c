"""Which messages a consumer wants."""
from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.common.java import int32
from rmqha.common.subscriptions import SUB_ALL, SubscriptionData

if TYPE_CHECKING:
    from rmqha.store.consume_queue_ext import CqExtUnit


class MessageFilter:
    """Asked first with the consume queue's unit, then with the record itself.

    Java: org.apache.rocketmq.store.MessageFilter (4.9.8)
    """

    @property
    def takes_all(self) -> bool:
        """Whether nobody needs to be asked: every message is wanted."""
        return False

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit: CqExtUnit | None = None) -> bool:
        """False when the unit alone tells that the message is not wanted; `tags_code` None when it is not known."""
        raise NotImplementedError

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """False when the record is not wanted; one of the two is given."""
        raise NotImplementedError


class DefaultMessageFilter(MessageFilter):
    """Lets pass what has one of the subscription's tag hashes; the client compares the tags themselves.

    Java: org.apache.rocketmq.store.DefaultMessageFilter (4.9.8)
    """

    def __init__(self, subscription_data: SubscriptionData | None) -> None:
        self.subscription_data = subscription_data

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit: CqExtUnit | None = None) -> bool:
        """True without a code, without a subscription, for all tags, or for a code that was asked for."""
        subscription = self.subscription_data
        if tags_code is None or subscription is None or subscription.classFilterMode:
            return True
        return subscription.subString == SUB_ALL or int32(tags_code) in subscription.codeSet

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """Tags are not looked at twice."""
        return True
