"""Bodies of what brokers, tools and the controller of automatic failover ask each other (RocketMQ 5.1.4)."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class SyncStateSet:
    """Ids of the replicas that hold all that was acknowledged, and how often that set was changed.

    Java: org.apache.rocketmq.remoting.protocol.body.SyncStateSet (5.1.4)
    """

    syncStateSet: list[int] = field(default_factory=list)
    syncStateSetEpoch: int = 0


@dataclass(slots=True)
class BrokerMemberGroup:
    """The replicas of one broker name: address by id.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerMemberGroup (5.1.4)
    """

    cluster: str | None = None
    brokerName: str | None = None
    brokerAddrs: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class ElectMasterResponseBody:
    """The replicas, and those of them that are in sync with the new master.

    Java: org.apache.rocketmq.remoting.protocol.body.ElectMasterResponseBody (5.1.4)
    """

    brokerMemberGroup: BrokerMemberGroup | None = None
    syncStateSet: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ReplicaIdentity:
    """One replica, and whether the controller hears from it.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo$ReplicaIdentity (5.1.4)
    """

    brokerName: str | None = None
    brokerId: int | None = None
    brokerAddress: str | None = None
    alive: bool | None = None


@dataclass(slots=True)
class ReplicasInfo:
    """Master, epochs and replicas of one broker name.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo$ReplicasInfo (5.1.4)
    """

    masterBrokerId: int | None = None
    masterAddress: str | None = None
    masterEpoch: int = 0
    syncStateSetEpoch: int = 0
    inSyncReplicas: list[ReplicaIdentity] = field(default_factory=list)
    notInSyncReplicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(slots=True)
class BrokerReplicasInfo:
    """Answer of CONTROLLER_GET_SYNC_STATE_DATA: by broker name.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo (5.1.4)
    """

    replicasInfoTable: dict[str, ReplicasInfo] = field(default_factory=dict)
