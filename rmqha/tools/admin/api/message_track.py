"""A message and one of the groups that consume its topic: what became of it there."""
from dataclasses import dataclass
from enum import Enum


class TrackType(Enum):
    """CONSUMED by the group's offset; PULL groups keep their own; the rest says itself.

    Java: org.apache.rocketmq.tools.admin.api.TrackType (4.9.8)
    """

    CONSUMED = 0
    CONSUMED_BUT_FILTERED = 1
    PULL = 2
    NOT_CONSUME_YET = 3
    NOT_ONLINE = 4
    UNKNOWN = 5


@dataclass(slots=True)
class MessageTrack:
    """What became of a message in a group; `exceptionDesc` says why it could not be told.

    Java: org.apache.rocketmq.tools.admin.api.MessageTrack (4.9.8)
    """

    consumerGroup: str
    trackType: TrackType = TrackType.UNKNOWN
    exceptionDesc: str | None = None

    def __str__(self) -> str:
        why = "null" if self.exceptionDesc is None else self.exceptionDesc
        return (f"MessageTrack [consumerGroup={self.consumerGroup}, trackType={self.trackType.name}, "
                f"exceptionDesc={why}]")
