"""Queues to be unlocked."""
from dataclasses import dataclass, field

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class UnlockBatchRequestBody:
    """The queues that a client gives back (body of UNLOCK_BATCH_MQ).

    Java: org.apache.rocketmq.common.protocol.body.UnlockBatchRequestBody (4.9.8)
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: set[MessageQueue] = field(default_factory=set)
