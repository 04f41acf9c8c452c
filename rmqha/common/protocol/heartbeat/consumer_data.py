"""A consumer group in a heartbeat."""
from dataclasses import dataclass, field

from rmqha.common.consumer.consume_from_where import ConsumeFromWhere
from rmqha.common.protocol.heartbeat.consume_type import ConsumeType
from rmqha.common.protocol.heartbeat.message_model import MessageModel
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
from rmqha.common.text_hash import text_hash


@dataclass(slots=True)
class ConsumerData:
    """A group that the client consumes as, and how.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ConsumerData (4.9.8)
    """

    groupName: str | None = None
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None
    subscriptionDataSet: set[SubscriptionData] = field(default_factory=set)
    unitMode: bool = False

    def __hash__(self) -> int:
        return text_hash(self.groupName, self.consumeType, self.messageModel, self.consumeFromWhere, self.unitMode,
                         hash(frozenset(self.subscriptionDataSet)))
