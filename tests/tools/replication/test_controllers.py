"""The tools' view of controllers' answers; `rmqha ha promote` and `ha follow`."""
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from rmqha.common.protocol import request_code
from rmqha.common.protocol.cluster_bodies import (
    BrokerReplicasInfo,
    EpochEntry,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
)
from rmqha.common.protocol.controller_headers import GetMetaDataResponseHeader
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, RefusedError
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.controllers import Controllers, controllers_of, failover_lines, faults_of, split_addresses
from rmqha.tools.terminal import CannotAnswerError
from tests.support import real_rocketmq
from tests.support.in_process import running_name_server
from tests.support.mqadmin import JavaMqadmin
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

# The tools' view of controllers' answers: the candidates for master, the reasons against others, and faults.

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


def test_addresses_come_from_a_broker_in_controller_mode_and_are_validated():
    assert controllers_of({"enableControllerMode": "true", "controllerAddr": " a:1 ;b:2;"}) == ["a:1", "b:2"]
    assert controllers_of({"enableControllerMode": "false", "controllerAddr": "a:1"}) == []
    assert split_addresses(f"{LEADER}; {OTHER}") == [LEADER, OTHER]
    with pytest.raises(CannotAnswerError, match="not a valid host:port"):
        split_addresses("somewhere")


def test_candidates_for_master_and_the_reasons_against_the_others():
    view = Controllers(FakeAdmin(INFO, positions=POSITIONS)).look_at("broker-a", [LEADER, OTHER])
    assert (view.leader, view.known, view.master_id, view.master, view.master_epoch) == (LEADER, True, 1, ONE, 3)
    assert view.sync_state_set == [1, 2] and view.sync_state_set_epoch == 7
    assert [(each.broker_id, each.is_master, each.may_lead) for each in view.replicas] == [
        (1, True, True), (2, False, True), (3, False, False)]
    assert view.replicas[2].why_not == ("the controller gets no heartbeat from it; it is not in the sync-state set, so "
                                        "it may lack acknowledged messages, 3.9 KiB now")
    text = "\n".join(failover_lines(view))
    assert f"controller {LEADER} leads (n0), {OTHER} stands by" in text
    assert f"master: id 1 at {ONE}, epoch 3; sync-state set (epoch 7): 1, 2" in text
    assert "is the master" in text and "NO: the controller gets no heartbeat from it" in text


def test_unclean_election_could_take_a_replica_that_is_not_in_sync():
    info = ReplicasInfo(1, ONE, 3, 7, [identity(1, ONE)], [identity(2, TWO), identity(3, THREE, False)])
    view = Controllers(FakeAdmin(info, unclean=True)).look_at("broker-a", [LEADER])
    assert "enableElectUncleanMaster" in view.replicas[1].why_not and not view.replicas[1].may_lead
    assert "enableElectUncleanMaster" not in view.replicas[2].why_not
    assert [each.epoch for each in view.replicas] == [None] * 3  # none of them reports an epoch
    assert "?" in "\n".join(failover_lines(view))


def test_each_controller_is_queried_once_for_all_names():
    admin = FakeAdmin(INFO)
    controllers = Controllers(admin, [OTHER])
    for name in ("broker-a", "broker-b"):
        assert controllers.look(name, [told(ONE)]) is not None
    assert sorted(admin.asked) == [OTHER, LEADER]
    assert Controllers(admin).look("broker-a", [told(ONE, enableControllerMode="false")]) is None


def test_healthy_controllers_have_no_faults():
    info = ReplicasInfo(1, ONE, 3, 7, [identity(1, ONE), identity(2, TWO)], [])
    assert faults(Controllers(FakeAdmin(info)).look_at("broker-a", [LEADER, OTHER])) == []


