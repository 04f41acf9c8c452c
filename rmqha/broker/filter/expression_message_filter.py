"""Which messages a subscription wants."""
from rmqha.common.filter import expression_type
from rmqha.common.java_compat import int32
from rmqha.common.protocol.heartbeat.subscription_data import SUB_ALL, SubscriptionData
from rmqha.store.message_filter import MessageFilter


class ExpressionMessageFilter(MessageFilter):
    """Lets pass what has one of the subscription's tag hashes; the client compares the tags themselves.

    Java: org.apache.rocketmq.broker.filter.ExpressionMessageFilter (4.9.8)
    """

    # Differs: expressions other than tags (SQL92) are refused before a filter is made for them.
    __slots__ = ("subscription_data", "_code_set")

    def __init__(self, subscription_data: SubscriptionData | None) -> None:
        self.subscription_data = subscription_data
        self._code_set = _wanted_codes(subscription_data)

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit: object = None) -> bool:
        """True when the tag's hash is wanted, or is not known."""
        return self._code_set is None or tags_code is None or int32(tags_code) in self._code_set

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """Tags are not looked at twice."""
        return True


def _wanted_codes(subscription: SubscriptionData | None) -> set[int] | None:
    if subscription is None or subscription.classFilterMode or subscription.subString == SUB_ALL:
        return None
    return subscription.codeSet if expression_type.is_tag_type(subscription.expressionType) else None
