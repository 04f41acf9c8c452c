"""Checks of a push consumer's settings."""
from datetime import datetime
from typing import TYPE_CHECKING

from rmqha.client import validators
from rmqha.client.exception import MQClientException

if TYPE_CHECKING:
    from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer

# name for people, attribute, least, most; -1 switches a limit off where marked
_RANGES = (
    ("consumeThreadMin", "consume_thread_min", 1, 1000, False),
    ("consumeThreadMax", "consume_thread_max", 1, 1000, False),
    ("consumeConcurrentlyMaxSpan", "consume_concurrently_max_span", 1, 65535, False),
    ("pullThresholdForQueue", "pull_threshold_for_queue", 1, 65535, False),
    ("pullThresholdForTopic", "pull_threshold_for_topic", 1, 6553500, True),
    ("pullThresholdSizeForQueue", "pull_threshold_size_for_queue", 1, 1024, False),
    ("pullThresholdSizeForTopic", "pull_threshold_size_for_topic", 1, 102400, True),
    ("pullInterval", "pull_interval", 0, 65535, False),
    ("consumeMessageBatchMaxSize", "consume_message_batch_max_size", 1, 1024, False),
    ("pullBatchSize", "pull_batch_size", 1, 1024, False),
)


def check_push_config(consumer: "DefaultMQPushConsumer") -> None:
    """Raise MQClientException for the first setting that is wrong.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl#checkConfig (4.9.8)
    """
    validators.check_consumer_group(consumer.consumer_group)
    for name in ("message_model", "consume_from_where", "allocate_message_queue_strategy", "message_listener"):
        if getattr(consumer, name) is None:
            raise MQClientException(f"{_camel_case(name)} is null")
    _check_timestamp(consumer.consume_timestamp)
    for name, attribute, least, most, may_be_off in _RANGES:
        value = getattr(consumer, attribute)
        if not least <= value <= most and not (may_be_off and value == -1):
            raise MQClientException(f"{name} Out of range [{least}, {most}]")
    if consumer.consume_thread_min > consumer.consume_thread_max:
        raise MQClientException(f"consumeThreadMin ({consumer.consume_thread_min}) is larger than consumeThreadMax "
                                f"({consumer.consume_thread_max})")


def _check_timestamp(text: str) -> None:
    try:
        datetime.strptime(text, "%Y%m%d%H%M%S")
    except ValueError:
        raise MQClientException(
            f"consumeTimestamp is invalid, the valid format is yyyyMMddHHmmss,but received {text}") from None


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
