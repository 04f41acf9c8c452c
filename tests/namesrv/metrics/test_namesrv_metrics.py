"""A name server's metrics against the brokers that are registered."""
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.namesrv.namesrv_controller import NAMESRV_METRICS, NamesrvController
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.ports import free_port
from tests.support.scrape import Scrape, http_get
from tests.support.wait import wait_until


def test_brokers_topics_and_health(tmp_path):
    config = NamesrvConfig(kvConfigPath=str(tmp_path / "kv.json"), configStorePath=str(tmp_path / "ns.conf"),
                           metricsPort=free_port())
    controller = NamesrvController(config, ServerConfig(listenPort=0))
    assert controller.initialize()
    assert controller.metrics().why_not_ready() == ["it is starting, or going down"]
    controller.start()
    try:
        address, port = f"127.0.0.1:{controller.local_listen_port}", config.metricsPort
        assert Scrape(port).value("rmqha_namesrv_topics") == 0 and http_get(port, "/readyz")[0] == 200
        with running_broker(tmp_path / "m", address, brokerClusterName="C") as master:
            slave = {"brokerClusterName": "C", "brokerRole": BrokerRole.SLAVE, "brokerId": 1}
            with running_broker(tmp_path / "s", address, **slave):
                scrape = Scrape(port)
                assert scrape.value("rmqha_namesrv_brokers", cluster="C") == 2
                assert scrape.value("rmqha_namesrv_masters", cluster="C") == 1
                assert scrape.value("rmqha_namesrv_broker_names_without_master", cluster="C") == 0
                assert 0 <= scrape.value("rmqha_namesrv_broker_heartbeat_age_seconds", cluster="C", broker="broker-a",
                                         broker_id="0", address=master.address) < 60
                assert scrape.value("rmqha_namesrv_connections") == 2
                topics = scrape.value("rmqha_namesrv_topics")
                assert topics > 1
                master.send("New")
                wait_until(lambda: Scrape(port).value("rmqha_namesrv_topics") == topics + 1)
            wait_until(lambda: Scrape(port).value("rmqha_namesrv_brokers", cluster="C") == 1)
        told = {name + ("_total" if family.type == "counter" else "") for name, family in scrape.families.items()}
        assert {metric.name for metric in NAMESRV_METRICS} <= told
        controller.remoting_server.io.shutdown()
        assert http_get(port, "/healthz")[:2] == (503, b"the thread of its port has ended\n")
    finally:
        controller.shutdown()


def test_a_name_of_which_only_slaves_are_left_is_told(tmp_path):
    config = NamesrvConfig(kvConfigPath=str(tmp_path / "kv.json"), configStorePath=str(tmp_path / "ns.conf"),
                           metricsPort=free_port())
    controller = NamesrvController(config, ServerConfig(listenPort=0))
    assert controller.initialize()
    controller.start()
    try:
        address = f"127.0.0.1:{controller.local_listen_port}"
        with running_broker(tmp_path / "s", address, brokerRole=BrokerRole.SLAVE, brokerId=1):
            scrape = Scrape(config.metricsPort)
            assert scrape.value("rmqha_namesrv_broker_names_without_master", cluster="DefaultCluster") == 1
            assert scrape.value("rmqha_namesrv_masters", cluster="DefaultCluster") == 0
    finally:
        controller.shutdown()
