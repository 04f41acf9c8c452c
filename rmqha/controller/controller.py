"""The decisions of a controller, in order and durable.

    requests, closed connections, deadlines --> Controller: lock of the broker name -> read -> decide -> write -> answer
                                                      |  an election
                                                      v
                                               on_new_master --> NotifyService --> the brokers

Planned switch. An operator names the new master (`designateElect`). The old one is alive and holds a lease, so by the
rule of `broker_liveness` the election would have to wait until the lease has run out, and a message that the old master
still took in that time could be lost. So the controller first asks the old master to hand over
(`_ask_master_to_hand_over`). It stops taking messages, waits until the successor holds its whole log and all senders
have their answers, gives up its lease, and answers; if no election follows, it takes messages again after 1 s. Only
after that answer the election runs, under the same lock of the name, and succeeds at once because the lease was
renounced. If the master refuses or does not answer, the election is tried anyway and fails while the lease may hold:
nothing has changed, and the old master continues. The renouncement counts from when the master was asked, not from its
answer: see `BrokerLiveness.renounced`.
"""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import BrokerReplicasInfo, SyncStateSet
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatResponseHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqha.controller import broker_liveness
from rmqha.controller import replicas_info_manager as decisions
from rmqha.controller.broker_liveness import (
    BrokerIdentity,
    BrokerLiveInfo,
    BrokerLiveness,
    ControllerLimitError,
    check_names,
)
from rmqha.controller.local_store import ControllerStore, NotLeaderError, StoreConflictError, StoreFailedError
from rmqha.controller.replicas_info_manager import Decision, Heard, ReplicaSet

if TYPE_CHECKING:
    from rmqha.common.controller_config import ControllerConfig
    from rmqha.controller.controller_metrics import ControllerCounts

log = logging.getLogger("RocketmqController")

# Of one decision, while others change the same name.
_MAX_TRIES = 10
# Locks; names that share one wait for each other.
_STRIPES = 256
_NS_PER_MS = 1_000_000

Decide = Callable[[ReplicaSet | None, Heard], Decision]
Handover = Callable[[str, int], str | None]
"""(a master's address, its successor's id) -> None if it has given up its lease, otherwise why it has not."""


