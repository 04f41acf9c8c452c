"""Messages by key and by offset; runs on QueryMessageThread_<n>."""
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.java import string_of
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel


class QueryMessageProcessor:
    """QUERY_MESSAGE, VIEW_MESSAGE_BY_ID. The records are sent from the map without a copy.

    Java: org.apache.rocketmq.broker.processor.QueryMessageProcessor (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        self.broker_controller = broker_controller

    def process_request(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Serve one request."""
        if request.code == request_code.QUERY_MESSAGE:
            return self._query_message(channel, request)
        return self._view_message_by_id(channel, request)

    def reject_request(self) -> bool:
        """Never."""
        return False

    def _query_message(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(QueryMessageRequestHeader)
        max_num = header.maxNum
        if (request.ext_fields or {}).get(mix_all.UNIQUE_MSG_QUERY_FLAG) == "true":
            max_num = self.broker_controller.message_store_config.defaultQueryMaxNum
        with self.broker_controller.admin_turns.computing:
            result = self.broker_controller.message_store.query_message(
                string_of(header.topic), string_of(header.key), max_num, header.beginTimestamp, header.endTimestamp)
        self.broker_controller.record_access.keep_topic(channel, request, result, string_of(header.topic))
        response = RemotingCommand.create_response_command(
            response_code.SUCCESS, None,
            QueryMessageResponseHeader(result.index_last_update_timestamp, result.index_last_update_phyoffset))
        if result.buffer_total_size > 0:
            response.set_file_region(result.message_buffer_list, result.release)
            return response
        result.release()
        response.code = response_code.QUERY_NOT_FOUND
        response.remark = "can not find message, maybe time range not correct"
        return response

    def _view_message_by_id(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(ViewMessageRequestHeader)
        result = self.broker_controller.message_store.select_one_message_by_offset(header.offset)
        if result is None:
            return RemotingCommand.create_response_command(
                response_code.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        try:
            self.broker_controller.record_access.check_reading_bytes(channel, request, result.buffer, header.offset)
        except Exception:
            result.release()
            raise
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        response.set_file_region([result.buffer], result.release)
        return response
