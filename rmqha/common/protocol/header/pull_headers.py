"""Headers of pulling."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import INTEGER, LONG, CommandCustomHeader, RpcRequestHeader, not_null


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
    commitOffset: int = not_null(LONG)
    suspendTimeoutMillis: int = not_null(LONG)
    subscription: str | None = None
    subVersion: int = not_null(LONG)
    expressionType: str | None = None


@dataclass
class PullMessageResponseHeader(CommandCustomHeader):
    """Where to go on, and the queue's range; the records are the body.

    Java: org.apache.rocketmq.common.protocol.header.PullMessageResponseHeader (4.9.8)
    """

    suggestWhichBrokerId: int = not_null(LONG)
    nextBeginOffset: int = not_null(LONG)
    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)
