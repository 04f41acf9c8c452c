"""A message and one of the groups that consume its topic."""
from dataclasses import dataclass

from rmqha.tools.admin.api.track_type import TrackType


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
