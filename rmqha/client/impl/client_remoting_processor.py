"""The processing of requests from brokers, and the remoting client that receives them.

    remoting client's IO thread --request--> ClientRemotingProcessor --> pool of 4 threads, because listeners may block

A process does not wait for its client's connections when it exits, and a forked process does not use them.
"""
import logging
from typing import TYPE_CHECKING, Protocol

from rmqha.client.client_config import ClientConfig
from rmqha.client.life import HomeProcess
from rmqha.client.producer.request_response_future import RequestFutureHolder
from rmqha.common import compression, sys_flags, util_all
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader, ReplyMessageRequestHeader
from rmqha.common.threads import NamedThreadPool, thread_stacks
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_abstract import InvokeCallback
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.remoting.tls_system_config import TlsSystemConfig

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel


log = logging.getLogger("RocketmqClient")

POOL_THREADS = 4
POOL_QUEUE = 10_000


class CheckedProducer(Protocol):
    """A producer whose transactions a broker may check."""

    def check_transaction_state(self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader) -> None:
        """Handle a broker's check of a half message."""


class AskedClient(Protocol):
    """The part of a client instance that answers the requests of brokers."""

    client_config: ClientConfig
    request_future_holder: RequestFutureHolder

    def select_producer(self, group: str) -> CheckedProducer | None:
        """Return the producer of a group."""

    def rebalance_immediately(self) -> None:
        """Wake the rebalance thread."""

    def reset_offset(self, topic: str, group: str, offset_table: dict[MessageQueue, int]) -> None:
        """Move a consumer to other offsets."""

    def get_consumer_status(self, topic: str, group: str) -> dict[MessageQueue, int]:
        """Return a consumer's offsets in memory."""

    def consume_message_directly(
        self, msg: MessageExt, consumer_group: str, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult | None:
        """Pass one message to the group's listener now; return None if this client does not have the group."""

    def consumer_running_info(self, consumer_group: str) -> ConsumerRunningInfo | None:
        """Return a consumer's state, for the admin commands; None if this client does not have the group."""


class ClientRemotingProcessor:
    """Processes requests from brokers: rebalance, reset offsets, report a consumer's state, consume a message, etc.

    Java: org.apache.rocketmq.client.impl.ClientRemotingProcessor (4.9.8)
    """

    def __init__(self, client: AskedClient) -> None:
        self._client = client
        self._executor = NamedThreadPool("ClientRemotingProcessor_", POOL_THREADS, POOL_QUEUE)
        self._handlers = {
            request_code.NOTIFY_CONSUMER_IDS_CHANGED: self.notify_consumer_ids_changed,
            request_code.RESET_CONSUMER_CLIENT_OFFSET: self.reset_offset,
            request_code.GET_CONSUMER_STATUS_FROM_CLIENT: self.get_consume_status,
            request_code.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            request_code.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
            request_code.CHECK_TRANSACTION_STATE: self.check_transaction_state,
            request_code.PUSH_REPLY_MESSAGE_TO_CLIENT: self.receive_reply_message,
        }

    def register(self, remoting_client: "RemotingClient") -> None:
        """Process these requests on a remoting client's connections."""
        for code in self._handlers:
            # Waking the rebalance thread takes no time, so it needs no pool; the other requests may block
            executor = None if code == request_code.NOTIFY_CONSUMER_IDS_CHANGED else self._executor
            remoting_client.register_processor(code, self, executor)

    def shutdown(self) -> None:
        """Stop the pool."""
        self._executor.shutdown()

    def process_request(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand | None:
        """Process one request; return None if it has no answer."""
        return self._handlers[request.code](channel, request)

    def reject_request(self) -> bool:
        """Return False: no request is rejected."""
        return False

    def check_transaction_state(self, channel: "Channel", request: RemotingCommand) -> None:
        """Pass a broker's check of a half message to the producer."""
        header = request.decode_command_custom_header(CheckTransactionStateRequestHeader)
        msg = message_decoder.decode(bytes(request.body or b""))
        msg.topic = self._client.client_config.without_namespace(msg.topic)
        msg.transaction_id = msg.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        group = msg.get_property(message_const.PROPERTY_PRODUCER_GROUP)
        producer = self._client.select_producer(group) if group is not None else None
        if producer is None:
            log.warning("checkTransactionState, pick producer by group[%s] failed", group)
            return
        producer.check_transaction_state(parse_channel_remote_addr(channel), msg, header)

    def receive_reply_message(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Pass the reply to a request of this client to the waiting request."""
        receive_time = util_all.current_time_millis()
        header = request.decode_command_custom_header(ReplyMessageRequestHeader)
        try:
            msg = _reply_message(header, bytes(request.body or b""))
            msg.put_property(message_const.PROPERTY_REPLY_MESSAGE_ARRIVE_TIME, str(receive_time))
            self._client.request_future_holder.process_reply_message(msg)
        except Exception:  # callbacks are the user's code
            log.exception("unknown err when receiveReplyMsg")
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, "process reply message fail")
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def notify_consumer_ids_changed(self, channel: "Channel", request: RemotingCommand) -> None:
        """Rebalance, because the members of a group changed."""
        header = request.decode_command_custom_header(NotifyConsumerIdsChangedRequestHeader)
        log.info("receive broker's notification[%s], the consumer group: %s changed, rebalance immediately",
                 channel.remote_address, header.consumerGroup)
        self._client.rebalance_immediately()

    def reset_offset(self, channel: "Channel", request: RemotingCommand) -> None:
        """Move a consumer to other offsets."""
        header = request.decode_command_custom_header(ResetOffsetRequestHeader)
        log.info("invoke reset offset operation from broker. brokerAddr=%s, topic=%s, group=%s, timestamp=%s",
                 channel.remote_address, header.topic, header.group, header.timestamp)
        offset_table = {}
        if request.body is not None:
            offset_table = remoting_serializable.from_json(ResetOffsetBody, bytes(request.body)).offsetTable or {}
        self._client.reset_offset(header.topic, header.group, offset_table)

    def get_consume_status(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the offsets in this client's memory."""
        header = request.decode_command_custom_header(GetConsumerStatusRequestHeader)
        table = self._client.get_consumer_status(header.topic, header.group)
        return _answer(remoting_serializable.encode(GetConsumerStatusBody(messageQueueTable=table)))

    def get_consumer_running_info(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return a consumer's current state, with the stacks of all threads on request."""
        header = request.decode_command_custom_header(GetConsumerRunningInfoRequestHeader)
        info = self._client.consumer_running_info(header.consumerGroup)
        if info is None:
            return _no_group(header.consumerGroup)
        if header.jstackEnable:
            info.jstack = thread_stacks()
        return _answer(remoting_serializable.encode(info))

    def consume_message_directly(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Pass one message to the listener now."""
        header = request.decode_command_custom_header(ConsumeMessageDirectlyResultRequestHeader)
        msg = message_decoder.client_decode(request.body or b"")
        result = self._client.consume_message_directly(msg, header.consumerGroup, header.brokerName)
        if result is None:
            return _no_group(header.consumerGroup)
        return _answer(remoting_serializable.encode(result))


def _reply_message(header: ReplyMessageRequestHeader, body: bytes) -> MessageExt:
    msg = MessageExt(header.topic, body)
    if header.sysFlag & sys_flags.COMPRESSED_FLAG:
        compressor = compression.get_compressor(sys_flags.get_compression_type(header.sysFlag))
        msg.body = compressor.decompress(body)
    msg.queue_id = header.queueId
    msg.flag = header.flag
    msg.sys_flag = header.sysFlag
    msg.properties = message_decoder.string2message_properties(header.properties)
    msg.born_timestamp = header.bornTimestamp
    msg.store_timestamp = header.storeTimestamp
    msg.born_host, msg.store_host = _address(header.bornHost), _address(header.storeHost)
    msg.reconsume_times = header.reconsumeTimes or 0
    return msg


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _answer(body: bytes) -> RemotingCommand:
    response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
    response.body = body
    return response


def _no_group(consumer_group: str) -> RemotingCommand:
    return RemotingCommand.create_response_command(
        response_code.SYSTEM_ERROR, f"The Consumer Group <{consumer_group}> not exist in this consumer")


_CLIENT = "a client"


class ClientRemoting(RemotingClient):
    """A RemotingClient whose threads do not keep the process alive, and which refuses calls in a forked process."""

    # Differs: if the main thread ends without shutting its client down, for example with an exception, the process
    # exits; the original's JVM waits forever
    def __init__(self, config: RemotingClientConfig, tls: TlsSystemConfig | None = None) -> None:
        super().__init__(config, tls=tls)
        self._home = HomeProcess()
        self.io.daemon = self.event_executor.daemon = True

    def is_left(self) -> bool:
        """Return True if this process was forked from the one that started the client."""
        return self._home.is_left()

    def check_process(self) -> None:
        """Raise MQClientException if this process was forked after the start."""
        self._home.check(_CLIENT)

    def start(self) -> None:
        """Start the client in this process."""
        self._home.begin()
        super().start()

    def shutdown(self) -> None:
        """Close all connections and stop the threads.

        Do nothing in a forked process, because its parent still uses the connections.
        """
        if not self._home.is_left():
            super().shutdown()

    def invoke_sync(self, addr: str | None, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Send a request and wait for the answer."""
        self._home.check(_CLIENT)
        return super().invoke_sync(addr, request, timeout_ms)

    def invoke_async(self, addr: str | None, request: RemotingCommand, timeout_ms: float,
                     invoke_callback: InvokeCallback) -> None:
        """Send a request and pass the answer to `invoke_callback`."""
        self._home.check(_CLIENT)
        super().invoke_async(addr, request, timeout_ms, invoke_callback)

    def invoke_oneway(self, addr: str | None, request: RemotingCommand, timeout_ms: float) -> None:
        """Send a request without an answer."""
        self._home.check(_CLIENT)
        super().invoke_oneway(addr, request, timeout_ms)
