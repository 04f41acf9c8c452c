"""Whether a group shares its messages."""
import enum


class MessageModel(enum.Enum):
    """Each member gets all, or the group shares them.

    Java: org.apache.rocketmq.common.protocol.heartbeat.MessageModel (4.9.8)
    """

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
