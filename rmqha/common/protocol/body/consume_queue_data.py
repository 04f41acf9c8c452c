"""A unit of a consume queue, for people."""
from dataclasses import dataclass


@dataclass(slots=True)
class ConsumeQueueData:
    """A unit, its extension, and whether the group's filter takes it.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeQueueData (4.9.8)
    """

    physicOffset: int = 0
    physicSize: int = 0
    tagsCode: int = 0
    extendDataJson: str | None = None
    bitMap: str | None = None
    eval: bool = False
    msg: str | None = None
