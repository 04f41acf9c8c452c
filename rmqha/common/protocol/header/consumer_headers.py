"""Headers of consumer groups: members and offsets."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import INTEGER, LONG, CommandCustomHeader, RpcRequestHeader, not_null


@dataclass
class GetConsumerListByGroupRequestHeader(CommandCustomHeader):
    """The clients of a group (GET_CONSUMER_LIST_BY_GROUP).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()


@dataclass
class GetConsumerListByGroupResponseHeader(CommandCustomHeader):
    """Nothing; see GetConsumerListByGroupResponseBody.

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupResponseHeader (4.9.8)
    """


@dataclass
class GetConsumerListByGroupResponseBody:
    """The client ids of a group (body of GET_CONSUMER_LIST_BY_GROUP).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupResponseBody (4.9.8)
    """

    consumerIdList: list[str] | None = None


@dataclass
class QueryConsumerOffsetRequestHeader(RpcRequestHeader):
    """A group's offset in a queue (QUERY_CONSUMER_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.QueryConsumerOffsetRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class QueryConsumerOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.QueryConsumerOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class UpdateConsumerOffsetRequestHeader(RpcRequestHeader):
    """A group's new offset in a queue (UPDATE_CONSUMER_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.UpdateConsumerOffsetRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str = not_null()
    queueId: int = not_null(INTEGER)
    commitOffset: int = not_null(LONG)


@dataclass
class UpdateConsumerOffsetResponseHeader(CommandCustomHeader):
    """Nothing.

    Java: org.apache.rocketmq.common.protocol.header.UpdateConsumerOffsetResponseHeader (4.9.8)
    """


@dataclass
class NotifyConsumerIdsChangedRequestHeader(CommandCustomHeader):
    """A broker tells that a group's members changed (NOTIFY_CONSUMER_IDS_CHANGED).

    Java: org.apache.rocketmq.common.protocol.header.NotifyConsumerIdsChangedRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()


@dataclass
class UnregisterClientRequestHeader(CommandCustomHeader):
    """A client leaves its groups (UNREGISTER_CLIENT).

    Java: org.apache.rocketmq.common.protocol.header.UnregisterClientRequestHeader (4.9.8)
    """

    clientID: str = not_null(lax=True)
    producerGroup: str | None = None
    consumerGroup: str | None = None


@dataclass
class UnregisterClientResponseHeader(CommandCustomHeader):
    """Nothing.

    Java: org.apache.rocketmq.common.protocol.header.UnregisterClientResponseHeader (4.9.8)
    """
