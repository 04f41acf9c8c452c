"""What became of a pull, for consumers and for those who read half messages."""
from enum import Enum


class PullStatus(Enum):
    """FOUND has messages; the others only a next offset.

    Java: org.apache.rocketmq.client.consumer.PullStatus (4.9.8)
    """

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
