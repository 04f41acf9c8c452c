"""Bodies about a group's offsets: where it is, where it goes, what times that means, and that it had to move."""
from dataclasses import dataclass, field

from rmqha.common import util_all
from rmqha.common.later import LATER
from rmqha.common.message.message_queue import MessageQueue, MessageQueueForC


@dataclass(slots=True)
class GetConsumerStatusBody:
    """One client's queues, or those of all clients by client id.

    Java: org.apache.rocketmq.common.protocol.body.GetConsumerStatusBody (4.9.8)
    """

    messageQueueTable: dict[MessageQueue, int] = field(default_factory=dict)
    consumerTable: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@dataclass(slots=True)
class QueryCorrectionOffsetBody:
    """Offset by queue id (answer of QUERY_CORRECTION_OFFSET).

    Java: org.apache.rocketmq.common.protocol.body.QueryCorrectionOffsetBody (4.9.8)
    """

    correctionOffsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class ResetOffsetBody:
    """Offset by queue (answer of INVOKE_BROKER_TO_RESET_OFFSET, body of RESET_CONSUMER_CLIENT_OFFSET).

    Java: org.apache.rocketmq.common.protocol.body.ResetOffsetBody (4.9.8)
    """

    offsetTable: dict[MessageQueue, int] | None = None


@dataclass(slots=True)
class ResetOffsetBodyForC:
    """Queues with offsets.

    Java: org.apache.rocketmq.common.protocol.body.ResetOffsetBodyForC (4.9.8)
    """

    offsetTable: list[MessageQueueForC] | None = None


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


@dataclass(slots=True)
class QueryConsumeTimeSpanBody:
    """The answer of QUERY_CONSUME_TIME_SPAN.

    Java: org.apache.rocketmq.common.protocol.body.QueryConsumeTimeSpanBody (4.9.8)
    """

    consumeTimeSpanSet: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(slots=True)
class OffsetMovedEvent:
    """Body of the messages in OFFSET_MOVED_EVENT.

    Java: org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent (4.9.8)
    """

    consumerGroup: str = LATER
    messageQueue: MessageQueue | None = None
    offsetRequest: int = 0
    offsetNew: int = 0
