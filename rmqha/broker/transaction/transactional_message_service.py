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
    """`prepare_message` with SUCCESS, or a response code and a remark without one.

    Java: org.apache.rocketmq.broker.transaction.OperationResult (4.9.8)
    """

    prepare_message: MessageExt | None = None
    response_code: int = 0
    response_remark: str | None = None


class TransactionalMessageService:
    """Keeps half messages, finds them, ticks them off, and asks about those that nobody ended.

    Java: org.apache.rocketmq.broker.transaction.TransactionalMessageService (4.9.8)
    """

    def async_prepare_message(self, message_inner: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store a half message; `message_inner` becomes what is stored."""
        raise NotImplementedError

    def delete_prepare_message(self, message_ext: MessageExt) -> bool:
        """Tick a half message off."""
        raise NotImplementedError

    def commit_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """The half message that is to be committed."""
        raise NotImplementedError

    def rollback_message(self, request_header: EndTransactionRequestHeader) -> OperationResult:
        """The half message that is to be rolled back."""
        raise NotImplementedError

    def check(self, transaction_timeout_ms: int, transaction_check_max: int,
              listener: "AbstractTransactionalMessageCheckListener") -> None:
        """Go through the half messages that are older than the timeout and not ended."""
        raise NotImplementedError

    def open(self) -> bool:
        """Begin."""
        raise NotImplementedError

    def close(self) -> None:
        """End: a check that runs stops at the next message."""
        raise NotImplementedError


log = logging.getLogger("RocketmqTransaction")

TCMT_QUEUE_NUMS = 1  # queues of TRANS_CHECK_MAX_TIME_TOPIC


class AbstractTransactionalMessageCheckListener:
    """Asks the producers; what is done with messages that were asked about too often is for the subclass to say.

    Java: org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener (4.9.8)
    """

    def __init__(self, producers: "ProducerManager", record_access: "RecordAccess",
                 broker2_client: "Broker2Client") -> None:
        self._producers = producers
        self._record_access = record_access
        self._broker2_client = broker2_client

    def send_check_message(self, message: MessageExt) -> None:
        """Ask one producer of the message's group for its outcome; no answer is waited for. ValueError: a bad record.

        `message` lies at its queue and commit log offset in the half topic; it goes out as of its real topic.
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
        # Differs: with access control on, only a producer that may send to the topic is asked, for the question brings
        # the message; the original asks whoever says that he belongs to the group
        access = self._record_access
        channel = self._producers.get_available_channel(
            group, (lambda producer: access.may_end(producer, topic)) if access.is_on else None)
        if channel is None:
            log.warning("Check transaction failed, channel is null. groupId=%s", group)
            return
        self._broker2_client.check_producer_transaction_state(group, channel, header, message)

    def resolve_half_msg(self, message: MessageExt) -> None:
        """Ask about a message."""
        # Differs: the checking thread asks itself; a request is only queued at the connection, so it needs no pool
        try:
            self.send_check_message(message)
        except ValueError:
            log.exception("Send check message error!")

    def resolve_discard_msg(self, message: MessageExt) -> None:
        """Put away a message that was asked about too often."""
        raise NotImplementedError


class TransactionalMessageCheckService(ServiceThread):
    """Runs on masters only.

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
            # Differs: a change of transactionCheckInterval at run time counts from the next round on
            self.wait_for_running(self._config.transactionCheckInterval)
        log.info("End transaction check service thread!")

    def on_wait_end(self) -> None:
        # Differs: no last check while the broker shuts down
        if self.stopped:
            return
        config = self._config
        begin = util_all.current_time_millis()
        log.info("Begin to check prepare message, begin time:%d", begin)
        self._service.check(config.transactionTimeOut, config.transactionCheckMax, self._listener)
        log.info("End to check prepare message, consumed time:%d", util_all.current_time_millis() - begin)
