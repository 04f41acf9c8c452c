"""Topics, groups and rates, by the names of RocketMQ's exporter (apache/rocketmq-exporter, RMQMetricsCollector).

The exporter asks masters; so a slave does not tell these: sums over all brokers would count twice.
"""
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqha.broker.metrics.group_progress import GroupProgress, is_consumer
from rmqha.common import stats
from rmqha.common.metrics import GAUGE, Family, Memo, Metric, Pace, Sample
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.common.stats import StatsSnapshot
from rmqha.common.subscriptions import MessageModel
from rmqha.remoting.addresses import parse_channel_remote_addr

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController

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
PRODUCER_OFFSET = _gauge("rocketmq_producer_offset", _TOPIC, "Sum of the queues' ends: messages that ever came in")
TOPIC_RETRY_OFFSET = _gauge("rocketmq_topic_retry_offset", _TOPIC, "The same of a group's retry topic")
TOPIC_DLQ_OFFSET = _gauge("rocketmq_topic_dlq_offset", ("cluster", "broker", "group"),
                          "The same of a group's dead-letter topic")
PRODUCER_TPS = _gauge("rocketmq_producer_tps", _TOPIC, "Messages put per second, over the last minute")
PRODUCER_MESSAGE_SIZE = _gauge("rocketmq_producer_message_size", _TOPIC, "Bytes put per second, over the last minute")
PRODUCER_COUNT = _gauge("rocketmq_producer_count", ("cluster", "broker", "group"), "Producers of the group online")
GROUP_COUNT = _gauge("rocketmq_group_count", ("caddr", "localaddr", "group"),
                     "Consumers of the group online; caddr: their addresses, localaddr: their client ids")
GROUP_DIFF = _gauge("rocketmq_group_diff", _DIFF,
                    "Messages that the group has not consumed, on this broker; msgModel 1: they share them")
GROUP_RETRYDIFF = _gauge("rocketmq_group_retrydiff", _DIFF, "The same of its retry topic")
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
    """What one scrape tells of topics, groups and rates."""

    def __init__(self, controller: "BrokerController", progress: Memo[GroupProgress], pace: Pace) -> None:
        self._controller, self._progress, self._pace = controller, progress, pace
        config = controller.broker_config
        self._place = config.brokerClusterName, config.brokerName
        self._broker = config.brokerClusterName, controller.broker_addr, config.brokerName

    def families(self) -> Iterator[Family]:
        """Each metric once, the broker's first."""
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
        table = self._controller.broker_stats_manager.stats_table[name]
        return table.get_stats_data_in_minute(self._place[0]).tps

    def _commitlog_diff(self) -> Iterator[Sample]:
        cluster, _address, name = self._broker
        store = self._controller.message_store
        end = store.get_max_phy_offset()
        for connection in store.ha_service.connection_list:
            if connection.is_serving:
                yield (cluster, connection.client_addr, name), end - connection.slave_ack_offset

    def _producers(self) -> Iterator[Sample]:
        for group, channels in list(self._controller.producer_manager.group_channel_table.items()):
            if channels:
                yield self._place + (group,), len(channels)

    def _rates_of_topics(self, name: str) -> Iterator[Sample]:
        for item in self._controller.broker_stats_manager.stats_table[name].items():
            if not item.stats_key.startswith(_SPECIAL):
                yield self._place + (item.stats_key,), item.get_stats_data_in_minute().tps

    def _rates_of_groups(self, name: str) -> Iterator[Sample]:
        for key, window in self._windows_of_groups(name):
            yield self._place + key, window.tps

    def _windows_of_groups(self, name: str) -> Iterator[tuple[tuple[str, str], StatsSnapshot]]:
        """Of the groups that subscribe or have offsets; tools and the broker itself read, too."""
        for item in self._controller.broker_stats_manager.stats_table[name].items():
            topic, _at, group = item.stats_key.partition("@")
            self._pace.step()
            if not topic.startswith(_SPECIAL) and is_consumer(self._controller, topic, group):
                yield (topic, group), item.get_stats_data_in_minute()

    def _ends(self) -> Iterator[tuple[str, int]]:
        """Of each topic the sum of its queues' ends."""
        store = self._controller.message_store
        for topic, config in list(self._controller.topic_config_manager.topic_config_table.items()):
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
