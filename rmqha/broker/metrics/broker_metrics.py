"""The metrics of a broker: those of RocketMQ's exporter, those of 5.x's brokers, and rmqha's own.

- `ExporterMetrics`: topics, groups and rates, named as in RocketMQ's exporter (apache/rocketmq-exporter,
  RMQMetricsCollector). The exporter asks masters only, so a slave omits them: sums over all brokers would count twice.
- `OtelMetrics`: the names that 5.x's brokers export themselves (5.1.4: BrokerMetricsConstant,
  DefaultStoreMetricsConstant).
- `OwnMetrics`: metrics that RocketMQ lacks: replication, latencies and faults.

    MetricsPort's threads --families--> ExporterMetrics, RuntimeMetrics, OtelMetrics, OwnMetrics: created for each
    scrape; they only read the broker's state
"""
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import rmqha
from rmqha.broker.metrics import health
from rmqha.broker.metrics.runtime_metrics import (
    RUNTIME_METRICS,
    ConsumerProgress,
    GroupProgress,
    RuntimeMetrics,
    RuntimeSources,
    StoreTimes,
)
from rmqha.common import java, mix_all, stats
from rmqha.common.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Memo,
    Metric,
    MetricsNames,
    Pace,
    RolePage,
    Sample,
    Subject,
)
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.common.stats import StatsSnapshot
from rmqha.common.subscriptions import MessageModel
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.addresses import parse_channel_remote_addr, retransmits
from rmqha.store import running_flags
from rmqha.store.ha import scrub_state
from rmqha.store.ha.peers import SERVING, HAConnectionState

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.broker.broker_registration import BrokerRegistration
    from rmqha.broker.client.client_channels import ClientChannelInfo
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.client.producer_manager import ProducerManager
    from rmqha.broker.controller.replicas_manager import ReplicasManager
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.common.broker_config import BrokerConfig
    from rmqha.common.process import StallWatch
    from rmqha.remoting.remoting_server import RemotingServer
    from rmqha.store.ha.ha_connection import HAConnection


_TOPIC = ("cluster", "broker", "topic")
_OF_GROUP = ("cluster", "broker", "topic", "group")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_OF_BROKER = ("cluster", "brokerIP", "broker")


def _gauge(name: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name, GAUGE, labels, meaning)


BROKER_TPS = _gauge("rocketmq_broker_tps", _OF_BROKER, "Messages put per second, over the last minute")
BROKER_QPS = _gauge("rocketmq_broker_qps", _OF_BROKER, "Messages got per second, over the last minute")
COMMITLOG_DIFF = _gauge("rocketmq_broker_commitlog_diff", _OF_BROKER,
                        "Bytes of the log that a slave lacks; brokerIP is the slave's end of its connection")
PRODUCER_OFFSET = _gauge("rocketmq_producer_offset", _TOPIC, "Sum of the queues' ends: messages ever put")
TOPIC_RETRY_OFFSET = _gauge("rocketmq_topic_retry_offset", _TOPIC, "Sum of the queues' ends of a group's retry topic")
TOPIC_DLQ_OFFSET = _gauge("rocketmq_topic_dlq_offset", ("cluster", "broker", "group"),
                          "Sum of the queues' ends of a group's dead-letter topic")
PRODUCER_TPS = _gauge("rocketmq_producer_tps", _TOPIC, "Messages put per second, over the last minute")
PRODUCER_MESSAGE_SIZE = _gauge("rocketmq_producer_message_size", _TOPIC, "Bytes put per second, over the last minute")
PRODUCER_COUNT = _gauge("rocketmq_producer_count", ("cluster", "broker", "group"), "Producers of the group online")
GROUP_COUNT = _gauge("rocketmq_group_count", ("caddr", "localaddr", "group"),
                     "Consumers of the group online; caddr: their addresses, localaddr: their client ids")
GROUP_DIFF = _gauge("rocketmq_group_diff", _DIFF,
                    "Messages that the group has not consumed, on this broker; msgModel 1: the group's consumers share "
                    "the messages (clustering)")
GROUP_RETRYDIFF = _gauge("rocketmq_group_retrydiff", _DIFF, "Messages of its retry topic that it has not consumed")
CONSUMER_OFFSET = _gauge("rocketmq_consumer_offset", _OF_GROUP, "Sum of the group's committed offsets")
GET_LATENCY = _gauge("rocketmq_group_get_latency_by_storetime", _OF_GROUP,
                     "Age (ms) of the oldest message that the group has not consumed")
