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
    """A topic to create or change (UPDATE_AND_CREATE_TOPIC).

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
        """Raise HeaderFieldError for an unknown filter type."""
        if self.topicFilterType not in TopicFilterType.__members__:
            raise HeaderFieldError(f"topicFilterType = [{self.topicFilterType}] value invalid")

    @property
    def topic_filter_type_enum(self) -> TopicFilterType:
        """The value of topicFilterType as the enum; KeyError for an unknown type."""
        return TopicFilterType[self.topicFilterType]


@dataclass
class DeleteTopicRequestHeader(CommandCustomHeader):
    """A topic to delete on a broker (DELETE_TOPIC_IN_BROKER).

    Java: org.apache.rocketmq.common.protocol.header.DeleteTopicRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)


@dataclass
class GetAllTopicConfigResponseHeader(CommandCustomHeader):
    """A header without fields; for the body see TopicConfigSerializeWrapper.

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
    """A query for the offsets of a topic's queues (GET_TOPIC_STATS_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetTopicStatsInfoRequestHeader (4.9.8)
    """

    topic: str = not_null()


@dataclass
class GetTopicsByClusterRequestHeader(CommandCustomHeader):
    """A query for the topics of a cluster (GET_TOPICS_BY_CLUSTER).

    Java: org.apache.rocketmq.common.protocol.header.GetTopicsByClusterRequestHeader (4.9.8)
    """

    cluster: str = not_null(lax=True)


@dataclass
class DeleteSubscriptionGroupRequestHeader(CommandCustomHeader):
    """A group to delete (DELETE_SUBSCRIPTIONGROUP).

    Java: org.apache.rocketmq.common.protocol.header.DeleteSubscriptionGroupRequestHeader (4.9.8)
    """

    groupName: str = not_null()
    removeOffset: bool = False


@dataclass
class GetConsumerConnectionListRequestHeader(CommandCustomHeader):
    """A query for the consumers of a group (GET_CONSUMER_CONNECTION_LIST).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerConnectionListRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()


@dataclass
class GetProducerConnectionListRequestHeader(CommandCustomHeader):
    """A query for the producers of a group (GET_PRODUCER_CONNECTION_LIST).

    Java: org.apache.rocketmq.common.protocol.header.GetProducerConnectionListRequestHeader (4.9.8)
    """

    producerGroup: str = not_null()


@dataclass
class GetAllProducerInfoRequestHeader(CommandCustomHeader):
    """A query for all producers (GET_ALL_PRODUCER_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetAllProducerInfoRequestHeader (4.9.8)
    """


@dataclass
class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """A query for one statistic (VIEW_BROKER_STATS_DATA).

    Java: org.apache.rocketmq.common.protocol.header.ViewBrokerStatsDataRequestHeader (4.9.8)
    """

    statsName: str = not_null(lax=True)
    statsKey: str = not_null(lax=True)


