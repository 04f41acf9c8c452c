"""What a controller tells Prometheus."""
from rmqha.controller.controller_metrics import CONTROLLER_METRICS, LEADER
from tests.controller.support import CLUSTER, NAME, FakeBroker, controller
from tests.support.ports import free_port
from tests.support.scrape import Scrape, http_get


def test_elections_requests_replicas_and_health(tmp_path):
    port = free_port()
    manager = controller(tmp_path, metricsPort=port)
    brokers = [FakeBroker(manager, id_) for id_ in (1, 2)]
    try:
        for broker in brokers:
            broker.register()
        brokers[0].elect()
        brokers[1].elect()
        scrape = Scrape(port)
        owner = {"address": manager.address, "group": "group1", "peer_id": "n0"}
        assert scrape.value("role", **owner) == LEADER
        of = {"cluster": CLUSTER, "broker_set": NAME}
        assert scrape.value("active_broker_num", **owner, **of) == 2
        for result in ("new_master_elected", "keep_current_master"):
            assert scrape.value("election_total", **owner, broker_set=NAME, election_result=result) == 1
        assert scrape.value("request_total", **owner, request_type="CONTROLLER_BROKER_HEARTBEAT",
                            request_handle_status="success") == 2
        assert scrape.value("rmqha_controller_master_broker_id", **of) == 1
        assert scrape.value("rmqha_controller_in_sync_replicas", **of) == 1
        assert scrape.value("rmqha_controller_replicas", **of) == 2
        assert scrape.value("rmqha_controller_store_total", result="success") == 3
        told = {name + ("_total" if family.type == "counter" else "") for name, family in scrape.families.items()}
        assert {metric.name for metric in CONTROLLER_METRICS} <= told
        assert http_get(port, "/readyz")[0] == 200
        manager.controller.store.shutdown()
        assert http_get(port, "/readyz")[:2] == (503, b"no controller is known to lead\n")
        assert Scrape(port).value("role", **owner) != LEADER
        manager.remoting_server.io.shutdown()
        assert http_get(port, "/healthz")[:2] == (503, b"the thread of its port has ended\n")
    finally:
        for broker in brokers:
            broker.die()
        manager.shutdown()
    assert manager.metrics().why_not_ready() == ["it is starting, or going down"]
