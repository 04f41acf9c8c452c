"""Messages that consumers send back: they are delivered again later, and finally go to the dead letter topic.

    SendMessageThread_<n>: the message at its offset -> a copy, delayed, into the retry topic of the group
"""
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.processor.send_admission import READ_WRITE, random_queue_id
from rmqha.common import mix_all, sys_flags, topics, util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Completable
from rmqha.common.java import Version
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_headers import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.addresses import exception_simple_desc
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.record_access import RecordAccess
    from rmqha.broker.subscription_group_manager import SubscriptionGroupManager
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.broker_stats_manager import BrokerStatsManager

DLQ_NUMS_PER_GROUP = 1
_V3_4_9 = Version["V3_4_9"]


class SendBack:
    """Processor of CONSUMER_SEND_MSG_BACK, and of the topics for a group's retries and dead letters.

    Java: org.apache.rocketmq.broker.processor.SendMessageProcessor#asyncConsumerSendMsgBack (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, look_up: Callable[[int], MessageExt | None],
                 put: Callable[[MessageExtBrokerInner], Completable[PutMessageResult]],
                 stats: "BrokerStatsManager", topics: "TopicConfigManager", groups: "SubscriptionGroupManager",
                 record_access: "RecordAccess") -> None:
        self._config = broker_config
        # Returns the message at an offset of the log.
        self._look_up = look_up
        self._put = put
        self._stats = stats
        self._topics = topics
        self.find_group = groups.find_subscription_group_config
        self._record_access = record_access

    def serve(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Store a message that a consumer failed to consume in its group's retry topic, for later delivery."""
        header = request.decode_command_custom_header(ConsumerSendMsgBackRequestHeader)
        config = self._config
        group_config = self.find_group(header.group)
        if group_config is None:
            return _answer(response_code.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist, "
                           f"{header.group} {namespace_util.suggest_todo(namespace_util.SUBSCRIPTION_GROUP_NOT_EXIST)}")
        if not sys_flags.is_writeable(config.brokerPermission):
            return _answer(response_code.NO_PERMISSION,
                           f"the broker[{config.brokerIP1}] sending message is forbidden")
        if group_config.retryQueueNums <= 0:
            return _answer(response_code.SUCCESS, None)
        topic = mix_all.get_retry_topic(header.group)
        sys_flag = sys_flags.build_topic_sys_flag(False, True) if header.unitMode else 0
        topic_config = self.retry_topic(topic, group_config.retryQueueNums, sys_flag)
        if topic_config is None:
            return _answer(response_code.SYSTEM_ERROR, f"topic[{topic}] not exist")
        if not sys_flags.is_writeable(topic_config.perm):
            return _answer(response_code.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        message = self._look_up(header.offset)
        if message is None:
            return _answer(response_code.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        self._record_access.check_reading(channel, request, message, header.offset)
        queue_id = random_queue_id(group_config.retryQueueNums)
        return self._put_back(header, message, topic, queue_id, max_reconsume_times(request, header, group_config))

    def _put_back(self, header: ConsumerSendMsgBackRequestHeader, message: "MessageExt", topic: str, queue_id: int,
                  max_times: int) -> "Answer":
        properties = message.properties
        properties.setdefault(message_const.PROPERTY_RETRY_TOPIC, message.topic)
        properties[message_const.PROPERTY_WAIT_STORE_MSG_OK] = "false"
        delay_level = header.delayLevel
        if message.reconsume_times >= max_times or delay_level < 0:
            topic, queue_id = mix_all.get_dlq_topic(header.group), random_queue_id(DLQ_NUMS_PER_GROUP)
            if self.retry_topic(topic, DLQ_NUMS_PER_GROUP, 0) is None:
                return _answer(response_code.SYSTEM_ERROR, f"topic[{topic}] not exist")
            delay_level = 0
        elif delay_level == 0:
            delay_level = 3 + message.reconsume_times
        properties[message_const.PROPERTY_DELAY_TIME_LEVEL] = str(delay_level)
        inner = _copy_for_retry(message, topic, queue_id)
        put = self._put(inner)
        back_topic = properties.get(message_const.PROPERTY_RETRY_TOPIC) or message.topic
        return put.then_apply(lambda result: self._answer(header.group, back_topic, inner, result), _failed)

    def _answer(self, group: str, back_topic: str, inner: MessageExtBrokerInner,
                result: PutMessageResult | None) -> RemotingCommand:
        if result is None:
            return _answer(response_code.SYSTEM_ERROR, "putMessageResult is null")
        append = result.append_message_result
        if result.put_message_status is not PutMessageStatus.PUT_OK or append is None:
            return _answer(response_code.SYSTEM_ERROR, result.put_message_status.name)
        if inner.topic == topics.RMQ_SYS_SCHEDULE_TOPIC:
            wrote_bytes = append.wrote_bytes
            self._stats.inc_topic_put_nums(inner.topic)
            self._stats.inc_topic_put_size(inner.topic, wrote_bytes)
            self._stats.inc_queue_put_nums(inner.topic, inner.queue_id)
            self._stats.inc_queue_put_size(inner.topic, inner.queue_id, wrote_bytes)
        self._stats.inc_send_back_nums(group, back_topic)
        return _answer(response_code.SUCCESS, None)

    def retry_topic(self, topic: str, queue_nums: int, sys_flag: int) -> TopicConfig | None:
        """Return a retry or dead letter topic; create it if it is new. None if it cannot be created."""
        # Differs: a group whose name is not a valid topic name gets no topic, since the name would become a folder
        if topic not in self._topics.topic_config_table and topics.check_topic(topic) is not None:
            return None
        return self._topics.create_topic_in_send_message_back_method(
            topic, queue_nums, READ_WRITE, sys_flag)


def max_reconsume_times(request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader | SendMessageRequestHeader,
                        group: SubscriptionGroupConfig) -> int:
    """Return the maximum number of redeliveries: the consumer's limit if its version sends one, or the group's."""
    if request.version >= _V3_4_9 and header.maxReconsumeTimes is not None:
        return header.maxReconsumeTimes
    return group.retryMaxTimes


def _answer(code: int, remark: str | None) -> RemotingCommand:
    return RemotingCommand.create_response_command(code, remark)


def _failed(error: BaseException) -> RemotingCommand:
    return _answer(response_code.SYSTEM_ERROR, exception_simple_desc(error))


def _copy_for_retry(message: "MessageExt", topic: str, queue_id: int) -> MessageExtBrokerInner:
    properties = message.properties
    origin = properties.get(message_const.PROPERTY_ORIGIN_MESSAGE_ID)
    if util_all.is_blank(origin) and message.msg_id is not None:  # None before it is stored
        properties[message_const.PROPERTY_ORIGIN_MESSAGE_ID] = message.msg_id
    inner = MessageExtBrokerInner()
    inner.topic = topic
    inner.queue_id = queue_id
    inner.body = message.body
    inner.flag = message.flag
    inner.properties = properties
    inner.properties_string = message_decoder.message_properties2string(properties)
    inner.tags_code = MessageExtBrokerInner.tags_string2tags_code(None, message.tags)
    inner.sys_flag = message.sys_flag
    inner.born_timestamp = message.born_timestamp
    inner.born_host = message.born_host
    inner.store_host = message.store_host
    inner.reconsume_times = message.reconsume_times + 1
    return inner
