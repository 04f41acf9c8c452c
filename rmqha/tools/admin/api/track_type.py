"""What became of a message in one group."""
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
