"""What reading the half or the op topic gave."""
from dataclasses import dataclass, field
from enum import Enum

from rmqha.common.message.message_ext import MessageExt


class PullStatus(Enum):
    """As a consumer of the topic would see it.

    Java: org.apache.rocketmq.client.consumer.PullStatus (4.9.8)
    """

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass
class GetResult:
    """The messages in queue order, and the queue offset to go on at.

    Java: org.apache.rocketmq.broker.transaction.queue.GetResult (4.9.8)
    """

    pull_status: PullStatus
    next_begin_offset: int
    messages: list[MessageExt] = field(default_factory=list)
