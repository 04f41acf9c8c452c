"""Requests of consumers about their group's members and their offsets."""
import logging
from typing import TYPE_CHECKING

from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.consumer_subscription_manager import ConsumerSubscriptionManager
    from rmqha.broker.queue_offsets import QueueOffsets
    from rmqha.broker.topic_config_manager import TopicDeletion
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")


class ConsumerManageProcessor:
    """Processor of GET_CONSUMER_LIST_BY_GROUP, UPDATE_CONSUMER_OFFSET and QUERY_CONSUMER_OFFSET.

    Java: org.apache.rocketmq.broker.processor.ConsumerManageProcessor (4.9.8)
    """

    def __init__(self, queues: "QueueOffsets", consumers: "ConsumerManager", kept: "ConsumerSubscriptionManager",
                 offsets: "ConsumerOffsetManager", topic_deletion: "TopicDeletion") -> None:
        self._queues = queues
        self._consumers, self._kept = consumers, kept
        self._offsets = offsets
        self._topic_deletion = topic_deletion

    def process_request(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Serve one request."""
        if request.code == request_code.GET_CONSUMER_LIST_BY_GROUP:
            return self._get_consumer_list_by_group(channel, request)
        if request.code == request_code.UPDATE_CONSUMER_OFFSET:
            return self._update_consumer_offset(channel, request)
        return self._query_consumer_offset(request)

    def reject_request(self) -> bool:
        """Return False: these requests are never rejected."""
        return False

    def _get_consumer_list_by_group(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(GetConsumerListByGroupRequestHeader)
        info = self._consumers.get_consumer_group_info(header.consumerGroup)
        client_ids = self._kept.members(header.consumerGroup, info.get_all_client_id() if info is not None else [])
        if client_ids:
            response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
            response.body = remoting_serializable.encode(GetConsumerListByGroupResponseBody(client_ids))
            return response
        log.warning("getConsumerGroupInfo failed, %s %s", header.consumerGroup, parse_channel_remote_addr(channel))
        return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR,
                                                       f"no consumer for this group, {header.consumerGroup}")

    def _update_consumer_offset(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(UpdateConsumerOffsetRequestHeader)
        if self._topic_deletion.is_stale(header.topic, header.queueId, header.commitOffset):
            # Differs: an offset from before the deletion of its topic is not valid for a topic created again
            log.warning("ignoring offset %s of %s-%s: it belongs to a deleted topic", header.commitOffset, header.topic,
                        header.queueId)
            return RemotingCommand.create_response_command(response_code.SUCCESS, None)
        offsets = self._offsets
        refusal = offsets.refusal(header.consumerGroup, header.topic, header.queueId)
        if refusal is not None:
            return RemotingCommand.create_response_command(*refusal)
        offsets.commit_offset(
            parse_channel_remote_addr(channel), header.consumerGroup, header.topic, header.queueId,
            header.commitOffset)
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def _query_consumer_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(QueryConsumerOffsetRequestHeader)
        offset = self._offsets.query_offset(header.consumerGroup, header.topic, header.queueId)
        if offset < 0:
            if (self._queues.get_min_offset_in_queue(header.topic, header.queueId) > 0
                    or self._queues.check_in_disk_by_consume_offset(header.topic, header.queueId, 0)):
                return RemotingCommand.create_response_command(
                    response_code.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
            offset = 0
        return RemotingCommand.create_response_command(response_code.SUCCESS, None,
                                                       QueryConsumerOffsetResponseHeader(offset))
