"""How many tags a message of a topic may have."""
import enum


class TopicFilterType(enum.Enum):
    """One tag, or several. Nothing in 4.9 treats them differently but the record's multi-tags bit.

    Java: org.apache.rocketmq.common.TopicFilterType (4.9.8)
    """

    SINGLE_TAG = 0
    MULTI_TAG = 1
