"""What a name server answered to a registration."""
from dataclasses import dataclass

from rmqha.common.protocol.body.list_bodies import KVTable


@dataclass(slots=True)
class RegisterBrokerResult:
    """A slave's master, and the order topics.

    Java: org.apache.rocketmq.common.namesrv.RegisterBrokerResult (4.9.8)
    """

    haServerAddr: str | None = None
    masterAddr: str | None = None
    kvTable: KVTable | None = None
