"""Handlers of admin requests about consumer offsets: progress of groups, and copies of offsets."""
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, table_answer
from rmqha.common import util_all
from rmqha.common.java import string_of
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rmqha.common.protocol.client_bodies import QueryConsumeTimeSpanBody, QueryCorrectionOffsetBody, QueueTimeSpan
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, GroupList, OffsetWrapper
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.queue_offsets import QueueOffsets
    from rmqha.broker.record_access import RecordAccess
    from rmqha.broker.subscription_group_manager import SubscriptionGroupManager
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.store.broker_stats_manager import BrokerStatsManager

log = logging.getLogger("RocketmqBroker")


class AdminOffsetHandlers(AdminHandlers):
    """Handlers for the offsets of groups: list, search and copy them, and compute lags."""

    def __init__(self, addresses: "BrokerAddresses", queues: "QueueOffsets", stats: "BrokerStatsManager",
                 topics: "TopicConfigManager", groups: "SubscriptionGroupManager", offsets: "ConsumerOffsetManager",
                 consumers: "ConsumerManager", record_access: "RecordAccess") -> None:
        self._addresses = addresses
        self._queues, self._stats = queues, stats
        self._topics, self._groups = topics, groups
        self._offsets, self._consumers = offsets, consumers
        self._record_access = record_access

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.GET_CONSUME_STATS: self.get_consume_stats,
            request_code.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
            request_code.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_consume_by_who,
            request_code.QUERY_CONSUME_TIME_SPAN: self.query_consume_time_span,
            request_code.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
            request_code.CLONE_GROUP_OFFSET: self.clone_group_offset,
            request_code.GET_BROKER_CONSUME_STATS: self.fetch_all_consume_stats_in_broker,
        }

    def get_consume_stats(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the progress of a group in its topics, or in one."""
        header = request.decode_command_custom_header(GetConsumeStatsRequestHeader)
        group = header.consumerGroup
        offsets = self._offsets
        topics = _only(header.topic) or offsets.which_topic_by_consumer(group)
        self._record_access.check_topics(channel, request, topics)
        result = ConsumeStats()
        for topic in topics:
            config = self._topics.select_topic_config(topic)
            if config is None:
                log.warning("consumeStats, topic config not exist, %s", topic)
            elif self._is_subscribed("consumeStats", group, topic):
                result.offsetTable.update(self._places(group, topic, config.readQueueNums))
                result.consumeTps += self._stats.tps_group_get_nums(group, topic)
        return success(result)

    def get_all_consumer_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return all consumer offsets."""
        manager = self._offsets
        return table_answer(request, manager.changes, manager.encode_entries)

    def query_topic_consume_by_who(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the groups that consume a topic: those online and those with offsets."""
        topic = request.decode_command_custom_header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = self._consumers.query_topic_consume_by_who(topic)
        return success(GroupList(groups | self._offsets.which_group_by_topic(topic)))

    def query_consume_time_span(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the store times of the first, the last and the last consumed message of each queue."""
        header = request.decode_command_custom_header(QueryConsumeTimeSpanRequestHeader)
        config = self._topics.select_topic_config(header.topic)
        if config is None:
            return RemotingCommand.create_response_command(response_code.TOPIC_NOT_EXIST,
                                                           f"topic[{header.topic}] not exist")
        return success(QueryConsumeTimeSpanBody([self._time_span(header.topic, header.group, queue_id)
                                                 for queue_id in range(config.writeQueueNums)]))

    def query_correction_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the lowest offsets of the other groups."""
        # The original intends to compare them with a group's own offsets, but looks those up with topic and group
        # swapped, finds nothing, and returns the minimum.
        header = request.decode_command_custom_header(QueryCorrectionOffsetHeader)
        offsets = self._offsets
        return success(QueryCorrectionOffsetBody(
            offsets.query_min_offset_in_all_group(header.topic, header.filterGroups,
                                                  self._queues.get_min_offset_in_queue)))

    def clone_group_offset(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Copy a group's offsets to another group."""
        header = request.decode_command_custom_header(CloneGroupOffsetRequestHeader)
        offsets = self._offsets
        topics = _only(header.topic) or offsets.which_topic_by_consumer(header.srcGroup)
        self._record_access.check_topics(channel, request, topics)
        for topic in topics:
            if self._topics.select_topic_config(topic) is None:
                log.warning("[cloneGroupOffset], topic config not exist, %s", topic)
            elif header.offline or self._is_subscribed("[cloneGroupOffset]", header.srcGroup, topic):
                # Differs: CLONE_GROUP_OFFSET without a topic copies all topics; the original uses the request's empty
                # topic each time, and copies nothing
                offsets.clone_offset(header.srcGroup, header.destGroup, topic)
        return success()

    def fetch_all_consume_stats_in_broker(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the progress of all groups."""
        only_ordered = request.decode_command_custom_header(GetConsumeStatsInBrokerHeader).isOrder
        result = ConsumeStatsList(brokerAddr=self._addresses.broker_addr)
        topics = self._offsets.topics_by_group()
        for group in list(self._groups.subscription_group_table):
            stats = list(self._group_stats(group, topics.get(group, ()), only_ordered))
            result.totalDiff += sum(one.compute_total_diff() for one in stats)
            result.consumeStatsList.append({group: stats})
        return success(result)

    def _group_stats(self, group: str, topics: Iterable[str], only_ordered: bool) -> Iterable[ConsumeStats]:
        for topic in topics:
            config = self._topics.select_topic_config(topic)
            if config is None:
                log.warning("consumeStats, topic config not exist, %s", topic)
            elif (config.order or not only_ordered) and self._is_subscribed("consumeStats", group, topic):
                tps = self._stats.tps_group_get_nums(group, topic)
                yield ConsumeStats(self._places(group, topic, config.writeQueueNums), tps)

    def _is_subscribed(self, what: str, group: str, topic: str) -> bool:
        """Return whether the group subscribes to the topic; True also when the group is offline."""
        consumers = self._consumers
        if consumers.find_subscription_data(group, topic) is None and consumers.find_subscription_data_count(group) > 0:
            log.warning("%s, the consumer group[%s], topic[%s] not exist", what, group, topic)
            return False
        return True

    def _places(self, group: str, topic: str, queue_nums: int) -> dict[MessageQueue, OffsetWrapper]:
        places = {}
        for queue_id in range(queue_nums):
            broker_offset = max(0, self._queues.get_max_offset_in_queue(topic, queue_id))
            consumer_offset = max(0, self._offsets.query_offset(group, topic, queue_id))
            timestamp = 0
            if consumer_offset > 0:
                timestamp = max(0, self._queues.get_message_store_timestamp(topic, queue_id,
                                                                                        consumer_offset - 1))
            queue = MessageQueue(topic, self._addresses.broker_name, queue_id)
            places[queue] = OffsetWrapper(broker_offset, consumer_offset, timestamp)
        return places

    def _time_span(self, topic: str, group: str | None, queue_id: int) -> QueueTimeSpan:
        queues = self._queues
        min_time = queues.get_earliest_message_time(topic, queue_id)
        maximum = queues.get_max_offset_in_queue(topic, queue_id)
        max_time = queues.get_message_store_timestamp(topic, queue_id, maximum - 1)
        consumer_offset = self._offsets.query_offset(string_of(group), topic, queue_id)
        consume_time, delay = min_time, 0
        if consumer_offset > 0:
            consume_time = queues.get_message_store_timestamp(topic, queue_id, consumer_offset - 1)
        if consumer_offset < maximum:
            next_time = queues.get_message_store_timestamp(topic, queue_id, consumer_offset)
            delay = util_all.current_time_millis() - next_time
        queue = MessageQueue(topic, self._addresses.broker_name, queue_id)
        return QueueTimeSpan(queue, min_time, max_time, consume_time, delay)


def _only(topic: str | None) -> set[str]:
    """Return a set of the topic in a request; empty if the request has no topic and means all."""
    return set() if topic is None or util_all.is_blank(topic) else {topic}
