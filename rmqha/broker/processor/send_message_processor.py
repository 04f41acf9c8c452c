"""Sends: single messages, batches, and messages that consumers send back.

    IO thread: check -> store.async_put_message -> Completable --> response, by the thread that completes the put
    sends that may create a topic or a group, and messages sent back: SendMessageThread_<n>
"""
import logging
from typing import TYPE_CHECKING

from rmqha.broker.processor.send_admission import AbstractSendMessageProcessor, random_queue_id
from rmqha.broker.processor.send_back import DLQ_NUMS_PER_GROUP, SendBack, max_reconsume_times
from rmqha.broker.processor.send_codec import SENT, SENT_CODES, first_fields, tell_place
from rmqha.common import mix_all, sys_flags, topics, util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt, MessageExtBatch
from rmqha.common.protocol import namespace_util, request_code, response_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting.addresses import exception_simple_desc
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store import store_path_config_helper
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.broker_fast_failure import HandOver
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.broker.transaction.transactional_message_service import TransactionalMessageService
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.broker_stats_manager import BrokerStatsManager
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqBroker")

_TRANSACTION_PREPARED = message_const.PROPERTY_TRANSACTION_PREPARED
# Batches above this size (bytes) are served by the pool: they may contain thousands of messages.
_LARGE_BATCH = 64 << 10
_PUT_OK = PutMessageStatus.PUT_OK
# The code of a response before any check has failed.
_CONTINUE = -1


