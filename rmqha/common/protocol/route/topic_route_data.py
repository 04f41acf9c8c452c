"""Where a topic lives."""
from dataclasses import dataclass, field

from rmqha.common.protocol.route.broker_data import BrokerData
from rmqha.common.protocol.route.queue_data import QueueData


@dataclass(slots=True)
class TopicRouteData:
    """Queues and brokers of a topic (answer of GET_ROUTEINFO_BY_TOPIC).

    Java: org.apache.rocketmq.common.protocol.route.TopicRouteData (4.9.8)
    """

    orderTopicConf: str | None = None
    queueDatas: list[QueueData] = field(default_factory=list)
    brokerDatas: list[BrokerData] = field(default_factory=list)
    filterServerTable: dict[str, list[str]] = field(default_factory=dict)

    def clone_topic_route_data(self) -> "TopicRouteData":
        """A copy with its own lists and table, of the same queues and brokers."""
        return TopicRouteData(self.orderTopicConf, list(self.queueDatas), list(self.brokerDatas),
                              dict(self.filterServerTable))
