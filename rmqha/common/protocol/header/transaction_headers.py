"""Headers of transactions."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    RpcRequestHeader,
    not_null,
)
from rmqha.common.sysflag import message_sys_flag

_OUTCOMES = (message_sys_flag.TRANSACTION_COMMIT_TYPE, message_sys_flag.TRANSACTION_ROLLBACK_TYPE)


@dataclass
class EndTransactionRequestHeader(RpcRequestHeader):
    """A producer commits or rolls back a half message (END_TRANSACTION).

    Java: org.apache.rocketmq.common.protocol.header.EndTransactionRequestHeader (4.9.8)
    """

    producerGroup: str = not_null(lax=True)
    tranStateTableOffset: int = not_null(LONG)
    commitLogOffset: int = not_null(LONG)
    commitOrRollback: int = not_null(INTEGER)
    fromTransactionCheck: bool | None = False
    msgId: str = not_null(lax=True)
    transactionId: str | None = None

    def check_fields(self) -> None:
        """The outcome must be unknown, commit or rollback."""
        if self.commitOrRollback not in (message_sys_flag.TRANSACTION_NOT_TYPE, *_OUTCOMES):
            raise HeaderFieldError("commitOrRollback field wrong")


@dataclass
class EndTransactionResponseHeader(CommandCustomHeader):
    """Nothing.

    Java: org.apache.rocketmq.common.protocol.header.EndTransactionResponseHeader (4.9.8)
    """


@dataclass
class CheckTransactionStateRequestHeader(RpcRequestHeader):
    """A broker asks a producer for the outcome of a half message (CHECK_TRANSACTION_STATE).

    Java: org.apache.rocketmq.common.protocol.header.CheckTransactionStateRequestHeader (4.9.8)
    """

    tranStateTableOffset: int = not_null(LONG)
    commitLogOffset: int = not_null(LONG)
    msgId: str | None = None
    transactionId: str | None = None
    offsetMsgId: str | None = None


@dataclass
class CheckTransactionStateResponseHeader(CommandCustomHeader):
    """The outcome. Unused: producers answer with END_TRANSACTION.

    Java: org.apache.rocketmq.common.protocol.header.CheckTransactionStateResponseHeader (4.9.8)
    """

    producerGroup: str = not_null()
    tranStateTableOffset: int = not_null(LONG)
    commitLogOffset: int = not_null(LONG)
    commitOrRollback: int = not_null(INTEGER)

    def check_fields(self) -> None:
        """The outcome must be commit or rollback."""
        if self.commitOrRollback not in _OUTCOMES:
            raise HeaderFieldError("commitOrRollback field wrong")


@dataclass
class ResumeCheckHalfMessageRequestHeader(CommandCustomHeader):
    """Check a half message again from the start (RESUME_CHECK_HALF_MESSAGE).

    Java: org.apache.rocketmq.common.protocol.header.ResumeCheckHalfMessageRequestHeader (4.9.8)
    """

    msgId: str | None = None
