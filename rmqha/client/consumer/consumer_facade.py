"""Base classes of the consumers that users create: names, and message traces."""
from typing import TYPE_CHECKING

from rmqha.client.async_trace_dispatcher import AsyncTraceDispatcher, start_trace_dispatcher
from rmqha.client.consumer.consumer_config import ConsumerConfig, SubscriberConfig
from rmqha.client.hooks import ConsumeMessageHook
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.life import Lifecycle
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.trace import TraceDispatcherType
from rmqha.client.trace_hooks import ConsumeMessageTraceHookImpl

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook


class ConsumerFacade(Lifecycle, ConsumerConfig):
    """Base class of the three consumers: the names to set before `start`."""

    def __init__(self, consumer_group: str, namesrv_addr: str | None, namespace: str | None) -> None:
        super().__init__()
        if namesrv_addr is not None:
            self.namesrv_addr = namesrv_addr
        self.namespace = namespace
        self.consumer_group = consumer_group


class TracedConsumer(ConsumerFacade, SubscriberConfig):
    """Base class of push and lite pull consumers, whose messages can be traced."""

    def __init__(self, consumer_group: str, namesrv_addr: str | None, namespace: str | None) -> None:
        super().__init__(consumer_group, namesrv_addr, namespace)
        self.trace_dispatcher: AsyncTraceDispatcher | None = None

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Add a hook that is called around each call of the listener, or after each pull. Call this before `start`."""
        raise NotImplementedError

    def _enable_msg_trace(
        self, trace_topic: str | None, rpc_hook: "RPCHook | None", client_manager: MQClientManager | None
    ) -> None:
        trace_producer = DefaultMQProducer("", rpc_hook=rpc_hook, client_manager=client_manager)
        self.trace_dispatcher = AsyncTraceDispatcher(
            self.consumer_group, TraceDispatcherType.CONSUME, trace_topic, trace_producer)
        self.register_consume_message_hook(ConsumeMessageTraceHookImpl(self.trace_dispatcher))

    def _start_trace(self) -> None:
        if self.trace_dispatcher is not None:
            start_trace_dispatcher(self.trace_dispatcher, self)

    def _shutdown_trace(self) -> None:
        if self.trace_dispatcher is not None:
            self.trace_dispatcher.shutdown()
