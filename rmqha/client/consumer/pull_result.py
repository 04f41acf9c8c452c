"""What a pull gives back."""
from dataclasses import dataclass, field

from rmqha.client.consumer.pull_status import PullStatus
from rmqha.common.message.message_ext import MessageExt


@dataclass(slots=True)
class PullResult:
    """The messages found, where to go on (`next_begin_offset`), and the queue's bounds, all as queue offsets.

    Java: org.apache.rocketmq.client.consumer.PullResult (4.9.8)
    """

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    msg_found_list: list[MessageExt] = field(default_factory=list)
