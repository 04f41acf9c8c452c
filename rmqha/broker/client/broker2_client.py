"""Requests of the broker to its clients."""
import logging
import time
from typing import TYPE_CHECKING

from rmqha.common import util_all
from rmqha.common.java import Version, get_version_desc
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue, MessageQueueForC
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import GetConsumerStatusBody, ResetOffsetBody, ResetOffsetBodyForC
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader
from rmqha.common.protocol.table_bodies import BODY_LIMITS
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.client.client_channels import ClientChannelInfo, ConsumerGroupInfo
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.queue_offsets import QueueOffsets
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.remoting_server import RemotingServer


# The response contains queues, so it has the limit of requests that contain queues.
_STATUS_LIMIT = BODY_LIMITS[request_code.LOCK_BATCH_MQ]

log = logging.getLogger("RocketmqBroker")

ALL_ANSWERS_S = 10.0

_V3_0_7_SNAPSHOT = Version["V3_0_7_SNAPSHOT"]


class Broker2Client:
    """The requests over channels that clients opened.

    Java: org.apache.rocketmq.broker.client.net.Broker2Client (4.9.8)
    """

    def __init__(self, addresses: "BrokerAddresses", server: "RemotingServer", queues: "QueueOffsets",
                 topics: "TopicConfigManager", offsets: "ConsumerOffsetManager", consumers: "ConsumerManager") -> None:
        self._addresses = addresses
        self._server = server
        self._queues = queues
        self._topics, self._offsets, self._consumers = topics, offsets, consumers

    def check_producer_transaction_state(self, group: str | None, channel: "Channel",
                                         request_header: CheckTransactionStateRequestHeader,
                                         message: MessageExt) -> None:
        """Ask a producer for the outcome of a half message, without waiting for it."""
        request = RemotingCommand.create_request_command(request_code.CHECK_TRANSACTION_STATE, request_header)
        request.body = message_decoder.encode(message, False)
        try:
            self._server.invoke_oneway(channel, request, 10)
        except RemotingException as failure:
            log.error("Check transaction failed because invoke producer exception. group=%s, msgId=%s, error=%s", group,
                      message.msg_id, failure)

    def call_client(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Send a request to a client and wait for its response, at most 10 s. Raises RemotingException."""
        return self._server.invoke_sync(channel, request, 10_000)

    def notify_consumer_ids_changed(self, channel: "Channel", consumer_group: str | None) -> None:
        """Ask a consumer to rebalance, without waiting for it."""
        if consumer_group is None:
            log.error("notifyConsumerIdsChanged consumerGroup is null")
            return
        request = RemotingCommand.create_request_command(request_code.NOTIFY_CONSUMER_IDS_CHANGED,
                                                         NotifyConsumerIdsChangedRequestHeader(consumer_group))
        try:
            self._server.invoke_oneway(channel, request, 10)
        except RemotingException as failure:
            log.error("notifyConsumerIdsChanged exception. group=%s, error=%s", consumer_group, failure)

    def reset_offset(self, topic: str, group: str, timestamp: int, is_force: bool,
                     is_c: bool = False) -> RemotingCommand:
        """Set the group's offsets to a time (ms since the epoch, -1: the end), through its consumers.

        Without force, offsets are only lowered. `is_c`: encode the body for C++ clients.
        """
        topic_config = self._topics.select_topic_config(topic)
        if topic_config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            log.error(remark)
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, remark)
        offset_table = self._new_offsets(topic, group, timestamp, is_force, topic_config.writeQueueNums)
        if offset_table is None:
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR,
                                                           f"THe consumer group <{group}> not exist")
        info = self._consumers.get_consumer_group_info(group)
        if info is None or not info.channel_info_table:
            remark = (f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                      f"Timestamp: {timestamp}")
            log.error(remark)
            return RemotingCommand.create_response_command(response_code.CONSUMER_NOT_ONLINE, remark)
        return self._push_offsets(topic, group, timestamp, offset_table, info, is_c)

    def get_consume_status(self, topic: str, group: str, origin_client_id: str | None) -> RemotingCommand:
        """Return the group's offsets as its consumers, or one of them, report them.

        Waits up to 5 s for each consumer and 10 s in total.
        """
        info = self._consumers.get_consumer_group_info(group)
        # Differs: a request for the status of the consumers of an unknown group gets the remark of a group without
        # consumers; the original fails with a NullPointerException, which has the same code
        if info is None or not info.channel_info_table:
            return RemotingCommand.create_response_command(
                response_code.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        status_table: dict[str, dict[MessageQueue, int]] = {}
        deadline = time.monotonic() + ALL_ANSWERS_S
        for channel, client in list(info.channel_info_table.items()):
            if client.version < _V3_0_7_SNAPSHOT:
                log.warning("[get-consumer-status] the client does not support this feature. channel=%s, version=%s",
                            channel, get_version_desc(client.version))
                return _too_old(client)
            if not util_all.is_blank(origin_client_id) and origin_client_id != client.client_id:
                continue
            # Differs: consumers that could not be asked within 10 s are left out; the original waits 5 s for each of
            # any number of consumers
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                log.warning("[get-consumer-status] out of time before %s of group %s was asked", client, group)
                break
            table = self._ask_status(topic, group, channel, client, min(5000.0, left_s * 1000))
            if table is not None:
                status_table[client.client_id] = table
        response = RemotingCommand.create_response_command(response_code.SUCCESS)
        response.body = remoting_serializable.encode(GetConsumerStatusBody(consumerTable=status_table))
        return response

    def _new_offsets(self, topic: str, group: str, timestamp: int, is_force: bool,
                     queue_nums: int) -> dict[MessageQueue, int] | None:
        table: dict[MessageQueue, int] = {}
        for queue_id in range(queue_nums):
            consumer_offset = self._offsets.query_offset(group, topic, queue_id)
            if consumer_offset == -1:
                return None
            if timestamp == -1:
                offset = self._queues.get_max_offset_in_queue(topic, queue_id)
            else:
                offset = self._queues.get_offset_in_queue_by_time(topic, queue_id, timestamp)
            if offset < 0:
                log.warning("reset offset is invalid. topic=%s, queueId=%d, timeStampOffset=%d", topic, queue_id,
                            offset)
                offset = 0
            queue = MessageQueue(topic, self._addresses.broker_name, queue_id)
            table[queue] = offset if is_force or offset < consumer_offset else consumer_offset
        return table

    def _push_offsets(self, topic: str, group: str, timestamp: int, offset_table: dict[MessageQueue, int],
                      info: "ConsumerGroupInfo", is_c: bool) -> RemotingCommand:
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp)
        body = ResetOffsetBody(offsetTable=offset_table)
        wanted = remoting_serializable.encode(_for_c(offset_table) if is_c else body)
        for channel, client in list(info.channel_info_table.items()):
            if client.version < _V3_0_7_SNAPSHOT:
                log.warning("[reset-offset] the client does not support this feature. channel=%s, version=%s",
                            channel, get_version_desc(client.version))
                return _too_old(client)
            request = RemotingCommand.create_request_command(request_code.RESET_CONSUMER_CLIENT_OFFSET, header)
            request.body = wanted
            try:
                self._server.invoke_oneway(channel, request, 5000)
                log.info("[reset-offset] reset offset success. topic=%s, group=%s, clientId=%s", topic, group,
                         client.client_id)
            except RemotingException as failure:
                log.error("[reset-offset] reset offset exception. topic=%s, group=%s ,error=%s", topic, group, failure)
        response = RemotingCommand.create_response_command(response_code.SUCCESS)
        response.body = remoting_serializable.encode(body)
        return response

    def _ask_status(self, topic: str, group: str, channel: "Channel",
                    client: "ClientChannelInfo", timeout_ms: float) -> dict[MessageQueue, int] | None:
        request = RemotingCommand.create_request_command(request_code.GET_CONSUMER_STATUS_FROM_CLIENT,
                                                         GetConsumerStatusRequestHeader(topic=topic, group=group))
        try:
            response = self._server.invoke_sync(channel, request, timeout_ms)
            if response.code != response_code.SUCCESS or not response.body:
                return None
            # Differs: the size of a consumer's response is limited like that of a request
            answer = bytes(response.body)
            too_much = (_STATUS_LIMIT.bytes_excess(request.code, answer)
                        or _STATUS_LIMIT.elements_excess(request.code, answer))
            if too_much:
                raise FastjsonError(too_much)
            body = remoting_serializable.from_json(GetConsumerStatusBody, answer)
        except (RemotingException, FastjsonError) as failure:
            log.error("[get-consumer-status] get consumer status exception. topic=%s, group=%s, error=%s", topic,
                      group, failure)
            return None
        log.info("[get-consumer-status] get consumer status success. topic=%s, group=%s, channelRemoteAddr=%s", topic,
                 group, client.client_id)
        return body.messageQueueTable


def _for_c(offset_table: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(offsetTable=[MessageQueueForC(queue.topic, queue.brokerName, queue.queueId, offset)
                                            for queue, offset in offset_table.items()])


def _too_old(client: "ClientChannelInfo") -> RemotingCommand:
    return RemotingCommand.create_response_command(
        response_code.SYSTEM_ERROR,
        f"the client does not support this feature. version={get_version_desc(client.version)}")
