"""What the tools make of controllers' answers: who may become the master, why not, and what is wrong."""
from types import SimpleNamespace

import pytest

from rmqha.common.protocol.cluster_bodies import (
    BrokerReplicasInfo,
    EpochEntry,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
)
from rmqha.common.protocol.controller_headers import GetMetaDataResponseHeader
from rmqha.tools.admin.cluster_admin import Broker, NoAnswerError, RefusedError
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.controllers import Controllers, controllers_of, failover_lines, faults_of, split_addresses
from rmqha.tools.terminal import CannotAnswerError

ONE, TWO, THREE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
LEADER, OTHER = "10.0.0.9:9878", "10.0.0.8:9878"


def identity(broker_id, address, alive=True):
    return ReplicaIdentity("broker-a", broker_id, address, alive)


class FakeAdmin:
    """Controllers and replicas that answer from tables."""

    timeout_millis = 1_000

    def __init__(self, info=None, unclean=False, positions=None, silent=(), leader=LEADER):
        self.info, self.unclean, self.silent, self.leader = info, unclean, silent, leader
        self.positions = positions or {}
        self.asked = []

    def get_controller_meta_data(self, address):
        self.asked.append(address)
        if address in self.silent:
            raise NoAnswerError(f"the controller {address} can't be reached")
        return GetMetaDataResponseHeader("group1", "n0" if self.leader else None, self.leader, address == self.leader,
                                         f"n0-{LEADER};n1-{OTHER}")

    def get_controller_config(self, addresses):
        return dict.fromkeys(addresses, {"enableElectUncleanMaster": str(self.unclean).lower()})

    def get_in_sync_state_data(self, _address, names):
        return BrokerReplicasInfo({} if self.info is None else {names[0]: self.info})

    def get_broker_epoch_cache(self, address):
        if address not in self.positions:
            raise RefusedError("not supported", 3)
        epoch, end = self.positions[address]
        return EpochEntryCache("c", "broker-a", 1, [EpochEntry(epoch, 0)], end)


INFO = ReplicasInfo(1, ONE, 3, 7, [identity(1, ONE), identity(2, TWO)], [identity(3, THREE, False)])
POSITIONS = {ONE: (3, 5_000), TWO: (3, 5_000), THREE: (2, 1_000)}


def told(address, **config):
    keys = {"enableControllerMode": "true", "controllerAddr": LEADER, **config}
    return Told(Broker("c", "broker-a", 0, address), keys)


def faults(view, registered=ONE, answers=None):
    return [(each.status, each.text) for each in faults_of(
        view, "broker-a", registered, [told(ONE)] if answers is None else answers)]


def test_addresses_come_from_a_broker_in_controller_mode_and_are_checked():
    assert controllers_of({"enableControllerMode": "true", "controllerAddr": " a:1 ;b:2;"}) == ["a:1", "b:2"]
    assert controllers_of({"enableControllerMode": "false", "controllerAddr": "a:1"}) == []
    assert split_addresses(f"{LEADER}; {OTHER}") == [LEADER, OTHER]
    with pytest.raises(CannotAnswerError, match="no host:port"):
        split_addresses("somewhere")


def test_who_may_become_the_master_and_why_the_others_may_not():
    view = Controllers(FakeAdmin(INFO, positions=POSITIONS)).look_at("broker-a", [LEADER, OTHER])
    assert (view.leader, view.known, view.master_id, view.master, view.master_epoch) == (LEADER, True, 1, ONE, 3)
    assert view.sync_state_set == [1, 2] and view.sync_state_set_epoch == 7
    assert [(each.broker_id, each.is_master, each.may_lead) for each in view.replicas] == [
        (1, True, True), (2, False, True), (3, False, False)]
    assert view.replicas[2].why_not == ("the controller does not hear from it; it is not in the sync-state set, so it "
                                        "may lack what was acknowledged, 3.9 KiB now")
    text = "\n".join(failover_lines(view))
    assert f"controller {LEADER} leads (n0), {OTHER} stands by" in text
    assert f"master 1 at {ONE}, epoch 3; sync-state set 1, 2, of epoch 7" in text
    assert "is it" in text and "NO: the controller does not hear from it" in text


