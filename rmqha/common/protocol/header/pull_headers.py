"""Headers of pulling."""
from dataclasses import dataclass

from rmqha.common.filter import expression_type
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    RpcRequestHeader,
    not_null,
)
from rmqha.common.sysflag import pull_sys_flag


@dataclass
class PullMessageRequestHeader(RpcRequestHeader):
    """A consumer wants messages of one queue from an offset on (PULL_MESSAGE).

    Java: org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str = not_null()
    queueId: int = not_null(INTEGER)
    queueOffset: int = not_null(LONG)
    maxMsgNums: int = not_null(INTEGER)
    sysFlag: int = not_null(INTEGER)
    commitOffset: int = not_null(LONG, lax=True)
    suspendTimeoutMillis: int = not_null(LONG, lax=True)
    subscription: str | None = None
    subVersion: int = not_null(LONG, lax=True)
    expressionType: str | None = None

    def check_fields(self) -> None:
        """What the flags speak of must be there."""
        if self.commitOffset is not None and self.suspendTimeoutMillis is not None and self.subVersion is not None:
            return
        flags = self.sysFlag
        for name, needed in (("commitOffset", pull_sys_flag.has_commit_offset_flag(flags)),
                             ("suspendTimeoutMillis", pull_sys_flag.has_suspend_flag(flags)),
                             ("subVersion", not pull_sys_flag.has_subscription_flag(flags)
                              or not expression_type.is_tag_type(self.expressionType))):
            if needed and getattr(self, name) is None:
                raise HeaderFieldError(f"the custom field <{name}> is null")


@dataclass
class PullMessageResponseHeader(CommandCustomHeader):
    """Where to go on, and the queue's range; the records are the body.

    Java: org.apache.rocketmq.common.protocol.header.PullMessageResponseHeader (4.9.8)
    """

    suggestWhichBrokerId: int = not_null(LONG)
    nextBeginOffset: int = not_null(LONG)
    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)
