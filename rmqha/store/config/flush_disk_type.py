"""When a put is answered relative to its fsync."""
from enum import Enum


class FlushDiskType(Enum):
    """SYNC_FLUSH answers after the fsync, ASYNC_FLUSH before it; the name is the config value.

    Java: org.apache.rocketmq.store.config.FlushDiskType (4.9.8)
    """

    SYNC_FLUSH = 0
    ASYNC_FLUSH = 1


# For every message: a look into the class takes fifteen times as long.
SYNC_FLUSH, ASYNC_FLUSH = FlushDiskType
