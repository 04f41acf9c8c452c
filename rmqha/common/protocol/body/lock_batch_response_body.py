"""Queues that got locked."""
from dataclasses import dataclass, field

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class LockBatchResponseBody:
    """The queues that the client holds now.

    Java: org.apache.rocketmq.common.protocol.body.LockBatchResponseBody (4.9.8)
    """

    lockOKMQSet: set[MessageQueue] = field(default_factory=set)
