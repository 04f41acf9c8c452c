"""How far a group is behind."""
from dataclasses import dataclass


@dataclass(slots=True)
class UndoneMsgs:
    """Messages of a topic that a group has yet to consume: in all, in its longest queue, and its delay in ms.

    Java: org.apache.rocketmq.tools.monitor.UndoneMsgs (4.9.8)
    """

    consumerGroup: str
    topic: str
    undoneMsgsTotal: int = 0
    undoneMsgsSingleMQ: int = 0
    undoneMsgsDelayTimeMills: int = 0

    def __str__(self) -> str:
        return (f"UndoneMsgs [consumerGroup={self.consumerGroup}, topic={self.topic}, "
                f"undoneMsgsTotal={self.undoneMsgsTotal}, undoneMsgsSingleMQ={self.undoneMsgsSingleMQ}, "
                f"undoneMsgsDelayTimeMills={self.undoneMsgsDelayTimeMills}]")
