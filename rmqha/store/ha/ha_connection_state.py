"""Where a replication connection stands."""
from enum import Enum


class HAConnectionState(Enum):
    """The state of a connection, seen from either end. 4.9 has none; the first five are those of 5.x.

    Java: org.apache.rocketmq.store.ha.HAConnectionState (5.1.4)
    """

    READY = "READY"  # no connection, or nothing reported yet
    HANDSHAKE = "HANDSHAKE"  # the two find out whether, and from where on, their logs fit together
    TRANSFER = "TRANSFER"
    SUSPEND = "SUSPEND"  # flow control: this second's share is used up
    SHUTDOWN = "SHUTDOWN"
    OFFSET_REFUSED = "OFFSET_REFUSED"  # the master does not hold the slave's offset: an operator has to look
    DIVERGED = "DIVERGED"  # the slave holds other bytes than the master: an operator has to look
    APPEND_FAILED = "APPEND_FAILED"  # the slave can't write, or what came is no commit log


# The states of a connection whose slave counts.
SERVING = (HAConnectionState.TRANSFER, HAConnectionState.SUSPEND)
