"""By the names that 5.x's brokers tell by themselves (5.1.4: BrokerMetricsConstant, DefaultStoreMetricsConstant)."""
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqha.broker.metrics.group_progress import GroupProgress
from rmqha.broker.metrics.runtime_metrics import RuntimeMetrics
from rmqha.common import java, mix_all, stats
from rmqha.common.metrics import COUNTER, GAUGE, Family, Memo, Metric, Sample
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.common.util_all import current_time_millis

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.broker.client.client_channel_info import ClientChannelInfo

_NODE = ("cluster", "node_type", "node_id")
_STORAGE = (*_NODE, "storage_type", "storage_medium")
_IN = (*_NODE, "topic", "message_type", "is_system")
_OUT = (*_NODE, "topic", "consumer_group", "is_retry", "is_system")
_LAG = (*_NODE, "consumer_group", "topic", "is_retry", "is_system")
_CLIENT = ("language", "version", "protocol_type")

PROCESSOR_WATERMARK = Metric("rocketmq_processor_watermark", GAUGE, (*_NODE, "processor"),
                             "Requests that wait for a thread; of the pools that rmqha has")
BROKER_PERMISSION = Metric("rocketmq_broker_permission", GAUGE, _NODE, "brokerPermission: 4 read + 2 write")
MESSAGES_IN = Metric("rocketmq_messages_in_total", COUNTER, _IN, "Messages put; message_type is not known")
MESSAGES_OUT = Metric("rocketmq_messages_out_total", COUNTER, _OUT, "Messages got")
THROUGHPUT_IN = Metric("rocketmq_throughput_in_total", COUNTER, _IN, "Bytes put")
THROUGHPUT_OUT = Metric("rocketmq_throughput_out_total", COUNTER, _OUT, "Bytes got")
PRODUCER_CONNECTIONS = Metric("rocketmq_producer_connections", GAUGE, (*_NODE, *_CLIENT), "Producers online")
CONSUMER_CONNECTIONS = Metric("rocketmq_consumer_connections", GAUGE,
                              (*_NODE, "consumer_group", *_CLIENT, "consume_mode", "is_system"), "Consumers online")
LAG_MESSAGES = Metric("rocketmq_consumer_lag_messages", GAUGE, _LAG,
                      "Messages that a group which is online has not consumed, filters not looked at")
LAG_LATENCY = Metric("rocketmq_consumer_lag_latency", GAUGE, _LAG, "Age (ms) of the oldest of them")
STORAGE_SIZE = Metric("rocketmq_storage_size", GAUGE, _STORAGE, "Bytes of the log that are kept")
FLUSH_BEHIND = Metric("rocketmq_storage_flush_behind_bytes", GAUGE, _STORAGE,
                      "Bytes of the log that are not flushed yet")
DISPATCH_BEHIND = Metric("rocketmq_storage_dispatch_behind_bytes", GAUGE, _STORAGE,
                         "Bytes of the log that are not in their queues yet")
RESERVE_TIME = Metric("rocketmq_storage_message_reserve_time", GAUGE, _STORAGE, "Age (ms) of the oldest message")
OTEL_METRICS = (PROCESSOR_WATERMARK, BROKER_PERMISSION, MESSAGES_IN, MESSAGES_OUT, THROUGHPUT_IN, THROUGHPUT_OUT,
                PRODUCER_CONNECTIONS, CONSUMER_CONNECTIONS, LAG_MESSAGES, LAG_LATENCY, STORAGE_SIZE, FLUSH_BEHIND,
                DISPATCH_BEHIND, RESERVE_TIME)
_UNSPECIFIED = "unspecified"  # 5.x's word for a type that nobody has told
_REMOTING = "remoting"


