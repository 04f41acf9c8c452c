"""Bytes a second: counted, and held to a limit."""
import pytest

from rmqha.store.ha import flow_monitor
from rmqha.store.ha.flow_monitor import FlowMonitor
from rmqha.store.ha.peers import HAConnectionState
from tests.store.ha.support import BIG_SEGMENT, FakeStore, Peer, config, running
from tests.support.wait import wait_until

SECOND = 1_000_000_000


class Clock:
    """Stands in for `time` in flow_monitor."""

    def __init__(self) -> None:
        self.now = 5 * SECOND

    def monotonic_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(flow_monitor, "time", clock)
    return clock


def test_bytes_of_the_last_whole_second_are_the_rate(clock):
    monitor = FlowMonitor(config())
    monitor.add_byte_count_transferred(100)
    monitor.add_byte_count_transferred(200)
    assert monitor.transferred_byte_in_second == 0
    clock.now += SECOND
    assert monitor.transferred_byte_in_second == 300
    monitor.add_byte_count_transferred(7)
    clock.now += SECOND
    assert monitor.transferred_byte_in_second == 7
    clock.now += 2 * SECOND
    assert monitor.transferred_byte_in_second == 0


def test_without_flow_control_there_is_no_limit(clock):
    monitor = FlowMonitor(config())
    monitor.add_byte_count_transferred(1 << 40)
    assert monitor.can_transfer_max_byte_num() == 2**31 - 1


def test_limit_holds_within_each_second(clock):
    monitor = FlowMonitor(config(haFlowControlEnable=True, maxHaTransferByteInSecond=1000))
    assert monitor.can_transfer_max_byte_num() == 1000
    monitor.add_byte_count_transferred(400)
    assert monitor.can_transfer_max_byte_num() == 600
    monitor.add_byte_count_transferred(900)
    assert monitor.can_transfer_max_byte_num() == 0
    clock.now += SECOND // 4
    assert monitor.next_second_in_ms() == 750
    clock.now += SECOND
    assert monitor.can_transfer_max_byte_num() == 1000


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_of_nothing_lets_a_slave_get_on(clock, limit):
    assert FlowMonitor(config(haFlowControlEnable=True, maxHaTransferByteInSecond=limit)).can_transfer_max_byte_num()


def test_slave_gets_the_log_no_faster_than_the_limit(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(flow_monitor, "time", clock)
    store = FakeStore(mappedFileSizeCommitLog=BIG_SEGMENT, haFlowControlEnable=True, maxHaTransferByteInSecond=50_000,
                      haHousekeepingInterval=60_000)
    for seed in range(120):
        store.put(1000, seed)
    with running(store), Peer.connect(store) as peer:
        peer.report(1)
        received = b""
        for second in range(1, 3):
            while len(received) < second * 50_000:
                received += peer.read_data_frame()[1]
            (connection,) = store.ha_service.connection_list
            wait_until(lambda c=connection: c.state is HAConnectionState.SUSPEND, 60_000)
            assert len(received) == second * 50_000 == connection.transfer_from_where - 1
            assert connection.is_serving and store.ha_service.slave_count() == 1
            clock.now += SECOND
        while len(received) < 120_000 - 1:
            received += peer.read_data_frame()[1]
        assert received == store.log(1)


def test_suspended_slave_is_kept_alive_by_heartbeats():
    store = FakeStore(mappedFileSizeCommitLog=BIG_SEGMENT, haFlowControlEnable=True, maxHaTransferByteInSecond=1,
                      haHousekeepingInterval=60_000)
    store.put(1000)
    with running(store), Peer.connect(store) as peer:
        peer.report(1)
        frames = [peer.read_frame() for _ in range(4)]
        assert [body for _offset, body in frames if not body], "no heartbeat"
