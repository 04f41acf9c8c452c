"""What became of a message consumed on demand."""
import enum


class CMResult(enum.Enum):
    """The listener's answer, or that there was none.

    Java: org.apache.rocketmq.common.protocol.body.CMResult (4.9.8)
    """

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5
