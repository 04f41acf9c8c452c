"""Storage of transactional messages: how half messages are stored, finished and checked.

A transactional message must stay invisible until its producer commits it. The log is append-only: a stored message can
be neither moved nor marked. So the broker stores it in the half topic, and its real topic and queue id become
properties. A commit appends a copy to the real topic; a rollback appends nothing. In both cases an op message then
records that the half message is finished:

    half topic   h0 h1 h2 h3 ...     each half message once, and again each time it is appended for a check
    op topic     "h0" "h2" ...       one op message per finished half message; its body is that one's queue offset

A check reads both queues from the offsets at which the last check stopped, and joins them. A half message with an op
message is passed over. One without an op message that is old enough is appended to the half topic again, and its
producer is asked for the outcome of the new one. Appending it is what lets the check proceed: progress is a single
offset per queue, and a message whose producer is gone would otherwise stop it, while the retention of the log deletes
the file with the message. The op message may only be unread yet; so a check reads on in the op topic, until nothing
is left or its messages are newer than the check by more than the timeout, before it asks. The op queue's offset
advances only over op messages without a gap, since half messages finish in any order.

The copy is stored before the op message. After a crash between the two, the producer is asked again and the message is
delivered twice; in the other order it could be lost. After transactionCheckMax checks the message is moved to the topic
TRANS_CHECK_MAX_TIME_TOPIC.

- `TransactionalMessageBridge`: the half and the op topic in the store; a read returns a `GetResult`.
- `REMOVETAG`: the tag of op messages.
- `DefaultTransactionalMessageCheckListener`: moves half messages that were checked too often to a topic of their own.

Java: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageUtil (4.9.8)
"""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.transaction.transactional_message_service import (
    TCMT_QUEUE_NUMS,
    AbstractTransactionalMessageCheckListener,
    OperationResult,
    TransactionalMessageService,
)
from rmqha.common import mix_all, sys_flags, topics, util_all
from rmqha.common.futures import Completable
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.common.subscriptions import PullStatus as PullStatus
from rmqha.common.texts import LATER
from rmqha.common.topics import TopicConfig
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import GetMessageResult, GetMessageStatus, PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.client.broker2_client import Broker2Client
    from rmqha.broker.client.producer_manager import ProducerManager
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.record_access import RecordAccess
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.store.broker_stats_manager import BrokerStatsManager
    from rmqha.store.default_message_store import DefaultMessageStore


@dataclass
class GetResult:
    """The messages in queue order, and the queue offset at which to continue.

    Java: org.apache.rocketmq.broker.transaction.queue.GetResult (4.9.8)
    """

    pull_status: PullStatus
    next_begin_offset: int
    messages: list[MessageExt] = field(default_factory=list)


REMOVETAG = "d"


def build_op_topic() -> str:
    """Return the topic of op messages."""
    return topics.RMQ_SYS_TRANS_OP_HALF_TOPIC


def build_half_topic() -> str:
    """Return the topic of half messages."""
    return topics.RMQ_SYS_TRANS_HALF_TOPIC


def build_consumer_group() -> str:
    """Return the group whose offsets record the progress of the checks in both topics."""
    return mix_all.CID_SYS_RMQ_TRANS


log = logging.getLogger("RocketmqTransaction")

