"""The producer, which sends messages."""
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from rmqha.client import exception
from rmqha.client.async_trace_dispatcher import AsyncTraceDispatcher, start_trace_dispatcher
from rmqha.client.client_config import apply_settings
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import CheckForbiddenHook, EndTransactionHook, SendMessageHook
from rmqha.client.impl.default_mq_producer_impl import DefaultMQProducerImpl, MessageQueueSelector
from rmqha.client.impl.mq_client_instance import FindInstance
from rmqha.client.impl.mq_client_manager import MQClientManager, find_instance
from rmqha.client.life import Lifecycle
from rmqha.client.producer.producer_config import ProducerConfig, ProducerSettings
from rmqha.client.producer.request_response_future import RequestCallback
from rmqha.client.results import SendCallback, SendResult
from rmqha.client.trace import TraceDispatcherType
from rmqha.client.trace_hooks import EndTransactionTraceHookImpl, SendMessageTraceHookImpl
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch

if TYPE_CHECKING:
    from rmqha.client.impl.mq_admin_impl import MQAdminImpl
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
    from rmqha.remoting.interfaces import RPCHook


class DefaultMQProducer(Lifecycle, ProducerConfig):
    """A producer that sends messages to the masters of a cluster. Many threads can share it.

        with DefaultMQProducer("orders", "127.0.0.1:9876") as producer:
            result = producer.send(Message("orders", b"17 apples", tags="fruit", keys="order-17"))
            print(result.send_status, result.msg_id)

    Settings are attributes to be set before `start`, or arguments; times are in ms, sizes in bytes. With
    `enable_msg_trace` the path of each message can be looked up later (topic RMQ_SYS_TRACE_TOPIC or
    `customized_trace_topic`). Sends raise MQClientException (nothing could be sent), MQBrokerException (a broker
    refused the message), or RemotingException (no answer; the message may be stored).

    Java: org.apache.rocketmq.client.producer.DefaultMQProducer (4.9.8)
    """

    def __init__(
        self,
        producer_group: str,
        namesrv_addr: str | None = None,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__()
        if namesrv_addr is not None:
            self.namesrv_addr = namesrv_addr
        self.namespace = namespace
        self.producer_group = producer_group
        self._impl = self._make_impl(find_instance(client_manager, self, rpc_hook))
        self.trace_dispatcher: AsyncTraceDispatcher | None = None
        apply_settings(self, settings, ProducerSettings)
        if enable_msg_trace:
            self._enable_msg_trace(customized_trace_topic, rpc_hook, client_manager)

    def _make_impl(self, find_client: FindInstance) -> DefaultMQProducerImpl:
        return DefaultMQProducerImpl(self, find_client)

    @property
    def default_mq_producer_impl(self) -> DefaultMQProducerImpl:
        """The implementation. MQClientException in a process that was forked after the start."""
        self.check_process()
        return self._impl

    def _enable_msg_trace(
        self, trace_topic: str | None, rpc_hook: "RPCHook | None", client_manager: MQClientManager | None
    ) -> None:
        trace_producer = DefaultMQProducer("", rpc_hook=rpc_hook, client_manager=client_manager)
        self.trace_dispatcher = AsyncTraceDispatcher(
            self.producer_group, TraceDispatcherType.PRODUCE, trace_topic, trace_producer)
        self.register_send_message_hook(SendMessageTraceHookImpl(self.trace_dispatcher))
        self.register_end_transaction_hook(EndTransactionTraceHookImpl(self.trace_dispatcher))

    def register_send_message_hook(self, hook: SendMessageHook) -> None:
        """Add a hook that is called around each try of a send. Call this before `start`."""
        self.default_mq_producer_impl.hooks.send_message_hook_list.append(hook)

    def register_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Add a hook that is called before each END_TRANSACTION. Call this before `start`."""
        self.default_mq_producer_impl.hooks.end_transaction_hook_list.append(hook)

    def register_check_forbidden_hook(self, hook: CheckForbiddenHook) -> None:
        """Add a hook that is called before each try of a send and may forbid it. Call this before `start`."""
        self.default_mq_producer_impl.hooks.check_forbidden_hook_list.append(hook)

    @property
    def send_latency_fault_enable(self) -> bool:
        """True if brokers that answer slowly are avoided for a while."""
        return self.default_mq_producer_impl.mq_fault_strategy.send_latency_fault_enable

    @send_latency_fault_enable.setter
    def send_latency_fault_enable(self, is_on: bool) -> None:
        self.default_mq_producer_impl.mq_fault_strategy.send_latency_fault_enable = is_on

    def start(self) -> None:
        """Connect. MQClientException for a bad group name, a second start, or a group of another producer with the same
        client id."""
        self._home.begin()
        self.producer_group = self.with_namespace(self.producer_group)
        self.default_mq_producer_impl.start()
        if self.trace_dispatcher is not None:
            start_trace_dispatcher(self.trace_dispatcher, self)

    def shutdown(self) -> None:
        """Disconnect. Idempotent."""
        if self.is_of_another_process():
            return
        self.default_mq_producer_impl.shutdown()
        if self.trace_dispatcher is not None:
            self.trace_dispatcher.shutdown()

    def send(
        self,
        msg: Message,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
    ) -> SendResult:
        """Send and wait for the answer.

        By default the message goes to any queue, and a failed try is repeated at other brokers. With `queue` or
        `selector` it goes to that queue, in one try. `selector(queues, msg, arg)` gets the topic's writable queues.
        """
        timeout_ms = self._timeout(timeout_ms)
        if selector is not None:
            queue = self.default_mq_producer_impl.select_queue(msg, selector, arg)
        msg, queue = self._as_brokers_know_them(msg, queue)
        if queue is not None:
            return self.default_mq_producer_impl.send_to_queue(msg, queue, timeout_ms)
        return self.default_mq_producer_impl.send(msg, timeout_ms)

    def send_async(
        self,
        msg: Message,
        send_callback: SendCallback,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send, and pass the result or the error to `send_callback`."""
        msg, queue = self._as_brokers_know_them(msg, queue)
        self.default_mq_producer_impl.send_async(msg, send_callback, self._timeout(timeout_ms), queue)

    def send_oneway(self, msg: Message, queue: MessageQueue | None = None) -> None:
        """Send without an answer. This is fast, but the message may be lost without an error."""
        self.default_mq_producer_impl.send_oneway(*self._as_brokers_know_them(msg, queue))

    def request(
        self,
        msg: Message,
        timeout_ms: float,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
    ) -> MessageExt:
        """Send `msg` and wait for the reply from one of its consumers (see create_reply_message).

        RequestTimeoutException if no reply arrives in time; MQClientException if the request could not be sent.
        """
        if selector is not None:
            queue = self.default_mq_producer_impl.select_queue(msg, selector, arg)
        msg, queue = self._as_brokers_know_them(msg, queue)
        return self.default_mq_producer_impl.request(msg, timeout_ms, queue)

    def request_async(
        self, msg: Message, request_callback: RequestCallback, timeout_ms: float, queue: MessageQueue | None = None
    ) -> None:
        """Send `msg`, and pass the reply or the error to `request_callback`."""
        msg, queue = self._as_brokers_know_them(msg, queue)
        self.default_mq_producer_impl.request_async(msg, timeout_ms, queue, request_callback)

    def send_batch(
        self, msgs: Iterable[Message], timeout_ms: float | None = None, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: all of them are stored, or none. The limit is 4 MiB in total.

        MQClientException if one of them could not be sent alone, or if they can't be sent together.
        """
        return self.send(self._batch(msgs), timeout_ms, queue)

    def send_batch_async(
        self, msgs: Iterable[Message], send_callback: SendCallback, timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send like `send_batch`, and pass the result or the error to `send_callback`.

        MQClientException if the messages can't be sent as a batch.
        """
        self.send_async(self._batch(msgs), send_callback, timeout_ms, queue)

    def _batch(self, msgs: Iterable[Message]) -> MessageBatch:
        messages = list(msgs)
        exception.check_batch(messages, self.max_message_size)
        batch = MessageBatch(messages).take_over()
        batch.is_checked = True
        for msg in batch:
            message_decoder.set_uniq_id(msg)
        try:
            batch.body = batch.encode()
        except (ValueError, struct.error) as error:
            # A value does not fit its field of the wire format
            raise MQClientException("Failed to initiate the MessageBatch") from error
        return batch

    def _as_brokers_know_them(
        self, msg: Message, queue: MessageQueue | None
    ) -> tuple[Message, MessageQueue | None]:
        if not self.get_namespace():
            return msg, queue
        return self.default_mq_producer_impl.with_namespace(msg), queue and self.queue_with_namespace(queue)

    def _timeout(self, timeout_ms: float | None) -> float:
        return self.send_msg_timeout if timeout_ms is None else timeout_ms

    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic."""
        return self.queues_without_namespace(self.admin.fetch_publish_message_queues(self.with_namespace(topic)))

    @property
    def admin(self) -> "MQAdminImpl":
        """The admin calls that need routes: create topics, query offsets, find messages. The producer must be running.
        """
        return self.default_mq_producer_impl.mq_client_factory.mq_admin_impl

    @property
    def api(self) -> "MQClientAPIImpl":
        """Low-level calls, one per kind of request, to a given address: run-time information, settings, statistics.

        The producer must be running.
        """
        return self.default_mq_producer_impl.mq_client_factory.mq_client_api_impl
