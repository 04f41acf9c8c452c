"""Rebalance of a lite pull consumer."""
import logging
from typing import TYPE_CHECKING

from rmqha.client.consumer.store.read_offset_type import ReadOffsetType
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.client.impl.consumer.pull_request import PullRequest
from rmqha.client.impl.consumer.rebalance_impl import RebalanceImpl
from rmqha.client.impl.consumer.rebalance_push_impl import first_offset
from rmqha.common.message.message_queue import MessageQueue
from rmqha.common.protocol.heartbeat.consume_type import ConsumeType

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.default_lite_pull_consumer_impl import DefaultLitePullConsumerImpl

log = logging.getLogger("RocketmqClient")


class RebalanceLitePullImpl(RebalanceImpl):
    """Hands the share of each topic to the consumer, which pulls on its own.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceLitePullImpl (4.9.8)
    """

    def __init__(self, lite_pull_consumer_impl: "DefaultLitePullConsumerImpl") -> None:
        super().__init__()
        self._consumer_impl = lite_pull_consumer_impl

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Pull the new share, and tell who wants to know."""
        self._consumer_impl.update_assign_queue_and_start_pull_task(topic, mq_all, mq_divided)
        listener = self._consumer_impl.default_lite_pull_consumer.message_queue_listener
        if listener is None:
            return
        try:
            listener.message_queue_changed(topic, mq_all, mq_divided)
        except Exception:  # the user's code
            log.exception("messageQueueChanged exception")

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        self._consumer_impl.offset_store.persist(mq)
        self._consumer_impl.offset_store.remove_offset(mq)
        return True

    def consume_type(self) -> ConsumeType:
        return ConsumeType.CONSUME_ACTIVELY

    def remove_dirty_offset(self, mq: MessageQueue) -> None:
        self._consumer_impl.offset_store.remove_offset(mq)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        last_offset = self._consumer_impl.offset_store.read_offset(mq, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
        if last_offset >= 0:
            return last_offset
        if last_offset != -1:  # no answer
            return -1
        consumer = self._consumer_impl.default_lite_pull_consumer
        return first_offset(mq, consumer.consume_from_where, consumer.consume_timestamp,
                            self.mq_client_factory.mq_admin_impl)

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        """Nothing: each queue has a task of its own."""
