"""What the index answers."""
from typing import NamedTuple


class QueryOffsetResult(NamedTuple):
    """Commit log offsets, and store time (ms) and offset up to which the index had come.

    Java: org.apache.rocketmq.store.index.QueryOffsetResult (4.9.8)
    """

    phy_offsets: list[int]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int
