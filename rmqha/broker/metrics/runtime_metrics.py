"""A broker's run-time information, by the names of RocketMQ's exporter: rocketmq_brokeruntime_*.

Also the progress of each consumer group in each of its topics, on this broker.
"""
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqha.broker.consumer_offset_manager import TOPIC_GROUP_SEPARATOR
from rmqha.common import java
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.metrics import GAUGE, Family, Metric, Pace, Sample
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX
from rmqha.common.subscriptions import MessageModel
from rmqha.common.util_all import current_time_millis, get_disk_partition_space_used_percent
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER
from rmqha.store.store_stats_service import FOUND, GOT, MISSED, PUTS

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.broker_fast_failure import BrokerPools
    from rmqha.broker.client.client_channels import ConsumerGroupInfo
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.queue_offsets import QueueOffsets
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.store.broker_stats_manager import BrokerStats, BrokerStatsManager
    from rmqha.store.default_message_store import DefaultMessageStore


_PREFIX = "rocketmq_brokeruntime_"
_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_TAKEN = ("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s", "2to3s", "3to4s",
          "4to5s", "5to10s", "10stomore")
_TPS = (("put", "Puts", (PUTS,)), ("getfound", "Gets that found messages", (FOUND,)),
        ("getmiss", "Gets that found no messages", (MISSED,)), ("gettotal", "Gets", (FOUND, MISSED)),
        ("gettransfered", "Messages got", (GOT,)))
_OF_SECONDS = ((600, "ten minutes"), (60, "minute"), (10, "ten seconds"))


@dataclass(frozen=True)
class RuntimeSources:
    """The parts of a broker that the metrics are read from."""

    broker_config: BrokerConfig
    addresses: "BrokerAddresses"
    message_store: "DefaultMessageStore"
    stats: "BrokerStatsManager"
    broker_stats: "BrokerStats"
    pools: "BrokerPools"


Value = Callable[[RuntimeSources], float]


def _tps(seconds: int, columns: tuple[int, ...]) -> Value:
    return lambda broker: broker.message_store.store_stats_service.tps(seconds, *columns) or 0.0


def _taken(index: int) -> Value:
    return lambda broker: broker.message_store.store_stats_service.last_distribution()[index]


def _log_disk_used(broker: RuntimeSources) -> float:
    folders = broker.message_store.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER)
    return min(float(get_disk_partition_space_used_percent(folder)) for folder in folders)


def _capacity(broker: RuntimeSources) -> float:
    disk = os.statvfs(broker.message_store.message_store_config.storePathRootDir)
    return disk.f_blocks * disk.f_frsize


def _free(broker: RuntimeSources) -> float:
    disk = os.statvfs(broker.message_store.message_store_config.storePathRootDir)
    return disk.f_bavail * disk.f_frsize


Values = dict[str, tuple[str, Value]]


def _of_messages() -> Values:
    """Return the metrics of puts and gets, by the name after the prefix."""
    return {
        "msg_put_total_today_now": ("Messages put since the start", lambda b: b.broker_stats.msg_put_total_today_now),
        "msg_gettotal_today_now": ("Messages got since the start", lambda b: b.broker_stats.msg_get_total_today_now),
        "msg_puttotal_todaymorning": ("Messages put from the start to the last midnight",
                                      lambda b: b.broker_stats.msg_put_total_today_morning),
        "msg_gettotal_todaymorning": ("Messages got from the start to the last midnight",
                                      lambda b: b.broker_stats.msg_get_total_today_morning),
        "msg_puttotal_yesterdaymorning": ("Messages put from the start to the midnight before the last",
                                          lambda b: b.broker_stats.msg_put_total_yesterday_morning),
        "msg_gettotal_yesterdaymorning": ("Messages got from the start to the midnight before the last",
                                          lambda b: b.broker_stats.msg_get_total_yesterday_morning),
        "put_message_size_total": ("Bytes put since the start",
                                   lambda b: b.message_store.store_stats_service.get_put_message_size_total()),
        "putmessage_times_total": ("Messages put since the start",
                                   lambda b: b.message_store.store_stats_service.get_put_message_times_total()),
        "put_message_average_size": ("Average message size in bytes since the start",
                                     lambda b: b.message_store.store_stats_service.get_put_message_size_total() / max(
                                         1, b.message_store.store_stats_service.get_put_message_times_total())),
        "putmessage_entire_time_max": ("Longest put (ms) since the start, from call to response",
                                       lambda b: b.message_store.store_stats_service.put_message_entire_time_max),
        "getmessage_entire_time_max": ("Longest get (ms) since the start",
                                       lambda b: b.message_store.store_stats_service.get_message_entire_time_max),
        "put_latency_99": ("p99 (ms) of the puts of the last whole minute",
                           lambda b: b.message_store.store_stats_service.find_put_message_entire_time_px(0.99)),
        "put_latency_999": ("p99.9 (ms) of the puts of the last whole minute",
                            lambda b: b.message_store.store_stats_service.find_put_message_entire_time_px(0.999)),
    }


