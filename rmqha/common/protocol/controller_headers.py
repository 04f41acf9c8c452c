"""Headers of requests to the controller of automatic failover, and of the comparison of replicas' logs.

The controller's requests are those of RocketMQ 5.1.4; brokers, tools and the controller send them to each other.
"""
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    not_null,
    nullable,
)

# `masterHaAddress` and `haServerAddr` are rmqha's own: `host:port` of the port where slaves follow.


@dataclass
class AlterSyncStateSetRequestHeader(CommandCustomHeader):
    """The master of `masterEpoch` wants another sync-state set; the body is a SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.AlterSyncStateSetRequestHeader (5.1.4)
    """

    brokerName: str | None = None
    masterBrokerId: int | None = nullable(LONG)
    masterEpoch: int | None = nullable(INTEGER)


@dataclass
class AlterSyncStateSetResponseHeader(CommandCustomHeader):
    """The epoch of the set that the controller has taken; the body is that SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.AlterSyncStateSetResponseHeader (5.1.4)
    """

    newSyncStateSetEpoch: int | None = nullable(INTEGER)


@dataclass
class ElectMasterRequestHeader(CommandCustomHeader):
    """Elect a master: a broker asks with its id, a tool with `designateElect` for that id.

    An id of None: the controller asks itself, because the master is gone.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterRequestHeader (5.1.4)
    """

    clusterName: str | None = not_null(default=None)
    brokerName: str | None = not_null(default=None)
    brokerId: int | None = not_null(LONG)
    designateElect: bool | None = not_null(default=False)


@dataclass
class ElectMasterResponseHeader(CommandCustomHeader):
    """Who is the master now; the body is an ElectMasterResponseBody.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterResponseHeader (5.1.4)
    """

    masterBrokerId: int | None = nullable(LONG)
    masterAddress: str | None = None
    masterEpoch: int | None = nullable(INTEGER)
    syncStateSetEpoch: int | None = nullable(INTEGER)
    masterHaAddress: str | None = None


@dataclass
class GetReplicaInfoRequestHeader(CommandCustomHeader):
    """Who is the master of these replicas?

    Java: org.apache.rocketmq.remoting.protocol.header.controller.GetReplicaInfoRequestHeader (5.1.4)
    """

    brokerName: str | None = None


@dataclass
class GetReplicaInfoResponseHeader(CommandCustomHeader):
    """The master, None when there is none; the body is the SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.GetReplicaInfoResponseHeader (5.1.4)
    """

    masterBrokerId: int | None = nullable(LONG)
    masterAddress: str | None = None
    masterEpoch: int | None = nullable(INTEGER)
    masterHaAddress: str | None = None


@dataclass
class GetMetaDataResponseHeader(CommandCustomHeader):
    """What a controller knows of its own group: `peers` is `id-host:port` joined by `;`.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.GetMetaDataResponseHeader (5.1.4)
    """

    group: str | None = None
    controllerLeaderId: str | None = None
    controllerLeaderAddress: str | None = None
    isLeader: bool | None = None
    peers: str | None = None


@dataclass
class CleanControllerBrokerDataRequestHeader(CommandCustomHeader):
    """Forget replicas: their ids joined by `;`, or all of the name.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.admin.CleanControllerBrokerDataRequestHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = not_null(default=None)
    brokerControllerIdsToClean: str | None = None
    isCleanLivingBroker: bool | None = nullable(default=False)


@dataclass
class GetNextBrokerIdRequestHeader(CommandCustomHeader):
    """Which id would the next replica of this name get?

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdRequestHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None


@dataclass
class GetNextBrokerIdResponseHeader(CommandCustomHeader):
    """The id that is not taken yet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdResponseHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    nextBrokerId: int | None = nullable(LONG)


@dataclass
class ApplyBrokerIdRequestHeader(CommandCustomHeader):
    """Take an id: `registerCheckCode` is `address;time in ms`, and says later that it was this one who took it.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdRequestHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    appliedBrokerId: int | None = nullable(LONG)
    registerCheckCode: str | None = None