class OtelMetrics:
    """What one scrape tells by 5.x's names."""

    def __init__(self, controller: "BrokerController", progress: Memo[GroupProgress], runtime: RuntimeMetrics) -> None:
        self._controller, self._progress, self._runtime = controller, progress, runtime
        config = controller.broker_config
        self._node = config.brokerClusterName, "broker", config.brokerName
        self._storage = (*self._node, "local", "disk")

    def families(self) -> Iterator[Family]:
        """Each metric once, the broker's first."""
        yield Family(BROKER_PERMISSION, [(self._node, self._controller.broker_config.brokerPermission)])
        yield Family(PROCESSOR_WATERMARK, self._watermarks())
        yield Family(STORAGE_SIZE, self._storage_size())
        yield Family(FLUSH_BEHIND, self._flush_behind())
        yield Family(DISPATCH_BEHIND, self._dispatch_behind())
        yield Family(RESERVE_TIME, self._reserve_time())
        yield Family(PRODUCER_CONNECTIONS, self._producers())
        yield Family(CONSUMER_CONNECTIONS, self._consumers())
        yield Family(MESSAGES_IN, self._in(stats.TOPIC_PUT_NUMS))
        yield Family(THROUGHPUT_IN, self._in(stats.TOPIC_PUT_SIZE))
        yield Family(LAG_MESSAGES, ((self._lag_labels(one), one.behind_committed) for one in self._online()))
        yield Family(LAG_LATENCY, ((self._lag_labels(one), one.behind_ms if one.behind_committed else 0)
                                   for one in self._online()))
        yield Family(MESSAGES_OUT, self._out(stats.GROUP_GET_NUMS))
        yield Family(THROUGHPUT_OUT, self._out(stats.GROUP_GET_SIZE))

    def _watermarks(self) -> Iterator[Sample]:
        controller = self._controller
        for name, pool in (("send", controller.send_message_executor), ("pull", controller.pull_message_executor),
                           ("query_message", controller.query_message_executor),
                           ("client_manager", controller.client_manage_executor),
                           ("heartbeat", controller.heartbeat_executor), ("admin", controller.admin_broker_executor)):
            yield (*self._node, name), pool.queue_size()

    def _storage_size(self) -> Iterator[Sample]:
        store = self._controller.message_store
        yield self._storage, store.get_max_phy_offset() - max(0, store.get_min_phy_offset())

    def _flush_behind(self) -> Iterator[Sample]:
        yield self._storage, self._controller.message_store.commit_log.remain_how_many_data_to_flush()

    def _dispatch_behind(self) -> Iterator[Sample]:
        yield self._storage, self._controller.message_store.dispatch_behind_bytes()

    def _reserve_time(self) -> Iterator[Sample]:
        earliest = self._runtime.earliest_message_time()
        if earliest > 0:
            yield self._storage, current_time_millis() - earliest

    def _producers(self) -> Iterator[Sample]:
        clients = Counter(_client(info) for channels in list(self._controller.producer_manager.group_channel_table
                                                             .values()) for info in list(channels.values()))
        for client, count in clients.items():
            yield (*self._node, *client), count

    def _consumers(self) -> Iterator[Sample]:
        for group in self._controller.consumer_manager.groups():
            mode = group.consume_type.value.lower() if group.consume_type is not None else ""
            clients = Counter(_client(info) for info in list(group.channel_info_table.values()))
            for client, count in clients.items():
                yield ((*self._node, group.group_name, *client, mode, _told(_is_system_group(group.group_name))), count)

    def _in(self, name: str) -> Iterator[Sample]:
        for item in self._controller.broker_stats_manager.stats_table[name].items():
            topic = item.stats_key
            if not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
                yield (*self._node, topic, _UNSPECIFIED, _told(self._is_system_topic(topic))), item.value

    def _out(self, name: str) -> Iterator[Sample]:
        for item in self._controller.broker_stats_manager.stats_table[name].items():
            topic, _at, group = item.stats_key.partition("@")
            yield (*self._node, topic, group, _told(topic.startswith(RETRY_GROUP_TOPIC_PREFIX)),
                   _told(self._is_system_topic(topic) or _is_system_group(group))), item.value

    def _online(self) -> Iterator[GroupProgress]:
        for one in self._progress:
            if one.members is not None and not one.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                yield one

    def _lag_labels(self, one: GroupProgress) -> tuple[str, ...]:
        is_system = self._is_system_topic(one.topic) or _is_system_group(one.group)
        return (*self._node, one.group, one.topic, _told(False), _told(is_system))

    def _is_system_topic(self, topic: str) -> bool:
        return self._controller.topic_config_manager.topic_validator.is_system_topic(topic)


def _client(info: "ClientChannelInfo") -> tuple[str, str, str]:
    language = info.language.name.lower() if info.language is not None else ""
    return language, java.get_version_desc(info.version).lower(), _REMOTING


def _is_system_group(group: str) -> bool:
    return group.lower().startswith(mix_all.CID_RMQ_SYS_PREFIX.lower())


def _told(flag: bool) -> str:
    return "true" if flag else "false"
