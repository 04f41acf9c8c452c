"""How half messages are kept, ended and checked.

    half topic   h0 h1 h2 h3 ...     each half message once, and again each time it is put back for a check
    op topic     "h0" "h2" ...       one op message per ended half message, its body the half message's queue offset
    check        reads both from where the last check stopped; what has no op message and is old enough is put back
                 at the half topic's end and asked about, so the offset of done half messages can move on
"""
import logging
from dataclasses import dataclass, field

from rmqha.broker.transaction.abstract_transactional_message_check_listener import (
    AbstractTransactionalMessageCheckListener,
)
from rmqha.broker.transaction.queue import transactional_message_util as util
from rmqha.broker.transaction.queue.get_result import GetResult, PullStatus
from rmqha.broker.transaction.queue.transactional_message_bridge import TransactionalMessageBridge
from rmqha.broker.transaction.transactional_message_service import OperationResult, TransactionalMessageService
from rmqha.common import util_all
from rmqha.common.futures import Completable
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.common.texts import LATER
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult, PutMessageStatus

log = logging.getLogger("RocketmqTransaction")

MAX_PROCESS_TIME_LIMIT_MS = 60_000
MAX_RETRY_COUNT_WHEN_HALF_NULL = 1
_OP_MESSAGES = 32  # read at a time
_HOUR_MS = 3600 * 1000


@dataclass
class _QueueCheck:
    """One check of one queue; owned by the checking thread. Times are ms since the epoch."""

    half_queue: MessageQueue
    op_queue: MessageQueue
    half_offset: int
    op_offset: int
    start_ms: int
    timeout_ms: int
    check_max: int
    listener: AbstractTransactionalMessageCheckListener
    offset: int  # the half message looked at
    remove_map: dict[int, int] = field(default_factory=dict)  # ended half offset -> offset of its op message
    done_op_offset: list[int] = field(default_factory=list)  # op messages whose half message is done with
    op_messages: GetResult = LATER  # the last ones read
    missing: int = 1  # half messages that were not there


class TransactionalMessageServiceImpl(TransactionalMessageService):
    """Over a bridge to the store.

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
        """Note in the message that its producer is asked once more.

        Differs: the rounds in which a message is immune do not count; in the original one whose immunity is longer than
        transactionCheckMax rounds is discarded, and its producer was never asked.
        """
        times = _get_long(message.get_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES) or "0")
        message.put_user_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES, str(times + 1))

    def _need_skip(self, message: MessageExt, timeout_ms: int) -> bool:
        hours = self._bridge.broker_controller.message_store_config.fileReservedTime
        immunity = message.get_user_property(message_const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        # Differs: the time counts from the end of an immunity on; the original discards a message that is immune longer
        # than fileReservedTime without asking, though each time it was put back it became a new record
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
        """Go through the half messages that are older than the timeout and not ended; 60 s at most per queue."""
        try:
            for half_queue in self._bridge.fetch_message_queues(util.build_half_topic()):
                op_queue = MessageQueue(util.build_op_topic(), half_queue.brokerName, half_queue.queueId)
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
        """Deal with the half message at `check.offset`; False when this check is over."""
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
                # Differs: one that can't be put back ends the check; the original tries until its 60 s are over
                return False
        elif 0 <= age_ms < immunity_ms:
            log.debug("New arrived, the miss offset=%d, check it later checkImmunity=%d, born=%d", check.offset,
                      immunity_ms, message.born_timestamp)
            return False
        return self._ask_or_read_on(check, message, age_ms, immunity_ms)

    def _ask_or_read_on(self, check: _QueueCheck, message: MessageExt, age_ms: int, immunity_ms: int) -> bool:
        """Ask about the message if no op message of it can be there any more, else read more of them."""
        op_messages = check.op_messages.messages
        if op_messages:
            need_check = op_messages[-1].born_timestamp - check.start_ms > check.timeout_ms
        else:
            need_check = age_ms > immunity_ms
        if need_check or age_ms <= -1:
            self._count_question(message)
            # Differs: one that can't be put back ends the check; the original tries until its 60 s are over
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
        """Read op messages from an offset on, and note which half messages they end."""
        result = self._bridge.get_op_message(check.op_queue.queueId, pull_offset_of_op, _OP_MESSAGES)
        if result is None:
            return None
        if result.pull_status in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_MATCHED_MSG):
            log.warning("The miss op offset=%d in queue=%s is illegal, pullResult=%s", pull_offset_of_op,
                        check.op_queue, result)
            self._bridge.update_consume_offset(check.op_queue, result.next_begin_offset)
        for message in result.messages:
            queue_offset = _get_long(bytes(message.body).decode("utf-8", "replace"))
            if message.tags != util.REMOVETAG:
                log.error("Found a illegal tag in opMessageExt= %s ", message)
            elif queue_offset < check.half_offset:
                check.done_op_offset.append(message.queue_offset)
            else:
                check.remove_map[queue_offset] = message.queue_offset
        return result

    def _check_prepare_queue_offset(self, check: _QueueCheck, message: MessageExt) -> bool:
        """Whether a half message that is immune yet is done with: ended under its first offset, or put back."""
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
        return self._bridge.put_op_message(message_ext, util.REMOVETAG)

    def commit_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """The half message at the header's commit log offset."""
        return self._get_half_message_by_offset(request_header.commitLogOffset)

    def rollback_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """The half message at the header's commit log offset."""
        return self._get_half_message_by_offset(request_header.commitLogOffset)

    def open(self) -> bool:
        """Begin."""
        self._is_closed = False
        return True

    def close(self) -> None:
        """A check that runs stops at the next message."""
        # Differs: in the original this does nothing, and a broker that shuts down waits up to 60 s for a check
        self._is_closed = True


def _get_long(text: str) -> int:
    try:
        return int(text) if text.isascii() and len(text) < 20 else -1
    except ValueError:
        log.error("GetLong error: %r is no number", text)
        return -1


def _get_immunity_time(text: str, transaction_timeout_ms: int) -> int:
    seconds = _get_long(text)
    return transaction_timeout_ms if seconds == -1 else seconds * 1000


def _calculate_op_offset(done_offset: list[int], old_offset: int) -> int:
    """The offset behind the op messages that are done without a gap from `old_offset` on."""
    new_offset = old_offset
    for offset in sorted(done_offset):
        if offset != new_offset:
            break
        new_offset += 1
    return new_offset
