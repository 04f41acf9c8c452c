"""Store times of a topic's queues."""
from dataclasses import dataclass, field

from rmqha.common.protocol.body.queue_time_span import QueueTimeSpan


@dataclass(slots=True)
class QueryConsumeTimeSpanBody:
    """The answer of QUERY_CONSUME_TIME_SPAN.

    Java: org.apache.rocketmq.common.protocol.body.QueryConsumeTimeSpanBody (4.9.8)
    """

    consumeTimeSpanSet: list[QueueTimeSpan] = field(default_factory=list)