CASES = [
    (dict(info=INFO, silent=(LEADER, OTHER)), ONE, (Status.CRITICAL, "no controller answers")),
    (dict(info=INFO, silent=(OTHER,)), ONE, (Status.WARNING, f"the controller {OTHER} can't be reached")),
    (dict(info=INFO, leader=None), ONE, (Status.CRITICAL, "no controller leads")),
    (dict(info=None), ONE, (Status.CRITICAL, f"controller {LEADER} does not know broker-a")),
    (dict(info=INFO), TWO, (Status.CRITICAL, f"the controller's master is {ONE}, but the name server lists {TWO}")),
    (dict(info=INFO), ONE, (Status.WARNING, f"replica 3 at {THREE}: the controller gets no heartbeat from it")),
    (dict(info=ReplicasInfo(1, ONE, 1, 1, [identity(1, ONE)], [identity(2, TWO)])), ONE,
     (Status.WARNING, "no other replica may become the master")),
    (dict(info=ReplicasInfo(None, None, 2, 1, [identity(1, ONE, False)], [identity(2, TWO)])), "",
     (Status.CRITICAL, "the controller has no master for it")),
]


@pytest.mark.parametrize("tables, registered, expected", CASES, ids=lambda value: str(value)[:40])
def test_each_fault_is_reported(tables, registered, expected):
    view = Controllers(FakeAdmin(**tables)).look_at("broker-a", [LEADER, OTHER])
    assert any(status is expected[0] and text.startswith(expected[1]) for status, text in faults(view, registered))


def test_too_small_a_set_and_brokers_without_controller_mode_are_reported():
    info = ReplicasInfo(1, ONE, 1, 1, [identity(1, ONE)], [identity(2, TWO)])
    view = Controllers(FakeAdmin(info)).look_at("broker-a", [LEADER])
    answers = [told(ONE, minInSyncReplicas="2"), told(TWO, enableControllerMode="false")]
    found = faults(view, answers=answers)
    assert (Status.CRITICAL, "the sync-state set has 1 replica, minInSyncReplicas=2: "
            "no message is acknowledged") in found
    assert any(text.startswith(f"{TWO} does not have enableControllerMode=true") for _status, text in found)


def test_leader_that_stops_between_two_requests_causes_no_crash():
    admin = FakeAdmin(INFO)

    def gone(*_args):
        raise NoAnswerError(f"the controller {LEADER} can't be reached")
    admin.get_in_sync_state_data = gone
    view = Controllers(admin).look_at("broker-a", [LEADER])
    assert not view.known and any(each.error for each in view.controllers)
    assert any(status is Status.WARNING for status, _text in faults(view))


def test_controllers_with_different_names_are_reported():
    admin = FakeAdmin(INFO)
    admin.get_controller_meta_data = lambda address: SimpleNamespace(
        group="g", controllerLeaderId="x", controllerLeaderAddress=address, isLeader=False, peers="")
    view = Controllers(admin).look_at("broker-a", [LEADER, OTHER])
    assert any("name different leaders" in text for _status, text in faults(view))


# `rmqha ha promote` and `ha follow` on brokers in this process.

_KEYS = {"brokerClusterName": "C", "enableAutoSwitchHA": True, "allAckInSyncStateSet": True,
         "haSendHeartbeatInterval": 200, "registerNameServerPeriod": 10_000, "slaveTimeout": 60_000}
_WAIT_MS = 60_000


