"""Heartbeats to one controller: of rmqha, of RocketMQ, that does not lead, that hangs."""
from types import SimpleNamespace

import pytest

from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.broker.controller import controller_heartbeat
from rmqha.broker.controller.controller_heartbeat import ControllerHeartbeat
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import (
    BrokerHeartbeatRequestHeader,
    BrokerHeartbeatResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
)
from rmqha.remoting.exception import RemotingTimeoutException

SECOND_NS = 1_000_000_000


class FakeManager:
    """Notes what it is told; `answer` is what the controller says."""

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


def test_the_leader_of_ours_tells_all_with_its_answer(manager):
    manager.answer = BrokerHeartbeatResponseHeader(1, 3, 2000)
    ControllerHeartbeat(manager, "c0", 1).beat()
    assert manager.told == [("leader", "c0", 2000)] and not manager.asked


def test_who_is_followed_anew_hears_of_it_at_once(manager, clock, monkeypatch):
    heartbeat, woken = ControllerHeartbeat(manager, "c0", 1), []
    monkeypatch.setattr(heartbeat, "wakeup", lambda: woken.append(manager.answer.leaderTerm))
    for term in (4, 5, 6):
        manager.answer = BrokerHeartbeatResponseHeader(1, 3, 2000, term)
        heartbeat.beat()
    assert woken == [5], "but not on and on"
    clock.ns += SECOND_NS
    heartbeat.beat()
    assert woken == [5, 6]


def test_the_leader_of_rocketmq_is_asked_who_leads_and_then_for_the_replicas_each_time(manager):
    heartbeat = ControllerHeartbeat(manager, "c0", 1)
    for _ in range(3):
        heartbeat.beat()
    assert manager.asked == ["meta", "info", "info", "info"] and manager.told == [("info", 1, 3)] * 3


def test_one_that_does_not_lead_is_asked_who_does_now_and_then(manager, clock):
    manager.leader = "c1"
    heartbeat = ControllerHeartbeat(manager, "c0", 1)
    for _ in range(3):
        heartbeat.beat()
    assert manager.asked == ["meta"]
    clock.ns += manager.broker_config.syncControllerMetadataPeriod * 1_000_001
    heartbeat.beat()
    assert manager.asked == ["meta", "meta"] and not manager.told


def test_one_of_ours_that_does_not_lead_grants_nothing_and_is_not_taken_for_the_leader(manager):
    manager.answer = BrokerHeartbeatResponseHeader(leaseMillis=0)
    manager.leader = "c1"
    heartbeat = ControllerHeartbeat(manager, "c0", 1)
    for _ in range(2):
        heartbeat.beat()
    assert manager.asked == ["meta"] and not manager.told and manager.controller_leader_address == "c1"
    manager.controller_leader_address = "c0"  # as it was until now
    heartbeat.beat()
    assert manager.asked == ["meta"] * 2 and not manager.told and manager.controller_leader_address == "c1"


def test_one_that_says_that_it_does_not_lead_is_believed(manager):
    manager.answer = BrokerAnswerException(response_code.CONTROLLER_NOT_LEADER, "not me", "c0")
    ControllerHeartbeat(manager, "c0", 1).beat()
    assert manager.told == [("no more", "c0")]


def test_a_connection_that_stays_silent_is_closed_each_time_later(manager, clock):
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
