"""Headers of administration requests: from tools, from brokers to clients, and for changes of a broker's role.

In this order:

- topics, groups, configuration and statistics
- access control
- administration of consumers: progress, offset resets, running information
- consumer groups: members and offsets
- role changes of a broker's replicas
"""
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    RpcRequestHeader,
    not_null,
    nullable,
)
from rmqha.common.sys_flags import TopicFilterType


@dataclass
class CreateTopicRequestHeader(CommandCustomHeader):
    """A topic to be created or changed (UPDATE_AND_CREATE_TOPIC).

    Java: org.apache.rocketmq.common.protocol.header.CreateTopicRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    defaultTopic: str = not_null(lax=True)
    readQueueNums: int = not_null(INTEGER)
    writeQueueNums: int = not_null(INTEGER)
    perm: int = not_null(INTEGER)
    topicFilterType: str = not_null()
    topicSysFlag: int | None = nullable(INTEGER)
    order: bool = not_null(default=False)

    def check_fields(self) -> None:
        """The filter type must be one."""
        if self.topicFilterType not in TopicFilterType.__members__:
            raise HeaderFieldError(f"topicFilterType = [{self.topicFilterType}] value invalid")

    @property
    def topic_filter_type_enum(self) -> TopicFilterType:
        """topicFilterType as the enum; KeyError when there is no such type."""
        return TopicFilterType[self.topicFilterType]


@dataclass
class DeleteTopicRequestHeader(CommandCustomHeader):
    """A topic to be deleted on a broker (DELETE_TOPIC_IN_BROKER).

    Java: org.apache.rocketmq.common.protocol.header.DeleteTopicRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)


@dataclass
class GetAllTopicConfigResponseHeader(CommandCustomHeader):
    """Nothing; see TopicConfigSerializeWrapper.

    Java: org.apache.rocketmq.common.protocol.header.GetAllTopicConfigResponseHeader (4.9.8)
    """


@dataclass
class GetBrokerConfigResponseHeader(CommandCustomHeader):
    """The DataVersion as JSON; the configuration is the body (GET_BROKER_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.GetBrokerConfigResponseHeader (4.9.8)
    """

    version: str = not_null()


@dataclass
class GetTopicStatsInfoRequestHeader(CommandCustomHeader):
    """The offsets of a topic's queues (GET_TOPIC_STATS_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetTopicStatsInfoRequestHeader (4.9.8)
    """

    topic: str = not_null()


@dataclass
class GetTopicsByClusterRequestHeader(CommandCustomHeader):
    """The topics of a cluster (GET_TOPICS_BY_CLUSTER).

    Java: org.apache.rocketmq.common.protocol.header.GetTopicsByClusterRequestHeader (4.9.8)
    """

    cluster: str = not_null(lax=True)


@dataclass
class DeleteSubscriptionGroupRequestHeader(CommandCustomHeader):
    """A group to be deleted (DELETE_SUBSCRIPTIONGROUP).

    Java: org.apache.rocketmq.common.protocol.header.DeleteSubscriptionGroupRequestHeader (4.9.8)
    """

    groupName: str = not_null()
    removeOffset: bool = False


@dataclass
class GetConsumerConnectionListRequestHeader(CommandCustomHeader):
    """Who consumes as a group (GET_CONSUMER_CONNECTION_LIST).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerConnectionListRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()


@dataclass
class GetProducerConnectionListRequestHeader(CommandCustomHeader):
    """Who produces as a group (GET_PRODUCER_CONNECTION_LIST).

    Java: org.apache.rocketmq.common.protocol.header.GetProducerConnectionListRequestHeader (4.9.8)
    """

    producerGroup: str = not_null()


@dataclass
class GetAllProducerInfoRequestHeader(CommandCustomHeader):
    """All producers (GET_ALL_PRODUCER_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetAllProducerInfoRequestHeader (4.9.8)
    """


@dataclass
class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """One statistic (VIEW_BROKER_STATS_DATA).

    Java: org.apache.rocketmq.common.protocol.header.ViewBrokerStatsDataRequestHeader (4.9.8)
    """

    statsName: str = not_null(lax=True)
    statsKey: str = not_null(lax=True)


@dataclass
class CreateAccessConfigRequestHeader(CommandCustomHeader):
    """An account to be made or changed (UPDATE_AND_CREATE_ACL_CONFIG). Permission lists are separated by commas.

    Java: org.apache.rocketmq.common.protocol.header.CreateAccessConfigRequestHeader (4.9.8)
    """

    accessKey: str | None = not_null(lax=True)
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: str | None = None
    groupPerms: str | None = None


@dataclass
class DeleteAccessConfigRequestHeader(CommandCustomHeader):
    """An account to be deleted (DELETE_ACL_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.DeleteAccessConfigRequestHeader (4.9.8)
    """

    accessKey: str | None = not_null(lax=True)


@dataclass
class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandCustomHeader):
    """New global white addresses, separated by commas (UPDATE_GLOBAL_WHITE_ADDRS_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.UpdateGlobalWhiteAddrsConfigRequestHeader (4.9.8)
    """

    globalWhiteAddrs: str | None = not_null(lax=True)
    aclFileFullPath: str | None = not_null(lax=True)  # the default file without


@dataclass
class GetBrokerAclConfigResponseHeader(CommandCustomHeader):
    """The versions of a broker's account files (GET_BROKER_CLUSTER_ACL_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetBrokerAclConfigResponseHeader (4.9.8)
    """

    version: str = not_null()
    allAclFileVersion: str | None = None
    brokerName: str = not_null()
    brokerAddr: str = not_null()
    clusterName: str = not_null()


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


INT_MAX = (1 << 31) - 1


@dataclass
class NotifyBrokerRoleChangedRequestHeader(CommandCustomHeader):
    """Who is the master of a broker's replicas from now on (NOTIFY_BROKER_ROLE_CHANGED).

    The replica with the id `masterBrokerId` becomes it, the others follow it. `masterHaAddress`, which 5.1.4 does not
    have: "host:port" of its HA port; None: the slave learns it from the name server.

    Java: org.apache.rocketmq.remoting.protocol.header.NotifyBrokerRoleChangedRequestHeader (5.1.4)
    """

    masterAddress: str | None = None
    masterEpoch: int = nullable(INTEGER)
    syncStateSetEpoch: int | None = nullable(INTEGER)
    masterBrokerId: int = nullable(LONG)
    masterHaAddress: str | None = None

    def check_fields(self) -> None:
        """A role change needs a master and its epoch."""
        if self.masterBrokerId is None or self.masterEpoch is None or not 0 < self.masterEpoch <= INT_MAX:
            raise HeaderFieldError(f"masterBrokerId is {self.masterBrokerId}, masterEpoch {self.masterEpoch}: a role "
                                   "change needs both")


@dataclass
class HandoverMasterRequestHeader(CommandCustomHeader):
    """rmqha's own: a master is to stop taking messages, and to answer when the replica of that id holds all.

    It waits `timeoutMillis` for that at most, then refuses, and takes messages again. It does so by itself, too, when
    its role has not changed one second behind its answer.
    """

    brokerId: int | None = not_null(LONG)
    timeoutMillis: int | None = nullable(LONG, default=1000)


@dataclass
class HandoverMasterResponseHeader(CommandCustomHeader):
    """rmqha's own: where the log of both ends."""

    maxOffset: int | None = nullable(LONG)
