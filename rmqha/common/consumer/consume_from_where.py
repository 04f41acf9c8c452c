"""Where a group without offsets begins."""
import enum


class ConsumeFromWhere(enum.Enum):
    """The end, the beginning or a time. The middle three are retired and mean the end.

    Java: org.apache.rocketmq.common.consumer.ConsumeFromWhere (4.9.8)
    """

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5
