"""Handlers of admin requests about queues: their bounds and contents."""
import base64
from typing import TYPE_CHECKING

from rmqha.broker.expression_message_filter import ExpressionMessageFilter
from rmqha.broker.processor.admin_handlers import NO_REMARK, AdminHandlers, Handler, success, system_error
from rmqha.common.java import string_of
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import GetTopicStatsInfoRequestHeader
from rmqha.common.protocol.client_bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmqha.common.protocol.client_headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumeQueueRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rmqha.common.protocol.table_bodies import TopicOffset, TopicStatsTable
from rmqha.filter.bloom_filter import BitsArray
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, is_ext_addr, iter_units

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.consumer_filter_manager import ConsumerFilterManager
    from rmqha.broker.queue_offsets import QueueOffsets
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.store.consume_queue_table import ConsumeQueueTable

MAX_UNITS = 10_000  # per response


class AdminQueueHandlers(AdminHandlers):
    """Handlers for queues: offsets, times, statistics and units."""

    def __init__(self, addresses: "BrokerAddresses", queues: "QueueOffsets", queue_table: "ConsumeQueueTable",
                 topics: "TopicConfigManager", consumers: "ConsumerManager", filters: "ConsumerFilterManager") -> None:
        self._addresses = addresses
        self._queues, self._queue_table = queues, queue_table
        self._topics = topics
        self._consumers, self._filters = consumers, filters

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
            request_code.GET_MAX_OFFSET: self.get_max_offset,
            request_code.GET_MIN_OFFSET: self.get_min_offset,
            request_code.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_storetime,
            request_code.GET_TOPIC_STATS_INFO: self.get_topic_stats_info,
            request_code.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    def search_offset_by_timestamp(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the offset of a queue at a time."""
        header = request.decode_command_custom_header(SearchOffsetRequestHeader)
        offset = self._queues.get_offset_in_queue_by_time(header.topic, header.queueId, header.timestamp)
        return success(header=SearchOffsetResponseHeader(offset))

    def get_max_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the next offset of a queue."""
        header = request.decode_command_custom_header(GetMaxOffsetRequestHeader)
        offset = self._queues.get_max_offset_in_queue(header.topic, header.queueId)
        return success(header=GetMaxOffsetResponseHeader(offset))

    def get_min_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the first offset of a queue."""
        header = request.decode_command_custom_header(GetMinOffsetRequestHeader)
        offset = self._queues.get_min_offset_in_queue(header.topic, header.queueId)
        return success(header=GetMinOffsetResponseHeader(offset))

    def get_earliest_msg_storetime(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the store time of the first message of a queue."""
        header = request.decode_command_custom_header(GetEarliestMsgStoretimeRequestHeader)
        timestamp = self._queues.get_earliest_message_time(header.topic, header.queueId)
        return success(header=GetEarliestMsgStoretimeResponseHeader(timestamp))

    def get_topic_stats_info(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the first offset, the next offset and the last store time of each queue of a topic."""
        topic = request.decode_command_custom_header(GetTopicStatsInfoRequestHeader).topic
        config = self._topics.select_topic_config(topic)
        if config is None:
            return RemotingCommand.create_response_command(response_code.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table = TopicStatsTable()
        for queue_id in range(config.writeQueueNums):
            queue = MessageQueue(topic, self._addresses.broker_name, queue_id)
            table.offsetTable[queue] = self._topic_offset(topic, queue_id)
        return success(table)

    def query_consume_queue(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return units of a consume queue."""
        header = request.decode_command_custom_header(QueryConsumeQueueRequestHeader)
        topic = header.topic
        queue = None if topic is None else self._queue_table.get_queue(topic, header.queueId)
        if topic is None or queue is None:
            return system_error(f"{header.queueId}@{string_of(topic)} is not exist!")
        body = QueryConsumeQueueResponseBody(maxQueueIndex=queue.get_max_offset_in_queue(),
                                             minQueueIndex=queue.get_min_offset_in_queue())
        message_filter = None
        if header.consumerGroup is not None:
            subscription = self._consumers.find_subscription_data(header.consumerGroup, topic)
            body.subscriptionData = subscription
            body.filterData = f"{header.consumerGroup}@{header.topic} is not online!"
            if subscription is not None:
                filters = self._filters
                data = filters.get(topic, header.consumerGroup)
                if data is not None:
                    data.dead = data.is_dead
                body.filterData = remoting_serializable.to_json(data, True)
                message_filter = ExpressionMessageFilter(subscription, data, filters)
        result = queue.get_index_buffer(header.index) if header.index >= 0 else None
        if result is None:
            response = success()
            response.remark = f"Index {header.index} of {header.queueId}@{header.topic} is not exist!"
            return response
        with result:
            # Differs: a response to QUERY_CONSUME_QUEUE has at most 10,000 units; the original returns those of a whole
            # file
            wanted = min(min(max(header.count, 0), MAX_UNITS) * CQ_STORE_UNIT_SIZE, result.size)
            body.queueData = [_queue_data(queue, unit, message_filter)
                              for unit in iter_units(bytes(result.buffer[:wanted]))]
        response = success(body)
        response.remark = NO_REMARK
        return response

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        queues = self._queues
        maximum = max(0, queues.get_max_offset_in_queue(topic, queue_id))
        timestamp = queues.get_message_store_timestamp(topic, queue_id, maximum - 1) if maximum > 0 else 0
        return TopicOffset(max(0, queues.get_min_offset_in_queue(topic, queue_id)), maximum, timestamp)


def _queue_data(queue: ConsumeQueue, unit: tuple[int, int, int],
                message_filter: ExpressionMessageFilter | None) -> ConsumeQueueData:
    one = ConsumeQueueData(*unit)
    if not is_ext_addr(one.tagsCode):
        return one
    ext = queue.get_ext(one.tagsCode) if queue.consume_queue_ext is not None else None
    if ext is None:
        one.msg = f"Cq extend not exist!addr: {one.tagsCode}"
        return one
    bit_map = ext.filter_bit_map
    one.extendDataJson = remoting_serializable.to_json({
        **({"filterBitMap": base64.b64encode(bit_map).decode()} if bit_map is not None else {}),
        "msgStoreTime": ext.msg_store_time, "size": ext.size, "tagsCode": ext.tags_code})
    if bit_map is not None:
        one.bitMap = str(BitsArray.of(bit_map))
    if message_filter is not None:
        one.eval = message_filter.is_matched_by_consume_queue(ext.tags_code, ext)
    return one
