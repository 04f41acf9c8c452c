"""All requests of the client, one method each, from a header to a typed answer.

Each method takes the broker's address ("ip:port"; name server calls take none) and a timeout in ms. It raises
MQBrokerException for an error answer, and RemotingException (connect, send, timeout) without an answer.
"""
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_remoting_processor import ClientRemoting
from rmqha.client.impl.mq_client_api_admin import MQClientAPIAdmin
from rmqha.client.impl.mq_client_api_controller import MQClientAPIController
from rmqha.client.results import PullCallback, PullResultExt, PullStatus, SendResult, SendStatus
from rmqha.common import mix_all
from rmqha.common.config_keys import address_hint, is_host_and_port
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import CheckClientRequestBody
from rmqha.common.protocol.client_headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmqha.common.protocol.namesrv_headers import GetRouteInfoRequestHeader
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.common.subscriptions import HeartbeatData, SubscriptionData
from rmqha.remoting.interfaces import ResponseFuture
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook

log = logging.getLogger("RocketmqClient")

_SEND_STATUS = {
    response_code.SUCCESS: SendStatus.SEND_OK,
    response_code.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    response_code.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    response_code.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_PULL_STATUS = {
    response_code.SUCCESS: PullStatus.FOUND,
    response_code.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    response_code.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    response_code.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}

RetryChoice = Callable[[str], tuple[str, MessageQueue] | None]
"""A function of the broker that failed. It returns the address and queue for the next try of an asynchronous send."""


class MQClientAPIImpl(MQClientAPIAdmin, MQClientAPIController):
    """The requests of producers, consumers and admin tools over one remoting client.

    Java: org.apache.rocketmq.client.impl.MQClientAPIImpl (4.9.8)
    """

    def __init__(
        self, remoting_config: RemotingClientConfig, client_config: ClientConfig, rpc_hook: "RPCHook | None" = None
    ) -> None:
        self.client_config = client_config
        self.remoting_client = ClientRemoting(remoting_config, client_config.tls)
        if rpc_hook is not None:
            self.remoting_client.register_rpc_hook(rpc_hook)

    def get_name_server_address_list(self) -> list[str]:
        """Return the addresses of the name servers, each as "ip:port"."""
        return list(self.remoting_client.get_name_server_address_list() or ())

    def update_name_server_address_list(self, addrs: str) -> None:
        """Use these name servers, separated by semicolons. MQClientException for an address that is not host:port."""
        addresses = [addr.strip() for addr in addrs.split(";") if addr.strip()]
        for address in addresses:
            if not is_host_and_port(address):
                # Differs: a client with an invalid name server address fails at its start; the original accepts any
                # text, and then never finds a name server
                hint = address_hint(address)
                raise MQClientException(
                    f"name server address {addrs[:80]!r}: expected host:port, several separated by \";\", not "
                    f"{address[:80]!r}" + (f": {hint}" if hint else ""))
        self.remoting_client.update_name_server_address_list(addresses)

    def start(self) -> None:
        """Start the remoting client."""
        self.remoting_client.start()

    def shutdown(self) -> None:
        """Close all connections."""
        self.remoting_client.shutdown()

    # ---- sending

    def send_message(
        self, addr: str, broker_name: str, msg: Message, header: SendMessageRequestHeaderV2, body: Any,
        timeout_ms: float,
    ) -> SendResult:
        """Send and wait for the answer. `body` is the body on the wire: that of `msg`, compressed or not."""
        request = self._send_request(header, body)
        response = self.remoting_client.invoke_sync(addr, request, timeout_ms)
        return self.process_send_response(broker_name, msg, response, addr)

    def send_message_oneway(
        self, addr: str, header: SendMessageRequestHeaderV2, body: Any, timeout_ms: float
    ) -> None:
        """Send without requesting an answer."""
        self.remoting_client.invoke_oneway(addr, self._send_request(header, body), timeout_ms)

    def send_message_async(
        self,
        addr: str,
        broker_name: str,
        msg: Message,
        header: SendMessageRequestHeaderV2,
        body: Any,
        timeout_ms: float,
        send_callback: Any,
        retry_times: int,
        choose_retry: RetryChoice,
    ) -> None:
        """Send, and pass the result or the error to `send_callback`.

        Without an answer, retry up to `retry_times` times at the brokers that `choose_retry` returns.
        """
        request = self._send_request(header, body)
        _AsyncSend(
            self, broker_name, msg, header, request, timeout_ms, send_callback, retry_times, choose_retry).send(addr)

    @staticmethod
    def _send_request(header: SendMessageRequestHeaderV2, body: Any) -> RemotingCommand:
        code = request_code.SEND_BATCH_MESSAGE if header.m else request_code.SEND_MESSAGE_V2
        if _is_reply(header.i or ""):
            code = request_code.SEND_REPLY_MESSAGE_V2
        request = RemotingCommand.create_request_command(code, header)
        request.body = body
        return request

    def end_transaction_oneway(
        self, addr: str, header: EndTransactionRequestHeader, remark: str | None, timeout_ms: float
    ) -> None:
        """Send the outcome of a half message's transaction."""
        request = RemotingCommand.create_request_command(request_code.END_TRANSACTION, header)
        request.remark = remark
        self.remoting_client.invoke_oneway(addr, request, timeout_ms)

    def process_send_response(
        self, broker_name: str, msg: Message, response: RemotingCommand, addr: str
    ) -> SendResult:
        """Return the answer to a send as a SendResult; MQBrokerException if the message was not stored."""
        status = _SEND_STATUS.get(response.code)
        if status is None:
            raise MQBrokerException(response.code, response.remark, addr)
        header = response.decode_command_custom_header(SendMessageResponseHeader)
        uniq_id: str | None
        if isinstance(msg, MessageBatch):
            uniq_id = ",".join(message_client_id_setter.get_uniq_id(item) or "" for item in msg)
        else:
            uniq_id = message_client_id_setter.get_uniq_id(msg)
        extra = response.ext_fields or {}
        return SendResult(
            send_status=status,
            msg_id=uniq_id,
            message_queue=MessageQueue(self.client_config.without_namespace(msg.topic), broker_name, header.queueId),
            queue_offset=header.queueOffset,
            transaction_id=header.transactionId,
            offset_msg_id=header.msgId,
            region_id=extra.get(message_const.PROPERTY_MSG_REGION) or mix_all.DEFAULT_TRACE_REGION_ID,
            trace_on=extra.get(message_const.PROPERTY_TRACE_SWITCH) != "false",
        )

    # ---- pulling

    def pull_message(self, addr: str, header: PullMessageRequestHeader, timeout_ms: float) -> PullResultExt:
        """Pull and wait for the result; its messages are not decoded yet."""
        request = RemotingCommand.create_request_command(request_code.PULL_MESSAGE, header)
        return self.process_pull_response(self.remoting_client.invoke_sync(addr, request, timeout_ms), addr)

    def pull_message_async(
        self, addr: str, header: PullMessageRequestHeader, timeout_ms: float, callback: PullCallback
    ) -> None:
        """Pull, and pass a PullResultExt or the error to `callback`."""
        request = RemotingCommand.create_request_command(request_code.PULL_MESSAGE, header)

        def operation_complete(future: ResponseFuture) -> None:
            response = future.response_command
            if response is None:
                callback.on_exception(no_answer(future, addr))
                return
            try:
                result = self.process_pull_response(response, addr)
            except Exception as error:
                callback.on_exception(error)
                return
            callback.on_success(result)

        self.remoting_client.invoke_async(addr, request, timeout_ms, operation_complete)

    @staticmethod
    def process_pull_response(response: RemotingCommand, addr: str) -> PullResultExt:
        """Return the answer to a pull; MQBrokerException for codes other than the four of a pull."""
        status = _PULL_STATUS.get(response.code)
        if status is None:
            raise MQBrokerException(response.code, response.remark, addr)
        header = response.decode_command_custom_header(PullMessageResponseHeader)
        return PullResultExt(
            status,
            header.nextBeginOffset,
            header.minOffset,
            header.maxOffset,
            suggest_which_broker_id=header.suggestWhichBrokerId,
            message_binary=response.body,
        )

    def consumer_send_message_back(
        self,
        addr: str,
        broker_name: str | None,
        msg: MessageExt,
        origin_topic: str,
        consumer_group: str,
        delay_level: int,
        timeout_ms: float,
        max_consume_retry_times: int,
    ) -> None:
        """Have the broker deliver `msg` to the group again."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=msg.commit_log_offset,
            group=consumer_group,
            delayLevel=delay_level,
            originMsgId=msg.msg_id,
            originTopic=origin_topic,
            maxReconsumeTimes=max_consume_retry_times,
            bname=broker_name,
        )
        self._ask(addr, request_code.CONSUMER_SEND_MSG_BACK, header, timeout_ms)

    # ---- queries

    def view_message(self, addr: str, phy_offset: int, timeout_ms: float) -> MessageExt:
        """Return the message at a commit log offset."""
        response = self._ask(
            addr, request_code.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=phy_offset), timeout_ms)
        return message_decoder.client_decode(response.body or b"")

    def query_message(
        self, addr: str, header: QueryMessageRequestHeader, timeout_ms: float, is_uniq_key: bool
    ) -> RemotingCommand:
        """Query messages by key; return the raw answer, whatever its code.

        Its header is a QueryMessageResponseHeader, and its body contains the records.
        """
        request = RemotingCommand.create_request_command(request_code.QUERY_MESSAGE, header)
        request.add_ext_field(mix_all.UNIQUE_MSG_QUERY_FLAG, "true" if is_uniq_key else "false")
        return self.remoting_client.invoke_sync(self._admin_addr(addr), request, timeout_ms)

    def search_offset(self, addr: str, mq: MessageQueue, timestamp: int, timeout_ms: float) -> int:
        """Return the first queue offset stored at or after `timestamp` (ms), as the broker's binary search finds it."""
        header = SearchOffsetRequestHeader(mq.topic, mq.queueId, timestamp, bname=mq.brokerName)
        response = self._ask(addr, request_code.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout_ms)
        return response.decode_command_custom_header(SearchOffsetResponseHeader).offset

    def get_max_offset(self, addr: str, mq: MessageQueue, timeout_ms: float) -> int:
        """Return the queue offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(mq.topic, mq.queueId, bname=mq.brokerName)
        response = self._ask(addr, request_code.GET_MAX_OFFSET, header, timeout_ms)
        return response.decode_command_custom_header(GetMaxOffsetResponseHeader).offset

    def get_min_offset(self, addr: str, mq: MessageQueue, timeout_ms: float) -> int:
        """Return the lowest queue offset that the queue still has."""
        header = GetMinOffsetRequestHeader(mq.topic, mq.queueId, bname=mq.brokerName)
        response = self._ask(addr, request_code.GET_MIN_OFFSET, header, timeout_ms)
        return response.decode_command_custom_header(GetMinOffsetResponseHeader).offset

    def get_earliest_msg_storetime(self, addr: str, mq: MessageQueue, timeout_ms: float) -> int:
        """Return the time (ms) at which the queue's first message was stored; -1 if the queue is empty."""
        header = GetEarliestMsgStoretimeRequestHeader(mq.topic, mq.queueId, bname=mq.brokerName)
        response = self._ask(addr, request_code.GET_EARLIEST_MSG_STORETIME, header, timeout_ms)
        return response.decode_command_custom_header(GetEarliestMsgStoretimeResponseHeader).timestamp

    # ---- groups

    def get_consumer_id_list_by_group(self, addr: str, consumer_group: str, timeout_ms: float) -> list[str]:
        """Return the client ids of a consumer group."""
        header = GetConsumerListByGroupRequestHeader(consumerGroup=consumer_group)
        response = self._ask(addr, request_code.GET_CONSUMER_LIST_BY_GROUP, header, timeout_ms)
        if response.body is None:
            raise MQBrokerException(response.code, response.remark, addr)
        body = remoting_serializable.from_json(GetConsumerListByGroupResponseBody, response.body)
        return body.consumerIdList or []

    def query_consumer_offset(
        self, addr: str, header: QueryConsumerOffsetRequestHeader, timeout_ms: float
    ) -> int:
        """Return the group's offset; MQBrokerException (QUERY_NOT_FOUND) if the broker has none."""
        response = self._ask(addr, request_code.QUERY_CONSUMER_OFFSET, header, timeout_ms)
        return response.decode_command_custom_header(QueryConsumerOffsetResponseHeader).offset

    def update_consumer_offset(
        self, addr: str, header: UpdateConsumerOffsetRequestHeader, timeout_ms: float
    ) -> None:
        """Store the group's offset."""
        self._ask(addr, request_code.UPDATE_CONSUMER_OFFSET, header, timeout_ms)

    def update_consumer_offset_oneway(
        self, addr: str, header: UpdateConsumerOffsetRequestHeader, timeout_ms: float
    ) -> None:
        """Store the group's offset, without requesting an answer."""
        request = RemotingCommand.create_request_command(request_code.UPDATE_CONSUMER_OFFSET, header)
        self.remoting_client.invoke_oneway(self._admin_addr(addr), request, timeout_ms)

    def send_heartbeat(self, addr: str, heartbeat_data: HeartbeatData, timeout_ms: float) -> int:
        """Report this client's groups; return the broker's version number."""
        request = RemotingCommand.create_request_command(request_code.HEART_BEAT)
        request.body = remoting_serializable.encode(heartbeat_data)
        response = self.remoting_client.invoke_sync(addr, request, timeout_ms)
        return self._checked(response, addr).version

    def unregister_client(
        self, addr: str, client_id: str, producer_group: str | None, consumer_group: str | None, timeout_ms: float
    ) -> None:
        """Report that this client no longer has a group."""
        header = UnregisterClientRequestHeader(client_id, producer_group, consumer_group)
        request = RemotingCommand.create_request_command(request_code.UNREGISTER_CLIENT, header)
        self._checked(self.remoting_client.invoke_sync(addr, request, timeout_ms), addr)

    def check_client_in_broker(
        self, addr: str, consumer_group: str, client_id: str, subscription: SubscriptionData, timeout_ms: float
    ) -> None:
        """Have the broker parse an expression; MQClientException with its remark if it refuses."""
        request = RemotingCommand.create_request_command(request_code.CHECK_CLIENT_CONFIG)
        body = CheckClientRequestBody(clientId=client_id, group=consumer_group, subscriptionData=subscription)
        request.body = remoting_serializable.encode(body)
        response = self.remoting_client.invoke_sync(self._admin_addr(addr), request, timeout_ms)
        if response.code != response_code.SUCCESS:
            raise MQClientException(response.remark or "", response.code)

    # ---- routes

    def get_topic_route_info_from_name_server(
        self, topic: str, timeout_ms: float, allow_topic_not_exist: bool = True
    ) -> TopicRouteData:
        """Return the brokers and queues of a topic; MQClientException (TOPIC_NOT_EXIST) for an unknown topic."""
        request = RemotingCommand.create_request_command(
            request_code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        response = self.remoting_client.invoke_sync(None, request, timeout_ms)
        if response.code == response_code.SUCCESS and response.body is not None:
            return remoting_serializable.from_json(TopicRouteData, response.body)
        if response.code == response_code.TOPIC_NOT_EXIST and allow_topic_not_exist \
                and not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            log.warning("get Topic [%s] RouteInfoFromNameServer is not exist value", topic)
        raise MQClientException(response.remark or "", response.code)

    def get_default_topic_route_info_from_name_server(self, topic: str, timeout_ms: float) -> TopicRouteData:
        """Return the brokers and queues of a topic, without logging a warning if the topic is unknown."""
        return self.get_topic_route_info_from_name_server(topic, timeout_ms, allow_topic_not_exist=False)


class _AsyncSend:
    """One asynchronous send with its retries. Only one try runs at a time, so no lock is needed."""

    def __init__(
        self,
        api: MQClientAPIImpl,
        broker_name: str,
        msg: Message,
        header: SendMessageRequestHeaderV2,
        request: RemotingCommand,
        timeout_ms: float,
        send_callback: Any,
        retry_times: int,
        choose_retry: RetryChoice,
    ) -> None:
        self._api = api
        self._broker_name = broker_name
        self._msg = msg
        self._header = header
        self._request = request
        self._deadline_ns = time.monotonic_ns() + int(timeout_ms * 1e6)
        self._send_callback = send_callback
        self._tries_left = retry_times
        self._choose_retry = choose_retry
        self._addr = ""

    def send(self, addr: str) -> None:
        """Try once; a failure leads to the next try."""
        self._addr = addr
        timeout_ms = (self._deadline_ns - time.monotonic_ns()) / 1e6
        try:
            self._api.remoting_client.invoke_async(addr, self._request, timeout_ms, self._operation_complete)
        except Exception as error:
            self._failed(error, need_retry=True)

    def _operation_complete(self, future: ResponseFuture) -> None:
        response = future.response_command
        if response is None:
            self._failed(no_answer(future, self._addr), need_retry=True)
            return
        try:
            result = self._api.process_send_response(self._broker_name, self._msg, response, self._addr)
        except Exception as error:
            self._failed(error, need_retry=False)
            return
        self._send_callback.on_success(result)

    def _failed(self, error: Exception, need_retry: bool) -> None:
        chosen = None
        if need_retry and self._tries_left > 0 and time.monotonic_ns() < self._deadline_ns:
            self._tries_left -= 1
            chosen = self._choose_retry(self._broker_name)
        if chosen is None:
            self._send_callback.on_exception(error)
            return
        addr, queue = chosen
        log.warning("async send msg by retry. topic=%s, brokerAddr=%s, brokerName=%s: %s",
                    self._msg.topic, addr, queue.brokerName, error)
        # Differs: the request of a send's retry names its own queue and broker; 4.9.8 repeats those of the first try
        header = self._header
        header.e, header.n = queue.queueId, queue.brokerName
        self._request = MQClientAPIImpl._send_request(header, self._request.body)
        self._broker_name = queue.brokerName
        self.send(addr)


def _is_reply(properties: str) -> bool:
    if message_const.PROPERTY_MESSAGE_TYPE not in properties:
        return False
    kind = message_decoder.string2message_properties(properties).get(message_const.PROPERTY_MESSAGE_TYPE)
    return kind == mix_all.REPLY_MESSAGE_FLAG


def no_answer(future: ResponseFuture, addr: str) -> MQClientException:
    """Return the exception for the callback of an asynchronous request without an answer."""
    if not future.send_request_ok:
        error = MQClientException(f"send request failed to {addr}")
    elif future.is_timeout:
        error = MQClientException(f"wait response from {addr} timeout :{future.timeout_ms}ms")
    else:
        error = MQClientException(f"unknown reason. addr: {addr}, timeoutMillis: {future.timeout_ms}")
    error.__cause__ = future.cause
    return error