def _of_log() -> Values:
    """Return the metrics of the log and its disk, by the name after the prefix."""
    return {
        "dispatch_behind_bytes": ("Bytes of the log that are not in their queues yet",
                                  lambda b: b.message_store.dispatch_behind_bytes()),
        "dispatch_maxbuffer": ("Always 0, in 4.9 as well",
                               lambda b: b.message_store.store_stats_service.dispatch_max_buffer),
        "remain_howmanydata_toflush": ("Bytes of the log that are not flushed yet",
                                       lambda b: b.message_store.commit_log.remain_how_many_data_to_flush()),
        "remain_transientstore_buffer_numbs": ("Free write buffers; the maximum integer without a pool",
                                               lambda b: b.message_store.remain_transient_store_buffer_numbs()),
        "pagecache_lock_time_mills": ("How long (ms) the put lock has been held by its present holder",
                                      lambda b: b.message_store.lock_time_mills()),
        "commitlog_maxoffset": ("End of the log", lambda b: b.message_store.get_max_phy_offset()),
        "commitlog_minoffset": ("Beginning of the log", lambda b: b.message_store.get_min_phy_offset()),
        "commitlog_disk_ratio": ("Used part of the log's disk, 0 to 1", _log_disk_used),
        "consumequeue_disk_ratio": ("Used part of the queues' disk, 0 to 1",
                                    lambda b: get_disk_partition_space_used_percent(
                                        b.message_store.get_store_path_logic())),
        "commitlogdir_capacity_total": ("Bytes of the store's disk", _capacity),
        "commitlogdir_capacity_free": ("Free bytes of the store's disk", _free),
    }


def _of_pools() -> Values:
    """Return the metrics of the thread pools, and the time from which sends are accepted, by the name after the prefix.
    """
    return {
        "start_accept_sendrequest_time": ("Time (ms since 1970) from which sends are accepted; 0: from the start",
                                          lambda b: b.broker_config.startAcceptSendRequestTimeStamp),
        "send_threadpool_queue_size": ("Sends that wait for a thread",
                                       lambda b: b.pools.send_message_executor.queue_size()),
        "pull_threadpoolqueue_size": ("Pulls that wait for a thread",
                                       lambda b: b.pools.pull_message_executor.queue_size()),
        "query_threadpoolqueue_size": ("Queries that wait for a thread",
                                       lambda b: b.pools.query_message_executor.queue_size()),
        "send_threadpoolqueue_capacity": ("Limit of waiting sends",
                                          lambda b: b.broker_config.sendThreadPoolQueueCapacity),
        "pull_threadpoolqueue_capacity": ("Limit of waiting pulls",
                                          lambda b: b.broker_config.pullThreadPoolQueueCapacity),
        "query_threadpool_queue_capacity": ("Limit of waiting queries",
                                            lambda b: b.broker_config.queryThreadPoolQueueCapacity),
        "send_threadpoolqueue_headwait_timemills": ("Always 0: sends are served as they are read", lambda b: 0),
        "pull_threadpoolqueue_headwait_timemills": ("Always 0: pulls are served as they are read", lambda b: 0),
        "query_threadpoolqueue_headwait_timemills": ("Always 0: not measured", lambda b: 0),
    }


_VALUES = _of_messages() | _of_log() | _of_pools()
_VALUES |= {f"{name}_tps{seconds}": (f"{what} per second, over the last {window}", _tps(seconds, columns))
            for name, what, columns in _TPS for seconds, window in _OF_SECONDS}
_VALUES |= {f"pmdt_{name}": (f"Puts of the last whole minute that took {name}", _taken(index))
            for index, name in enumerate(_TAKEN)}
EARLIEST = Metric(_PREFIX + "earliest_message_timestamp", GAUGE, _LABELS,
                  "Store time (ms since 1970) of the oldest message; -1 for an empty store")
_METRICS = {Metric(_PREFIX + name, GAUGE, _LABELS, meaning): value for name, (meaning, value) in _VALUES.items()}
RUNTIME_METRICS = (*_METRICS, EARLIEST)


class RuntimeMetrics:
    """The run-time information of one broker. It caches the earliest store time, to save reads of the log."""

    def __init__(self, sources: RuntimeSources) -> None:
        self._sources = sources
        # The beginning of the log, and the store time of the message there.
        self._earliest = (-1, -1)

    def families(self) -> Iterator[Family]:
        """Yield each metric once."""
        sources = self._sources
        labels = (sources.broker_config.brokerClusterName, sources.addresses.broker_addr, "",
                  java.get_version_desc(java.CURRENT_VERSION),
                  str(sources.message_store.store_stats_service.message_store_boot_timestamp),
                  str(java.CURRENT_VERSION))
        for metric, value in _METRICS.items():
            yield Family(metric, self._sample(labels, value))
        yield Family(EARLIEST, self._sample(labels, lambda _sources: self.earliest_message_time()))

    def _sample(self, labels: tuple[str, ...], value: Value) -> Iterator[Sample]:
        """Yield a sample, computed only when it is written, so that a failure affects this metric only."""
        yield labels, value(self._sources)

    def earliest_message_time(self) -> int:
        """Return the store time of the oldest message, ms since 1970; -1 for an empty store."""
        store = self._sources.message_store
        begin = store.get_min_phy_offset()
        if self._earliest[0] != begin or self._earliest[1] < 0:
            self._earliest = begin, store.get_earliest_message_time()
        return self._earliest[1]


