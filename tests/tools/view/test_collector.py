"""A collector beside real servers that go and come."""
from contextlib import ExitStack

import pytest

from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view import snapshot as collector_module
from rmqha.tools.view.questions import ViewPoller
from rmqha.tools.view.snapshot import Collector, History, all_faults, picture, snapshot_pair
from tests.broker.support import running_broker
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.wait import stays, wait_until

TIMEOUT_MS = 3_000


@pytest.fixture
def in_haste(monkeypatch):
    """Everything is asked at each look."""
    for name in ("NAMES_EVERY_S", "GROUPS_EVERY_S", "RETRY_S"):
        monkeypatch.setattr(collector_module, name, 0.0)


def test_a_cluster_is_seen_with_its_replication_rates_and_groups(cluster):
    with Collector(cluster.namesrv, TIMEOUT_MS) as collector:
        before, _ = snapshot_pair(collector, 0.1)
        cluster.send(20)
        now = collector.collect(ask_groups=True)
    seen = picture(now, before, before)
    assert {broker.address for broker in now.brokers} == {cluster.master.address, cluster.slave.address}
    assert seen.broker_rates(cluster.master.address).in_msgs > 0
    (replication,) = now.replication
    assert replication.address == cluster.master.address and not all_faults(replication)
    assert [(slave.address, slave.state, slave.status.name, slave.lag_bytes, slave.in_sync)
            for slave in replication.slaves] == [(cluster.slave.address, "TRANSFER", "OK", 0, True)]
    assert now.settled and now.name_servers == ((cluster.namesrv, ""),)


def test_only_the_cluster_that_was_asked_for_is_seen(cluster):
    with Collector(cluster.namesrv, TIMEOUT_MS, cluster="Nowhere") as collector:
        with pytest.raises(CannotAnswerError, match="no cluster 'Nowhere'.* it knows C"):
            collector.collect()
    with Collector(cluster.namesrv, TIMEOUT_MS, broker=cluster.slave.address) as collector:
        assert len(collector.collect().brokers) == 2  # all of its name


def test_without_a_name_server_there_is_an_error_for_people():
    with Collector("127.0.0.1:1", TIMEOUT_MS) as collector:
        with pytest.raises(CannotAnswerError, match=r"name server 127.0.0.1:1 can't be reached"):
            collector.collect()


def test_a_name_server_and_brokers_may_go_and_come(tmp_path, in_haste):
    ns_port, slave_port = ports.free_port(), ports.free_broker_port()
    with ExitStack() as stack:
        names = stack.enter_context(ExitStack())
        namesrv = names.enter_context(running_name_server(tmp_path, ns_port))
        master = stack.enter_context(running_broker(tmp_path / "m", namesrv))
        slaves = stack.enter_context(ExitStack())

        def start_slave():
            return slaves.enter_context(running_broker(
                tmp_path / "s", namesrv, listenPort=slave_port, haListenPort=slave_port + 1, brokerId=1,
                brokerRole=BrokerRole.SLAVE, haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}"))
        slave = start_slave()
        collector = stack.enter_context(Collector(namesrv, TIMEOUT_MS))
        wait_until(lambda: [each.state for one in collector.collect().replication for each in one.slaves] ==
                   ["TRANSFER"], what="the slave")
        names.close()
        alone = collector.collect()
        assert "can't be reached" in alone.name_servers[0][1]
        assert not any(broker.error for broker in alone.brokers) and len(alone.brokers) == 2
        slaves.close()  # nobody is told of it
        gone = collector.collect()
        assert [bool(broker.error) for broker in gone.brokers] == [False, True]
        assert [(each.state, each.status.name) for each in gone.replication[0].slaves] == [("UNREACHABLE", "CRITICAL")]
        namesrv = names.enter_context(running_name_server(tmp_path, ns_port))
        slave = start_slave()
        wait_until(lambda: [each.state for one in collector.collect().replication for each in one.slaves] ==
                   ["TRANSFER"], what="the slave again")
        back = collector.collect()
        assert back.name_servers == ((namesrv, ""),) and not any(broker.error for broker in back.brokers)
        assert slave.address in back.by_address


def test_a_silent_broker_is_left_alone_for_a_while(cluster, monkeypatch):
    asked = []
    real = collector_module.ask_all

    def ask_all(admin, brokers, before):
        asked.append([each.address for each in brokers])
        return {each: told if each.is_master else collector_module.Told(each, error="silent", alive=False)
                for each, told in real(admin, brokers, before).items()}
    monkeypatch.setattr(collector_module, "ask_all", ask_all)
    with Collector(cluster.namesrv, TIMEOUT_MS) as collector:
        for _ in range(3):
            now = collector.collect()
    assert [len(each) for each in asked] == [2, 1, 1]
    assert now.by_address[cluster.slave.address].error == "silent"


def test_a_poller_shows_what_is_new_until_it_is_paused(cluster):
    history = History()
    with Collector(cluster.namesrv, TIMEOUT_MS) as collector:
        poller = ViewPoller(collector, history, interval_s=0.01)
        assert poller.interval_s == 1.0
        early = collector.collect()
        poller.start()
        try:
            first = poller.wait_for_picture(600)
            assert poller.wakeup() is None
            wait_until(lambda: poller.wakeup() or poller.latest is not first)
            poller.pause(True)
            still = poller.latest
            stays(lambda: poller.wakeup() or poller.latest is still, 500)
            poller._publish(early)  # as a round does that had begun before
            assert poller.latest is still
            poller.pause(False)
            wait_until(lambda: poller.latest is not still)
        finally:
            poller.shutdown()
    assert history.line("log", cluster.master.address)


def test_a_poller_tells_why_there_is_nothing_to_show():
    with Collector("127.0.0.1:1", TIMEOUT_MS) as collector:
        poller = ViewPoller(collector, History(), 1.0)
        poller.start()
        try:
            assert poller.wait_for_picture(600) is None and "can't be reached" in poller.error
        finally:
            poller.shutdown()
