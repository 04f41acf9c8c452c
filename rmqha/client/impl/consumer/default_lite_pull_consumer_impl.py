"""The implementation of a lite pull consumer, and its position in each queue.

It pulls its queues in the background, and `poll` returns the cached messages:

    rebalance (or assign) --> a PullTask per queue --asynchronous pull--> broker
           ^ pause, full cache: retried shortly            | answer
           |   by PullMsgThread-<group>                    v
           +------------------------------------- ProcessQueue, consume_request_cache --> poll(), in the user's thread
    MonitorMessageQueueChangeThread: compares the queues of topics that have a change listener
"""
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection

from rmqha.client import exception
from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.consumer_config import LitePullConsumerConfig
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, MessageSelector, TopicMessageQueueChangeListener
from rmqha.client.consumer.offset_stores import NO_ANSWER, ReadOffsetType
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.consumer_impl import ConsumerImpl
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.client.impl.consumer.rebalance import RebalanceLitePullImpl
from rmqha.client.impl.mq_client_instance import FindInstance, MQClientInstance
from rmqha.client.life import ServiceState
from rmqha.client.results import PullCallback, PullResult, PullStatus
from rmqha.common import mix_all, subscriptions, sys_flags
from rmqha.common.lazy_dataclasses import dataclass, field, fields
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import client_bodies, response_code
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo
from rmqha.common.subscriptions import MessageModel, SubscriptionData
from rmqha.common.threads import ScheduledService
from rmqha.remoting.exception import RemotingException


@dataclass
class MessageQueueState:
    """The state of one queue. Offsets are queue offsets; -1 if not set.

    Java: org.apache.rocketmq.client.impl.consumer.AssignedMessageQueue$MessageQueueState (4.9.8)
    """

    process_queue: ProcessQueue = field(default_factory=ProcessQueue)
    paused: bool = False
    # The next offset to pull
    pull_offset: int = -1
    # The offset after the messages that the user got
    consume_offset: int = -1
    # The target of the user's seek
    seek_offset: int = -1


