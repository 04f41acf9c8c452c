"""Bodies that only list names: topics, groups, keys with values."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class TopicList:
    """Topics, and where the answer asks for it one broker's address.

    Java: org.apache.rocketmq.common.protocol.body.TopicList (4.9.8)
    """

    topicList: set[str] = field(default_factory=set)
    brokerAddr: str | None = None


@dataclass(slots=True)
class GroupList:
    """The groups (answer of QUERY_TOPIC_CONSUME_BY_WHO).

    Java: org.apache.rocketmq.common.protocol.body.GroupList (4.9.8)
    """

    groupList: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ConsumeByWho:
    """Which groups consumed a message, which did not. Unused by 4.9's servers.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeByWho (4.9.8)
    """

    consumedGroup: set[str] = field(default_factory=set)
    notConsumedGroup: set[str] = field(default_factory=set)
    topic: str | None = None
    queueId: int = 0
    offset: int = 0


@dataclass(slots=True)
class KVTable:
    """A plain table (run-time information, order topics).

    Java: org.apache.rocketmq.common.protocol.body.KVTable (4.9.8)
    """

    table: dict[str, str] = field(default_factory=dict)
