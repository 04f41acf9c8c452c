"""The tools with masters that register a proxy's address (masterAddress), and a real proxy that asks /master."""
import json
from contextlib import ExitStack

import pytest

from rmqha.common.protocol import request_code
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import ClusterAdmin, own_address
from rmqha.tools.doctor.cluster_checks import check_cluster
from rmqha.tools.doctor.host_checks import Report, Severity
from tests.broker.test_replicas_manager import KEYS as CONTROLLED
from tests.broker.test_replicas_manager import Cluster
from tests.support.in_process import running_name_server
from tests.support.master_proxy import MasterProxy
from tests.support.ports import free_port
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

KEYS = {"enableAutoSwitchHA": True, "allAckInSyncStateSet": True, "haMaxTimeSlaveNotCatchup": 60_000}


class Replicas:
    """Two replicas whose roles an operator changes, a name server, and a proxy to the master."""

    def __init__(self, stack: ExitStack, folder, namesrv: str) -> None:
        self.namesrv, self.brokers = namesrv, []
        self.proxy = stack.enter_context(MasterProxy(lambda: [
            (broker.controller.addresses.store_host[1], broker.controller.metrics_port.local_port)
            for broker in self.brokers]))
        for broker_id, role in ((0, BrokerRole.SYNC_MASTER), (1, BrokerRole.SLAVE)):
            self.brokers.append(stack.enter_context(broker_at(
                folder / str(broker_id), namesrv, brokerId=broker_id, brokerRole=role, metricsPort=free_port(),
                masterAddress=self.proxy.address, **KEYS)))
        self.one, self.two = self.brokers
        wait_until(lambda: 1 in self.one.store.auto_switch.get_sync_state_set(), what="the slave is in sync")

    def listed(self) -> dict[int, str]:
        """Return the addresses at the name server by id."""
        with ClusterAdmin(self.namesrv) as admin:
            return {each.broker_id: each.address for each in admin.brokers()}


@pytest.fixture
def replicas(tmp_path):
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(tmp_path))
        yield Replicas(stack, tmp_path, namesrv)


def test_master_is_changed_and_changed_back(replicas, run):
    one, two, proxy = replicas.one, replicas.two, replicas.proxy
    assert replicas.listed() == {0: proxy.address, 1: two.address}
    assert one.send("T").code == 0
    of_one = one.store.auto_switch.local_broker_id
    for new, old, listed in ((two, one, {0: proxy.address, of_one: one.address}),
                             (one, two, {0: proxy.address, 1: two.address})):
        done = run("ha", "promote", "-b", new.address, "-n", replicas.namesrv)
        assert done.exit_code == 0 and f"{new.address} is the master of epoch" in done.output, done.output
        assert f"{old.address} follows" in done.output
        proxy.cut()
        wait_until(lambda: replicas.listed() == listed, what="the name server knows the roles")
        assert proxy.master() == new.controller.addresses.store_host[1]
        # Its slave follows the master's own address, and copies from it, not from the proxy's.
        follows = f"127.0.0.1:{new.store.ha_service.ha_listen_port}"
        wait_until(lambda: old.store.ha_service.ha_client.master_address == follows, what="it follows")
        old.controller.slave_synchronize.sync_all()
        assert old.controller.slave_synchronize.master_addr == proxy.address
        assert old.controller.master_main_port.own_address_of(proxy.address) == new.address
        assert new.call(request_code.GET_BROKER_RUNTIME_INFO, address=proxy.address).code == 0
        own_id = old.store.auto_switch.local_broker_id
        wait_until(lambda: own_id in new.store.auto_switch.get_sync_state_set(), what="it is in sync")


