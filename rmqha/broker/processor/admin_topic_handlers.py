"""Admin requests about topics and queues."""
import base64
import logging
import threading
import zlib
from typing import TYPE_CHECKING

from rmqha.broker.expression_message_filter import ExpressionMessageFilter
from rmqha.broker.processor.admin_handlers import NO_REMARK, AdminHandlers, Handler, success, system_error, table_answer
from rmqha.broker.topic_config_manager import MAX_QUEUE_NUMS, MAX_TOPICS
from rmqha.common import mix_all
from rmqha.common.java import string_of
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicStatsInfoRequestHeader,
)
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
from rmqha.common.protocol.table_bodies import TopicList, TopicOffset, TopicStatsTable
from rmqha.common.topics import TopicConfig
from rmqha.filter.bloom_filter import BitsArray
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, is_ext_addr, iter_units

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")
MAX_UNITS = 10_000  # of one answer


class AdminTopicHandlers(AdminHandlers):
    """Topics: create, delete, list, statistics; queues: offsets, times, units; cleaning."""

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__(broker_controller)
        self._lock = threading.Lock()  # one creation or deletion at a time

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {
            request_code.UPDATE_AND_CREATE_TOPIC: self.update_and_create_topic,
            request_code.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            request_code.GET_ALL_TOPIC_CONFIG: self.get_all_topic_config,
            request_code.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
            request_code.GET_MAX_OFFSET: self.get_max_offset,
            request_code.GET_MIN_OFFSET: self.get_min_offset,
            request_code.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_storetime,
            request_code.GET_TOPIC_STATS_INFO: self.get_topic_stats_info,
            request_code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topic_list_from_broker,
            request_code.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_consume_queue,
            request_code.CLEAN_UNUSED_TOPIC: self.clean_unused_topic,
            request_code.DELETE_EXPIRED_COMMITLOG: self.delete_expired_commit_log,
            request_code.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    def update_and_create_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Create or change a topic, and register it at once."""
        refused = self.refuse_on_slave()
        if refused is not None:
            return refused
        header = request.decode_command_custom_header(CreateTopicRequestHeader)
        log.info("updateAndCreateTopic called by %s", parse_channel_remote_addr(channel))
        response = success()
        if not self._may_change(header.topic, response):
            return response
        if not (0 <= header.readQueueNums <= MAX_QUEUE_NUMS and 0 <= header.writeQueueNums <= MAX_QUEUE_NUMS):
            # Differs: refuses negative numbers of queues, with which each send fails, and more than 65536, with which
            # a question for the topic's offsets takes all memory; the original stores both
            return system_error(f"the numbers of queues are illegal, read: {header.readQueueNums} write: "
                                f"{header.writeQueueNums}")
        config = TopicConfig(header.topic, header.readQueueNums, header.writeQueueNums, header.perm,
                             header.topic_filter_type_enum, header.topicSysFlag or 0)
        topics = self.broker_controller.topic_config_manager
        with self._lock:
            # Differs: a broker has at most 100,000 topics; the original makes any number of them
            if len(topics.topic_config_table) >= MAX_TOPICS and header.topic not in topics.topic_config_table:
                return system_error(f"there are {MAX_TOPICS} topics on this broker")
            topics.update_topic_config(config)
            self.broker_controller.register_increment_broker_data(config)
        response.remark = NO_REMARK
        return response

    def delete_topic(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Forget a topic and delete its queues."""
        refused = self.refuse_on_slave()
        if refused is not None:
            return refused
        header = request.decode_command_custom_header(DeleteTopicRequestHeader)
        log.info("deleteTopic called by %s", parse_channel_remote_addr(channel))
        response = success()
        if not self._may_change(header.topic, response):
            return response
        deletion = self.broker_controller.topic_deletion
        with self._lock:
            if mix_all.is_lmq(header.topic):
                deletion.delete_light_queue(header.topic)
            else:
                deletion.delete(header.topic)
        return response

    def get_all_topic_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """All topics, and for slaves which were deleted."""
        manager = self.broker_controller.topic_config_manager
        deleted = dict(self.broker_controller.message_store.deleted_topics.marks)

        def encode(names: list[str] | None) -> str:
            wrapper = manager.build_topic_config_serialize_wrapper(names)
            wrapper.deletedTopics = deleted or None
            return remoting_serializable.to_json(wrapper)

        return table_answer(request, manager.changes, encode, GetAllTopicConfigResponseHeader(),
                            str(zlib.crc32(repr(sorted(deleted.items())).encode())))

    def search_offset_by_timestamp(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """The offset of a queue at a time."""
        header = request.decode_command_custom_header(SearchOffsetRequestHeader)
        store = self.broker_controller.message_store
        offset = store.get_offset_in_queue_by_time(header.topic, header.queueId, header.timestamp)
        return success(header=SearchOffsetResponseHeader(offset))

    def get_max_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """The next offset of a queue."""
        header = request.decode_command_custom_header(GetMaxOffsetRequestHeader)
        offset = self.broker_controller.message_store.get_max_offset_in_queue(header.topic, header.queueId)
        return success(header=GetMaxOffsetResponseHeader(offset))

    def get_min_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """The first offset of a queue."""
        header = request.decode_command_custom_header(GetMinOffsetRequestHeader)
        offset = self.broker_controller.message_store.get_min_offset_in_queue(header.topic, header.queueId)
        return success(header=GetMinOffsetResponseHeader(offset))

    def get_earliest_msg_storetime(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """When the first message of a queue was stored."""
        header = request.decode_command_custom_header(GetEarliestMsgStoretimeRequestHeader)
        timestamp = self.broker_controller.message_store.get_earliest_message_time(header.topic, header.queueId)
        return success(header=GetEarliestMsgStoretimeResponseHeader(timestamp))

    def get_topic_stats_info(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """First and next offset and last store time of each queue of a topic."""
        topic = request.decode_command_custom_header(GetTopicStatsInfoRequestHeader).topic
        controller = self.broker_controller
        config = controller.topic_config_manager.select_topic_config(topic)
        if config is None:
            return RemotingCommand.create_response_command(response_code.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table = TopicStatsTable()
        for queue_id in range(config.writeQueueNums):
            queue = MessageQueue(topic, controller.broker_config.brokerName, queue_id)
            table.offsetTable[queue] = self._topic_offset(topic, queue_id)
        return success(table)

    def get_system_topic_list_from_broker(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """The topics that people may neither create nor delete."""
        return success(TopicList(self.broker_controller.topic_config_manager.topic_validator.system_topic_set))

    def clean_expired_consume_queue(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Delete queues whose messages are all gone, of topics that the broker does not know."""
        log.warning("invoke cleanExpiredConsumeQueue start.")
        topics = self.broker_controller.topic_config_manager
        self.broker_controller.message_store.clean_expired_consumer_queue(
            lambda topic: mix_all.is_lmq(topic) or topics.select_topic_config(topic) is not None)
        log.warning("invoke cleanExpiredConsumeQueue end.")
        return success()

    def clean_unused_topic(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Delete the queues of topics that the broker does not know."""
        log.warning("invoke cleanUnusedTopic start.")
        with self._lock:
            self.broker_controller.topic_deletion.delete_unused()
        log.warning("invoke cleanUnusedTopic end.")
        return success()

    def delete_expired_commit_log(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Delete expired commit log files now."""
        log.warning("invoke deleteExpiredCommitLog start.")
        self.broker_controller.message_store.execute_delete_files_manually()
        log.warning("invoke deleteExpiredCommitLog end.")
        return success()

    def query_consume_queue(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Units of a consume queue."""
        header = request.decode_command_custom_header(QueryConsumeQueueRequestHeader)
        controller, topic = self.broker_controller, header.topic
        queue = None if topic is None else controller.message_store.get_consume_queue(topic, header.queueId)
        if topic is None or queue is None:
            return system_error(f"{header.queueId}@{string_of(topic)} is not exist!")
        body = QueryConsumeQueueResponseBody(maxQueueIndex=queue.get_max_offset_in_queue(),
                                             minQueueIndex=queue.get_min_offset_in_queue())
        message_filter = None
        if header.consumerGroup is not None:
            subscription = controller.consumer_manager.find_subscription_data(header.consumerGroup, topic)
            body.subscriptionData = subscription
            body.filterData = f"{header.consumerGroup}@{header.topic} is not online!"
            if subscription is not None:
                filters = controller.consumer_filter_manager
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
            # Differs: at most 10,000 units are told at once; the original tells those of a whole file
            wanted = min(min(max(header.count, 0), MAX_UNITS) * CQ_STORE_UNIT_SIZE, result.size)
            body.queueData = [_queue_data(queue, unit, message_filter)
                              for unit in iter_units(bytes(result.buffer[:wanted]))]
        response = success(body)
        response.remark = NO_REMARK
        return response

    def _may_change(self, topic: str, response: RemotingCommand) -> bool:
        validator = self.broker_controller.topic_config_manager.topic_validator
        return validator.validate_topic(topic, response) and not validator.is_system_topic(topic, response)

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        store = self.broker_controller.message_store
        maximum = max(0, store.get_max_offset_in_queue(topic, queue_id))
        timestamp = store.get_message_store_timestamp(topic, queue_id, maximum - 1) if maximum > 0 else 0
        return TopicOffset(max(0, store.get_min_offset_in_queue(topic, queue_id)), maximum, timestamp)


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
