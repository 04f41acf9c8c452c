"""Commits and rollbacks of half messages.

    IO thread: find and check the half message -> store the message -> its op message --> response, by the thread that
    completes the put
"""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import NO_REMARK
from rmqha.broker.transaction import transactional_message_service_impl
from rmqha.common import sys_flags
from rmqha.common.futures import Completable
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt, parse_int
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.remoting.addresses import exception_simple_desc, parse_channel_remote_addr
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_fast_failure import HandOver
    from rmqha.broker.record_access import RecordAccess
    from rmqha.broker.transaction.transactional_message_service import OperationResult, TransactionalMessageService
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.deleted_topics import DeletedTopics
    from rmqha.store.message_store_config import MessageStoreConfig
    from rmqha.store.role import Role

log = logging.getLogger("RocketmqTransaction")

_STORED = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
           PutMessageStatus.SLAVE_NOT_AVAILABLE)
# (after a check, outcome) -> log message
_NOTICES = {
    (True, sys_flags.TRANSACTION_NOT_TYPE): "Check producer[%s] transaction state, but it's pending status.",
    (True, sys_flags.TRANSACTION_COMMIT_TYPE):
        "Check producer[%s] transaction state, the producer commit the message.",
    (True, sys_flags.TRANSACTION_ROLLBACK_TYPE):
        "Check producer[%s] transaction state, the producer rollback the message.",
    (False, sys_flags.TRANSACTION_NOT_TYPE):
        "The producer[%s] end transaction in sending message,  and it's pending status.",
    (False, sys_flags.TRANSACTION_ROLLBACK_TYPE):
        "The producer[%s] end transaction in sending message, rollback the message.",
}


class EndTransactionProcessor:
    """Processor of END_TRANSACTION.

    Java: org.apache.rocketmq.broker.processor.EndTransactionProcessor (4.9.8)
    """

    # Differs: END_TRANSACTION is served by the thread that read the request, without waiting;
    # endTransactionThreadPoolNums is not used.
    def __init__(self, message_store_config: "MessageStoreConfig", role: "Role", deleted_topics: "DeletedTopics",
                 put: Callable[[MessageExtBrokerInner], Completable[PutMessageResult]],
                 transactions: "TransactionalMessageService", record_access: "RecordAccess",
                 hand_over: "HandOver") -> None:
        self._store_config = message_store_config
        self._role = role
        self._deleted_topics = deleted_topics
        self._put = put
        self._transactions = transactions
        self._record_access = record_access
        self._hand_over = hand_over  # to SendMessageThread_<n>

    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve one request; None, and so no response, if the producer does not know the outcome yet."""
        header = request.decode_command_custom_header(EndTransactionRequestHeader)
        if self._role.is_slave:
            log.warning("Message store is slave mode, so end transaction is forbidden. ")
            return _answer(response_code.SLAVE_NOT_AVAILABLE, NO_REMARK)
        outcome = header.commitOrRollback
        notice = _NOTICES.get((bool(header.fromTransactionCheck), outcome))
        if notice is not None:
            log.warning(notice + "RequestHeader: %s Remark: %s", parse_channel_remote_addr(channel), header,
                        request.remark)
        if outcome == sys_flags.TRANSACTION_COMMIT_TYPE:
            return self._in_turn(lambda: self._commit(channel, request, header))
        if outcome == sys_flags.TRANSACTION_ROLLBACK_TYPE:
            return self._in_turn(lambda: self._rollback(channel, request, header))
        return None

    def reject_request(self) -> bool:
        """Return False: these requests are never rejected."""
        return False

    def _in_turn(self, end: "Callable[[], Answer]") -> "Answer":
        """Run `end` here, or in a pool when access control is on: its check waits for the half message's dispatch."""
        return self._hand_over(end) if self._record_access.is_on else end()

    def _commit(self, channel: "Channel", request: RemotingCommand, header: EndTransactionRequestHeader) -> "Answer":
        service = self._transactions
        half = self._half_message(channel, request, header, service.commit_message(header))
        if isinstance(half, RemotingCommand):
            return half
        if self._deleted_topics.is_message_dead(half):
            # Differs: a half message is deleted with its topic; the original commits it even to a topic that was
            # deleted and created again
            log.warning("the topic of the half message at %s was deleted; the message is not committed",
                        header.commitLogOffset)
            service.delete_prepare_message(half)
            return _answer(response_code.SUCCESS)
        message = _end_message_transaction(half)
        message.sys_flag = sys_flags.reset_transaction_value(message.sys_flag, header.commitOrRollback)
        message.queue_offset = header.tranStateTableOffset
        message.prepared_transaction_offset = header.commitLogOffset
        message.store_timestamp = half.store_timestamp
        message.clear_property(message_const.PROPERTY_TRANSACTION_PREPARED)

        def sent(put: PutMessageResult | None) -> RemotingCommand:
            response = self._send_final_message(put)
            if response.code == response_code.SUCCESS:
                service.delete_prepare_message(half)
            return response

        return self._put(message).then_apply(
            sent, lambda failure: _answer(response_code.SYSTEM_ERROR, exception_simple_desc(failure)))

    def _rollback(self, channel: "Channel", request: RemotingCommand, header: EndTransactionRequestHeader) -> "Answer":
        service = self._transactions
        half = self._half_message(channel, request, header, service.rollback_message(header))
        if isinstance(half, RemotingCommand):
            return half
        service.delete_prepare_message(half)
        return _answer(response_code.SUCCESS, NO_REMARK)

    def _half_message(self, channel: "Channel", request: RemotingCommand, header: EndTransactionRequestHeader,
                      result: "OperationResult") -> MessageExt | RemotingCommand:
        """Return the half message, or the error response if it cannot be finished.

        Raises AclException when the requester has no permission.
        """
        half = result.prepare_message
        if half is None:
            return _answer(result.response_code, result.response_remark)
        wrong = _check_prepare_message(half, header)
        if wrong is not None:
            return _answer(response_code.SYSTEM_ERROR, wrong)
        self._record_access.check_ending(channel, request, half, header.commitLogOffset)
        return half

    def _send_final_message(self, result: PutMessageResult | None) -> RemotingCommand:
        if result is None:
            return _answer(response_code.SYSTEM_ERROR, "store putMessage return null")
        status = result.put_message_status
        if status in _STORED:
            return _answer(response_code.SUCCESS)
        if status is PutMessageStatus.CREATE_MAPEDFILE_FAILED:
            return _answer(response_code.SYSTEM_ERROR, "Create mapped file failed.")
        if status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            limit = self._store_config.maxMessageSize
            return _answer(response_code.MESSAGE_ILLEGAL, "The message is illegal, maybe msg body or properties length "
                           f"not matched. msg body length limit {limit}B, msg properties length limit 32KB.")
        if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return _answer(response_code.SERVICE_NOT_AVAILABLE, "Service not available now.")
        if status is PutMessageStatus.OS_PAGECACHE_BUSY:
            return _answer(response_code.SYSTEM_ERROR, "OS page cache busy, please try another machine")
        unknown = status is PutMessageStatus.UNKNOWN_ERROR
        return _answer(response_code.SYSTEM_ERROR, "UNKNOWN_ERROR" if unknown else "UNKNOWN_ERROR DEFAULT")


