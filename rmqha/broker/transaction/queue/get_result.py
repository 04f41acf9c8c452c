"""What reading the half or the op topic gave."""
from dataclasses import dataclass, field

from rmqha.common.message.message import MessageExt
from rmqha.common.subscriptions import PullStatus as PullStatus


@dataclass
class GetResult:
    """The messages in queue order, and the queue offset to go on at.

    Java: org.apache.rocketmq.broker.transaction.queue.GetResult (4.9.8)
    """

    pull_status: PullStatus
    next_begin_offset: int
    messages: list[MessageExt] = field(default_factory=list)