def test_states_and_checks_name_no_fault(replicas, run):
    assert replicas.one.send("T").code == 0
    status = run("ha", "status", "-n", replicas.namesrv, "-o", "json")
    (view,) = json.loads(status.output)
    assert view["address"] == replicas.proxy.address and not view["faults"], status.output
    assert [slave["state"] for slave in view["slaves"]] == ["TRANSFER"]
    checked = run("check", "ha", "-n", replicas.namesrv)
    assert checked.exit_code == 0, checked.output
    doctor = run("doctor", "-n", replicas.namesrv)
    print(doctor.output)
    assert "two masters" not in doctor.output and "answers at this address" not in doctor.output
    with ClusterAdmin(replicas.namesrv) as admin:
        assert own_address(admin.get_broker_config(replicas.proxy.address), replicas.proxy.address) \
            == replicas.one.address


def test_proxy_that_leads_to_the_wrong_broker_is_reported(replicas, run, monkeypatch):
    monkeypatch.setattr(replicas.proxy, "master", lambda: replicas.two.controller.addresses.store_host[1])
    doctor = run("doctor", "-n", replicas.namesrv)
    assert doctor.exit_code != 0 and "broker-a 1 answers at this address" in doctor.output, doctor.output
    assert "whose page /master answers 200" in " ".join(doctor.output.split())


def test_broker_that_is_also_given_by_its_own_address_is_no_second_master(replicas):
    report = Report()
    with ClusterAdmin(replicas.namesrv) as admin:
        brokers = admin.brokers()
    found = check_cluster(brokers, [replicas.one.address], None, True, 60_000, report)
    assert sorted(each.address for each in found) == sorted([replicas.proxy.address, replicas.two.address])
    assert report.count(Severity.ERROR) == report.count(Severity.WARNING) == 0, report.findings


def test_promotion_without_the_proxy_finds_the_old_master_by_its_ha_address(replicas, run, monkeypatch):
    monkeypatch.setattr(replicas.proxy, "master", lambda: None)
    done = run("ha", "promote", "-b", replicas.two.address, "-n", replicas.namesrv)
    assert done.exit_code == 0 and f"{replicas.one.address} follows" in done.output, done.output
    assert replicas.one.controller.role.is_slave


def test_switch_and_checks_with_controllers(tmp_path, run):
    with running_name_server(tmp_path) as namesrv, ExitStack() as stack:
        cluster = Cluster(tmp_path, namesrv)
        stack.callback(cluster.manager.shutdown)
        controller = f"127.0.0.1:{cluster.port}"
        brokers = []
        proxy = stack.enter_context(MasterProxy(lambda: [
            (broker.controller.addresses.store_host[1], broker.controller.metrics_port.local_port)
            for broker in brokers]))
        for number in range(2):
            brokers.append(stack.enter_context(broker_at(
                tmp_path / str(number), namesrv, metricsPort=free_port(), masterAddress=proxy.address,
                controllerAddr=controller, **CONTROLLED)))
            cluster.brokers[number] = brokers[-1].controller
        cluster.wait_in_sync(2)
        first = cluster.master()
        (second,) = [broker.controller for broker in brokers if broker.controller is not first]
        done = run("ha", "switch", second.broker_addr)
        text = f"{second.broker_addr} is the master of epoch 2 in place of {first.broker_addr}"
        assert done.exit_code == 0 and text in done.output, done.output
        wait_until(lambda: proxy.master() == second.addresses.store_host[1], what="the proxy leads to it")
        cluster.wait_in_sync(2)

        def listed():
            with ClusterAdmin(namesrv) as admin:
                return {each.broker_id: each.address for each in admin.brokers()}
        wait_until(lambda: listed() == {0: proxy.address, first.replicas_manager.broker_id: first.broker_addr},
                   what="the name server knows the roles")
        for arguments in (("check", "controller", "-a", controller), ("check", "ha")):
            checked = run(*arguments, "-n", namesrv)
            assert checked.exit_code == 0, checked.output
        refused = run("ha", "switch", proxy.address)
        assert refused.exit_code == 2 and f"knows no replica of broker-a at {proxy.address}" in refused.output