@dataclass
class CreateAccessConfigRequestHeader(CommandCustomHeader):
    """An account to create or change (UPDATE_AND_CREATE_ACL_CONFIG). Permission lists are separated by commas.

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
    """An account to delete (DELETE_ACL_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.DeleteAccessConfigRequestHeader (4.9.8)
    """

    accessKey: str | None = not_null(lax=True)


@dataclass
class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandCustomHeader):
    """New global white addresses, separated by commas (UPDATE_GLOBAL_WHITE_ADDRS_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.UpdateGlobalWhiteAddrsConfigRequestHeader (4.9.8)
    """

    globalWhiteAddrs: str | None = not_null(lax=True)
    aclFileFullPath: str | None = not_null(lax=True)  # absent: the default file


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
    """A query for a group's progress (GET_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumeStatsRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str | None = None


@dataclass
class GetConsumeStatsInBrokerHeader(CommandCustomHeader):
    """A query for the progress of all groups (GET_BROKER_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumeStatsInBrokerHeader (4.9.8)
    """

    isOrder: bool = not_null(default=False)


@dataclass
class ResetOffsetRequestHeader(CommandCustomHeader):
    """A request to reset a group's offsets to a time in ms; -1 is the end.

    For INVOKE_BROKER_TO_RESET_OFFSET and RESET_CONSUMER_CLIENT_OFFSET.

    Java: org.apache.rocketmq.common.protocol.header.ResetOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    group: str = not_null(lax=True)
    timestamp: int = not_null(LONG, default=0)
    isForce: bool = not_null(default=False)


@dataclass
class GetConsumerStatusRequestHeader(CommandCustomHeader):
    """A query for a group's offsets as its clients have them.

    For INVOKE_BROKER_TO_GET_CONSUMER_STATUS and GET_CONSUMER_STATUS_FROM_CLIENT.

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerStatusRequestHeader (4.9.8)
    """

    topic: str = not_null()
    group: str = not_null()
    clientAddr: str | None = None


@dataclass
class QueryTopicConsumeByWhoRequestHeader(CommandCustomHeader):
    """A query for the groups that consume a topic (QUERY_TOPIC_CONSUME_BY_WHO).

    Java: org.apache.rocketmq.common.protocol.header.QueryTopicConsumeByWhoRequestHeader (4.9.8)
    """

    topic: str = not_null()


@dataclass
class QueryConsumeTimeSpanRequestHeader(CommandCustomHeader):
    """A query for the first, last and consumed store times of a topic's queues (QUERY_CONSUME_TIME_SPAN).

    Java: org.apache.rocketmq.common.protocol.header.QueryConsumeTimeSpanRequestHeader (4.9.8)
    """

    topic: str = not_null()
    group: str = not_null(lax=True)


@dataclass
class QueryCorrectionOffsetHeader(CommandCustomHeader):
    """A query for the lowest offsets of other groups (QUERY_CORRECTION_OFFSET). `filterGroups`: separated by commas.

    Java: org.apache.rocketmq.common.protocol.header.QueryCorrectionOffsetHeader (4.9.8)
    """

    filterGroups: str | None = None
    compareGroup: str = not_null()
    topic: str = not_null()


@dataclass
class GetConsumerRunningInfoRequestHeader(CommandCustomHeader):
    """A query for the running information of a consumer (GET_CONSUMER_RUNNING_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerRunningInfoRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    clientId: str = not_null(lax=True)
    jstackEnable: bool = False


@dataclass
class ConsumeMessageDirectlyResultRequestHeader(CommandCustomHeader):
    """A request to let a consumer consume one message now (CONSUME_MESSAGE_DIRECTLY).

    Java: org.apache.rocketmq.common.protocol.header.ConsumeMessageDirectlyResultRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None


@dataclass
class CloneGroupOffsetRequestHeader(CommandCustomHeader):
    """A request to copy a group's offsets to another group (CLONE_GROUP_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.CloneGroupOffsetRequestHeader (4.9.8)
    """

    srcGroup: str = not_null()
    destGroup: str = not_null()
    topic: str | None = None
    offline: bool = False


@dataclass
class GetConsumerListByGroupRequestHeader(CommandCustomHeader):
    """A query for the clients of a group (GET_CONSUMER_LIST_BY_GROUP).

    Java: org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()


@dataclass
class GetConsumerListByGroupResponseHeader(CommandCustomHeader):
    """A header without fields; see GetConsumerListByGroupResponseBody.

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
    """A query for a group's offset in a queue (QUERY_CONSUMER_OFFSET).

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
    """A header without fields.

    Java: org.apache.rocketmq.common.protocol.header.UpdateConsumerOffsetResponseHeader (4.9.8)
    """


@dataclass
class NotifyConsumerIdsChangedRequestHeader(CommandCustomHeader):
    """A broker's notification that a group's members have changed (NOTIFY_CONSUMER_IDS_CHANGED).

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
    """A header without fields.

    Java: org.apache.rocketmq.common.protocol.header.UnregisterClientResponseHeader (4.9.8)
    """


INT_MAX = (1 << 31) - 1


@dataclass
class NotifyBrokerRoleChangedRequestHeader(CommandCustomHeader):
    """A notification of the new master of a broker name's replicas (NOTIFY_BROKER_ROLE_CHANGED).

    The replica with the id `masterBrokerId` becomes the master, the others follow it. `masterHaAddress`, an extension
    of rmqha, is "host:port" of its HA port; None: the slave learns it from the name server.

    Java: org.apache.rocketmq.remoting.protocol.header.NotifyBrokerRoleChangedRequestHeader (5.1.4)
    """

    masterAddress: str | None = None
    masterEpoch: int = nullable(INTEGER)
    syncStateSetEpoch: int | None = nullable(INTEGER)
    masterBrokerId: int = nullable(LONG)
    masterHaAddress: str | None = None

    def check_fields(self) -> None:
        """Raise HeaderFieldError without a master and its epoch."""
        if self.masterBrokerId is None or self.masterEpoch is None or not 0 < self.masterEpoch <= INT_MAX:
            raise HeaderFieldError(f"masterBrokerId is {self.masterBrokerId}, masterEpoch {self.masterEpoch}: a role "
                                   "change needs both")


@dataclass
class HandoverMasterRequestHeader(CommandCustomHeader):
    """An extension of rmqha: a master stops accepting messages, and answers when the replica `brokerId` holds them all.

    It waits at most `timeoutMillis`; then it refuses, and accepts messages again. It also accepts messages again on its
    own if its role has not changed one second after its answer.
    """

    brokerId: int | None = not_null(LONG)
    timeoutMillis: int | None = nullable(LONG, default=1000)


@dataclass
class RelayClientRequestHeader(CommandCustomHeader):
    """An extension of rmqha: this connection carries the requests of a client of replica `brokerId` from now on.

    The master takes `clientAddr` for the address of the other end. It refuses when it is not the master of
    `brokerName`, or accepts no messages at present.
    """

    brokerName: str | None = not_null()
    brokerId: int | None = not_null(LONG)
    # host:port, the host as an IP address
    clientAddr: str | None = not_null()


@dataclass
class HandoverMasterResponseHeader(CommandCustomHeader):
    """An extension of rmqha: the offset at which the logs of both end."""

    maxOffset: int | None = nullable(LONG)
