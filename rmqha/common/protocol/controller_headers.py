"""Headers of requests to the controller of automatic failover, and of the comparison of replicas' logs.

The controller's requests are those of RocketMQ 5.1.4. Brokers, tools and the controller exchange them.
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

# `masterHaAddress` and `haServerAddr` are extensions of rmqha: `host:port` of the master's replication port.


@dataclass
class AlterSyncStateSetRequestHeader(CommandCustomHeader):
    """The master of `masterEpoch` asks to change the sync-state set; the body is the new SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.AlterSyncStateSetRequestHeader (5.1.4)
    """

    brokerName: str | None = None
    masterBrokerId: int | None = nullable(LONG)
    masterEpoch: int | None = nullable(INTEGER)


@dataclass
class AlterSyncStateSetResponseHeader(CommandCustomHeader):
    """The epoch of the set that the controller has accepted; the body is that SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.AlterSyncStateSetResponseHeader (5.1.4)
    """

    newSyncStateSetEpoch: int | None = nullable(INTEGER)


@dataclass
class ElectMasterRequestHeader(CommandCustomHeader):
    """A request to elect a master: from a broker with its id, or from a tool with `designateElect` for that id.

    Without an id the controller itself asks, because the master has failed.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterRequestHeader (5.1.4)
    """

    clusterName: str | None = not_null(default=None)
    brokerName: str | None = not_null(default=None)
    brokerId: int | None = not_null(LONG)
    designateElect: bool | None = not_null(default=False)


@dataclass
class ElectMasterResponseHeader(CommandCustomHeader):
    """The current master; the body is an ElectMasterResponseBody.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterResponseHeader (5.1.4)
    """

    masterBrokerId: int | None = nullable(LONG)
    masterAddress: str | None = None
    masterEpoch: int | None = nullable(INTEGER)
    syncStateSetEpoch: int | None = nullable(INTEGER)
    masterHaAddress: str | None = None


@dataclass
class GetReplicaInfoRequestHeader(CommandCustomHeader):
    """A query for the master of a broker name's replicas.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.GetReplicaInfoRequestHeader (5.1.4)
    """

    brokerName: str | None = None


@dataclass
class GetReplicaInfoResponseHeader(CommandCustomHeader):
    """The master, None without one; the body is the SyncStateSet.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.GetReplicaInfoResponseHeader (5.1.4)
    """

    masterBrokerId: int | None = nullable(LONG)
    masterAddress: str | None = None
    masterEpoch: int | None = nullable(INTEGER)
    masterHaAddress: str | None = None


@dataclass
class GetMetaDataResponseHeader(CommandCustomHeader):
    """A controller's view of its own group; `peers` is `id-host:port` separated by `;`.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.GetMetaDataResponseHeader (5.1.4)
    """

    group: str | None = None
    controllerLeaderId: str | None = None
    controllerLeaderAddress: str | None = None
    isLeader: bool | None = None
    peers: str | None = None


@dataclass
class CleanControllerBrokerDataRequestHeader(CommandCustomHeader):
    """A request to forget replicas: their ids separated by `;`, or all replicas of the broker name.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.admin.CleanControllerBrokerDataRequestHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = not_null(default=None)
    brokerControllerIdsToClean: str | None = None
    isCleanLivingBroker: bool | None = nullable(default=False)


@dataclass
class GetNextBrokerIdRequestHeader(CommandCustomHeader):
    """A query for the id that the next replica of a broker name would get.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdRequestHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None


@dataclass
class GetNextBrokerIdResponseHeader(CommandCustomHeader):
    """The next free id.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdResponseHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    nextBrokerId: int | None = nullable(LONG)


@dataclass
class ApplyBrokerIdRequestHeader(CommandCustomHeader):
    """A request to take an id. `registerCheckCode`, `address;time in ms`, later identifies the replica that took it.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdRequestHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    appliedBrokerId: int | None = nullable(LONG)
    registerCheckCode: str | None = None


@dataclass
class ApplyBrokerIdResponseHeader(CommandCustomHeader):
    """The confirmation that the replica has taken the id.

    Java: org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdResponseHeader (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None


@dataclass
class RegisterBrokerToControllerRequestHeader(CommandCustomHeader):
    """The registration of a replica that has an id, with its address.

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
    """The master, None without one; the body is the SyncStateSet.

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
    """A broker's heartbeat, with offsets of its commit log. It counts as dead `heartbeatTimeoutMills` ms later.

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
    # An extension of rmqha, like haServerAddr: the leadership term whose leases the broker accepts; it accepts none of
    # an earlier term. Absent: the broker has not accepted a lease yet.
    leaderTerm: int | None = nullable(LONG)


@dataclass
class BrokerHeartbeatResponseHeader(CommandCustomHeader):
    """An extension of rmqha: the leading controller reports the master, and grants it a lease of `leaseMillis` ms.

    A controller that does not lead leaves the fields empty, and so does RocketMQ's. `leaderTerm` is the term of the
    leadership. If the request named a different term, the controller has confirmed after the request arrived that it
    still leads.
    """

    masterBrokerId: int | None = nullable(LONG)
    masterEpoch: int | None = nullable(INTEGER)
    leaseMillis: int | None = nullable(LONG)
    leaderTerm: int | None = nullable(LONG)


MAX_BLOCK_SIZE = 1 << 20
MAX_BLOCKS = 4096
# Bytes to read for one request.
MAX_RANGE = 16 << 20
# Bytes to return for one request.
MAX_BYTES = 1 << 20


@dataclass
class GetCommitLogChecksumsRequestHeader(CommandCustomHeader):
    """An extension of rmqha: a query for the CRC32 of `count` blocks of `blockSize` bytes, from commit log `offset` on.

    `count * blockSize` is at most MAX_RANGE; with `withBytes`, which also returns the blocks, at most MAX_BYTES.
    """

    offset: int = not_null(LONG)
    blockSize: int = not_null(INTEGER)
    count: int = not_null(INTEGER)
    withBytes: bool = nullable(default=False)

    def check_fields(self) -> None:
        """Limit the bytes that one request reads and returns."""
        if self.offset < 0:
            raise HeaderFieldError(f"offset is {self.offset}, and must not be negative")
        if not 1 <= self.blockSize <= MAX_BLOCK_SIZE:
            raise HeaderFieldError(f"blockSize is {self.blockSize}, and must be from 1 to {MAX_BLOCK_SIZE}")
        if not 1 <= self.count <= MAX_BLOCKS:
            raise HeaderFieldError(f"count is {self.count}, and must be from 1 to {MAX_BLOCKS}")
        if self.blockSize * self.count > MAX_RANGE:
            raise HeaderFieldError(f"{self.count} blocks of {self.blockSize} bytes are {self.blockSize * self.count} "
                                   f"bytes; the limit of a request is {MAX_RANGE}")
        if self.withBytes and self.blockSize * self.count > MAX_BYTES:
            raise HeaderFieldError(f"{self.blockSize * self.count} bytes are requested; the limit is {MAX_BYTES}")


@dataclass
class GetCommitLogChecksumsResponseHeader(CommandCustomHeader):
    """An extension of rmqha: the first and the next offset of the log. The body has the checksums: see `log_checksums`.
    """

    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)
