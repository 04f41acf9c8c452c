"""A stretch of a consume queue, for people."""
from dataclasses import dataclass

from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData


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

    def __str__(self) -> str:
        texts = (self.extendDataJson, self.bitMap, self.msg)
        extend, bits, msg = ("null" if text is None else text for text in texts)
        return (f"ConsumeQueueData{{physicOffset={self.physicOffset}, physicSize={self.physicSize}, "
                f"tagsCode={self.tagsCode}, extendDataJson='{extend}', bitMap='{bits}', eval={str(self.eval).lower()}, "
                f"msg='{msg}'}}")


@dataclass(slots=True)
class QueryConsumeQueueResponseBody:
    """The answer of QUERY_CONSUME_QUEUE.

    Java: org.apache.rocketmq.common.protocol.body.QueryConsumeQueueResponseBody (4.9.8)
    """

    subscriptionData: SubscriptionData | None = None
    filterData: str | None = None
    queueData: list[ConsumeQueueData] | None = None
    maxQueueIndex: int = 0
    minQueueIndex: int = 0
