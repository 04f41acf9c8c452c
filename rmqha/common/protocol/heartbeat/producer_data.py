"""A producer group in a heartbeat."""
from dataclasses import dataclass


@dataclass(slots=True)
class ProducerData:
    """A group that the client produces as.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ProducerData (4.9.8)
    """

    groupName: str | None = None

    def __hash__(self) -> int:
        return hash(self.groupName)
