"""Whose brokers the client talks to."""
import enum


class AccessChannel(enum.Enum):
    """A cluster of one's own, or a cloud's: traces of a cloud go to a topic per region.

    Java: org.apache.rocketmq.client.AccessChannel (4.9.8)
    """

    LOCAL = 0
    CLOUD = 1
