"""A controller's decisions as pure functions, the brokers that are alive, and their leases."""
from dataclasses import replace

import pytest

from rmqha.common.protocol import response_code as code
from rmqha.common.protocol.cluster_bodies import ElectMasterResponseBody, SyncStateSet
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqha.controller import replicas_info_manager as decisions
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness
from rmqha.controller.replicas_info_manager import Heard, Replica, ReplicaSet

# Decisions: pure functions of the stored state, the request, and the heartbeats.

NAME, CLUSTER = "b", "c"


def replicas(*ids: int) -> dict[int, Replica]:
    return {id_: Replica(f"host:{id_}", f"host:{id_};99") for id_ in ids}


def replica_set(**changes: object) -> ReplicaSet:
    """Return a set of three replicas: 1 is the master of epoch 3, 2 is in sync, 3 is not."""
    return replace(ReplicaSet(CLUSTER, NAME, replicas(1, 2, 3), 4, 1, 3, frozenset({1, 2}), 7), **changes)


def heard(*ids: int, may_replace: bool = False, **of: dict) -> Heard:
    """Return what heartbeats say. `of`: further fields of a broker's heartbeat, by `b<id>`."""
    return Heard({id_: BrokerLiveInfo((CLUSTER, NAME, id_), f"host:{id_}", 0, 3000, None, f"ha:{id_}",
                                      **of.get(f"b{id_}", {})) for id_ in ids}, may_replace)


def alter(current, ids, master=1, epoch=3, set_epoch=7, alive=(1, 2, 3)):
    return decisions.alter_sync_state_set(current, AlterSyncStateSetRequestHeader(NAME, master, epoch),
                                          SyncStateSet(list(ids), set_epoch), heard(*alive))


def elect(current, what, broker_id=None, designate=False, unclean=False):
    return decisions.elect_master(current, ElectMasterRequestHeader(CLUSTER, NAME, broker_id, designate), what,
                                  unclean=unclean)


# ---- the sync-state set


def test_master_adds_a_replica_to_the_set():
    decision = alter(replica_set(), (1, 2, 3))
    assert decision.code == code.SUCCESS and decision.header.newSyncStateSetEpoch == 8
    assert decision.body == SyncStateSet([1, 2, 3], 8)
    assert decision.replica_set == replica_set(sync_state_set=frozenset({1, 2, 3}), sync_state_set_epoch=8)


def test_same_set_gets_a_new_epoch_so_that_outdated_requests_are_refused():
    decision = alter(replica_set(), (2, 1))
    assert decision.body == SyncStateSet([1, 2], 8)
    assert decision.replica_set == replica_set(sync_state_set_epoch=8)
    assert alter(decision.replica_set, (1, 2, 3)).code == code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH


@pytest.mark.parametrize(("arguments", "expected"), [
    ({"current": None}, code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ({"master": 2}, code.CONTROLLER_INVALID_MASTER),
    ({"current": replica_set(master_id=None)}, code.CONTROLLER_INVALID_MASTER),
    ({"epoch": 2}, code.CONTROLLER_FENCED_MASTER_EPOCH),
    ({"epoch": None}, code.CONTROLLER_FENCED_MASTER_EPOCH),
    ({"set_epoch": 6}, code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
    ({"ids": (1, 4)}, code.CONTROLLER_INVALID_REPLICAS),
    ({"alive": (1, 2)}, code.CONTROLLER_BROKER_NOT_ALIVE),
    ({"ids": (2, 3)}, code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
])
def test_set_is_not_changed(arguments, expected):
    decision = alter(**{"current": replica_set(), "ids": (1, 2, 3), **arguments})
    assert decision.code == expected and not decision.writes and decision.remark


# ---- elections


def test_first_broker_to_ask_becomes_the_first_master():
    decision = elect(ReplicaSet(CLUSTER, NAME, replicas(1, 2), 3), heard(1, 2), 2)
    assert decision.code == code.SUCCESS
    assert (decision.header.masterBrokerId, decision.header.masterEpoch, decision.header.syncStateSetEpoch) == (2, 1, 1)
    assert (decision.header.masterAddress, decision.header.masterHaAddress) == ("host:2", "ha:2")
    assert decision.body.syncStateSet == [2] and decision.body.brokerMemberGroup.brokerAddrs == {
        1: "host:1", 2: "host:2"}
    assert decision.replica_set.master_id == 2 and decision.replica_set.sync_state_set == {2}


def test_unregistered_broker_cannot_become_the_first_master():
    decision = elect(ReplicaSet(CLUSTER, NAME, replicas(1), 2), heard(1), 5)
    assert decision.code == code.CONTROLLER_ELECT_MASTER_FAILED and not decision.writes


def test_new_epoch_is_higher_than_the_epochs_of_all_logs():
    what = Heard({2: replace(heard(2).alive[2], epoch=41)}, may_replace_master=True)
    assert elect(replica_set(), what).header.masterEpoch == 42


def test_live_master_stays_the_master():
    decision = elect(replica_set(), heard(1, 2), 2)
    assert decision.code == code.CONTROLLER_MASTER_STILL_EXIST and not decision.writes
    assert decision.header.masterBrokerId == 1 and decision.header.masterEpoch == 3
    assert decision.body == ElectMasterResponseBody(None, [1, 2])


def test_dead_master_is_replaced_by_an_in_sync_replica():
    decision = elect(replica_set(), heard(2, 3, may_replace=True))
    assert decision.replica_set == replica_set(master_id=2, master_epoch=4, sync_state_set=frozenset({2}),
                                               sync_state_set_epoch=8)


def test_no_broker_is_elected_while_a_lease_may_hold():
    for broker_id, designate in ((None, False), (2, False), (2, True)):
        decision = elect(replica_set(), heard(2, 3), broker_id, designate)
        assert decision.code == code.CONTROLLER_ELECT_MASTER_FAILED and not decision.writes
        assert "lease" in decision.remark


def test_without_an_in_sync_replica_there_is_no_master_and_the_set_stays():
    decision = elect(replica_set(), heard(3, may_replace=True))
    assert decision.code == code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert decision.replica_set == replica_set(master_id=None, master_epoch=4)
    again = elect(decision.replica_set, heard(3, may_replace=True))
    assert again.code == code.CONTROLLER_MASTER_NOT_AVAILABLE and not again.writes


def test_refused_election_changes_nothing():
    decision = elect(replica_set(), heard(3, may_replace=True), 3)
    assert decision.code == code.CONTROLLER_ELECT_MASTER_FAILED and not decision.writes
    assert "in sync are [1, 2], and only [3] are alive" in decision.remark


def test_unclean_election_prefers_in_sync_replicas():
    assert elect(replica_set(), heard(3, may_replace=True), unclean=True).replica_set.master_id == 3
    assert elect(replica_set(), heard(2, 3, may_replace=True), unclean=True).replica_set.master_id == 2


def test_designated_replica_is_elected_while_the_master_is_alive():
    assert elect(replica_set(), heard(1, 2, may_replace=True), 2, True).replica_set.master_id == 2


@pytest.mark.parametrize(("broker_id", "alive", "reason"), [
    (3, (1, 2, 3), "broker 3 is not in sync, only [1, 2]"), (2, (1, 3), "broker 2 is not alive"),
    (9, (1, 2), "broker 9 is not registered")])
def test_designated_replica_that_cannot_be_elected_is_refused(broker_id, alive, reason):
    decision = elect(replica_set(), heard(*alive, may_replace=True), broker_id, True)
    assert decision.code == code.CONTROLLER_ELECT_MASTER_FAILED and reason in decision.remark and not decision.writes


def test_replica_with_the_longest_log_is_elected():
    current = replica_set(master_id=None, sync_state_set=frozenset({1, 2, 3}))

    def elected(**of):
        return elect(current, heard(1, 2, 3, **of)).replica_set.master_id

    assert elected(b2={"epoch": 3, "max_offset": 1}, b1={"epoch": 2, "max_offset": 9}) == 2
    assert elected(b1={"max_offset": 1}, b3={"max_offset": 1 << 40}) == 3
    assert elected(b2={"priority": 1}) == 2
    assert elected() == 1


def test_unknown_name_has_no_election():
    assert elect(None, heard(1), 1).code == code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


@pytest.mark.parametrize(("current", "what", "unclean", "expected"), [
    (replica_set(), heard(1), False, False),
    (replica_set(), heard(2), False, False),
    (replica_set(), heard(2, may_replace=True), False, True),
    (replica_set(), heard(may_replace=True), False, False),
    (replica_set(master_id=None), heard(3), False, False),
    (replica_set(master_id=None), heard(3), True, True),
    (replica_set(master_id=None), heard(2), False, True),
    (ReplicaSet(CLUSTER, NAME, replicas(1)), heard(1), True, False),
])
def test_controller_elects_on_its_own_only_without_a_live_master(current, what, unclean, expected):
    assert decisions.needs_election(current, what, unclean=unclean) is expected


def test_dead_master_is_removed_even_without_a_successor():
    assert decisions.needs_election(replica_set(), heard(may_replace=True), has_ended=True)
    assert not decisions.needs_election(replica_set(), heard(), has_ended=True)
    assert not decisions.needs_election(replica_set(), heard(1, may_replace=True), has_ended=True)


# ---- ids


def test_ids_are_given_in_order():
    asked = GetNextBrokerIdRequestHeader(CLUSTER, NAME)
    assert decisions.get_next_broker_id(None, asked).header.nextBrokerId == 1
    current = None
    for id_ in (1, 2):
        decision = decisions.apply_broker_id(current, ApplyBrokerIdRequestHeader(CLUSTER, NAME, id_, f"host:{id_};5"))
        assert decision.code == code.SUCCESS and decision.header.brokerName == NAME
        current = decision.replica_set
    assert current.replicas == {1: Replica("host:1", "host:1;5"), 2: Replica("host:2", "host:2;5")}
    assert decisions.get_next_broker_id(current, asked).header.nextBrokerId == 3


def test_same_broker_gets_its_id_again():
    decision = decisions.apply_broker_id(replica_set(), ApplyBrokerIdRequestHeader(CLUSTER, NAME, 2, "host:2;99"))
    assert decision.code == code.SUCCESS and not decision.writes


@pytest.mark.parametrize(("current", "id_", "check"), [
    (replica_set(), 2, "other:2;1"), (None, 2, "host:2;1"), (replica_set(), 0, "host:0;1"),
    (replica_set(), None, "h;1"), (replica_set(), 4, None), (replica_set(), (1 << 63) - 1, "h;1")])
def test_id_is_refused(current, id_, check):
    decision = decisions.apply_broker_id(current, ApplyBrokerIdRequestHeader(CLUSTER, NAME, id_, check))
    assert decision.code == code.CONTROLLER_BROKER_ID_INVALID and not decision.writes


def test_next_id_follows_the_highest_id():
    decision = decisions.apply_broker_id(replica_set(), ApplyBrokerIdRequestHeader(CLUSTER, NAME, 9, "h;1"))
    assert decision.replica_set.next_broker_id == 10


# ---- registration


def register(current, id_, address, what):
    asked = RegisterBrokerToControllerRequestHeader(CLUSTER, NAME, id_, address)
    return decisions.register_broker(current, asked, what)


def test_registration_returns_a_live_master():
    decision = register(replica_set(), 3, "host:3", heard(1))
    assert decision.code == code.SUCCESS and not decision.writes and decision.body == SyncStateSet([1, 2], 7)
    header = decision.header
    assert (header.masterBrokerId, header.masterAddress, header.masterEpoch) == (1, "host:1", 3)
    assert (header.syncStateSetEpoch, header.masterHaAddress) == (7, "ha:1")
    assert register(replica_set(), 3, "host:3", heard(2)).header.masterBrokerId is None


def test_registration_at_another_address_is_stored():
    decision = register(replica_set(), 1, "moved:1", heard(1))
    assert decision.replica_set.address(1) == "moved:1" and decision.header.masterAddress == "moved:1"
    assert decision.replica_set.replicas[1].register_check_code == "host:1;99"


@pytest.mark.parametrize(("current", "id_"), [(None, 1), (replica_set(), 4), (replica_set(), None)])
def test_broker_without_an_id_cannot_register(current, id_):
    assert register(current, id_, "h:1", heard()).code == code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def test_replica_info_is_returned():
    decision = decisions.get_replica_info(replica_set(), heard(1))
    assert (decision.header.masterBrokerId, decision.header.masterEpoch) == (1, 3)
    assert decision.body == SyncStateSet([1, 2], 7)
    assert decisions.get_replica_info(None, heard()).code == code.CONTROLLER_BROKER_METADATA_NOT_EXIST


def test_replicas_are_described_for_operators():
    info = decisions.replicas_info(replica_set(), heard(1, 3))
    assert [(each.brokerId, each.alive) for each in info.inSyncReplicas] == [(1, True), (2, False)]
    assert [(each.brokerId, each.alive) for each in info.notInSyncReplicas] == [(3, True)]


# ---- cleaning


def clean(current, ids, what, living=False):
    asked = CleanControllerBrokerDataRequestHeader(CLUSTER, NAME, ids, living)
    return decisions.clean_broker_data(current, asked, what)


def test_dead_replicas_are_removed():
    decision = clean(replica_set(), "2;3", heard(1))
    assert decision.replica_set == replica_set(replicas=replicas(1), sync_state_set=frozenset({1}),
                                               sync_state_set_epoch=8)


def test_name_without_a_master_is_removed_completely():
    decision = clean(replica_set(master_id=None), None, heard())
    assert decision.writes and decision.replica_set is None


@pytest.mark.parametrize(("current", "ids", "what", "living"), [
    (replica_set(), "", heard(), False), (replica_set(), "2", heard(2), False), (replica_set(), "x", heard(), False),
    (None, "1", heard(), False), (replica_set(), "1", heard(1), True)])
def test_nothing_is_removed(current, ids, what, living):
    decision = clean(current, ids, what, living)
    assert decision.code == code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA and not decision.writes


def test_removed_master_is_no_longer_the_master():
    decision = clean(replica_set(), "1", heard(1, may_replace=True), True)
    assert decision.replica_set == replica_set(replicas=replicas(2, 3), master_id=None, master_epoch=4,
                                               sync_state_set=frozenset({2}), sync_state_set_epoch=8)
    assert clean(replica_set(), None, heard(1), True).replica_set is None


def test_only_the_master_gets_a_lease():
    assert decisions.broker_heartbeat(replica_set(), 1, 3000, 9).leaseMillis == 3000
    answer = decisions.broker_heartbeat(replica_set(), 2, 3000, 9)
    assert (answer.masterBrokerId, answer.masterEpoch, answer.leaseMillis) == (1, 3, 0)
    assert decisions.broker_heartbeat(None, 2, 3000, 9).leaseMillis == 0


# The brokers that are alive, and the leases that may still hold.

A, B = ("c", "b", 1), ("c", "b", 2)
MS = 1_000_000
TIMEOUT_MS = 3000
LONG_AGO = -100_000 * MS


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def go_on(self, ms: float) -> None:
        self.now_ns += int(ms * MS)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def liveness(clock):
    return BrokerLiveness(3000, clock)


def beat(liveness, clock, identity=A, channel="k1", ha="h:1", timeout_ms=TIMEOUT_MS, term=0):
    return liveness.heartbeat(BrokerLiveInfo(identity, "h:1", clock(), timeout_ms, channel, ha, leader_term=term))


def test_silent_broker_is_dead_after_its_timeout(liveness, clock):
    assert beat(liveness, clock) and not beat(liveness, clock)
    clock.go_on(TIMEOUT_MS)
    assert liveness.is_alive(A) and liveness.expired() == []
    clock.go_on(1 / MS)
    assert not liveness.is_alive(A) and liveness.next_expiry_ns() == clock()
    assert [info.identity for info in liveness.expired()] == [A] and liveness.expired() == []


def test_closed_connection_ends_a_broker_and_its_lease(liveness, clock):
    beat(liveness, clock)
    assert liveness.grant(A, "k1") == 3000 and not liveness.may_replace(A, LONG_AGO)
    assert liveness.closed("k1") == [A]
    assert not liveness.is_alive(A) and liveness.may_replace(A, LONG_AGO)


def test_lease_survives_a_connection_that_the_network_closed(liveness, clock):
    beat(liveness, clock)
    liveness.grant(A, "k1")
    assert liveness.closed("k1", by_peer=False) == [A] and not liveness.may_replace(A, LONG_AGO)
    clock.go_on(3000.001)
    assert liveness.may_replace(A, LONG_AGO)


def test_late_heartbeat_of_an_old_connection_does_not_tie_the_lease_to_it(liveness, clock):
    beat(liveness, clock, channel="k2")
    liveness.grant(A, "k2")
    # Sent earlier, over a connection that has been closed since.
    beat(liveness, clock, channel="k1")
    assert liveness.closed("k1") == [] and liveness.is_alive(A) and not liveness.may_replace(A, LONG_AGO)
    assert liveness.closed("k2") == [A] and liveness.may_replace(A, LONG_AGO)


def test_no_lease_is_granted_over_a_closed_connection(liveness, clock):
    beat(liveness, clock)
    liveness.closed("k1")
    assert liveness.grant(A, "k1") == 0
    beat(liveness, clock, channel="k2")
    assert liveness.grant(A, "k1") == 0 and liveness.grant(A, "k2") == 3000


def test_shorter_timeout_does_not_shorten_a_granted_lease(liveness, clock):
    beat(liveness, clock)
    liveness.grant(A, "k1")
    clock.go_on(100)
    beat(liveness, clock, timeout_ms=500)
    assert liveness.grant(A, "k1") == 500
    clock.go_on(600)
    assert not liveness.is_alive(A) and not liveness.may_replace(A, LONG_AGO)
    assert liveness.replaceable_from_ns(A, LONG_AGO) == 3000 * MS + 1


def test_new_leader_waits_for_other_leaders_leases(liveness, clock):
    beat(liveness, clock)
    liveness.closed("k1")
    leads_since = clock()
    clock.go_on(3000)
    assert not liveness.may_replace(A, leads_since)
    assert liveness.replaceable_from_ns(A, leads_since) == clock() + 1
    clock.go_on(0.001)
    assert liveness.may_replace(A, leads_since)


def test_master_that_follows_this_leader_has_no_lease_of_others(liveness, clock):
    beat(liveness, clock, term=7)
    liveness.grant(A, "k1")
    assert not liveness.may_replace(A, clock(), 7), "its own lease holds"
    liveness.closed("k1")
    assert liveness.may_replace(A, clock(), 7) and liveness.replaceable_from_ns(A, clock(), 7) == 1
    assert not liveness.may_replace(A, clock(), 8) and not liveness.may_replace(A, clock())
    # After a restart it follows no leader yet; its earlier report remains.
    beat(liveness, clock, channel="k2")
    liveness.grant(A, "k2")
    assert not liveness.may_replace(A, clock(), 7) and liveness.replaceable_from_ns(A, clock(), 7) == 3000 * MS + 1
    liveness.closed("k2")
    assert liveness.may_replace(A, clock(), 7)


def test_renounced_lease_lets_the_master_be_replaced_until_the_next_lease(liveness, clock):
    leads_since = clock()
    beat(liveness, clock)
    liveness.grant(A, "k1")
    liveness.renounced(A, clock())
    assert liveness.may_replace(A, leads_since)
    assert not liveness.may_replace(A, leads_since + 1)  # another one has led since
    liveness.grant(A, "k1")
    assert not liveness.may_replace(A, leads_since)


def test_broker_of_rocketmq_has_no_lease(liveness, clock):
    beat(liveness, clock, ha=None)
    assert liveness.grant(A, "k1") == 0 and liveness.may_replace(A, clock())


def test_connection_may_carry_several_brokers(liveness, clock):
    beat(liveness, clock)
    beat(liveness, clock, B)
    assert {info.identity for info in liveness.all()} == {A, B}
    assert sorted(liveness.closed("k1")) == [A, B] and liveness.all() == []