class Group:
    """A first master, whose configured id is 0, and a slave with id 1."""

    def __init__(self, folder, stack):
        self.namesrv = stack.enter_context(running_name_server(folder))
        self.first = stack.enter_context(broker_at(folder / "first", self.namesrv, brokerRole=BrokerRole.SYNC_MASTER,
                                                   **_KEYS))
        self.second = stack.enter_context(broker_at(folder / "second", self.namesrv, brokerRole=BrokerRole.SLAVE,
                                                    brokerId=1, **_KEYS))

    def registered(self):
        """Return broker id -> address, as registered at the name server."""
        with ClusterAdmin(self.namesrv) as admin:
            return {each.broker_id: each.address for each in admin.brokers()}

    def wait_registered(self, addresses):
        """Wait until the name server has these addresses; a registration sent before the change may arrive after it."""
        wait_until(lambda: self.registered() == addresses, _WAIT_MS, f"{addresses} at the name server")

    def wait_in_sync(self, master):
        """Wait until the set of in-sync replicas contains both."""
        wait_until(lambda: len(master.store.ha_service.sync_state_set.members) == 2, _WAIT_MS, "both in sync")

    def wait_same_end(self):
        """Wait until both logs have the same end and are dispatched."""
        wait_until(lambda: self.first.store.get_max_phy_offset() == self.second.store.get_max_phy_offset(), _WAIT_MS,
                   "the logs end alike")
        for broker in (self.first, self.second):
            wait_until(lambda store=broker.store: store.dispatch_behind_bytes() <= 0 and
                       store.ha_service.confirm_offset() == store.get_max_phy_offset(), _WAIT_MS, "dispatched")


@pytest.fixture
def group(tmp_path):
    with ExitStack() as stack:
        made = Group(tmp_path, stack)
        made.wait_in_sync(made.first)
        yield made


def send(broker, count):
    """Send messages that must be acknowledged."""
    for _ in range(count):
        wait_until(lambda: broker.send("T", b"x" * 200).code == 0, _WAIT_MS, "acknowledged")


def test_slave_is_promoted_and_the_master_follows_it(group, run):
    send(group.first, 20)
    result = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address)
    assert result.exit_code == 0, result.output
    assert f"{group.second.address} is the master of epoch 2" in result.output
    assert f"{group.first.address} follows" in result.output
    group.wait_registered({0: group.second.address, 1000: group.first.address})
    assert group.first.send("T", b"x").code not in (0, 10, 11, 12)
    group.wait_in_sync(group.second)
    with ClusterAdmin(group.namesrv) as admin:
        stats = admin.runtime_info(group.second.address)
        assert {key: stats[key] for key in ("haRole", "haLocalBrokerId", "haLastEpoch", "haSyncStateSet")} == {
            "haRole": "master", "haLocalBrokerId": "1", "haLastEpoch": "2", "haSyncStateSet": "1,1000"}
    send(group.second, 20)
    group.wait_same_end()
    assert group.first.store.get_max_offset_in_queue("T", 0) == group.second.store.get_max_offset_in_queue("T", 0) == 40
    assert run("ha", "promote", "-n", group.namesrv, "-b", group.first.address).exit_code == 0
    group.wait_registered({0: group.first.address, 1: group.second.address})
    send(group.first, 5)
    group.wait_same_end()
    assert [entry.epoch for entry in group.second.store.ha_service.epoch_cache.get_all_entries()] == [1, 2, 3]


def test_slave_that_is_not_in_sync_is_promoted_only_if_forced(group, run):
    group.second.store.ha_service.change_to_slave("127.0.0.1:1", 1)
    wait_until(lambda: not group.first.store.ha_service.connection_list, _WAIT_MS, "the slave is gone")
    send(group.first, 10)
    refused = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address)
    assert refused.exit_code == 2 and "no in-sync connection from 127.0.0.1" in refused.output
    assert group.first.send("T", b"x").code == 0
    forced = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address, "--force")
    assert forced.exit_code == 0 and "bytes are truncated" in forced.output
    group.wait_in_sync(group.second)
    send(group.second, 3)
    group.wait_same_end()
    assert group.first.store.get_max_offset_in_queue("T", 0) == 3


def test_without_a_master_the_longest_log_is_promoted_unless_another_is_forced(group, run):
    group.second.store.ha_service.change_to_slave("127.0.0.1:1", 1)
    wait_until(lambda: not group.first.store.ha_service.connection_list, _WAIT_MS, "the slave is gone")
    send(group.first, 10)
    group.first.store.ha_service.change_to_slave("127.0.0.1:1", 1)
    refused = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address)
    assert refused.exit_code == 2 and "Promote the other" in refused.output, refused.output
    assert run("ha", "promote", "-n", group.namesrv, "-b", group.first.address).exit_code == 0
    group.wait_same_end()
    assert group.second.store.get_max_offset_in_queue("T", 0) == 10


