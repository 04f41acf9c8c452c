"""Settings as arguments: `Producer("orders", send_msg_timeout=5_000)` is the attribute, set before `start`.

The classes below are what type checkers know of them; a test compares them with the attributes.
"""
from collections.abc import Mapping
from typing import TypedDict

from rmqha.client.client_config import AccessChannel
from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueStrategy
from rmqha.client.consumer.message_queue_listener import MessageQueueListener
from rmqha.common.configuration import nearest_key
from rmqha.common.subscriptions import ConsumeFromWhere, MessageModel
from rmqha.common.sys_flags import CompressionType
from rmqha.remoting.tls_system_config import TlsSystemConfig


class ClientSettings(TypedDict, total=False):
    """Of every client; intervals in ms."""

    client_ip: str
    instance_name: str
    client_callback_executor_threads: int
    access_channel: AccessChannel
    poll_name_server_interval: int
    heartbeat_broker_interval: int
    persist_consumer_offset_interval: int
    pull_time_delay_mills_when_exception: int
    unit_mode: bool
    unit_name: str | None
    vip_channel_enabled: bool
    use_tls: bool
    tls: TlsSystemConfig | None
    mq_client_api_timeout: int


class ProducerSettings(ClientSettings, total=False):
    """Of producers; times in ms, sizes in bytes."""

    retry_response_codes: set[int]
    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: int
    send_latency_fault_enable: bool
    compress_msg_body_over_howmuch: int
    compress_type: CompressionType
    compress_level: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    max_message_size: int


class TransactionProducerSettings(ProducerSettings, total=False):
    """Of producers with transactions."""

    check_thread_pool_max_size: int
    check_request_hold_max: int


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


def apply_settings(client: object, settings: Mapping[str, object], kind: type) -> None:
    """Set the attributes; TypeError, with the nearest name, for what is none of `kind`, one of the classes above."""
    known = kind.__annotations__  # those of its bases are among them
    for name, value in settings.items():
        if name not in known:
            near = nearest_key(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"{type(client).__name__} has no setting {name!r}{hint}")
        setattr(client, name, value)
