"""Counters of a broker with light message queues."""
from rmqha.common import mix_all
from rmqha.store.stats.broker_stats_manager import BrokerStatsManager


class LmqBrokerStatsManager(BrokerStatsManager):
    """What consumers get from light queues counts under one name, `%LMQ%`: there may be very many of them.

    Java: org.apache.rocketmq.store.stats.LmqBrokerStatsManager (4.9.8)
    """

    def inc_group_get_nums(self, group: str, topic: str, inc_value: int) -> None:
        """Count messages a group got from a topic."""
        super().inc_group_get_nums(_folded(group), _folded(topic), inc_value)

    def inc_group_get_size(self, group: str, topic: str, inc_value: int) -> None:
        """Count bytes a group got from a topic."""
        super().inc_group_get_size(_folded(group), _folded(topic), inc_value)

    def inc_group_get_latency(self, group: str, topic: str, queue_id: int, inc_value_ms: int) -> None:
        """Count the time of one pull."""
        super().inc_group_get_latency(_folded(group), _folded(topic), queue_id, inc_value_ms)

    def inc_send_back_nums(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        super().inc_send_back_nums(_folded(group), _folded(topic))

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages per second that a group got from a topic, over the last minute."""
        return super().tps_group_get_nums(_folded(group), _folded(topic))

    def record_disk_fall_behind_time(self, group: str, topic: str, queue_id: int, fall_behind_ms: int) -> None:
        """Note the age of the last message that a group got from a queue."""
        super().record_disk_fall_behind_time(_folded(group), _folded(topic), queue_id, fall_behind_ms)

    def record_disk_fall_behind_size(self, group: str, topic: str, queue_id: int, fall_behind: int) -> None:
        """Note how many bytes of the log a group has behind it."""
        super().record_disk_fall_behind_size(_folded(group), _folded(topic), queue_id, fall_behind)


def _folded(name: str) -> str:
    return mix_all.LMQ_PREFIX if mix_all.is_lmq(name) else name
