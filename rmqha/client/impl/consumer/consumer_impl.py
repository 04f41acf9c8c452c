"""The common implementation of the three consumers: start, send back, and the interface to the client instance."""
import logging
import threading

from rmqha.client.consumer.consumer_config import ConsumerConfig
from rmqha.client.consumer.offset_stores import LocalFileOffsetStore, RemoteBrokerOffsetStore
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hooks import FilterMessageHook
from rmqha.client.impl.consumer.pulling import ConsumerHooks, PullAPIWrapper, PullRetries
from rmqha.client.impl.consumer.rebalance import RebalanceImpl
from rmqha.client.impl.mq_client_instance import FindInstance, MQClientInstance
from rmqha.client.life import ServiceState
from rmqha.common import mix_all, util_all
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.program import interrupted_later
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.exception import RemotingException

log = logging.getLogger("RocketmqClient")


def retry_message(msg: MessageExt, topic: str, group: str, max_reconsume_times: int) -> Message:
    """Return the message to send to the group's retry topic if the broker can't be asked to do it.

    `topic` is as brokers know it, that is, with the namespace.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl#sendMessageBack (4.9.8)
    """
    new_msg = Message(mix_all.get_retry_topic(group), msg.body, flag=msg.flag)
    properties = dict(msg.properties)
    properties.setdefault(message_const.PROPERTY_ORIGIN_MESSAGE_ID, msg.msg_id or "")
    properties[message_const.PROPERTY_RETRY_TOPIC] = topic
    properties[message_const.PROPERTY_RECONSUME_TIME] = str(msg.reconsume_times + 1)
    properties[message_const.PROPERTY_MAX_RECONSUME_TIMES] = str(max_reconsume_times)
    properties.pop(message_const.PROPERTY_TRANSACTION_PREPARED, None)
    new_msg.properties = properties
    new_msg.delay_time_level = 3 + msg.reconsume_times
    return new_msg


