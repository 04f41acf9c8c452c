"""The replication status that an operator sees, and waiting for a connection state."""
import pytest

from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.ha import ha_client, ha_connection_state_notification_service
from rmqha.store.ha.ha_connection_state_notification_service import HAConnectionStateNotificationRequest
from rmqha.store.ha.master_connection import MasterConnection
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.message_store_config import BrokerRole
from tests.store.ha.support import FakeMaster, FakeStore, Peer, follow, running, served
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)
    monkeypatch.setattr(ha_connection_state_notification_service, "_CHECK_MS", 20)


def filled(**keys) -> FakeStore:
    store = FakeStore(haHousekeepingInterval=60_000, **keys)
    for seed in range(20):
        store.put(1000, seed)
    return store


def test_master_reports_every_slave():
    store = filled(haMaxGapNotInSync=15_000)
    with running(store), Peer.connect(store) as slow, Peer.connect(store) as silent:
        slow.report(4000)
        wait_until(lambda: served(store) == 1, 60_000)
        wait_until(lambda: store.ha_service.connection_list[0].transfer_from_where == 20_000, 60_000)
        info = store.ha_service.get_runtime_info(20_000)
        (one,) = info.haConnectionInfo
        assert (one.slaveAckOffset, one.diff, one.inSync, one.transferFromWhere) == (4000, 16_000, False, 20_000)
        assert one.addr == f"127.0.0.1:{slow.sock.getsockname()[1]}"
        assert (info.master, info.masterCommitLogMaxOffset, info.inSyncSlaveNums) == (True, 20_000, 0)
        slow.report(6000)
        wait_until(lambda: store.ha_service.get_runtime_info(20_000).inSyncSlaveNums == 1, 60_000)
        assert silent.sock.fileno() >= 0
        again = remoting_serializable.decode(HARuntimeInfo, remoting_serializable.encode(info))
        assert again == info


def test_slave_reports_its_master():
    master, slave = filled(), FakeStore(brokerRole=BrokerRole.SLAVE)
    with running(master, slave):
        assert slave.ha_service.get_runtime_info(0).haClientRuntimeInfo.lastReadTimestamp == 0
        follow(slave, master)
        wait_until(lambda: slave.get_max_phy_offset() == 20_000, 60_000)
        info = slave.ha_service.get_runtime_info(20_000)
        client = info.haClientRuntimeInfo
        assert not info.master and not info.haConnectionInfo
        assert client.masterAddr == f"127.0.0.1:{master.ha_service.ha_listen_port}"
        assert client.maxOffset == 20_000 and client.lastReadTimestamp > 1_600_000_000_000
        assert client.lastWriteTimestamp > 1_600_000_000_000 and client.masterFlushOffset == -1


def test_time_behind_counts_since_the_slave_was_last_caught_up():
    store = filled()
    with running(store), Peer.connect(store) as peer:
        peer.report(20_000)
        wait_until(lambda: served(store) == 1, 60_000)
        (connection,) = store.ha_service.connection_list
        assert connection.behind_ms() == 0
        end = store.put(1000)
        wait_until(lambda: connection.behind_ms() > 200, 60_000)
        peer.read_data_frame()
        peer.report(end)
        wait_until(lambda: connection.behind_ms() == 0, 60_000)
        stats: dict[str, str] = {}
        store.ha_service.build_running_stats(stats)
        assert stats[f"haSlave_{connection.client_addr}"].split(",")[:4] == ["TRANSFER", str(end), "0", "0"]


def told_by(store: FakeStore) -> dict[str, str]:
    stats: dict[str, str] = {}
    store.ha_service.build_running_stats(stats)
    return stats


def test_slave_reports_its_address_and_its_masters_silence():
    slave = FakeStore(brokerRole=BrokerRole.SLAVE)
    with FakeMaster() as master, running(slave):
        slave.ha_service.update_master_address(master.address)
        with master.accept() as peer:
            peer.read_report()
            host, port = peer.sock.getpeername()[:2]
            assert told_by(slave)["haClientAddress"] == f"{host}:{port}"
            wait_until(lambda: int(told_by(slave)["haClientSilenceMs"]) > 200, 60_000, "the master is silent")
            peer.send_frame(0)
            wait_until(lambda: int(told_by(slave)["haClientSilenceMs"]) < 200, 60_000, "a heartbeat has arrived")
        slave.ha_service.update_master_address(None)
        wait_until(lambda: slave.ha_service.ha_client.local_address == "", 60_000, "the connection has ended")
        assert slave.ha_service.ha_client.silence_ms() == -1


