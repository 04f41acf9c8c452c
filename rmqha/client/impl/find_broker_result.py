"""The broker to ask."""
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FindBrokerResult:
    """A broker's address ("ip:port"), whether it is a slave, and the version of its last heartbeat answer (0: unknown).

    Java: org.apache.rocketmq.client.impl.FindBrokerResult (4.9.8)
    """

    broker_addr: str
    slave: bool
    broker_version: int = 0
