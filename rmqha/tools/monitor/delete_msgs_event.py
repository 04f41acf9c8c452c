"""A consumer asked for messages that are deleted."""
from dataclasses import dataclass

from rmqha.common.protocol.topic.offset_moved_event import OffsetMovedEvent


@dataclass(slots=True)
class DeleteMsgsEvent:
    """A broker's event, and when it was stored (ms since the epoch).

    Java: org.apache.rocketmq.tools.monitor.DeleteMsgsEvent (4.9.8)
    """

    offsetMovedEvent: OffsetMovedEvent
    eventTimestamp: int

    def __str__(self) -> str:
        event = self.offsetMovedEvent
        text = (f"OffsetMovedEvent [consumerGroup={event.consumerGroup}, messageQueue={event.messageQueue}, "
                f"offsetRequest={event.offsetRequest}, offsetNew={event.offsetNew}]")
        return f"DeleteMsgsEvent [offsetMovedEvent={text}, eventTimestamp={self.eventTimestamp}]"
