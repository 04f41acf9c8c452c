"""How fast a consumer is."""
from dataclasses import dataclass


@dataclass(slots=True)
class ConsumeStatus:
    """Times in ms, rates per second, failures of the last hour.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeStatus (4.9.8)
    """

    pullRT: float = 0.0
    pullTPS: float = 0.0
    consumeRT: float = 0.0
    consumeOKTPS: float = 0.0
    consumeFailedTPS: float = 0.0
    consumeFailedMsgs: int = 0