def _check_prepare_message(message: MessageExt, header: EndTransactionRequestHeader) -> str | None:
    """Return why `message` is not the half message that the request names; None when it is."""
    if message.get_property(message_const.PROPERTY_PRODUCER_GROUP) != header.producerGroup:
        return "The producer group wrong"
    if message.queue_offset != header.tranStateTableOffset:
        return "The transaction state table offset wrong"
    if message.commit_log_offset != header.commitLogOffset:
        return "The commit log offset wrong"
    # Differs: END_TRANSACTION commits only messages of the half topic; the original accepts any record that has the
    # properties of a half message, and a producer can set them on any message
    if message.topic != transactional_message_service_impl.build_half_topic():
        return "The message is not a half message"
    return None


def _end_message_transaction(message: MessageExt) -> MessageExtBrokerInner:
    """Return the message for its real topic. Its stored properties keep those of the transaction, as in Java."""
    inner = MessageExtBrokerInner(message.properties[message_const.PROPERTY_REAL_TOPIC], message.body)
    inner.queue_id = parse_int(message.properties[message_const.PROPERTY_REAL_QUEUE_ID])
    inner.flag = message.flag
    inner.born_timestamp = message.born_timestamp
    inner.born_host = message.born_host
    inner.store_host = message.store_host
    inner.reconsume_times = message.reconsume_times
    inner.transaction_id = message.get_user_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    inner.sys_flag = message.sys_flag
    inner.tags_code = MessageExtBrokerInner.tags_string2tags_code(None, message.tags)
    inner.properties = message.properties
    inner.properties_string = message_decoder.message_properties2string(message.properties)
    inner.clear_property(message_const.PROPERTY_REAL_TOPIC)
    inner.clear_property(message_const.PROPERTY_REAL_QUEUE_ID)
    return inner


def _answer(code: int, remark: str | None = None) -> RemotingCommand:
    return RemotingCommand.create_response_command(code, remark)
