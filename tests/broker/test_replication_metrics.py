"""Metrics of replication, scrubbing and verification, on masters and slaves."""
import json
from contextlib import ExitStack, contextmanager

import pytest

from rmqha.broker.metrics.broker_metrics import BrokerMetrics
from rmqha.store.ha import scrub_state
from rmqha.store.ha.scrub_state import Difference, ScrubState
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.raw_remoting import RawSlave, Scrape, http_get, metrics_port
from tests.support.wait import at_least, wait_until
from tests.tools.conftest import cluster  # noqa: F401, a fixture

# Metrics that master and slave expose about each other.


@contextmanager
def told_by(*brokers):
    with ExitStack() as stack:
        yield [stack.enter_context(metrics_port(BrokerMetrics(broker.controller))) for broker in brokers]


@pytest.fixture
def master(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, slaveTimeout=50) as broker:
        yield broker


def slave_of(master, offset: int = 0) -> RawSlave:
    count = len(master.store.ha_service.connection_list)
    slave = RawSlave(master.store.ha_service.ha_listen_port, offset)
    wait_until(lambda: sum(one.is_serving for one in master.store.ha_service.connection_list) > count)
    return slave


def test_lag_is_the_unacknowledged_part(master):
    slave = slave_of(master)
    with told_by(master) as (port,):
        scrape = Scrape(port)
        assert scrape.value("rmqha_replication_lag_bytes", slave="127.0.0.1") == 0
        assert scrape.value("rmqha_replication_lag_seconds") == 0 and scrape.value("rmqha_slaves") == 1
        for _ in range(3):
            master.send("T", b"x" * 100)
        end = master.store.get_max_phy_offset()
        at_least(0.05)
        scrape = Scrape(port)
        assert scrape.value("rmqha_replication_lag_bytes") == end == scrape.value("rmqha_log_end_offset") > 300
        assert scrape.value("rocketmq_broker_commitlog_diff", broker="broker-a") == end
        assert scrape.value("rmqha_replication_lag_seconds") >= 0.05
        assert scrape.value("rmqha_replication_state", state="TRANSFER") == 1
        assert scrape.value("rmqha_replication_silence_seconds") >= 0.05
        slave.end = end // 3
        slave.report()
        wait_until(lambda: Scrape(port).value("rmqha_replication_acked_offset") == end // 3)
        assert Scrape(port).value("rmqha_replication_lag_bytes") == end - end // 3
        slave.end = end
        slave.report()
        wait_until(lambda: Scrape(port).value("rmqha_replication_lag_bytes") == 0)
        assert Scrape(port).value("rmqha_replication_lag_seconds") == 0
        slave.socket.close()
        wait_until(lambda: Scrape(port).value("rmqha_slaves") == 0)
        assert not Scrape(port).all("rmqha_replication_lag_bytes")


def test_waiting_for_slaves_is_in_the_histogram(master):
    slave = slave_of(master)
    with told_by(master) as (port,):
        # No slave acknowledges it within 50 ms.
        assert master.send("T").code != 0
        wait_until(lambda: Scrape(port).value("rmqha_ack_latency_seconds_count") == 1)
        scrape = Scrape(port)
        assert scrape.value("rmqha_ack_latency_seconds_bucket", le="0.03") == 0
        assert scrape.value("rmqha_ack_latency_seconds_sum") >= 0.045
    slave.socket.close()


def test_unnamed_slaves_of_one_host_are_identified_by_their_port(master):
    slaves = [slave_of(master) for _ in range(2)]
    with told_by(master) as (port,):
        names = {"%s:%d" % slave.socket.getsockname() for slave in slaves}
        assert {one.labels["slave"] for one in Scrape(port).all("rmqha_replication_lag_bytes")} == names
    for slave in slaves:
        slave.socket.close()


def test_sync_master_without_enough_replicas_is_not_ready(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, minInSyncReplicas=2, inSyncReplicas=2) as master, \
            told_by(master) as (port,):
        assert b"fewer slaves in sync" in http_get(port, "/readyz")[1]
        slave = slave_of(master)
        assert http_get(port, "/readyz")[0] == 200
        slave.socket.close()


def test_slaves_are_identified_by_the_name_they_report(cluster):
    with told_by(cluster.master, cluster.slave) as (master, slave):
        end = cluster.master.store.get_max_phy_offset()
        of_master, of_slave = Scrape(master), Scrape(slave)
        assert of_master.value("rmqha_replication_acked_offset", slave="C/broker-a/1", cluster="C") == end
        assert of_master.value("rmqha_slaves_in_sync") == 1 and of_master.value("rmqha_broker_info",
                                                                                role="ASYNC_MASTER") == 1
        assert of_slave.value("rmqha_slave_connected", broker_id="1") == 1
        assert of_slave.value("rmqha_slave_state", state="TRANSFER") == 1
        assert of_slave.value("rmqha_log_end_offset") == end
        assert not of_slave.all("rmqha_slaves") and not of_master.all("rmqha_slave_connected")
        assert http_get(slave, "/readyz")[0] == 200


def test_slave_does_not_expose_metrics_that_sums_would_count_twice(cluster):
    with told_by(cluster.master, cluster.slave) as (master, slave):
        assert Scrape(master).value("rocketmq_producer_offset", topic="T") == 50
        told = Scrape(slave).families
        assert "rocketmq_producer_offset" not in told and "rocketmq_brokeruntime_commitlog_maxoffset" in told


def test_slave_without_a_master_is_alive_but_not_ready(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1) as slave, told_by(slave) as (port,):
        status, body, _headers = http_get(port, "/readyz")
        assert status == 503 and body.startswith(b"it does not follow its master: READY")
        assert http_get(port, "/healthz")[0] == 200 and Scrape(port).value("rmqha_slave_connected") == 0


# A slave's metrics of scrubbing and verification.

SCRUB = "rmqha_slave_scrub_"


class Slave:
    """A slave with simulated scrubbing and a clock set by the test; `scrape` reads its metrics."""

    def __init__(self, broker, port, path):
        self.now_ms = 1_000_000
        self.client = broker.store.ha_service.ha_client
        self.state = ScrubState(str(path), lambda: self.now_ms)
        self._port = port

    def scrape(self):
        return Scrape(self._port)


@pytest.fixture
def slave(tmp_path, monkeypatch):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1, haScrubPromise=90_000) as broker, \
            metrics_port(BrokerMetrics(broker.controller)) as port:
        made = Slave(broker, port, tmp_path / "played.json")
        monkeypatch.setattr(broker.store.ha_service.scrub_service, "state", made.state)
        yield made