CONSUMER_TPS = _gauge("rocketmq_consumer_tps", _OF_GROUP, "Messages got per second, over the last minute")
CONSUMER_MESSAGE_SIZE = _gauge("rocketmq_consumer_message_size", _OF_GROUP,
                               "Bytes got per second, over the last minute")
SEND_BACK_NUMS = _gauge("rocketmq_send_back_nums", _OF_GROUP, "Messages that consumers sent back in the last minute")

EXPORTER_METRICS = (
    BROKER_TPS, BROKER_QPS, COMMITLOG_DIFF, PRODUCER_OFFSET, TOPIC_RETRY_OFFSET, TOPIC_DLQ_OFFSET, PRODUCER_TPS,
    PRODUCER_MESSAGE_SIZE, PRODUCER_COUNT, GROUP_COUNT, GROUP_DIFF, GROUP_RETRYDIFF, CONSUMER_OFFSET, GET_LATENCY,
    CONSUMER_TPS, CONSUMER_MESSAGE_SIZE, SEND_BACK_NUMS)
_SPECIAL = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
_MODELS = list(MessageModel)


class ExporterMetrics:
    """The metrics of topics, groups and rates, for one scrape."""

    def __init__(self, sources: RuntimeSources, topics: "TopicConfigManager", producers: "ProducerManager",
                 consumers: ConsumerProgress, progress: Memo[GroupProgress], pace: Pace) -> None:
        self._store, self._stats = sources.message_store, sources.stats
        self._topics, self._producers_online, self._consumers = topics, producers, consumers
        self._progress, self._pace = progress, pace
        config = sources.broker_config
        self._place = config.brokerClusterName, config.brokerName
        self._broker = config.brokerClusterName, sources.addresses.broker_addr, config.brokerName

    def families(self) -> Iterator[Family]:
        """Yield each metric once, the broker's first."""
        yield Family(BROKER_TPS, [(self._broker, self._rate_of_broker(stats.BROKER_PUT_NUMS))])
        yield Family(BROKER_QPS, [(self._broker, self._rate_of_broker(stats.BROKER_GET_NUMS))])
        yield Family(COMMITLOG_DIFF, self._commitlog_diff())
        yield Family(PRODUCER_COUNT, self._producers())
        yield Family(PRODUCER_TPS, self._rates_of_topics(stats.TOPIC_PUT_NUMS))
        yield Family(PRODUCER_MESSAGE_SIZE, self._rates_of_topics(stats.TOPIC_PUT_SIZE))
        ends = Memo(self._ends())
        yield Family(PRODUCER_OFFSET, ((self._place + (topic,), end) for topic, end in ends
                                       if not topic.startswith(_SPECIAL)))
        yield Family(TOPIC_RETRY_OFFSET, ((self._place + (topic,), end) for topic, end in ends
                                          if topic.startswith(RETRY_GROUP_TOPIC_PREFIX)))
        yield Family(TOPIC_DLQ_OFFSET, ((self._place + (topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX),), end)
                                        for topic, end in ends if topic.startswith(DLQ_GROUP_TOPIC_PREFIX)))
        yield from self._groups()

    def _groups(self) -> Iterator[Family]:
        yield Family(GROUP_COUNT, self._group_counts())
        yield Family(GROUP_DIFF, self._diffs(of_retry=False))
        yield Family(GROUP_RETRYDIFF, self._diffs(of_retry=True))
        yield Family(CONSUMER_OFFSET, ((self._place + (one.topic, one.group), one.consumed)
                                       for one in self._progress))
        yield Family(GET_LATENCY, ((self._place + (one.topic, one.group), one.behind_ms)
                                   for one in self._progress if one.is_clustering))
        yield Family(CONSUMER_TPS, self._rates_of_groups(stats.GROUP_GET_NUMS))
        yield Family(CONSUMER_MESSAGE_SIZE, self._rates_of_groups(stats.GROUP_GET_SIZE))
        yield Family(SEND_BACK_NUMS, ((self._place + key, float(window.sum))
                                      for key, window in self._windows_of_groups(stats.SNDBCK_PUT_NUMS)))

    def _rate_of_broker(self, name: str) -> float:
        table = self._stats.stats_table[name]
        return table.get_stats_data_in_minute(self._place[0]).tps

    def _commitlog_diff(self) -> Iterator[Sample]:
        cluster, _address, name = self._broker
        store = self._store
        end = store.get_max_phy_offset()
        for connection in store.ha_service.connection_list:
            if connection.is_serving:
                yield (cluster, connection.client_addr, name), end - connection.slave_ack_offset

    def _producers(self) -> Iterator[Sample]:
        for group, channels in list(self._producers_online.group_channel_table.items()):
            if channels:
                yield self._place + (group,), len(channels)

    def _rates_of_topics(self, name: str) -> Iterator[Sample]:
        for item in self._stats.stats_table[name].items():
            if not item.stats_key.startswith(_SPECIAL):
                yield self._place + (item.stats_key,), item.get_stats_data_in_minute().tps

    def _rates_of_groups(self, name: str) -> Iterator[Sample]:
        for key, window in self._windows_of_groups(name):
            yield self._place + key, window.tps

    def _windows_of_groups(self, name: str) -> Iterator[tuple[tuple[str, str], StatsSnapshot]]:
        """Yield the windows of groups that subscribe or have offsets; tools and the broker itself read messages too."""
        for item in self._stats.stats_table[name].items():
            topic, _at, group = item.stats_key.partition("@")
            self._pace.step()
            if not topic.startswith(_SPECIAL) and self._consumers.is_consumer(topic, group):
                yield (topic, group), item.get_stats_data_in_minute()

    def _ends(self) -> Iterator[tuple[str, int]]:
        """Yield the sum of the queues' ends of each topic."""
        store = self._store
        for topic, config in list(self._topics.topic_config_table.items()):
            end = 0
            for queue_id in range(config.writeQueueNums):
                self._pace.step()
                end += max(0, store.get_max_offset_in_queue(topic, queue_id))
            yield topic, end

    def _group_counts(self) -> Iterator[Sample]:
        counted = set()
        for one in self._progress:
            if one.group not in counted:
                counted.add(one.group)
                clients = list(one.members.channel_info_table.values()) if one.members is not None else []
                yield (",".join(parse_channel_remote_addr(client.channel) for client in clients),
                       ",".join(client.client_id for client in clients), one.group), len(clients)

    def _diffs(self, of_retry: bool) -> Iterator[Sample]:
        for one in self._progress:
            if one.is_clustering and one.topic.startswith(RETRY_GROUP_TOPIC_PREFIX) == of_retry:
                online = len(one.members.channel_info_table) if one.members is not None else 0
                model = _MODELS.index(MessageModel.CLUSTERING)
                yield (one.group, one.topic, str(online), str(model)), one.behind


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
                      "Messages that a group that is online has not consumed; filters are ignored")
