"""Headers of looking messages up."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import INTEGER, LONG, CommandCustomHeader, not_null, nullable


@dataclass
class QueryMessageRequestHeader(CommandCustomHeader):
    """Messages by key (QUERY_MESSAGE). Times in ms.

    Java: org.apache.rocketmq.common.protocol.header.QueryMessageRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    key: str = not_null(lax=True)
    maxNum: int = not_null(INTEGER)
    beginTimestamp: int = not_null(LONG)
    endTimestamp: int = not_null(LONG)


@dataclass
class QueryMessageResponseHeader(CommandCustomHeader):
    """How far the index went; the records are the body.

    Java: org.apache.rocketmq.common.protocol.header.QueryMessageResponseHeader (4.9.8)
    """

    indexLastUpdateTimestamp: int = not_null(LONG)
    indexLastUpdatePhyoffset: int = not_null(LONG)


@dataclass
class ViewMessageRequestHeader(CommandCustomHeader):
    """The record at a commit log offset (VIEW_MESSAGE_BY_ID).

    Java: org.apache.rocketmq.common.protocol.header.ViewMessageRequestHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class ViewMessageResponseHeader(CommandCustomHeader):
    """Nothing; the record is the body.

    Java: org.apache.rocketmq.common.protocol.header.ViewMessageResponseHeader (4.9.8)
    """


@dataclass
class QueryConsumeQueueRequestHeader(CommandCustomHeader):
    """`count` units of a consume queue from `index` on (QUERY_CONSUME_QUEUE).

    Java: org.apache.rocketmq.common.protocol.header.QueryConsumeQueueRequestHeader (4.9.8)
    """

    topic: str | None = None
    queueId: int = nullable(INTEGER, default=0)
    index: int = nullable(LONG, default=0)
    count: int = nullable(INTEGER, default=0)
    consumerGroup: str | None = None
