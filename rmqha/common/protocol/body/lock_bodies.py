"""Bodies of locking queues for an orderly consumer."""
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


@dataclass(slots=True)
class LockBatchResponseBody:
    """The queues that the client holds now.

    Java: org.apache.rocketmq.common.protocol.body.LockBatchResponseBody (4.9.8)
    """

    lockOKMQSet: set[MessageQueue] = field(default_factory=set)


@dataclass(slots=True)
class UnlockBatchRequestBody:
    """The queues that a client gives back (body of UNLOCK_BATCH_MQ).

    Java: org.apache.rocketmq.common.protocol.body.UnlockBatchRequestBody (4.9.8)
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: set[MessageQueue] = field(default_factory=set)