LAG_LATENCY = Metric("rocketmq_consumer_lag_latency", GAUGE, _LAG, "Age (ms) of the oldest of them")
STORAGE_SIZE = Metric("rocketmq_storage_size", GAUGE, _STORAGE, "Size of the log in bytes")
OTEL_FLUSH_BEHIND = Metric("rocketmq_storage_flush_behind_bytes", GAUGE, _STORAGE,
                      "Bytes of the log that are not flushed yet")
OTEL_DISPATCH_BEHIND = Metric("rocketmq_storage_dispatch_behind_bytes", GAUGE, _STORAGE,
                         "Bytes of the log that are not in their queues yet")
RESERVE_TIME = Metric("rocketmq_storage_message_reserve_time", GAUGE, _STORAGE, "Age (ms) of the oldest message")
OTEL_METRICS = (PROCESSOR_WATERMARK, BROKER_PERMISSION, MESSAGES_IN, MESSAGES_OUT, THROUGHPUT_IN, THROUGHPUT_OUT,
                PRODUCER_CONNECTIONS, CONSUMER_CONNECTIONS, LAG_MESSAGES, LAG_LATENCY, STORAGE_SIZE, OTEL_FLUSH_BEHIND,
                OTEL_DISPATCH_BEHIND, RESERVE_TIME)
_UNSPECIFIED = "unspecified"  # the value of 5.x for an unknown type
_REMOTING = "remoting"


