"""The epochs of a replica's log."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class EpochEntry:
    """One mastership: it wrote the log from `startOffset` to `endOffset`; 2^63-1 for the last one.

    Java: org.apache.rocketmq.remoting.protocol.EpochEntry (5.1.4)
    """

    epoch: int = 0
    startOffset: int = 0
    endOffset: int = (1 << 63) - 1


@dataclass(slots=True)
class EpochEntryCache:
    """Answer of GET_BROKER_EPOCH_CACHE: a replica's id, its epochs, and where its log ends.

    Java: org.apache.rocketmq.remoting.protocol.body.EpochEntryCache (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    brokerId: int = 0
    epochList: list[EpochEntry] = field(default_factory=list)
    maxOffset: int = 0