def test_master_reports_the_silence_of_a_slave():
    store = filled(haSendHeartbeatInterval=60_000)
    with running(store), Peer.connect(store) as peer:
        peer.report(20_000)
        wait_until(lambda: served(store) == 1, 60_000)
        key = f"haSlaveSilenceMs_{store.ha_service.connection_list[0].client_addr}"
        wait_until(lambda: int(told_by(store)[key]) > 200, 60_000, "no report arrives")
        peer.report(20_000)
        wait_until(lambda: int(told_by(store)[key]) < 200, 60_000, "a report has arrived")


def test_slave_is_not_in_transfer_after_an_unexpected_failure(monkeypatch):
    master, slave = filled(), FakeStore(brokerRole=BrokerRole.SLAVE)
    with running(master, slave):
        follow(slave, master)
        client = slave.ha_service.ha_client
        wait_until(lambda: client.state is HAConnectionState.TRANSFER, 60_000)
        monkeypatch.setattr(MasterConnection, "_process_read_event", lambda _connection: 1 // 0)
        master.put(1000)
        wait_until(lambda: client.state is HAConnectionState.READY, 60_000, "the state is not TRANSFER")
        assert "ZeroDivisionError" in client.last_error


def wait_for(store: FakeStore, state: HAConnectionState, address: str = "127.0.0.1",
             notify_when_shutdown: bool = False) -> HAConnectionStateNotificationRequest:
    request = HAConnectionStateNotificationRequest(state, address, notify_when_shutdown)
    store.ha_service.put_group_connection_state_request(request)
    return request


def test_request_waits_for_the_state_of_a_slave():
    store = filled()
    with running(store):
        request = wait_for(store, HAConnectionState.TRANSFER)
        with Peer.connect(store) as peer:
            wait_until(lambda: store.ha_service.connection_count.get() == 1, 60_000)
            assert not request.request_future.is_done
            peer.report(5000)
            assert request.request_future.get(120_000) is True


def test_state_of_another_address_does_not_complete_a_request():
    store = filled()
    with running(store), Peer.connect(store) as peer:
        store.ha_service.ha_connection_state_notification_service.establish_timeout_ms = 300
        peer.report(5000)
        wait_until(lambda: served(store) == 1, 60_000)
        assert wait_for(store, HAConnectionState.TRANSFER, "10.9.9.9").request_future.get(120_000) is False


def test_closed_connection_completes_requests_that_ask_for_shutdowns():
    store = filled()
    with running(store):
        with Peer.connect(store) as peer:
            peer.report(5000)
            wait_until(lambda: served(store) == 1, 60_000)
            request = wait_for(store, HAConnectionState.SUSPEND, notify_when_shutdown=True)
        assert request.request_future.get(120_000) is False


def test_new_request_replaces_the_old_one_and_shutdown_completes_it():
    store = filled()
    with running(store):
        first, second = wait_for(store, HAConnectionState.TRANSFER), wait_for(store, HAConnectionState.TRANSFER)
        assert first.request_future.get(0) is False and not second.request_future.is_done
    assert second.request_future.get(0) is False


def test_slave_waits_for_its_own_connection():
    slave = FakeStore(brokerRole=BrokerRole.SLAVE)
    with FakeMaster() as master, running(slave):
        request = wait_for(slave, HAConnectionState.TRANSFER)
        slave.ha_service.update_master_address(master.address)
        with master.accept() as peer:
            peer.read_report()
            peer.send_frame(0)
            assert request.request_future.get(120_000) is True


def test_slave_that_finds_no_master_gives_up():
    slave = FakeStore(brokerRole=BrokerRole.SLAVE)
    with running(slave):
        slave.ha_service.ha_connection_state_notification_service.establish_timeout_ms = 200
        assert wait_for(slave, HAConnectionState.TRANSFER).request_future.get(120_000) is False
