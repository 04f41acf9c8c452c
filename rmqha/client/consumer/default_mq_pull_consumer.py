"""The pull consumer, which fetches messages on request."""
from typing import TYPE_CHECKING

from rmqha.client.consumer.consumer_config import PullConsumerConfig
from rmqha.client.consumer.consumer_facade import ConsumerFacade
from rmqha.client.consumer.listeners import MessageQueueListener
from rmqha.client.hooks import ConsumeMessageHook, FilterMessageHook
from rmqha.client.impl.consumer.default_mq_pull_consumer_impl import DefaultMQPullConsumerImpl, Expression
from rmqha.client.impl.mq_client_manager import MQClientManager, find_instance
from rmqha.client.results import PullCallback, PullResult
from rmqha.common.message.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from rmqha.client.impl.mq_admin_impl import MQAdminImpl
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
    from rmqha.remoting.interfaces import RPCHook


class DefaultMQPullConsumer(ConsumerFacade, PullConsumerConfig):
    """A consumer that pulls the queues and offsets that its user chooses.

        with DefaultMQPullConsumer("audit", "127.0.0.1:9876") as consumer:
            for queue in consumer.fetch_subscribe_message_queues("orders"):
                result = consumer.pull(queue, "*", consumer.fetch_consume_offset(queue, from_store=True), 32)
                for message in result.msg_found_list:
                    print(message.body)
                consumer.update_consume_offset(queue, result.next_begin_offset)

    Settings are attributes to be set before `start`; times are in ms.

    Java: org.apache.rocketmq.client.consumer.DefaultMQPullConsumer (4.9.8)
    """

    def __init__(
        self,
        consumer_group: str,
        namesrv_addr: str | None = None,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(consumer_group, namesrv_addr, namespace)
        self._impl = DefaultMQPullConsumerImpl(self, find_instance(client_manager, self, rpc_hook))

    @property
    def default_mq_pull_consumer_impl(self) -> DefaultMQPullConsumerImpl:
        """The implementation. MQClientException in a process that was forked after the start."""
        self.check_process()
        return self._impl

    def start(self) -> None:
        """Connect. MQClientException for a bad group name or a second start."""
        self._home.begin()
        self.consumer_group = self.with_namespace(self.consumer_group)
        self.register_topics = {self.with_namespace(topic) for topic in self.register_topics}
        self.default_mq_pull_consumer_impl.start()

    def shutdown(self) -> None:
        """Store the offsets and disconnect. Idempotent."""
        if self.is_of_another_process():
            return
        self.default_mq_pull_consumer_impl.shutdown()

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return all queues of a topic that can be pulled; MQClientException if the topic has none."""
        queues = self.default_mq_pull_consumer_impl.fetch_subscribe_message_queues(self.with_namespace(topic))
        return set(self.queues_without_namespace(queues))

    def fetch_message_queues_in_balance(self, topic: str) -> set[MessageQueue]:
        """Return this consumer's share of the queues of a registered topic."""
        queues = self.default_mq_pull_consumer_impl.fetch_message_queues_in_balance(self.with_namespace(topic))
        return set(self.queues_without_namespace(queues))

    def pull(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, timeout_ms: float | None = None
    ) -> PullResult:
        """Pull up to `max_nums` messages from `offset`, without waiting for new ones.

        By default a broker returns at most 32.
        """
        timeout_ms = self.consumer_pull_timeout_millis if timeout_ms is None else timeout_ms
        return self.default_mq_pull_consumer_impl.pull(
            self.queue_with_namespace(mq), sub_expression, offset, max_nums, False, timeout_ms)

    def pull_block_if_not_found(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int
    ) -> PullResult:
        """Pull like `pull`, but let the broker wait up to 20 s for a message if the queue has none yet."""
        return self.default_mq_pull_consumer_impl.pull(
            self.queue_with_namespace(mq), sub_expression, offset, max_nums, True,
            self.consumer_timeout_millis_when_suspend)

    def pull_async(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, callback: PullCallback,
        timeout_ms: float | None = None,
    ) -> None:
        """Pull and pass the result to `callback`."""
        timeout_ms = self.consumer_pull_timeout_millis if timeout_ms is None else timeout_ms
        self.default_mq_pull_consumer_impl.pull_async(
            self.queue_with_namespace(mq), sub_expression, offset, max_nums, callback, timeout_ms)

    def pull_block_if_not_found_async(
        self, mq: MessageQueue, sub_expression: Expression, offset: int, max_nums: int, callback: PullCallback
    ) -> None:
        """Pull, let the broker wait for a message, and pass the result to `callback`."""
        self.default_mq_pull_consumer_impl.pull_async(
            self.queue_with_namespace(mq), sub_expression, offset, max_nums, callback,
            self.consumer_timeout_millis_when_suspend, block=True)

    def send_message_back(self, msg: MessageExt, delay_level: int, broker_name: str | None = None) -> None:
        """Have the broker deliver a message to the group again."""
        self.default_mq_pull_consumer_impl.send_message_back(msg, delay_level, broker_name or msg.broker_name)

    def register_message_queue_listener(self, topic: str, listener: MessageQueueListener) -> None:
        """Share a topic's queues among the group, and notify `listener` when this consumer's share changes."""
        self.check_process()
        self.register_topics.add(self.with_namespace(topic))
        self.message_queue_listener = listener

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Add a hook that is called after each pull, as if its messages were consumed. Call this before `start`."""
        self.default_mq_pull_consumer_impl.hooks.consume_message_hook_list.append(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Add a hook that is called after each pull and may remove messages. Call this before `start`."""
        self.default_mq_pull_consumer_impl.filter_message_hook_list.append(hook)

    def update_consume_offset(self, mq: MessageQueue, offset: int) -> None:
        """Set the next offset to consume. It is sent to the broker now, and again every 5 s for the queues of this
        consumer's share."""
        self.default_mq_pull_consumer_impl.update_consume_offset(self.queue_with_namespace(mq), offset)

    def fetch_consume_offset(self, mq: MessageQueue, from_store: bool) -> int:
        """Return the group's next offset, from the broker (`from_store`) or from memory first; -1 if neither has one.

        MQClientException if the broker does not answer.
        """
        return self.default_mq_pull_consumer_impl.fetch_consume_offset(self.queue_with_namespace(mq), from_store)

    @property
    def admin(self) -> "MQAdminImpl":
        """The admin calls that need routes. The consumer must be running."""
        return self.default_mq_pull_consumer_impl.mq_client_factory.mq_admin_impl

    @property
    def api(self) -> "MQClientAPIImpl":
        """Low-level calls, one per kind of request, to a given address. The consumer must be running."""
        return self.default_mq_pull_consumer_impl.mq_client_factory.mq_client_api_impl
