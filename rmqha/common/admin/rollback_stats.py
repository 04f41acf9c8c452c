"""What resetting an offset did."""
from dataclasses import dataclass


@dataclass(slots=True)
class RollbackStats:
    """Offsets of a queue before and after.

    Java: org.apache.rocketmq.common.admin.RollbackStats (4.9.8)
    """

    brokerName: str | None = None
    queueId: int = 0
    brokerOffset: int = 0
    consumerOffset: int = 0
    timestampOffset: int = 0
    rollbackOffset: int = 0
