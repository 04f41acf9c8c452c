"""The pages about a broker's role, asked over HTTP as a load balancer does."""
import json
import socket
from contextlib import ExitStack, contextmanager

import pytest

from rmqha.broker.controller.replicas_manager import Mastership, ToldSet
from rmqha.broker.metrics import health
from rmqha.broker.metrics.broker_metrics import BrokerMetrics
from rmqha.broker.slave_synchronize import MasterState
from rmqha.common.metrics import Page
from rmqha.remoting import http_port
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.ha.peers import SERVING
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.role import AUTOMATIC
from tests.broker.support import new_controller, running_broker
from tests.broker.test_replicas_manager import WAIT_MS, cluster  # noqa: F401, a fixture
from tests.support.in_process import running_name_server
from tests.support.ports import free_port
from tests.support.raw_remoting import http_get, metrics_port
from tests.support.wait import wait_until

PAGES = ("/master", "/slave", "/in-sync", "/ready")


def ask(port: int, path: str) -> tuple[int, dict]:
    """Return the status and the fields of a page."""
    status, body, headers = http_get(port, path)
    assert headers["Content-Type"] == "application/json" and headers["Cache-Control"] == "no-store"
    return status, json.loads(body)


def statuses(port: int) -> dict[str, int]:
    return {path: ask(port, path)[0] for path in PAGES}


def port_of(controller) -> int:
    return controller.metrics_port.local_port


@pytest.fixture
def master(tmp_path):
    with running_broker(tmp_path / "master", metricsPort=free_port()) as broker:
        yield broker


@pytest.fixture
def slave(master, tmp_path):
    """A slave that follows `master`; the tables are copied when a test says so."""
    address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
    with running_broker(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1, haMasterAddress=address,
                        metricsPort=free_port()) as broker:
        broker.controller.slave_synchronize.follow(master.address)
        wait_until(lambda: statuses(port_of(broker.controller))["/slave"] == 200, what="the slave follows")
        yield broker


def test_master_without_a_controller(master):
    port = port_of(master.controller)
    assert statuses(port) == {"/master": 200, "/slave": 503, "/in-sync": 200, "/ready": 200}
    assert ask(port, "/master") == (200, {
        "state": "running", "role": "master", "brokerName": "broker-a", "brokerId": 0, "epoch": None,
        "leaseMillis": None, "lagBytes": None, "reasons": []})
    assert ask(port, "/slave")[1]["reasons"] == ["it is a master"]
    master.store.running_flags.get_and_make_disk_full()
    status, fields = ask(port, "/master")
    assert status == 503 and fields["reasons"] == ["the store accepts no messages: its disk is full, or a write failed"]
    assert statuses(port) == {"/master": 503, "/slave": 503, "/in-sync": 503, "/ready": 503}
    master.store.running_flags.get_and_make_disk_ok()
    assert ask(port, "/master")[0] == 200


