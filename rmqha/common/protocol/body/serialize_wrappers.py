"""All topics, groups or offsets of a broker: what its files hold and its slaves copy."""
from dataclasses import dataclass, field

from rmqha.common.data_version import DataVersion
from rmqha.common.subscription.subscription_group_config import SubscriptionGroupConfig
from rmqha.common.topic_config import TopicConfig


@dataclass(slots=True)
class TopicConfigSerializeWrapper:
    """Topics by name (answer of GET_ALL_TOPIC_CONFIG, topics.json, part of registrations).

    Java: org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper (4.9.8)
    """

    topicConfigTable: dict[str, TopicConfig] = field(default_factory=dict)
    dataVersion: DataVersion = field(default_factory=DataVersion)
    # Of our own, in answers of GET_ALL_TOPIC_CONFIG only, and only when there are any: deleted topic -> commit log
    # offset below which its records are dead. 4.9 does not read it.
    deletedTopics: dict[str, int] | None = None


@dataclass(slots=True)
class SubscriptionGroupWrapper:
    """Groups by name (answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG, subscriptionGroup.json).

    Java: org.apache.rocketmq.common.protocol.body.SubscriptionGroupWrapper (4.9.8)
    """

    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    dataVersion: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class ConsumerOffsetSerializeWrapper:
    """Queue id to offset by `topic@group` (answer of GET_ALL_CONSUMER_OFFSET, consumerOffset.json).

    Java: org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[str, dict[int, int]] = field(default_factory=dict)
