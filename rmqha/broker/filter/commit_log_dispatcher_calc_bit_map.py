"""Evaluates the expressions of all groups once, when a message is dispatched."""
import logging

from rmqha.broker.filter.consumer_filter_data import ConsumerFilterData
from rmqha.broker.filter.consumer_filter_manager import ConsumerFilterManager
from rmqha.broker.filter.message_evaluation_context import MessageEvaluationContext
from rmqha.common.broker_config import BrokerConfig
from rmqha.filter.bloom_filter import BitsArray
from rmqha.filter.expressions import Expression
from rmqha.store.results import DispatchRequest

log = logging.getLogger("RocketmqFilter")


class CommitLogDispatcherCalcBitMap:
    """Puts the groups whose expression is true into the message's bit map: a bloom filter. Stands before the queues.

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
