"""Filters for retry topics too."""
from rmqha.broker.filter.expression_message_filter import ExpressionMessageFilter, is_true_for
from rmqha.common import mix_all
from rmqha.common.message import message_const, message_decoder


class ExpressionForRetryMessageFilter(ExpressionMessageFilter):
    """A message that came back is measured by the group's expression for the topic it had at first.

    Java: org.apache.rocketmq.broker.filter.ExpressionForRetryMessageFilter (4.9.8)
    """

    __slots__ = ()

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """True when the expression is true for the message's properties."""
        subscription = self.subscription_data
        if subscription is None or subscription.classFilterMode:
            return True
        if not (subscription.topic or "").startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            return super().is_matched_by_commit_log(msg_buffer, properties)
        if properties is None and msg_buffer is not None:
            properties = message_decoder.decode_properties(msg_buffer)
        topic = (properties or {}).get(message_const.PROPERTY_RETRY_TOPIC)
        if topic is None:
            return True
        group = subscription.topic[len(mix_all.RETRY_GROUP_TOPIC_PREFIX):]
        return is_true_for(self.consumer_filter_manager.get(topic, group), None, properties or {})
