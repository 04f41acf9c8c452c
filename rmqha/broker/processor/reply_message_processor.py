"""Replies to request messages: they are pushed to the client that sent the request, and stored in the reply topic.

    IO thread: check -> push to the requesting client --> its response (or 10 s) -> store -> response
    a reply that may create a topic: SendMessageThread_<n>
"""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.processor.send_admission import AbstractSendMessageProcessor, random_queue_id
from rmqha.broker.processor.send_codec import first_fields
from rmqha.common import sys_flags, util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Completable
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message import message_const, message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import ReplyMessageRequestHeader, SendMessageRequestHeader
from rmqha.remoting.addresses import exception_simple_desc, parse_channel_remote_addr
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.broker_fast_failure import HandOver
    from rmqha.broker.client.producer_manager import ProducerManager
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer, ResponseFuture
    from rmqha.remoting.remoting_server import RemotingServer
    from rmqha.store.broker_stats_manager import BrokerStatsManager

log = logging.getLogger("RocketmqBroker")

PUSH_TIMEOUT_MS = 10_000
_COMPRESSION = sys_flags.COMPRESSED_FLAG | sys_flags.COMPRESSION_TYPE_COMPARATOR
_STORED = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
           PutMessageStatus.SLAVE_NOT_AVAILABLE)


@dataclass
class PushReplyResult:
    """The result of a push: success, or a remark with the reason.

    Java: org.apache.rocketmq.broker.processor.ReplyMessageProcessor$PushReplyResult (4.9.8)
    """

    push_ok: bool
    remark: str = ""


