"""Handlers of admin requests about clients: locks of orderly consumers, and requests that are forwarded to consumers.
"""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.acl.common import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, decode_body, success, system_error
from rmqha.common import java
from rmqha.common.java import string_of
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmqha.remoting.addresses import exception_simple_desc, parse_channel_remote_addr
from rmqha.remoting.exception import RemotingException, RemotingTimeoutException
from rmqha.remoting.protocol.header_codec import LanguageCode
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.client.broker2_client import Broker2Client
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.client.rebalance_lock_manager import RebalanceLockManager
    from rmqha.broker.record_access import RecordAccess
    from rmqha.remoting.channel import Channel
    from rmqha.store.results import SelectMappedBufferResult

log = logging.getLogger("RocketmqBroker")

_V3_1_8_SNAPSHOT = java.Version["V3_1_8_SNAPSHOT"]
_CREDENTIALS = (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)


class AdminClientHandlers(AdminHandlers):
    """Handlers for locks and for requests that are forwarded to clients."""

    def __init__(self, addresses: "BrokerAddresses", select: "Callable[[int], SelectMappedBufferResult | None]",
                 record_access: "RecordAccess", consumers: "ConsumerManager", locks: "RebalanceLockManager",
                 broker2_client: "Broker2Client") -> None:
        self._addresses = addresses
        # Returns the record at an offset of the log.
        self._select = select
        self._record_access = record_access
        self._consumers = consumers
        self._locks = locks
        self._broker2_client = broker2_client

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.LOCK_BATCH_MQ: self.lock_batch_mq,
            request_code.UNLOCK_BATCH_MQ: self.unlock_batch_mq,
            request_code.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
            request_code.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            request_code.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
        }

    def lock_batch_mq(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Lock queues for a client."""
        body = decode_body(request, LockBatchRequestBody)
        group = body.consumerGroup
        if group is None:
            return system_error("the request has no consumerGroup") if body.mqSet else success(LockBatchResponseBody())
        host = parse_channel_remote_addr(channel).rpartition(":")[0]
        locked = self._locks.try_lock_batch(group, body.mqSet, body.clientId, host)
        return success(LockBatchResponseBody(locked))

    def unlock_batch_mq(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Unlock queues of a client."""
        body = decode_body(request, UnlockBatchRequestBody)
        if body.consumerGroup is None:
            return system_error("the request has no consumerGroup")
        self._locks.unlock_batch(body.consumerGroup, body.mqSet, body.clientId)
        return success()

    def reset_offset(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Set a group's offsets through its consumers."""
        header = request.decode_command_custom_header(ResetOffsetRequestHeader)
        log.info("[reset-offset] reset offset started by %s. topic=%s, group=%s, timestamp=%s, isForce=%s",
                 parse_channel_remote_addr(channel), header.topic, header.group, header.timestamp, header.isForce)
        return self._broker2_client.reset_offset(
            header.topic, string_of(header.group), header.timestamp, header.isForce,
            request.language is LanguageCode.CPP)

    def get_consumer_status(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return a group's offsets as its consumers report them."""
        header = request.decode_command_custom_header(GetConsumerStatusRequestHeader)
        log.info("[get-consumer-status] get consumer status by %s. topic=%s, group=%s",
                 parse_channel_remote_addr(channel), header.topic, header.group)
        return self._broker2_client.get_consume_status(header.topic, header.group, header.clientAddr)

    def get_consumer_running_info(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the running info of a consumer, requested from the consumer."""
        header = request.decode_command_custom_header(GetConsumerRunningInfoRequestHeader)
        return self._call_consumer(request, request.ext_fields, request.body, header.consumerGroup, header.clientId)

    def consume_message_directly(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Have a consumer consume one message."""
        header = request.decode_command_custom_header(ConsumeMessageDirectlyResultRequestHeader)
        # Differs: a malformed or unknown message id is an error response, not a NullPointerException
        if header.msgId is None:
            return system_error("the message id is missing")
        try:
            offset = message_decoder.decode_message_id(header.msgId).offset
        except ValueError as failure:
            return system_error(str(failure))
        result = self._select(offset)
        if result is None:
            return system_error(f"can not find message by the offset, {offset}")
        with result:
            self._record_access.check_reading_bytes(channel, request, result.buffer, offset)
            body = bytes(result.buffer)
        fields = {**(request.ext_fields or {}), "brokerName": self._addresses.broker_name}
        return self._call_consumer(request, fields, body, header.consumerGroup, header.clientId)

    def _call_consumer(self, request: RemotingCommand, ext_fields: dict[str, str] | None,
                       body: bytes | memoryview | None, group: str, client_id: str | None) -> RemotingCommand:
        client = self._consumers.find_channel(group, client_id) if client_id else None
        if client is None:
            return system_error(f"The Consumer <{group}> <{string_of(client_id)}> not online")
        if client.version < _V3_1_8_SNAPSHOT:
            return system_error(f"The Consumer <{client_id}> Version <{java.get_version_desc(client.version)}> "
                                "too low to finish, please upgrade it to V3_1_8_SNAPSHOT")
        call = RemotingCommand.create_request_command(request.code)
        # Differs: when the broker forwards a request to a consumer, it removes the requester's signature. The original
        # leaves it, and the consumer could send other requests in the requester's name: any whose fields concatenate to
        # the same signed text
        call.ext_fields = {name: text for name, text in (ext_fields or {}).items() if name not in _CREDENTIALS}
        call.body = body
        try:
            return self._broker2_client.call_client(client.channel, call)
        except RemotingTimeoutException as failure:
            return RemotingCommand.create_response_command(
                response_code.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {exception_simple_desc(failure)}")
        except RemotingException as failure:
            return system_error(f"invoke consumer <{group}> <{client_id}> Exception: "
                                f"{exception_simple_desc(failure)}")
