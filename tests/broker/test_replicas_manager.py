"""A replica acts on its controllers' answers: roles, the lease, the sync-state set, and a failover of three brokers."""
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.broker.controller import replicas_manager
from rmqha.broker.controller.controller_heartbeat import ControllerHeartbeat
from rmqha.broker.controller.replicas_manager import Mastership, ReplicasManager, State
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.cluster_bodies import ClusterInfo, SyncStateSet
from rmqha.common.protocol.controller_headers import (
    BrokerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.controller.controller_manager import ControllerManager
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import HERE, ME, OTHER, THERE, BrokerHarness, FakeHa, new_controller, registered_manager
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until

# A replica acts on its controllers' answers: roles, the lease, name servers, the sync-state set.

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


def test_followed_leader_is_named_and_an_earlier_one_is_ignored(make):
    manager = make()
    lead(manager)

    def hear(address, term, asked_of, epoch=1, asked_ns=None):
        answer = BrokerHeartbeatResponseHeader(ME, epoch, LONG_MS, term)
        return manager.told_by_leader(address, answer, asked_ns or time.monotonic_ns(), asked_of)
    before_ns = time.monotonic_ns()
    assert hear("one:1", 5, 0) and manager.heartbeat().leaderTerm == 5 and manager.lease.holds()
    assert not hear("one:1", 5, 5)
    assert hear("two:1", 6, 5) and manager.heartbeat().leaderTerm == 6 and manager.lease.holds()
    assert hear("one:1", 5, 5, epoch=9) and manager.controller_leader_address == "two:1", "only sends another heartbeat"
    assert hear("three:1", 7, 5, asked_ns=before_ns) and manager.lease.holds() and manager._newest_epoch == 1


def test_role_ends_the_fencing_of_a_broker(make):
    manager = make()
    # It stands for every part of the broker.
    broker = manager._roles
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
def test_role_received_before_registration_waits_for_it(make, monkeypatch, state):
    """A restarted replica has its id: it may be elected because of heartbeats of its previous process."""
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


def test_election_is_requested_repeatedly_while_no_broker_can_be_elected(make, monkeypatch):
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
    manager.wait_for_running(0)  # clear earlier wakeups
    assert manager._sync_broker_metadata() and asked == ["elect"]
    assert not manager._notified, "woken by its own heartbeat"
    manager._sought_ns -= 600 * 1_000_000
    beat(manager, None, 2, 0)
    assert manager._notified


def test_known_epoch_changes_nothing(make):
    manager = make()
    lead(manager, 3)
    for epoch in (1, 2, 3):
        manager.change_broker_role(OTHER, THERE, epoch, [OTHER], 5, "127.0.0.1:20912")
    assert manager.role == Mastership(3, ME, True) and len(ha(manager).told) == 1


def test_same_master_with_a_new_epoch_keeps_its_connections(make):
    manager = make()
    lead(manager)
    lead(manager, 2)
    for epoch in (3, 4):
        manager.change_broker_role(OTHER, THERE, epoch, [OTHER], epoch, "127.0.0.1:20912")
    assert [told[:2] for told in ha(manager).told] == [
        ("master", 1), ("master again", 2), ("slave", 3), ("slave again", 4)]


def test_only_the_leaders_answer_for_this_epoch_grants_a_lease(make, monkeypatch):
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
    # The leader does not know of that yet.
    beat(manager, ME, 1, LONG_MS)
    assert not manager.lease.holds()


def test_lease_ends_with_the_role_and_with_a_connection(make):
    manager = make()
    lead(manager)
    beat(manager, ME, 1, LONG_MS)
    asked_ns = time.monotonic_ns()
    manager.api.remoting_client._before_close()
    assert not manager.lease.holds()
    beat(manager, ME, 1, LONG_MS, asked_ns)  # the request is older
    assert not manager.lease.holds()
    beat(manager, ME, 1, LONG_MS)
    assert manager.lease.holds()
    lead(manager, 2)
    assert not manager.lease.holds()
    beat(manager, ME, 1, LONG_MS)  # of the old epoch
    assert not manager.lease.holds()


def test_master_without_leases_registers_at_once(make):
    manager = make(controllerLease=False)
    lead(manager)
    assert manager.may_register()


def test_rocketmq_controller_grants_a_lease_with_its_replica_info(make):
    manager = make(controllerHeartBeatTimeoutMills=2000)
    lead(manager)
    info = GetReplicaInfoResponseHeader(masterBrokerId=ME, masterEpoch=1, masterAddress=HERE)
    manager.told_by_replica_info(info, SyncStateSet([ME, OTHER], 4), time.monotonic_ns())
    assert manager.lease.holds() and manager.lease.left_ms() <= 1800
    assert ("set", {ME, OTHER}, 4) in ha(manager).told


def test_failed_role_change_is_retried(make):
    manager = make()
    lead(manager)
    ha(manager).failing = True
    with pytest.raises(OSError, match="the disk"):
        manager.change_broker_role(OTHER, THERE, 2, [OTHER], 2, "127.0.0.1:20912")
    assert manager.role == Mastership(1, ME) and not manager.lease.holds()
    ha(manager).failing = False
    manager.change_broker_role(OTHER, THERE, 2, [OTHER], 2, "127.0.0.1:20912")
    assert manager.role == Mastership(2, OTHER)


def test_broker_whose_log_already_has_the_epoch_stands_down(make):
    manager, closed = make(), []
    manager.api.close_all = lambda: closed.append(True)
    ha(manager).last_epoch = 5
    lead(manager, 5)
    assert closed and manager.role == Mastership(0, None) and manager.state is not State.RUNNING
    lead(manager, 6)
    assert manager.role == Mastership(6, ME, True)


def test_leader_of_the_controllers_is_tracked(make):
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
    # It would report that it no longer leads.
    assert manager.controller_leader_address == "a"
    manager.told_of_leader("a", GetMetaDataResponseHeader(isLeader=False, controllerLeaderAddress=None))
    assert manager.controller_leader_address == ""


def test_sync_state_set_goes_to_the_new_leader_at_once(make):
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


def test_sync_state_set_is_accepted_by_the_controller(make):
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
def test_sync_state_set_is_refused_by_the_controller(make, code, known, asked):
    manager = make()
    lead(manager)
    answers(manager, BrokerAnswerException(code, "no", "leader"))
    assert manager.alter_sync_state_set(frozenset((ME, OTHER)), 1) is known
    assert (("set", {ME, OTHER}, 9) in ha(manager).told) is asked
    assert manager.controller_leader_address == ("" if code == response_code.CONTROLLER_NOT_LEADER else "leader")


def test_sync_state_set_with_unknown_outcome_is_not_used(make):
    manager = make()
    assert not manager.alter_sync_state_set(frozenset((ME,)), 1)  # not the master
    lead(manager)
    assert not manager.alter_sync_state_set(frozenset((ME,)), 1)  # no controller leads
    answers(manager, RemotingTimeoutException("leader", 10))
    assert not manager.alter_sync_state_set(frozenset((ME, OTHER)), 1)
    assert not any(told[0] == "set" for told in ha(manager).told)


def test_rmqha_controller_that_does_not_lead_is_not_taken_for_the_leader(make, monkeypatch):
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


# A controller and three brokers in this process: which broker is the master, which are registered, and the effect of a
# stop.

WAIT_MS = 60_000
NAME = "broker-a"
KEYS = {"enableControllerMode": True, "allAckInSyncStateSet": True, "minInSyncReplicas": 2, "slaveTimeout": 3000,
        "brokerId": -1, "brokerRole": BrokerRole.SLAVE}


class Cluster:
    """A controller, a name server, and the brokers that are started."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.port = ports.free_block(above=1)
        self.manager = self.new_manager()
        self.brokers: dict[int, BrokerController] = {}

    def new_manager(self) -> ControllerManager:
        """Return a new controller on the same port, with the same store."""
        config = ControllerConfig(
            controllerDLegerGroup="g", controllerDLegerPeers=f"n0-127.0.0.1:{self.port}", controllerDLegerSelfId="n0",
            controllerStorePath=str(self.folder / "controller"),
            configStorePath=str(self.folder / "controller.properties"))
        manager = ControllerManager(config, ServerConfig())
        assert manager.initialize()
        manager.start()
        return manager

    def start_broker(self, number: int) -> BrokerController:
        """Start the broker with that number, new or again."""
        broker = new_controller(self.folder / f"broker-{number}", self.namesrv,
                                controllerAddr=f"127.0.0.1:{self.port}", **KEYS)
        assert broker.initialize()
        broker.start()
        self.brokers[number] = broker
        return broker

    def masters(self) -> list[BrokerController]:
        """Return the brokers that consider themselves the master and have a lease."""
        return [broker for broker in self.brokers.values() if broker.replicas_manager.role.leads
                and broker.replicas_manager.lease.holds()]

    def master(self) -> BrokerController:
        """Wait for a single master and return it."""
        wait_until(lambda: len(self.masters()) == 1, WAIT_MS, "there is one master")
        return self.masters()[0]

    def wait_in_sync(self, count: int) -> None:
        """Wait until `count` replicas are in sync."""
        wait_until(lambda: len(self.master().replicas_manager.ha_service.get_sync_state_set()) == count, WAIT_MS,
                   f"{count} replicas in sync")

    def shutdown(self) -> None:
        for broker in self.brokers.values():
            broker.shutdown()
        self.manager.shutdown()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_name_server(tmp_path) as namesrv:
        one = Cluster(tmp_path, namesrv)
        try:
            yield one
        finally:
            one.shutdown()


def send(broker: BrokerController, topic: str = "T", queue_id: int = 0) -> int:
    """Send a message and return the code of the answer."""
    with BrokerHarness(broker) as harness:
        return harness.send(topic, queue_id=queue_id).code


def route(cluster: Cluster, broker: BrokerController) -> dict[int, str]:
    """Return the addresses by id from the name server."""
    with BrokerHarness(broker) as harness:
        body = harness.call(request_code.GET_BROKER_CLUSTER_INFO, address=cluster.namesrv).body
    table = remoting_serializable.from_json(ClusterInfo, body).brokerAddrTable
    return dict(table[NAME].brokerAddrs) if NAME in table else {}


def test_stopped_master_is_replaced_and_returns_as_a_slave(cluster):
    for number in range(3):
        cluster.start_broker(number)
    cluster.wait_in_sync(3)
    first = cluster.master()
    assert send(first) == 0
    wait_until(lambda: route(cluster, first).get(0) == first.broker_addr and len(route(cluster, first)) == 3, WAIT_MS,
               "all are registered")
    number = next(number for number, broker in cluster.brokers.items() if broker is first)
    cluster.brokers.pop(number)
    begin = time.monotonic()
    first.shutdown()
    second = cluster.master()
    cluster.wait_in_sync(2)
    print(f"the next one is the master {time.monotonic() - begin:.3f} s after the stop began")
    wait_until(lambda: send(second) == 0, WAIT_MS, "the new master acknowledges")
    wait_until(lambda: route(cluster, second).get(0) == second.broker_addr, WAIT_MS, "the new master is registered")
    back = cluster.start_broker(number)
    cluster.wait_in_sync(3)
    assert cluster.master() is second and back.broker_config.brokerId == back.replicas_manager.broker_id
    assert back.message_store.get_max_phy_offset() == second.message_store.get_max_phy_offset()


def test_master_without_its_controller_acknowledges_nothing_and_resumes_when_it_is_back(cluster):
    for number in range(2):
        cluster.start_broker(number)
    cluster.wait_in_sync(2)
    master = cluster.master()
    assert send(master) == 0
    cluster.manager.shutdown()
    wait_until(lambda: not master.replicas_manager.lease.holds(), WAIT_MS, "the lease is given up")
    assert send(master) != 0
    cluster.manager = cluster.new_manager()
    wait_until(lambda: cluster.masters(), WAIT_MS, "there is a master again")
    cluster.wait_in_sync(2)
    wait_until(lambda: send(cluster.master()) == 0, WAIT_MS, "it acknowledges")


def test_topic_known_only_to_the_dead_master_can_be_read(cluster):
    for number in range(3):
        cluster.start_broker(number)
    cluster.wait_in_sync(3)
    first = cluster.master()
    others = [broker for broker in cluster.brokers.values() if broker is not first]
    for broker in others:
        broker.slave_synchronize.take_topics = broker.slave_synchronize._sync_topic_config = lambda *_: None
    assert send(first, "News", 3) == 0
    assert not any("News" in broker.topic_config_manager.topic_config_table for broker in others)
    cluster.brokers = {number: broker for number, broker in cluster.brokers.items() if broker is not first}
    first.shutdown()
    second = cluster.master()
    config = second.topic_config_manager.topic_config_table["News"]
    assert (config.readQueueNums, config.writeQueueNums) == (4, 4)
    with BrokerHarness(second) as harness:
        assert harness.next_offset("News", 3) == 1
        wait_until(lambda: harness.pull("News", 0, queue_id=3).body, WAIT_MS, "it can be read")


def test_hanging_name_server_delays_no_registration(cluster):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster.namesrv += f";127.0.0.1:{silent.getsockname()[1]}"
        for number in range(2):
            cluster.start_broker(number)
        cluster.wait_in_sync(2)
        master = cluster.master()
        address = cluster.namesrv.partition(";")[0]
        cluster.namesrv = address
        wait_until(lambda: set(route(cluster, master)) == {0, 1} or set(route(cluster, master)) == {0, 2}, WAIT_MS,
                   "both are registered")
        slave = next(broker for broker in cluster.brokers.values() if broker is not master)
        # As while a registration waits for the silent name server.
        with master.registration._lock, slave.registration._lock:
            slave_id = slave.replicas_manager.broker_id
            with BrokerHarness(slave) as harness:
                header = ElectMasterRequestHeader("DefaultCluster", NAME, slave_id, True)
                assert harness.call(request_code.CONTROLLER_ELECT_MASTER, header,
                                    address=f"127.0.0.1:{cluster.port}").code == 0
            wait_until(lambda: route(cluster, slave).get(0) == slave.broker_addr, WAIT_MS,
                       "it is registered, and waits for no other name server")
