"""Message filters of a broker: which messages match the tags or the expression of a subscription.

- `MessageEvaluationContext`: gives an expression access to the properties of a message.
- `ExpressionMessageFilter`, `ExpressionForRetryMessageFilter`: used when a consumer pulls.
- `CommitLogDispatcherCalcBitMap`: evaluates the expressions of all groups once, when a message is dispatched.
"""
import logging

from rmqha.broker.consumer_filter_manager import ConsumerFilterData, ConsumerFilterManager
from rmqha.common import mix_all, subscriptions
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.java import int32
from rmqha.common.message import message_const, message_decoder
from rmqha.common.subscriptions import SUB_ALL, SubscriptionData
from rmqha.filter.bloom_filter import BitsArray
from rmqha.filter.expressions import EvaluationContext, Expression
from rmqha.store.consume_queue_ext import CqExtUnit
from rmqha.store.message_reader import MessageFilter
from rmqha.store.results import DispatchRequest


class MessageEvaluationContext(EvaluationContext):
    """Java: org.apache.rocketmq.broker.filter.MessageEvaluationContext (4.9.8)"""

    __slots__ = ("_properties",)

    def __init__(self, properties: dict[str, str] | None) -> None:
        self._properties = properties

    def get(self, name: str) -> str | None:
        """Return a property."""
        return self._properties.get(name) if self._properties is not None else None


log = logging.getLogger("RocketmqFilter")


class ExpressionMessageFilter(MessageFilter):
    """The filter of one pull, by tags or by an expression.

    Tags: a message passes if its tag has one of the wanted hashes; the client compares the tags themselves.
    Expressions: first by the bit map in the queue's extension, if there is one, then by the message's properties.

    Java: org.apache.rocketmq.broker.filter.ExpressionMessageFilter (4.9.8)
    """

    __slots__ = ("subscription_data", "consumer_filter_data", "consumer_filter_manager", "_code_set", "_is_tag")

    def __init__(self, subscription_data: SubscriptionData, consumer_filter_data: ConsumerFilterData | None,
                 consumer_filter_manager: ConsumerFilterManager) -> None:
        self.subscription_data = subscription_data
        self.consumer_filter_data = consumer_filter_data
        self.consumer_filter_manager = consumer_filter_manager
        self._is_tag = (subscription_data.classFilterMode
                        or subscriptions.is_tag_type(subscription_data.expressionType))
        self._code_set = _wanted_codes(subscription_data) if self._is_tag else None

    @property
    def takes_all(self) -> bool:
        """True if all tags are wanted."""
        return self._is_tag and self._code_set is None

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit: CqExtUnit | None = None) -> bool:
        """Return whether the message may be wanted; True also when the queue cannot decide it."""
        if self._is_tag:
            return self._code_set is None or tags_code is None or int32(tags_code) in self._code_set
        data = self.consumer_filter_data
        if data is None or data.compiled_expression is None or data.bloomFilterData is None:
            return True
        if cq_ext_unit is None or not data.is_msg_in_live(cq_ext_unit.msg_store_time):
            return True
        bit_map, bloom_filter = cq_ext_unit.filter_bit_map, self.consumer_filter_manager.bloom_filter
        if not bit_map or not bloom_filter.is_valid(data.bloomFilterData) or len(bit_map) * 8 != bloom_filter.m:
            return True
        return bloom_filter.is_hit(data.bloomFilterData, BitsArray.of(bit_map))

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """Return whether the expression is true for the message's properties; tags are not checked again."""
        if self._is_tag:
            return True
        return is_true_for(self.consumer_filter_data, msg_buffer, properties)


def is_true_for(data: ConsumerFilterData | None, msg_buffer: memoryview | None,
             properties: dict[str, str] | None) -> bool:
    """Return whether a message matches an expression; without an expression all messages match."""
    if data is None or data.compiled_expression is None:
        return True
    if properties is None and msg_buffer is not None:
        properties = message_decoder.decode_properties(msg_buffer)
    try:
        return data.compiled_expression.evaluate(MessageEvaluationContext(properties)) is True
    except Exception as failure:
        # Differs: an error in the evaluation of a filter expression is logged as one line without a stack trace: the
        # message's properties cause it, not the broker
        log.error("Message Filter error, %s, %s: %r", data, properties, failure)
        return False


def _wanted_codes(subscription: SubscriptionData) -> set[int] | None:
    if subscription.classFilterMode or subscription.subString == SUB_ALL:
        return None
    return subscription.codeSet


class ExpressionForRetryMessageFilter(ExpressionMessageFilter):
    """The filter that also applies to retry topics: it uses the group's expression for the message's original topic.

    Java: org.apache.rocketmq.broker.filter.ExpressionForRetryMessageFilter (4.9.8)
    """

    __slots__ = ()

    @property
    def takes_all(self) -> bool:
        """True if all tags are wanted, and the topic is not a retry topic: those need the group's expression."""
        subscription = self.subscription_data
        return super().takes_all and (
            subscription.classFilterMode or not subscription.topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX))

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """Return whether the expression is true for the message's properties."""
        subscription = self.subscription_data
        if subscription.classFilterMode:
            return True
        if not subscription.topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            return super().is_matched_by_commit_log(msg_buffer, properties)
        if properties is None and msg_buffer is not None:
            properties = message_decoder.decode_properties(msg_buffer)
        topic = (properties or {}).get(message_const.PROPERTY_RETRY_TOPIC)
        if topic is None:
            return True
        group = subscription.topic[len(mix_all.RETRY_GROUP_TOPIC_PREFIX):]
        return is_true_for(self.consumer_filter_manager.get(topic, group), None, properties or {})


class CommitLogDispatcherCalcBitMap:
    """Adds the groups whose expression is true to the message's bit map, a bloom filter. Runs before the queues are
    written.

    Java: org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, consumer_filter_manager: ConsumerFilterManager) -> None:
        self._broker_config = broker_config
        self._manager = consumer_filter_manager

    def dispatch(self, request: DispatchRequest) -> None:
        """Set the bit map of a record whose topic has expressions."""
        if not self._broker_config.enableCalcFilterBitMap:
            return
        filter_datas = self._manager.get_by_topic(request.topic)
        if not filter_datas:
            return
        bit_map = BitsArray.create(self._manager.bloom_filter.m)
        context = MessageEvaluationContext(request.properties_map)
        for data in filter_datas:
            if data.compiled_expression is None or data.bloomFilterData is None:
                log.error("[BUG] Consumer in filter manager has no compiled expression or no bloom data! %s", data)
            elif self._is_true(data, data.compiled_expression, context, request):
                self._manager.bloom_filter.hash_to(data.bloomFilterData, bit_map)
        request.bit_map = bytes(bit_map.bytes)

    @staticmethod
    def _is_true(data: ConsumerFilterData, expression: Expression, context: MessageEvaluationContext,
                 request: DispatchRequest) -> bool:
        try:
            return expression.evaluate(context) is True
        except Exception as failure:
            log.error("Calc filter bit map error!commitLogOffset=%d, consumer=%s, %r", request.commit_log_offset, data,
                      failure)
            return False
