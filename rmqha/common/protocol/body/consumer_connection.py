"""Who consumes as a group, and how."""
from dataclasses import dataclass, field

from rmqha.common.consumer.consume_from_where import ConsumeFromWhere
from rmqha.common.protocol.body.connection import Connection
from rmqha.common.protocol.heartbeat.consume_type import ConsumeType
from rmqha.common.protocol.heartbeat.message_model import MessageModel
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData


@dataclass(slots=True)
class ConsumerConnection:
    """The answer of GET_CONSUMER_CONNECTION_LIST.

    Java: org.apache.rocketmq.common.protocol.body.ConsumerConnection (4.9.8)
    """

    connectionSet: set[Connection] = field(default_factory=set)
    subscriptionTable: dict[str, SubscriptionData] = field(default_factory=dict)
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None

    def compute_min_version(self) -> int:
        """The least version of the clients, 2^31 - 1 when there is none."""
        return min((connection.version for connection in self.connectionSet), default=0x7FFF_FFFF)
