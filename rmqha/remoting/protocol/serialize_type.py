"""How a command's header is written."""
from enum import IntEnum


class SerializeType(IntEnum):
    """The value is the top byte of a frame's header mark.

    Java: org.apache.rocketmq.remoting.protocol.SerializeType (4.9.8)
    """

    JSON = 0
    ROCKETMQ = 1
