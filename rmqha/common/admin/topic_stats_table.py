"""The ranges of a topic's queues."""
from dataclasses import dataclass, field

from rmqha.common.admin.topic_offset import TopicOffset
from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class TopicStatsTable:
    """The answer of GET_TOPIC_STATS_INFO.

    Java: org.apache.rocketmq.common.admin.TopicStatsTable (4.9.8)
    """

    offsetTable: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
