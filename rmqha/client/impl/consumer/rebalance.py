"""Rebalancing: how the queues of a topic are divided among the consumers of a group.

- `RebalanceImpl`: determines which queues this consumer pulls. Subclasses: `RebalancePullImpl` for pull consumers,
  `RebalancePushImpl` for push consumers, `RebalanceLitePullImpl` for lite pull consumers.
- `RebalanceService`: the thread that rebalances.

    every 20 s, at a consumer's start, or when a broker reports that the group changed (code 40)
        --> RebalanceService --> RebalanceImpl.do_rebalance of each consumer

The consumers of a group have no leader and do not talk to each other. Each reads the same two lists, the topic's queues
(from the route) and the group's client ids (from a broker), sorts both, applies the same strategy, and takes its own
share of the result. If the lists are the same, the shares are disjoint and complete.

For a moment they may differ, for example while a consumer is starting or stopping. Then two consumers may pull the same
queue, or none may. Both end with the next rebalance, which the broker triggers when it sees the group change, and which
the timer repeats after 20 s in case that notification was lost. Messages consumed twice meanwhile are allowed (at least
once). None is lost, because the new owner starts at the offset that the broker has stored. A consumer that gives a
queue up marks it as dropped, so that results that arrive later are not committed over the new owner's offset.

For an orderly listener, two owners are not allowed: they would consume the same queue out of order. So its queues are
locked. The lock is kept in the memory of the queue's broker (the master), for one client id of the group. A consumer
takes a queue only if it gets the lock; otherwise it tries again at the next rebalance. It renews its locks every 20 s.
The broker gives a lock to another client 60 s after the last renewal, but the consumer stops calling its listener after
30 s without one (`ProcessQueue.is_lock_expired`). The consumer thus stops first, even if it can't reach the broker.
Only a call of the listener that is already running is not interrupted.

An orderly queue is given up in this order: mark it as dropped, store its offset, wait up to 1 s until the listener is
not running (`consume_lock`), unlock. If the listener is still running, the queue stays in the table, marked as dropped
and locked, and the next rebalance tries again: unlocking it now would let another client call its listener in parallel.
If messages are still cached, the unlock follows 20 s later. Because the offset may change between taking a queue and
getting its lock, the first pull under the lock reads the offset from the broker again (`previously_locked`).
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
    """The part of the client instance that rebalance uses."""

    client_id: str
    mq_client_api_impl: "MQClientAPIImpl"
    mq_admin_impl: "MQAdminImpl"
    routes: ClientRoutes
    scheduled_executor_service: ScheduledService

    def send_heartbeat_to_all_broker_with_lock(self, wait: bool = False) -> None:
        """Send heartbeats. If another thread is sending them, `wait` for it first, or else do nothing."""


class RebalanceImpl:
    """Base class: compares the consumer's queues with its share, gives some up and takes others.

    `process_queue_table` is read by many threads and written under `_rebalance_lock`. A thread that iterates over it
    copies the items to a list first.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceImpl (4.9.8)
    """

    # Set by the consumer's start:
    consumer_group: str
    message_model: MessageModel
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    mq_client_factory: RebalancingClient
    offset_store: RemoteBrokerOffsetStore | LocalFileOffsetStore

    def __init__(self) -> None:
        self.process_queue_table: dict[MessageQueue, ProcessQueue] = {}
        # By topic. Sets are replaced, never changed
        self.topic_subscribe_info_table: dict[str, set[MessageQueue]] = {}
        self.subscription_inner: dict[str, SubscriptionData] = {}  # by topic
        self._rebalance_lock = threading.RLock()
        self.causes = CauseLog(log)  # errors of the user's strategy and listener

    def is_order(self) -> bool:
        """Return True if queues must be locked at their brokers before they are consumed."""
        return False

    def unlock(self, mq: MessageQueue) -> None:
        """Release the lock of a queue."""
        self._unlock(mq.brokerName, {mq})

    def unlock_all(self) -> None:
        """Release all locks."""
        for broker_name, queues in self._queues_by_broker().items():
            self._unlock(broker_name, queues)

    def lock(self, mq: MessageQueue) -> bool:
        """Lock a queue for this client, or renew its lock; return False if that failed, e.g. another client has it."""
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
        """Lock queues; return those that are locked for this client now, or None if the request failed."""
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
        """Use the new queues of a topic; ignore a topic that is not subscribed to."""
        if topic in self.subscription_inner:
            self.topic_subscribe_info_table[topic] = info

    def put_subscription(self, topic: str, subscription: SubscriptionData) -> None:
        """Add or replace a subscription.

        Brokers accept only a newer version, so it always increases, even if the clock was set back.
        """
        old = self.subscription_inner.get(topic)
        if old is not None:
            subscription.subVersion = max(subscription.subVersion, old.subVersion + 1)
        self.subscription_inner[topic] = subscription

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """Return True if the topic is subscribed to and its queues are not known yet."""
        return topic in self.subscription_inner and topic not in self.topic_subscribe_info_table

    def do_rebalance(self) -> None:
        """Give up and take queues according to this consumer's share, topic by topic."""
        with self._rebalance_lock:
            for topic in list(self.subscription_inner):
                try:
                    self._rebalance_by_topic(topic)
                except (MQClientException, MQBrokerException, RemotingException) as error:
                    if not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
                        log.warning("rebalanceByTopic Exception: %s", error)
                except Exception:
                    # The other topics are still rebalanced
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
        except BaseException as error:  # strategies are the user's code
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
        # Differs: a consumer sends the new version of its subscription to the brokers before it pulls; 4.9.8 pulls
        # first, and brokers sometimes refuse the first pull
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
        """Handle a change of this consumer's share of a topic."""
        raise NotImplementedError

    def remove_unnecessary_message_queue(self, mq: MessageQueue, pq: ProcessQueue) -> bool:
        """Store the offset of a queue that is given up; return False to keep the queue for now."""
        raise NotImplementedError

    def consume_type(self) -> ConsumeType:
        """Return whether the library (passively) or the user (actively) decides when to pull."""
        raise NotImplementedError

    def remove_dirty_offset(self, mq: MessageQueue) -> None:
        """Forget the old offset in memory of a queue that is being taken."""
        raise NotImplementedError

    def compute_pull_from_where_with_exception(self, mq: MessageQueue) -> int:
        """Return the offset to start at; negative if it is unknown; MQClientException without an answer."""
        raise NotImplementedError

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        """Start pulling."""
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
    """Divides the queues of the registered topics; the user pulls them.

    Java: org.apache.rocketmq.client.impl.consumer.RebalancePullImpl (4.9.8)
    """

    def __init__(self, config: PullConsumerConfig | LitePullConsumerConfig) -> None:
        super().__init__()
        self._listening = config
        # By topic, as of the last change. `process_queue_table` gets the queues of a new share one after the other
        self._shares: dict[str, frozenset[MessageQueue]] = {}

    def share(self, topic: str) -> set[MessageQueue]:
        """Return this consumer's queues of a topic."""
        # Differs: the user of a pull consumer never sees a part of a new share; 4.9.8 returns the queues taken so far
        return {queue for queue in self._shares.get(topic, ()) if queue in self.process_queue_table}

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Publish the new share, and notify the user's listener."""
        # A copy, because the listener gets the set itself
        self._shares[topic] = frozenset(mq_divided)
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
        """Do nothing: the user pulls."""


