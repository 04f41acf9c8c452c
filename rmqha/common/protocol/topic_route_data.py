"""The route of a topic: its queues and their brokers."""
import random

from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.texts import LATER


@dataclass(slots=True)
class QueueData:
    """The numbers of queues of a topic that can be read and written on one broker.

    Java: org.apache.rocketmq.common.protocol.route.QueueData (4.9.8)
    """

    brokerName: str = LATER
    readQueueNums: int = 0
    writeQueueNums: int = 0
    perm: int = 0
    topicSysFlag: int = 0

    def __lt__(self, other: "QueueData") -> bool:
        return self.brokerName < other.brokerName


@dataclass(slots=True)
class BrokerData:
    """The addresses of a broker's replicas by broker id; 0 is the master.

    Java: org.apache.rocketmq.common.protocol.route.BrokerData (4.9.8)
    """

    cluster: str = LATER
    brokerName: str = LATER
    brokerAddrs: dict[int, str] = field(default_factory=dict)

    def select_broker_addr(self) -> str | None:
        """Return the master's address, else a random slave's, else None."""
        if MASTER_ID in self.brokerAddrs or not self.brokerAddrs:
            return self.brokerAddrs.get(MASTER_ID)
        return random.choice(list(self.brokerAddrs.values()))

    def __lt__(self, other: "BrokerData") -> bool:
        return self.brokerName < other.brokerName


@dataclass(slots=True)
class TopicRouteData:
    """The queues and brokers of a topic (answer of GET_ROUTEINFO_BY_TOPIC).

    Java: org.apache.rocketmq.common.protocol.route.TopicRouteData (4.9.8)
    """

    orderTopicConf: str | None = None
    queueDatas: list[QueueData] = field(default_factory=list)
    brokerDatas: list[BrokerData] = field(default_factory=list)
    filterServerTable: dict[str, list[str]] = field(default_factory=dict)
