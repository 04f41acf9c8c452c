"""A broker's run-time information, by the names of RocketMQ's exporter: rocketmq_brokeruntime_*."""
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rmqha.common import java
from rmqha.common.metrics import GAUGE, Family, Metric, Sample
from rmqha.common.util_all import get_disk_partition_space_used_percent
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER
from rmqha.store.store_stats_service import FOUND, GOT, MISSED, PUTS

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController

_PREFIX = "rocketmq_brokeruntime_"
_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_TAKEN = ("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s", "2to3s", "3to4s",
          "4to5s", "5to10s", "10stomore")
_TPS = (("put", "Puts", (PUTS,)), ("getfound", "Gets that found messages", (FOUND,)),
        ("getmiss", "Gets that found none", (MISSED,)), ("gettotal", "Gets", (FOUND, MISSED)),
        ("gettransfered", "Messages got", (GOT,)))
_OF_SECONDS = ((600, "ten minutes"), (60, "minute"), (10, "ten seconds"))

Value = Callable[["BrokerController"], float]


def _tps(seconds: int, columns: tuple[int, ...]) -> Value:
    return lambda broker: broker.message_store.store_stats_service.tps(seconds, *columns) or 0.0


def _taken(index: int) -> Value:
    return lambda broker: broker.message_store.store_stats_service.last_distribution()[index]


def _log_disk_used(broker: "BrokerController") -> float:
    folders = broker.message_store.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER)
    return min(float(get_disk_partition_space_used_percent(folder)) for folder in folders)


def _capacity(broker: "BrokerController") -> float:
    disk = os.statvfs(broker.message_store_config.storePathRootDir)
    return disk.f_blocks * disk.f_frsize


def _free(broker: "BrokerController") -> float:
    disk = os.statvfs(broker.message_store_config.storePathRootDir)
    return disk.f_bavail * disk.f_frsize


Values = dict[str, tuple[str, Value]]


def _of_messages() -> Values:
    """Puts and gets, by the name behind the prefix."""
    return {
        "msg_put_total_today_now": ("Messages put since the start", lambda b: b.broker_stats.msg_put_total_today_now),
        "msg_gettotal_today_now": ("Messages got since the start", lambda b: b.broker_stats.msg_get_total_today_now),
        "msg_puttotal_todaymorning": ("The same of puts, at the last midnight",
                                      lambda b: b.broker_stats.msg_put_total_today_morning),
        "msg_gettotal_todaymorning": ("The same of gets, at the last midnight",
                                      lambda b: b.broker_stats.msg_get_total_today_morning),
        "msg_puttotal_yesterdaymorning": ("The same of puts, at the midnight before",
                                          lambda b: b.broker_stats.msg_put_total_yesterday_morning),
        "msg_gettotal_yesterdaymorning": ("The same of gets, at the midnight before",
                                          lambda b: b.broker_stats.msg_get_total_yesterday_morning),
        "put_message_size_total": ("Bytes put since the start",
                                   lambda b: b.message_store.store_stats_service.get_put_message_size_total()),
        "putmessage_times_total": ("Messages put since the start",
                                   lambda b: b.message_store.store_stats_service.get_put_message_times_total()),
        "put_message_average_size": ("Bytes of a message, on the average since the start",
                                     lambda b: b.message_store.store_stats_service.get_put_message_size_total() / max(
                                         1, b.message_store.store_stats_service.get_put_message_times_total())),
        "putmessage_entire_time_max": ("Longest put (ms) since the start, from call to answer",
                                       lambda b: b.message_store.store_stats_service.put_message_entire_time_max),
        "getmessage_entire_time_max": ("Longest get (ms) since the start",
                                       lambda b: b.message_store.store_stats_service.get_message_entire_time_max),
        "put_latency_99": ("Time (ms) in which 99 % of the last whole minute's puts were done",
                           lambda b: b.message_store.store_stats_service.find_put_message_entire_time_px(0.99)),
        "put_latency_999": ("Time (ms) in which 99.9 % of them were done",
                            lambda b: b.message_store.store_stats_service.find_put_message_entire_time_px(0.999)),
    }