def test_every_method_of_a_health_check_is_answered(master):
    port = port_of(master.controller)
    for path, status in (("/master", 200), ("/slave", 503), ("/ready?lag=x", 400), ("/nothing", 404)):
        got, body, headers = http_get(port, path)
        head, nothing, of_head = http_get(port, path, "HEAD")
        assert (got, head, nothing) == (status, status, b"") and body
        assert {**headers, "Date": ""} == {**of_head, "Date": ""}
        assert http_get(port, path, "OPTIONS") == (status, b"", {})
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "WHATEVER"):
        status, _body, headers = http_get(port, "/master", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    # As HAProxy sends it.
    with socket.create_connection(("127.0.0.1", port), timeout=600) as sock:
        sock.sendall(b"OPTIONS /master HTTP/1.0\r\n\r\n")
        assert sock.recv(1000) == b"HTTP/1.0 200 OK\r\n\r\n" and sock.recv(1000) == b""


def test_answers_while_puts_are_blocked_and_readers_are_slow(master):
    # More than the kernel takes from a thread that writes it.
    large = Page(200, "text/plain", [b"#\n" * (16 << 20)])
    master.controller.metrics_port._pages._by_path["/metrics"] = lambda _query: large
    port = port_of(master.controller)
    with ExitStack() as stack:
        stack.enter_context(master.store.commit_log.put_message_lock)
        for _ in range(20):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            reader.connect(("127.0.0.1", port))
            reader.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        waiting = master.controller.metrics_port._http_port._pool.queue_size
        wait_until(lambda: waiting() > http_port._THREADS, what="the other threads are busy")
        assert statuses(port) == {"/master": 200, "/slave": 503, "/in-sync": 200, "/ready": 200}


def test_answers_while_the_store_recovers(tmp_path, monkeypatch):
    port, told = free_port(), []
    controller = new_controller(tmp_path, metricsPort=port)
    recover = DefaultMessageStore.recover_topic_queue_table

    def ask_meanwhile(store):
        told.append((statuses(port), ask(port, "/master")[1], http_get(port, "/healthz")[0]))
        recover(store)
    monkeypatch.setattr(DefaultMessageStore, "recover_topic_queue_table", ask_meanwhile)
    try:
        assert controller.initialize()
        (found, fields, health), *_more = told
        assert found == dict.fromkeys(PAGES, 503) and health == 200
        assert (fields["state"], fields["role"]) == ("starting", "master")
        assert "the store is not open" in fields["reasons"][0]
        assert ask(port, "/master")[0] == 503, "not started yet"
        controller.start()
        assert ask(port, "/master")[0] == 200
        controller.failure = "a port failed"
        assert ask(port, "/master")[1]["state"] == "failed" and statuses(port) == dict.fromkeys(PAGES, 503)
    finally:
        controller.shutdown()


def test_pages_work_without_the_library_of_the_metrics(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(http_port.metrics, "is_available", lambda: False)
    port = free_port()
    with running_broker(tmp_path, metricsPort=port):
        assert caplog.text.count(f"metricsPort={port}: /metrics answers 501, the other pages work: ") == 1
        status, body, _headers = http_get(port, "/metrics")
        assert status == 501 and b"pip install" in body
        assert http_get(port, "/healthz")[:2] == http_get(port, "/readyz")[:2] == (200, b"ok\n")
        assert ask(port, "/master")[0] == 200


def test_slave_without_a_controller(master, slave):
    port, controller = port_of(slave.controller), slave.controller
    synchronize = controller.slave_synchronize
    assert ask(port, "/master") == (503, {
        "state": "running", "role": "slave", "brokerName": "broker-a", "brokerId": 1, "epoch": None,
        "leaseMillis": None, "lagBytes": None, "reasons": ["it is a slave"]})
    synchronize.master_state = None
    assert ask(port, "/ready")[0] == 200
    for path in ("/in-sync", "/ready?lag=1MiB"):
        assert ask(port, path)[1]["reasons"] == ["its master has not reported the end of its log yet"]
    master.send("T")
    end = master.store.get_max_phy_offset()
    wait_until(lambda: slave.store.get_max_phy_offset() == end, what="the slave has the message")
    synchronize.sync_all()
    assert synchronize.master_state.log_end == end and synchronize.master_state.in_sync is None
    assert statuses(port) == {"/master": 503, "/slave": 200, "/in-sync": 200, "/ready": 200}
    assert ask(port, "/ready?lag=0")[0] == 200 and ask(port, "/in-sync")[1]["lagBytes"] == 0


def test_slave_that_is_behind(slave):
    port, synchronize = port_of(slave.controller), slave.controller.slave_synchronize
    # No copy of the tables comes in between.
    synchronize.asks_for_state = False
    end = slave.store.get_max_phy_offset()
    asked_ns = http_port.time.monotonic_ns()
    synchronize.master_state = MasterState(end + (2 << 20), None, asked_ns)
    status, fields = ask(port, "/in-sync")
    assert (status, fields["lagBytes"]) == (503, 2 << 20) and fields["reasons"] == ["it is 2.0 MiB behind its master"]
    assert {lag: ask(port, f"/ready?lag={lag}")[0] for lag in ("2MiB", "2097152", "3m%42", "2097151", "1MiB", "0")} == {
        "2MiB": 200, "2097152": 200, "3m%42": 200, "2097151": 503, "1MiB": 503, "0": 503}
    assert ask(port, "/ready?lag=1M")[1]["reasons"] == ["it is 2.0 MiB behind its master, more than 1.0 MiB"]
    assert ask(port, "/slave")[0] == 200
    synchronize.master_state = MasterState(end, None, asked_ns - 31_000_000_000)
    for path in ("/in-sync", "/ready?lag=1GiB"):
        status, fields = ask(port, path)
        (reason,) = fields["reasons"]
        assert status == 503 and reason.startswith("its master has not reported the end of its log for 31.")


@pytest.mark.parametrize("lag", ["", "-1", "1m", "1MiB&lag=many", "9" * 30, "%00", "1" * 1000])
def test_wrong_lag_is_refused_with_what_is_valid(master, lag):
    status, fields = ask(port_of(master.controller), f"/ready?lag={lag}")
    assert status == 400 and fields["reasons"][0].startswith("lag: ") and len(fields["reasons"][0]) < 300
    if lag != "9" * 30:
        assert "64KiB" in fields["reasons"][0]


@pytest.mark.parametrize("relay", ["", "503", "x", "404%20", "x" * 1000, "&" * 200])
def test_wrong_relay_is_refused(master, relay):
    status, fields = ask(port_of(master.controller), f"/master?relay={relay}")
    assert status == 400 and fields["reasons"][0].startswith("relay: ") and len(fields["reasons"][0]) < 300
    assert ask(port_of(master.controller), "/master?relay=404") == ask(port_of(master.controller), "/master")


def test_slave_without_a_controller_passes_nothing_on(slave):
    assert ask(port_of(slave.controller), "/master?relay=404")[0] == 503


def test_slave_that_lost_its_master(master, slave):
    port = port_of(slave.controller)
    master.store.ha_service.shutdown()
    wait_until(lambda: ask(port, "/slave")[0] == 503, what="it follows no longer")
    assert statuses(port) == dict.fromkeys(PAGES, 503)
    assert ask(port, "/slave")[1]["reasons"][0].startswith("it does not follow its master: ")


@contextmanager
def all_locks_held(broker):
    """Hold every lock that a role change, a put, a registration or a write may hold."""
    manager, store = broker.replicas_manager, broker.message_store
    switch = store.auto_switch
    with ExitStack() as stack:
        for lock in (manager._change, manager._lease_lock, switch._role_lock, switch._lock, switch.sync_state_set._lock,
                     switch.epoch_cache._lock, switch.divergence._lock, store.commit_log.put_message_lock,
                     store.running_flags._lock, broker.registration._lock):
            stack.enter_context(lock)
        yield


def test_role_changes_show_at_the_next_request(cluster):
    for number in range(2):
        cluster.start_broker(number)
    cluster.wait_in_sync(2)
    first = cluster.master()
    (second,) = [broker for broker in cluster.brokers.values() if broker is not first]
    with metrics_port(BrokerMetrics(first)) as one, metrics_port(BrokerMetrics(second)) as two:
        wait_until(lambda: ask(two, "/in-sync")[0] == 200, WAIT_MS, "the slave knows that it is in sync")
        status, fields = ask(one, "/master")
        assert status == 200 and (fields["role"], fields["brokerId"], fields["epoch"]) == ("master", 0, 1)
        assert 0 < fields["leaseMillis"] <= 3000
        _status, fields = ask(two, "/in-sync")
        assert (fields["role"], fields["brokerId"]) == ("slave", second.replicas_manager.broker_id)
        assert {path: (ask(one, path)[0], ask(two, path)[0]) for path in PAGES} == {
            "/master": (200, 503), "/slave": (503, 200), "/in-sync": (200, 200), "/ready": (200, 200)}
        with all_locks_held(first), all_locks_held(second):
            # While they are held, the lease may end.
            assert [(ask(one, path)[1]["role"], ask(two, path)[1]["role"]) for path in (*PAGES, "/ready?lag=0")] == [
                ("master", "slave")] * 5
            assert http_get(one, "/healthz")[0] == 200 and http_get(one, "/readyz")[0] in (200, 503)
        _check_sets(second, two)
        _check_relay(second, two)
        _check_lease(first, one)
        assert ask(one, "/master?relay=404")[0] == 503, "it follows nobody"
        first.shutdown()
        cluster.brokers = {number: broker for number, broker in cluster.brokers.items() if broker is second}
        assert ask(one, "/master")[0] == 503
        wait_until(lambda: ask(two, "/master")[0] == 200, WAIT_MS, "the other one is the master")
        assert ask(two, "/master")[1]["epoch"] == second.replicas_manager.role.epoch > 1


def _check_lease(master, port: int) -> None:
    """Check /master without a lease, and in the middle of a role change."""
    manager = master.replicas_manager
    wait_until(lambda: ask(port, "/master")[0] == 200, WAIT_MS, "it has a lease")
    # No heartbeat of the next minutes brings another one.
    manager.lease.renounced(600_000)
    status, fields = ask(port, "/master")
    assert (status, fields["leaseMillis"]) == (503, 0) and fields["reasons"] == [
        f"no controller currently confirms that this broker is the master; {AUTOMATIC}"]
    begun, manager.role = manager.role, Mastership(manager.role.epoch, manager.role.master_id)
    assert ask(port, "/master")[1]["reasons"] == ["its role is changing, or it has lost it"]
    manager.role = begun


def _check_sets(slave, port: int) -> None:
    """Check /in-sync of a slave that is in no set, or in one that may be old."""
    manager = slave.replicas_manager
    # The thread that asks the controllers waits for this lock before it notes a set.
    told = manager.told_set
    assert manager.broker_id in told.members and told.master_epoch == 1
    note, manager._note_set = manager._note_set, lambda *_: None
    try:
        manager.told_set = told._replace(members=told.members - {manager.broker_id})
        assert ask(port, "/in-sync")[1]["reasons"] == [
            f"it is not in the sync-state set {sorted(manager.told_set.members)} of epoch 1"]
        manager.told_set = told._replace(master_epoch=0)
        assert ask(port, "/in-sync")[1]["reasons"] == ["no controller has reported the sync-state set of epoch 1 yet"]
        manager.told_set = told._replace(told_ns=told.told_ns - 16_000_000_000)
        assert "no controller has reported the sync-state set for " in ask(port, "/in-sync")[1]["reasons"][0]
    finally:
        manager._note_set = note
        manager.told_set = told


def _check_relay(slave, port: int) -> None:
    """Check /master?relay=404 of a slave that passes requests on, and of one that can't."""
    manager, relay, client = slave.replicas_manager, slave.master_relay, slave.message_store.ha_service.ha_client
    assert ask(port, "/master?relay=404")[0] == 404 and ask(port, "/master")[0] == 503
    followed, manager.followed = manager.followed, None
    assert ask(port, "/master?relay=404")[0] == 503
    manager.followed, slave.master_relay = followed, None
    assert ask(port, "/master?relay=404")[0] == 503, "relayToMaster=false"
    slave.master_relay = relay
    # A slave that has just changed its master connects to it soon; another one that does not follow is cut off.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "why_not_following", lambda _controller: iter(["it does not follow"]))
        relay.role_changed()
        assert ask(port, "/master?relay=404")[0] == 404
        patch.setattr(relay, "is_role_new", lambda: False)
        assert ask(port, "/master?relay=404")[0] == 503
    assert client.state in SERVING and ask(port, "/master?relay=404")[0] == 404


def test_older_sync_state_set_replaces_no_newer_one(cluster):
    manager = cluster.start_broker(0).replicas_manager
    manager.told_set = None
    for master_epoch, epoch, kept in ((1, 5, (1, 5)), (1, 4, (1, 5)), (0, 9, (1, 5)), (2, 1, (2, 1))):
        manager._note_set(master_epoch, [1], epoch)
        assert isinstance(manager.told_set, ToldSet) and manager.told_set[:2] == kept


def test_broker_whose_role_no_controller_has_decided(tmp_path):
    port = free_port()
    with running_broker(tmp_path, enableControllerMode=True, controllerAddr=f"127.0.0.1:{free_port()}", brokerId=-1,
                        brokerRole=BrokerRole.SLAVE, metricsPort=port):
        assert statuses(port) == dict.fromkeys(PAGES, 503)
        assert ask(port, "/slave")[1]["reasons"] == ["no controller has decided the broker's role yet"]


def test_set_of_a_master_that_changes_roles_decides(tmp_path):
    with running_name_server(tmp_path) as namesrv, \
            running_broker(tmp_path / "a", namesrv, enableAutoSwitchHA=True, brokerRole=BrokerRole.SYNC_MASTER,
                           metricsPort=free_port()) as master, \
            running_broker(tmp_path / "b", namesrv, enableAutoSwitchHA=True, brokerRole=BrokerRole.SLAVE, brokerId=1,
                           metricsPort=free_port()) as slave:
        port, synchronize = port_of(slave.controller), slave.controller.slave_synchronize
        wait_until(lambda: ask(port, "/slave")[0] == 200, what="the slave follows")
        wait_until(lambda: 1 in master.store.auto_switch.get_sync_state_set(), what="the slave is in sync")
        synchronize.follow(master.address)
        synchronize.sync_all()
        own_id = master.store.auto_switch.local_broker_id
        assert synchronize.master_state.in_sync == {own_id, 1} and ask(port, "/in-sync")[0] == 200
        assert ask(port_of(master.controller), "/master")[1]["epoch"] == 1 == ask(port, "/slave")[1]["epoch"]
        synchronize.asks_for_state = False
        synchronize.master_state = synchronize.master_state._replace(in_sync=frozenset({own_id}))
        assert ask(port, "/in-sync")[1]["reasons"] == [f"its master counts [{own_id}] as in sync, not 1"]
