"""All decisions about the replicas of one broker name, each a pure function.

    (ReplicaSet or None, the request, what is heard from the replicas)  -->  Decision: the answer, and what to write

- `ReplicaSet`: the decided state of one broker name, stored as one small JSON document, which is the unit of each
  change.
- `elect`: chooses the master among the replicas that are alive.

The module reads no clock, file or socket. The caller writes the decision before it answers, and asks again if another
writer was faster.

Sync-state set. It names the replicas that hold everything that was confirmed, so that any of them may become the
master. The master proposes it (`alter_sync_state_set`): it adds a slave that has caught up, and removes one that has
fallen behind. Messages are confirmed once all members hold them. So the removal of a slave must be decided here, and be
durable, before the master confirms a message without that slave: otherwise the slave could still be elected, and the
message would be lost. Therefore a proposal is refused unless the sender is the master of the present epoch and knows
the last set (both epochs are compared); a former master, or an answer that was lost, cannot bring a member back. After
an election the set has only the new master: a slave counts again once it has caught up with that one. `elect` chooses
outside of the set only with enableElectUncleanMaster, which can lose confirmed messages.

Java: org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager (5.1.4)
"""
from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from rmqha.common.java import string_of
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import (
    BrokerMemberGroup,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    BrokerHeartbeatResponseHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.common.texts import parse_json
from rmqha.controller.broker_liveness import BrokerLiveInfo

FIRST_BROKER_CONTROLLER_ID = 1


class ReplicaSetError(ValueError):
    """A document that is not a valid replica set."""


@dataclass(frozen=True)
class Replica:
    """One replica: its address, and the code under which it received its id (`address;ms since 1970`)."""

    address: str
    register_check_code: str


@dataclass(frozen=True)
class ReplicaSet:
    """All that is decided for one broker name. It is immutable; a decision makes a new one.

    Without a master, `master_id` has no value (None). Both epochs count changes and never decrease.

    Java: org.apache.rocketmq.controller.impl.manager.BrokerReplicaInfo (5.1.4)
    """

    cluster_name: str
    broker_name: str
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    next_broker_id: int = FIRST_BROKER_CONTROLLER_ID
    master_id: int | None = None
    master_epoch: int = 0
    sync_state_set: frozenset[int] = frozenset()
    sync_state_set_epoch: int = 0

    @property
    def never_had_a_master(self) -> bool:
        """True if the first election has not taken place."""
        return self.master_epoch == 0

    def address(self, broker_id: int | None) -> str | None:
        """Return `host:port` of a replica; None if it is not known."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def encode(self) -> bytes:
        """Return the document: UTF-8 JSON, keys sorted."""
        document = {
            "clusterName": self.cluster_name, "brokerName": self.broker_name, "nextBrokerId": self.next_broker_id,
            "replicas": {str(id_): {"address": r.address, "registerCheckCode": r.register_check_code}
                         for id_, r in self.replicas.items()},
            "masterBrokerId": self.master_id, "masterEpoch": self.master_epoch,
            "syncStateSet": sorted(self.sync_state_set), "syncStateSetEpoch": self.sync_state_set_epoch}
        return json.dumps(document, sort_keys=True, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> ReplicaSet:
        """Return the replica set in a document. ReplicaSetError says what is wrong with it."""
        try:
            document = parse_json(data, "the document")
            return cls(
                _text_of(document, "clusterName"), _text_of(document, "brokerName"),
                {_whole(int(id_)): Replica(_text_of(r, "address"), _text_of(r, "registerCheckCode"))
                 for id_, r in document["replicas"].items()},
                _whole(document["nextBrokerId"]),
                None if document["masterBrokerId"] is None else _whole(document["masterBrokerId"]),
                _whole(document["masterEpoch"]), frozenset(map(_whole, document["syncStateSet"])),
                _whole(document["syncStateSetEpoch"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReplicaSetError(f"{data[:80]!r} is not a replica set: {error!r}") from error


def _text_of(document: dict[str, object], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not a text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a whole number from 0 on")
    return value


def elect(sync_state_set: Collection[int], all_replicas: Collection[int] | None, old_master: int | None,
          preferred: int | None, alive: Mapping[int, BrokerLiveInfo]) -> int | None:
    """Return the id of a replica that is alive and in sync; or None.

    The old master wins if it is alive, unless another replica is preferred. With a preferred one, only that one can be
    elected. Otherwise it is the replica with the longest log. `all_replicas`: those that may become it, at the cost of
    lost messages, if none in sync can.

    Java: org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy (5.1.4)
    """
    elected = _elect_among(sync_state_set, old_master, preferred, alive)
    if elected is None and all_replicas is not None:
        elected = _elect_among(all_replicas, old_master, preferred, alive)
    return elected


def _elect_among(replicas: Collection[int], old_master: int | None, preferred: int | None,
                 alive: Mapping[int, BrokerLiveInfo]) -> int | None:
    candidates = [id_ for id_ in replicas if id_ in alive]
    if old_master in candidates and preferred in (None, old_master):
        return old_master
    if preferred is not None:
        return preferred if preferred in candidates else None
    return min(candidates, key=lambda id_: _rank(alive[id_], id_), default=None)


def _rank(info: BrokerLiveInfo, broker_id: int) -> tuple[int, int, int, int]:
    # Differs: an election compares offsets as they are; 5.1.4 casts their difference to an int, which may change its
    # sign
    return -info.epoch, -info.max_offset, info.priority, broker_id


Body = SyncStateSet | ElectMasterResponseBody

# Another id can follow it.
_MAX_BROKER_ID = (1 << 62) - 1
# A broker that reports a higher one is mistaken; epochs have 31 bits.
_MAX_EPOCH = 1 << 30


@dataclass(frozen=True)
class Heard:
    """The state that the controller hears from the replicas of one broker name at a moment: those alive, by id."""

    alive: Mapping[int, BrokerLiveInfo] = field(default_factory=dict)
    # No lease of the master can hold any more.
    may_replace_master: bool = False

    def ha_address(self, broker_id: int | None) -> str | None:
        """Return `host:port` for slaves of this replica; None if it has not reported one."""
        info = None if broker_id is None else self.alive.get(broker_id)
        return None if info is None else info.ha_address


NOBODY_HEARD = Heard()


@dataclass(frozen=True)
class Decision:
    """An answer, which may be sent once `replica_set` is written, if there is anything to write.

    Java: org.apache.rocketmq.controller.impl.event.ControllerResult (5.1.4)
    """

    code: int = response_code.SUCCESS
    remark: str | None = None
    header: CommandCustomHeader | None = None
    body: Body | None = None
    writes: bool = False
    # The set to write. With `writes`, None means that the broker name is forgotten.
    replica_set: ReplicaSet | None = None
    # The master that the elected one replaces.
    old_master_id: int | None = None


def alter_sync_state_set(current: ReplicaSet | None, request: AlterSyncStateSetRequestHeader, wanted: SyncStateSet,
                         heard: Heard) -> Decision:
    """Accept the master's new sync-state set, if it is the master, knows the last set, and names only living replicas.

    Differs: a request for a sync-state set with the same members is accepted, too, and the set gets a new epoch: then
    whatever the master requested after the last set, without getting an answer, can no longer take effect. 5.1.4
    refuses it.
    """
    if current is None:
        return Decision(response_code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed")
    members = frozenset(wanted.syncStateSet)
    refused = _why_not_alter(current, request, members, wanted.syncStateSetEpoch, heard)
    if refused is not None:
        return refused
    epoch = current.sync_state_set_epoch + 1
    return Decision(header=AlterSyncStateSetResponseHeader(newSyncStateSetEpoch=epoch),
                    body=SyncStateSet(sorted(members), epoch), writes=True,
                    replica_set=replace(current, sync_state_set=members, sync_state_set_epoch=epoch))


def _why_not_alter(current: ReplicaSet, request: AlterSyncStateSetRequestHeader, members: frozenset[int], epoch: int,
                   heard: Heard) -> Decision | None:
    rejecting = "Rejecting alter syncStateSet request because the "
    if current.master_id is None or current.master_id != request.masterBrokerId:
        return Decision(response_code.CONTROLLER_INVALID_MASTER,
                        f"{rejecting}current leader is:{{{_text(current.master_id)}}}, not "
                        f"{{{_text(request.masterBrokerId)}}}")
    if current.master_epoch != request.masterEpoch:
        return Decision(response_code.CONTROLLER_FENCED_MASTER_EPOCH,
                        f"{rejecting}current master epoch is:{{{current.master_epoch}}}, not "
                        f"{{{_text(request.masterEpoch)}}}")
    if current.sync_state_set_epoch != epoch:
        return Decision(response_code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
                        f"{rejecting}current syncStateSet epoch is:{{{current.sync_state_set_epoch}}}, not {{{epoch}}}")
    for id_ in sorted(members):
        if id_ not in current.replicas:
            return Decision(response_code.CONTROLLER_INVALID_REPLICAS,
                            f"{rejecting}replicas {{{id_}}} don't exist")
        if id_ not in heard.alive:
            return Decision(response_code.CONTROLLER_BROKER_NOT_ALIVE,
                            f"{rejecting}replicas {{{id_}}} don't alive")
    if current.master_id not in members:
        return Decision(response_code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
                        f"{rejecting}newSyncStateSet don't contains origin leader {{{current.master_id}}}")
    return None


def elect_master(current: ReplicaSet | None, request: ElectMasterRequestHeader, heard: Heard, *,
                 unclean: bool = False) -> Decision:
    """Elect a master, unless the old one is alive; `unclean`: one that is not in sync is allowed if no other is alive.

    The first replica that asks becomes the first master. The controller itself asks without an id when the master is
    gone: then the broker name has no master if no other can be elected. No master is elected while a lease of the old
    one may hold.
    """
    if current is None:
        return Decision(response_code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered")
    old, asking = current.master_id, request.brokerId
    elected = _elected(current, request, heard, unclean)
    if elected is not None and elected == old:
        return _master_still_exists(current, heard)
    if elected is None and asking is not None:
        return Decision(response_code.CONTROLLER_ELECT_MASTER_FAILED,
                        f"Failed to elect a new master: {_why_nobody(current, request, heard, unclean)}")
    if old is not None and not heard.may_replace_master:
        return Decision(response_code.CONTROLLER_ELECT_MASTER_FAILED,
                        f"Failed to elect a new master: the lease of the old one, {old}, may hold for a moment")
    if elected is not None:
        return _new_master(current, elected, heard)
    remark = ("Old master has down and failed to elect a new broker master: "
              f"{_why_nobody(current, request, heard, unclean)}")
    if old is None:
        return Decision(response_code.CONTROLLER_MASTER_NOT_AVAILABLE, remark)
    return Decision(response_code.CONTROLLER_MASTER_NOT_AVAILABLE, remark, writes=True,
                    replica_set=replace(current, master_id=None, master_epoch=current.master_epoch + 1))


def _elected(current: ReplicaSet, request: ElectMasterRequestHeader, heard: Heard, unclean: bool) -> int | None:
    # Differs: the first master of a broker name must be registered; 5.1.4 accepts any id that a request names
    if current.never_had_a_master and request.brokerId in current.replicas:
        return request.brokerId
    preferred = request.brokerId if request.designateElect else None
    return elect(current.sync_state_set, tuple(current.replicas) if unclean else None, current.master_id, preferred,
                 heard.alive)


def _master_still_exists(current: ReplicaSet, heard: Heard) -> Decision:
    header = ElectMasterResponseHeader(
        masterBrokerId=current.master_id, masterAddress=current.address(current.master_id),
        masterEpoch=current.master_epoch, syncStateSetEpoch=current.sync_state_set_epoch,
        masterHaAddress=heard.ha_address(current.master_id))
    return Decision(response_code.CONTROLLER_MASTER_STILL_EXIST,
                    f"The old master {current.master_id} is still alive, not need to elect new master for broker "
                    f"{current.broker_name}", header, ElectMasterResponseBody(None, sorted(current.sync_state_set)))


def _new_master(current: ReplicaSet, elected: int, heard: Heard) -> Decision:
    # Differs: a new master's epoch is also higher than any in the logs, which may come from masters before there was a
    # controller or before it lost its state; a broker with such a log can't begin the epoch of 5.1.4's controller
    known = max((info.epoch for info in heard.alive.values() if info.epoch < _MAX_EPOCH), default=0)
    decided = replace(current, master_id=elected, master_epoch=max(current.master_epoch, known) + 1,
                      sync_state_set=frozenset((elected,)), sync_state_set_epoch=current.sync_state_set_epoch + 1)
    header = ElectMasterResponseHeader(
        masterBrokerId=elected, masterAddress=decided.address(elected), masterEpoch=decided.master_epoch,
        syncStateSetEpoch=decided.sync_state_set_epoch, masterHaAddress=heard.ha_address(elected))
    group = BrokerMemberGroup(current.cluster_name, current.broker_name,
                              {id_: each.address for id_, each in current.replicas.items()})
    return Decision(header=header, body=ElectMasterResponseBody(group, [elected]), writes=True, replica_set=decided,
                    old_master_id=current.master_id)


def _why_nobody(current: ReplicaSet, request: ElectMasterRequestHeader, heard: Heard, unclean: bool) -> str:
    in_sync, alive = sorted(current.sync_state_set), sorted(heard.alive)
    if request.designateElect and request.brokerId is not None:
        if request.brokerId not in current.replicas:
            return f"broker {request.brokerId} is not registered"
        if request.brokerId not in heard.alive:
            return f"broker {request.brokerId} is not alive"
        return f"broker {request.brokerId} is not in sync, only {in_sync}"
    if unclean or not alive:
        return "no replica is alive"
    return f"in sync are {in_sync}, and only {alive} are alive"


def needs_election(current: ReplicaSet, heard: Heard, *, unclean: bool = False, has_ended: bool = False) -> bool:
    """Return whether the controller should elect on its own: the master is gone for good, or there could be one but is
    not.

    While no replica is heard the last master stays, unless it was seen to end (`has_ended`): after a restart of the
    controller they may all come back.

    Java: org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager#scanNeedReelectBrokerSets (5.1.4)
    """
    # Differs: a broker name without a master gets one as soon as possible; in 5.1.4 a broker has to ask for it
    if current.master_id is not None:
        return current.master_id not in heard.alive and heard.may_replace_master and (has_ended or bool(heard.alive))
    if current.never_had_a_master:
        return False
    return bool(heard.alive) if unclean else any(id_ in heard.alive for id_ in current.sync_state_set)


def get_next_broker_id(current: ReplicaSet | None, request: GetNextBrokerIdRequestHeader) -> Decision:
    """Return the id that the next replica will get."""
    return Decision(header=GetNextBrokerIdResponseHeader(
        clusterName=request.clusterName, brokerName=request.brokerName,
        nextBrokerId=FIRST_BROKER_CONTROLLER_ID if current is None else current.next_broker_id))


def apply_broker_id(current: ReplicaSet | None, request: ApplyBrokerIdRequestHeader) -> Decision:
    """Assign an id to the replica that asks for it, unless another one has it."""
    id_, code = request.appliedBrokerId, request.registerCheckCode
    done = ApplyBrokerIdResponseHeader(clusterName=request.clusterName, brokerName=request.brokerName)
    invalid = response_code.CONTROLLER_BROKER_ID_INVALID
    if id_ is None or not FIRST_BROKER_CONTROLLER_ID <= id_ <= _MAX_BROKER_ID or not code or not request.brokerName:
        return Decision(invalid, f"Fail to apply brokerId: {_text(id_)} in broker-set: {string_of(request.brokerName)}",
                        done)
    if current is None:
        if id_ != FIRST_BROKER_CONTROLLER_ID:
            return Decision(invalid, f"Broker-set: {request.brokerName} hasn't been registered in controller, but "
                            f"broker try to apply brokerId: {id_}", done)
        current = ReplicaSet(request.clusterName or "", request.brokerName)
    taken = current.replicas.get(id_)
    if taken is not None:
        if taken.register_check_code == code:
            return Decision(header=done)
        return Decision(invalid, f"Fail to apply brokerId: {id_} in broker-set: {request.brokerName}", done)
    # Differs: the next broker id is higher than all that were given; 5.1.4 counts, and may keep returning one that is
    # taken
    return Decision(header=done, writes=True, replica_set=replace(
        current, replicas={**current.replicas, id_: Replica(code.split(";")[0], code)},
        next_broker_id=max(current.next_broker_id, id_ + 1)))


def register_broker(current: ReplicaSet | None, request: RegisterBrokerToControllerRequestHeader,
                    heard: Heard) -> Decision:
    """Return the master to a replica, if that master is alive, and note the replica's address."""
    header = RegisterBrokerToControllerResponseHeader(clusterName=request.clusterName, brokerName=request.brokerName)
    needed = response_code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    if current is None:
        return Decision(needed, f"Broker-set: {string_of(request.brokerName)} hasn't been registered in controller",
                        header)
    replica = None if request.brokerId is None else current.replicas.get(request.brokerId)
    if replica is None or request.brokerId is None:
        return Decision(needed, f"BrokerId: {_text(request.brokerId)} hasn't been registered in broker-set: "
                        f"{current.broker_name}", header)
    if current.master_id in heard.alive:
        header.masterBrokerId, header.masterAddress = current.master_id, current.address(current.master_id)
        header.masterEpoch, header.syncStateSetEpoch = current.master_epoch, current.sync_state_set_epoch
        header.masterHaAddress = heard.ha_address(current.master_id)
    decision = Decision(header=header, body=_sync_state_set(current))
    address = request.brokerAddress
    if address is None or address == replica.address:
        return decision
    if header.masterBrokerId == request.brokerId:
        header.masterAddress = address
    moved = {**current.replicas, request.brokerId: replace(replica, address=address)}
    return replace(decision, writes=True, replica_set=replace(current, replicas=moved))


def get_replica_info(current: ReplicaSet | None, heard: Heard) -> Decision:
    """Return the master, and the replicas that are in sync with it."""
    if current is None:
        return Decision(response_code.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed",
                        GetReplicaInfoResponseHeader())
    return Decision(header=GetReplicaInfoResponseHeader(
        masterBrokerId=current.master_id, masterAddress=current.address(current.master_id),
        masterEpoch=current.master_epoch, masterHaAddress=heard.ha_address(current.master_id)),
        body=_sync_state_set(current))


def replicas_info(current: ReplicaSet, heard: Heard) -> ReplicasInfo:
    """Return all replicas of a broker name, for people to read.

    Java: org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager#getSyncStateData (5.1.4)
    """
    info = ReplicasInfo(current.master_id, current.address(current.master_id), current.master_epoch,
                        current.sync_state_set_epoch)
    for id_, replica in sorted(current.replicas.items()):
        identity = ReplicaIdentity(current.broker_name, id_, replica.address, id_ in heard.alive)
        (info.inSyncReplicas if id_ in current.sync_state_set else info.notInSyncReplicas).append(identity)
    return info


def clean_broker_data(current: ReplicaSet | None, request: CleanControllerBrokerDataRequestHeader,
                      heard: Heard) -> Decision:
    """Forget some replicas of a broker name, or all; those alive only if the request says so."""
    invalid = response_code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    # Differs: a request to forget replicas forgets only those whose ids it names, even with isCleanLivingBroker; 5.1.4
    # then forgets all replicas of the broker name
    try:
        ids = frozenset(int(id_) for id_ in (request.brokerControllerIdsToClean or "").split(";") if id_.strip())
    except ValueError as failure:
        return Decision(invalid, "Please set the option <brokerControllerIdsToClean> according to the format, "
                        f"exception: {failure}")
    if not request.isCleanLivingBroker:
        if not ids and current is not None and current.master_id is not None:
            return Decision(invalid, f"Broker {request.brokerName} is still alive, clean up failure")
        for id_ in sorted(ids):
            if id_ in heard.alive:
                return Decision(invalid, f"Broker [{request.brokerName},  {id_}] is still alive, clean up failure")
    if current is None:
        return Decision(invalid, f"Broker {request.brokerName} is not existed,clean broker data failure.")
    remaining = {id_: each for id_, each in current.replicas.items() if ids and id_ not in ids}
    if not remaining:
        return Decision(writes=True)
    if current.master_id in ids and not heard.may_replace_master:
        return Decision(invalid, f"Broker [{request.brokerName},  {current.master_id}] is the master, and its lease "
                        "may hold for a moment, clean up failure")
    cleaned = replace(current, replicas=remaining, sync_state_set=current.sync_state_set - ids)
    if cleaned.sync_state_set != current.sync_state_set:
        cleaned = replace(cleaned, sync_state_set_epoch=current.sync_state_set_epoch + 1)
    # Differs: a master that is forgotten is no longer the master; in 5.1.4 it stays in charge without an address
    if cleaned.master_id in ids:
        cleaned = replace(cleaned, master_id=None, master_epoch=current.master_epoch + 1)
    return Decision(writes=cleaned != current, replica_set=cleaned)


def broker_heartbeat(current: ReplicaSet | None, broker_id: int, lease_ms: int,
                     term: int) -> BrokerHeartbeatResponseHeader:
    """Return the answer to a living broker of the controller that leads in this term: the master, and its lease.

    A lease of 0 ms means none.
    """
    if current is None:
        return BrokerHeartbeatResponseHeader(leaseMillis=0)
    return BrokerHeartbeatResponseHeader(masterBrokerId=current.master_id, masterEpoch=current.master_epoch,
                                         leaseMillis=lease_ms if current.master_id == broker_id else 0,
                                         leaderTerm=term)


def _sync_state_set(current: ReplicaSet) -> SyncStateSet:
    return SyncStateSet(sorted(current.sync_state_set), current.sync_state_set_epoch)


def _text(number: int | None) -> str:
    return "null" if number is None else str(number)
