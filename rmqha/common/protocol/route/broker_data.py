"""A broker: a master and its slaves."""
import random
from dataclasses import dataclass, field

from rmqha.common.mix_all import MASTER_ID


@dataclass(slots=True)
class BrokerData:
    """Addresses by broker id; 0 is the master.

    Java: org.apache.rocketmq.common.protocol.route.BrokerData (4.9.8)
    """

    cluster: str | None = None
    brokerName: str | None = None
    brokerAddrs: dict[int, str] = field(default_factory=dict)

    def select_broker_addr(self) -> str | None:
        """The master's address, else a slave's at random, else None."""
        if MASTER_ID in self.brokerAddrs or not self.brokerAddrs:
            return self.brokerAddrs.get(MASTER_ID)
        return random.choice(list(self.brokerAddrs.values()))

    def __lt__(self, other: "BrokerData") -> bool:
        return self.brokerName < other.brokerName  # type: ignore[operator]  # as in Java, None is an error
