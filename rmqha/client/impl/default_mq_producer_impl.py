"""The implementation of a producer: it chooses queues, retries on other brokers, and compresses.

Everything runs in the caller's thread. The answers to asynchronous sends are handled in the remoting client's pool.
"""
import copy
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, overload

from rmqha.client import exception, life
from rmqha.client.exception import MQBrokerException, MQClientException, RequestTimeoutException
from rmqha.client.hooks import SendMessageContext
from rmqha.client.impl.client_routes import ClientRoutes, TopicPublishInfo
from rmqha.client.impl.mq_client_instance import FindInstance, MQClientInstance
from rmqha.client.impl.producer_parts import (
    MasterSearch,
    ProducerHooks,
    has_slaves_only,
    is_refusal,
    makes_route_doubtful,
)
from rmqha.client.life import ServiceState
from rmqha.client.mq_fault_strategy import MQFaultStrategy
from rmqha.client.producer.producer_config import ProducerConfig
from rmqha.client.producer.request_response_future import RequestCallback, RequestResponseFuture
from rmqha.client.results import CommunicationMode, SendCallback, SendResult, SendStatus
from rmqha.common import compression, mix_all, sys_flags, util_all
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.program import interrupted_later
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader, SendMessageRequestHeaderV2
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingException,
    RemotingTimeoutException,
    RemotingTooMuchRequestException,
)

log = logging.getLogger("RocketmqClient")

_NO_CALLBACK = SendCallback()  # for sends that are not asynchronous

MessageQueueSelector = Callable[[list[MessageQueue], Message, Any], MessageQueue | None]
"""A function of all writable queues, the message and the caller's argument, which returns the queue to use."""


