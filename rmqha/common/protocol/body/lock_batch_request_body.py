"""Queues to be locked."""
from dataclasses import dataclass, field

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class LockBatchRequestBody:
    """The queues that a client wants for itself (body of LOCK_BATCH_MQ).

    Java: org.apache.rocketmq.common.protocol.body.LockBatchRequestBody (4.9.8)
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: set[MessageQueue] = field(default_factory=set)