class ReplyMessageProcessor(AbstractSendMessageProcessor):
    """Processor of SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2.

    Java: org.apache.rocketmq.broker.processor.ReplyMessageProcessor (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, topics: "TopicConfigManager", hand_over: "HandOver",
                 put: Callable[[MessageExtBrokerInner], Completable[PutMessageResult]],
                 stats: "BrokerStatsManager", addresses: "BrokerAddresses", producers: "ProducerManager",
                 server: "RemotingServer") -> None:
        super().__init__(broker_config, topics, hand_over)
        self._put, self._stats = put, stats
        self._addresses = addresses
        self._producers = producers
        self._server = server

    # Differs: no thread waits for the client that gets a reply to its request; processReplyMessageThreadPoolNums is not
    # used.
    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve one request; the response follows when the client has received the reply and the reply is stored."""
        header = self.parse_request_header(request)
        if header.topic in self._topics:
            return self._reply(channel, request, header)
        return self.hand_over(lambda: self._reply(channel, request, header))

    def parse_request_header(self, request: RemotingCommand) -> SendMessageRequestHeader:
        """Return the header in its long form, for both forms of requests."""
        if request.code == request_code.SEND_REPLY_MESSAGE:
            return request.decode_command_custom_header(SendMessageRequestHeader)
        return super().parse_request_header(request)

    def _reply(self, channel: "Channel", request: RemotingCommand, header: SendMessageRequestHeader) -> "Answer":
        config = self._config
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        response.ext_fields = first_fields(config.regionId, config.traceOn)
        topic_config = self.msg_check(channel, header, response)
        if topic_config is None:
            return response
        queue_id = header.queueId if header.queueId >= 0 else random_queue_id(topic_config.writeQueueNums)
        message = self._message(channel, request, header, queue_id)
        answer: Completable[RemotingCommand | None] = Completable()

        def stored(result: PutMessageResult | None) -> None:
            self._handle_put_message_result(result, message, response, queue_id)
            answer.complete(response)

        def pushed(result: PushReplyResult) -> None:
            try:
                self._handle_push_reply_result(result, response, queue_id)
                if config.storeReplyMessageEnable:
                    self._put(message).then(stored)
                else:
                    answer.complete(response)
            except Exception as failure:
                log.exception("storing a reply failed")
                answer.complete(RemotingCommand.create_response_command(response_code.SYSTEM_ERROR,
                                                                        exception_simple_desc(failure)))

        self._push_reply_message(channel, header, message).then(pushed)
        return answer

    def _message(self, channel: "Channel", request: RemotingCommand, header: SendMessageRequestHeader,
                 queue_id: int) -> MessageExtBrokerInner:
        message = MessageExtBrokerInner(header.topic, request.body or b"")
        message.queue_id = queue_id
        message.flag = header.flag
        # Differs: the flags of a reply's compressed body are stored with it; the original stores a message that cannot
        # be read
        message.sys_flag = header.sysFlag & _COMPRESSION
        message.properties = message_decoder.string2message_properties(header.properties)
        message.properties_string = header.properties
        message.born_timestamp = header.bornTimestamp
        message.born_host = channel.remote_address
        message.store_host = self._addresses.store_host
        message.reconsume_times = header.reconsumeTimes or 0
        return message

    def _push_reply_message(self, channel: "Channel", header: SendMessageRequestHeader,
                            message: MessageExtBrokerInner) -> Completable[PushReplyResult]:
        sender_id = message.properties.get(message_const.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if sender_id is None:
            log.warning("%s is null, can not reply message", message_const.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
            return _refused(f"reply message properties[{message_const.PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null")
        receiver = self._producers.find_channel(sender_id)
        if receiver is None:
            remark = f"push reply message fail, channel of <{sender_id}> not found."
            log.warning(remark)
            return _refused(remark)
        message.put_property(message_const.PROPERTY_PUSH_REPLY_TIME, str(util_all.current_time_millis()))
        request = RemotingCommand.create_request_command(request_code.PUSH_REPLY_MESSAGE_TO_CLIENT,
                                                         self._push_header(channel, header, message))
        request.body = message.body
        done: Completable[PushReplyResult] = Completable()

        def answered(future: "ResponseFuture") -> None:
            pushed = future.response_command
            if pushed is not None and pushed.code == response_code.SUCCESS:
                done.complete(PushReplyResult(True))
                return
            log.warning("push reply message to <%s> return fail, response remark: %s", sender_id,
                        pushed.remark if pushed is not None else future.cause)
            done.complete(PushReplyResult(False, f"push reply message to {sender_id}fail."))

        try:
            self._server.invoke_async(receiver, request, PUSH_TIMEOUT_MS, answered)
        except RemotingException as failure:
            log.warning("push reply message to <%s> fail. %s", sender_id, failure)
            done.complete(PushReplyResult(False, f"push reply message to {sender_id}fail."))
        return done

    def _push_header(self, channel: "Channel", header: SendMessageRequestHeader,
                     message: MessageExtBrokerInner) -> ReplyMessageRequestHeader:
        host, port = self._addresses.store_host
        return ReplyMessageRequestHeader(
            producerGroup=header.producerGroup, topic=header.topic, defaultTopic=header.defaultTopic,
            defaultTopicQueueNums=header.defaultTopicQueueNums, queueId=header.queueId, sysFlag=header.sysFlag,
            bornTimestamp=header.bornTimestamp, flag=header.flag,
            properties=message_decoder.message_properties2string(message.properties),
            reconsumeTimes=header.reconsumeTimes, unitMode=header.unitMode,
            bornHost=parse_channel_remote_addr(channel), storeHost=f"{host}:{port}",
            storeTimestamp=util_all.current_time_millis())

    @staticmethod
    def _handle_push_reply_result(result: PushReplyResult, response: RemotingCommand, queue_id: int) -> None:
        if not result.push_ok:
            response.code = response_code.SYSTEM_ERROR
            response.remark = result.remark
            return
        response.code = response_code.SUCCESS
        response.remark = None
        _note(response, "0", queue_id, 0)

    def _handle_put_message_result(self, result: PutMessageResult | None, message: MessageExtBrokerInner,
                                   response: RemotingCommand, queue_id: int) -> None:
        """Add the reply's position to the response if it is stored; the code only says whether the client has it."""
        append = result.append_message_result if result is not None else None
        if result is None or append is None or result.put_message_status not in _STORED:
            log.warning("process reply message, store putMessage returned %s", result)
            return
        stats = self._stats
        stats.inc_topic_put_nums(message.topic, append.msg_num, 1)
        stats.inc_topic_put_size(message.topic, append.wrote_bytes)
        stats.inc_broker_put_nums(append.msg_num)
        _note(response, append.msg_id or "", queue_id, append.logics_offset)


def _note(response: RemotingCommand, msg_id: str, queue_id: int, queue_offset: int) -> None:
    for name, text in (("msgId", msg_id), ("queueId", str(queue_id)), ("queueOffset", str(queue_offset))):
        response.add_ext_field(name, text)


def _refused(remark: str) -> Completable[PushReplyResult]:
    return Completable.completed(PushReplyResult(False, remark))
