"""What a client tells each broker every 30 seconds."""
from dataclasses import dataclass, field

from rmqha.common.protocol.heartbeat.consumer_data import ConsumerData
from rmqha.common.protocol.heartbeat.producer_data import ProducerData


@dataclass(slots=True)
class HeartbeatData:
    """The client and its groups (body of HEART_BEAT).

    Java: org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData (4.9.8)
    """

    clientID: str | None = None
    producerDataSet: set[ProducerData] = field(default_factory=set)
    consumerDataSet: set[ConsumerData] = field(default_factory=set)
