"""Headers of administration: topics, groups, configuration, statistics."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    CommandCustomHeader,
    HeaderFieldError,
    not_null,
    nullable,
)
from rmqha.common.topic_filter_type import TopicFilterType


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
