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
    """The group of a consumer, and the settings for sharing messages and queues.

    Base class of the consumers. The implementation reads the settings while it runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.consumer_group = ""
        self.message_model = MessageModel.CLUSTERING
        self.allocate_message_queue_strategy: AllocateMessageQueueStrategy = AllocateMessageQueueAveragely()


class SubscriberConfig(ConsumerConfig):
    """Settings of push and lite pull consumers: where a new group begins."""

    def __init__(self) -> None:
        super().__init__()
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        half_an_hour_ago = util_all.current_time_millis() - HALF_AN_HOUR_MS
        # yyyyMMddHHmmss, local time
        self.consume_timestamp = util_all.time_millis_to_human_string3(half_an_hour_ago)


class PushConsumerConfig(SubscriberConfig):
    """Settings of push consumers: the listener, its threads, and the limits of the cache.

    `consume_timeout` is in minutes; other times are in ms.
    """

    def __init__(self) -> None:
        super().__init__()
        self.message_listener: MessageListenerConcurrently | MessageListenerOrderly | None = None
        self.consume_thread_min = 20
        self.consume_thread_max = 20
        # Queue offsets from the oldest to the newest cached message of a queue
        self.consume_concurrently_max_span = 2000
        # Cached messages, and MiB, of a queue
        self.pull_threshold_for_queue = 1000
        self.pull_threshold_size_for_queue = 100
        # The same over all queues; -1: no limit
        self.pull_threshold_for_topic = -1
        self.pull_threshold_size_for_topic = -1
        self.pull_interval = 0
        self.consume_message_batch_max_size = 1
        self.pull_batch_size = 32
        self.post_subscription_when_pull = False
        # -1 means 16, and no limit for an orderly listener
        self.max_reconsume_times = -1
        # For a queue of an orderly listener
        self.suspend_current_queue_time_millis = 1000
        self.consume_timeout = 15
        self.await_termination_millis_when_shutdown = 0


class LitePullConsumerConfig(SubscriberConfig):
    """Settings of lite pull consumers: pulls, commits, and the limits of the cache; times are in ms."""

    def __init__(self) -> None:
        super().__init__()
        # The time for which a broker may hold a pull, and the time to wait for its answer
        self.broker_suspend_max_time_millis = 20_000
        self.consumer_timeout_millis_when_suspend = 30_000
        # Notified when this consumer's share of the queues changes
        self.message_queue_listener: MessageQueueListener | None = None
        self.auto_commit = True
        self.auto_commit_interval_millis = 5_000
        self.pull_batch_size = 10
        # Cached messages of all queues, approximately
        self.pull_threshold_for_all = 10_000
        # Queue offsets from the oldest to the newest cached message of a queue
        self.consume_max_span = 2_000
        # Cached messages, and MiB, of a queue
        self.pull_threshold_for_queue = 1_000
        self.pull_threshold_size_for_queue = 100
        self.poll_timeout_millis = 5_000
        self.topic_metadata_check_interval_millis = 30_000


class PullConsumerConfig(ConsumerConfig):
    """Settings of pull consumers; times are in ms."""

    def __init__(self) -> None:
        super().__init__()
        # For a blocking pull: the time for which a broker may hold it, and the time to wait for its answer
        self.broker_suspend_max_time_millis = 20_000
        self.consumer_timeout_millis_when_suspend = 30_000
        # For a pull that does not block: the time to wait for its answer
        self.consumer_pull_timeout_millis = 10_000
        # Topics whose queues are shared among the group
        self.register_topics: set[str] = set()
        # Notified when this consumer's share of the queues changes
        self.message_queue_listener: MessageQueueListener | None = None
        self.max_reconsume_times = 16
        # True: a body that cannot be decompressed becomes a MissingBody instead of an error
        self.keep_bad_bodies = False


class ConsumerSettings(ClientSettings, total=False):
    """The settings that push and lite pull consumers share."""

    message_model: MessageModel
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    consume_from_where: ConsumeFromWhere
    consume_timestamp: str
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int


class PushConsumerSettings(ConsumerSettings, total=False):
    """Settings of push consumers; `consume_timeout` is in minutes, other times are in ms."""

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
    """Settings of lite pull consumers; times are in ms."""

    broker_suspend_max_time_millis: int
    consumer_timeout_millis_when_suspend: int
    message_queue_listener: MessageQueueListener | None
    auto_commit: bool
    auto_commit_interval_millis: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout_millis: int
    topic_metadata_check_interval_millis: int
