"""How a request is made."""
from enum import Enum


class CommunicationMode(Enum):
    """Wait for the answer, be called back, or want none.

    Java: org.apache.rocketmq.client.impl.CommunicationMode (4.9.8)
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"
