"""The implementation of a push consumer, and the checks of its settings.

It pulls each of its queues in a loop, and passes the messages to the consume threads:

    RebalanceService --PullRequest--> PullMessageService --asynchronous pull--> broker
         (per queue)                          ^                                    | answer, after 15 s if no message
                                              |                                    v
                                              +------- next offset ------- callback (remoting client's thread)
                                                                                   | messages
                                                                                   v
                                                                 ProcessQueue, ConsumeMessageConcurrentlyService
"""
import logging
import time
from collections.abc import Callable
from datetime import datetime

from rmqha.client import exception
from rmqha.client.consumer.consumer_config import PushConsumerConfig
from rmqha.client.consumer.listeners import MessageListenerConcurrently, MessageListenerOrderly
from rmqha.client.consumer.offset_stores import ReadOffsetType
from rmqha.client.consumer_stats_manager import ConsumerStatsManager
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.consume_message_concurrently_service import (
    ConsumeMessageConcurrentlyService,
    ConsumeMessageDeferredService,
    ConsumeMessageService,
    Consuming,
    MessageListenerDeferred,
)
from rmqha.client.impl.consumer.consume_message_orderly_service import ConsumeMessageOrderlyService
from rmqha.client.impl.consumer.consumer_impl import ConsumerImpl
from rmqha.client.impl.consumer.process_queue import ProcessQueue, PullRequest
from rmqha.client.impl.consumer.rebalance import RebalancePushImpl
from rmqha.client.impl.mq_client_instance import FindInstance
from rmqha.client.life import ServiceState
from rmqha.client.results import PullCallback, PullResult, PullStatus
from rmqha.common import mix_all, subscriptions, sys_flags, util_all
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import client_bodies, namespace_util, response_code
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo, ProcessQueueInfo
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.exception import RemotingException

# Name in error texts, attribute, minimum, maximum, and whether -1 is allowed (no limit)
_RANGES = (
    ("consumeThreadMin", "consume_thread_min", 1, 1000, False),
    ("consumeThreadMax", "consume_thread_max", 1, 1000, False),
    ("consumeConcurrentlyMaxSpan", "consume_concurrently_max_span", 1, 65535, False),
    ("pullThresholdForQueue", "pull_threshold_for_queue", 1, 65535, False),
    ("pullThresholdForTopic", "pull_threshold_for_topic", 1, 6553500, True),
    ("pullThresholdSizeForQueue", "pull_threshold_size_for_queue", 1, 1024, False),
    ("pullThresholdSizeForTopic", "pull_threshold_size_for_topic", 1, 102400, True),
    ("pullInterval", "pull_interval", 0, 65535, False),
    ("consumeMessageBatchMaxSize", "consume_message_batch_max_size", 1, 1024, False),
    ("pullBatchSize", "pull_batch_size", 1, 1024, False),
)


def check_push_config(config: PushConsumerConfig) -> None:
    """Raise MQClientException for the first invalid setting.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl#checkConfig (4.9.8)
    """
    exception.check_consumer_group(config.consumer_group)
    for name in ("message_model", "consume_from_where", "allocate_message_queue_strategy", "message_listener"):
        if getattr(config, name) is None:
            raise MQClientException(f"{_camel_case(name)} is null")
    _check_timestamp(config.consume_timestamp)
    for name, attribute, least, most, may_be_off in _RANGES:
        value = getattr(config, attribute)
        if not least <= value <= most and not (may_be_off and value == -1):
            raise MQClientException(f"{name} Out of range [{least}, {most}]")
    if config.consume_thread_min > config.consume_thread_max:
        raise MQClientException(f"consumeThreadMin ({config.consume_thread_min}) is larger than consumeThreadMax "
                                f"({config.consume_thread_max})")


def _check_timestamp(text: str) -> None:
    try:
        datetime.strptime(text, "%Y%m%d%H%M%S")
    except ValueError:
        raise MQClientException(
            f"consumeTimestamp is invalid, the valid format is yyyyMMddHHmmss,but received {text}") from None


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


