"""Admin requests about transactions."""
import logging
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, system_error
from rmqha.broker.transaction.queue import transactional_message_util
from rmqha.broker.transaction.queue.transactional_message_bridge import TransactionalMessageBridge
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import ResumeCheckHalfMessageRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.results import PutMessageStatus

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")


class AdminTransactionHandlers(AdminHandlers):
    """RESUME_CHECK_HALF_MESSAGE."""

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {request_code.RESUME_CHECK_HALF_MESSAGE: self.resume_check_half_message}

    def resume_check_half_message(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Put a half message back, as one that was never asked about."""
        header = request.decode_command_custom_header(ResumeCheckHalfMessageRequestHeader)
        offset = _offset_of(header.msgId)
        message = self.broker_controller.message_store.look_message_by_offset(offset) if offset is not None else None
        if offset is None or message is None:
            log.error("Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")
            return system_error("Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")
        self.broker_controller.record_access.check_ending(channel, request, message, offset)
        message.put_user_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES, "0")
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        inner.topic = transactional_message_util.build_half_topic()
        inner.queue_id = 0
        inner.reconsume_times = message.reconsume_times
        result = self.broker_controller.message_store.put_message(inner)
        if result is not None and result.put_message_status is PutMessageStatus.PUT_OK:
            log.info("Put message back to RMQ_SYS_TRANS_HALF_TOPIC. real topic=%s",
                     message.get_user_property(message_const.PROPERTY_REAL_TOPIC))
            return success()
        log.error("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return system_error("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")


def _offset_of(msg_id: str | None) -> int | None:
    """The commit log offset of an offset message id; None when it is not one.

    Differs: the message's body stays as it is stored; the original decompresses it and stores it with the flag of a
    compressed one.
    """
    try:
        return message_decoder.decode_message_id(msg_id or "").offset
    except MessageDecodeError as failure:
        log.error("resumeCheckHalfMessage: %s", failure)
        return None
