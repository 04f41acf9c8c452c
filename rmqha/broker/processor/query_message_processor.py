"""Queries for messages by key and by offset; runs on QueryMessageThread_<n>."""
from collections.abc import Callable
from threading import Semaphore
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
    from rmqha.broker.record_access import RecordAccess
    from rmqha.remoting.channel import Channel
    from rmqha.store.message_store_config import MessageStoreConfig
    from rmqha.store.results import QueryMessageResult, SelectMappedBufferResult


class QueryMessageProcessor:
    """Processor of QUERY_MESSAGE and VIEW_MESSAGE_BY_ID. Records are sent from the map without a copy.

    Java: org.apache.rocketmq.broker.processor.QueryMessageProcessor (4.9.8)
    """

    def __init__(self, message_store_config: "MessageStoreConfig",
                 query: "Callable[[str, str, int, int, int], QueryMessageResult]",
                 select: "Callable[[int], SelectMappedBufferResult | None]",
                 record_access: "RecordAccess", turns: Semaphore) -> None:
        self._store_config = message_store_config
        # Find messages by topic, key and times, and by offset.
        self._query, self._select = query, select
        self._record_access = record_access
        # Limits the concurrent requests that compute; see AdminTurns.
        self._turns = turns

    def process_request(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Serve one request."""
        if request.code == request_code.QUERY_MESSAGE:
            return self._query_message(channel, request)
        return self._view_message_by_id(channel, request)

    def reject_request(self) -> bool:
        """Return False: these requests are never rejected."""
        return False

    def _query_message(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(QueryMessageRequestHeader)
        max_num = header.maxNum
        if (request.ext_fields or {}).get(mix_all.UNIQUE_MSG_QUERY_FLAG) == "true":
            max_num = self._store_config.defaultQueryMaxNum
        with self._turns:
            result = self._query(
                string_of(header.topic), string_of(header.key), max_num, header.beginTimestamp, header.endTimestamp)
        self._record_access.keep_topic(channel, request, result, string_of(header.topic))
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
        result = self._select(header.offset)
        if result is None:
            return RemotingCommand.create_response_command(
                response_code.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        try:
            self._record_access.check_reading_bytes(channel, request, result.buffer, header.offset)
        except Exception:
            result.release()
            raise
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        response.set_file_region([result.buffer], result.release)
        return response
