"""Where an offset is read from."""
from enum import Enum


class ReadOffsetType(Enum):
    """The client's memory, the broker, or the first that knows it.

    Java: org.apache.rocketmq.client.consumer.store.ReadOffsetType (4.9.8)
    """

    READ_FROM_MEMORY = "READ_FROM_MEMORY"
    READ_FROM_STORE = "READ_FROM_STORE"
    MEMORY_FIRST_THEN_STORE = "MEMORY_FIRST_THEN_STORE"
