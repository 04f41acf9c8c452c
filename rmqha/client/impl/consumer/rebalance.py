"""Rebalancing: how the queues of a topic are divided among the consumers of a group.

- `RebalanceImpl`: determines which queues this consumer pulls. Subclasses: `RebalancePullImpl` for pull consumers,
  `RebalancePushImpl` for push consumers, `RebalanceLitePullImpl` for lite pull consumers.
- `RebalanceService`: the thread that rebalances.

    every 20 s, at a consumer's start, or when a broker says that the group changed (code 40)
        --> RebalanceService --> RebalanceImpl.do_rebalance of each consumer
"""
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueStrategy
from rmqha.client.consumer.consumer_config import LitePullConsumerConfig, PullConsumerConfig, PushConsumerConfig
from rmqha.client.consumer.offset_stores import LocalFileOffsetStore, ReadOffsetType, RemoteBrokerOffsetStore
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_routes import ClientRoutes
from rmqha.client.impl.consumer.process_queue import ProcessQueue, PullRequest
from rmqha.client.life import CauseLog
from rmqha.common import mix_all, util_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.client_bodies import LockBatchRequestBody, UnlockBatchRequestBody
from rmqha.common.service_thread import ServiceThread
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.common.threads import ScheduledService
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.mq_admin_impl import MQAdminImpl
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl


log = logging.getLogger("RocketmqClient")

LOCK_TIMEOUT_MS = 1000


class RebalancingClient(Protocol):
    """The client instance, as far as rebalance asks it."""

    client_id: str
    mq_client_api_impl: "MQClientAPIImpl"
    mq_admin_impl: "MQAdminImpl"
    routes: ClientRoutes
    scheduled_executor_service: ScheduledService

    def send_heartbeat_to_all_broker_with_lock(self, wait: bool = False) -> None:
        """Send heartbeats, unless another thread is at it: then after it with `wait`, else not at all."""


class RebalanceImpl:
    """Base: compares the queues that are held with the share that is due, gives up some and takes others.

    `process_queue_table` is read by many threads and written under `_rebalance_lock`; who iterates takes a list first.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceImpl (4.9.8)
    """

    # From the consumer's start on:
    consumer_group: str
    message_model: MessageModel
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    mq_client_factory: RebalancingClient
    offset_store: RemoteBrokerOffsetStore | LocalFileOffsetStore

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
        addr = self.mq_client_factory.routes.find_broker_address_in_publish(broker_name)
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
        addr = self.mq_client_factory.routes.find_broker_address_in_publish(broker_name)
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
        cid_all = self.mq_client_factory.routes.find_consumer_id_list(topic, self.consumer_group)
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


class RebalancePullImpl(RebalanceImpl):
    """Shares the queues of the registered topics out; pulling is the user's.

    Java: org.apache.rocketmq.client.impl.consumer.RebalancePullImpl (4.9.8)
    """

    def __init__(self, config: PullConsumerConfig | LitePullConsumerConfig) -> None:
        super().__init__()
        self._listening = config

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Tell who wants to know."""
        listener = self._listening.message_queue_listener
        if listener is None:
            return
        try:
            listener.message_queue_changed(topic, mq_all, mq_divided)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "messageQueueChanged exception")

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        self.offset_store.persist(mq)
        self.offset_store.remove_offset(mq)
        return True

    def consume_type(self) -> ConsumeType:
        return ConsumeType.CONSUME_ACTIVELY

    def remove_dirty_offset(self, mq: MessageQueue) -> None:
        self.offset_store.remove_offset(mq)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        return 0

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        """Nothing to do."""


UNLOCK_DELAY_MS = 20_000
_CONSUME_LOCK_S = 1.0


class RebalancePushImpl(RebalanceImpl):
    """Begins each new queue where the group left off, or where a new group is to begin.

    Java: org.apache.rocketmq.client.impl.consumer.RebalancePushImpl (4.9.8)
    """

    consume_orderly = False  # from the consumer's start on: whether its listener is an orderly one

    def __init__(self, config: PushConsumerConfig, pull: Callable[[PullRequest], None]) -> None:
        super().__init__()
        self._config = config
        self._pull = pull

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Share the limits of the topic among its queues, and tell the brokers that the subscription is newer."""
        subscription = self.subscription_inner[topic]
        new_version = max(util_all.current_time_millis(), subscription.subVersion + 1)  # the clock may have gone back
        log.info("%s Rebalance changed, also update version: %d, %d", topic, subscription.subVersion, new_version)
        subscription.subVersion = new_version
        config, queues = self._config, len(self.process_queue_table)
        if queues and config.pull_threshold_for_topic != -1:
            config.pull_threshold_for_queue = max(1, config.pull_threshold_for_topic // queues)
        if queues and config.pull_threshold_size_for_topic != -1:
            config.pull_threshold_size_for_queue = max(1, config.pull_threshold_size_for_topic // queues)
        # Differs: 4.9.8 gives up when a heartbeat is under way; brokers then refuse the pulls that follow
        self.mq_client_factory.send_heartbeat_to_all_broker_with_lock(wait=True)

    def is_order(self) -> bool:
        return self.consume_orderly and self.message_model is MessageModel.CLUSTERING

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        self.offset_store.persist(mq)
        self.offset_store.remove_offset(mq)
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
        self.offset_store.remove_offset(mq)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        last_offset = self.offset_store.read_offset(mq, ReadOffsetType.READ_FROM_STORE)
        if last_offset >= 0:
            return last_offset
        if last_offset != -1:  # no answer: try again at the next rebalance
            return -1
        return first_offset(mq, self._config.consume_from_where, self._config.consume_timestamp,
                            self.mq_client_factory.mq_admin_impl)

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        for pull_request in pull_request_list:
            self._pull(pull_request)
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


ShareTaker = Callable[[str, set[MessageQueue], set[MessageQueue]], None]  # topic, its queues, those to pull


class RebalanceLitePullImpl(RebalancePullImpl):
    """Hands the share of each topic to the consumer, which pulls on its own: each queue has a task.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceLitePullImpl (4.9.8)
    """

    def __init__(self, config: LitePullConsumerConfig, take_share: ShareTaker) -> None:
        super().__init__(config)
        self._config = config
        self._take_share = take_share

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Pull the new share, and tell the listener."""
        self._take_share(topic, mq_all, mq_divided)
        super().message_queue_changed(topic, mq_all, mq_divided)

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        last_offset = self.offset_store.read_offset(mq, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
        if last_offset >= 0:
            return last_offset
        if last_offset != -1:  # no answer
            return -1
        return first_offset(mq, self._config.consume_from_where, self._config.consume_timestamp,
                            self.mq_client_factory.mq_admin_impl)


WAIT_INTERVAL_MS = 20_000


class RebalanceService(ServiceThread):
    """Rebalances all consumers of an instance.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceService (4.9.8)
    """

    def __init__(self, do_rebalance: Callable[[], None]) -> None:
        super().__init__()
        self.daemon = True
        self._do_rebalance = do_rebalance

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self.wait_for_running(WAIT_INTERVAL_MS)
            if not self.stopped:
                self._do_rebalance()
        log.info("%s service end", self.get_service_name())