def test_progress_of_a_round_is_exposed(slave):
    scrub = slave.state
    scrub.state = scrub_state.RUNNING
    told = slave.scrape()
    assert not told.all("rmqha_slave_unscrubbed_seconds"), "unknown before the first check"
    assert told.value(SCRUB + "promised_seconds", broker_id="1") == 90
    scrub.log_is(0, 5000)
    scrub.begin_round(0)
    scrub.compared(1200, 1200)
    slave.now_ms += 2_500
    told = slave.scrape()
    assert [(each.labels["state"], each.value) for each in told.all(SCRUB + "state")] == [
        ("OFF", 0), ("WAITING", 0), ("RUNNING", 1), ("CANT", 0)]
    assert told.value(SCRUB + "offset") == 1200 == told.value(SCRUB + "compared_bytes_total")
    assert told.value("rmqha_slave_unscrubbed_seconds") == 2.5 and told.value(SCRUB + "rounds_total") == 0
    scrub.compared(5000, 3800)
    told = slave.scrape()
    assert told.value("rmqha_slave_unscrubbed_seconds") == 0 and told.value(SCRUB + "rounds_total") == 1
    assert told.value(SCRUB + "compared_bytes_total") == 5000


def test_differences_are_exposed_even_when_scrubbing_is_off(slave):
    scrub = slave.state
    assert slave.scrape().value(SCRUB + "differences") == 0
    for offset in (300, 100):
        scrub.differs(Difference(offset, 100, "its body", scrub_state.SLAVE))
    scrub.state = scrub_state.OFF
    told = slave.scrape()
    assert told.value(SCRUB + "differences") == 2 and told.value(SCRUB + "state", state="OFF") == 1
    # The age of data that is not compared on purpose must not raise an alarm.
    assert not told.all(SCRUB + "offset") and not told.all("rmqha_slave_unscrubbed_seconds")
    scrub.keep(())
    assert slave.scrape().value(SCRUB + "differences") == 0


def test_refused_records_are_counted(slave):
    slave.client.verified_bytes, slave.client.verify_failures = 7000, 3
    told = slave.scrape()
    assert told.value("rmqha_slave_verified_bytes_total", cluster="DefaultCluster", broker="broker-a") == 7000
    assert told.value("rmqha_slave_verify_failures_total") == 3


def test_master_exposes_no_scrub_metrics(tmp_path):
    with running_broker(tmp_path) as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
        told = json.dumps([each.name for each in Scrape(port).samples])
        assert "rmqha_slaves" in told and "scrub" not in told and "verif" not in told
