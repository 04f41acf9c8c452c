"""The half and the op topic in the store."""
import logging
from typing import TYPE_CHECKING

from rmqha.broker.transaction.queue import transactional_message_util as util
from rmqha.broker.transaction.queue.get_result import GetResult, PullStatus
from rmqha.common import sys_flags, util_all
from rmqha.common.futures import Completable
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.topics import TopicConfig
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import GetMessageResult, GetMessageStatus, PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqTransaction")

_PULL_STATUS = {
    GetMessageStatus.FOUND: PullStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE: PullStatus.NO_MATCHED_MSG,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: PullStatus.NO_NEW_MSG,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: PullStatus.NO_NEW_MSG,
}
# Differs: a delay level is ignored, as the original's clients do; at the original's broker such a half message is
# delayed at once, lies in the half topic at another offset than its producer knows, and can't be ended: lost after
# SEND_OK
_NOT_OF_A_NEW_HALF_MESSAGE = (
    message_const.PROPERTY_DELAY_TIME_LEVEL,
    # Differs: what a message that is sent on brings of an earlier transaction does not count; at the original's broker
    # it may be discarded without a question
    message_const.PROPERTY_TRANSACTION_CHECK_TIMES,
    message_const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
_READ_WRITE = sys_flags.PERM_READ | sys_flags.PERM_WRITE


class TransactionalMessageBridge:
    """Writes, reads and ticks off half messages. Stateless: the offsets are those of the group CID_RMQ_SYS_TRANS.

    Java: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController", store: "DefaultMessageStore") -> None:
        self.broker_controller = broker_controller
        self._store = store

    def fetch_consume_offset(self, queue: MessageQueue) -> int:
        """How far the queue is done; from its beginning when nothing is known."""
        offset = self.broker_controller.consumer_offset_manager.query_offset(
            util.build_consumer_group(), queue.topic, queue.queueId)
        return self._store.get_min_offset_in_queue(queue.topic, queue.queueId) if offset == -1 else offset

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, which is made when it is new."""
        config = self._select_topic_config(topic)
        broker_name = self.broker_controller.broker_config.brokerName
        return [MessageQueue(topic, broker_name, queue_id)
                for queue_id in range(config.readQueueNums if config is not None else 0)]

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """The queue is done up to `offset`."""
        host, port = self.broker_controller.store_host
        self.broker_controller.consumer_offset_manager.commit_offset(
            f"{host}:{port}", util.build_consumer_group(), queue.topic, queue.queueId, offset)

    def get_half_message(self, queue_id: int, offset: int, nums: int) -> GetResult | None:
        """Half messages from `offset` on."""
        return self._get_message(util.build_half_topic(), queue_id, offset, nums)

    def get_op_message(self, queue_id: int, offset: int, nums: int) -> GetResult | None:
        """Op messages from `offset` on."""
        return self._get_message(util.build_op_topic(), queue_id, offset, nums)

    def _get_message(self, topic: str, queue_id: int, offset: int, nums: int) -> GetResult | None:
        group = util.build_consumer_group()
        result = self._store.get_message(group, topic, queue_id, offset, nums, None)
        if result is None:
            log.error("Get message from store return null. topic=%s, groupId=%s, requestOffset=%d", topic, group,
                      offset)
            return None
        status = _PULL_STATUS.get(result.status, PullStatus.OFFSET_ILLEGAL)
        found = GetResult(status, result.next_begin_offset)
        if status is PullStatus.FOUND:
            found.messages = _decode(result)
            self._count(group, topic, queue_id, result, found.messages)
        elif status is not PullStatus.NO_NEW_MSG:
            # Differs: reading up to the end is no warning; the original logs it in every round
            log.warning("GetMessageStatus=%s, topic=%s, groupId=%s, requestOffset=%d", result.status.name, topic, group,
                        offset)
        return found

    def _count(self, group: str, topic: str, queue_id: int, result: GetMessageResult,
               messages: list[MessageExt]) -> None:
        stats = self.broker_controller.broker_stats_manager
        stats.inc_group_get_nums(group, topic, result.message_count)
        stats.inc_group_get_size(group, topic, result.buffer_total_size)
        stats.inc_broker_get_nums(result.message_count)
        if messages:
            stats.record_disk_fall_behind_time(group, topic, queue_id,
                                               util_all.current_time_millis() - messages[-1].store_timestamp)

    def async_put_half_message(self, message_inner: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store a message as a half message; `message_inner` becomes what is stored."""
        return self._store.async_put_message(_parse_half_message_inner(message_inner))

    def put_op_message(self, message: MessageExt, op_type: str) -> bool:
        """Note the end of a half message; always true."""
        if op_type == util.REMOVETAG:
            self._add_remove_tag_in_transaction_op(message)
        return True

    def put_message_return_result(self, message_inner: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message and wait for it. Not on an IO thread."""
        return self._store.put_message(message_inner)

    def put_message(self, message_inner: MessageExtBrokerInner) -> bool:
        """Store a message and wait for it. Not on an IO thread."""
        return self._is_stored(message_inner, self._store.put_message(message_inner))

    @staticmethod
    def _is_stored(message: MessageExtBrokerInner, result: PutMessageResult | None) -> bool:
        if result is not None and result.put_message_status is PutMessageStatus.PUT_OK:
            return True
        log.error("Put message failed, topic: %s, queueId: %d, msgId: %s", message.topic, message.queue_id,
                  message.msg_id)
        return False

    @staticmethod
    def renew_immunity_half_message_inner(message: MessageExt) -> MessageExtBrokerInner:
        """A half message to be put back because it is too young; it remembers where it lay first."""
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        name = message_const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
        inner.put_property(name, message.get_user_property(name) or str(message.queue_offset))
        inner.properties_string = message_decoder.message_properties2string(inner.properties)
        return inner

    @staticmethod
    def renew_half_message_inner(message: MessageExt) -> MessageExtBrokerInner:
        """A half message to be put back."""
        inner = MessageExtBrokerInner(message.topic, message.body)
        # Differs: the producer's flag is kept; in the original a message that was asked about arrives with flag 0
        inner.flag = message.flag
        inner.queue_id = message.queue_id
        inner.msg_id = message.msg_id
        inner.sys_flag = message.sys_flag
        inner.tags_code = MessageExtBrokerInner.tags_string2tags_code(None, message.tags)
        inner.properties = message.properties
        inner.properties_string = message_decoder.message_properties2string(message.properties)
        inner.born_timestamp = message.born_timestamp
        inner.born_host = message.born_host
        inner.store_host = message.store_host
        inner.wait_store_msg_ok = False
        return inner

    def _make_op_message_inner(self, message: Message, queue_id: int) -> MessageExtBrokerInner:
        inner = MessageExtBrokerInner(message.topic, message.body)
        inner.queue_id = queue_id
        inner.tags_code = MessageExtBrokerInner.tags_string2tags_code(None, message.tags)
        inner.properties = message.properties
        inner.properties_string = message_decoder.message_properties2string(message.properties)
        inner.born_timestamp = util_all.current_time_millis()
        inner.born_host = inner.store_host = self.broker_controller.store_host
        inner.wait_store_msg_ok = False
        message_client_id_setter.set_uniq_id(inner)
        return inner

    def _select_topic_config(self, topic: str) -> TopicConfig | None:
        topics = self.broker_controller.topic_config_manager
        return topics.select_topic_config(topic) or topics.create_topic_in_send_message_back_method(
            topic, 1, _READ_WRITE, 0)

    def _add_remove_tag_in_transaction_op(self, prepare_message: MessageExt) -> None:
        message = Message(util.build_op_topic(), str(prepare_message.queue_offset).encode(), util.REMOVETAG)
        inner = self._make_op_message_inner(message, prepare_message.queue_id)
        self._store.async_put_message(inner).then(lambda result: self._is_stored(inner, result))

    def look_message_by_offset(self, commit_log_offset: int) -> MessageExt | None:
        """The message at an offset of the commit log, its body as it is stored; None when there is none."""
        return self._store.look_message_by_offset(commit_log_offset)


def _decode(result: GetMessageResult) -> list[MessageExt]:
    messages = []
    try:
        for record in result.message_buffer_list:
            try:
                messages.append(message_decoder.decode(record, True, False))
            except MessageDecodeError as failure:
                log.error("a record of the half or op topic is damaged: %s", failure)
    finally:
        result.release()
    return messages


def _parse_half_message_inner(message: MessageExtBrokerInner) -> MessageExtBrokerInner:
    message.put_property(message_const.PROPERTY_REAL_TOPIC, message.topic)
    message.put_property(message_const.PROPERTY_REAL_QUEUE_ID, str(message.queue_id))
    message.sys_flag = sys_flags.reset_transaction_value(message.sys_flag,
                                                                sys_flags.TRANSACTION_NOT_TYPE)
    for name in _NOT_OF_A_NEW_HALF_MESSAGE:
        message.clear_property(name)
    message.topic = util.build_half_topic()
    message.queue_id = 0
    message.properties_string = message_decoder.message_properties2string(message.properties)
    return message
