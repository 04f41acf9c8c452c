"""The push consumer, which calls a listener with messages as they arrive."""
from typing import TYPE_CHECKING, Unpack

from rmqha.client.client_config import apply_settings
from rmqha.client.consumer.consumer_config import PushConsumerConfig, PushConsumerSettings
from rmqha.client.consumer.consumer_facade import TracedConsumer
from rmqha.client.consumer.listeners import (
    FunctionListener,
    MessageListenerConcurrently,
    MessageListenerOrderly,
    SimpleListener,
)
from rmqha.client.hooks import ConsumeMessageHook, FilterMessageHook
from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl
from rmqha.client.impl.mq_client_manager import MQClientManager, find_instance
from rmqha.common.message.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook


class DefaultMQPushConsumer(TracedConsumer, PushConsumerConfig):
    """A consumer that calls a listener with each message of its subscriptions, on several threads.

    The consumers of a group share the queues.

        def listener(messages):
            for message in messages:
                print(message.msg_id, message.body)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        with DefaultMQPushConsumer("billing", "127.0.0.1:9876", listener) as consumer:
            consumer.subscribe("orders", "paid || refunded")
            input("Enter ends it")

    Settings are attributes to be set before `start`, or arguments; times are in ms, except `consume_timeout` (minutes).
    With `enable_msg_trace` the path of each message can be looked up later.

    Java: org.apache.rocketmq.client.consumer.DefaultMQPushConsumer (4.9.8)
    """

    def __init__(
        self,
        consumer_group: str,
        namesrv_addr: str | None = None,
        message_listener: MessageListenerConcurrently | MessageListenerOrderly | SimpleListener | None = None,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
        **settings: Unpack[PushConsumerSettings],
    ) -> None:
        super().__init__(consumer_group, namesrv_addr, namespace)
        self._impl = DefaultMQPushConsumerImpl(self, find_instance(client_manager, self, rpc_hook), self.check_process)
        apply_settings(self, settings, PushConsumerSettings)
        if message_listener is not None:
            self.register_message_listener(message_listener)
        if enable_msg_trace:
            self._enable_msg_trace(customized_trace_topic, rpc_hook, client_manager)

    @property
    def default_mq_push_consumer_impl(self) -> DefaultMQPushConsumerImpl:
        """The implementation. MQClientException in a process that was forked after the start."""
        self.check_process()
        return self._impl

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Add a hook that is called around each call of the listener. Call this before `start`."""
        self.default_mq_push_consumer_impl.hooks.consume_message_hook_list.append(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Add a hook that is called after each pull and may remove messages. Call this before `start`."""
        self.default_mq_push_consumer_impl.filter_message_hook_list.append(hook)

    def subscribe(self, topic: str, sub_expression: str | None = "*", expression_type: str | None = None) -> None:
        """Receive a topic: all messages, some tags ("a || b"), or those that match a condition (`expression_type` is
        "SQL92").

        Raises MQClientException for an invalid expression.
        """
        self.default_mq_push_consumer_impl.subscribe(self.with_namespace(topic), sub_expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving a topic at the next rebalance."""
        self.default_mq_push_consumer_impl.unsubscribe(self.with_namespace(topic))

    def register_message_listener(
        self, message_listener: MessageListenerConcurrently | MessageListenerOrderly | SimpleListener
    ) -> None:
        """Set the listener that is called with messages. An orderly listener gets each queue's messages in order. A
        plain function gets the list of messages, without the context that a listener object also gets.
        """
        if isinstance(message_listener, (MessageListenerConcurrently, MessageListenerOrderly)):
            self.message_listener = message_listener
        else:
            self.message_listener = FunctionListener(message_listener)

    def start(self) -> None:
        """Start receiving. MQClientException for bad settings, a second start, or a group of another consumer with the
        same client id.
        """
        self._home.begin()
        self.consumer_group = self.with_namespace(self.consumer_group)
        self.default_mq_push_consumer_impl.start()
        self._start_trace()

    def shutdown(self) -> None:
        """Let the listeners finish, store the offsets, and unregister from the brokers. Idempotent."""
        if self.is_of_another_process():
            return
        self.default_mq_push_consumer_impl.shutdown(self.await_termination_millis_when_shutdown)
        self._shutdown_trace()

    def suspend(self) -> None:
        """Stop pulling for now; messages that were pulled are still consumed."""
        self.default_mq_push_consumer_impl.suspend()

    def resume(self) -> None:
        """Resume pulling."""
        self.default_mq_push_consumer_impl.resume()

    def send_message_back(self, msg: MessageExt, delay_level: int, broker_name: str | None = None) -> None:
        """Have the broker deliver a message to the group again."""
        self.default_mq_push_consumer_impl.send_message_back(msg, delay_level, broker_name or msg.broker_name)

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return all queues of a topic that can be pulled."""
        queues = self.default_mq_push_consumer_impl.fetch_subscribe_message_queues(self.with_namespace(topic))
        return set(self.queues_without_namespace(queues))