class SendMessageProcessor(AbstractSendMessageProcessor):
    """Processor of SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and CONSUMER_SEND_MSG_BACK.

    Java: org.apache.rocketmq.broker.processor.SendMessageProcessor (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, topics: "TopicConfigManager", hand_over: "HandOver",
                 store: "DefaultMessageStore", stats: "BrokerStatsManager", addresses: "BrokerAddresses",
                 transactions: "TransactionalMessageService", send_back: SendBack) -> None:
        super().__init__(broker_config, topics, hand_over)
        self._store, self._stats = store, stats
        self._store_config = store.message_store_config
        self._addresses = addresses
        self._transactions = transactions
        self._send_back = send_back

    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve one request; the response follows when the message is as safe as the configuration asks."""
        if request.code == request_code.CONSUMER_SEND_MSG_BACK:
            return self.hand_over(lambda: self._send_back.serve(channel, request))
        header = self.parse_request_header(request)
        if self.is_served_at_once(header.topic) and not (
                header.batch and request.body is not None and len(request.body) > _LARGE_BATCH):
            return self._send(channel, request, header)
        return self.hand_over(lambda: self._send(channel, request, header))

    def reject_request(self) -> bool:
        """Return True while the log's lock has been held for too long, or the pool of buffers is empty."""
        store = self._store
        if store.commit_log.begin_time_in_lock and store.is_os_page_cache_busy():
            return True
        return store.transient_store_pool.is_in_use and store.is_transient_store_pool_deficient()

    def _send(self, channel: "Channel", request: RemotingCommand, header: SendMessageRequestHeader) -> "Answer":
        config = self._config
        response = _answer(_CONTINUE, None)
        response.ext_fields = first_fields(config.regionId, config.traceOn)
        topic_config = self.msg_check(channel, header, response)
        if topic_config is None:
            return response
        queue_id = header.queueId if header.queueId >= 0 else random_queue_id(topic_config.writeQueueNums)
        message: MessageExt
        if header.batch:
            message = batch = self._build_batch(channel, request, header, topic_config, queue_id)
            put = self._store.async_put_messages(batch)
        else:
            inner = self._build_inner_msg(channel, request, header, topic_config, queue_id, response)
            if inner is None:
                return response
            message = inner
            if inner.properties.get(_TRANSACTION_PREPARED, "").lower() == "true":
                if config.rejectTransactionMessage:
                    response.code = response_code.NO_PERMISSION
                    response.remark = f"the broker[{config.brokerIP1}] sending transaction message is forbidden"
                    return response
                put = self._transactions.async_prepare_message(inner)
            else:
                put = self._store.async_put_message(inner)
        if put.is_done:
            return self._handle_put_message_result(put.get(), response, message, queue_id)
        return put.then_apply(lambda result: self._handle_put_message_result(result, response, message, queue_id),
                              _failed)

    def _build_inner_msg(self, channel: "Channel", request: RemotingCommand, header: SendMessageRequestHeader,
                         topic_config: TopicConfig, queue_id: int,
                         response: RemotingCommand) -> MessageExtBrokerInner | None:
        message = MessageExtBrokerInner()
        message.topic = header.topic
        message.queue_id = queue_id
        if (header.topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)
                and not self._handle_retry_and_dlq(header, response, request, message)):
            return None
        properties = message_decoder.string2message_properties(header.properties)
        self._fill(message, channel, request, header, topic_config)
        properties[message_const.PROPERTY_CLUSTER] = self._config.brokerClusterName
        wait = properties.pop(message_const.PROPERTY_WAIT_STORE_MSG_OK, None)
        message.properties_string = message_decoder.message_properties2string(properties)
        # The property is not stored, but the put reads it.
        if wait is not None:
            properties[message_const.PROPERTY_WAIT_STORE_MSG_OK] = wait
        message.properties = properties
        return message

    def _handle_retry_and_dlq(self, header: SendMessageRequestHeader, response: RemotingCommand,
                              request: RemotingCommand, message: MessageExtBrokerInner) -> bool:
        group = header.topic[len(mix_all.RETRY_GROUP_TOPIC_PREFIX):]
        group_config = self._send_back.find_group(group)
        if group_config is None:
            response.code = response_code.SUBSCRIPTION_GROUP_NOT_EXIST
            response.remark = (f"subscription group not exist, {group} "
                               + namespace_util.suggest_todo(namespace_util.SUBSCRIPTION_GROUP_NOT_EXIST))
            return False
        if (header.reconsumeTimes or 0) < max_reconsume_times(request, header, group_config):
            return True
        message.topic = mix_all.get_dlq_topic(group)
        message.queue_id = random_queue_id(DLQ_NUMS_PER_GROUP)
        if self._send_back.retry_topic(message.topic, DLQ_NUMS_PER_GROUP, 0) is None:
            response.code = response_code.SYSTEM_ERROR
            response.remark = f"topic[{message.topic}] not exist"
            return False
        return True

    def _build_batch(self, channel: "Channel", request: RemotingCommand, header: SendMessageRequestHeader,
                     topic_config: TopicConfig, queue_id: int) -> MessageExtBatch:
        batch = MessageExtBatch()
        batch.topic = header.topic
        batch.queue_id = queue_id
        properties = message_decoder.string2message_properties(header.properties)
        properties[message_const.PROPERTY_CLUSTER] = self._config.brokerClusterName
        batch.properties = properties
        self._fill(batch, channel, request, header, topic_config)
        return batch

    def _fill(self, message: "MessageExt", channel: "Channel", request: RemotingCommand,
              header: SendMessageRequestHeader, topic_config: TopicConfig) -> None:
        sys_flag = header.sysFlag
        if topic_config.topicFilterType is TopicFilterType.MULTI_TAG:
            sys_flag |= sys_flags.MULTI_TAGS_FLAG
        message.sys_flag = sys_flag
        message.body = request.body or b""
        message.flag = header.flag
        message.born_timestamp = header.bornTimestamp
        message.born_host = channel.remote_address
        message.store_host = self._addresses.store_host
        message.reconsume_times = header.reconsumeTimes or 0

    def _handle_put_message_result(self, result: PutMessageResult | None, response: RemotingCommand,
                                   message: "MessageExt", queue_id: int) -> RemotingCommand:
        if result is None:
            response.code = response_code.SYSTEM_ERROR
            response.remark = "store putMessage return null"
            return response
        status = result.put_message_status
        code = SENT if status is _PUT_OK else SENT_CODES.get(status)
        append, fields = result.append_message_result, response.ext_fields
        # The last two are set whenever the first is; the checks are for the type checker.
        if code is None or append is None or fields is None:
            self._refuse(status, response)
            return response
        response.code = code
        stats, topic = self._stats, message.topic
        if topic == topics.RMQ_SYS_SCHEDULE_TOPIC:
            stats.inc_queue_put_nums(topic, message.queue_id, append.msg_num, 1)
            stats.inc_queue_put_size(topic, message.queue_id, append.wrote_bytes)
        stats.inc_topic_put_nums(topic, append.msg_num, 1)
        stats.inc_topic_put_size(topic, append.wrote_bytes)
        stats.inc_broker_put_nums(append.msg_num)
        tell_place(fields, append.msg_id or "", str(queue_id), str(append.logics_offset))
        return response

    def _refuse(self, status: PutMessageStatus, response: RemotingCommand) -> None:
        response.code = response_code.SYSTEM_ERROR
        if status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
            response.remark = mix_all.TOO_FEW_IN_SYNC
        elif status is PutMessageStatus.TOPIC_NOT_EXIST:
            response.code = response_code.TOPIC_NOT_EXIST
            response.remark = "the topic was deleted" + namespace_util.suggest_todo(namespace_util.APPLY_TOPIC_URL)
        elif status is PutMessageStatus.CREATE_MAPEDFILE_FAILED:
            response.remark = "create mapped file failed, server is busy or broken."
        elif status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            response.code = response_code.MESSAGE_ILLEGAL
            response.remark = ("the message is illegal, maybe msg body or properties length not matched. msg body "
                               f"length limit {self._store_config.maxMessageSize}B, msg "
                               "properties length limit 32KB.")
        elif status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            response.code = response_code.SERVICE_NOT_AVAILABLE
            why = self._store.ha_service.why_no_puts()
            response.remark = f"service not available now: {why}" if why is not None else (
                "service not available now. It may be caused by one of the following reasons: the broker's disk is full"
                f" [{self._disk_util()}], messages are put to the slave, message store has been shut down, etc.")
        elif status is PutMessageStatus.OS_PAGECACHE_BUSY:
            response.remark = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        elif status is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
            response.remark = ("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq "
                               "consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w.")
        else:
            response.remark = "UNKNOWN_ERROR"

    def _disk_util(self) -> str:
        config = self._store_config
        paths = config.get_store_path_commit_log().strip().split(",")
        physic = min(util_all.get_disk_partition_space_used_percent(path) for path in paths)
        root = config.storePathRootDir
        logic = util_all.get_disk_partition_space_used_percent(
            store_path_config_helper.get_store_path_consume_queue(root))
        index = util_all.get_disk_partition_space_used_percent(store_path_config_helper.get_store_path_index(root))
        return f"CL: {physic:5.2f} CQ: {logic:5.2f} INDEX: {index:5.2f}"


def _answer(code: int, remark: str | None) -> RemotingCommand:
    return RemotingCommand.create_response_command(code, remark)


def _failed(error: BaseException) -> RemotingCommand:
    return _answer(response_code.SYSTEM_ERROR, exception_simple_desc(error))