@dataclass
class ApplyBrokerIdResponseHeader(CommandCustomHeader):
    """The id is taken.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdResponseHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None


@dataclass
class RegisterBrokerToControllerRequestHeader(CommandCustomHeader):
    """A replica that has its id is here, at this address.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.RegisterBrokerToControllerRequestHeader
    (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    brokerId: int | None = nullable(LONG)
    brokerAddress: str | None = None
    haServerAddr: str | None = None


@dataclass
class RegisterBrokerToControllerResponseHeader(CommandCustomHeader):
    """Who is the master, None when there is none; the body is the SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.RegisterBrokerToControllerResponseHeader
    (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    masterBrokerId: int | None = nullable(LONG)
    masterAddress: str | None = None
    masterEpoch: int | None = nullable(INTEGER)
    syncStateSetEpoch: int | None = nullable(INTEGER)
    masterHaAddress: str | None = None


@dataclass
class BrokerHeartbeatRequestHeader(CommandCustomHeader):
    """A broker lives. Offsets are of its commit log; it counts as dead `heartbeatTimeoutMills` ms behind this.

    Java: org.apache.rocketmq.remoting.protocol.header.namesrv.BrokerHeartbeatRequestHeader (5.1.4)
    """

    clusterName: str | None = not_null(default=None)
    brokerAddr: str | None = not_null(default=None)
    brokerName: str | None = not_null(default=None)
    brokerId: int | None = nullable(LONG)
    epoch: int | None = nullable(INTEGER)
    maxOffset: int | None = nullable(LONG)
    confirmOffset: int | None = nullable(LONG)
    heartbeatTimeoutMills: int | None = nullable(LONG)
    electionPriority: int | None = nullable(INTEGER)
    haServerAddr: str | None = None
    # rmqha's own, as the one above: the leadership of which it takes leases, none of before; absent: of no one yet
    leaderTerm: int | None = nullable(LONG)


@dataclass
class BrokerHeartbeatResponseHeader(CommandCustomHeader):
    """rmqha's own: the leading controller tells who is the master, and grants that one its lease of so many ms.

    A controller that does not lead, and one of RocketMQ, tells nothing. `leaderTerm` is the number of its leadership;
    if the question named another one, it has asked behind it whether it still leads.
    """

    masterBrokerId: int | None = nullable(LONG)
    masterEpoch: int | None = nullable(INTEGER)
    leaseMillis: int | None = nullable(LONG)
    leaderTerm: int | None = nullable(LONG)


MAX_BLOCK_SIZE = 1 << 20
MAX_BLOCKS = 4096
MAX_RANGE = 16 << 20  # bytes that one request may have read
MAX_BYTES = 1 << 20  # bytes that one request may get


@dataclass
class GetCommitLogChecksumsRequestHeader(CommandCustomHeader):
    """rmqha's own: the CRC32 of `count` blocks of `blockSize` bytes from commit log `offset` on.

    `count * blockSize` is at most MAX_RANGE. `withBytes`: the blocks themselves, too, then MAX_BYTES at most.
    """

    offset: int = not_null(LONG)
    blockSize: int = not_null(INTEGER)
    count: int = not_null(INTEGER)
    withBytes: bool = nullable(default=False)

    def check_fields(self) -> None:
        """Bound what one request reads and gets."""
        if self.offset < 0:
            raise HeaderFieldError(f"offset is {self.offset}, and must not be negative")
        if not 1 <= self.blockSize <= MAX_BLOCK_SIZE:
            raise HeaderFieldError(f"blockSize is {self.blockSize}, and must be from 1 to {MAX_BLOCK_SIZE}")
        if not 1 <= self.count <= MAX_BLOCKS:
            raise HeaderFieldError(f"count is {self.count}, and must be from 1 to {MAX_BLOCKS}")
        if self.blockSize * self.count > MAX_RANGE:
            raise HeaderFieldError(f"{self.count} blocks of {self.blockSize} bytes are {self.blockSize * self.count} "
                                   f"bytes; a request may ask for {MAX_RANGE}")
        if self.withBytes and self.blockSize * self.count > MAX_BYTES:
            raise HeaderFieldError(f"{self.blockSize * self.count} bytes are asked for; a request may get {MAX_BYTES}")


@dataclass
class GetCommitLogChecksumsResponseHeader(CommandCustomHeader):
    """rmqha's own: where the log begins and ends. The body has the checksums: see `log_checksums`."""

    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)
