"""A controller and three brokers in this process: who is the master, who registers, and what a stop does."""
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.broker.broker_controller import BrokerController
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.protocol import request_code
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.common.protocol.controller_headers import ElectMasterRequestHeader
from rmqha.controller.controller_manager import ControllerManager
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import BrokerHarness, new_controller
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until

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
        """A controller on the same port, with the same store."""
        config = ControllerConfig(
            controllerDLegerGroup="g", controllerDLegerPeers=f"n0-127.0.0.1:{self.port}", controllerDLegerSelfId="n0",
            controllerStorePath=str(self.folder / "controller"),
            configStorePath=str(self.folder / "controller.properties"))
        manager = ControllerManager(config, ServerConfig())
        assert manager.initialize()
        manager.start()
        return manager

    def start_broker(self, number: int) -> BrokerController:
        """The broker with that number, new or again."""
        broker = new_controller(self.folder / f"broker-{number}", self.namesrv,
                                controllerAddr=f"127.0.0.1:{self.port}", **KEYS)
        assert broker.initialize()
        broker.start()
        self.brokers[number] = broker
        return broker

    def masters(self) -> list[BrokerController]:
        """The brokers that take themselves for the master, and have a lease."""
        return [broker for broker in self.brokers.values() if broker.replicas_manager.role.leads
                and broker.replicas_manager.lease.holds()]

    def master(self) -> BrokerController:
        """The one master, once there is one."""
        wait_until(lambda: len(self.masters()) == 1, WAIT_MS, "there is one master")
        return self.masters()[0]

    def wait_in_sync(self, count: int) -> None:
        """Until so many replicas are in sync."""
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
    """The code of the answer to a send."""
    with BrokerHarness(broker) as harness:
        return harness.send(topic, queue_id=queue_id).code


def route(cluster: Cluster, broker: BrokerController) -> dict[int, str]:
    """Addresses by id, as the name server tells."""
    with BrokerHarness(broker) as harness:
        body = harness.call(request_code.GET_BROKER_CLUSTER_INFO, address=cluster.namesrv).body
    table = remoting_serializable.from_json(ClusterInfo, body).brokerAddrTable
    return dict(table[NAME].brokerAddrs) if NAME in table else {}


def test_another_one_is_the_master_when_it_stops_and_it_comes_back_as_a_slave(cluster):
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


def test_a_master_without_its_controller_acknowledges_nothing_and_goes_on_when_it_is_back(cluster):
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


def test_a_topic_that_only_the_dead_master_knew_can_be_read(cluster):
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


def test_a_name_server_that_hangs_delays_no_registration(cluster):
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
        with master.registration._lock, slave.registration._lock:  # as while a registration waits for the silent one
            slave_id = slave.replicas_manager.broker_id
            with BrokerHarness(slave) as harness:
                header = ElectMasterRequestHeader("DefaultCluster", NAME, slave_id, True)
                assert harness.call(request_code.CONTROLLER_ELECT_MASTER, header,
                                    address=f"127.0.0.1:{cluster.port}").code == 0
            wait_until(lambda: route(cluster, slave).get(0) == slave.broker_addr, WAIT_MS,
                       "it is registered, and waits for no other name server")
