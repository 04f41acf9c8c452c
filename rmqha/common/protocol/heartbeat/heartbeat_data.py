"""What a client tells each broker every 30 seconds: itself, and the groups that it produces and consumes as."""
import enum
from dataclasses import dataclass, field

from rmqha.common.later import LATER
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
from rmqha.common.text_hash import text_hash


class ConsumeFromWhere(enum.Enum):
    """A group without offsets begins at the end, the beginning or a time. The middle three are retired: the end.

    Java: org.apache.rocketmq.common.consumer.ConsumeFromWhere (4.9.8)
    """

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


class ConsumeType(enum.Enum):
    """PULL or PUSH; the value is the short word for people.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ConsumeType (4.9.8)
    """

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"


class MessageModel(enum.Enum):
    """Each member gets all, or the group shares them.

    Java: org.apache.rocketmq.common.protocol.heartbeat.MessageModel (4.9.8)
    """

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


@dataclass(slots=True)
class ProducerData:
    """A group that the client produces as.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ProducerData (4.9.8)
    """

    groupName: str = LATER

    def __hash__(self) -> int:
        return hash(self.groupName)


@dataclass(slots=True)
class ConsumerData:
    """A group that the client consumes as, and how.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ConsumerData (4.9.8)
    """

    groupName: str = LATER
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None
    subscriptionDataSet: set[SubscriptionData] = field(default_factory=set)
    unitMode: bool = False

    def __hash__(self) -> int:
        return text_hash(self.groupName, self.consumeType, self.messageModel, self.consumeFromWhere, self.unitMode,
                         hash(frozenset(self.subscriptionDataSet)))


@dataclass(slots=True)
class HeartbeatData:
    """The client and its groups (body of HEART_BEAT).

    Java: org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData (4.9.8)
    """

    clientID: str = LATER
    producerDataSet: set[ProducerData] = field(default_factory=set)
    consumerDataSet: set[ConsumerData] = field(default_factory=set)
