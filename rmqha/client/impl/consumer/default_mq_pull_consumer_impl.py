"""A pull consumer: all in the caller's thread."""
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmqha.client import validators
from rmqha.client.common.service_state import ServiceState
from rmqha.client.consumer.listener.message_listener import ConsumeConcurrentlyStatus
from rmqha.client.consumer.message_selector import MessageSelector
from rmqha.client.consumer.pull_result import PullCallback, PullResult
from rmqha.client.consumer.store.local_file_offset_store import LocalFileOffsetStore
from rmqha.client.consumer.store.read_offset_type import ReadOffsetType
from rmqha.client.consumer.store.remote_broker_offset_store import NO_ANSWER, RemoteBrokerOffsetStore
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hook.filter_message_hook import FilterMessageHook
from rmqha.client.impl.consumer.consumer_hooks import ConsumerHooks
from rmqha.client.impl.consumer.pull_api_wrapper import PullAPIWrapper
from rmqha.client.impl.consumer.rebalance_pull_impl import RebalancePullImpl
from rmqha.client.impl.consumer.retry_message import retry_message
from rmqha.client.impl.factory.mq_client_instance import MQClientInstance
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.common import mix_all, util_all
from rmqha.common.consumer.consume_from_where import ConsumeFromWhere
from rmqha.common.filter import expression_type, filter_api
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.message.message_queue import MessageQueue
from rmqha.common.protocol.body import consumer_running_info
from rmqha.common.protocol.body.consumer_running_info import ConsumerRunningInfo
from rmqha.common.protocol.heartbeat.heartbeat_data import ConsumeType, MessageModel
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
from rmqha.common.sysflag import pull_sys_flag
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
    from rmqha.remoting.rpc_hook import RPCHook

log = logging.getLogger("RocketmqClient")

SEND_BACK_TIMEOUT_MS = 3_000

Expression = str | MessageSelector | None


