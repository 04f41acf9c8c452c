"""What a replica does with what controllers tell it: roles, the lease, name servers, the sync-state set."""
import time

import pytest

from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.broker.controller import replicas_manager
from rmqha.broker.controller.controller_heartbeat import ControllerHeartbeat
from rmqha.broker.controller.replicas_manager import Mastership, ReplicasManager, State
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import (
    BrokerHeartbeatResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.store.message_store_config import BrokerRole
from tests.broker.controller.support import HERE, ME, OTHER, THERE, FakeHa, registered_manager

LONG_MS = 600_000  # longer than a test takes


@pytest.fixture
def make():
    made: list[ReplicasManager] = []

    def manager(**config: object) -> ReplicasManager:
        made.append(registered_manager(**config))
        return made[-1]
    yield manager
    for one in made:
        one.shutdown()


def ha(manager: ReplicasManager) -> FakeHa:
    return manager.ha_service


def lead(manager: ReplicasManager, epoch: int = 1) -> None:
    manager.change_broker_role(ME, HERE, epoch, [ME], 1, None)


def beat(manager: ReplicasManager, master: int | None, epoch: int, lease_ms: int, asked_ns: int | None = None) -> None:
    answer = BrokerHeartbeatResponseHeader(master, epoch, lease_ms)
    manager.told_by_leader("leader", answer, time.monotonic_ns() if asked_ns is None else asked_ns)


def test_leader_that_is_followed_is_told_so_and_one_of_before_is_not_heard(make):
    manager = make()
    lead(manager)

    def hear(address, term, asked_of, epoch=1, asked_ns=None):
        answer = BrokerHeartbeatResponseHeader(ME, epoch, LONG_MS, term)
        return manager.told_by_leader(address, answer, asked_ns or time.monotonic_ns(), asked_of)
    before_ns = time.monotonic_ns()
    assert hear("one:1", 5, 0) and manager.heartbeat().leaderTerm == 5 and manager.lease.holds()
    assert not hear("one:1", 5, 5)
    assert hear("two:1", 6, 5) and manager.heartbeat().leaderTerm == 6 and manager.lease.holds()
    assert hear("one:1", 5, 5, epoch=9) and manager.controller_leader_address == "two:1", "asks it again, no more"
    assert hear("three:1", 7, 5, asked_ns=before_ns) and manager.lease.holds() and manager._newest_epoch == 1


def test_a_role_makes_a_fenced_broker_serve(make):
    manager = make()
    broker = manager._roles  # which is each part of the broker
    lead(manager)
    assert ha(manager).told == [("master", 1, {ME}, 1)]
    assert manager.role == Mastership(1, ME, True) and manager.state is State.RUNNING
    assert not broker.is_isolated and not broker.message_store.running_flags.is_fenced
    assert broker.broker_config.brokerId == 0 and broker.slave_sync == [(BrokerRole.SYNC_MASTER, None)]
    manager.change_broker_role(OTHER, THERE, 2, [OTHER], 2, "127.0.0.1:20912")
    assert ha(manager).told[1:] == [("slave", 2, "127.0.0.1:20912")]
    assert manager.role == Mastership(2, OTHER) and broker.broker_config.brokerId == ME
    assert broker.slave_sync[1:] == [(BrokerRole.SLAVE, THERE)]


@pytest.mark.parametrize("state", [State.INITIAL, State.FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE])
def test_a_role_that_is_told_before_a_replica_has_registered_waits_for_that(make, monkeypatch, state):
    """A replica that was started again has its id: it may be elected, by what its process of before had sent."""
    manager, addresses = make(), []
    manager.state, manager.controller_leader_address = state, "leader"
    lead(manager)
    assert manager.role == Mastership() and manager.state is state and not ha(manager).told
    told = RegisterBrokerToControllerResponseHeader(masterBrokerId=ME, masterAddress=HERE, masterEpoch=1,
                                                    syncStateSetEpoch=1)
    monkeypatch.setattr(manager.registration, "register", lambda *_: (told, SyncStateSet([ME], 1)))
    monkeypatch.setattr(manager.api, "send_heartbeat", lambda *_: BrokerHeartbeatResponseHeader(ME, 1, LONG_MS))
    monkeypatch.setattr(manager, "_update_addresses", lambda: addresses.append("updated"))
    assert manager._start_basic_service()
    assert [each[0] for each in ha(manager).told] == ["id", "listener", "master", "set"] and addresses == ["updated"]
    assert manager.role == Mastership(1, ME, True) and manager.state is State.RUNNING


def test_where_nobody_can_be_elected_that_is_asked_for_now_and_then(make, monkeypatch):
    manager, asked = make(), []
    manager.change_broker_role(OTHER, THERE, 1, [OTHER], 1, "127.0.0.1:20912")

    def broker_elect(*_args):
        asked.append("elect")
        raise BrokerAnswerException(response_code.CONTROLLER_ELECT_MASTER_FAILED, "nobody in sync lives", "leader")

    monkeypatch.setattr(manager.api, "broker_elect", broker_elect)
    monkeypatch.setattr(manager.api, "get_replica_info",
                        lambda *_: (GetReplicaInfoResponseHeader(masterEpoch=2), SyncStateSet([OTHER], 2)))
    monkeypatch.setattr(manager.api, "send_heartbeat", lambda *_: BrokerHeartbeatResponseHeader(None, 2, 0))
    manager.controller_leader_address = "leader"
    manager._heartbeats = {"leader": ControllerHeartbeat(manager, "leader", 1)}
    manager.wait_for_running(0)  # what woke it so far
    assert manager._sync_broker_metadata() and asked == ["elect"]
    assert not manager._notified, "its own heartbeat has not woken it"
    manager._sought_ns -= 600 * 1_000_000
    beat(manager, None, 2, 0)
    assert manager._notified


def test_news_of_an_epoch_that_is_known_changes_nothing(make):
    manager = make()
    lead(manager, 3)
    for epoch in (1, 2, 3):
        manager.change_broker_role(OTHER, THERE, epoch, [OTHER], 5, "127.0.0.1:20912")
    assert manager.role == Mastership(3, ME, True) and len(ha(manager).told) == 1


def test_the_same_master_with_a_new_epoch_keeps_its_connections(make):
    manager = make()
    lead(manager)
    lead(manager, 2)
    for epoch in (3, 4):
        manager.change_broker_role(OTHER, THERE, epoch, [OTHER], epoch, "127.0.0.1:20912")
    assert [told[:2] for told in ha(manager).told] == [
        ("master", 1), ("master again", 2), ("slave", 3), ("slave again", 4)]


def test_only_the_leaders_word_for_this_epoch_grants_a_lease(make, monkeypatch):
    monkeypatch.setattr(replicas_manager, "_NEWS_MS", LONG_MS)
    manager = make()
    beat(manager, ME, 1, LONG_MS)  # before the role
    assert not manager.lease.holds()
    lead(manager)
    assert not manager.lease.holds() and manager.may_register()  # it was elected just now
    manager._is_news_until_ns = 0
    beat(manager, ME, 1, 0)
    assert not manager.lease.holds() and not manager.may_register()
    beat(manager, ME, 1, LONG_MS)
    assert manager.lease.holds() and manager.may_register()
    assert ("lease",) in ha(manager).told
    beat(manager, OTHER, 2, 0)
    assert not manager.lease.holds() and not manager.may_register()
    beat(manager, ME, 1, LONG_MS)  # of a leader that knows nothing of that yet
    assert not manager.lease.holds()


def test_a_lease_ends_with_the_role_and_with_a_connection(make):
    manager = make()
    lead(manager)
    beat(manager, ME, 1, LONG_MS)
    asked_ns = time.monotonic_ns()
    manager.api.remoting_client._before_close()
    assert not manager.lease.holds()
    beat(manager, ME, 1, LONG_MS, asked_ns)  # it was asked before
    assert not manager.lease.holds()
    beat(manager, ME, 1, LONG_MS)
    assert manager.lease.holds()
    lead(manager, 2)
    assert not manager.lease.holds()
    beat(manager, ME, 1, LONG_MS)  # of the old epoch
    assert not manager.lease.holds()


def test_without_leases_a_master_registers_at_once(make):
    manager = make(controllerLease=False)
    lead(manager)
    assert manager.may_register()


def test_a_controller_of_rocketmq_grants_by_what_it_says_of_the_replicas(make):
    manager = make(controllerHeartBeatTimeoutMills=2000)
    lead(manager)
    info = GetReplicaInfoResponseHeader(masterBrokerId=ME, masterEpoch=1, masterAddress=HERE)
    manager.told_by_replica_info(info, SyncStateSet([ME, OTHER], 4), time.monotonic_ns())
    assert manager.lease.holds() and manager.lease.left_ms() <= 1800
    assert ("set", {ME, OTHER}, 4) in ha(manager).told


def test_a_role_change_that_fails_is_tried_again(make):
    manager = make()
    lead(manager)
    ha(manager).failing = True
    with pytest.raises(OSError, match="the disk"):
        manager.change_broker_role(OTHER, THERE, 2, [OTHER], 2, "127.0.0.1:20912")
    assert manager.role == Mastership(1, ME) and not manager.lease.holds()
    ha(manager).failing = False
    manager.change_broker_role(OTHER, THERE, 2, [OTHER], 2, "127.0.0.1:20912")
    assert manager.role == Mastership(2, OTHER)


def test_a_log_that_has_had_the_epoch_stands_down(make):
    manager, closed = make(), []
    manager.api.close_all = lambda: closed.append(True)
    ha(manager).last_epoch = 5
    lead(manager, 5)
    assert closed and manager.role == Mastership(0, None) and manager.state is not State.RUNNING
    lead(manager, 6)
    assert manager.role == Mastership(6, ME, True)


def test_who_leads_the_controllers(make):
    manager = make()
    manager.told_of_leader("a", GetMetaDataResponseHeader(isLeader=False, controllerLeaderAddress="b"))
    assert manager.controller_leader_address == "b"
    manager.leads_no_more("a")
    assert manager.controller_leader_address == "b"
    manager.leads_no_more("b")
    assert manager.controller_leader_address == ""
    manager.told_of_leader("a", GetMetaDataResponseHeader(isLeader=True, controllerLeaderAddress="another name of a"))
    assert manager.controller_leader_address == "a"
    manager.told_of_leader("b", GetMetaDataResponseHeader(isLeader=False, controllerLeaderAddress="c"))
    assert manager.controller_leader_address == "a"  # it would say if that were so
    manager.told_of_leader("a", GetMetaDataResponseHeader(isLeader=False, controllerLeaderAddress=None))
    assert manager.controller_leader_address == ""


def test_a_sync_state_set_goes_to_the_new_leader_at_once(make):
    manager, asked = make(), []
    lead(manager)
    manager.controller_leader_address = "old"

    def alter(address, *_args):
        asked.append(address)
        if address == "old":
            raise BrokerAnswerException(response_code.CONTROLLER_NOT_LEADER, "no", address)
        return SyncStateSet([ME, OTHER], 2)

    manager.api.alter_sync_state_set = alter
    manager.api.get_controller_meta_data = lambda *_: GetMetaDataResponseHeader(
        isLeader=False, controllerLeaderAddress="new")
    assert manager.alter_sync_state_set(frozenset((ME, OTHER)), 1)
    assert asked == ["old", "new"] and ha(manager).told[-1] == ("set", {ME, OTHER}, 2)


def answers(manager: ReplicasManager, answer: object, info_epoch: int = 1) -> None:
    def alter(*_args: object) -> SyncStateSet:
        if isinstance(answer, Exception):
            raise answer
        return answer

    manager.api.alter_sync_state_set = alter
    manager.api.get_replica_info = lambda *_: (
        GetReplicaInfoResponseHeader(masterBrokerId=ME, masterEpoch=info_epoch, masterAddress=HERE),
        SyncStateSet([ME, OTHER], 9))
    manager.controller_leader_address = "leader"


def test_the_sync_state_set_that_a_controller_takes(make):
    manager = make()
    lead(manager)
    answers(manager, SyncStateSet([ME, OTHER], 2))
    assert manager.alter_sync_state_set(frozenset((ME, OTHER)), 1)
    assert ha(manager).told[-1] == ("set", {ME, OTHER}, 2)


@pytest.mark.parametrize(("code", "known", "asked"), [
    (response_code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, True, True),
    (response_code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, True, True),
    (response_code.CONTROLLER_BROKER_NOT_ALIVE, True, False),
    (response_code.CONTROLLER_INVALID_MASTER, False, False),
    (response_code.CONTROLLER_NOT_LEADER, False, False),
    (response_code.SYSTEM_ERROR, False, False)])
def test_the_sync_state_set_that_a_controller_refuses(make, code, known, asked):
    manager = make()
    lead(manager)
    answers(manager, BrokerAnswerException(code, "no", "leader"))
    assert manager.alter_sync_state_set(frozenset((ME, OTHER)), 1) is known
    assert (("set", {ME, OTHER}, 9) in ha(manager).told) is asked
    assert manager.controller_leader_address == ("" if code == response_code.CONTROLLER_NOT_LEADER else "leader")


def test_the_sync_state_set_of_which_nobody_knows_whether_it_was_taken(make):
    manager = make()
    assert not manager.alter_sync_state_set(frozenset((ME,)), 1)  # not the master
    lead(manager)
    assert not manager.alter_sync_state_set(frozenset((ME,)), 1)  # nobody leads
    answers(manager, RemotingTimeoutException("leader", 10))
    assert not manager.alter_sync_state_set(frozenset((ME, OTHER)), 1)
    assert not any(told[0] == "set" for told in ha(manager).told)


def test_a_controller_of_rmqha_that_does_not_lead_is_not_taken_for_the_leader(make, monkeypatch):
    manager = make()
    lead(manager)
    one, two = (ControllerHeartbeat(manager, address, number) for number, address in enumerate(("one:1", "two:2")))
    answers = {"one:1": BrokerHeartbeatResponseHeader(ME, 1, LONG_MS),
               "two:2": BrokerHeartbeatResponseHeader(leaseMillis=0)}
    asked: list[str] = []

    def get_controller_meta_data(address: str, _timeout_ms: int) -> GetMetaDataResponseHeader:
        asked.append(address)
        return GetMetaDataResponseHeader(controllerLeaderAddress="two:2", isLeader=address == "two:2")
    monkeypatch.setattr(manager.api, "send_heartbeat", lambda address, *_: answers[address])
    monkeypatch.setattr(manager.api, "get_controller_meta_data", get_controller_meta_data)
    one.beat()
    two._asked_leader_ns = time.monotonic_ns()
    two.beat()
    assert manager.controller_leader_address == "one:1" and manager.lease.holds() and not asked
    answers["one:1"] = BrokerHeartbeatResponseHeader(leaseMillis=0)
    one.beat()
    assert manager.controller_leader_address == "two:2" and asked == ["one:1"]