UNLOCK_DELAY_MS = 20_000
_CONSUME_LOCK_S = 1.0


class RebalancePushImpl(RebalanceImpl):
    """Starts each new queue where the group left off, or at the configured start of a new group.

    Java: org.apache.rocketmq.client.impl.consumer.RebalancePushImpl (4.9.8)
    """

    # True if the consumer has an orderly listener; set by its start
    consume_orderly = False

    def __init__(self, config: PushConsumerConfig, pull: Callable[[PullRequest], None]) -> None:
        super().__init__()
        self._config = config
        self._pull = pull

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Divide the limits of the topic among its queues, and send the new subscription version to the brokers."""
        subscription = self.subscription_inner[topic]
        # The version must increase even if the clock was set back
        new_version = max(util_all.current_time_millis(), subscription.subVersion + 1)
        log.info("%s Rebalance changed, also update version: %d, %d", topic, subscription.subVersion, new_version)
        subscription.subVersion = new_version
        config, queues = self._config, len(self.process_queue_table)
        if queues and config.pull_threshold_for_topic != -1:
            config.pull_threshold_for_queue = max(1, config.pull_threshold_for_topic // queues)
        if queues and config.pull_threshold_size_for_topic != -1:
            config.pull_threshold_size_for_queue = max(1, config.pull_threshold_size_for_topic // queues)
        # Differs: the heartbeat after a rebalance waits while another one is being sent; 4.9.8 skips it then, and
        # brokers refuse the following pulls
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
        """Unlock at once, or 20 s later if messages are still cached, which other threads may be consuming."""
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
        # The broker did not answer: try again at the next rebalance
        if last_offset != -1:
            return -1
        return first_offset(mq, self._config.consume_from_where, self._config.consume_timestamp,
                            self.mq_client_factory.mq_admin_impl)

    def dispatch_pull_request(self, pull_request_list: list[PullRequest]) -> None:
        for pull_request in pull_request_list:
            self._pull(pull_request)
            log.info("doRebalance, %s, add a new pull request %s", self.consumer_group, pull_request)


def first_offset(mq: MessageQueue, where: ConsumeFromWhere, consume_timestamp: str, admin: "MQAdminImpl") -> int:
    """Return the offset at which a group without an offset of the queue starts.

    `consume_timestamp` is yyyyMMddHHmmss in local time.
    """
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
    """Return the first offset that the queue still has.

    Differs: a group that consumes from the beginning starts at the first offset that the queue still has; the original
    starts at 0. If the beginning of the queue was deleted, it then waits 20 to 33 s until it can continue.
    """
    try:
        return max(0, admin.min_offset(mq))
    except (MQClientException, MQBrokerException, RemotingException) as error:
        # Without a master, a slave may still have messages
        log.warning("minOffset of %s is unknown, starting at 0: %s", mq, error)
        return 0


# Arguments: a topic, its queues, and the queues to pull
ShareTaker = Callable[[str, set[MessageQueue], set[MessageQueue]], None]


class RebalanceLitePullImpl(RebalancePullImpl):
    """Passes the share of each topic to the consumer, which pulls each queue with a task.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceLitePullImpl (4.9.8)
    """

    def __init__(self, config: LitePullConsumerConfig, take_share: ShareTaker) -> None:
        super().__init__(config)
        self._config = config
        self._take_share = take_share

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Pull the new share, and notify the listener."""
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
    """The thread that rebalances all consumers of an instance.

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
