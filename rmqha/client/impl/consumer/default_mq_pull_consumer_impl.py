"""The implementation of a pull consumer. Everything runs in the caller's thread."""
import logging
from collections.abc import Callable
from typing import Any, overload

from rmqha.client import exception
from rmqha.client.consumer.consumer_config import PullConsumerConfig
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, MessageSelector
from rmqha.client.consumer.offset_stores import NO_ANSWER, ReadOffsetType
from rmqha.client.exception import MQClientException
from rmqha.client.impl.consumer.consumer_impl import ConsumerImpl
from rmqha.client.impl.consumer.rebalance import RebalancePullImpl
from rmqha.client.impl.mq_client_instance import FindInstance, MQClientInstance
from rmqha.client.life import ServiceState
from rmqha.client.results import PullCallback, PullResult
from rmqha.common import subscriptions as expression_type
from rmqha.common import subscriptions as filter_api
from rmqha.common import sys_flags
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import client_bodies
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo
from rmqha.common.subscriptions import SubscriptionData

log = logging.getLogger("RocketmqClient")

SEND_BACK_TIMEOUT_MS = 3_000

Expression = str | MessageSelector | None


class DefaultMQPullConsumerImpl(ConsumerImpl):
    """The implementation of DefaultMQPullConsumer.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPullConsumerImpl (4.9.8)
    """

    rebalance_impl: RebalancePullImpl

    def __init__(self, config: PullConsumerConfig, find_client: FindInstance) -> None:
        super().__init__(config, find_client)
        self.config: PullConsumerConfig = config
        self.rebalance_impl = RebalancePullImpl(config)

    # ---- life

    def _start(self) -> None:
        config = self.config
        exception.check_consumer_group(config.consumer_group)
        for topic in config.register_topics:
            self.rebalance_impl.subscription_inner[topic] = filter_api.build_subscription_data(topic, "*")
        self._prepare_client()
        self._register()
        self.mq_client_factory.start()
        log.info("the consumer [%s] start OK", config.consumer_group)

    def shutdown(self) -> None:
        """Store the offsets, and unregister from the brokers. Idempotent."""
        with self._state_lock:
            if self.service_state is not ServiceState.RUNNING:
                return
            self.persist_consumer_offset()
            self.service_state = ServiceState.SHUTDOWN_ALREADY
            self.mq_client_factory.unregister_consumer(self.group_name())
            self.mq_client_factory.shutdown()
            log.info("the consumer [%s] shutdown OK", self.group_name())

    def _is_running(self) -> MQClientInstance:
        if self.service_state is not ServiceState.RUNNING or self.mq_client_factory is None:
            raise MQClientException(f"The consumer is not in running status, {self.service_state.name}")
        return self.mq_client_factory

    # ---- the facade's methods

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return all queues of a topic."""
        factory = self._is_running()
        queues = self.rebalance_impl.topic_subscribe_info_table.get(topic)
        return set(queues) if queues is not None else factory.mq_admin_impl.fetch_subscribe_message_queues(topic)

    def fetch_message_queues_in_balance(self, topic: str) -> set[MessageQueue]:
        """Return this consumer's share."""
        self._is_running()
        return self.rebalance_impl.share(topic)

    def fetch_consume_offset(self, mq: MessageQueue, from_store: bool) -> int:
        """Return the group's next offset; MQClientException if the broker does not answer."""
        self._is_running()
        kind = ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        offset = self.offset_store.read_offset(mq, kind)
        if offset == NO_ANSWER:
            # Differs: `fetch_consume_offset` raises an exception if no broker answers; 4.9.8 returns -2, which callers
            # that check for a negative number mistake for "no offset"
            raise MQClientException("Fetch consume offset from broker exception")
        return offset

    def update_consume_offset(self, mq: MessageQueue, offset: int) -> None:
        """Set the group's next offset."""
        self._is_running()
        self.offset_store.update_offset(mq, offset, increase_only=False)
        # Differs: `update_consume_offset` stores the offset of any queue; 4.9.8 stores only those of queues in balance,
        # so it loses the offsets of topics that are not registered
        if mq not in self.rebalance_impl.process_queue_table:
            self.offset_store.persist(mq)

    def pull(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, block: bool, timeout_ms: float
    ) -> PullResult:
        """Pull and wait for the result."""
        subscription = self._prepare(mq, sub_expression, offset, max_nums)
        result = self._pull_kernel(mq, subscription, offset, max_nums, block, timeout_ms, None)
        return self._processed(mq, result, subscription)

    def _processed(self, mq: MessageQueue, raw: PullResult, subscription: SubscriptionData) -> PullResult:
        """Return the decoded messages, with the topic as the user knows it; call the hooks as if they were consumed."""
        result = self.pull_api_wrapper.process_pull_result(mq, raw, subscription)
        config = self.config
        for msg in result.msg_found_list:
            msg.topic = config.without_namespace(msg.topic)
        context = self.hooks.before(config, self.group_name(), result.msg_found_list, mq)
        self.hooks.after(context, config, ConsumeConcurrentlyStatus.CONSUME_SUCCESS.name, True)
        return result

    def pull_async(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, callback: PullCallback,
        timeout_ms: float, block: bool = False,
    ) -> None:
        """Pull, and pass the result or the error to `callback`."""
        subscription = self._prepare(mq, sub_expression, offset, max_nums)

        def on_success(result: PullResult) -> None:
            try:
                done = self._processed(mq, result, subscription)
            except Exception as error:
                # For example, a record could not be decoded
                on_exception(error)
                return
            call(callback.on_success, done)

        def on_exception(error: Exception) -> None:
            call(callback.on_exception, error)

        def call(function: Callable[[Any], object], value: object) -> None:
            try:
                function(value)
            except BaseException as error:  # the user's code
                self.hooks.causes.raised(error, "pull callback exception, %s", mq)

        wrapped = PullCallback(on_success, on_exception)
        self._pull_kernel(mq, subscription, offset, max_nums, block, timeout_ms, wrapped)

    def _prepare(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int
    ) -> SubscriptionData:
        self._is_running()
        if offset < 0:
            raise MQClientException("offset < 0")
        if max_nums <= 0:
            raise MQClientException("maxNums <= 0")
        if mq.topic not in self.rebalance_impl.subscription_inner:
            self.rebalance_impl.subscription_inner[mq.topic] = filter_api.build_subscription_data(mq.topic, "*")
        try:
            if isinstance(sub_expression, MessageSelector):
                return filter_api.build(mq.topic, sub_expression.expression, sub_expression.type)
            return filter_api.build_subscription_data(mq.topic, sub_expression)
        except ValueError as error:
            raise MQClientException("parse subscription error") from error

    @overload
    def _pull_kernel(
        self, mq: MessageQueue, subscription: SubscriptionData, offset: int, max_nums: int, block: bool,
        timeout_ms: float, callback: None,
    ) -> PullResult: ...

    @overload
    def _pull_kernel(
        self, mq: MessageQueue, subscription: SubscriptionData, offset: int, max_nums: int, block: bool,
        timeout_ms: float, callback: PullCallback,
    ) -> None: ...

    def _pull_kernel(
        self, mq: MessageQueue, subscription: SubscriptionData, offset: int, max_nums: int, block: bool,
        timeout_ms: float, callback: PullCallback | None,
    ) -> PullResult | None:
        sys_flag = sys_flags.build_pull_sys_flag(False, block, True, False)
        sub_version = 0 if expression_type.is_tag_type(subscription.expressionType) else subscription.subVersion
        return self.pull_api_wrapper.pull_kernel_impl(
            mq, subscription.subString, subscription.expressionType, sub_version, offset, max_nums, sys_flag, 0,
            self.config.broker_suspend_max_time_millis, timeout_ms, callback)

    def send_message_back(self, msg: MessageExt, delay_level: int, broker_name: str | None) -> None:
        """Have the broker deliver `msg` to the group again; if it can't, send it to the retry topic as a new message.
        """
        self._is_running()
        self._send_message_back(msg, delay_level, broker_name or None, SEND_BACK_TIMEOUT_MS,
                                self.config.max_reconsume_times)

    # ---- MQConsumerInner

    def subscriptions(self) -> list[SubscriptionData]:
        """Return subscriptions to the registered topics."""
        result = []
        for topic in sorted(self.config.register_topics):
            subscription = filter_api.build_subscription_data(topic, "*")
            subscription.subVersion = 0
            result.append(subscription)
        return result

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """Return the subscriptions and the start time, for the admin commands."""
        info = ConsumerRunningInfo()
        info.properties[client_bodies.PROP_CONSUMER_START_TIMESTAMP] = str(self.consumer_start_timestamp)
        info.subscriptionSet.extend(sorted(self.subscriptions()))
        return info