_PULL_STATUS = {
    GetMessageStatus.FOUND: PullStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE: PullStatus.NO_MATCHED_MSG,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: PullStatus.NO_NEW_MSG,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: PullStatus.NO_NEW_MSG,
}
# Differs: the delay level of a half message is ignored, as the original's clients do. The original's broker delays such
# a half message at once. Then its offset in the half topic is not the one that its producer knows, it cannot be
# finished, and it is lost after SEND_OK.
_NOT_OF_A_NEW_HALF_MESSAGE = (
    message_const.PROPERTY_DELAY_TIME_LEVEL,
    # Differs: the properties of an earlier transaction are removed from a half message that is forwarded; the
    # original's broker may discard such a message without a check
    message_const.PROPERTY_TRANSACTION_CHECK_TIMES,
    message_const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
_READ_WRITE = sys_flags.PERM_READ | sys_flags.PERM_WRITE


class TransactionalMessageBridge:
    """Writes, reads and finishes half messages. Stateless: the offsets are those of the group CID_RMQ_SYS_TRANS.

    Java: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge (4.9.8)
    """

    def __init__(self, store: "DefaultMessageStore", stats: "BrokerStatsManager", addresses: "BrokerAddresses",
                 topics: "TopicConfigManager", offsets: "ConsumerOffsetManager") -> None:
        self._store, self._stats = store, stats
        self._addresses = addresses
        self._topics, self._offsets = topics, offsets
        self.store_config = store.message_store_config

    def fetch_consume_offset(self, queue: MessageQueue) -> int:
        """Return the offset up to which the queue is finished; its beginning when that is unknown."""
        offset = self._offsets.query_offset(
            build_consumer_group(), queue.topic, queue.queueId)
        return self._store.get_min_offset_in_queue(queue.topic, queue.queueId) if offset == -1 else offset

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic; create the topic if it is new."""
        config = self._select_topic_config(topic)
        broker_name = self._addresses.broker_name
        return [MessageQueue(topic, broker_name, queue_id)
                for queue_id in range(config.readQueueNums if config is not None else 0)]

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note that the queue is finished up to `offset`."""
        host, port = self._addresses.store_host
        self._offsets.commit_offset(
            f"{host}:{port}", build_consumer_group(), queue.topic, queue.queueId, offset)

    def get_half_message(self, queue_id: int, offset: int, nums: int) -> GetResult | None:
        """Read half messages from `offset` on."""
        return self._get_message(build_half_topic(), queue_id, offset, nums)

    def get_op_message(self, queue_id: int, offset: int, nums: int) -> GetResult | None:
        """Read op messages from `offset` on."""
        return self._get_message(build_op_topic(), queue_id, offset, nums)

    def _get_message(self, topic: str, queue_id: int, offset: int, nums: int) -> GetResult | None:
        group = build_consumer_group()
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
            # Differs: a transaction check that reaches the end of the half queue does not log a warning; the original
            # logs one in every round
            log.warning("GetMessageStatus=%s, topic=%s, groupId=%s, requestOffset=%d", result.status.name, topic, group,
                        offset)
        return found

    def _count(self, group: str, topic: str, queue_id: int, result: GetMessageResult,
               messages: list[MessageExt]) -> None:
        stats = self._stats
        stats.inc_group_get_nums(group, topic, result.message_count)
        stats.inc_group_get_size(group, topic, result.buffer_total_size)
        stats.inc_broker_get_nums(result.message_count)
        if messages:
            stats.record_disk_fall_behind_time(group, topic, queue_id,
                                               util_all.current_time_millis() - messages[-1].store_timestamp)

    def async_put_half_message(self, message_inner: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store a message as a half message; `message_inner` is changed into the stored form."""
        return self._store.async_put_message(_parse_half_message_inner(message_inner))

    def put_op_message(self, message: MessageExt, op_type: str) -> bool:
        """Write the op message of a half message. Always returns True."""
        if op_type == REMOVETAG:
            self._add_remove_tag_in_transaction_op(message)
        return True

    def put_message_return_result(self, message_inner: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message, wait until it is stored, and return the result. Not on an IO thread."""
        return self._store.put_message(message_inner)

    def put_message(self, message_inner: MessageExtBrokerInner) -> bool:
        """Store a message, wait until it is stored, and return whether it is. Not on an IO thread."""
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
        """Return a copy to append of a half message that is still immune; it keeps its first queue offset."""
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        name = message_const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
        inner.put_property(name, message.get_user_property(name) or str(message.queue_offset))
        inner.properties_string = message_decoder.message_properties2string(inner.properties)
        return inner

    @staticmethod
    def renew_half_message_inner(message: MessageExt) -> MessageExtBrokerInner:
        """Return a copy of a half message to append to the half topic."""
        inner = MessageExtBrokerInner(message.topic, message.body)
        # Differs: a half message that is checked keeps its producer's flag; in the original it is delivered with flag 0
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
        inner.born_host = inner.store_host = self._addresses.store_host
        inner.wait_store_msg_ok = False
        message_client_id_setter.set_uniq_id(inner)
        return inner

    def _select_topic_config(self, topic: str) -> TopicConfig | None:
        return self._topics.select_topic_config(topic) or self._topics.create_topic_in_send_message_back_method(
            topic, 1, _READ_WRITE, 0)

    def _add_remove_tag_in_transaction_op(self, prepare_message: MessageExt) -> None:
        message = Message(build_op_topic(), str(prepare_message.queue_offset).encode(), REMOVETAG)
        inner = self._make_op_message_inner(message, prepare_message.queue_id)
        self._store.async_put_message(inner).then(lambda result: self._is_stored(inner, result))

    def look_message_by_offset(self, commit_log_offset: int) -> MessageExt | None:
        """Return the message at an offset of the commit log, with its body as stored; None if not found."""
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
    message.topic = build_half_topic()
    message.queue_id = 0
    message.properties_string = message_decoder.message_properties2string(message.properties)
    return message


MAX_PROCESS_TIME_LIMIT_MS = 60_000
MAX_RETRY_COUNT_WHEN_HALF_NULL = 1
# Number of op messages to read at a time.
_OP_MESSAGES = 32
_HOUR_MS = 3600 * 1000


@dataclass
class _QueueCheck:
    """The state of one check of one queue; owned by the checking thread. Times are ms since the epoch."""

    half_queue: MessageQueue
    op_queue: MessageQueue
    half_offset: int
    op_offset: int
    start_ms: int
    timeout_ms: int
    check_max: int
    listener: AbstractTransactionalMessageCheckListener
    # The offset of the current half message.
    offset: int
    # Offset of a finished half message -> offset of its op message.
    remove_map: dict[int, int] = field(default_factory=dict)
    # Offsets of op messages whose half message has been passed.
    done_op_offset: list[int] = field(default_factory=list)
    # The op messages that were read last.
    op_messages: GetResult = LATER
    # Number of half messages that were not found, plus 1.
    missing: int = 1


class TransactionalMessageServiceImpl(TransactionalMessageService):
    """The service for half messages, on top of `TransactionalMessageBridge`.

    Java: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl (4.9.8)
    """

    def __init__(self, transaction_bridge: TransactionalMessageBridge) -> None:
        self._bridge = transaction_bridge
        self._is_closed = False  # written by the owner, read by the checking thread

    def async_prepare_message(self, message_inner: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store a half message."""
        return self._bridge.async_put_half_message(message_inner)

    @staticmethod
    def _need_discard(message: MessageExt, transaction_check_max: int) -> bool:
        text = message.get_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES)
        return text is not None and _get_long(text) >= transaction_check_max

    @staticmethod
    def _count_question(message: MessageExt) -> None:
        """Count one more check in the message's properties.

        Differs: the rounds of the transaction check in which a message is immune do not count; the original discards a
        message whose immunity lasts longer than transactionCheckMax rounds, although its producer was never asked.
        """
        times = _get_long(message.get_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES) or "0")
        message.put_user_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES, str(times + 1))

    def _need_skip(self, message: MessageExt, timeout_ms: int) -> bool:
        hours = self._bridge.store_config.fileReservedTime
        immunity = message.get_user_property(message_const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        # Differs: the time after which a half message is discarded counts from the end of its immunity. The original
        # discards a message that is immune for longer than fileReservedTime without a check, although each time it was
        # appended it became a new record
        immune_ms = 0 if immunity is None else max(0, _get_immunity_time(immunity, timeout_ms))
        if util_all.current_time_millis() - message.born_timestamp <= hours * _HOUR_MS + immune_ms:
            return False
        log.info("Half message exceed file reserved time ,so skip it.messageId %s,bornTime %d", message.msg_id,
                 message.born_timestamp)
        return True

    def _put_back_half_msg_queue(self, message: MessageExt, offset: int) -> bool:
        result = self._bridge.put_message_return_result(self._bridge.renew_half_message_inner(message))
        append = result.append_message_result if result is not None else None
        if result is None or append is None or result.put_message_status is not PutMessageStatus.PUT_OK:
            log.error("PutBackToHalfQueueReturnResult write failed, topic: %s, queueId: %d, msgId: %s", message.topic,
                      message.queue_id, message.msg_id)
            return False
        message.queue_offset = append.logics_offset
        message.commit_log_offset = append.wrote_offset
        message.msg_id = append.msg_id
        log.debug("Send check message, the offset=%d restored in queueOffset=%d commitLogOffset=%d newMsgId=%s "
                  "realMsgId=%s topic=%s", offset, message.queue_offset, message.commit_log_offset, message.msg_id,
                  message.get_user_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), message.topic)
        return True

    def check(self, transaction_timeout_ms: int, transaction_check_max: int,
              listener: AbstractTransactionalMessageCheckListener) -> None:
        """Check the half messages that are older than the timeout and have no outcome; at most 60 s per queue."""
        try:
            for half_queue in self._bridge.fetch_message_queues(build_half_topic()):
                op_queue = MessageQueue(build_op_topic(), half_queue.brokerName, half_queue.queueId)
                half_offset = self._bridge.fetch_consume_offset(half_queue)
                op_offset = self._bridge.fetch_consume_offset(op_queue)
                log.info("Before check, the queue=%s msgOffset=%d opOffset=%d", half_queue, half_offset, op_offset)
                if half_offset < 0 or op_offset < 0:
                    log.error("MessageQueue: %s illegal offset read: %d, op offset: %d,skip this queue", half_queue,
                              half_offset, op_offset)
                    continue
                self._check_queue(_QueueCheck(
                    half_queue, op_queue, half_offset, op_offset, util_all.current_time_millis(),
                    transaction_timeout_ms, transaction_check_max, listener, half_offset))
        except Exception:
            log.exception("Check error")

    def _check_queue(self, check: _QueueCheck) -> None:
        op_messages = self._fill_op_remove_map(check, check.op_offset)
        if op_messages is None:
            log.error("The queue=%s check msgOffset=%d with opOffset=%d failed, pullResult is null", check.half_queue,
                      check.half_offset, check.op_offset)
            return
        check.op_messages = op_messages
        while not self._is_closed:
            if util_all.current_time_millis() - check.start_ms > MAX_PROCESS_TIME_LIMIT_MS:
                log.info("Queue=%s process time reach max=%d", check.half_queue, MAX_PROCESS_TIME_LIMIT_MS)
                break
            if check.offset in check.remove_map:
                check.done_op_offset.append(check.remove_map.pop(check.offset))
                check.offset += 1
            elif not self._check_half_message(check):
                break
        if check.offset != check.half_offset:
            self._bridge.update_consume_offset(check.half_queue, check.offset)
        new_op_offset = _calculate_op_offset(check.done_op_offset, check.op_offset)
        if new_op_offset != check.op_offset:
            self._bridge.update_consume_offset(check.op_queue, new_op_offset)

    def _check_half_message(self, check: _QueueCheck) -> bool:
        """Process the half message at `check.offset`; return False when this check is over."""
        result = self._bridge.get_half_message(check.half_queue.queueId, check.offset, 1)
        if result is None or not result.messages:
            return self._step_over_missing(check, result)
        message = result.messages[0]
        if self._need_discard(message, check.check_max) or self._need_skip(message, check.timeout_ms):
            check.listener.resolve_discard_msg(message)
            check.offset += 1
            return True
        if message.store_timestamp >= check.start_ms:
            log.debug("Fresh stored. the miss offset=%d, check it later, store=%d", check.offset,
                      message.store_timestamp)
            return False
        age_ms = util_all.current_time_millis() - message.born_timestamp
        immunity_ms = check.timeout_ms
        immunity = message.get_user_property(message_const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None:
            immunity_ms = _get_immunity_time(immunity, check.timeout_ms)
            if age_ms < immunity_ms:
                if self._check_prepare_queue_offset(check, message):
                    check.offset += 1
                    return True
                # Differs: a half message that cannot be appended ends the transaction check; the original retries until
                # its 60 s are over
                return False
        elif 0 <= age_ms < immunity_ms:
            log.debug("New arrived, the miss offset=%d, check it later checkImmunity=%d, born=%d", check.offset,
                      immunity_ms, message.born_timestamp)
            return False
        return self._ask_or_read_on(check, message, age_ms, immunity_ms)

    def _ask_or_read_on(self, check: _QueueCheck, message: MessageExt, age_ms: int, immunity_ms: int) -> bool:
        """Ask for the outcome if no op message of this half message can still be unread; otherwise read more of them.
        """
        op_messages = check.op_messages.messages
        if op_messages:
            need_check = op_messages[-1].born_timestamp - check.start_ms > check.timeout_ms
        else:
            need_check = age_ms > immunity_ms
        if need_check or age_ms <= -1:
            self._count_question(message)
            # Differs: a half message that cannot be appended ends the transaction check; the original retries until its
            # 60 s are over
            if not self._put_back_half_msg_queue(message, check.offset):
                return False
            check.listener.resolve_half_msg(message)
            check.offset += 1
            return True
        if not op_messages:
            return False
        more = self._fill_op_remove_map(check, check.op_messages.next_begin_offset)
        log.debug("The miss offset:%d in messageQueue:%s need to get more opMsg", check.offset, check.half_queue)
        if more is None:
            return False
        check.op_messages = more
        return True

    @staticmethod
    def _step_over_missing(check: _QueueCheck, result: GetResult | None) -> bool:
        if result is None or check.missing > MAX_RETRY_COUNT_WHEN_HALF_NULL:
            return False
        check.missing += 1
        if result.pull_status is PullStatus.NO_NEW_MSG:
            return False
        log.info("Illegal offset, the miss offset=%d in=%s, continue check=%d, next=%d", check.offset,
                 check.half_queue, check.missing, result.next_begin_offset)
        check.offset = result.next_begin_offset
        return True

    def _fill_op_remove_map(self, check: _QueueCheck, pull_offset_of_op: int) -> GetResult | None:
        """Read op messages from an offset on, and note which half messages are finished."""
        result = self._bridge.get_op_message(check.op_queue.queueId, pull_offset_of_op, _OP_MESSAGES)
        if result is None:
            return None
        if result.pull_status in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_MATCHED_MSG):
            log.warning("The miss op offset=%d in queue=%s is illegal, pullResult=%s", pull_offset_of_op,
                        check.op_queue, result)
            self._bridge.update_consume_offset(check.op_queue, result.next_begin_offset)
        for message in result.messages:
            queue_offset = _get_long(bytes(message.body).decode("utf-8", "replace"))
            if message.tags != REMOVETAG:
                log.error("Found a illegal tag in opMessageExt= %s ", message)
            elif queue_offset < check.half_offset:
                check.done_op_offset.append(message.queue_offset)
            else:
                check.remove_map[queue_offset] = message.queue_offset
        return result

    def _check_prepare_queue_offset(self, check: _QueueCheck, message: MessageExt) -> bool:
        """Pass over a half message that is still immune: it was finished under its first offset, or append it again.

        Returns False when it cannot be appended.
        """
        text = message.get_user_property(message_const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
        if text is not None:
            offset = _get_long(text)
            if offset == -1:
                return False
            if offset in check.remove_map:
                check.done_op_offset.append(check.remove_map.pop(offset))
                return True
        return self._bridge.put_message(self._bridge.renew_immunity_half_message_inner(message))

    def _get_half_message_by_offset(self, commit_log_offset: int) -> OperationResult:
        message = self._bridge.look_message_by_offset(commit_log_offset)
        if message is None:
            return OperationResult(None, response_code.SYSTEM_ERROR, "Find prepared transaction message failed")
        return OperationResult(message, response_code.SUCCESS)

    def delete_prepare_message(self, message_ext: MessageExt) -> bool:
        """Write the op message of a half message."""
        return self._bridge.put_op_message(message_ext, REMOVETAG)

    def commit_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """Return the half message at the header's commit log offset."""
        return self._get_half_message_by_offset(request_header.commitLogOffset)

    def rollback_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """Return the half message at the header's commit log offset."""
        return self._get_half_message_by_offset(request_header.commitLogOffset)

    def open(self) -> bool:
        """Allow checks."""
        self._is_closed = False
        return True

    def close(self) -> None:
        """Stop a running check at the next message."""
        # Differs: a broker that shuts down stops a running transaction check at the next message; the original waits up
        # to 60 s for it
        self._is_closed = True


def _get_long(text: str) -> int:
    try:
        return int(text) if text.isascii() and len(text) < 20 else -1
    except ValueError:
        log.error("GetLong error: %r is not a number", text)
        return -1


def _get_immunity_time(text: str, transaction_timeout_ms: int) -> int:
    seconds = _get_long(text)
    return transaction_timeout_ms if seconds == -1 else seconds * 1000


def _calculate_op_offset(done_offset: list[int], old_offset: int) -> int:
    """Return the offset after the finished op messages that follow `old_offset` without a gap."""
    new_offset = old_offset
    for offset in sorted(done_offset):
        if offset != new_offset:
            break
        new_offset += 1
    return new_offset


class DefaultTransactionalMessageCheckListener(AbstractTransactionalMessageCheckListener):
    """The listener that moves messages that were checked too often to TRANS_CHECK_MAX_TIME_TOPIC.

    Java: org.apache.rocketmq.broker.transaction.queue.DefaultTransactionalMessageCheckListener (4.9.8)
    """

    def __init__(self, producers: "ProducerManager", record_access: "RecordAccess", broker2_client: "Broker2Client",
                 put_message: Callable[[MessageExtBrokerInner], PutMessageResult],
                 topics: "TopicConfigManager") -> None:
        super().__init__(producers, record_access, broker2_client)
        self._put_message = put_message
        self._topics = topics

    def resolve_discard_msg(self, message: MessageExt) -> None:
        """Store a copy of the message in TRANS_CHECK_MAX_TIME_TOPIC."""
        log.error("MsgExt:%s has been checked too many times, so discard it by moving it to system topic "
                  "TRANS_CHECK_MAXTIME_TOPIC", message)
        inner = self._to_message_ext_broker_inner(message)
        result = self._put_message(inner) if inner is not None else None
        if result is not None and result.put_message_status is PutMessageStatus.PUT_OK:
            log.info("Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC OK. Restored in "
                     "queueOffset=%d, commitLogOffset=%d, real topic=%s", message.queue_offset,
                     message.commit_log_offset, message.get_user_property(message_const.PROPERTY_REAL_TOPIC))
        else:
            log.error("Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC failed, real topic=%s, "
                      "msgId=%s", message.topic, message.msg_id)

    def _to_message_ext_broker_inner(self, message: MessageExt) -> MessageExtBrokerInner | None:
        """Return the copy to store; None if the topic cannot be created.

        As in Java, the message is discarded then, and the check continues.
        """
        topic = self._topics.create_topic_of_tran_check_max_time(
            TCMT_QUEUE_NUMS, sys_flags.PERM_READ | sys_flags.PERM_WRITE)
        if topic is None:
            return None
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        inner.topic = topic.topicName
        inner.queue_id = 0
        inner.reconsume_times = message.reconsume_times
        return inner