def test_an_unclean_election_would_take_one_that_is_not_in_sync():
    info = ReplicasInfo(1, ONE, 3, 7, [identity(1, ONE)], [identity(2, TWO), identity(3, THREE, False)])
    view = Controllers(FakeAdmin(info, unclean=True)).look_at("broker-a", [LEADER])
    assert "enableElectUncleanMaster" in view.replicas[1].why_not and not view.replicas[1].may_lead
    assert "enableElectUncleanMaster" not in view.replicas[2].why_not
    assert [each.epoch for each in view.replicas] == [None] * 3  # they tell nothing
    assert "?" in "\n".join(failover_lines(view))


def test_each_controller_is_asked_once_for_all_names():
    admin = FakeAdmin(INFO)
    controllers = Controllers(admin, [OTHER])
    for name in ("broker-a", "broker-b"):
        assert controllers.look(name, [told(ONE)]) is not None
    assert sorted(admin.asked) == [OTHER, LEADER]
    assert Controllers(admin).look("broker-a", [told(ONE, enableControllerMode="false")]) is None


def test_good_is_no_fault():
    info = ReplicasInfo(1, ONE, 3, 7, [identity(1, ONE), identity(2, TWO)], [])
    assert faults(Controllers(FakeAdmin(info)).look_at("broker-a", [LEADER, OTHER])) == []


CASES = [
    (dict(info=INFO, silent=(LEADER, OTHER)), ONE, (Status.CRITICAL, "no controller answers")),
    (dict(info=INFO, silent=(OTHER,)), ONE, (Status.WARNING, f"the controller {OTHER} can't be reached")),
    (dict(info=INFO, leader=None), ONE, (Status.CRITICAL, "no controller leads")),
    (dict(info=None), ONE, (Status.CRITICAL, f"the controller {LEADER} does not know broker-a")),
    (dict(info=INFO), TWO, (Status.CRITICAL, f"the controller's master is {ONE}, the name server's {TWO}")),
    (dict(info=INFO), ONE, (Status.WARNING, f"replica 3 at {THREE}: the controller does not hear from it")),
    (dict(info=ReplicasInfo(1, ONE, 1, 1, [identity(1, ONE)], [identity(2, TWO)])), ONE,
     (Status.WARNING, "no other replica may become the master")),
    (dict(info=ReplicasInfo(None, None, 2, 1, [identity(1, ONE, False)], [identity(2, TWO)])), "",
     (Status.CRITICAL, "the controller has no master for it")),
]


@pytest.mark.parametrize("tables, registered, expected", CASES, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_told(tables, registered, expected):
    view = Controllers(FakeAdmin(**tables)).look_at("broker-a", [LEADER, OTHER])
    assert any(status is expected[0] and text.startswith(expected[1]) for status, text in faults(view, registered))


def test_too_small_a_set_and_brokers_without_controller_mode_are_told():
    info = ReplicasInfo(1, ONE, 1, 1, [identity(1, ONE)], [identity(2, TWO)])
    view = Controllers(FakeAdmin(info)).look_at("broker-a", [LEADER])
    answers = [told(ONE, minInSyncReplicas="2"), told(TWO, enableControllerMode="false")]
    found = faults(view, answers=answers)
    assert (Status.CRITICAL, "the sync-state set has 1 replica, minInSyncReplicas=2: nothing is acknowledged") in found
    assert any(text.startswith(f"{TWO} has no enableControllerMode=true") for _status, text in found)


def test_a_leader_that_goes_between_two_questions_is_no_crash():
    admin = FakeAdmin(INFO)

    def gone(*_args):
        raise NoAnswerError(f"the controller {LEADER} can't be reached")
    admin.get_in_sync_state_data = gone
    view = Controllers(admin).look_at("broker-a", [LEADER])
    assert not view.known and any(each.error for each in view.controllers)
    assert any(status is Status.WARNING for status, _text in faults(view))


def test_names_of_controllers_that_differ_are_told():
    admin = FakeAdmin(INFO)
    admin.get_controller_meta_data = lambda address: SimpleNamespace(
        group="g", controllerLeaderId="x", controllerLeaderAddress=address, isLeader=False, peers="")
    view = Controllers(admin).look_at("broker-a", [LEADER, OTHER])
    assert any("name different leaders" in text for _status, text in faults(view))
