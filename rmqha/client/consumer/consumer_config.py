"""Settings of consumers."""
from rmqha.client.client_config import ClientConfig, ClientSettings
from rmqha.client.consumer.allocate_message_queue_strategy import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
)
from rmqha.client.consumer.listeners import MessageListenerConcurrently, MessageListenerOrderly, MessageQueueListener
from rmqha.common import util_all
from rmqha.common.subscriptions import ConsumeFromWhere, MessageModel

HALF_AN_HOUR_MS = 30 * 60 * 1000


class ConsumerConfig(ClientConfig):
    """The group of a consumer, and how it shares messages and queues. Base of the consumers: the implementation reads
    the settings while it runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.consumer_group = ""
        self.message_model = MessageModel.CLUSTERING
        self.allocate_message_queue_strategy: AllocateMessageQueueStrategy = AllocateMessageQueueAveragely()


class SubscriberConfig(ConsumerConfig):
    """Of push and lite pull consumers: where a group begins."""

    def __init__(self) -> None:
        super().__init__()
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        half_an_hour_ago = util_all.current_time_millis() - HALF_AN_HOUR_MS
        self.consume_timestamp = util_all.time_millis_to_human_string3(half_an_hour_ago)  # yyyyMMddHHmmss, local time


class PushConsumerConfig(SubscriberConfig):
    """Of push consumers: the listener, its threads, and the limits of the cache; `consume_timeout` is in minutes, other
    times in ms.
    """

    def __init__(self) -> None:
        super().__init__()
        self.message_listener: MessageListenerConcurrently | MessageListenerOrderly | None = None
        self.consume_thread_min = 20
        self.consume_thread_max = 20
        self.consume_concurrently_max_span = 2000  # queue offsets between the oldest and the newest in the cache
        self.pull_threshold_for_queue = 1000  # messages in the cache
        self.pull_threshold_size_for_queue = 100  # MiB in the cache
        self.pull_threshold_for_topic = -1  # messages over all queues; -1: no such limit
        self.pull_threshold_size_for_topic = -1  # MiB over all queues; -1: no such limit
        self.pull_interval = 0
        self.consume_message_batch_max_size = 1
        self.pull_batch_size = 32
        self.post_subscription_when_pull = False
        self.max_reconsume_times = -1  # -1: 16; for an orderly listener no limit
        self.suspend_current_queue_time_millis = 1000  # of an orderly listener's queue
        self.consume_timeout = 15
        self.await_termination_millis_when_shutdown = 0


class LitePullConsumerConfig(SubscriberConfig):
    """Of lite pull consumers: pulls, commits, and the limits of the cache; times are ms."""

    def __init__(self) -> None:
        super().__init__()
        self.broker_suspend_max_time_millis = 20_000  # how long a broker may hold a pull
        self.consumer_timeout_millis_when_suspend = 30_000  # how long to wait for its answer
        self.message_queue_listener: MessageQueueListener | None = None  # told when this consumer's share changed
        self.auto_commit = True
        self.auto_commit_interval_millis = 5_000
        self.pull_batch_size = 10
        self.pull_threshold_for_all = 10_000  # messages in the cache, about
        self.consume_max_span = 2_000  # queue offsets between the oldest and the newest of a queue in the cache
        self.pull_threshold_for_queue = 1_000  # messages of a queue in the cache
        self.pull_threshold_size_for_queue = 100  # MiB of a queue in the cache
        self.poll_timeout_millis = 5_000
        self.topic_metadata_check_interval_millis = 30_000


class PullConsumerConfig(ConsumerConfig):
    """Of pull consumers; times are ms."""

    def __init__(self) -> None:
        super().__init__()
        self.broker_suspend_max_time_millis = 20_000  # how long a broker may hold a pull that blocks
        self.consumer_timeout_millis_when_suspend = 30_000  # how long to wait for its answer
        self.consumer_pull_timeout_millis = 10_000  # how long to wait for the answer to one that does not
        self.register_topics: set[str] = set()  # topics whose queues are shared among the group
        self.message_queue_listener: MessageQueueListener | None = None  # told when this consumer's share changed
        self.max_reconsume_times = 16
        self.keep_bad_bodies = False  # a MissingBody for a body that does not decompress, instead of an error


class ConsumerSettings(ClientSettings, total=False):
    """Of push and lite pull consumers."""

    message_model: MessageModel
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    consume_from_where: ConsumeFromWhere
    consume_timestamp: str
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int


class PushConsumerSettings(ConsumerSettings, total=False):
    """Of push consumers; `consume_timeout` in minutes, other times in ms."""

    consume_thread_min: int
    consume_thread_max: int
    consume_concurrently_max_span: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval: int
    consume_message_batch_max_size: int
    post_subscription_when_pull: bool
    max_reconsume_times: int
    suspend_current_queue_time_millis: int
    consume_timeout: int
    await_termination_millis_when_shutdown: int


class PullConsumerSettings(ConsumerSettings, total=False):
    """Of lite pull consumers; times in ms."""

    broker_suspend_max_time_millis: int
    consumer_timeout_millis_when_suspend: int
    message_queue_listener: MessageQueueListener | None
    auto_commit: bool
    auto_commit_interval_millis: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout_millis: int
    topic_metadata_check_interval_millis: int