class ConsumerImpl:
    """Base class of consumers, with defaults for those whose user decides when to pull and where to start.

    A subclass sets `rebalance_impl`.
    """

    kind = "PullConsumer"  # for error texts
    rebalance_impl: RebalanceImpl

    def __init__(self, config: ConsumerConfig, find_client: FindInstance) -> None:
        self.config = config
        self._find_client = find_client
        self.hooks = ConsumerHooks()
        self.filter_message_hook_list: list[FilterMessageHook] = []  # registered before start
        self.consumer_start_timestamp = util_all.current_time_millis()
        self.service_state = ServiceState.CREATE_JUST  # guarded by _state_lock
        self._state_lock = threading.RLock()
        # start() sets these four.
        self.mq_client_factory: MQClientInstance = None  # type: ignore[assignment]
        self.pull_api_wrapper: PullAPIWrapper = None  # type: ignore[assignment]  # as above
        self.pull_retries: PullRetries = None  # type: ignore[assignment]  # as above
        self.offset_store: RemoteBrokerOffsetStore | LocalFileOffsetStore = None  # type: ignore[assignment]  # as above

    def start(self) -> None:
        """Start; see the facade."""
        with interrupted_later(), self._state_lock:
            if self.service_state is not ServiceState.CREATE_JUST:
                raise MQClientException(f"The {self.kind} service state not OK, maybe started once, "
                                        f"{self.service_state.name}")
            self.service_state = ServiceState.START_FAILED
            self._start()
            self.service_state = ServiceState.RUNNING

    def _start(self) -> None:
        raise NotImplementedError

    def _prepare_client(self) -> None:
        """Find the client instance, and create the parts that use it; the group is not registered yet."""
        config, rebalance = self.config, self.rebalance_impl
        group = config.consumer_group
        if config.message_model is MessageModel.CLUSTERING:
            config.change_instance_name_to_pid()
        factory = self._find_client()
        self.mq_client_factory = rebalance.mq_client_factory = factory
        rebalance.consumer_group = group
        rebalance.message_model = config.message_model
        rebalance.allocate_message_queue_strategy = config.allocate_message_queue_strategy
        self.pull_api_wrapper = PullAPIWrapper(factory.mq_client_api_impl, factory.routes, group, config.unit_mode)
        self.pull_api_wrapper.filter_message_hook_list = self.filter_message_hook_list
        self.pull_api_wrapper.keep_bad_bodies = getattr(config, "keep_bad_bodies", False)
        self.pull_retries = PullRetries(self.pull_api_wrapper, factory.routes)
        if config.message_model is MessageModel.BROADCASTING:
            self.offset_store = LocalFileOffsetStore(factory.client_id, group)
        else:
            self.offset_store = RemoteBrokerOffsetStore(factory.mq_client_api_impl, factory.routes, group)
        rebalance.offset_store = self.offset_store
        self.offset_store.load()

    def _register(self) -> None:
        """Register the group at the instance; MQClientException if the instance has it already."""
        group = self.config.consumer_group
        if not self.mq_client_factory.register_consumer(group, self):
            self.service_state = ServiceState.CREATE_JUST
            raise MQClientException(f"The consumer group[{group}] has been created before, specify another name "
                                    "please.")

    def _tell_brokers(self, topic: str) -> None:
        """Report a new subscription to the brokers at once, if the consumer is running."""
        if self.service_state is ServiceState.RUNNING:
            self.mq_client_factory.routes.update_topic_route_info_from_name_server(topic)
            self.mq_client_factory.send_heartbeat_to_all_broker_with_lock()
            self.mq_client_factory.rebalance_immediately()

    def _send_message_back(
        self, msg: MessageExt, delay_level: int, broker_name: str | None, timeout_ms: int, max_reconsume_times: int
    ) -> None:
        """Have the broker deliver `msg` again; if it can't, send it to the retry topic as a new message."""
        factory, group = self.mq_client_factory, self.group_name()
        topic = self.config.with_namespace(msg.topic)
        try:
            if broker_name is not None:
                addr = factory.routes.find_broker_address_in_publish(broker_name)
            else:
                addr = "%s:%d" % msg.store_host  # type: ignore[str-format]  # it was received
            if addr is None:
                raise MQClientException(f"The broker[{broker_name}] not exist")
            factory.mq_client_api_impl.consumer_send_message_back(
                addr, broker_name, msg, topic, group, delay_level, timeout_ms, max_reconsume_times)
        except (MQClientException, MQBrokerException, RemotingException):
            log.exception("sendMessageBack Exception, %s", group)
            factory.default_mq_producer.send_own(retry_message(msg, topic, group, max_reconsume_times))

    # ---- MQConsumerInner

    def group_name(self) -> str:
        """Return the consumer group."""
        return self.config.consumer_group

    def message_model(self) -> MessageModel:
        """Return whether each message goes to one consumer of the group, or to all."""
        return self.config.message_model

    def consume_type(self) -> ConsumeType:
        """Return CONSUME_ACTIVELY: the user decides when to pull."""
        return ConsumeType.CONSUME_ACTIVELY

    def consume_from_where(self) -> ConsumeFromWhere:
        """Return a value for heartbeats only, because the user chooses the offsets."""
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def subscriptions(self) -> list[SubscriptionData]:
        """Return the subscriptions of the group; for a push consumer they include its retry topic."""
        return list(self.rebalance_impl.subscription_inner.values())

    def do_rebalance(self) -> None:
        """Compute this consumer's share of the queues, and take exactly those."""
        if self.service_state is ServiceState.RUNNING:
            self.rebalance_impl.do_rebalance()

    def persist_consumer_offset(self) -> None:
        """Store the group's offsets of this consumer's share of the queues."""
        if self.service_state is ServiceState.RUNNING:
            self.offset_store.persist_all(list(self.rebalance_impl.process_queue_table))

    def update_topic_subscribe_info(self, topic: str, info: set[MessageQueue]) -> None:
        """Use the new queues of a topic."""
        self.rebalance_impl.update_topic_subscribe_info(topic, info)

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """Return True if the topic is subscribed to and its queues are not known yet."""
        return self.rebalance_impl.is_subscribe_topic_need_update(topic)

    def is_unit_mode(self) -> bool:
        """Return True for a consumer of a unit."""
        return self.config.unit_mode

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """Return this consumer's current state, for the admin commands."""
        raise NotImplementedError
