"""Taking messages that were pulled in the background."""
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
    """Gives messages when it is asked, one caller at a time; pulls ahead meanwhile.

        with DefaultLitePullConsumer("billing", "127.0.0.1:9876") as consumer:
            consumer.subscribe("orders", "paid || refunded")
            while True:
                for message in consumer.poll():
                    print(message.body)

    Either `subscribe` (the group shares the queues) or `assign` (these queues, whatever others do). What `poll` gave
    counts as consumed at the next `poll` that commits, or with `commit_sync`. Settings are attributes, to be set before
    `start`, or arguments; times are ms. Calls before `start` that need it raise RuntimeError, wrong arguments
    ValueError, and what a broker refuses MQClientException.

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
        """What does the work. MQClientException in a process that was forked after the start."""
        self.check_process()
        return self._impl

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Hang something behind each pull: its messages count as consumed. Before `start`."""
        self.default_lite_pull_consumer_impl.hooks.consume_message_hook_list.append(hook)

    def start(self) -> None:
        """Begin to pull. MQClientException for bad settings, a second start, or a group that is here already."""
        self._home.begin()
        self.consumer_group = self.with_namespace(self.consumer_group)
        self.default_lite_pull_consumer_impl.start()
        self._start_trace()

    def shutdown(self) -> None:
        """Store offsets, disconnect. What is cached is not consumed. Idempotent."""
        if self.is_of_another_process():
            return
        self.default_lite_pull_consumer_impl.shutdown()
        self._shutdown_trace()

    def subscribe(
        self, topic: str, sub_expression: str | MessageSelector | None = "*",
        message_queue_listener: MessageQueueListener | None = None,
    ) -> None:
        """Take this consumer's share of a topic: all, some tags, or what an SQL92 condition matches."""
        if message_queue_listener is not None:
            self.message_queue_listener = message_queue_listener
        selector = sub_expression if isinstance(sub_expression, MessageSelector) else MessageSelector(sub_expression)
        self.default_lite_pull_consumer_impl.subscribe(self.with_namespace(topic), selector)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving a topic."""
        self.default_lite_pull_consumer_impl.unsubscribe(self.with_namespace(topic))

    def assign(self, message_queues: Iterable[MessageQueue]) -> None:
        """Take exactly these queues, whatever others of the group have."""
        self.default_lite_pull_consumer_impl.assign(self._with_namespace(message_queues))

    def set_sub_expression_for_assign(self, topic: str, sub_expression: str) -> None:
        """Filter the assigned queues of a topic by tags. Before `start`."""
        self.default_lite_pull_consumer_impl.set_sub_expression_for_assign(self.with_namespace(topic), sub_expression)

    def poll(self, timeout_ms: float | None = None) -> list[MessageExt]:
        """The messages of one pull; none when none come in time."""
        return self.default_lite_pull_consumer_impl.poll(self.poll_timeout_millis if timeout_ms is None else timeout_ms)

    def seek(self, message_queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in an assigned queue."""
        self.default_lite_pull_consumer_impl.seek(self.queue_with_namespace(message_queue), offset)

    def seek_to_begin(self, message_queue: MessageQueue) -> None:
        """Go on at the first message that is still there."""
        self.seek(message_queue, self._admin.min_offset(self.queue_with_namespace(message_queue)))

    def seek_to_end(self, message_queue: MessageQueue) -> None:
        """Go on after the last message."""
        self.seek(message_queue, self._admin.max_offset(self.queue_with_namespace(message_queue)))

    def pause(self, message_queues: Iterable[MessageQueue]) -> None:
        """Pull nothing of these for now; what is cached is still handed out."""
        self.default_lite_pull_consumer_impl.pause(self._with_namespace(message_queues))

    def resume(self, message_queues: Iterable[MessageQueue]) -> None:
        """Pull again."""
        self.default_lite_pull_consumer_impl.resume(self._with_namespace(message_queues))

    def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """All queues of a topic."""
        return self.default_lite_pull_consumer_impl.fetch_message_queues(self.with_namespace(topic))

    def offset_for_timestamp(self, message_queue: MessageQueue, timestamp: int) -> int:
        """The first queue offset stored at or after `timestamp` (ms)."""
        return self._admin.search_offset(self.queue_with_namespace(message_queue), timestamp)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Tell `listener` when the queues of a topic change."""
        self.default_lite_pull_consumer_impl.register_topic_message_queue_change_listener(
            self.with_namespace(topic), listener)

    def commit_sync(self) -> None:
        """All that `poll` gave is consumed; brokers hear of it within 5 s."""
        self.default_lite_pull_consumer_impl.commit_all()

    def commit(self, offsets: dict[MessageQueue, int], persist: bool = False) -> None:
        """These are the next offsets to consume; `persist` tells the brokers now."""
        wrapped = {self.queue_with_namespace(mq): offset for mq, offset in offsets.items()}
        self.default_lite_pull_consumer_impl.commit(wrapped, persist)

    def committed(self, message_queue: MessageQueue) -> int:
        """The group's offset; -1 when there is none."""
        return self.default_lite_pull_consumer_impl.committed(self.queue_with_namespace(message_queue))

    @property
    def _admin(self) -> "MQAdminImpl":
        return self.default_lite_pull_consumer_impl.check_service_state().mq_admin_impl

    def _with_namespace(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self.queue_with_namespace(mq) for mq in queues]