def test_follow_command_changes_the_master_of_a_broker(group, run):
    epochs = group.second.call(request_code.GET_BROKER_EPOCH_CACHE).body
    assert b'"brokerId":1' in epochs and b'"epoch":1' in epochs
    result = run("ha", "follow", "-b", group.second.address, "--master", group.first.address, "--ha",
                 f"127.0.0.1:{group.first.store.ha_service.ha_listen_port}")
    assert result.exit_code == 0 and "the master of epoch 1" in result.output, result.output
    send(group.first, 5)
    group.wait_same_end()
    same = run("ha", "follow", "-b", group.first.address, "--master", group.first.address)
    assert same.exit_code == 2 and "the same broker" in same.output
    old = run("ha", "promote", "-b", group.second.address, "--epoch", 1)
    assert old.exit_code == 2 and "epoch 1 is too old" in old.output


def test_promotion_of_a_broker_with_a_fixed_role_is_refused_with_the_reason(cluster, run):
    result = run("ha", "promote", "-b", cluster.slave.address)
    assert result.exit_code == 2 and "enableAutoSwitchHA=true" in result.output


def test_returning_master_follows_the_one_promoted_in_the_meantime(tmp_path, run):
    keys = {**_KEYS, "brokerRole": BrokerRole.SYNC_MASTER}
    with running_name_server(tmp_path) as namesrv, \
            broker_at(tmp_path / "second", namesrv, brokerRole=BrokerRole.SLAVE, brokerId=1, **_KEYS) as second:
        with broker_at(tmp_path / "first", namesrv, **keys) as first:
            first_service, second_service = first.store.ha_service, second.store.ha_service
            second_service.update_master_address(f"127.0.0.1:{first_service.ha_listen_port}")
            wait_until(lambda: len(first_service.sync_state_set.members) == 2, _WAIT_MS, "both in sync")
            send(first, 10)
        promoted = run("ha", "promote", "-n", namesrv, "-b", second.address)
        assert promoted.exit_code == 0, promoted.output
        send(second, 10)
        with broker_at(tmp_path / "first", namesrv, **keys) as first:
            assert first.send("T", b"x").code not in (0, 10, 11, 12)
            wait_until(lambda: len(second_service.sync_state_set.members) == 2, _WAIT_MS, "it follows")
            assert first.controller.broker_config.brokerId == 1000
            send(second, 1)
            wait_until(lambda: first.store.get_max_offset_in_queue("T", 0) == 21, _WAIT_MS, "it has all")


@pytest.mark.java
def test_mqadmin_of_514_shows_the_epochs_of_both(group, run, tmp_path):
    send(group.first, 3)
    assert run("ha", "promote", "-n", group.namesrv, "-b", group.second.address).exit_code == 0
    send(group.second, 1)
    group.wait_same_end()
    done = JavaMqadmin(tmp_path / "java", real_rocketmq.VERSION_5).run(
        "getBrokerEpoch", "-n", group.namesrv, "-b", "broker-a")
    start, end = (entry.start_offset for entry in group.second.store.ha_service.epoch_cache.get_all_entries()), \
        group.second.store.get_max_phy_offset()
    first, second = start
    epochs = [f"#Epoch: EpochEntry{{epoch=1, startOffset={first}, endOffset={second}}}",
              f"#Epoch: EpochEntry{{epoch=2, startOffset={second}, endOffset={end}}}"]
    lines = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert [line for line in lines if line.startswith("#Epoch")] == 2 * epochs, done.stdout + done.stderr
    assert sorted(line.split()[1] for line in lines if line.startswith("#brokerId")) == ["1", "1000"]
