"""Headers of administering consumers."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import LONG, CommandCustomHeader, not_null


@dataclass
class GetConsumeStatsRequestHeader(CommandCustomHeader):
    """A group's progress (GET_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumeStatsRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str | None = None


@dataclass
class GetConsumeStatsInBrokerHeader(CommandCustomHeader):
    """All groups' progress (GET_BROKER_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumeStatsInBrokerHeader (4.9.8)
    """

    isOrder: bool = not_null(default=False)


@dataclass
class ResetOffsetRequestHeader(CommandCustomHeader):
    """Set a group's offsets to a time in ms, -1 = the end.

    (INVOKE_BROKER_TO_RESET_OFFSET, RESET_CONSUMER_CLIENT_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.ResetOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    group: str = not_null(lax=True)
    timestamp: int = not_null(LONG, default=0)
    isForce: bool = not_null(default=False)


@dataclass
class GetConsumerStatusRequestHeader(CommandCustomHeader):
    """A group's offsets as its clients see them.

    (INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GET_CONSUMER_STATUS_FROM_CLIENT).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerStatusRequestHeader (4.9.8)
    """

    topic: str = not_null()
    group: str = not_null()
    clientAddr: str | None = None


@dataclass
class QueryTopicConsumeByWhoRequestHeader(CommandCustomHeader):
    """The groups that consume a topic (QUERY_TOPIC_CONSUME_BY_WHO).

    Java: org.apache.rocketmq.common.protocol.header.QueryTopicConsumeByWhoRequestHeader (4.9.8)
    """

    topic: str = not_null()


@dataclass
class QueryConsumeTimeSpanRequestHeader(CommandCustomHeader):
    """First, last and consumed store times of the queues (QUERY_CONSUME_TIME_SPAN).

    Java: org.apache.rocketmq.common.protocol.header.QueryConsumeTimeSpanRequestHeader (4.9.8)
    """

    topic: str = not_null()
    group: str = not_null(lax=True)


@dataclass
class QueryCorrectionOffsetHeader(CommandCustomHeader):
    """The least offsets of other groups (QUERY_CORRECTION_OFFSET). `filterGroups`: separated by commas.

    Java: org.apache.rocketmq.common.protocol.header.QueryCorrectionOffsetHeader (4.9.8)
    """

    filterGroups: str | None = None
    compareGroup: str = not_null()
    topic: str = not_null()


@dataclass
class GetConsumerRunningInfoRequestHeader(CommandCustomHeader):
    """What a consumer does now (GET_CONSUMER_RUNNING_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerRunningInfoRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    clientId: str = not_null(lax=True)
    jstackEnable: bool = False


@dataclass
class ConsumeMessageDirectlyResultRequestHeader(CommandCustomHeader):
    """Let a consumer consume one message now (CONSUME_MESSAGE_DIRECTLY).

    Java: org.apache.rocketmq.common.protocol.header.ConsumeMessageDirectlyResultRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None


@dataclass
class CloneGroupOffsetRequestHeader(CommandCustomHeader):
    """Copy a group's offsets to another (CLONE_GROUP_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.CloneGroupOffsetRequestHeader (4.9.8)
    """

    srcGroup: str = not_null()
    destGroup: str = not_null()
    topic: str | None = None
    offline: bool = False