class OtelMetrics:
    """The metrics named as in 5.x, for one scrape."""

    def __init__(self, sources: RuntimeSources, topics: "TopicConfigManager", producers: "ProducerManager",
                 consumers: "ConsumerManager", progress: Memo[GroupProgress], runtime: RuntimeMetrics) -> None:
        self._store, self._stats, self._pools = sources.message_store, sources.stats, sources.pools
        self._topics, self._producers_online, self._consumers_online = topics, producers, consumers
        self._progress, self._runtime = progress, runtime
        self._config = config = sources.broker_config
        self._node = config.brokerClusterName, "broker", config.brokerName
        self._storage = (*self._node, "local", "disk")

    def families(self) -> Iterator[Family]:
        """Yield each metric once, the broker's first."""
        yield Family(BROKER_PERMISSION, [(self._node, self._config.brokerPermission)])
        yield Family(PROCESSOR_WATERMARK, self._watermarks())
        yield Family(STORAGE_SIZE, self._storage_size())
        yield Family(OTEL_FLUSH_BEHIND, self._flush_behind())
        yield Family(OTEL_DISPATCH_BEHIND, self._dispatch_behind())
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
        pools = self._pools
        for name, pool in (("send", pools.send_message_executor), ("pull", pools.pull_message_executor),
                           ("query_message", pools.query_message_executor),
                           ("client_manager", pools.client_manage_executor),
                           ("heartbeat", pools.heartbeat_executor), ("admin", pools.admin_broker_executor)):
            yield (*self._node, name), pool.queue_size()

    def _storage_size(self) -> Iterator[Sample]:
        store = self._store
        yield self._storage, store.get_max_phy_offset() - max(0, store.get_min_phy_offset())

    def _flush_behind(self) -> Iterator[Sample]:
        yield self._storage, self._store.commit_log.remain_how_many_data_to_flush()

    def _dispatch_behind(self) -> Iterator[Sample]:
        yield self._storage, self._store.dispatch_behind_bytes()

    def _reserve_time(self) -> Iterator[Sample]:
        earliest = self._runtime.earliest_message_time()
        if earliest > 0:
            yield self._storage, current_time_millis() - earliest

    def _producers(self) -> Iterator[Sample]:
        clients = Counter(_client(info) for channels in list(self._producers_online.group_channel_table.values())
                          for info in list(channels.values()))
        for client, count in clients.items():
            yield (*self._node, *client), count

    def _consumers(self) -> Iterator[Sample]:
        for group in self._consumers_online.groups():
            mode = group.consume_type.value.lower() if group.consume_type is not None else ""
            clients = Counter(_client(info) for info in list(group.channel_info_table.values()))
            for client, count in clients.items():
                yield ((*self._node, group.group_name, *client, mode, _told(_is_system_group(group.group_name))), count)

    def _in(self, name: str) -> Iterator[Sample]:
        for item in self._stats.stats_table[name].items():
            topic = item.stats_key
            if not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
                yield (*self._node, topic, _UNSPECIFIED, _told(self._is_system_topic(topic))), item.value

    def _out(self, name: str) -> Iterator[Sample]:
        for item in self._stats.stats_table[name].items():
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
        return self._topics.topic_validator.is_system_topic(topic)


def _client(info: "ClientChannelInfo") -> tuple[str, str, str]:
    language = info.language.name.lower() if info.language is not None else ""
    return language, java.get_version_desc(info.version).lower(), _REMOTING


def _is_system_group(group: str) -> bool:
    return group.lower().startswith(mix_all.CID_RMQ_SYS_PREFIX.lower())


def _told(flag: bool) -> str:
    return "true" if flag else "false"


_BROKER = ("cluster", "broker", "broker_id")
_OF_SLAVE = (*_BROKER, "slave")


def _of_broker(name: str, meaning: str, kind: str = GAUGE, *labels: str) -> Metric:
    return Metric(f"rmqha_{name}", kind, (*_BROKER, *labels), meaning)


def _of_slave(name: str, meaning: str, kind: str = GAUGE, *labels: str) -> Metric:
    return Metric(f"rmqha_replication_{name}", kind, (*_OF_SLAVE, *labels), meaning)


INFO = _of_broker("broker_info", "Always 1; the labels describe the broker", GAUGE, "address", "role", "version",
                  "rocketmq_version")
READY = _of_broker("broker_ready", "1 when clients can work with it; if not, /readyz shows the reasons")
NAME_SERVERS = _of_broker("name_servers_registered", "Name servers that accepted the last registration")
CONNECTIONS = _of_broker("connections", "Connections of clients and other servers", GAUGE, "port")
STORE_OPEN = _of_broker("store_open", "1 when the store is recovered and open")
STORE_WRITEABLE = _of_broker("store_writeable", "1 when the store accepts messages")
STORE_FAULT = _of_broker("store_fault", "1 while the fault is present", GAUGE, "fault")
RECOVERY_SECONDS = _of_broker("recovery_seconds", "Duration of the last start: load checks the existing files, "
                              "dispatch completes the queues and the index", GAUGE, "phase")
RECOVERY_CLEAN = _of_broker("recovery_was_clean", "1 after a clean shutdown, 0 after a crash")
PUTS = _of_broker("puts_total", "Messages put", COUNTER)
PUT_BYTES = _of_broker("put_bytes_total", "Bytes put", COUNTER)
PUTS_FAILED = _of_broker("puts_failed_total", "Puts that were not appended to the log", COUNTER)
GETS = _of_broker("gets_total", "Gets, by whether they found messages", COUNTER, "found")
GOT = _of_broker("messages_got_total", "Messages got", COUNTER)
ACK_LATENCY = _of_broker("ack_latency_seconds", "From call to answer of a put: disk and slaves as configured. Counted "
                         "in whole milliseconds", HISTOGRAM)
