"""What became of a local transaction."""
from enum import Enum


class LocalTransactionState(Enum):
    """UNKNOW (Java's spelling): the broker asks again.

    Java: org.apache.rocketmq.client.producer.LocalTransactionState (4.9.8)
    """

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"
