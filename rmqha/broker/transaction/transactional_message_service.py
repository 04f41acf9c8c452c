"""What the broker wants of whoever keeps half messages."""
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqha.common.futures import Completable
from rmqha.common.message.message import MessageExt
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult

if TYPE_CHECKING:
    from rmqha.broker.transaction.abstract_transactional_message_check_listener import (
        AbstractTransactionalMessageCheckListener,
    )


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