FLUSH_LATENCY = _of_broker("flush_latency_seconds", "Duration of one flush of the log (fsync) that had bytes to flush",
                           HISTOGRAM)
PUT_LOCK = _of_broker("put_lock_held_seconds", "How long the put lock has been held by its present holder")
PUTS_WAITING = _of_broker("puts_waiting", "Batches of sends, each written together, that wait for slaves")
DISPATCH_BEHIND = _of_broker("dispatch_behind_bytes", "Bytes of the log that are not in their queues yet")
FLUSH_BEHIND = _of_broker("flush_behind_bytes", "Bytes of the log that are not flushed yet")
LOG_END = _of_broker("log_end_offset", "End of the log")
LOG_BEGIN = _of_broker("log_begin_offset", "Beginning of the log")
DELAYED = _of_broker("delayed_messages", "Delayed messages that are not delivered yet", GAUGE, "level")
STALLS = _of_broker("stalls_total",
                    "Pauses longer than stallWatchMs in which no thread ran; missing when stallWatchMs is off",
                    COUNTER)
STALLED = _of_broker("stalled_seconds_total", "Total duration of those pauses", COUNTER)
SLAVES = _of_broker("slaves", "Slaves that are served")
SLAVES_IN_SYNC = _of_broker("slaves_in_sync", "Slaves that are less than haMaxGapNotInSync bytes behind")
SLAVES_REFUSED = _of_broker("slaves_refused", "Slaves that cannot be served because their offset is not in this log")
LAG_BYTES = _of_slave("lag_bytes", "Bytes of the log that the slave has not acknowledged")
LAG_SECONDS = _of_slave("lag_seconds", "Time since the slave last held the whole log; 0 while it does")
ACKED = _of_slave("acked_offset", "Offset up to which the slave has acknowledged")
SENT_RATE = _of_slave("sent_bytes_per_second", "Bytes sent to it in the last whole second")
SILENCE = _of_slave("silence_seconds", "Time since the slave last sent anything")
RETRANSMITS = _of_slave("retransmits", "How many times in a row the kernel has retransmitted the same bytes to it")
STATE = _of_slave("state", "1 for the current state of its connection", GAUGE, "state")
CONNECTED = _of_broker("slave_connected", "On a slave: 1 while it follows its master")
SLAVE_STATE = _of_broker("slave_state", "On a slave: 1 for its current state", GAUGE, "state")
SLAVE_SILENCE = _of_broker("slave_master_silence_seconds", "On a slave: time since its master last sent anything")
SLAVE_RECEIVED_RATE = _of_broker("slave_received_bytes_per_second",
                                 "On a slave: bytes received in the last whole second")
SCRUB_STATE = _of_broker("slave_scrub_state", "On a slave: 1 for the current state of the comparison of its log with "
                         "its master's; CANT: the master cannot be asked", GAUGE, "state")
SCRUB_OFFSET = _of_broker("slave_scrub_offset", "On a slave: offset up to which the current round has compared")
SCRUB_ROUNDS = _of_broker("slave_scrub_rounds_total", "On a slave: rounds that have compared the whole log", COUNTER)
SCRUB_BYTES = _of_broker("slave_scrub_compared_bytes_total", "On a slave: bytes compared", COUNTER)
UNSCRUBBED = _of_broker("slave_unscrubbed_seconds", "On a slave: how long bytes of its log have waited to be compared, "
                        "or compared again; missing before the first comparison")
SCRUB_PROMISE = _of_broker("slave_scrub_promised_seconds", "On a slave: the time within which the whole log is to be "
                           "compared (haScrubPromise)")
SCRUB_DIFFERENCES = _of_broker("slave_scrub_differences", "On a slave: records that differ from its master's; rmqha ha "
                               "status shows where, and what to do")
VERIFIED_BYTES = _of_broker("slave_verified_bytes_total", "On a slave: bytes received and verified before they were "
                            "acknowledged", COUNTER)
VERIFY_FAILURES = _of_broker("slave_verify_failures_total", "On a slave: records received damaged and refused",
                             COUNTER)
FAILOVER_LEADS = _of_broker("failover_leads", "With enableControllerMode: 1 while it is the master")
FAILOVER_EPOCH = _of_broker("failover_master_epoch", "With enableControllerMode: the epoch of the master that it is or "
                            "follows; 0: a controller has not decided yet")