class DefaultMQPullConsumerImpl:
    """What DefaultMQPullConsumer does.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPullConsumerImpl (4.9.8)
    """

    def __init__(
        self,
        default_mq_pull_consumer: "DefaultMQPullConsumer",
        rpc_hook: "RPCHook | None",
        client_manager: MQClientManager,
    ) -> None:
        self.default_mq_pull_consumer = default_mq_pull_consumer
        self._rpc_hook = rpc_hook
        self._client_manager = client_manager
        self.rebalance_impl = RebalancePullImpl(self)
        self.hooks = ConsumerHooks()
        self.filter_message_hook_list: list[FilterMessageHook] = []  # registered before start
        self.consumer_start_timestamp = util_all.current_time_millis()
        self.service_state = ServiceState.CREATE_JUST  # guarded by _state_lock
        self._state_lock = threading.RLock()
        self.mq_client_factory: MQClientInstance = None  # type: ignore[assignment]  # from start on
        self.pull_api_wrapper: PullAPIWrapper | None = None
        self.offset_store: RemoteBrokerOffsetStore | LocalFileOffsetStore = None  # type: ignore[assignment]  # the same

    # ---- life

    def start(self) -> None:
        """Connect; see the facade."""
        with self._state_lock:
            if self.service_state is not ServiceState.CREATE_JUST:
                raise MQClientException("The PullConsumer service state not OK, maybe started once, "
                                        f"{self.service_state.name}")
            self.service_state = ServiceState.START_FAILED
            self._start()
            self.service_state = ServiceState.RUNNING

    def _start(self) -> None:
        consumer = self.default_mq_pull_consumer
        validators.check_group(consumer.consumer_group)
        if consumer.consumer_group == mix_all.DEFAULT_CONSUMER_GROUP:
            raise MQClientException(
                f"consumerGroup can not equal {mix_all.DEFAULT_CONSUMER_GROUP}, please specify another one.")
        for topic in consumer.register_topics:
            self.rebalance_impl.subscription_inner[topic] = filter_api.build_subscription_data(topic, "*")
        if consumer.message_model is MessageModel.CLUSTERING:
            consumer.change_instance_name_to_pid()
        self.mq_client_factory = self._client_manager.get_or_create_mq_client_instance(consumer, self._rpc_hook)
        rebalance = self.rebalance_impl
        rebalance.consumer_group = consumer.consumer_group
        rebalance.message_model = consumer.message_model
        rebalance.allocate_message_queue_strategy = consumer.allocate_message_queue_strategy
        rebalance.mq_client_factory = self.mq_client_factory
        self.pull_api_wrapper = PullAPIWrapper(self.mq_client_factory, consumer.consumer_group, consumer.unit_mode)
        self.pull_api_wrapper.filter_message_hook_list = self.filter_message_hook_list
        if consumer.message_model is MessageModel.BROADCASTING:
            self.offset_store = LocalFileOffsetStore(self.mq_client_factory, consumer.consumer_group)
        else:
            self.offset_store = RemoteBrokerOffsetStore(self.mq_client_factory, consumer.consumer_group)
        self.offset_store.load()
        if not self.mq_client_factory.register_consumer(consumer.consumer_group, self):
            self.service_state = ServiceState.CREATE_JUST
            raise MQClientException(f"The consumer group[{consumer.consumer_group}] has been created before, specify "
                                    "another name please.")
        self.mq_client_factory.start()
        log.info("the consumer [%s] start OK", consumer.consumer_group)

    def shutdown(self) -> None:
        """Store offsets, leave the brokers. Idempotent."""
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

    # ---- what the facade offers

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """All queues of a topic."""
        factory = self._is_running()
        queues = self.rebalance_impl.topic_subscribe_info_table.get(topic)
        return set(queues) if queues is not None else factory.mq_admin_impl.fetch_subscribe_message_queues(topic)

    def fetch_message_queues_in_balance(self, topic: str) -> set[MessageQueue]:
        """This consumer's share."""
        self._is_running()
        return {mq for mq in list(self.rebalance_impl.process_queue_table) if mq.topic == topic}

    def fetch_consume_offset(self, mq: MessageQueue, from_store: bool) -> int:
        """The group's next offset; MQClientException when the broker does not say."""
        self._is_running()
        kind = ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        offset = self.offset_store.read_offset(mq, kind)
        if offset == NO_ANSWER:
            # Differs: 4.9.8 gives -2, which callers that look for a number below 0 take for "none"
            raise MQClientException("Fetch consume offset from broker exception")
        return offset

    def update_consume_offset(self, mq: MessageQueue, offset: int) -> None:
        """Remember the group's next offset."""
        self._is_running()
        self.offset_store.update_offset(mq, offset, increase_only=False)
        # Differs: 4.9.8 stores only the queues in balance, so that of topics that are not registered gets lost
        if mq not in self.rebalance_impl.process_queue_table:
            self.offset_store.persist(mq)

    def pull(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, block: bool, timeout_ms: float
    ) -> PullResult:
        """Pull and wait."""
        subscription = self._prepare(mq, sub_expression, offset, max_nums)
        result = self._pull_kernel(mq, subscription, offset, max_nums, block, timeout_ms, None)
        return self._processed(mq, result, subscription)

    def _processed(self, mq: MessageQueue, raw: PullResult, subscription: SubscriptionData) -> PullResult:
        """The messages decoded, with the topic as the user knows it; hooks see them as consumed."""
        result = self.pull_api_wrapper.process_pull_result(mq, raw, subscription)
        consumer = self.default_mq_pull_consumer
        for msg in result.msg_found_list:
            msg.topic = consumer.without_namespace(msg.topic)
        context = self.hooks.before(consumer, self.group_name(), result.msg_found_list, mq)
        self.hooks.after(context, consumer, ConsumeConcurrentlyStatus.CONSUME_SUCCESS.name, True)
        return result

    def pull_async(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, callback: PullCallback,
        timeout_ms: float, block: bool = False,
    ) -> None:
        """Pull and be called back."""
        subscription = self._prepare(mq, sub_expression, offset, max_nums)

        def on_success(result: PullResult) -> None:
            try:
                done = self._processed(mq, result, subscription)
            except Exception as error:  # a record that does not decode
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

    def _pull_kernel(
        self, mq: MessageQueue, subscription: SubscriptionData, offset: int, max_nums: int, block: bool,
        timeout_ms: float, callback: PullCallback | None,
    ) -> PullResult | None:
        sys_flag = pull_sys_flag.build_sys_flag(False, block, True, False)
        sub_version = 0 if expression_type.is_tag_type(subscription.expressionType) else subscription.subVersion
        return self.pull_api_wrapper.pull_kernel_impl(
            mq, subscription.subString, subscription.expressionType, sub_version, offset, max_nums, sys_flag, 0,
            self.default_mq_pull_consumer.broker_suspend_max_time_millis, timeout_ms, callback)

    def send_message_back(self, msg: MessageExt, delay_level: int, broker_name: str | None) -> None:
        """Let the broker deliver `msg` to the group again; when it can't, send it to the retry topic anew."""
        factory, consumer = self._is_running(), self.default_mq_pull_consumer
        times = consumer.max_reconsume_times
        topic = consumer.with_namespace(msg.topic)
        addr = factory.find_broker_address_in_publish(broker_name) if broker_name else "%s:%d" % msg.store_host
        try:
            if addr is None:
                raise MQClientException(f"The broker[{broker_name}] not exist")
            factory.mq_client_api_impl.consumer_send_message_back(
                addr, broker_name, msg, topic, self.group_name(), delay_level, SEND_BACK_TIMEOUT_MS, times)
        except (MQClientException, MQBrokerException, RemotingException):
            log.exception("sendMessageBack Exception, %s", self.group_name())
            factory.default_mq_producer.send(retry_message(msg, topic, self.group_name(), times))

    # ---- MQConsumerInner

    def group_name(self) -> str:
        """The consumer group."""
        return self.default_mq_pull_consumer.consumer_group

    def message_model(self) -> MessageModel:
        """Each message to one of the group, or to all."""
        return self.default_mq_pull_consumer.message_model

    def consume_type(self) -> ConsumeType:
        """The user decides when to pull."""
        return ConsumeType.CONSUME_ACTIVELY

    def consume_from_where(self) -> ConsumeFromWhere:
        """Said in heartbeats only: the user chooses offsets."""
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def subscriptions(self) -> list[SubscriptionData]:
        """The registered topics."""
        result = []
        for topic in sorted(self.default_mq_pull_consumer.register_topics):
            subscription = filter_api.build_subscription_data(topic, "*")
            subscription.subVersion = 0
            result.append(subscription)
        return result

    def do_rebalance(self) -> None:
        """Take the queues that are this consumer's share."""
        if self.service_state is ServiceState.RUNNING:
            self.rebalance_impl.do_rebalance()

    def persist_consumer_offset(self) -> None:
        """Store how far the group has come in the queues in balance."""
        if self.service_state is ServiceState.RUNNING:
            self.offset_store.persist_all(list(self.rebalance_impl.process_queue_table))

    def update_topic_subscribe_info(self, topic: str, info: set[MessageQueue]) -> None:
        """The queues of a topic changed."""
        if topic in self.rebalance_impl.subscription_inner:
            self.rebalance_impl.topic_subscribe_info_table[topic] = info

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """True when the topic is of interest and its queues are not known yet."""
        return topic in self.rebalance_impl.subscription_inner \
            and topic not in self.rebalance_impl.topic_subscribe_info_table

    def is_unit_mode(self) -> bool:
        """True for a unit's consumer."""
        return self.default_mq_pull_consumer.unit_mode

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """Subscriptions and start time, for the admin commands."""
        info = ConsumerRunningInfo()
        info.properties[consumer_running_info.PROP_CONSUMER_START_TIMESTAMP] = str(self.consumer_start_timestamp)
        info.subscriptionSet.extend(sorted(self.subscriptions()))
        return info
