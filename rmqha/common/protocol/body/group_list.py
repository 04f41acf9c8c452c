"""Names of groups."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class GroupList:
    """The groups (answer of QUERY_TOPIC_CONSUME_BY_WHO).

    Java: org.apache.rocketmq.common.protocol.body.GroupList (4.9.8)
    """

    groupList: set[str] = field(default_factory=set)
