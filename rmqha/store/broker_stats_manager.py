"""The counters of a broker, and its message totals of today and yesterday.

    any thread --inc*--> StatsItem (one lock each) <--sample, print-- BrokerStatsThread1
"""
import logging
from enum import Enum

from rmqha.common import mix_all, stats
from rmqha.common.stats import MomentStatsItemSet, StatsItem, StatsItemSet
from rmqha.common.threads import ScheduledService
from rmqha.store.store_stats_service import StoreStatsService

broker_log = logging.getLogger("RocketmqBroker")


class BrokerStats:
    """The totals of puts and gets at the last two midnights and now. `record` is called at each midnight.

    Java: org.apache.rocketmq.store.stats.BrokerStats (4.9.8)
    """

    def __init__(self, store_stats_service: StoreStatsService) -> None:
        self._stats = store_stats_service
        self.msg_put_total_yesterday_morning = 0
        self.msg_put_total_today_morning = 0
        self.msg_get_total_yesterday_morning = 0
        self.msg_get_total_today_morning = 0

    def record(self) -> None:
        """Shift the totals of today to yesterday."""
        self.msg_put_total_yesterday_morning = self.msg_put_total_today_morning
        self.msg_get_total_yesterday_morning = self.msg_get_total_today_morning
        self.msg_put_total_today_morning = self.msg_put_total_today_now
        self.msg_get_total_today_morning = self.msg_get_total_today_now
        broker_log.info("yesterday put message total: %d",
                 self.msg_put_total_today_morning - self.msg_put_total_yesterday_morning)
        broker_log.info("yesterday get message total: %d",
                 self.msg_get_total_today_morning - self.msg_get_total_yesterday_morning)

    @property
    def msg_put_total_today_now(self) -> int:
        """The number of messages put since the store started."""
        return self._stats.get_put_message_times_total()

    @property
    def msg_get_total_today_now(self) -> int:
        """The number of messages delivered since the store started."""
        return self._stats.get_message_transfered_msg_count


log = logging.getLogger("RocketmqStats")
COMMERCIAL_LOG = logging.getLogger("RocketmqCommercial")

# Bytes that count as one call.
SIZE_PER_COUNT = 64 * 1024

_QUEUE_STATS = (stats.QUEUE_PUT_NUMS, stats.QUEUE_PUT_SIZE, stats.QUEUE_GET_NUMS, stats.QUEUE_GET_SIZE)
_STATS = (
    stats.TOPIC_PUT_NUMS, stats.TOPIC_PUT_SIZE, stats.GROUP_GET_NUMS, stats.GROUP_GET_SIZE, stats.GROUP_GET_LATENCY,
    stats.SNDBCK_PUT_NUMS, stats.BROKER_PUT_NUMS, stats.BROKER_GET_NUMS, stats.GROUP_GET_FROM_DISK_NUMS,
    stats.GROUP_GET_FROM_DISK_SIZE, stats.BROKER_GET_FROM_DISK_NUMS, stats.BROKER_GET_FROM_DISK_SIZE,
)
_COMMERCIAL_STATS = (
    stats.COMMERCIAL_SEND_TIMES, stats.COMMERCIAL_RCV_TIMES, stats.COMMERCIAL_SEND_SIZE, stats.COMMERCIAL_RCV_SIZE,
    stats.COMMERCIAL_RCV_EPOLLS, stats.COMMERCIAL_SNDBCK_TIMES, stats.COMMERCIAL_PERM_FAILURES,
)


class StatsType(Enum):
    """The kinds of events that commercial counters count.

    Java: org.apache.rocketmq.store.stats.BrokerStatsManager$StatsType (4.9.8)
    """

    SEND_SUCCESS = 0
    SEND_FAILURE = 1
    SEND_BACK = 2
    SEND_TIMER = 3
    SEND_TRANSACTION = 4
    RCV_SUCCESS = 5
    RCV_EPOLLS = 6
    PERM_FAILURE = 7


