"""A stretch of a consume queue."""
from dataclasses import dataclass

from rmqha.common.protocol.body.consume_queue_data import ConsumeQueueData
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData


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
