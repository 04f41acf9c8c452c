"""Outcome of one append into a mapped file."""
from enum import Enum


class AppendMessageStatus(Enum):
    """What `MappedFile.append_message` did.

    Java: org.apache.rocketmq.store.AppendMessageStatus (4.9.8)
    """

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
