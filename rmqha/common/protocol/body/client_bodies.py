"""Bodies about clients: who is connected, as what, and whether a subscription is understood."""
from dataclasses import dataclass, field

from rmqha.common.later import LATER
from rmqha.common.protocol.heartbeat.heartbeat_data import ConsumeFromWhere, ConsumeType, MessageModel
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
from rmqha.common.text_hash import text_hash


@dataclass(slots=True)
class Connection:
    """Id and address of a client; `language` is the name of its LanguageCode, `version` its MQVersion.

    Java: org.apache.rocketmq.common.protocol.body.Connection (4.9.8)
    """

    clientId: str = LATER
    clientAddr: str | None = None
    language: str | None = None
    version: int = 0

    def __hash__(self) -> int:
        return text_hash(self.clientId, self.clientAddr, self.language, self.version)


@dataclass(slots=True)
class ProducerConnection:
    """The answer of GET_PRODUCER_CONNECTION_LIST.

    Java: org.apache.rocketmq.common.protocol.body.ProducerConnection (4.9.8)
    """

    connectionSet: set[Connection] = field(default_factory=set)


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


@dataclass(slots=True)
class ProducerInfo:
    """A producer; `language` is the name of its LanguageCode, the time is in ms since the epoch.

    Java: org.apache.rocketmq.common.protocol.body.ProducerInfo (4.9.8)
    """

    clientId: str | None = None
    remoteIP: str | None = None
    language: str | None = None
    version: int = 0
    lastUpdateTimestamp: int = 0

    def __str__(self) -> str:
        return (f"clientId={self.clientId},remoteIP={self.remoteIP}, language={self.language}, version={self.version}, "
                f"lastUpdateTimestamp={self.lastUpdateTimestamp}")


@dataclass(slots=True)
class ProducerTableInfo:
    """Producers by group (answer of GET_ALL_PRODUCER_INFO).

    Java: org.apache.rocketmq.common.protocol.body.ProducerTableInfo (4.9.8)
    """

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass(slots=True)
class CheckClientRequestBody:
    """Whether the broker understands a subscription (body of CHECK_CLIENT_CONFIG).

    Java: org.apache.rocketmq.common.protocol.body.CheckClientRequestBody (4.9.8)
    """

    clientId: str | None = None
    group: str | None = None
    subscriptionData: SubscriptionData | None = None