FAILOVER_LEASE = _of_broker("failover_lease_seconds", "With enableControllerMode: how long it may still acknowledge "
                            "without a response from a controller")
FAILOVER_CONTROLLER = _of_broker("failover_controller_known", "With enableControllerMode: 1 while it knows which "
                                 "controller leads")
FAILOVER_IN_SYNC = _of_broker("failover_in_sync_replicas", "With enableControllerMode, on a master: replicas that must "
                              "hold a message before it is acknowledged, including the master")

OWN_METRICS = (
    INFO, READY, STORE_OPEN, NAME_SERVERS, CONNECTIONS, STORE_WRITEABLE, STORE_FAULT, RECOVERY_SECONDS, RECOVERY_CLEAN,
    PUTS, PUT_BYTES, PUTS_FAILED, GETS, GOT, ACK_LATENCY, FLUSH_LATENCY, PUT_LOCK, PUTS_WAITING, DISPATCH_BEHIND,
    FLUSH_BEHIND, LOG_END, LOG_BEGIN, DELAYED, STALLS, STALLED, SLAVES, SLAVES_IN_SYNC, SLAVES_REFUSED, LAG_BYTES,
    LAG_SECONDS, ACKED, SENT_RATE, SILENCE, RETRANSMITS, STATE, CONNECTED, SLAVE_STATE, SLAVE_SILENCE,
    SLAVE_RECEIVED_RATE, SCRUB_STATE, SCRUB_OFFSET, SCRUB_ROUNDS, SCRUB_BYTES, UNSCRUBBED, SCRUB_PROMISE,
    SCRUB_DIFFERENCES, VERIFIED_BYTES, VERIFY_FAILURES, FAILOVER_LEADS, FAILOVER_EPOCH, FAILOVER_LEASE,
    FAILOVER_CONTROLLER, FAILOVER_IN_SYNC)
# By bit of the store's flags.
_FAULTS = {
    "not_readable": running_flags.NOT_READABLE_BIT, "not_writeable": running_flags.NOT_WRITEABLE_BIT,
    "consume_queue_error": running_flags.WRITE_LOGICS_QUEUE_ERROR_BIT,
    "index_error": running_flags.WRITE_INDEX_FILE_ERROR_BIT, "disk_full": running_flags.DISK_FULL_BIT,
    "flush_failed": running_flags.FLUSH_ERROR_BIT, "fenced": running_flags.FENCED_BIT}
_SCRUB_STATES = (scrub_state.OFF, scrub_state.WAITING, scrub_state.RUNNING, scrub_state.CANT)
FAULTS = (*_FAULTS, "diverged", "service_failed")


def _labels(config: "BrokerConfig") -> tuple[str, str, str]:
    return config.brokerClusterName, config.brokerName, str(config.brokerId)


