"""A replica and its controllers: getting an id, heartbeats, and how long a master may acknowledge."""
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.broker.controller import controller_heartbeat
from rmqha.broker.controller.broker_id_registration import BrokerIdRegistration, RegisterState
from rmqha.broker.controller.controller_heartbeat import ControllerHeartbeat, MasterLease
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import (
    BrokerHeartbeatRequestHeader,
    BrokerHeartbeatResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.store.ha.autoswitch.epoch_file_cache import BrokerMetadataError

# Heartbeats to one controller: rmqha's, RocketMQ's, one that does not lead, one that hangs.

SECOND_NS = 1_000_000_000


class FakeManager:
    """Records its calls; `answer` is the controller's answer."""

    def __init__(self) -> None:
        self.broker_config = BrokerConfig()
        self.controller_leader_address = ""
        self.told: list[tuple] = []
        self.asked: list[str] = []
        self.answer: object = BrokerHeartbeatResponseHeader()
        self.leader, self.follows = "c0", 4
        self.api = SimpleNamespace(send_heartbeat=self._beat, get_controller_meta_data=self._meta_data,
                                   get_replica_info=self._replica_info,
                                   close=lambda address: self.told.append(("close", address)))

    def _beat(self, *_args):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _meta_data(self, address, _timeout_ms):
        self.asked.append("meta")
        return GetMetaDataResponseHeader(isLeader=self.leader == address, controllerLeaderAddress=self.leader)

    def _replica_info(self, *_args):
        self.asked.append("info")
        return GetReplicaInfoResponseHeader(1, "here", 3), SyncStateSet([1], 2)

    def heartbeat(self):
        return BrokerHeartbeatRequestHeader(leaderTerm=self.follows)

    def told_by_leader(self, address, answer, _asked_ns, asked_of):
        self.told.append(("leader", address, answer.leaseMillis))
        return asked_of != answer.leaderTerm

    def told_of_leader(self, _address, told):
        self.controller_leader_address = told.controllerLeaderAddress

    def told_by_replica_info(self, info, _sync_state_set, _asked_ns):
        self.told.append(("info", info.masterBrokerId, info.masterEpoch))

    def leads_no_more(self, address):
        self.told.append(("no more", address))


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager()


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    now = SimpleNamespace(ns=100 * SECOND_NS)
    monkeypatch.setattr(controller_heartbeat.time, "monotonic_ns", lambda: now.ns)
    return now


def test_rmqha_leader_reports_everything_in_its_answer(manager):
    manager.answer = BrokerHeartbeatResponseHeader(1, 3, 2000)
    ControllerHeartbeat(manager, "c0", 1).beat()
    assert manager.told == [("leader", "c0", 2000)] and not manager.asked


def test_newly_followed_leader_gets_a_heartbeat_at_once(manager, clock, monkeypatch):
    heartbeat, woken = ControllerHeartbeat(manager, "c0", 1), []
    monkeypatch.setattr(heartbeat, "wakeup", lambda: woken.append(manager.answer.leaderTerm))
    for term in (4, 5, 6):
        manager.answer = BrokerHeartbeatResponseHeader(1, 3, 2000, term)
        heartbeat.beat()
    assert woken == [5], "woken once only"
    clock.ns += SECOND_NS
    heartbeat.beat()
    assert woken == [5, 6]


def test_rocketmq_leader_is_asked_once_who_leads_and_then_for_the_replicas_every_time(manager):
    heartbeat = ControllerHeartbeat(manager, "c0", 1)
    for _ in range(3):
        heartbeat.beat()
    assert manager.asked == ["meta", "info", "info", "info"] and manager.told == [("info", 1, 3)] * 3


def test_non_leader_is_asked_periodically_who_leads(manager, clock):
    manager.leader = "c1"
    heartbeat = ControllerHeartbeat(manager, "c0", 1)
    for _ in range(3):
        heartbeat.beat()
    assert manager.asked == ["meta"]
    clock.ns += manager.broker_config.syncControllerMetadataPeriod * 1_000_001
    heartbeat.beat()
    assert manager.asked == ["meta", "meta"] and not manager.told


def test_rmqha_non_leader_grants_nothing_and_is_not_taken_for_the_leader(manager):
    manager.answer = BrokerHeartbeatResponseHeader(leaseMillis=0)
    manager.leader = "c1"
    heartbeat = ControllerHeartbeat(manager, "c0", 1)
    for _ in range(2):
        heartbeat.beat()
    assert manager.asked == ["meta"] and not manager.told and manager.controller_leader_address == "c1"
    manager.controller_leader_address = "c0"  # as it was until now
    heartbeat.beat()
    assert manager.asked == ["meta"] * 2 and not manager.told and manager.controller_leader_address == "c1"


def test_controller_that_says_it_does_not_lead_is_believed(manager):
    manager.answer = BrokerAnswerException(response_code.CONTROLLER_NOT_LEADER, "not me", "c0")
    ControllerHeartbeat(manager, "c0", 1).beat()
    assert manager.told == [("no more", "c0")]


def test_silent_connection_is_closed_at_growing_intervals(manager, clock):
    manager.answer = RemotingTimeoutException("c0", 1000)
    heartbeat, closed = ControllerHeartbeat(manager, "c0", 1), []
    for second in range(1, 60):
        clock.ns += SECOND_NS
        heartbeat.beat()
        if manager.told[-1] == ("close", "c0"):
            closed.append(second)
    assert closed == [4, 11, 24, 49]
    manager.answer = BrokerHeartbeatResponseHeader(1, 3, 2000)
    heartbeat.beat()
    manager.answer = RemotingTimeoutException("c0", 1000)
    for _ in range(4):
        clock.ns += SECOND_NS
        heartbeat.beat()
    assert manager.told[-1] == ("close", "c0")


# How long a master may acknowledge.

MS = 1_000_000


class Clock:
    """A clock that stands still until it is set."""

    now = 0

    def __call__(self) -> int:
        return self.now


def test_lease_counts_from_the_request_and_ends_slightly_early():
    clock = Clock()
    lease = MasterLease(clock)
    assert not lease.holds()
    clock.now = 500 * MS
    lease.granted(100 * MS, 1000)
    assert lease.holds() and lease.left_ms() == 500
    clock.now = 999 * MS
    assert lease.holds()
    clock.now = 1000 * MS
    assert not lease.holds() and lease.left_ms() == 0


def test_older_answer_does_not_shorten_the_lease():
    clock = Clock()
    lease = MasterLease(clock)
    lease.granted(200 * MS, 1000)
    lease.granted(0, 1000)
    assert lease.left_ms() == 1100


def test_request_from_before_renouncing_grants_nothing():
    clock = Clock()
    lease = MasterLease(clock)
    lease.granted(1 * MS, 1000)
    clock.now = 10 * MS
    lease.renounced()
    assert not lease.holds()
    lease.granted(9 * MS, 1000)
    assert not lease.holds()
    lease.granted(11 * MS, 1000)
    assert lease.holds()


def test_handed_over_lease_is_granted_again_only_later_or_to_a_new_role():
    clock = Clock()
    lease = MasterLease(clock)
    lease.renounced(1000)
    lease.renounced()
    lease.granted(1000 * MS, 5000)
    assert not lease.holds()
    lease.granted(1001 * MS, 5000)
    assert lease.holds()
    lease.renounced(1000)
    lease.role_changes()
    lease.granted(1 * MS, 1000)
    assert lease.holds()


def test_one_leadership_is_followed_and_a_later_one_ends_its_leases():
    clock = Clock()
    lease = MasterLease(clock)
    clock.now = 10 * MS
    assert lease.granted(9 * MS, 1000, 5) and lease.term == 5 and lease.holds()
    clock.now = 20 * MS
    assert not lease.granted(9 * MS, 1000, 6), "the request predates following 5"
    assert lease.granted(11 * MS, 0, 6, 5) and lease.term == 6 and not lease.holds()
    assert not lease.granted(19 * MS, 1000, 5, 5), "5 has not confirmed that it leads"
    assert not lease.granted(21 * MS, 1000, 5, 5) and not lease.holds()
    assert not lease.granted(21 * MS, 1000, 0, 6), "an answer of RocketMQ's controller"
    assert lease.granted(19 * MS, 1000, 6, 5) and lease.holds(), "6 is followed, whichever term the request named"
    clock.now = 30 * MS
    assert lease.granted(25 * MS, 1000, 7, 6) and lease.term == 7 and lease.left_ms() == 895


def test_lease_continues_when_another_leader_grants_it():
    clock, seen = Clock(), []

    class Watched(MasterLease):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "_until_ns":
                seen.append(self.holds())
    lease = Watched(clock)
    clock.now = 10 * MS
    lease.granted(9 * MS, 1000, 5)
    assert lease.granted(11 * MS, 1000, 6, 5) and seen == [False, True, True]


def test_replica_that_follows_no_leader_follows_the_next_answer():
    clock = Clock()
    lease = MasterLease(clock)
    lease.granted(1 * MS, 1000, 5)
    clock.now = 10 * MS
    lease.follows_nobody()
    assert not lease.holds() and lease.term == 0
    assert not lease.granted(10 * MS, 1000, 4, 5)
    assert lease.granted(11 * MS, 1000, 4, 5) and lease.term == 4


# Getting an id: interrupted at each step, refused, and forgotten by the controller.


class FakeApi:
    """A controller's table of ids, and the failures to come."""

    def __init__(self) -> None:
        self.codes: dict[int, str] = {}  # check code by id
        self.next_id = 1
        # The next call of that name fails after it was carried out.
        self.failing: dict[str, Exception] = {}
        self.asked: list[str] = []

    def _fail(self, name: str) -> None:
        self.asked.append(name)
        if name in self.failing:
            raise self.failing.pop(name)

    def get_next_broker_id(self, leader: str, cluster: str, name: str) -> int:
        self._fail("next")
        return self.next_id

    def apply_broker_id(self, leader, header) -> None:
        if self.codes.setdefault(header.appliedBrokerId, header.registerCheckCode) != header.registerCheckCode:
            raise BrokerAnswerException(response_code.CONTROLLER_BROKER_ID_INVALID, "taken", leader)
        self.next_id = max(self.codes) + 1
        self._fail("apply")

    def register_broker_to_controller(self, leader, header):
        if header.brokerId not in self.codes:
            raise BrokerAnswerException(response_code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "who?", leader)
        self._fail("register")
        return RegisterBrokerToControllerResponseHeader("c", "b"), SyncStateSet()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def make(api: FakeApi, tmp_path: Path):
    def replica(name: str = "one", cluster: str = "c", broker: str = "b") -> BrokerIdRegistration:
        registration = BrokerIdRegistration(api, cluster, broker, str(tmp_path / name / "brokerIdentity"))
        registration.read_files()
        return registration
    return replica


def register(registration: BrokerIdRegistration):
    return registration.register("leader", "1.1.1.1:10911", "1.1.1.1:10912")


def test_every_replica_gets_its_own_id_and_keeps_it(make, tmp_path):
    one, two = make("one"), make("two")
    register(one)
    register(two)
    assert (one.broker_id, two.broker_id) == (1, 2)
    assert one.state is RegisterState.REGISTERED
    assert (tmp_path / "one" / "brokerIdentity").read_text() == "c#b#1"
    assert not (tmp_path / "one" / "brokerIdentity-temp").exists()
    again = make("two")
    assert again.state is RegisterState.CREATE_METADATA_FILE_DONE and again.broker_id == 2
    register(again)
    assert again.broker_id == 2


@pytest.mark.parametrize("step", ["next", "apply", "register"])
@pytest.mark.parametrize("restarted", [False, True])
def test_registration_resumes_where_it_was_interrupted(make, api, step, restarted):
    one = make()
    api.failing[step] = RemotingTimeoutException("leader", 10)
    with pytest.raises(RemotingTimeoutException):
        register(one)
    if restarted:
        one = make()
    register(one)
    assert one.broker_id == 1 and list(api.codes) == [1]


def test_id_taken_by_another_replica_is_given_up(make, api):
    one, two = make("one"), make("two")
    api.failing["apply"] = RemotingTimeoutException("leader", 10)
    api.codes[1] = "somebody;1"
    with pytest.raises(BrokerAnswerException):
        # It asked before the other replica's id was known.
        register(one)
    assert one.state is RegisterState.INITIAL
    api.failing.clear()
    api.next_id = 2
    register(one)
    register(two)
    assert (one.broker_id, two.broker_id) == (2, 3)


def test_controller_that_forgot_a_replica_is_given_its_id_again(make, api):
    one = make()
    register(one)
    api.codes.clear()
    register(one)
    assert list(api.codes) == [1] and one.broker_id == 1


@pytest.mark.parametrize("text", ["", "c#b", "c#b#x", "other#b#1", "c#other#1"])
def test_identity_file_that_is_damaged_or_of_another_broker_is_refused_by_name(make, tmp_path, text):
    path = tmp_path / "one" / "brokerIdentity"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(BrokerMetadataError, match="brokerIdentity"):
        make()


def test_damaged_temporary_file_is_deleted(make, tmp_path):
    path = tmp_path / "one" / "brokerIdentity-temp"
    path.parent.mkdir()
    path.write_text("c#b#")
    assert make().state is RegisterState.INITIAL
    assert not path.exists()
