"""Offsets to go to."""
from dataclasses import dataclass

from rmqha.common.message.message_queue import MessageQueue


@dataclass(slots=True)
class ResetOffsetBody:
    """Offset by queue (answer of INVOKE_BROKER_TO_RESET_OFFSET, body of RESET_CONSUMER_CLIENT_OFFSET).

    Java: org.apache.rocketmq.common.protocol.body.ResetOffsetBody (4.9.8)
    """

    offsetTable: dict[MessageQueue, int] | None = None