class GroupProgress(NamedTuple):
    """The progress of one group in one topic, over all queues of this broker."""

    topic: str
    group: str
    # None: no consumer of the group is online.
    members: "ConsumerGroupInfo | None"
    # Sum of the committed offsets; a queue without one counts as 0.
    consumed: int
    # Number of messages after the committed offsets.
    behind: int
    # The same, for queues with a committed offset only.
    behind_committed: int
    # Age of the oldest of these messages; 0 if all are consumed.
    behind_ms: int

    @property
    def is_clustering(self) -> bool:
        """True if the consumers share the messages; also for a group that is offline, whose mode is unknown."""
        return self.members is None or self.members.message_model is not MessageModel.BROADCASTING


class StoreTimes:
    """A cache of store times of messages: each is looked up once, and kept while every scrape asks for it.

    So a scrape reads the log only for groups whose offsets have moved, near which a consumer reads at that time.
    """

    def __init__(self, queues: "QueueOffsets") -> None:
        self._queues = queues
        # Replaced as a whole by each scrape.
        self._known: dict[tuple[str, int, int], int] = {}

    def of_scrape(self, pace: Pace) -> "ScrapeTimes":
        """Return the times to use for one scrape."""
        return ScrapeTimes(self._queues, self._known, pace)

    def keep(self, times: "ScrapeTimes") -> None:
        """Keep the times that a finished scrape used."""
        self._known = times.used


class ScrapeTimes:
    """The store times for one scrape."""

    def __init__(self, queues: "QueueOffsets", known: dict[tuple[str, int, int], int], pace: Pace) -> None:
        self._queues, self._known, self._pace = queues, known, pace
        self.used: dict[tuple[str, int, int], int] = {}

    def of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time (ms) of message `offset` of a queue; -1 if not found."""
        key = topic, queue_id, offset
        time_ms = self._known.get(key, self.used.get(key, -1))
        if time_ms < 0:
            self._pace.step()
            time_ms = self._queues.get_message_store_timestamp(topic, queue_id, offset)
        if time_ms >= 0:
            self.used[key] = time_ms
        return time_ms


class ConsumerProgress:
    """Computes the progress of groups from the broker's tables."""

    def __init__(self, queues: "QueueOffsets", topics: "TopicConfigManager", offsets: "ConsumerOffsetManager",
                 consumers: "ConsumerManager") -> None:
        self._queues = queues
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers

    def of_groups(self, times: ScrapeTimes, pace: Pace) -> Iterator[GroupProgress]:
        """Yield the progress of each group in each topic that it subscribes to or has offsets for; dead-letter topics
        are left out."""
        members = {info.group_name: info for info in self._consumers.groups()}
        for topic, group in self._pairs(members):
            pace.step()
            config = self._topics.select_topic_config(topic)
            info = members.get(group)
            if config is None or info is not None and info.subscription_table and topic not in info.subscription_table:
                continue
            yield self._progress(times, pace, GroupProgress(topic, group, info, 0, 0, 0, 0), config.readQueueNums)

    def is_consumer(self, topic: str, group: str) -> bool:
        """Return whether the group subscribes to the topic or has offsets for it."""
        return (topic + TOPIC_GROUP_SEPARATOR + group in self._offsets.offset_table
                or self._consumers.find_subscription_data(group, topic) is not None)

    def _pairs(self, members: "dict[str, ConsumerGroupInfo]") -> Iterator[tuple[str, str]]:
        """Yield each (topic, group) once, without dead letters; building a table of all would cause garbage
        collections."""
        offsets = self._offsets.offset_table
        for key in list(offsets):
            topic, _at, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if group and not topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
                yield topic, group
        for group, info in members.items():
            for topic in list(info.subscription_table):
                if (topic + TOPIC_GROUP_SEPARATOR + group not in offsets
                        and not topic.startswith(DLQ_GROUP_TOPIC_PREFIX)):
                    yield topic, group

    def _progress(self, times: ScrapeTimes, pace: Pace, none: GroupProgress, queue_nums: int) -> GroupProgress:
        queues, topic, now_ms = self._queues, none.topic, current_time_millis()
        offsets = self._offsets.query_offsets(none.group, topic) or {}
        consumed = behind = behind_committed = behind_ms = 0
        for queue_id in range(queue_nums):
            pace.step()
            end = max(0, queues.get_max_offset_in_queue(topic, queue_id))
            committed = offsets.get(queue_id, -1)
            at = max(0, committed)
            consumed += at
            if at >= end:
                continue
            behind += end - at
            if committed >= 0:
                behind_committed += end - at
            time_ms = times.of(topic, queue_id, max(at, queues.get_min_offset_in_queue(topic, queue_id)))
            if time_ms >= 0:
                behind_ms = max(behind_ms, now_ms - time_ms)
        return none._replace(consumed=consumed, behind=behind, behind_committed=behind_committed, behind_ms=behind_ms)
