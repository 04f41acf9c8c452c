"""Names of topics."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class TopicList:
    """Topics, and where the answer asks for it one broker's address.

    Java: org.apache.rocketmq.common.protocol.body.TopicList (4.9.8)
    """

    topicList: set[str] = field(default_factory=set)
    brokerAddr: str | None = None
