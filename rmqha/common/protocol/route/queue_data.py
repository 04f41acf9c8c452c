"""A topic's queues on one broker."""
from dataclasses import dataclass


@dataclass(slots=True)
class QueueData:
    """How many queues may be read and written there.

    Java: org.apache.rocketmq.common.protocol.route.QueueData (4.9.8)
    """

    brokerName: str | None = None
    readQueueNums: int = 0
    writeQueueNums: int = 0
    perm: int = 0
    topicSysFlag: int = 0

    def __lt__(self, other: "QueueData") -> bool:
        return self.brokerName < other.brokerName  # type: ignore[operator]  # as in Java, None is an error
