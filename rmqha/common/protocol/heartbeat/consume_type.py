"""How a consumer gets its messages."""
import enum


class ConsumeType(enum.Enum):
    """PULL or PUSH; the value is the short word for people.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ConsumeType (4.9.8)
    """

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
