"""Topics of a broker with light message queues."""
from rmqha.broker.topic.topic_config_manager import TopicConfigManager
from rmqha.common import mix_all
from rmqha.common.constant import perm_name
from rmqha.common.topic_config import TopicConfig


class LmqTopicConfigManager(TopicConfigManager):
    """Every light queue is there, with one queue to read and to write, and none is kept in the table.

    Java: org.apache.rocketmq.broker.topic.LmqTopicConfigManager (4.9.8)
    """

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """The topic, or None."""
        if mix_all.is_lmq(topic):
            return TopicConfig(topic, 1, 1, perm_name.PERM_READ | perm_name.PERM_WRITE)
        return super().select_topic_config(topic)

    def update_topic_config(self, topic_config: TopicConfig) -> None:
        """Create or replace a topic; nothing for a light queue."""
        if not mix_all.is_lmq(topic_config.topicName):
            super().update_topic_config(topic_config)
