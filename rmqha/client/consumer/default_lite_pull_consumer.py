"""The lite pull consumer, which pulls in the background and returns messages from `poll`."""
from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from rmqha.client.client_config import apply_settings
from rmqha.client.consumer.consumer_config import LitePullConsumerConfig, PullConsumerSettings
from rmqha.client.consumer.consumer_facade import TracedConsumer
from rmqha.client.consumer.listeners import MessageQueueListener, MessageSelector, TopicMessageQueueChangeListener
from rmqha.client.hooks import ConsumeMessageHook
from rmqha.client.impl.consumer.default_lite_pull_consumer_impl import DefaultLitePullConsumerImpl
from rmqha.client.impl.mq_client_manager import MQClientManager, find_instance
from rmqha.common.message.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from rmqha.client.impl.mq_admin_impl import MQAdminImpl
    from rmqha.remoting.interfaces import RPCHook


class DefaultLitePullConsumer(TracedConsumer, LitePullConsumerConfig):
    """A consumer that pulls in the background and returns messages from `poll`. One thread may poll at a time.

        with DefaultLitePullConsumer("billing", "127.0.0.1:9876") as consumer:
            consumer.subscribe("orders", "paid || refunded")
            while True:
                for message in consumer.poll():
                    print(message.body)

    Use either `subscribe` (the group shares the queues) or `assign` (exactly these queues, whatever other consumers
    do). The messages that `poll` returned count as consumed at the next `poll` that commits, or with `commit_sync`.
    Settings are attributes to be set before `start`, or arguments; times are in ms. Calls that need a started consumer
    raise RuntimeError before `start`, wrong arguments raise ValueError, and a broker's refusal raises
    MQClientException.

    Java: org.apache.rocketmq.client.consumer.DefaultLitePullConsumer (4.9.8)
    """

    def __init__(
        self,
        consumer_group: str,
        namesrv_addr: str | None = None,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
        **settings: Unpack[PullConsumerSettings],
    ) -> None:
        super().__init__(consumer_group, namesrv_addr, namespace)
        self._impl = DefaultLitePullConsumerImpl(self, find_instance(client_manager, self, rpc_hook))
        apply_settings(self, settings, PullConsumerSettings)
        if enable_msg_trace:
            self._enable_msg_trace(customized_trace_topic, rpc_hook, client_manager)

    @property
    def default_lite_pull_consumer_impl(self) -> DefaultLitePullConsumerImpl:
        """The implementation. MQClientException in a process that was forked after the start."""
        self.check_process()
        return self._impl

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Add a hook that is called after each pull, as if its messages were consumed. Call this before `start`."""
        self.default_lite_pull_consumer_impl.hooks.consume_message_hook_list.append(hook)

    def start(self) -> None:
        """Start pulling. MQClientException for bad settings, a second start, or a group of another consumer with the
        same client id.
        """
        self._home.begin()
        self.consumer_group = self.with_namespace(self.consumer_group)
        self.default_lite_pull_consumer_impl.start()
        self._start_trace()

    def shutdown(self) -> None:
        """Store the offsets and disconnect. Cached messages are not consumed. Idempotent."""
        if self.is_of_another_process():
            return
        self.default_lite_pull_consumer_impl.shutdown()
        self._shutdown_trace()

    def subscribe(
        self, topic: str, sub_expression: str | MessageSelector | None = "*",
        message_queue_listener: MessageQueueListener | None = None,
    ) -> None:
        """Receive this consumer's share of a topic: all messages, some tags, or those that match an SQL92 condition."""
        if message_queue_listener is not None:
            self.message_queue_listener = message_queue_listener
        selector = sub_expression if isinstance(sub_expression, MessageSelector) else MessageSelector(sub_expression)
        self.default_lite_pull_consumer_impl.subscribe(self.with_namespace(topic), selector)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving a topic."""
        self.default_lite_pull_consumer_impl.unsubscribe(self.with_namespace(topic))

    def assign(self, message_queues: Iterable[MessageQueue]) -> None:
        """Receive exactly these queues, whatever the other consumers of the group have."""
        self.default_lite_pull_consumer_impl.assign(self._with_namespace(message_queues))

    def set_sub_expression_for_assign(self, topic: str, sub_expression: str) -> None:
        """Filter the assigned queues of a topic by tags. Call this before `start`."""
        self.default_lite_pull_consumer_impl.set_sub_expression_for_assign(self.with_namespace(topic), sub_expression)

    def poll(self, timeout_ms: float | None = None) -> list[MessageExt]:
        """Return the messages of one pull; an empty list if none arrive in time."""
        return self.default_lite_pull_consumer_impl.poll(self.poll_timeout_millis if timeout_ms is None else timeout_ms)

    def seek(self, message_queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of an assigned queue."""
        self.default_lite_pull_consumer_impl.seek(self.queue_with_namespace(message_queue), offset)

    def seek_to_begin(self, message_queue: MessageQueue) -> None:
        """Continue at the first message that the queue still has."""
        self.seek(message_queue, self._admin.min_offset(self.queue_with_namespace(message_queue)))

    def seek_to_end(self, message_queue: MessageQueue) -> None:
        """Continue after the last message."""
        self.seek(message_queue, self._admin.max_offset(self.queue_with_namespace(message_queue)))

    def pause(self, message_queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues for now; `poll` still returns the cached messages."""
        self.default_lite_pull_consumer_impl.pause(self._with_namespace(message_queues))

    def resume(self, message_queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self.default_lite_pull_consumer_impl.resume(self._with_namespace(message_queues))

    def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return all queues of a topic."""
        return self.default_lite_pull_consumer_impl.fetch_message_queues(self.with_namespace(topic))

    def offset_for_timestamp(self, message_queue: MessageQueue, timestamp: int) -> int:
        """Return the first queue offset stored at or after `timestamp` (ms)."""
        return self._admin.search_offset(self.queue_with_namespace(message_queue), timestamp)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Notify `listener` when the queues of a topic change."""
        self.default_lite_pull_consumer_impl.register_topic_message_queue_change_listener(
            self.with_namespace(topic), listener)

    def commit_sync(self) -> None:
        """Mark all messages that `poll` returned as consumed; the brokers receive the offsets within 5 s."""
        self.default_lite_pull_consumer_impl.commit_all()

    def commit(self, offsets: dict[MessageQueue, int], persist: bool = False) -> None:
        """Set the next offsets to consume; with `persist` send them to the brokers now."""
        wrapped = {self.queue_with_namespace(mq): offset for mq, offset in offsets.items()}
        self.default_lite_pull_consumer_impl.commit(wrapped, persist)

    def committed(self, message_queue: MessageQueue) -> int:
        """Return the group's offset; -1 if it has none."""
        return self.default_lite_pull_consumer_impl.committed(self.queue_with_namespace(message_queue))

    @property
    def _admin(self) -> "MQAdminImpl":
        return self.default_lite_pull_consumer_impl.check_service_state().mq_admin_impl

    def _with_namespace(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self.queue_with_namespace(mq) for mq in queues]
