"""What a slave does while its own broker still starts."""
import threading

from rmqha.broker.broker_outer_api import BrokerOuterAPI
from rmqha.broker.master_main_port import MasterMainPort
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.ports import free_broker_port
from tests.support.wait import wait_until


def test_a_slave_that_connects_before_its_broker_can_ask_waits_for_that(tmp_path, monkeypatch):
    """Its HA client starts with the store: followed as a master of RocketMQ 4.9, which compares no logs, it was."""
    asks = threading.Event()
    may_ask, start = MasterMainPort.wait_until_may_ask, BrokerOuterAPI.start

    def noted(main_port, timeout_s):
        asks.set()
        return may_ask(main_port, 300)

    def start_late(api):
        assert asks.wait(300)
        start(api)

    port = free_broker_port()
    with running_broker(tmp_path / "master", brokerRole=BrokerRole.ASYNC_MASTER, listenPort=port,
                        haListenPort=port + 1) as master:
        ha_service = master.store.ha_service
        monkeypatch.setattr(MasterMainPort, "wait_until_may_ask", noted)
        monkeypatch.setattr(BrokerOuterAPI, "start", start_late)
        with running_broker(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1,
                            haMasterAddress=f"127.0.0.1:{ha_service.ha_listen_port}"):
            wait_until(lambda: any(one.is_serving for one in ha_service.connection_list))
            assert [one.slave_identity for one in ha_service.connection_list] == ["DefaultCluster/broker-a/1"]


def test_a_broker_that_ends_before_it_has_started_lets_nobody_wait(tmp_path):
    with running_broker(tmp_path) as broker:
        controller = broker.controller
    assert controller.master_main_port.wait_until_may_ask(300) is False
