"""What master and slave tell of each other."""
from contextlib import ExitStack, contextmanager

import pytest

from rmqha.broker.metrics.broker_metrics import BrokerMetrics
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.raw_slaves import RawSlave
from tests.support.scrape import Scrape, http_get, metrics_port
from tests.support.wait import at_least, wait_until
from tests.tools.conftest import cluster  # noqa: F401, a fixture


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


def test_lag_is_what_a_slave_has_not_acknowledged(master):
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
        assert master.send("T").code != 0  # nobody acknowledges it in 50 ms
        wait_until(lambda: Scrape(port).value("rmqha_ack_latency_seconds_count") == 1)
        scrape = Scrape(port)
        assert scrape.value("rmqha_ack_latency_seconds_bucket", le="0.03") == 0
        assert scrape.value("rmqha_ack_latency_seconds_sum") >= 0.045
    slave.socket.close()


def test_slaves_of_one_host_that_tell_no_name_go_by_their_port(master):
    slaves = [slave_of(master) for _ in range(2)]
    with told_by(master) as (port,):
        names = {"%s:%d" % slave.socket.getsockname() for slave in slaves}
        assert {one.labels["slave"] for one in Scrape(port).all("rmqha_replication_lag_bytes")} == names
    for slave in slaves:
        slave.socket.close()


def test_a_sync_master_that_lacks_replicas_is_not_ready(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, minInSyncReplicas=2, inSyncReplicas=2) as master, \
            told_by(master) as (port,):
        assert b"not as many slaves in sync" in http_get(port, "/readyz")[1]
        slave = slave_of(master)
        assert http_get(port, "/readyz")[0] == 200
        slave.socket.close()


def test_slaves_go_by_the_name_that_they_tell(cluster):
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


def test_a_slave_does_not_tell_what_would_count_twice_in_sums(cluster):
    with told_by(cluster.master, cluster.slave) as (master, slave):
        assert Scrape(master).value("rocketmq_producer_offset", topic="T") == 50
        told = Scrape(slave).families
        assert "rocketmq_producer_offset" not in told and "rocketmq_brokeruntime_commitlog_maxoffset" in told


def test_a_slave_without_a_master_is_alive_and_not_ready(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1) as slave, told_by(slave) as (port,):
        status, body, _headers = http_get(port, "/readyz")
        assert status == 503 and body.startswith(b"it does not follow its master: READY")
        assert http_get(port, "/healthz")[0] == 200 and Scrape(port).value("rmqha_slave_connected") == 0
