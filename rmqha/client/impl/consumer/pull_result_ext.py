"""A pull's answer as it came."""
from dataclasses import dataclass

from rmqha.client.consumer.pull_result import PullResult


@dataclass(slots=True)
class PullResultExt(PullResult):
    """A PullResult before decoding: the broker to ask next time, and the records' bytes.

    Java: org.apache.rocketmq.client.impl.consumer.PullResultExt (4.9.8)
    """

    suggest_which_broker_id: int = 0
    message_binary: bytes | memoryview | None = None
