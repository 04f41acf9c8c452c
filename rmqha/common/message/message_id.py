"""The parts of an offset message id."""
from typing import NamedTuple


class MessageId(NamedTuple):
    """Which broker (address, port) and which commit log offset.

    Java: org.apache.rocketmq.common.message.MessageId (4.9.8)
    """

    address: tuple[str, int]
    offset: int
