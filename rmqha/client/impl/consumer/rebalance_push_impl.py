"""Rebalance of a push consumer."""
import logging
from datetime import datetime
from typing import TYPE_CHECKING

from rmqha.client.consumer.store.read_offset_type import ReadOffsetType
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.process_queue import ProcessQueue, PullRequest
from rmqha.client.impl.consumer.rebalance_impl import RebalanceImpl
from rmqha.common import mix_all, util_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl
    from rmqha.client.impl.mq_admin_impl import MQAdminImpl

log = logging.getLogger("RocketmqClient")

UNLOCK_DELAY_MS = 20_000
_CONSUME_LOCK_S = 1.0


class RebalancePushImpl(RebalanceImpl):
    """Begins each new queue where the group left off, or where a new group is to begin.

    Java: org.apache.rocketmq.client.impl.consumer.RebalancePushImpl (4.9.8)
    """

    def __init__(self, default_mq_push_consumer_impl: "DefaultMQPushConsumerImpl") -> None:
        super().__init__()
        self._consumer_impl = default_mq_push_consumer_impl

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Share the limits of the topic among its queues, and tell the brokers that the subscription is newer."""
        subscription = self.subscription_inner[topic]
        new_version = max(util_all.current_time_millis(), subscription.subVersion + 1)  # the clock may have gone back
        log.info("%s Rebalance changed, also update version: %d, %d", topic, subscription.subVersion, new_version)
        subscription.subVersion = new_version
        consumer, queues = self._consumer_impl.default_mq_push_consumer, len(self.process_queue_table)
        if queues and consumer.pull_threshold_for_topic != -1:
            consumer.pull_threshold_for_queue = max(1, consumer.pull_threshold_for_topic // queues)
        if queues and consumer.pull_threshold_size_for_topic != -1:
            consumer.pull_threshold_size_for_queue = max(1, consumer.pull_threshold_size_for_topic // queues)
        # Differs: 4.9.8 gives up when a heartbeat is under way; brokers then refuse the pulls that follow
        self.mq_client_factory.send_heartbeat_to_all_broker_with_lock(wait=True)

    def is_order(self) -> bool:
        return self._consumer_impl.consume_orderly and self.message_model is MessageModel.CLUSTERING

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        self._consumer_impl.offset_store.persist(mq)
        self._consumer_impl.offset_store.remove_offset(mq)
        if not self.is_order():
            return True
        if not pq.consume_lock.acquire(timeout=_CONSUME_LOCK_S):
            pq.try_unlock_times += 1
            log.warning("[WRONG]mq is consuming, so can not unlock it, %s. maybe hanged for a while, %d", mq,
                        pq.try_unlock_times)
            return False
        try:
            self._unlock_delay(mq, pq)
        finally:
            pq.consume_lock.release()
        return True

    def _unlock_delay(self, mq: MessageQueue, pq: ProcessQueue) -> None:
        """Unlock at once, or when what other threads may still have in hand is done."""
        if pq.has_temp_message():
            log.info("unlockDelay, begin %s", mq)
            self.mq_client_factory.scheduled_executor_service.schedule(lambda: self.unlock(mq), UNLOCK_DELAY_MS)
        else:
            self.unlock(mq)

    def consume_type(self) -> ConsumeType:
        return ConsumeType.CONSUME_PASSIVELY

    def remove_dirty_offset(self, mq: MessageQueue) -> None:
        self._consumer_impl.offset_store.remove_offset(mq)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        last_offset = self._consumer_impl.offset_store.read_offset(mq, ReadOffsetType.READ_FROM_STORE)
        if last_offset >= 0:
            return last_offset
        if last_offset != -1:  # no answer: try again at the next rebalance
            return -1
        consumer = self._consumer_impl.default_mq_push_consumer
        return first_offset(mq, consumer.consume_from_where, consumer.consume_timestamp,
                            self.mq_client_factory.mq_admin_impl)

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        for pull_request in pull_request_list:
            self._consumer_impl.execute_pull_request_immediately(pull_request)
            log.info("doRebalance, %s, add a new pull request %s", self.consumer_group, pull_request)


def first_offset(mq: MessageQueue, where: ConsumeFromWhere, consume_timestamp: str, admin: "MQAdminImpl") -> int:
    """Where a group begins that has no offset of a queue yet; `consume_timestamp` is yyyyMMddHHmmss in local time."""
    is_retry = mq.topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)
    match where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return _beginning(mq, admin)
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if is_retry:
                return admin.max_offset(mq)
            moment = datetime.strptime(consume_timestamp, "%Y%m%d%H%M%S")
            return admin.search_offset(mq, int(moment.timestamp() * 1000))
        case _:  # CONSUME_FROM_LAST_OFFSET and its deprecated names
            return _beginning(mq, admin) if is_retry else admin.max_offset(mq)


def _beginning(mq: MessageQueue, admin: "MQAdminImpl") -> int:
    """The first offset that the queue still has.

    Differs: the original begins at 0, and where the beginning of the queue is deleted waits 20 to 33 s until it is
    allowed to continue.
    """
    try:
        return max(0, admin.min_offset(mq))
    except (MQClientException, MQBrokerException, RemotingException) as error:  # no master: a slave may have messages
        log.warning("minOffset of %s not known, begin at 0: %s", mq, error)
        return 0