class Controller:
    """Decides for the leader. Any thread may call it; NotLeaderError of the store is passed to the caller.

    An answer that changes nothing is only sent after the store has confirmed, later than the request, that this
    controller still leads. So it was true at some moment after the request.

    An election for a broker name and the grant of a lease to its master exclude each other: both hold the lock of the
    broker name.

    Java: org.apache.rocketmq.controller.impl.DLedgerController (5.1.4)
    """

    def __init__(self, config: ControllerConfig, store: ControllerStore, liveness: BrokerLiveness,
                 counts: ControllerCounts, handover: Handover) -> None:
        self.config, self.store, self.liveness, self.counts = config, store, liveness, counts
        self._handover = handover
        self._locks = tuple(threading.Lock() for _ in range(_STRIPES))
        self.on_new_master: Callable[[Decision], None] = lambda _decision: None
        # Check again in this many ms.
        self.on_due: Callable[[str, float], None] = lambda _name, _delay_ms: None

    # requests

    def alter_sync_state_set(self, header: AlterSyncStateSetRequestHeader, wanted: SyncStateSet) -> Decision:
        """CONTROLLER_ALTER_SYNC_STATE_SET."""
        return self._decide(header.brokerName, lambda current, heard: decisions.alter_sync_state_set(
            current, header, wanted, heard))

    def elect_master(self, header: ElectMasterRequestHeader) -> Decision:
        """Serve CONTROLLER_ELECT_MASTER, requested by a broker or a tool."""
        asked_ns = time.monotonic_ns()
        decision = self._elect(header.brokerName or "", header, lambda _current, _heard: True) or _unknown()
        return self._confirmed(decision, asked_ns)

    def get_next_broker_id(self, header: GetNextBrokerIdRequestHeader) -> Decision:
        """CONTROLLER_GET_NEXT_BROKER_ID."""
        return self._look(header.brokerName, lambda current, _heard: decisions.get_next_broker_id(current, header))

    def apply_broker_id(self, header: ApplyBrokerIdRequestHeader) -> Decision:
        """CONTROLLER_APPLY_BROKER_ID. ControllerLimitError."""
        check_names(header.brokerName, header.clusterName, header.registerCheckCode)

        def apply(current: ReplicaSet | None, _heard: Heard) -> Decision:
            decision = decisions.apply_broker_id(current, header)
            if decision.replica_set is not None:
                self._check_room(current, decision.replica_set)
            return decision
        return self._decide(header.brokerName, apply)

    def _check_room(self, current: ReplicaSet | None, wanted: ReplicaSet) -> None:
        if len(wanted.replicas) > broker_liveness.MAX_REPLICAS:
            raise ControllerLimitError(f"{wanted.broker_name} already has {broker_liveness.MAX_REPLICAS} replicas")
        if current is None and self.store.places_taken(wanted.broker_name) >= broker_liveness.MAX_BROKER_NAMES:
            raise ControllerLimitError(f"there are already {broker_liveness.MAX_BROKER_NAMES} broker names, including "
                                       "forgotten ones")

    def register_broker(self, header: RegisterBrokerToControllerRequestHeader) -> Decision:
        """CONTROLLER_REGISTER_BROKER. ControllerLimitError."""
        check_names(header.brokerAddress)
        return self._decide(header.brokerName, lambda current, heard: decisions.register_broker(
            current, header, heard))

    def get_replica_info(self, broker_name: str | None) -> Decision:
        """CONTROLLER_GET_REPLICA_INFO."""
        return self._look(broker_name, decisions.get_replica_info)

    def clean_broker_data(self, header: CleanControllerBrokerDataRequestHeader) -> Decision:
        """CLEAN_BROKER_DATA."""
        return self._decide(header.brokerName, lambda current, heard: decisions.clean_broker_data(
            current, header, heard))

    def get_sync_state_data(self, broker_names: Iterable[str]) -> BrokerReplicasInfo:
        """CONTROLLER_GET_SYNC_STATE_DATA. NotLeaderError."""
        info, asked_ns = BrokerReplicasInfo(), time.monotonic_ns()
        # Differs: CONTROLLER_GET_SYNC_STATE_DATA looks up each name once; 5.1.4 does so as often as it occurs in the
        # request
        for name in dict.fromkeys(broker_names):
            current = self.store.get(name).replica_set
            if current is not None:
                info.replicasInfoTable[name] = decisions.replicas_info(current, self._heard(current))
        self.store.confirm(asked_ns)
        return info

    def get_controller_metadata(self, peers: dict[str, str]) -> GetMetaDataResponseHeader:
        """CONTROLLER_GET_METADATA_INFO, which every controller serves; `peers` by id."""
        store = self.store
        return GetMetaDataResponseHeader(
            group=self.config.controllerDLegerGroup, controllerLeaderId=store.leader_id,
            controllerLeaderAddress=store.leader_address, isLeader=store.leads,
            peers="".join(f"{id_}:{address};" for id_, address in peers.items()))

    def on_broker_heartbeat(self, info: BrokerLiveInfo) -> BrokerHeartbeatResponseHeader:
        """Serve BROKER_HEARTBEAT of a broker that was just noted: report the master, and grant it a lease if it is
        the one.

        Before a broker follows this leadership, the store is asked whether this controller still leads: if the
        heartbeat names another leadership, another controller may have led since.
        """
        _cluster, name, id_ = info.identity
        term = self.store.term
        if not term:
            return BrokerHeartbeatResponseHeader(leaseMillis=0)
        try:
            if info.takes_leases and info.leader_term != term:
                self.store.confirm(info.heard_ns)
        except (NotLeaderError, StoreFailedError) as failure:
            log.info("heartbeat of %s, id:%d: %s", name, id_, failure)
            return BrokerHeartbeatResponseHeader(leaseMillis=0)
        with self._lock(name):
            try:
                current = self.store.get(name).replica_set
            except NotLeaderError:
                return BrokerHeartbeatResponseHeader(leaseMillis=0)
            if self.store.term != term:
                return BrokerHeartbeatResponseHeader(leaseMillis=0)
            is_master = current is not None and current.master_id == id_ and current.cluster_name == info.identity[0]
            lease_ms = self.liveness.grant(info.identity, info.channel) if is_master else 0
            answer = decisions.broker_heartbeat(current, id_, lease_ms, term)
            wants_election = self._needs_election(current)
        if wants_election:
            self.on_due(name, 0)
        return answer

    # elections

    def elect_if_needed(self, broker_name: str, has_ended: bool = False) -> None:
        """Elect a master if none is alive; or schedule another check for when that is allowed.

        `has_ended`: one of its replicas was just seen to end.

        Java: org.apache.rocketmq.controller.ControllerManager#onBrokerInactive (5.1.4)
        """
        header = ElectMasterRequestHeader(clusterName=None, brokerName=broker_name, designateElect=False)
        try:
            self._elect(broker_name, header, lambda current, _heard: self._needs_election(current, has_ended))
            self._look_again_when_due(broker_name)
        except NotLeaderError:
            log.debug("%s: another controller leads", broker_name)

    def _look_again_when_due(self, broker_name: str) -> None:
        current = self.store.get(broker_name).replica_set
        if current is None or current.master_id is None:
            return
        master = _identity(current, current.master_id)
        if not self.liveness.is_alive(master):
            left_ns = self.liveness.replaceable_from_ns(master, self.store.leads_since_ns, self.store.term)
            left_ns -= time.monotonic_ns()
            if left_ns > 0:
                self.on_due(broker_name, left_ns / _NS_PER_MS)

    def names_to_look_at(self) -> list[str]:
        """Return the broker names whose master is gone, or that have none and could have one.

        Java: org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager#scanNeedReelectBrokerSets (5.1.4)
        """
        return [each.broker_name for each in self.replica_sets() if self._is_without_master(each)]

    def replica_sets(self) -> list[ReplicaSet]:
        """Return all replica sets; none on a controller that follows."""
        try:
            sets = [self.store.get(name).replica_set for name in self.store.names()]
        except NotLeaderError:
            return []
        return [each for each in sets if each is not None]

    def _is_without_master(self, current: ReplicaSet) -> bool:
        if current.master_id is None:
            return self._needs_election(current)
        return not self.liveness.is_alive(_identity(current, current.master_id))

    def _needs_election(self, current: ReplicaSet | None, has_ended: bool = False) -> bool:
        return current is not None and decisions.needs_election(
            current, self._heard(current), unclean=self.config.enableElectUncleanMaster, has_ended=has_ended)

    def _elect(self, broker_name: str, header: ElectMasterRequestHeader,
               is_wanted: Callable[[ReplicaSet | None, Heard], bool]) -> Decision | None:
        """Elect, notify the brokers, and count it. None if no election is wanted in the present state."""
        def elect(current: ReplicaSet | None, heard: Heard) -> Decision | None:
            if not is_wanted(current, heard):
                return None
            return decisions.elect_master(current, header, heard, unclean=self.config.enableElectUncleanMaster)

        refused = None
        with self._lock(broker_name):
            if header.designateElect:
                refused = self._ask_master_to_hand_over(broker_name, header.brokerId)
            decision = self._decide_locked(broker_name, elect)
        if decision is None:
            return None
        if refused is not None and decision.code == response_code.CONTROLLER_ELECT_MASTER_FAILED:
            decision = Decision(decision.code, f"{decision.remark}; {refused}", decision.header, decision.body)
        self.counts.elected(broker_name, decision)
        if decision.code == response_code.SUCCESS:
            log.info("Elect a new master in broker-set: %s done, result: %s", broker_name, decision.header)
            self.on_new_master(decision)
        else:
            log.warning("broker-set %s: %s", broker_name, decision.remark)
        return decision

    def _ask_master_to_hand_over(self, broker_name: str, successor: int | None) -> str | None:
        """Ask a living master to give up its lease for a designated, electable one. Return why it did not, or None."""
        current = self.store.get(broker_name).replica_set
        if current is None or current.master_id is None or successor is None or successor == current.master_id:
            return None
        master = _identity(current, current.master_id)
        heard, info, address = self._heard(current), self.liveness.get(master), current.address(current.master_id)
        may_become = successor in heard.alive and (
            successor in current.sync_state_set or self.config.enableElectUncleanMaster)
        if info is None or not info.takes_leases or not may_become or address is None:
            return None
        asked_ns = time.monotonic_ns()
        refused = self._handover(address, successor)
        if refused is None:
            self.liveness.renounced(master, asked_ns)
            return None
        return f"the old master, {current.master_id}, did not hand over: {refused}"

    # in common

    def _lock(self, broker_name: str) -> threading.Lock:
        return self._locks[hash(broker_name) % _STRIPES]

    def _heard(self, current: ReplicaSet | None) -> Heard:
        if current is None:
            return decisions.NOBODY_HEARD
        alive = {}
        for id_ in current.replicas:
            info = self.liveness.get(_identity(current, id_))
            if info is not None:
                alive[id_] = info
        return Heard(alive, current.master_id is not None and self.liveness.may_replace(
            _identity(current, current.master_id), self.store.leads_since_ns, self.store.term))

    def _look(self, broker_name: str | None, decide: Decide) -> Decision:
        """Return a decision without a change."""
        asked_ns = time.monotonic_ns()
        current = self.store.get(broker_name or "").replica_set
        return self._confirmed(decide(current, self._heard(current)), asked_ns)

    def _decide(self, broker_name: str | None, decide: Decide) -> Decision:
        asked_ns = time.monotonic_ns()
        with self._lock(broker_name or ""):
            decision = self._decide_locked(broker_name or "", decide) or _unknown()
        return self._confirmed(decision, asked_ns)

    def _confirmed(self, decision: Decision, asked_ns: int) -> Decision:
        """Return the decision once it is certain that it was valid after `asked_ns`. A write has confirmed that
        already.
        """
        if not decision.writes:
            self.store.confirm(asked_ns)
        return decision

    def _decide_locked(self, broker_name: str, decide: Callable[[ReplicaSet | None, Heard], Decision | None],
                       ) -> Decision | None:
        for _ in range(_MAX_TRIES):
            # In this order.
            term, seen = self.store.term, self.store.get(broker_name)
            decision = decide(seen.replica_set, self._heard(seen.replica_set))
            if decision is None or not decision.writes:
                return decision
            try:
                begin_ns = time.monotonic_ns()
                self.store.put(broker_name, seen.version, decision.replica_set, term)
            except StoreConflictError as conflict:
                log.info("%s, deciding again", conflict)
                continue
            except StoreFailedError:
                self.counts.stored(False, time.monotonic_ns() - begin_ns)
                raise
            self.counts.stored(True, time.monotonic_ns() - begin_ns)
            log.info("broker-set %s: %s", broker_name, decision.replica_set)
            return decision
        raise StoreFailedError(f"{broker_name} was changed by others {_MAX_TRIES} times in a row")


def _identity(current: ReplicaSet, broker_id: int) -> BrokerIdentity:
    return current.cluster_name, current.broker_name, broker_id


def _unknown() -> Decision:
    return Decision(response_code.SYSTEM_ERROR, "nothing was decided")
