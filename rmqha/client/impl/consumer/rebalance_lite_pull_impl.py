"""Rebalance of a lite pull consumer."""
from typing import TYPE_CHECKING

from rmqha.client.consumer.store.read_offset_type import ReadOffsetType
from rmqha.client.impl.consumer.rebalance_pull_impl import RebalancePullImpl
from rmqha.client.impl.consumer.rebalance_push_impl import first_offset
from rmqha.common.message.message import MessageQueue

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.default_lite_pull_consumer_impl import DefaultLitePullConsumerImpl


class RebalanceLitePullImpl(RebalancePullImpl):
    """Hands the share of each topic to the consumer, which pulls on its own: each queue has a task.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceLitePullImpl (4.9.8)
    """

    def __init__(self, default_lite_pull_consumer_impl: "DefaultLitePullConsumerImpl") -> None:
        super().__init__(default_lite_pull_consumer_impl, default_lite_pull_consumer_impl.default_lite_pull_consumer)
        self._lite_consumer_impl = default_lite_pull_consumer_impl

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Pull the new share, and tell the listener."""
        self._lite_consumer_impl.update_assign_queue_and_start_pull_task(topic, mq_all, mq_divided)
        super().message_queue_changed(topic, mq_all, mq_divided)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        last_offset = self._consumer_impl.offset_store.read_offset(mq, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
        if last_offset >= 0:
            return last_offset
        if last_offset != -1:  # no answer
            return -1
        consumer = self._lite_consumer_impl.default_lite_pull_consumer
        return first_offset(mq, consumer.consume_from_where, consumer.consume_timestamp,
                            self.mq_client_factory.mq_admin_impl)
