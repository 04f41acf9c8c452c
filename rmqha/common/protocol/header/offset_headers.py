"""Headers of questions about the offsets of a queue."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import INTEGER, LONG, CommandCustomHeader, RpcRequestHeader, not_null


@dataclass
class SearchOffsetRequestHeader(RpcRequestHeader):
    """The offset at a time in ms (SEARCH_OFFSET_BY_TIMESTAMP).

    Java: org.apache.rocketmq.common.protocol.header.SearchOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)
    timestamp: int = not_null(LONG)


@dataclass
class SearchOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.SearchOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class GetMaxOffsetRequestHeader(RpcRequestHeader):
    """The next offset of a queue (GET_MAX_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.GetMaxOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class GetMaxOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.GetMaxOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class GetMinOffsetRequestHeader(RpcRequestHeader):
    """The first offset of a queue (GET_MIN_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.GetMinOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class GetMinOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.GetMinOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class GetEarliestMsgStoretimeRequestHeader(RpcRequestHeader):
    """When the first message of a queue was stored (GET_EARLIEST_MSG_STORETIME).

    Java: org.apache.rocketmq.common.protocol.header.GetEarliestMsgStoretimeRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class GetEarliestMsgStoretimeResponseHeader(CommandCustomHeader):
    """The time in ms, -1 when there is none.

    Java: org.apache.rocketmq.common.protocol.header.GetEarliestMsgStoretimeResponseHeader (4.9.8)
    """

    timestamp: int = not_null(LONG)
