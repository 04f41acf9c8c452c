"""Offsets to go to, for clients in C++."""
from dataclasses import dataclass

from rmqha.common.message.message_queue import MessageQueueForC


@dataclass(slots=True)
class ResetOffsetBodyForC:
    """Queues with offsets.

    Java: org.apache.rocketmq.common.protocol.body.ResetOffsetBodyForC (4.9.8)
    """

    offsetTable: list[MessageQueueForC] | None = None