class OwnMetrics:
    """rmqha's own metrics, for one scrape."""

    def __init__(self, sources: RuntimeSources, servers: "Mapping[str, RemotingServer]",
                 registration: "BrokerRegistration", replicas_manager: "ReplicasManager | None",
                 stall_watch: "StallWatch", failure: str | None) -> None:
        self._config, self._store = sources.broker_config, sources.message_store
        self._servers = servers  # by the names of their ports
        self._registration = registration
        self._replicas_manager = replicas_manager
        self._stall_watch = stall_watch
        self._failure = failure

    @property
    def _broker(self) -> tuple[str, str, str]:
        """The labels of all samples; the id changes with the role where a controller decides it."""
        return _labels(self._config)

    def families(self) -> Iterator[Family]:
        """Yield each metric once, as far as it is known."""
        yield self._one(NAME_SERVERS, self._registration.name_servers_registered)
        yield Family(CONNECTIONS, [((*self._broker, port), len(server.io.channels))
                                   for port, server in self._servers.items()])
        yield self._one(STORE_WRITEABLE, self._store.running_flags.is_writeable)
        yield Family(STORE_FAULT, self._faults())
        yield from self._recovery()
        yield from self._counts()
        yield from self._times()
        yield from self._log()
        yield from self._stalls()
        yield from self._failover()
        if self._store.role.is_slave:
            yield from self._as_slave()
        else:
            yield from self._as_master()

    def _one(self, metric: Metric, value: float) -> Family:
        return Family(metric, [(self._broker, float(value))])

    def _faults(self) -> Iterator[Sample]:
        bits = self._store.running_flags.flag_bits
        for fault, bit in _FAULTS.items():
            yield (*self._broker, fault), float(bool(bits & bit))
        yield (*self._broker, "diverged"), float(self._store.ha_service.divergence.found is not None)
        yield (*self._broker, "service_failed"), float(self._failure is not None)

    def _recovery(self) -> Iterator[Family]:
        times = self._store.recovery_times
        yield Family(RECOVERY_SECONDS, [((*self._broker, "load"), times.load_s),
                                        ((*self._broker, "dispatch"), times.dispatch_s)])
        yield self._one(RECOVERY_CLEAN, bool(times.was_clean))

    def _counts(self) -> Iterator[Family]:
        counts = self._store.store_stats_service
        yield self._one(PUTS, counts.get_put_message_times_total())
        yield self._one(PUT_BYTES, counts.get_put_message_size_total())
        yield self._one(PUTS_FAILED, counts.put_message_failed_times)
        yield Family(GETS, [((*self._broker, "true"), counts.get_message_times_total_found),
                            ((*self._broker, "false"), counts.get_message_times_total_miss)])
        yield self._one(GOT, counts.get_message_transfered_msg_count)

    def _times(self) -> Iterator[Family]:
        store = self._store
        yield Family(ACK_LATENCY, [(self._broker, store.store_stats_service.put_times())])
        flush_times = store.commit_log.flush_commit_log_service.flush_times
        yield Family(FLUSH_LATENCY, [(self._broker, flush_times.distribution())])
        yield self._one(PUT_LOCK, store.lock_time_mills() / 1000)
        yield self._one(PUTS_WAITING, store.ha_service.group_transfer_service.waiting_requests())

    def _log(self) -> Iterator[Family]:
        store = self._store
        yield self._one(DISPATCH_BEHIND, store.dispatch_behind_bytes())
        yield self._one(FLUSH_BEHIND, store.commit_log.remain_how_many_data_to_flush())
        yield self._one(LOG_END, store.get_max_phy_offset())
        yield self._one(LOG_BEGIN, store.get_min_phy_offset())
        yield Family(DELAYED, (((*self._broker, str(level)), behind)
                               for level, behind in store.schedule_message_service.behind_by_level().items()))

    def _stalls(self) -> Iterator[Family]:
        watch = self._stall_watch
        if watch.is_on:
            yield self._one(STALLS, watch.stalls)
            yield self._one(STALLED, watch.stalled_ms / 1000)

    def _failover(self) -> Iterator[Family]:
        manager = self._replicas_manager
        if manager is None:
            return
        role = manager.role
        yield self._one(FAILOVER_LEADS, role.leads)
        yield self._one(FAILOVER_EPOCH, role.epoch)
        yield self._one(FAILOVER_LEASE, manager.lease.left_ms() / 1000)
        yield self._one(FAILOVER_CONTROLLER, bool(manager.controller_leader_address))
        if role.leads:
            yield self._one(FAILOVER_IN_SYNC, len(manager.ha_service.get_sync_state_set()))

    def _as_master(self) -> Iterator[Family]:
        ha_service, end = self._store.ha_service, self._store.get_max_phy_offset()
        yield self._one(SLAVES, ha_service.slave_count())
        yield self._one(SLAVES_IN_SYNC, ha_service.ack_rule.in_sync_replicas_nums(end) - 1)
        yield self._one(SLAVES_REFUSED, len(ha_service.refused_slaves()))
        slaves = {(*self._broker, name): one for name, one in slaves_by_name(ha_service.connection_list).items()}
        yield Family(LAG_BYTES, [(labels, end - max(0, one.slave_ack_offset)) for labels, one in slaves.items()])
        yield Family(LAG_SECONDS, [(labels, one.behind_ms() / 1000) for labels, one in slaves.items()])
        yield Family(ACKED, [(labels, one.slave_ack_offset) for labels, one in slaves.items()])
        yield Family(SENT_RATE, [(labels, one.transferred_byte_in_second) for labels, one in slaves.items()])
        yield Family(SILENCE, [(labels, one.silence_ms() / 1000) for labels, one in slaves.items()])
        yield Family(RETRANSMITS, [(labels, retransmits(one.socket)) for labels, one in slaves.items()])
        yield Family(STATE, [((*labels, state.value), float(one.state is state))
                             for labels, one in slaves.items() for state in HAConnectionState])

    def _as_slave(self) -> Iterator[Family]:
        client = self._store.ha_service.ha_client
        state = client.state
        yield self._one(CONNECTED, state in SERVING)
        yield Family(SLAVE_STATE, [((*self._broker, each.value), float(each is state)) for each in HAConnectionState])
        yield self._one(SLAVE_SILENCE, max(0, client.silence_ms()) / 1000)
        yield self._one(SLAVE_RECEIVED_RATE, client.transferred_byte_in_second)
        yield self._one(VERIFIED_BYTES, client.verified_bytes)
        yield self._one(VERIFY_FAILURES, client.verify_failures)
        yield from self._scrubbing()

    def _scrubbing(self) -> Iterator[Family]:
        """Yield the metrics of scrubbing; differences also while it is off: they were found earlier and remain."""
        scrub = self._store.ha_service.scrub
        state = scrub.state
        yield Family(SCRUB_STATE, [((*self._broker, each), float(each == state)) for each in _SCRUB_STATES])
        yield self._one(SCRUB_DIFFERENCES, scrub.differences)
        if state == scrub_state.OFF:
            return
        yield self._one(SCRUB_OFFSET, scrub.position)
        yield self._one(SCRUB_ROUNDS, scrub.rounds)
        yield self._one(SCRUB_BYTES, scrub.compared_bytes)
        yield self._one(SCRUB_PROMISE, self._store.message_store_config.haScrubPromise / 1000)
        unscrubbed_ms = scrub.unscrubbed_ms()
        if unscrubbed_ms >= 0:
            yield self._one(UNSCRUBBED, unscrubbed_ms / 1000)


