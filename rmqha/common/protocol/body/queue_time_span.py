"""Store times of a queue."""
from dataclasses import dataclass

from rmqha.common import util_all
from rmqha.common.message.message_queue import MessageQueue


def _text(time_ms: int) -> str:
    """`yyyy-MM-dd#HH:mm:ss:SSS`."""
    return util_all.time_millis_to_human_string2(time_ms).replace(" ", "#").replace(",", ":")


@dataclass(slots=True)
class QueueTimeSpan:
    """When a queue's first and last message were stored and the group's next one, in ms; the delay is in ms too.

    Java's getters of the texts get into the JSON, so they are fields here, computed when all values are given at once.

    Java: org.apache.rocketmq.common.protocol.body.QueueTimeSpan (4.9.8)
    """

    messageQueue: MessageQueue | None = None
    minTimeStamp: int = 0
    maxTimeStamp: int = 0
    consumeTimeStamp: int = 0
    delayTime: int = 0
    minTimeStampStr: str | None = None
    maxTimeStampStr: str | None = None
    consumeTimeStampStr: str | None = None

    def __post_init__(self) -> None:
        self.minTimeStampStr = _text(self.minTimeStamp)
        self.maxTimeStampStr = _text(self.maxTimeStamp)
        self.consumeTimeStampStr = _text(self.consumeTimeStamp)
