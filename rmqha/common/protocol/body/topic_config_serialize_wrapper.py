"""All topics of a broker."""
from dataclasses import dataclass, field

from rmqha.common.data_version import DataVersion
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