def slaves_by_name(connections: "tuple[HAConnection, ...]") -> "dict[str, HAConnection]":
    """Return the slaves that are served, by the name that each reports; the newest connection if a slave has several.

    RocketMQ's own slaves report no name: their name is the host, or host:port if several are on one host.
    """
    serving = [one for one in connections if one.is_serving]
    of_host = Counter(one.slave_identity for one in serving if not one.is_named)
    return {one.client_addr if of_host[one.slave_identity] > 1 else one.slave_identity: one for one in serving}


BROKER_METRICS = (*OWN_METRICS, *EXPORTER_METRICS, *RUNTIME_METRICS, *OTEL_METRICS)


class BrokerMetrics(Subject):
    """The metrics and health of a broker, for its metrics port."""

    def __init__(self, controller: "BrokerController") -> None:
        self._controller = controller
        # Both are created once the store is open.
        self._runtime: RuntimeMetrics | None = None
        self._times: StoreTimes | None = None

    def families(self, pace: Pace) -> Iterator[Family]:
        """Yield rmqha's own metrics first, since they show faults, then those that `metricsNames` selects."""
        controller = self._controller
        yield from self._at_any_time()
        if not controller.is_started or controller.message_store.is_shutdown:
            return
        sources = RuntimeSources(controller.broker_config, controller.addresses, controller.message_store,
                                 controller.broker_stats_manager, controller.broker_stats, controller.pools)
        servers = {"listen": controller.remoting_server, "fast": controller.fast_remoting_server}
        yield from OwnMetrics(sources, servers, controller.registration, controller.replicas_manager,
                              controller.stall_watch, controller.failure).families()
        self._runtime = self._runtime or RuntimeMetrics(sources)
        self._times = self._times or StoreTimes(controller.message_store)
        names = controller.broker_config.metricsNames
        if names is not MetricsNames.otel:
            yield from self._runtime.families()
        times = self._times.of_scrape(pace)
        topics, producers, consumers = (controller.topic_config_manager, controller.producer_manager,
                                        controller.consumer_manager)
        reader = ConsumerProgress(controller.message_store, topics, controller.consumer_offset_manager, consumers)
        progress = Memo(reader.of_groups(times, pace))
        if names is not MetricsNames.otel and not controller.role.is_slave:
            yield from ExporterMetrics(sources, topics, producers, reader, progress, pace).families()
        if names is not MetricsNames.exporter:
            yield from OtelMetrics(sources, topics, producers, consumers, progress, self._runtime).families()
        self._times.keep(times)

    def _at_any_time(self) -> Iterator[Family]:
        """Yield the metrics that are known before the store is open."""
        controller, store = self._controller, self._controller.message_store
        labels = _labels(controller.broker_config)
        yield Family(INFO, [((*labels, controller.broker_addr, controller.role.kind.name,
                              rmqha.__version__, java.get_version_desc(java.CURRENT_VERSION)), 1)])
        yield Family(READY, [(labels, float(not self.why_not_ready()))])
        yield Family(STORE_OPEN, [(labels, float(store is not None and not store.is_shutdown))])

    def why_not_healthy(self) -> list[str]:
        """Return the failures that only a restart can fix."""
        return health.why_not_healthy(self._controller)

    def why_not_ready(self) -> list[str]:
        """Return the reasons why clients cannot work with the broker."""
        return health.why_not_ready(self._controller)

    def role_pages(self) -> dict[str, RolePage]:
        """Return the pages for load balancers."""
        return health.RolePages(self._controller).pages()