class AssignedMessageQueue:
    """The assigned queues and their states.

    Several threads read the table. It changes under `_lock`; the states change by single assignments.

    Java: org.apache.rocketmq.client.impl.consumer.AssignedMessageQueue (4.9.8)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[MessageQueue, MessageQueueState] = {}
        # The table of the rebalance, if the consumer subscribes
        self.process_queue_table: dict[MessageQueue, ProcessQueue] = {}

    def message_queues(self) -> list[MessageQueue]:
        """Return the queues that are assigned now."""
        return list(self._states)

    def state(self, mq: MessageQueue) -> MessageQueueState | None:
        """Return the state of a queue; None if it is not assigned."""
        return self._states.get(mq)

    def set_paused(self, queues: Collection[MessageQueue], paused: bool) -> None:
        """Pause or resume pulling these queues."""
        for mq in queues:
            state = self._states.get(mq)
            if state is not None:
                state.paused = paused

    def update(self, assigned: Collection[MessageQueue], topic: str | None = None) -> None:
        """Replace the assigned queues, of one topic or of all."""
        with self._lock:
            for mq in list(self._states):
                if (topic is None or mq.topic == topic) and mq not in assigned:
                    self._states.pop(mq).process_queue.dropped = True
            for mq in assigned:
                if mq not in self._states:
                    self._states[mq] = MessageQueueState(self.process_queue_table.get(mq) or ProcessQueue())

    def remove(self, topic: str) -> None:
        """Give up all queues of a topic."""
        # Differs: when a lite pull consumer gives up a topic, `poll` no longer returns its cached messages; 4.9.8 does
        # not mark its queues as dropped
        self.update((), topic)


log = logging.getLogger("RocketmqClient")

PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL = 50
PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL = 20
PULL_TIME_DELAY_MILLS_WHEN_PAUSE = 1_000
PULL_TIME_DELAY_MILLS_ON_EXCEPTION = 3_000
FIRST_COMPARISON_MS = 10_000
MIB = 1024 * 1024

_NONE, _SUBSCRIBE, _ASSIGN = range(3)


@dataclass(slots=True)
class ConsumeRequest:
    """The messages of one pull, waiting for `poll`.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultLitePullConsumerImpl$ConsumeRequest (4.9.8)
    """

    message_exts: list[MessageExt]
    message_queue: MessageQueue
    process_queue: ProcessQueue


class DefaultLitePullConsumerImpl(ConsumerImpl):
    """The implementation of DefaultLitePullConsumer.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultLitePullConsumerImpl (4.9.8)
    """

    # Differs: the pulls of a lite pull consumer are asynchronous and need no threads, where Java has 20 threads that
    # wait for answers
    def __init__(self, config: LitePullConsumerConfig, find_client: FindInstance) -> None:
        super().__init__(config, find_client)
        self.config: LitePullConsumerConfig = config
        self.rebalance_impl = RebalanceLitePullImpl(config, self.update_assign_queue_and_start_pull_task)
        self.assigned_message_queue = AssignedMessageQueue()
        self._subscription_type = _NONE  # guarded by _state_lock
        self._topic_to_sub_expression: dict[str, str] = {}  # of assigned topics; written before start
        # Notified when messages are cached or the consumer shuts down
        self._changed = threading.Condition()
        self._consume_request_cache: deque[ConsumeRequest] = deque()  # guarded by _changed
        self._task_table: dict[MessageQueue, PullTaskImpl] = {}  # guarded by _changed
        self._scheduler = ScheduledService(f"PullMsgThread-{config.consumer_group}")
        self._monitor = ScheduledService("MonitorMessageQueueChangeThread")
        self._topic_listeners: dict[str, TopicMessageQueueChangeListener] = {}  # guarded by _state_lock
        # Owned by the monitor once it is running
        self._message_queues_for_topic: dict[str, set[MessageQueue]] = {}
        self._next_auto_commit_ns = 0  # owned by the polling thread

    # ---- life

    def check_service_state(self) -> MQClientInstance:
        """Return the running instance; RuntimeError if the consumer is not running."""
        factory = self.mq_client_factory
        if self.service_state is not ServiceState.RUNNING or factory is None:
            raise RuntimeError("The consumer not running, please start it first.")
        return factory

    def start(self) -> None:
        """Start pulling the subscribed topics or assigned queues."""
        super().start()
        self._operate_after_running()

    def _check_config(self) -> None:
        config = self.config
        exception.check_consumer_group(config.consumer_group)
        if config.consumer_timeout_millis_when_suspend < config.broker_suspend_max_time_millis:
            raise MQClientException("Long polling mode, the consumer consumerTimeoutMillisWhenSuspend must greater "
                                    "than brokerSuspendMaxTimeMillis")

    def _start(self) -> None:
        self._check_config()
        self._prepare_client()
        self._register()
        self.mq_client_factory.start()
        log.info("the consumer [%s] start OK", self.group_name())

    def _operate_after_running(self) -> None:
        factory = self.mq_client_factory
        if self._subscription_type == _SUBSCRIBE:
            for topic in list(self.rebalance_impl.subscription_inner):
                factory.routes.update_topic_route_info_from_name_server(topic)
        elif self._subscription_type == _ASSIGN:
            self._start_pull_tasks(self.assigned_message_queue.message_queues())
        for topic in list(self._topic_listeners):
            self._message_queues_for_topic[topic] = self.fetch_message_queues(topic)
        self._monitor.schedule_at_fixed_rate(
            self._fetch_topic_message_queues_and_compare, FIRST_COMPARISON_MS,
            self.config.topic_metadata_check_interval_millis)
        factory.check_client_in_broker()
        factory.send_heartbeat_to_all_broker_with_lock()
        factory.rebalance_immediately()

    def shutdown(self) -> None:
        """Store the offsets, and unregister from the brokers. Idempotent."""
        with self._state_lock:
            if self.service_state is not ServiceState.RUNNING:
                return
            self.persist_consumer_offset()
            self.service_state = ServiceState.SHUTDOWN_ALREADY
        with self._changed:
            for task in self._task_table.values():
                task.cancelled = True
            self._task_table.clear()
            self._changed.notify_all()
        self.mq_client_factory.unregister_consumer(self.group_name())
        self._scheduler.shutdown()
        self._monitor.shutdown()
        self.mq_client_factory.shutdown()
        log.info("the consumer [%s] shutdown OK", self.group_name())

    # ---- queues

    def _set_subscription_type(self, kind: int) -> None:
        if self._subscription_type not in (_NONE, kind):
            raise RuntimeError("Subscribe and assign are mutually exclusive.")
        self._subscription_type = kind

    def subscribe(self, topic: str, selector: MessageSelector) -> None:
        """Receive this consumer's share of a topic."""
        with self._state_lock:
            self._set_subscription_type(_SUBSCRIBE)
            try:
                subscription = subscriptions.build(topic, selector.expression, selector.type)
            except ValueError as error:
                raise MQClientException("subscribe exception") from error
            self.rebalance_impl.put_subscription(topic, subscription)
            self.assigned_message_queue.process_queue_table = self.rebalance_impl.process_queue_table
        self._tell_brokers(topic)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving a topic."""
        self.rebalance_impl.subscription_inner.pop(topic, None)
        self._cancel_tasks(lambda mq: mq.topic == topic)
        self.assigned_message_queue.remove(topic)

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Receive exactly these queues, whatever the other consumers of the group have."""
        if not queues:
            raise ValueError("Message queues can not be null or empty.")
        with self._state_lock:
            self._set_subscription_type(_ASSIGN)
            self.assigned_message_queue.update(queues)
        if self.service_state is ServiceState.RUNNING:
            self._cancel_tasks(lambda mq: mq not in queues)
            self._start_pull_tasks(queues)

    def set_sub_expression_for_assign(self, topic: str, sub_expression: str) -> None:
        """Filter the assigned queues of a topic by tags. Call this before `start`."""
        if not sub_expression or not sub_expression.strip():
            raise ValueError("subExpression can not be null or empty.")
        with self._state_lock:
            if self.service_state is not ServiceState.CREATE_JUST:
                raise RuntimeError("setAssignTag only can be called before start.")
            self._set_subscription_type(_ASSIGN)
            self._topic_to_sub_expression[topic] = sub_expression

    def update_assign_queue_and_start_pull_task(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Pull the new share of a topic."""
        queues = mq_all if self.message_model() is MessageModel.BROADCASTING else mq_divided
        self.assigned_message_queue.update(queues, topic)
        self._cancel_tasks(lambda mq: mq.topic == topic and mq not in queues)
        self._start_pull_tasks(queues)

    def _cancel_tasks(self, is_over: Callable[[MessageQueue], bool]) -> None:
        with self._changed:
            for mq in [mq for mq in self._task_table if is_over(mq)]:
                self._task_table.pop(mq).cancelled = True

    def _start_pull_tasks(self, queues: Collection[MessageQueue]) -> None:
        with self._changed:
            for mq in queues:
                if mq not in self._task_table:
                    self._task_table[mq] = PullTaskImpl(self, mq)
                    self._scheduler.schedule(self._task_table[mq].run, 0)

    # ---- messages for the user

    def poll(self, timeout_ms: float) -> list[MessageExt]:
        """Return the messages of one pull; an empty list if none arrive in time."""
        self.check_service_state()
        if timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        if self.config.auto_commit:
            self._maybe_auto_commit()
        deadline_ns = time.monotonic_ns() + int(timeout_ms * 1e6)
        with self._changed:
            while True:
                while self._consume_request_cache:
                    request = self._consume_request_cache.popleft()
                    if not request.process_queue.dropped:
                        return self._taken(request)
                left_ns = deadline_ns - time.monotonic_ns()
                if left_ns <= 0 or self.service_state is not ServiceState.RUNNING:
                    return []
                self._changed.wait(left_ns / 1e9)

    def _taken(self, request: ConsumeRequest) -> list[MessageExt]:
        offset = request.process_queue.remove_message(request.message_exts)
        state = self.assigned_message_queue.state(request.message_queue)
        if state is not None:
            state.consume_offset = offset
        for msg in request.message_exts:
            msg.topic = self.config.without_namespace(msg.topic)
        return request.message_exts

    def _maybe_auto_commit(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_auto_commit_ns:
            self.commit_all()
            self._next_auto_commit_ns = now_ns + self.config.auto_commit_interval_millis * 1_000_000

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop pulling these queues for now; `poll` still returns the cached messages."""
        self.assigned_message_queue.set_paused(queues, True)

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Pull these queues again."""
        self.assigned_message_queue.set_paused(queues, False)

    def seek(self, mq: MessageQueue, offset: int) -> None:
        """Continue at another offset; the cached messages are discarded."""
        state = self.assigned_message_queue.state(mq)
        if state is None:
            reason = ", may be rebalancing" if self._subscription_type == _SUBSCRIBE else ""
            raise MQClientException(f"The message queue is not in assigned list{reason}, message queue: {mq}")
        admin = self.check_service_state().mq_admin_impl
        least, most = admin.min_offset(mq), admin.max_offset(mq)
        if not least <= offset <= most:
            raise MQClientException(f"Seek offset illegal, seek offset = {offset}, min offset = {least}, max offset = "
                                    f"{most}")
        with self._changed:
            old = self._task_table.pop(mq, None)
            if old is not None:
                old.cancelled = True
            state.process_queue.clear()
            kept = [request for request in self._consume_request_cache if request.message_queue != mq]
            self._consume_request_cache = deque(kept)
            state.seek_offset = offset
        self._start_pull_tasks([mq])

    # ---- offsets

    def commit_all(self) -> None:
        """Commit all messages that the user got; the offsets are sent to the brokers every 5 s and at shutdown."""
        self.commit({mq: state.consume_offset for mq in self.assigned_message_queue.message_queues()
                     if (state := self.assigned_message_queue.state(mq)) is not None and state.consume_offset != -1},
                    persist=False)

    def commit(self, offsets: dict[MessageQueue, int], persist: bool) -> None:
        """Set these offsets of assigned queues; with `persist` send them to the brokers now."""
        self.check_service_state()
        for mq, offset in offsets.items():
            state = self.assigned_message_queue.state(mq)
            if offset == -1:
                log.error("consumerOffset is -1 in messageQueue [%s].", mq)
            elif state is not None and not state.process_queue.dropped:
                self.offset_store.update_offset(mq, offset, increase_only=False)
        if persist:
            for mq in offsets:
                self.offset_store.persist(mq)

    def committed(self, mq: MessageQueue) -> int:
        """Return the group's offset; -1 if it has none."""
        self.check_service_state()
        offset = self.offset_store.read_offset(mq, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
        if offset == NO_ANSWER:
            raise MQClientException("Fetch consume offset from broker exception")
        return offset

    # ---- pulling, on the scheduler's and the remoting client's threads

    def is_flow_controlled(self, process_queue: ProcessQueue) -> bool:
        """Return True if enough messages are cached, of the queue or of all queues."""
        config = self.config
        return len(self._consume_request_cache) * config.pull_batch_size > config.pull_threshold_for_all \
            or process_queue.msg_count > config.pull_threshold_for_queue \
            or process_queue.msg_size // MIB > config.pull_threshold_size_for_queue \
            or process_queue.get_max_span() > config.consume_max_span

    def run_later(self, task: "PullTaskImpl", delay_ms: float) -> None:
        """Run the task of a queue again after a delay."""
        self._scheduler.schedule(task.run, delay_ms)

    def run_after_failure(self, task: "PullTaskImpl", error: Exception) -> None:
        """Run the task of a queue again after its pull failed."""
        self.pull_retries.repeat(
            task.message_queue, error, task.run, self.config.pull_time_delay_mills_when_exception,
            self._scheduler.schedule)

    def subscription_of(self, topic: str) -> SubscriptionData:
        """Return the subscription to a topic."""
        if self._subscription_type == _SUBSCRIBE:
            return self.rebalance_impl.subscription_inner[topic]
        return subscriptions.build_subscription_data(topic, self._topic_to_sub_expression.get(topic, "*"))

    def found(self, task: "PullTaskImpl", state: MessageQueueState, result: PullResult) -> None:
        """Cache pulled messages, unless the user has called `seek` or the queue was given up meanwhile."""
        config = self.config
        context = self.hooks.before(config, self.group_name(), result.msg_found_list, task.message_queue)
        self.hooks.after(context, config, ConsumeConcurrentlyStatus.CONSUME_SUCCESS.name, True)
        with self._changed:
            if task.cancelled or state.process_queue.dropped or state.seek_offset != -1:
                return
            if result.pull_status is PullStatus.FOUND and result.msg_found_list:
                state.process_queue.put_message(result.msg_found_list)
                self._consume_request_cache.append(
                    ConsumeRequest(result.msg_found_list, task.message_queue, state.process_queue))
                self._changed.notify()
            state.pull_offset = result.next_begin_offset

    # ---- topics

    def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return all queues of a topic, as the user knows them."""
        queues = self.check_service_state().mq_admin_impl.fetch_subscribe_message_queues(topic)
        return set(self.config.queues_without_namespace(queues))

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Notify `listener` when the queues of a topic change."""
        with self._state_lock:
            self._topic_listeners[topic] = listener
        if self.service_state is ServiceState.RUNNING:
            self._message_queues_for_topic[topic] = self.fetch_message_queues(topic)

    def _fetch_topic_message_queues_and_compare(self) -> None:
        for topic, listener in list(self._topic_listeners.items()):
            queues = self.fetch_message_queues(topic)
            if queues != self._message_queues_for_topic.get(topic):
                self._message_queues_for_topic[topic] = queues
                listener.on_changed(topic, queues)

    # ---- MQConsumerInner

    def persist_consumer_offset(self) -> None:
        """Store the group's offsets."""
        if self.service_state is not ServiceState.RUNNING:
            return
        queues = self.assigned_message_queue.message_queues()
        if self._subscription_type == _SUBSCRIBE:
            queues = list(self.rebalance_impl.process_queue_table)
        self.offset_store.persist_all(queues)

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """Return the settings, the subscriptions and the start time, for the admin commands."""
        info = ConsumerRunningInfo()
        config = self.config
        info.properties.update({item.name: mix_all.property_text(getattr(config, item.name))
                                for item in fields(ClientConfig)})
        info.properties[client_bodies.PROP_CONSUMER_START_TIMESTAMP] = str(self.consumer_start_timestamp)
        info.subscriptionSet.extend(sorted(self.subscriptions()))
        return info


class PullTaskImpl:
    """Pulls one queue repeatedly until it is cancelled, with one pull at a time.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultLitePullConsumerImpl$PullTaskImpl (4.9.8)
    """

    def __init__(self, consumer_impl: DefaultLitePullConsumerImpl, message_queue: MessageQueue) -> None:
        self._impl = consumer_impl
        self.message_queue = message_queue
        # Set once, when the queue is given up or by `seek`
        self.cancelled = False

    def run(self) -> None:
        """Pull, or check again shortly. Runs on the scheduler's thread."""
        if self.cancelled:
            return
        state = self._impl.assigned_message_queue.state(self.message_queue)
        if state is None or state.process_queue.dropped:
            log.info("The message queue not be able to poll, because it's dropped. group=%s, messageQueue=%s",
                     self._impl.group_name(), self.message_queue)
        elif state.paused:
            self._impl.run_later(self, PULL_TIME_DELAY_MILLS_WHEN_PAUSE)
        elif self._impl.is_flow_controlled(state.process_queue):
            self._impl.run_later(self, PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL)
        else:
            self._pull_from(state)

    def _pull_from(self, state: MessageQueueState) -> None:
        try:
            offset = self._next_pull_offset(state)
        except Exception as error:
            # Retry after any error, or the queue would stall forever
            log.error("Failed to get next pull offset: %s", error,
                      exc_info=not isinstance(error, (MQClientException, MQBrokerException, RemotingException)))
            offset = -1
        if offset < 0:
            self._impl.run_later(self, PULL_TIME_DELAY_MILLS_ON_EXCEPTION)
            return
        try:
            self._pull(state, offset)
        except Exception as error:
            # For example, the broker is unknown, or the topic was unsubscribed meanwhile
            self._failed(error)

    def _next_pull_offset(self, state: MessageQueueState) -> int:
        if state.seek_offset != -1:
            state.pull_offset = state.consume_offset = state.seek_offset
            state.seek_offset = -1
        if state.pull_offset == -1:
            return self._impl.rebalance_impl.compute_pull_from_where_with_exception(self.message_queue)
        return state.pull_offset

    def _pull(self, state: MessageQueueState, offset: int) -> None:
        impl, config = self._impl, self._impl.config
        subscription = impl.subscription_of(self.message_queue.topic)
        is_tag_type = subscriptions.is_tag_type(subscription.expressionType)

        def on_success(result: PullResult) -> None:
            try:
                impl.found(self, state, impl.pull_api_wrapper.process_pull_result(
                    self.message_queue, result, subscription))
            except Exception as error:
                # For example, a record could not be decoded
                self._failed(error)
                return
            if not self.cancelled:
                impl.run_later(self, 0)

        impl.pull_api_wrapper.pull_kernel_impl(
            self.message_queue, subscription.subString, subscription.expressionType,
            0 if is_tag_type else subscription.subVersion, offset, config.pull_batch_size,
            sys_flags.build_pull_sys_flag(False, True, True, False, True), 0, config.broker_suspend_max_time_millis,
            config.consumer_timeout_millis_when_suspend, PullCallback(on_success, self._failed))

    def _failed(self, error: Exception) -> None:
        if self.cancelled:
            return
        log.error("An error occurred in pull message process. %s: %s", self.message_queue, error)
        if isinstance(error, MQBrokerException) and error.response_code == response_code.FLOW_CONTROL:
            self._impl.run_later(self, PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL)
        else:
            self._impl.run_after_failure(self, error)