def _of_log() -> Values:
    """The log and its disk, by the name behind the prefix."""
    return {
        "dispatch_behind_bytes": ("Bytes of the log that are not in their queues yet",
                                  lambda b: b.message_store.dispatch_behind_bytes()),
        "dispatch_maxbuffer": ("Always 0, in 4.9 as well",
                               lambda b: b.message_store.store_stats_service.dispatch_max_buffer),
        "remain_howmanydata_toflush": ("Bytes of the log that are not flushed yet",
                                       lambda b: b.message_store.commit_log.remain_how_many_data_to_flush()),
        "remain_transientstore_buffer_numbs": ("Free write buffers; without a pool the greatest int",
                                               lambda b: b.message_store.remain_transient_store_buffer_numbs()),
        "pagecache_lock_time_mills": ("For how long (ms) the put lock is held at this moment",
                                      lambda b: b.message_store.lock_time_mills()),
        "commitlog_maxoffset": ("End of the log", lambda b: b.message_store.get_max_phy_offset()),
        "commitlog_minoffset": ("Beginning of the log", lambda b: b.message_store.get_min_phy_offset()),
        "commitlog_disk_ratio": ("Used part of the log's disk, 0 to 1", _log_disk_used),
        "consumequeue_disk_ratio": ("Used part of the queues' disk, 0 to 1",
                                    lambda b: get_disk_partition_space_used_percent(
                                        b.message_store.get_store_path_logic())),
        "commitlogdir_capacity_total": ("Bytes of the store's disk", _capacity),
        "commitlogdir_capacity_free": ("Free bytes of it", _free),
    }


def _of_pools() -> Values:
    """Pools of threads, and from when on sends are taken, by the name behind the prefix."""
    return {
        "start_accept_sendrequest_time": ("From when on (ms since 1970) sends are taken; 0: from the start",
                                          lambda b: b.broker_config.startAcceptSendRequestTimeStamp),
        "send_threadpool_queue_size": ("Sends that wait for a thread", lambda b: b.send_message_executor.queue_size()),
        "pull_threadpoolqueue_size": ("Pulls that wait for a thread", lambda b: b.pull_message_executor.queue_size()),
        "query_threadpoolqueue_size": ("Queries that wait for a thread",
                                       lambda b: b.query_message_executor.queue_size()),
        "send_threadpoolqueue_capacity": ("How many may", lambda b: b.broker_config.sendThreadPoolQueueCapacity),
        "pull_threadpoolqueue_capacity": ("How many may", lambda b: b.broker_config.pullThreadPoolQueueCapacity),
        "query_threadpool_queue_capacity": ("How many may", lambda b: b.broker_config.queryThreadPoolQueueCapacity),
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
                  "Store time (ms since 1970) of the oldest message, -1 without one")
_METRICS = {Metric(_PREFIX + name, GAUGE, _LABELS, meaning): value for name, (meaning, value) in _VALUES.items()}
RUNTIME_METRICS = (*_METRICS, EARLIEST)


class RuntimeMetrics:
    """The run-time information of one broker; what it remembers saves reads of the log."""

    def __init__(self, controller: "BrokerController") -> None:
        self._controller = controller
        self._earliest = (-1, -1)  # the log's beginning, and the time of its message

    def families(self) -> Iterator[Family]:
        """Each metric once."""
        controller = self._controller
        labels = (controller.broker_config.brokerClusterName, controller.broker_addr, "",
                  java.get_version_desc(java.CURRENT_VERSION),
                  str(controller.message_store.store_stats_service.message_store_boot_timestamp),
                  str(java.CURRENT_VERSION))
        for metric, value in _METRICS.items():
            yield Family(metric, self._sample(labels, value))
        yield Family(EARLIEST, self._sample(labels, lambda _controller: self.earliest_message_time()))

    def _sample(self, labels: tuple[str, ...], value: Value) -> Iterator[Sample]:
        """Looked up when it is written, so that a failure is that metric's alone."""
        yield labels, value(self._controller)

    def earliest_message_time(self) -> int:
        """Store time of the oldest message, ms since 1970; -1 without one."""
        store = self._controller.message_store
        begin = store.get_min_phy_offset()
        if self._earliest[0] != begin or self._earliest[1] < 0:
            self._earliest = begin, store.get_earliest_message_time()
        return self._earliest[1]
