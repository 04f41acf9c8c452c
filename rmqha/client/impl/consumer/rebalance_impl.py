"""Which queues this consumer pulls."""
import logging
import threading
from typing import TYPE_CHECKING

from rmqha.client.common.cause_log import CauseLog
from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueStrategy
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.process_queue import ProcessQueue, PullRequest
from rmqha.common import mix_all, util_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.client_bodies import LockBatchRequestBody, UnlockBatchRequestBody
from rmqha.common.subscriptions import ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

LOCK_TIMEOUT_MS = 1000


class RebalanceImpl:
    """Base: compares the queues that are held with the share that is due, gives up some and takes others.

    `process_queue_table` is read by many threads and written under `_rebalance_lock`; who iterates takes a list first.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceImpl (4.9.8)
    """

    # From the consumer's start on:
    consumer_group: str
    message_model: MessageModel
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    mq_client_factory: "MQClientInstance"

    def __init__(self) -> None:
        self.process_queue_table: dict[MessageQueue, ProcessQueue] = {}
        self.topic_subscribe_info_table: dict[str, set[MessageQueue]] = {}  # by topic; sets are replaced, not changed
        self.subscription_inner: dict[str, SubscriptionData] = {}  # by topic
        self._rebalance_lock = threading.RLock()
        self.causes = CauseLog(log)  # what the user's strategy and listener did wrong

    def is_order(self) -> bool:
        """Whether queues are locked at their brokers before they are consumed."""
        return False

    def unlock(self, mq: MessageQueue) -> None:
        """Give the lock of a queue back."""
        self._unlock(mq.brokerName, {mq})

    def unlock_all(self) -> None:
        """Give all locks back."""
        for broker_name, queues in self._queues_by_broker().items():
            self._unlock(broker_name, queues)

    def lock(self, mq: MessageQueue) -> bool:
        """Lock a queue for this client, or renew its lock; False when another client has it."""
        locked = self._lock(mq.brokerName, {mq})
        log.info("the message queue lock %s, %s %s", "OK" if locked else "Failed", self.consumer_group, mq)
        return bool(locked)

    def lock_all(self) -> None:
        """Renew the locks of all queues."""
        for broker_name, queues in self._queues_by_broker().items():
            locked = self._lock(broker_name, queues)
            if locked is None:
                continue
            for queue in queues - locked:
                process_queue = self.process_queue_table.get(queue)
                if process_queue is not None:
                    process_queue.locked = False
                    log.warning("the message queue locked Failed, Group: %s %s", self.consumer_group, queue)

    def _queues_by_broker(self) -> dict[str, set[MessageQueue]]:
        table: dict[str, set[MessageQueue]] = {}
        for queue in list(self.process_queue_table):
            table.setdefault(queue.brokerName, set()).add(queue)
        return table

    def _lock(self, broker_name: str, queues: set[MessageQueue]) -> set[MessageQueue] | None:
        """The queues that are locked for this client now; None when the broker could not be asked."""
        addr = self.mq_client_factory.find_broker_address_in_publish(broker_name)
        if addr is None:
            return None
        body = LockBatchRequestBody(self.consumer_group, self.mq_client_factory.client_id, queues)
        try:
            locked = self.mq_client_factory.mq_client_api_impl.lock_batch_mq(addr, body, LOCK_TIMEOUT_MS)
        except (MQBrokerException, MQClientException, RemotingException) as error:
            log.error("lockBatchMQ exception, %s: %s", queues, error)
            return None
        for queue in locked:
            process_queue = self.process_queue_table.get(queue)
            if process_queue is not None:
                process_queue.locked = True
                process_queue.last_lock_ms = util_all.monotonic_millis()
        return locked

    def _unlock(self, broker_name: str, queues: set[MessageQueue]) -> None:
        addr = self.mq_client_factory.find_broker_address_in_publish(broker_name)
        if addr is None:
            return
        body = UnlockBatchRequestBody(self.consumer_group, self.mq_client_factory.client_id, queues)
        try:
            self.mq_client_factory.mq_client_api_impl.unlock_batch_mq(addr, body, LOCK_TIMEOUT_MS)
        except (MQBrokerException, MQClientException, RemotingException) as error:
            log.error("unlockBatchMQ exception, %s: %s", queues, error)
            return
        for queue in queues:
            process_queue = self.process_queue_table.get(queue)
            if process_queue is not None:
                process_queue.locked = False
            log.info("the message queue unlock OK, Group: %s %s", self.consumer_group, queue)

    def update_topic_subscribe_info(self, topic: str, info: set[MessageQueue]) -> None:
        """The queues of a topic changed; of one that is not subscribed to they are not kept."""
        if topic in self.subscription_inner:
            self.topic_subscribe_info_table[topic] = info

    def put_subscription(self, topic: str, subscription: SubscriptionData) -> None:
        """Subscribe, or subscribe to something else: brokers heed only what is newer, also after the clock went back.
        """
        old = self.subscription_inner.get(topic)
        if old is not None:
            subscription.subVersion = max(subscription.subVersion, old.subVersion + 1)
        self.subscription_inner[topic] = subscription

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """True when the topic is subscribed to and its queues are not known yet."""
        return topic in self.subscription_inner and topic not in self.topic_subscribe_info_table

    def do_rebalance(self) -> None:
        """Bring the held queues in line with the share that is due, topic by topic."""
        with self._rebalance_lock:
            for topic in list(self.subscription_inner):
                try:
                    self._rebalance_by_topic(topic)
                except (MQClientException, MQBrokerException, RemotingException) as error:
                    if not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
                        log.warning("rebalanceByTopic Exception: %s", error)
                except Exception:  # the other topics have no part in it
                    log.exception("rebalanceByTopic Exception, %s", topic)
            self._truncate_message_queue_not_my_topic()

    def _rebalance_by_topic(self, topic: str) -> None:
        mq_all = self.topic_subscribe_info_table.get(topic)
        if self.message_model is MessageModel.BROADCASTING:
            if mq_all is None:
                log.warning("doRebalance, %s, but the topic[%s] not exist.", self.consumer_group, topic)
            else:
                self._bring_in_line(topic, mq_all, mq_all)
            return
        cid_all = self.mq_client_factory.find_consumer_id_list(topic, self.consumer_group)
        if mq_all is None and not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            log.warning("doRebalance, %s, but the topic[%s] not exist.", self.consumer_group, topic)
        if cid_all is None:
            log.warning("doRebalance, %s %s, get consumer id list failed", self.consumer_group, topic)
        if mq_all is None or cid_all is None:
            return
        share = self._allocate(mq_all, cid_all)
        if share is not None and self._bring_in_line(topic, mq_all, share):
            log.info("rebalanced result changed. allocateMessageQueueStrategyName=%s, group=%s, topic=%s, clientId=%s, "
                     "mqAllSize=%d, cidAllSize=%d, rebalanceResultSize=%d",
                     self.allocate_message_queue_strategy.get_name(), self.consumer_group, topic,
                     self.mq_client_factory.client_id, len(mq_all), len(cid_all), len(share))

    def _allocate(self, mq_all: set[MessageQueue], cid_all: list[str]) -> set[MessageQueue] | None:
        try:
            return set(self.allocate_message_queue_strategy.allocate(
                self.consumer_group, self.mq_client_factory.client_id, sorted(mq_all), sorted(cid_all)))
        except BaseException as error:  # a strategy is the user's code
            self.causes.raised(
                error, "AllocateMessageQueueStrategy.allocate Exception. allocateMessageQueueStrategyName=%s",
                self.allocate_message_queue_strategy.get_name())
            return None

    def _truncate_message_queue_not_my_topic(self) -> None:
        for queue in list(self.process_queue_table):
            if queue.topic not in self.subscription_inner:
                self.process_queue_table.pop(queue).dropped = True
                log.info("doRebalance, %s, truncateMessageQueueNotMyTopic remove unnecessary mq, %s",
                         self.consumer_group, queue)

    def _bring_in_line(self, topic: str, mq_all: set[MessageQueue], share: set[MessageQueue]) -> bool:
        changed = self._give_up(topic, share)
        requests = []
        for queue in sorted(share):
            if queue not in self.process_queue_table:
                request = self._take(queue)
                if request is not None:
                    requests.append(request)
        changed = changed or bool(requests)
        if changed:
            self.message_queue_changed(topic, mq_all, share)
        # Differs: 4.9.8 pulls before it tells the brokers of the new version; they then refuse the first pull at times
        self.dispatch_pull_request(requests)
        return changed

    def _give_up(self, topic: str, share: set[MessageQueue]) -> bool:
        changed = False
        for queue, process_queue in list(self.process_queue_table.items()):
            if queue.topic != topic:
                continue
            stalled = queue in share and process_queue.is_pull_expired() \
                and self.consume_type() is ConsumeType.CONSUME_PASSIVELY
            if queue in share and not stalled:
                continue
            process_queue.dropped = True
            if self.remove_unnecessary_message_queue(queue, process_queue):
                del self.process_queue_table[queue]
                changed = True
                if stalled:
                    log.error("[BUG]doRebalance, %s, remove unnecessary mq, %s, because pull is pause, so try to fixed "
                              "it", self.consumer_group, queue)
                else:
                    log.info("doRebalance, %s, remove unnecessary mq, %s", self.consumer_group, queue)
        return changed

    def _take(self, queue: MessageQueue) -> PullRequest | None:
        process_queue = ProcessQueue()
        if self.is_order():
            if not self.lock(queue):
                log.warning("doRebalance, %s, add a new mq failed, %s, because lock failed", self.consumer_group, queue)
                return None
            process_queue.locked = True
        self.remove_dirty_offset(queue)
        try:
            next_offset = self.compute_pull_from_where_with_exception(queue)
        except (MQClientException, MQBrokerException, RemotingException) as error:
            log.info("doRebalance, %s, compute offset failed, %s: %s", self.consumer_group, queue, error)
            return None
        if next_offset < 0:
            log.warning("doRebalance, %s, add new mq failed, %s", self.consumer_group, queue)
            return None
        self.process_queue_table[queue] = process_queue
        log.info("doRebalance, %s, add a new mq, %s", self.consumer_group, queue)
        return PullRequest(self.consumer_group, queue, process_queue, next_offset)

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """The share of a topic is another one now."""
        raise NotImplementedError

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        """Store the offset of a queue that is given up; False to keep it for now."""
        raise NotImplementedError

    def consume_type(self) -> ConsumeType:
        """Who decides when to pull."""
        raise NotImplementedError

    def remove_dirty_offset(self, mq: MessageQueue) -> None:
        """Forget the offset in memory of a queue that is taken again."""
        raise NotImplementedError

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        """The offset to begin with; below 0 when unknown; MQClientException without an answer."""
        raise NotImplementedError

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        """Begin to pull."""
        raise NotImplementedError

    def remove_process_queue(self, mq: MessageQueue) -> None:
        """Drop a queue; the next rebalance takes it again from the stored offset."""
        with self._rebalance_lock:
            process_queue = self.process_queue_table.pop(mq, None)
            if process_queue is None:
                return
            was_dropped, process_queue.dropped = process_queue.dropped, True
            self.remove_unnecessary_message_queue(mq, process_queue)
            log.info("Fix Offset, %s, remove unnecessary mq, %s Droped: %s", self.consumer_group, mq, was_dropped)

    def destroy(self) -> None:
        """Drop all queues."""
        with self._rebalance_lock:
            for process_queue in self.process_queue_table.values():
                process_queue.dropped = True
            self.process_queue_table.clear()
