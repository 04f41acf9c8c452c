"""Rebalance of a pull consumer."""
import logging
from typing import TYPE_CHECKING

from rmqha.client.impl.consumer.process_queue import ProcessQueue, PullRequest
from rmqha.client.impl.consumer.rebalance_impl import RebalanceImpl
from rmqha.common.message.message import MessageQueue
from rmqha.common.subscriptions import ConsumeType

if TYPE_CHECKING:
    from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
    from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
    from rmqha.client.impl.consumer.consumer_impl import ConsumerImpl

log = logging.getLogger("RocketmqClient")


class RebalancePullImpl(RebalanceImpl):
    """Shares the queues of the registered topics out; pulling is the user's.

    Java: org.apache.rocketmq.client.impl.consumer.RebalancePullImpl (4.9.8)
    """

    def __init__(
        self, consumer_impl: "ConsumerImpl", consumer: "DefaultMQPullConsumer | DefaultLitePullConsumer"
    ) -> None:
        super().__init__()
        self._consumer_impl = consumer_impl
        self._consumer = consumer

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Tell who wants to know."""
        listener = self._consumer.message_queue_listener
        if listener is None:
            return
        try:
            listener.message_queue_changed(topic, mq_all, mq_divided)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "messageQueueChanged exception")

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        self._consumer_impl.offset_store.persist(mq)
        self._consumer_impl.offset_store.remove_offset(mq)
        return True

    def consume_type(self) -> ConsumeType:
        return ConsumeType.CONSUME_ACTIVELY

    def remove_dirty_offset(self, mq: MessageQueue) -> None:
        self._consumer_impl.offset_store.remove_offset(mq)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        return 0

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        """Nothing to do."""
