"""Paths of the broker's configuration files."""
import os
from pathlib import Path


def get_default_broker_config_path() -> str:
    """Return the path that UPDATE_BROKER_CONFIG writes to when the broker was started without `-c`."""
    return str(Path.home() / "store" / "config" / "broker.properties")


def get_topic_config_path(root_dir: str) -> str:
    """Return the path of topics.json."""
    return os.path.join(root_dir, "config", "topics.json")


def get_consumer_offset_path(root_dir: str) -> str:
    """Return the path of consumerOffset.json."""
    return os.path.join(root_dir, "config", "consumerOffset.json")


def get_lmq_consumer_offset_path(root_dir: str) -> str:
    """Return the path of lmqConsumerOffset.json, which brokers with light message queues use instead of
    consumerOffset.json."""
    return os.path.join(root_dir, "config", "lmqConsumerOffset.json")


def get_subscription_group_path(root_dir: str) -> str:
    """Return the path of subscriptionGroup.json."""
    return os.path.join(root_dir, "config", "subscriptionGroup.json")


def get_consumer_filter_path(root_dir: str) -> str:
    """Return the path of consumerFilter.json."""
    return os.path.join(root_dir, "config", "consumerFilter.json")


def get_consumer_subscription_path(root_dir: str) -> str:
    """Return the path of consumerSubscription.json, an extension of rmqha."""
    return os.path.join(root_dir, "config", "consumerSubscription.json")