class BrokerStatsManager:
    """The broker's counters by name and key.

    A key is `topic`, `topic@queueId`, `topic@group`, `queueId@topic@group` or the name of the cluster.

    Java: org.apache.rocketmq.store.stats.BrokerStatsManager (4.9.8)
    """

    # Differs: one timer thread serves both the ordinary and the commercial counters.
    def __init__(self, cluster_name: str, enable_queue_stat: bool) -> None:
        self.cluster_name = cluster_name
        self.enable_queue_stat = enable_queue_stat
        self._scheduler = ScheduledService("BrokerStatsThread1")
        names = (_QUEUE_STATS if enable_queue_stat else ()) + _STATS
        self.stats_table = {name: StatsItemSet(name, log) for name in names}
        self.stats_table |= {name: StatsItemSet(name, COMMERCIAL_LOG) for name in _COMMERCIAL_STATS}
        self.moment_stats_item_set_fall_size = MomentStatsItemSet(stats.GROUP_GET_FALL_SIZE, log)
        self.moment_stats_item_set_fall_time = MomentStatsItemSet(stats.GROUP_GET_FALL_TIME, log)
        self._topic_put_nums = self.stats_table[stats.TOPIC_PUT_NUMS]
        self._topic_put_size = self.stats_table[stats.TOPIC_PUT_SIZE]
        self._group_get_nums = self.stats_table[stats.GROUP_GET_NUMS]
        self._group_get_size = self.stats_table[stats.GROUP_GET_SIZE]
        self._broker_put = self.stats_table[stats.BROKER_PUT_NUMS].get_and_create_stats_item(cluster_name)
        self._broker_get = self.stats_table[stats.BROKER_GET_NUMS].get_and_create_stats_item(cluster_name)

    def start(self) -> None:
        """Start sampling and logging."""
        for item_set in self.stats_table.values():
            item_set.init(self._scheduler)
        for moment_set in (self.moment_stats_item_set_fall_size, self.moment_stats_item_set_fall_time):
            moment_set.init(self._scheduler)

    def shutdown(self) -> None:
        """Stop the timer. Idempotent."""
        self._scheduler.shutdown()

    def get_stats_item(self, stats_name: str, stats_key: str) -> StatsItem | None:
        """Return the counter, or None if the name or the key is unknown."""
        item_set = self.stats_table.get(stats_name)
        return item_set.get_stats_item(stats_key) if item_set else None

    def on_topic_deleted(self, topic: str) -> None:
        """Forget the counters of a topic."""
        self._topic_put_nums.del_value(topic)
        self._topic_put_size.del_value(topic)
        for name in _QUEUE_STATS + (stats.GROUP_GET_NUMS, stats.GROUP_GET_SIZE, stats.SNDBCK_PUT_NUMS):
            # Differs: without enableDetailStat the original fails to forget a topic.
            item_set = self.stats_table.get(name)
            if item_set is not None:
                item_set.del_value_by_prefix_key(topic, "@")
        self.stats_table[stats.GROUP_GET_LATENCY].del_value_by_infix_key(topic, "@")
        self.moment_stats_item_set_fall_size.del_value_by_infix_key(topic, "@")
        self.moment_stats_item_set_fall_time.del_value_by_infix_key(topic, "@")

    def on_group_deleted(self, group: str) -> None:
        """Forget the counters of a consumer group."""
        names = (stats.GROUP_GET_NUMS, stats.GROUP_GET_SIZE, stats.QUEUE_GET_NUMS, stats.QUEUE_GET_SIZE,
                 stats.SNDBCK_PUT_NUMS, stats.GROUP_GET_LATENCY)
        for name in names:
            item_set = self.stats_table.get(name)
            if item_set is not None:
                item_set.del_value_by_suffix_key(group, "@")
        self.moment_stats_item_set_fall_size.del_value_by_suffix_key(group, "@")
        self.moment_stats_item_set_fall_time.del_value_by_suffix_key(group, "@")

    def inc_queue_put_nums(self, topic: str, queue_id: int, num: int = 1, times: int = 1) -> None:
        """Count messages put into a queue, if enableDetailStat is set."""
        if self.enable_queue_stat:
            self.stats_table[stats.QUEUE_PUT_NUMS].add_value(f"{topic}@{queue_id}", num, times)

    def inc_queue_put_size(self, topic: str, queue_id: int, size: int) -> None:
        """Count bytes put into a queue, if enableDetailStat is set."""
        if self.enable_queue_stat:
            self.stats_table[stats.QUEUE_PUT_SIZE].add_value(f"{topic}@{queue_id}", size, 1)

    def inc_queue_get_nums(self, group: str, topic: str, queue_id: int, inc_value: int) -> None:
        """Count messages that a group got from a queue, if enableDetailStat is set."""
        if self.enable_queue_stat:
            self.stats_table[stats.QUEUE_GET_NUMS].add_value(f"{topic}@{queue_id}@{group}", inc_value, 1)

    def inc_queue_get_size(self, group: str, topic: str, queue_id: int, inc_value: int) -> None:
        """Count bytes that a group got from a queue, if enableDetailStat is set."""
        if self.enable_queue_stat:
            self.stats_table[stats.QUEUE_GET_SIZE].add_value(f"{topic}@{queue_id}@{group}", inc_value, 1)

    def inc_topic_put_nums(self, topic: str, num: int = 1, times: int = 1) -> None:
        """Count messages put into a topic."""
        self._topic_put_nums.get_and_create_stats_item(topic).add(num, times)

    def inc_topic_put_size(self, topic: str, size: int, times: int = 1) -> None:
        """Count bytes put into a topic."""
        self._topic_put_size.get_and_create_stats_item(topic).add(size, times)

    def inc_topic_put(self, topic: str, num: int, size: int) -> None:
        """Count messages put into a topic and their bytes."""
        self._topic_put_nums.get_and_create_stats_item(topic).add(num, num)
        self._topic_put_size.get_and_create_stats_item(topic).add(size, num)

    def inc_group_get_nums(self, group: str, topic: str, inc_value: int) -> None:
        """Count messages that a group got from a topic."""
        self._group_get_nums.get_and_create_stats_item(f"{topic}@{group}").add(inc_value, 1)

    def inc_group_get_size(self, group: str, topic: str, inc_value: int) -> None:
        """Count bytes that a group got from a topic."""
        self._group_get_size.get_and_create_stats_item(f"{topic}@{group}").add(inc_value, 1)

    def inc_group_get_latency(self, group: str, topic: str, queue_id: int, inc_value_ms: int) -> None:
        """Record the latency of one pull."""
        key = f"{queue_id}@{topic}@{group}" if self.enable_queue_stat else f"{topic}@{group}"
        self.stats_table[stats.GROUP_GET_LATENCY].add_rt_value(key, inc_value_ms, 1)

    def inc_broker_put_nums(self, inc_value: int = 1) -> None:
        """Count messages put into the broker."""
        self._broker_put.add(inc_value, 0)

    def inc_broker_get_nums(self, inc_value: int) -> None:
        """Count messages delivered by the broker."""
        self._broker_get.add(inc_value, 0)

    def inc_send_back_nums(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        self.stats_table[stats.SNDBCK_PUT_NUMS].add_value(f"{topic}@{group}", 1, 1)

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Return the messages per second that a group got from a topic over the last minute."""
        return self._group_get_nums.get_stats_data_in_minute(f"{topic}@{group}").tps

    def record_disk_fall_behind_time(self, group: str, topic: str, queue_id: int, fall_behind_ms: int) -> None:
        """Record the age of the last message that a group got from a queue."""
        self.moment_stats_item_set_fall_time.set_value(f"{queue_id}@{topic}@{group}", fall_behind_ms)

    def record_disk_fall_behind_size(self, group: str, topic: str, queue_id: int, fall_behind: int) -> None:
        """Record by how many bytes of the log a group is behind."""
        self.moment_stats_item_set_fall_size.set_value(f"{queue_id}@{topic}@{group}", fall_behind)


class LmqBrokerStatsManager(BrokerStatsManager):
    """The counters of a broker with light queues.

    Gets from light queues are counted under the single name `%LMQ%`, because there may be very many such queues.

    Java: org.apache.rocketmq.store.stats.LmqBrokerStatsManager (4.9.8)
    """

    def inc_group_get_nums(self, group: str, topic: str, inc_value: int) -> None:
        """Count messages that a group got from a topic."""
        super().inc_group_get_nums(_folded(group), _folded(topic), inc_value)

    def inc_group_get_size(self, group: str, topic: str, inc_value: int) -> None:
        """Count bytes that a group got from a topic."""
        super().inc_group_get_size(_folded(group), _folded(topic), inc_value)

    def inc_group_get_latency(self, group: str, topic: str, queue_id: int, inc_value_ms: int) -> None:
        """Record the latency of one pull."""
        super().inc_group_get_latency(_folded(group), _folded(topic), queue_id, inc_value_ms)

    def inc_send_back_nums(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        super().inc_send_back_nums(_folded(group), _folded(topic))

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Return the messages per second that a group got from a topic over the last minute."""
        return super().tps_group_get_nums(_folded(group), _folded(topic))

    def record_disk_fall_behind_time(self, group: str, topic: str, queue_id: int, fall_behind_ms: int) -> None:
        """Record the age of the last message that a group got from a queue."""
        super().record_disk_fall_behind_time(_folded(group), _folded(topic), queue_id, fall_behind_ms)

    def record_disk_fall_behind_size(self, group: str, topic: str, queue_id: int, fall_behind: int) -> None:
        """Record by how many bytes of the log a group is behind."""
        super().record_disk_fall_behind_size(_folded(group), _folded(topic), queue_id, fall_behind)


def _folded(name: str) -> str:
    return mix_all.LMQ_PREFIX if mix_all.is_lmq(name) else name