log = logging.getLogger("RocketmqClient")

PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL = 50
PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL = 20
PULL_TIME_DELAY_MILLS_WHEN_SUSPEND = 1_000
BROKER_SUSPEND_MAX_TIME_MILLIS = 15_000
CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND = 30_000
OFFSET_ILLEGAL_DELAY_MS = 10_000
SEND_BACK_TIMEOUT_MS = 5_000
DEFAULT_MAX_RECONSUME_TIMES = 16
FLOW_CONTROL_LOG_EVERY = 1_000
MIB = 1024 * 1024

# The settings that admin commands show
_TOLD = (
    "consumer_group", "message_model", "consume_from_where", "consume_timestamp", "consume_thread_min",
    "consume_thread_max", "consume_concurrently_max_span", "pull_threshold_for_queue", "pull_threshold_size_for_queue",
    "pull_threshold_for_topic", "pull_threshold_size_for_topic", "pull_interval", "consume_message_batch_max_size",
    "pull_batch_size", "post_subscription_when_pull", "max_reconsume_times", "suspend_current_queue_time_millis",
    "consume_timeout", "await_termination_millis_when_shutdown", "unit_mode")


class DefaultMQPushConsumerImpl(ConsumerImpl):
    """The implementation of DefaultMQPushConsumer.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl (4.9.8)
    """

    kind = "PushConsumer"
    rebalance_impl: RebalancePushImpl

    def __init__(
        self, config: PushConsumerConfig, find_client: FindInstance, check_process: Callable[[], None]
    ) -> None:
        super().__init__(config, find_client)
        self.config: PushConsumerConfig = config
        self._check_process = check_process
        self.rebalance_impl = RebalancePushImpl(config, self.execute_pull_request_immediately)
        self.consume_message_service: ConsumeMessageService = None  # type: ignore[assignment]  # set by start
        self.consume_orderly = False  # set by start
        # Set by suspend and resume, and read by the pull thread
        self.pause = False
        self._flow_control_times = 0  # owned by the pull thread

    @property
    def consumer_stats_manager(self) -> ConsumerStatsManager:
        """The statistics that all consumers of the instance share."""
        return self.mq_client_factory.consumer_stats_manager

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return all queues of a topic that can be pulled."""
        queues = self.rebalance_impl.topic_subscribe_info_table.get(topic)
        if queues is None:
            self.mq_client_factory.routes.update_topic_route_info_from_name_server(topic)
            queues = self.rebalance_impl.topic_subscribe_info_table.get(topic)
        if queues is None:
            raise MQClientException(f"The topic[{topic}] not exist")
        return set(queues)

    # ---- pulling, on the pull thread

    def pull_message(self, pull_request: PullRequest) -> None:
        """Send one pull, unless the queue was dropped, its cache is full, or the consumer is not running."""
        process_queue = pull_request.process_queue
        if process_queue.dropped:
            log.info("the pull request[%s] is dropped.", pull_request)
            return
        process_queue.last_pull_ms = util_all.monotonic_millis()
        if self.service_state is ServiceState.SHUTDOWN_ALREADY:
            log.info("the pull request[%s] is dropped, the consumer is shut down.", pull_request)
        elif self.service_state is not ServiceState.RUNNING:
            log.warning("pullMessage exception, consumer state not ok: %s", self.service_state.name)
            self._execute_pull_request_later_after_exception(pull_request)
        elif self.pause:
            log.warning("consumer was paused, execute pull request later. instanceName=%s, group=%s",
                        self.config.instance_name, self.group_name())
            self.execute_pull_request_later(pull_request, PULL_TIME_DELAY_MILLS_WHEN_SUSPEND)
        elif self._is_full(process_queue, pull_request):
            self.execute_pull_request_later(pull_request, PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL)
        else:
            self._pull(pull_request)

    def _is_full(self, process_queue: ProcessQueue, pull_request: PullRequest) -> bool:
        config = self.config
        if process_queue.msg_count > config.pull_threshold_for_queue:
            why = f"the cached message count exceeds the threshold {config.pull_threshold_for_queue}"
        elif process_queue.msg_size // MIB > config.pull_threshold_size_for_queue:
            why = f"the cached message size exceeds the threshold {config.pull_threshold_size_for_queue} MiB"
        elif not self.consume_orderly and process_queue.get_max_span() > config.consume_concurrently_max_span:
            why = "the queue's messages, span too long"
        else:
            return False
        if self._flow_control_times % FLOW_CONTROL_LOG_EVERY == 0:
            log.warning("%s, so do flow control, count=%d, size=%d MiB, pullRequest=%s, flowControlTimes=%d", why,
                        process_queue.msg_count, process_queue.msg_size // MIB, pull_request, self._flow_control_times)
        self._flow_control_times += 1
        return True

    def _is_locked(self, pull_request: PullRequest) -> bool:
        """Return True if the queue may be pulled; an orderly consumer needs its lock.

        At the first pull under the lock, an orderly consumer starts at the group's current offset.
        """
        process_queue = pull_request.process_queue
        if not self.consume_orderly or self.message_model() is MessageModel.BROADCASTING:
            return True
        if not process_queue.locked:
            log.info("pull message later because not locked in broker, %s", pull_request)
            return False
        if not pull_request.previously_locked:
            try:
                offset = self.rebalance_impl.compute_pull_from_where_with_exception(pull_request.message_queue)
            except (MQClientException, MQBrokerException, RemotingException) as error:
                log.error("Failed to compute pull offset, pullResult: %s: %s", pull_request, error)
                return False
            if offset < 0:  # the broker did not answer
                return False
            log.info("the first time to pull message, so fix offset from broker. pullRequest: %s NewOffset: %d",
                     pull_request, offset)
            pull_request.previously_locked = True
            pull_request.next_offset = offset
        return True

    def _pull(self, pull_request: PullRequest) -> None:
        if not self._is_locked(pull_request):
            self._execute_pull_request_later_after_exception(pull_request)
            return
        mq = pull_request.message_queue
        subscription = self.rebalance_impl.subscription_inner.get(mq.topic)
        if subscription is None:
            log.warning("find the consumer's subscription failed, %s", pull_request)
            self._execute_pull_request_later_after_exception(pull_request)
            return
        commit_offset = 0
        if self.message_model() is MessageModel.CLUSTERING:
            commit_offset = max(0, self.offset_store.read_offset(mq, ReadOffsetType.READ_FROM_MEMORY))
        config = self.config
        sub_expression = None
        if config.post_subscription_when_pull and not subscription.classFilterMode:
            sub_expression = subscription.subString
        sys_flag = sys_flags.build_pull_sys_flag(
            commit_offset > 0, True, sub_expression is not None, subscription.classFilterMode)
        try:
            self.pull_api_wrapper.pull_kernel_impl(
                mq, sub_expression, subscription.expressionType, subscription.subVersion, pull_request.next_offset,
                config.pull_batch_size, sys_flag, commit_offset, BROKER_SUSPEND_MAX_TIME_MILLIS,
                CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND, _PushPullCallback(self, pull_request, subscription))
        except (MQClientException, MQBrokerException, RemotingException) as error:
            log.error("pullKernelImpl exception: %s", error)
            self._repeat(pull_request, error)

    # ---- answers to pulls, on the remoting client's threads

    def on_pull_result(
        self, pull_request: PullRequest, result: PullResult, subscription: SubscriptionData, begin_ns: int
    ) -> None:
        """Process the result of a pull, and start the next one."""
        result = self.pull_api_wrapper.process_pull_result(pull_request.message_queue, result, subscription)
        if result.pull_status is PullStatus.FOUND:
            self._on_found(pull_request, result, (time.monotonic_ns() - begin_ns) // 1_000_000)
        elif result.pull_status is PullStatus.OFFSET_ILLEGAL:
            self._offset_illegal(pull_request, result)
        else:
            pull_request.next_offset = result.next_begin_offset
            self._correct_tags_offset(pull_request)
            self.execute_pull_request_immediately(pull_request)

    def _on_found(self, pull_request: PullRequest, result: PullResult, pull_rt_ms: int) -> None:
        previous_offset, pull_request.next_offset = pull_request.next_offset, result.next_begin_offset
        group, topic, msgs = pull_request.consumer_group, pull_request.message_queue.topic, result.msg_found_list
        self.consumer_stats_manager.inc_pull_rt(group, topic, pull_rt_ms)
        first_offset = previous_offset
        if msgs:
            first_offset = msgs[0].queue_offset
            self.consumer_stats_manager.inc_pull_tps(group, topic, len(msgs))
            dispatch_to_consume = pull_request.process_queue.put_message(msgs)
            self.consume_message_service.submit_consume_request(
                msgs, pull_request.process_queue, pull_request.message_queue, dispatch_to_consume)
        if msgs and self.config.pull_interval > 0:
            self.execute_pull_request_later(pull_request, self.config.pull_interval)
        else:
            self.execute_pull_request_immediately(pull_request)
        if result.next_begin_offset < previous_offset or first_offset < previous_offset:
            log.warning("[BUG] pull message result maybe data wrong, nextBeginOffset: %d firstMsgOffset: %d "
                        "prevRequestOffset: %d", result.next_begin_offset, first_offset, previous_offset)

    def _offset_illegal(self, pull_request: PullRequest, result: PullResult) -> None:
        """Drop the queue, because the broker does not have the offset; store the broker's offset 10 s later.

        The next rebalance then takes the queue again from that offset.
        """
        log.warning("the pull request offset illegal, %s %s", pull_request, result)
        pull_request.next_offset = result.next_begin_offset
        pull_request.process_queue.dropped = True
        mq = pull_request.message_queue

        def fix_offset() -> None:
            self.offset_store.update_offset(mq, pull_request.next_offset, increase_only=False)
            self.offset_store.persist(mq)
            self.rebalance_impl.remove_process_queue(mq)
            log.warning("fix the pull request offset, %s", pull_request)

        self.execute_task_later(fix_offset, OFFSET_ILLEGAL_DELAY_MS)

    def _correct_tags_offset(self, pull_request: PullRequest) -> None:
        """Count the skipped messages as consumed, if no messages are cached: none of the pulled ones matched."""
        if pull_request.process_queue.msg_count == 0:
            self.offset_store.update_offset(pull_request.message_queue, pull_request.next_offset, increase_only=True)

    def on_pull_exception(self, pull_request: PullRequest, error: Exception) -> None:
        """Retry after a pause, unless the consumer is not running or the queue was dropped."""
        if self.service_state is not ServiceState.RUNNING or pull_request.process_queue.dropped:
            log.info("stop pulling %s: %s", pull_request, error)
            return
        if not pull_request.message_queue.topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            log.warning("execute the pull request exception: %s", error)
        if isinstance(error, MQBrokerException) and error.response_code == response_code.FLOW_CONTROL:
            self.execute_pull_request_later(pull_request, PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL)
        else:
            self._repeat(pull_request, error)

    def _repeat(self, pull_request: PullRequest, error: Exception) -> None:
        self.pull_retries.repeat(
            pull_request.message_queue, error, lambda: self.execute_pull_request_immediately(pull_request),
            self.config.pull_time_delay_mills_when_exception, self.execute_task_later)

    def execute_pull_request_later(self, pull_request: PullRequest, delay_ms: float) -> None:
        """Queue a pull request after a delay."""
        self.mq_client_factory.pull_message_service.execute_pull_request_later(pull_request, delay_ms)

    def _execute_pull_request_later_after_exception(self, pull_request: PullRequest) -> None:
        delay_ms = self.config.pull_time_delay_mills_when_exception
        self.execute_pull_request_later(pull_request, delay_ms)

    def execute_pull_request_immediately(self, pull_request: PullRequest) -> None:
        """Queue a pull request."""
        self.mq_client_factory.pull_message_service.execute_pull_request_immediately(pull_request)

    def execute_task_later(self, task: Callable[[], None], delay_ms: float) -> None:
        """Run a task on the pull service's scheduling thread after a delay."""
        self.mq_client_factory.pull_message_service.execute_task_later(task, delay_ms)

    # ---- sending back

    def send_message_back(self, msg: MessageExt, delay_level: int, broker_name: str | None) -> None:
        """Have the broker deliver `msg` again; if it can't, send it to the retry topic as a new message."""
        self._send_message_back(
            msg, delay_level, broker_name, SEND_BACK_TIMEOUT_MS, self._get_max_reconsume_times())

    def _get_max_reconsume_times(self) -> int:
        times = self.config.max_reconsume_times
        return DEFAULT_MAX_RECONSUME_TIMES if times == -1 else times

    # ---- life

    def shutdown(self, await_terminate_millis: int = 0) -> None:
        """Stop consuming, store the offsets, and unregister from the brokers. Idempotent."""
        with self._state_lock:
            if self.service_state is not ServiceState.RUNNING:
                return
            self.pause = True
            self.consume_message_service.shutdown(await_terminate_millis)
            self.persist_consumer_offset()
            self.service_state = ServiceState.SHUTDOWN_ALREADY
            self.mq_client_factory.unregister_consumer(self.group_name())
            self.mq_client_factory.shutdown()
            self.rebalance_impl.destroy()
            log.info("the consumer [%s] shutdown OK", self.group_name())

    def start(self) -> None:
        """Start consuming; see the facade."""
        super().start()
        for topic in list(self.rebalance_impl.subscription_inner):
            self.mq_client_factory.routes.update_topic_route_info_from_name_server(topic)
        self.mq_client_factory.check_client_in_broker()
        self.mq_client_factory.send_heartbeat_to_all_broker_with_lock()
        # Differs: a new group knows its retry topic, which its first heartbeat creates on each broker, at once; 4.9.8
        # waits for the next poll and rebalance, up to 50 s, and redelivers nothing before.
        if self.message_model() is MessageModel.CLUSTERING:
            self.mq_client_factory.routes.update_topic_route_info_from_name_server(
                mix_all.get_retry_topic(self.group_name()))
        self.mq_client_factory.rebalance_immediately()

    def _start(self) -> None:
        config = self.config
        check_push_config(config)
        self._subscribe_to_retry_topic()
        self._prepare_client()
        listener = config.message_listener
        assert listener is not None  # ensured by check_push_config
        self.consume_orderly = isinstance(listener, MessageListenerOrderly)
        self.rebalance_impl.consume_orderly = self.consume_orderly
        self.consume_message_service = self._service_of(listener)
        self._register()
        self.consume_message_service.start()
        self.mq_client_factory.start()
        log.info("the consumer [%s] start OK.", config.consumer_group)

    def _service_of(self, listener: MessageListenerConcurrently | MessageListenerOrderly) -> ConsumeMessageService:
        consuming = Consuming(
            self.config, self.hooks, self.consumer_stats_manager, self.offset_store, self.rebalance_impl,
            self.reset_retry_and_namespace, self.send_message_back, self.mq_client_factory.default_mq_producer.send_own)
        if isinstance(listener, MessageListenerOrderly):
            return ConsumeMessageOrderlyService(consuming, listener)
        if isinstance(listener, MessageListenerDeferred):
            return ConsumeMessageDeferredService(consuming, listener, self._check_process)
        return ConsumeMessageConcurrentlyService(consuming, listener)

    def _subscribe_to_retry_topic(self) -> None:
        if self.message_model() is MessageModel.CLUSTERING:
            retry_topic = mix_all.get_retry_topic(self.group_name())
            self.rebalance_impl.subscription_inner[retry_topic] = subscriptions.build_subscription_data(
                retry_topic, "*")

    def subscribe(self, topic: str, sub_expression: str | None, kind: str | None = None) -> None:
        """Add a subscription; if the consumer is running, report it to the brokers at once."""
        exception.check_topic(topic)
        try:
            subscription = subscriptions.build(topic, sub_expression, kind)
        except ValueError as error:
            raise MQClientException("subscription exception") from error
        self.rebalance_impl.put_subscription(topic, subscription)
        self._tell_brokers(topic)

    def unsubscribe(self, topic: str) -> None:
        """Remove a subscription."""
        self.rebalance_impl.subscription_inner.pop(topic, None)

    def suspend(self) -> None:
        """Stop pulling for now."""
        self.pause = True
        log.info("suspend this consumer, %s", self.group_name())

    def resume(self) -> None:
        """Resume pulling."""
        self.pause = False
        self.do_rebalance()
        log.info("resume this consumer, %s", self.group_name())

    # ---- MQConsumerInner

    def consume_type(self) -> ConsumeType:
        """Return CONSUME_PASSIVELY: the library decides when to pull."""
        return ConsumeType.CONSUME_PASSIVELY

    def consume_from_where(self) -> ConsumeFromWhere:
        """Return where a new group starts."""
        return self.config.consume_from_where

    def do_rebalance(self) -> None:
        """Compute this consumer's share of the queues, and take exactly those, unless the consumer is paused."""
        if not self.pause:
            super().do_rebalance()

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """Return the settings, queues and rates, for the admin commands."""
        info = ConsumerRunningInfo()
        info.properties.update(self._properties())
        info.subscriptionSet.extend(sorted(self.subscriptions()))
        for mq, process_queue in list(self.rebalance_impl.process_queue_table.items()):
            queue_info = ProcessQueueInfo()
            queue_info.commitOffset = self.offset_store.read_offset(mq, ReadOffsetType.MEMORY_FIRST_THEN_STORE)
            process_queue.fill_process_queue_info(queue_info)
            info.mqTable[mq] = queue_info
        for subscription in self.subscriptions():
            info.statusTable[subscription.topic] = self.consumer_stats_manager.consume_status(
                self.group_name(), subscription.topic)
        return info

    def _properties(self) -> dict[str, str]:
        config = self.config
        properties = {_camel_case(name): mix_all.property_text(getattr(config, name)) for name in _TOLD}
        properties[client_bodies.PROP_CONSUME_ORDERLY] = mix_all.property_text(self.consume_orderly)
        properties[client_bodies.PROP_THREADPOOL_CORE_SIZE] = str(
            self.consume_message_service.get_core_pool_size())
        properties[client_bodies.PROP_CONSUMER_START_TIMESTAMP] = str(self.consumer_start_timestamp)
        return properties

    def reset_retry_and_namespace(self, msgs: list[MessageExt], consumer_group: str) -> None:
        """Restore the original topic of retried messages, and remove the namespace, before the listener sees them."""
        group_topic = mix_all.get_retry_topic(consumer_group)
        namespace = self.config.get_namespace()
        for msg in msgs:
            if msg.topic == group_topic:
                msg.topic = msg.properties.get(message_const.PROPERTY_RETRY_TOPIC, group_topic)
            if namespace:
                msg.topic = namespace_util.without_namespace(msg.topic, namespace)


class _PushPullCallback(PullCallback):
    """The callback of one pull of the loop. Any error here must lead to another pull, or the queue would stall."""

    def __init__(
        self, consumer_impl: DefaultMQPushConsumerImpl, pull_request: PullRequest, subscription: SubscriptionData
    ) -> None:
        super().__init__()
        self._consumer_impl = consumer_impl
        self._pull_request = pull_request
        self._subscription = subscription
        self._begin_ns = time.monotonic_ns()

    def on_success(self, pull_result: PullResult) -> None:
        try:
            self._consumer_impl.on_pull_result(self._pull_request, pull_result, self._subscription, self._begin_ns)
        except Exception as error:
            # For example, a record could not be decoded
            log.exception("failed to handle the pull result of %s", self._pull_request)
            self._consumer_impl.on_pull_exception(self._pull_request, error)

    def on_exception(self, error: Exception) -> None:
        self._consumer_impl.on_pull_exception(self._pull_request, error)
