"""The broker's interface to half messages, and the thread that checks those without an outcome.

- `TransactionalMessageService`: interface of the service that stores half messages.
- `AbstractTransactionalMessageCheckListener`: handles half messages that are due for a check.
- `TransactionalMessageCheckService`: the thread.

    TransactionalMessageCheckService: every transactionCheckInterval ms -> TransactionalMessageService.check
"""
import logging
from typing import TYPE_CHECKING

from rmqha.common import util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Completable
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, parse_int
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rmqha.common.service_thread import ServiceThread
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult

if TYPE_CHECKING:
    from rmqha.broker.client.broker2_client import Broker2Client
    from rmqha.broker.client.producer_manager import ProducerManager
    from rmqha.broker.record_access import RecordAccess


@dataclass
class OperationResult:
    """A half message with the code SUCCESS, or the response code and remark of an error.

    Java: org.apache.rocketmq.broker.transaction.OperationResult (4.9.8)
    """

    prepare_message: MessageExt | None = None
    response_code: int = 0
    response_remark: str | None = None


class TransactionalMessageService:
    """Stores and finds half messages, marks them as finished, and checks those without an outcome.

    Java: org.apache.rocketmq.broker.transaction.TransactionalMessageService (4.9.8)
    """

    def async_prepare_message(self, message_inner: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store a half message; `message_inner` is changed into the stored form."""
        raise NotImplementedError

    def delete_prepare_message(self, message_ext: MessageExt) -> bool:
        """Mark a half message as finished."""
        raise NotImplementedError

    def commit_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """Return the half message to commit."""
        raise NotImplementedError

    def rollback_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """Return the half message to roll back."""
        raise NotImplementedError

    def check(self, transaction_timeout_ms: int, transaction_check_max: int,
              listener: "AbstractTransactionalMessageCheckListener") -> None:
        """Check the half messages that are older than the timeout and have no outcome."""
        raise NotImplementedError

    def open(self) -> bool:
        """Start the service."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the service: a running check stops at the next message."""
        raise NotImplementedError


log = logging.getLogger("RocketmqTransaction")

TCMT_QUEUE_NUMS = 1  # queues of TRANS_CHECK_MAX_TIME_TOPIC


class AbstractTransactionalMessageCheckListener:
    """Sends the checks to producers; a subclass decides what happens to messages that were checked too often.

    Java: org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener (4.9.8)
    """

    def __init__(self, producers: "ProducerManager", record_access: "RecordAccess",
                 broker2_client: "Broker2Client") -> None:
        self._producers = producers
        self._record_access = record_access
        self._broker2_client = broker2_client

    def send_check_message(self, message: MessageExt) -> None:
        """Ask one producer of the message's group for the outcome, without waiting for it.

        `message` has the queue offset and commit log offset of the half message; it is sent with its real topic.
        Raises ValueError when the record is invalid.
        """
        header = CheckTransactionStateRequestHeader(
            tranStateTableOffset=message.queue_offset, commitLogOffset=message.commit_log_offset,
            offsetMsgId=message.msg_id)
        header.msgId = message.get_user_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        header.transactionId = header.msgId
        topic = message.get_user_property(message_const.PROPERTY_REAL_TOPIC)
        queue_id = message.get_user_property(message_const.PROPERTY_REAL_QUEUE_ID)
        if topic is None or queue_id is None:
            raise ValueError(f"half message {message.msg_id} lacks {message_const.PROPERTY_REAL_TOPIC} or "
                             f"{message_const.PROPERTY_REAL_QUEUE_ID}")
        message.topic = topic
        message.queue_id = parse_int(queue_id)
        message.store_size = 0
        group = message.get_property(message_const.PROPERTY_PRODUCER_GROUP)
        # Differs: with access control on, only a producer that may send to the topic is asked about a transaction,
        # because the check contains the message; the original asks any client that claims to belong to the group
        access = self._record_access
        channel = self._producers.get_available_channel(
            group, (lambda producer: access.may_end(producer, topic)) if access.is_on else None)
        if channel is None:
            log.warning("Check transaction failed, channel is null. groupId=%s", group)
            return
        self._broker2_client.check_producer_transaction_state(group, channel, header, message)

    def resolve_half_msg(self, message: MessageExt) -> None:
        """Send a check for a message."""
        # Differs: the thread of the transaction check sends the checks itself; sending only queues a request at the
        # connection, so no pool is needed
        try:
            self.send_check_message(message)
        except ValueError:
            log.exception("Send check message error!")

    def resolve_discard_msg(self, message: MessageExt) -> None:
        """Handle a message that was checked too often."""
        raise NotImplementedError


class TransactionalMessageCheckService(ServiceThread):
    """The thread that checks half messages. Runs on masters only.

    Java: org.apache.rocketmq.broker.transaction.TransactionalMessageCheckService (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, service: TransactionalMessageService,
                 listener: AbstractTransactionalMessageCheckListener) -> None:
        super().__init__()
        self._config = broker_config
        self._service = service
        self._listener = listener

    def run(self) -> None:
        log.info("Start transaction check service thread!")
        while not self.stopped:
            # Differs: a change of transactionCheckInterval at run time applies from the next round
            self.wait_for_running(self._config.transactionCheckInterval)
        log.info("End transaction check service thread!")

    def on_wait_end(self) -> None:
        # Differs: a broker that shuts down does not run a final transaction check
        if self.stopped:
            return
        config = self._config
        begin = util_all.current_time_millis()
        log.info("Begin to check prepare message, begin time:%d", begin)
        self._service.check(config.transactionTimeOut, config.transactionCheckMax, self._listener)
        log.info("End to check prepare message, consumed time:%d", util_all.current_time_millis() - begin)