class DefaultMQProducerImpl:
    """The implementation of DefaultMQProducer.

    Java: org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl (4.9.8)
    """

    routes: ClientRoutes  # the instance's, set by start

    def __init__(self, config: ProducerConfig, find_client: FindInstance) -> None:
        self.config = config
        self._find_client = find_client
        self.hooks = ProducerHooks(self, config)
        self.mq_fault_strategy = MQFaultStrategy()
        # By topic. Infos are replaced, never changed
        self.topic_publish_info_table: dict[str, TopicPublishInfo] = {}
        self._state_lock = threading.Lock()
        self.service_state = ServiceState.CREATE_JUST  # guarded by _state_lock
        self.mq_client_factory: MQClientInstance = None  # type: ignore[assignment]  # set by start

    # ---- life

    def start(self) -> None:
        """Start; see the facade."""
        with interrupted_later(), self._state_lock:
            self._begin_start()
            if self.config.producer_group == mix_all.DEFAULT_PRODUCER_GROUP:
                raise MQClientException(
                    f"producerGroup can not equal {mix_all.DEFAULT_PRODUCER_GROUP}, please specify another one.")
            self.config.change_instance_name_to_pid()
            self._register(self._find_client())
            self.mq_client_factory.start()
            self.service_state = ServiceState.RUNNING
        log.info("the producer [%s] start OK.", self.config.producer_group)
        self.mq_client_factory.send_heartbeat_to_all_broker_with_lock()

    def start_on(self, mq_client_factory: MQClientInstance) -> None:
        """Start on an instance that is being started; used for the instance's inner producer."""
        with self._state_lock:
            self._begin_start()
            self._register(mq_client_factory)
            self.service_state = ServiceState.RUNNING

    def _begin_start(self) -> None:
        if self.service_state is not ServiceState.CREATE_JUST:
            raise MQClientException(
                f"The producer service state not OK, maybe started once, {self.service_state.name}")
        exception.check_group(self.config.producer_group)
        self.service_state = ServiceState.START_FAILED

    def _register(self, mq_client_factory: MQClientInstance) -> None:
        self.mq_client_factory, self.routes = mq_client_factory, mq_client_factory.routes
        group = self.config.producer_group
        if not self.mq_client_factory.register_producer(group, self):
            self.service_state = ServiceState.CREATE_JUST
            raise MQClientException(
                f"The producer group[{group}] has been created before, specify another name please.")
        self.topic_publish_info_table[self.config.create_topic_key] = TopicPublishInfo()

    def shutdown(self) -> None:
        """Unregister from the brokers and close the connections. Idempotent."""
        if self.shutdown_on():
            self.mq_client_factory.shutdown()
            log.info("the producer [%s] shutdown OK", self.config.producer_group)

    def shutdown_on(self) -> bool:
        """Shut down without the instance; return False if the producer is not running."""
        with self._state_lock:
            if self.service_state is not ServiceState.RUNNING:
                return False
            self.service_state = ServiceState.SHUTDOWN_ALREADY
        self.mq_client_factory.unregister_producer(self.config.producer_group)
        return True

    def _make_sure_state_ok(self) -> MQClientInstance:
        factory = self.mq_client_factory
        if self.service_state is not ServiceState.RUNNING or factory is None:
            raise MQClientException(f"The producer service state not OK, {self.service_state.name}")
        return factory

    # ---- MQProducerInner

    def get_publish_topic_list(self) -> set[str]:
        """Return the topics whose routes are kept up to date."""
        return set(self.topic_publish_info_table)

    def is_publish_topic_need_update(self, topic: str) -> bool:
        """Return True if no queues of `topic` to send to are known."""
        info = self.topic_publish_info_table.get(topic)
        return info is None or not info.ok()

    def check_transaction_state(
        self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader
    ) -> None:
        """Log a broker's check of a half message; only a TransactionMQProducer can answer it."""
        log.warning("CheckTransactionState from %s, but the producer of group[%s] has no transactions", addr,
                    self.config.producer_group)

    def update_topic_publish_info(self, topic: str, info: TopicPublishInfo) -> None:
        """Use a new route."""
        self.topic_publish_info_table[topic] = info

    # ---- sending

    def send(self, msg: Message, timeout_ms: float) -> SendResult:
        """Send, and retry on other brokers until one has stored the message or the timeout expires."""
        self._make_sure_state_ok()
        exception.check_message(msg, self.config.max_message_size)
        deadline_ns = time.monotonic_ns() + int(timeout_ms * 1e6)
        publish_info = self._publish_info_of(msg.topic, deadline_ns)
        return _Tries(self, msg, publish_info, timeout_ms, deadline_ns).run()

    def send_own(self, msg: Message) -> SendResult:
        """Send a message of the library itself, with the configured timeout."""
        return self.send(self.with_namespace(msg), self.config.send_msg_timeout)

    def send_oneway(self, msg: Message, queue: MessageQueue | None = None) -> None:
        """Send without requesting an answer."""
        self._make_sure_state_ok()
        exception.check_message(msg, self.config.max_message_size)
        if queue is None:
            queue = self.mq_fault_strategy.select_one_message_queue(self._publish_info_of(msg.topic))
        self._check_queue(msg, queue)
        self.send_kernel_impl(
            msg, queue, CommunicationMode.ONEWAY, _NO_CALLBACK, self.config.send_msg_timeout)

    def send_async(
        self, msg: Message, send_callback: SendCallback, timeout_ms: float, queue: MessageQueue | None = None
    ) -> None:
        """Send, and pass the result or the error to `send_callback`, whatever happens."""
        # Differs: an asynchronous send begins in the caller's thread instead of a pool, because only a new route or
        # connection takes time
        try:
            self._make_sure_state_ok()
            exception.check_message(msg, self.config.max_message_size)
            info = None
            if queue is None:
                info = self._publish_info_of(msg.topic)
                queue = self.mq_fault_strategy.select_one_message_queue(info)
            self._check_queue(msg, queue)
            self.send_kernel_impl(msg, queue, CommunicationMode.ASYNC, send_callback, timeout_ms, info)
        except (MQClientException, MQBrokerException, RemotingException) as error:
            self._call_back(send_callback.on_exception, error, msg)

    def _call_back(self, callback: Callable[[Any], object], value: object, msg: Message) -> None:
        try:
            callback(value)
        except BaseException as error:  # the user's code
            self.hooks.causes.raised(error, "send callback exception, topic %s", msg.topic)

    def send_to_queue(self, msg: Message, queue: MessageQueue, timeout_ms: float) -> SendResult:
        """Send to one queue, without a retry."""
        self._make_sure_state_ok()
        exception.check_message(msg, self.config.max_message_size)
        self._check_queue(msg, queue)
        return self.send_kernel_impl(msg, queue, CommunicationMode.SYNC, _NO_CALLBACK, timeout_ms)

    def request(self, msg: Message, timeout_ms: float, queue: MessageQueue | None) -> MessageExt:
        """Send a request and wait for its reply."""
        deadline_ns = time.monotonic_ns() + int(timeout_ms * 1e6)
        future = self._send_request(msg, timeout_ms, queue, None)
        try:
            reply = future.wait_response_message((deadline_ns - time.monotonic_ns()) / 1e6)
        finally:
            self._requests.pop(future.correlation_id, None)
        if reply is not None:
            return reply
        if future.cause is not None:
            raise MQClientException(f"send request message to <{msg.topic}> fail") from future.cause
        raise RequestTimeoutException(f"send request message to <{msg.topic}> OK, but wait reply message timeout, "
                                      f"{timeout_ms:.0f} ms.", life.REQUEST_TIMEOUT_EXCEPTION)

    def request_async(
        self, msg: Message, timeout_ms: float, queue: MessageQueue | None, request_callback: RequestCallback
    ) -> None:
        """Send a request, and pass the reply or the error to `request_callback`, whatever happens."""
        future = self._send_request(msg, timeout_ms, queue, request_callback)

        def give_up() -> None:
            if self._requests.pop(future.correlation_id, None) is not None:
                future.fail(RequestTimeoutException("request timeout, no reply message.",
                                                    life.REQUEST_TIMEOUT_EXCEPTION))

        # Differs: each request of the request-reply calls has its own timer; the original checks all of them every
        # second
        self.mq_client_factory.scheduled_executor_service.schedule(give_up, timeout_ms)

    @property
    def _requests(self) -> dict[str, RequestResponseFuture]:
        return self.mq_client_factory.request_future_holder.request_future_table

    def _send_request(
        self, msg: Message, timeout_ms: float, queue: MessageQueue | None, request_callback: RequestCallback | None
    ) -> RequestResponseFuture:
        self._make_sure_state_ok()
        exception.check_is_no_batch(msg, "a request")
        begin_ns = time.monotonic_ns()
        correlation_id = util_all.random_uuid()
        msg.put_property(message_const.PROPERTY_CORRELATION_ID, correlation_id)
        msg.put_property(message_const.PROPERTY_MESSAGE_REPLY_TO_CLIENT, self.mq_client_factory.client_id)
        msg.put_property(message_const.PROPERTY_MESSAGE_TTL, str(int(timeout_ms)))
        if msg.topic not in self.routes.topic_route_table:
            self.try_to_find_topic_publish_info(msg.topic)
            # The broker of a new route needs a heartbeat: it sends the reply only to clients that it knows
            self.mq_client_factory.send_heartbeat_to_all_broker_with_lock()
        future = RequestResponseFuture(correlation_id, timeout_ms, request_callback, self.hooks.causes)
        self._requests[correlation_id] = future

        def not_sent(error: Exception) -> None:
            self._requests.pop(correlation_id, None)
            future.fail(error)

        left_ms = timeout_ms - (time.monotonic_ns() - begin_ns) / 1e6
        self.send_async(msg, SendCallback(on_exception=not_sent), left_ms, queue)
        return future

    def select_queue(self, user_msg: Message, selector: MessageQueueSelector, arg: Any) -> MessageQueue:
        """Let the user's selector choose one of the topic's writable queues.

        The selector sees the message and the queues without the namespace.
        """
        msg = self.with_namespace(user_msg)
        self._make_sure_state_ok()
        exception.check_message(msg, self.config.max_message_size)
        queues = self.config.queues_without_namespace(self._publish_info_of(msg.topic).message_queue_list)
        try:
            queue = selector(queues, user_msg, arg)
        except Exception as error:  # the user's code
            self.hooks.causes.raised(error, "select message queue threw exception, topic %s", msg.topic)
            raise MQClientException("select message queue threw exception.") from error
        if not isinstance(queue, MessageQueue):
            what = "null" if queue is None else f"{queue!r}, which is not a MessageQueue"
            self.hooks.causes.returned(queue, "select message queue return %s, topic %s", what, msg.topic)
            raise MQClientException(f"select message queue return {what}.")
        return queue

    def with_namespace(self, msg: Message) -> Message:
        """Return the message as brokers know it: `msg` itself, or a copy with another topic that shares its properties.
        """
        namespace = self.config.get_namespace()
        if not namespace:
            return msg
        wrapped = copy.copy(msg)
        wrapped.topic = self.config.with_namespace(msg.topic)
        wrapped.instance_id = namespace
        return wrapped

    @staticmethod
    def _check_queue(msg: Message, queue: MessageQueue) -> None:
        if msg.topic != queue.topic:
            raise MQClientException("message's topic not equal mq's topic")

    def _publish_info_of(self, topic: str, wait_until_ns: int = 0) -> TopicPublishInfo:
        """Return the queues of a topic to send to.

        If a broker of the topic has only slaves at the moment, wait for a new master until `wait_until_ns`.
        """
        info = self.try_to_find_topic_publish_info(topic)
        if info is not None and not info.ok() and wait_until_ns and has_slaves_only(info.topic_route_data):
            MasterSearch(self.routes, topic, wait_until_ns).wait_for_any(
                lambda: self._known_publish_info(topic) is not None)
            info = self._known_publish_info(topic)
        if info is not None and info.ok():
            return info
        if not self.mq_client_factory.mq_client_api_impl.get_name_server_address_list():
            raise MQClientException("No name server address, please set it.").with_response_code(
                life.NO_NAME_SERVER_EXCEPTION)
        raise MQClientException(f"No route info of this topic: {topic}").with_response_code(
            life.NOT_FOUND_TOPIC_EXCEPTION)

    def _known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        info = self.topic_publish_info_table.get(topic)
        return info if info is not None and info.ok() else None

    def try_to_find_topic_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """Return the queues of `topic` to send to: as cached, from the name server, or as a new topic would have them.
        """
        info = self.topic_publish_info_table.get(topic)
        if info is not None and info.ok():
            return info
        self.topic_publish_info_table.setdefault(topic, TopicPublishInfo())
        self.routes.update_topic_route_info_from_name_server(topic)
        info = self.topic_publish_info_table.get(topic)
        if info is None or not (info.have_topic_router_info or info.ok()):
            self.routes.update_topic_route_info_from_name_server(topic, True, self.config)
            info = self.topic_publish_info_table.get(topic)
        return info

    @overload
    def send_kernel_impl(
        self, msg: Message, mq: MessageQueue, mode: Literal[CommunicationMode.SYNC], send_callback: SendCallback,
        timeout_ms: float, publish_info: TopicPublishInfo | None = None,
    ) -> SendResult: ...

    @overload
    def send_kernel_impl(
        self, msg: Message, mq: MessageQueue, mode: Literal[CommunicationMode.ONEWAY, CommunicationMode.ASYNC],
        send_callback: SendCallback, timeout_ms: float, publish_info: TopicPublishInfo | None = None,
    ) -> None: ...

    def send_kernel_impl(
        self,
        msg: Message,
        mq: MessageQueue,
        mode: CommunicationMode,
        send_callback: SendCallback,
        timeout_ms: float,
        publish_info: TopicPublishInfo | None = None,
    ) -> SendResult | None:
        """Try once to send to one queue; return a result only for SYNC."""
        addr = self._address_of(mq)
        body, sys_flag = self._body_and_sys_flag(msg)
        self.hooks.check_forbidden(msg, mq, addr, mode)
        context = self.hooks.before_send(msg, mq, addr, mode)
        header = self._header(msg, mq, sys_flag)
        api = self.mq_client_factory.mq_client_api_impl
        result = None
        try:
            if mode is CommunicationMode.SYNC:
                result = api.send_message(addr, mq.brokerName, msg, header, body, timeout_ms)
            elif mode is CommunicationMode.ONEWAY:
                api.send_message_oneway(addr, header, body, timeout_ms)
            else:
                api.send_message_async(
                    addr, mq.brokerName, msg, header, body, timeout_ms, self._guarded(send_callback, context, msg),
                    self.config.retry_times_when_send_async_failed,
                    lambda failed: self._another(publish_info, failed, mq))
        except (RemotingException, MQBrokerException) as error:
            self.hooks.after_send(context, None, error)
            # A send without publish_info is not retried, so ask for a new route here, for the next send
            if publish_info is None and makes_route_doubtful(error):
                MasterSearch(self.routes, mq.topic, 0).ask()
            raise
        if mode is not CommunicationMode.ASYNC:
            self.hooks.after_send(context, result)
        return result

    def _guarded(self, callback: SendCallback, context: SendMessageContext | None, msg: Message) -> SendCallback:
        """Return a callback that calls the hooks first, and logs the exceptions of `callback`."""
        around = self.hooks.around(context, callback)
        return SendCallback(lambda result: self._call_back(around.on_success, result, msg),
                            lambda error: self._call_back(around.on_exception, error, msg))

    def _another(
        self, publish_info: TopicPublishInfo | None, failed_broker: str, mq: MessageQueue
    ) -> tuple[str, MessageQueue] | None:
        queue = mq
        MasterSearch(self.routes, mq.topic, 0).ask()
        if publish_info is not None:
            queue = self.mq_fault_strategy.select_one_message_queue(publish_info, failed_broker)
        addr = self.routes.find_broker_address_in_publish(queue.brokerName)
        return (self._vip(addr), queue) if addr is not None else None

    def _address_of(self, mq: MessageQueue) -> str:
        addr = self.routes.find_broker_address_in_publish(mq.brokerName)
        if addr is None:
            self.try_to_find_topic_publish_info(mq.topic)
            addr = self.routes.find_broker_address_in_publish(mq.brokerName)
        if addr is None:
            raise MQClientException(f"The broker[{mq.brokerName}] not exist")
        return self._vip(addr)

    def _vip(self, addr: str) -> str:
        return mix_all.broker_vip_channel(self.config.vip_channel_enabled, addr)

    def _body_and_sys_flag(self, msg: Message) -> tuple[Any, int]:
        body, sys_flag = msg.body, 0
        if not isinstance(msg, MessageBatch):
            message_client_id_setter.set_uniq_id(msg)
            config = self.config
            if len(body) >= config.compress_msg_body_over_howmuch:
                body = compression.get_compressor(config.compress_type).compress(bytes(body), config.compress_level)
                sys_flag = sys_flags.COMPRESSED_FLAG | config.compress_type.compression_flag
        if msg.properties.get(message_const.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
            sys_flag |= sys_flags.TRANSACTION_PREPARED_TYPE
        return body, sys_flag

    def _header(self, msg: Message, mq: MessageQueue, sys_flag: int) -> SendMessageRequestHeaderV2:
        config, properties = self.config, msg.properties
        reconsume_times, max_reconsume_times = 0, None
        if msg.topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            properties = dict(properties)
            reconsume_times = int(properties.pop(message_const.PROPERTY_RECONSUME_TIME, 0))
            limit = properties.pop(message_const.PROPERTY_MAX_RECONSUME_TIMES, None)
            max_reconsume_times = int(limit) if limit is not None else None
        return SendMessageRequestHeaderV2(
            a=config.producer_group,
            b=msg.topic,
            c=config.create_topic_key,
            d=config.default_topic_queue_nums,
            e=mq.queueId,
            f=sys_flag,
            g=util_all.current_time_millis(),
            h=msg.flag,
            i=message_decoder.message_properties2string(properties),
            j=reconsume_times,
            k=config.unit_mode,
            l=max_reconsume_times,
            m=isinstance(msg, MessageBatch),
            n=mq.brokerName,
        )


class _Tries:
    """One synchronous send, with up to 1 + retry_times_when_send_failed tries, each on another broker if there is one.

    Differs: for half a second, the tries of a send do not count if a broker refuses them because the controller is
    electing a master, or if the connection to a master that has slaves is refused or lost.

    Java: org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#sendDefaultImpl (4.9.8)
    """

    def __init__(
        self, impl: DefaultMQProducerImpl, msg: Message, publish_info: TopicPublishInfo, timeout_ms: float,
        deadline_ns: int
    ) -> None:
        self._impl = impl
        self._msg = msg
        self._publish_info = publish_info
        self._timeout_ms = timeout_ms
        self._deadline_ns = deadline_ns
        self._tries_left = 0
        self._search: MasterSearch | None = None  # created at the first refusal
        self._brokers_sent: list[str] = []
        self._result: SendResult | None = None
        self._error: Exception | None = None

    def run(self) -> SendResult:
        """Try until the message is stored or no try is left; return the last result, or raise the last error."""
        self._tries_left = 1 + self._impl.config.retry_times_when_send_failed
        while self._tries_left > 0:
            self._tries_left -= 1
            last = self._brokers_sent[-1] if self._brokers_sent else None
            queue = self._impl.mq_fault_strategy.select_one_message_queue(self._publish_info, last)
            left_ms = (self._deadline_ns - time.monotonic_ns()) / 1e6
            if left_ms < 0:
                if self._result is not None:
                    return self._result
                raise RemotingTooMuchRequestException("sendDefaultImpl call timeout") from self._error
            self._brokers_sent.append(queue.brokerName)
            result = self._try(queue, left_ms)
            if result is not None:
                return result
        if self._result is not None:
            return self._result
        raise self._failure() from self._error

    def _try(self, queue: MessageQueue, left_ms: float) -> SendResult | None:
        """Try once; return the result of the send, or None to retry."""
        config, fault_strategy = self._impl.config, self._impl.mq_fault_strategy
        begin_ns = time.monotonic_ns()
        address = self._impl.routes.find_broker_address_in_publish(queue.brokerName)
        try:
            result = self._impl.send_kernel_impl(self._msg, queue, CommunicationMode.SYNC, _NO_CALLBACK, left_ms,
                                                 self._publish_info)
            self._result = result
            fault_strategy.update_fault_item(queue.brokerName, (time.monotonic_ns() - begin_ns) // 1_000_000, False)
            if result.send_status is SendStatus.SEND_OK or not config.retry_another_broker_when_not_store_ok:
                return result
            return None
        except MQBrokerException as error:
            self._note(queue, error, begin_ns)
            if error.response_code in config.retry_response_codes:
                self._look_for_master(queue, address, error)
                return None
            if self._result is not None:
                return self._result
            raise
        except (RemotingException, MQClientException) as error:
            self._note(queue, error, begin_ns)
            self._look_for_master(queue, address, error)
            return None

    def _look_for_master(self, queue: MessageQueue, refused: str | None, error: Exception) -> None:
        """Use a new route, because another broker may be the master by now.

        If the topic has queues on other brokers, ask once. Otherwise wait briefly for a new master.
        """
        if not makes_route_doubtful(error):
            return
        routes = self._impl.routes
        search = self._search = self._search or MasterSearch(routes, self._msg.topic, self._deadline_ns)
        others = any(other.brokerName != queue.brokerName for other in self._publish_info.message_queue_list)
        if others or not is_refusal(error):
            search.ask()
        elif search.may_try_again(queue.brokerName, refused, error):
            self._tries_left += 1
        else:
            search.wait_for_another(queue.brokerName, refused)
        info = self._impl.topic_publish_info_table.get(self._msg.topic)
        if info is not None and info.ok():
            self._publish_info = info

    def _note(self, queue: MessageQueue, error: Exception, begin_ns: int) -> None:
        cost_ms = (time.monotonic_ns() - begin_ns) // 1_000_000
        self._impl.mq_fault_strategy.update_fault_item(queue.brokerName, cost_ms, isolation=True)
        log.warning("sendKernelImpl exception, resend at once, Broker: %s: %s", queue, error)
        self._error = error

    def _failure(self) -> MQClientException:
        cost_ms = self._timeout_ms - (self._deadline_ns - time.monotonic_ns()) / 1e6
        failure = MQClientException(f"Send [{len(self._brokers_sent)}] times, still failed, cost [{cost_ms:.0f}]ms, "
                                    f"Topic: {self._msg.topic}, BrokersSent: {self._brokers_sent}")
        error = self._error
        if isinstance(error, MQBrokerException):
            failure.response_code = error.response_code
        elif isinstance(error, RemotingConnectException):
            failure.response_code = life.CONNECT_BROKER_EXCEPTION
        elif isinstance(error, RemotingTimeoutException):
            failure.response_code = life.ACCESS_BROKER_TIMEOUT
        elif isinstance(error, MQClientException):
            failure.response_code = life.BROKER_NOT_EXIST_EXCEPTION
        return failure
