"""Bodies about replication: how it stands, and the epochs of a replica's log."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class HAConnectionRuntimeInfo:
    """One slave of a master: offsets and `diff` in bytes of the commit log, the rate in bytes of the last second.

    Java: org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo$HAConnectionRuntimeInfo (5.1.4)
    """

    addr: str | None = None  # ip:port of the slave's end
    slaveAckOffset: int = 0
    diff: int = 0
    inSync: bool = False
    transferredByteInSecond: int = 0
    transferFromWhere: int = 0


@dataclass(slots=True)
class HAClientRuntimeInfo:
    """A slave's own side: times are ms since 1970, 0 for never.

    The last three are rmqha's: where the connection stands (HAConnectionState; DIVERGED when this slave's log or queues
    are not its master's, whatever the connection does), from which commit log offset on they differ (-1: nothing is
    known to), and why. The runtime table has them as haClientState, haDivergedOffset, haDivergedReason, and with
    haDivergedCount how many records did not fit into their queue.

    Java: org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo$HAClientRuntimeInfo (5.1.4)
    """

    masterAddr: str | None = None  # ip:port of the master's HA port
    transferredByteInSecond: int = 0
    maxOffset: int = 0
    lastReadTimestamp: int = 0
    lastWriteTimestamp: int = 0
    masterFlushOffset: int = 0
    state: str | None = None  # None: it is not told (5.1.4)
    divergedOffset: int = -1
    divergedReason: str | None = None


@dataclass(slots=True)
class HARuntimeInfo:
    """Answer of GET_BROKER_HA_STATUS: a master's slaves, or a slave's connection to its master.

    Java: org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo (5.1.4)
    """

    master: bool = False
    masterCommitLogMaxOffset: int = 0
    inSyncSlaveNums: int = 0
    haConnectionInfo: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    haClientRuntimeInfo: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


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
