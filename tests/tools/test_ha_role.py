"""`rmqha ha promote` and `ha follow` on brokers within this process."""
from contextlib import ExitStack

import pytest

from rmqha.common.protocol import request_code
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from tests.support import real_rocketmq_5
from tests.support.in_process import running_name_server
from tests.support.java_mqadmin import JavaMqadmin
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

_KEYS = {"brokerClusterName": "C", "enableAutoSwitchHA": True, "allAckInSyncStateSet": True,
         "haSendHeartbeatInterval": 200, "registerNameServerPeriod": 10_000, "slaveTimeout": 60_000}
_WAIT_MS = 60_000


class Group:
    """A first master, whose configuration says 0, and a slave with id 1."""

    def __init__(self, folder, stack):
        self.namesrv = stack.enter_context(running_name_server(folder))
        self.first = stack.enter_context(broker_at(folder / "first", self.namesrv, brokerRole=BrokerRole.SYNC_MASTER,
                                                   **_KEYS))
        self.second = stack.enter_context(broker_at(folder / "second", self.namesrv, brokerRole=BrokerRole.SLAVE,
                                                    brokerId=1, **_KEYS))

    def registered(self):
        """Broker id -> address, as the name server knows them."""
        with ClusterAdmin(self.namesrv) as admin:
            return {each.broker_id: each.address for each in admin.brokers()}

    def wait_registered(self, addresses):
        """Until the name server knows these; a registration of before the change may come behind it."""
        wait_until(lambda: self.registered() == addresses, _WAIT_MS, f"{addresses} at the name server")

    def wait_in_sync(self, master):
        """Until the set of in-sync replicas has both."""
        wait_until(lambda: len(master.store.ha_service.sync_state_set.members) == 2, _WAIT_MS, "both in sync")

    def wait_same_end(self):
        """Until both logs end alike, dispatched."""
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
    """Messages that must be acknowledged."""
    for _ in range(count):
        wait_until(lambda: broker.send("T", b"x" * 200).code == 0, _WAIT_MS, "acknowledged")


def test_a_slave_is_promoted_and_the_master_follows_it(group, run):
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


def test_a_slave_that_is_not_in_sync_is_not_promoted_unless_forced(group, run):
    group.second.store.ha_service.change_to_slave("127.0.0.1:1", 1)
    wait_until(lambda: not group.first.store.ha_service.connection_list, _WAIT_MS, "the slave is gone")
    send(group.first, 10)
    refused = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address)
    assert refused.exit_code == 2 and "no connection in sync from 127.0.0.1" in refused.output
    assert group.first.send("T", b"x").code == 0
    forced = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address, "--force")
    assert forced.exit_code == 0 and "bytes are cut off" in forced.output
    group.wait_in_sync(group.second)
    send(group.second, 3)
    group.wait_same_end()
    assert group.first.store.get_max_offset_in_queue("T", 0) == 3


def test_without_a_master_the_one_with_the_longest_log_is_promoted_unless_another_is_forced(group, run):
    group.second.store.ha_service.change_to_slave("127.0.0.1:1", 1)
    wait_until(lambda: not group.first.store.ha_service.connection_list, _WAIT_MS, "the slave is gone")
    send(group.first, 10)
    group.first.store.ha_service.change_to_slave("127.0.0.1:1", 1)
    refused = run("ha", "promote", "-n", group.namesrv, "-b", group.second.address)
    assert refused.exit_code == 2 and "Promote the other" in refused.output, refused.output
    assert run("ha", "promote", "-n", group.namesrv, "-b", group.first.address).exit_code == 0
    group.wait_same_end()
    assert group.second.store.get_max_offset_in_queue("T", 0) == 10


def test_a_broker_is_told_whom_to_follow(group, run):
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


def test_a_broker_whose_role_does_not_change_says_so(cluster, run):
    result = run("ha", "promote", "-b", cluster.slave.address)
    assert result.exit_code == 2 and "enableAutoSwitchHA=true" in result.output


def test_a_master_that_comes_back_follows_the_one_that_was_promoted_meanwhile(tmp_path, run):
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
    done = JavaMqadmin(tmp_path / "java", real_rocketmq_5.VERSION).run(
        "getBrokerEpoch", "-n", group.namesrv, "-b", "broker-a")
    start, end = (entry.start_offset for entry in group.second.store.ha_service.epoch_cache.get_all_entries()), \
        group.second.store.get_max_phy_offset()
    first, second = start
    epochs = [f"#Epoch: EpochEntry{{epoch=1, startOffset={first}, endOffset={second}}}",
              f"#Epoch: EpochEntry{{epoch=2, startOffset={second}, endOffset={end}}}"]
    lines = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert [line for line in lines if line.startswith("#Epoch")] == 2 * epochs, done.stdout + done.stderr
    assert sorted(line.split()[1] for line in lines if line.startswith("#brokerId")) == ["1", "1000"]
