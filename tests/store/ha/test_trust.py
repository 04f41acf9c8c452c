"""Who may connect, who counts, and what an acknowledgement means."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha import ha_client
from rmqha.store.ha.peers import AllowedPeers, HAConnectionState
from tests.store.ha.support import BIG_SEGMENT, FakeMaster, FakeStore, Peer, follow, record, running, served
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)


@pytest.fixture
def master():
    store = FakeStore()
    for seed in range(20):
        store.put(1000, seed)
    with running(store):
        yield store


# Who may connect.

@pytest.mark.parametrize("text, host, allowed", [
    (None, "203.0.113.9", True), ("", "::1", True), (" , ;", "10.0.0.1", True), ("10.1.2.3", "10.1.2.3", True),
    ("10.1.2.3", "10.1.2.4", False), ("10.0.0.0/8;192.168.1.7", "192.168.1.7", True),
    ("10.0.0.0/8, 192.168.1.7", "192.168.1.8", False), ("10.9.9.9/8", "10.1.1.1", True), ("fd00::/8", "fd00::1", True),
    ("fd00::/8", "10.0.0.1", False), ("127.0.0.1", "::ffff:127.0.0.1", True), ("10.0.0.0/8", "no address", False),
    ("fe80::/10", "fe80::1%eth0", True)])
def test_addresses_and_networks_are_allowed(text, host, allowed):
    assert AllowedPeers(text).allows(host) is allowed


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.0/33", "host", "10.0.0.1-10.0.0.9", "10.0.0.1,,x"])
def test_what_is_no_address_is_named(text):
    with pytest.raises(ValueError, match="haAllowedPeers: '.*' is no address"):
        AllowedPeers(text)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_list_or_an_error_that_names_the_key(text):
    try:
        AllowedPeers(text).allows("10.0.0.1")
    except ValueError as error:
        assert "haAllowedPeers" in str(error)


def test_bad_list_keeps_the_service_from_starting_and_takes_no_port():
    store = FakeStore(haAllowedPeers="nonsense")
    with pytest.raises(ValueError, match="haAllowedPeers"):
        store.ha_service.start()
    store.ha_service.shutdown()


def test_peer_that_is_not_allowed_is_closed_before_it_costs_anything(caplog):
    store = FakeStore(haAllowedPeers="10.0.0.0/8")
    with running(store):
        for _ in range(3):
            with Peer.connect(store) as peer:
                assert peer.is_closed()
        assert store.ha_service.connection_count.get() == 0
    assert caplog.text.count("none of haAllowedPeers") == 1


def test_peer_that_is_allowed_is_served():
    store = FakeStore(haAllowedPeers="10.0.0.0/8,127.0.0.0/8")
    store.put(500)
    with running(store), Peer.connect(store) as peer:
        peer.report(0)
        assert peer.read_data_frame()[0] == 0


# Who counts.

def test_report_of_what_was_never_sent_closes(master):
    """It is within the master's log, but beyond what this connection has carried."""
    with Peer.connect(master) as peer:
        peer.report(5000, 6000)
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_report_ahead_of_a_stream_that_is_held_up_closes():
    store = FakeStore(mappedFileSizeCommitLog=BIG_SEGMENT, haFlowControlEnable=True, maxHaTransferByteInSecond=1000)
    for seed in range(50):
        store.put(1000, seed)
    with running(store), Peer.connect(store) as peer:
        peer.report(1000)
        peer.read_data_frame()
        peer.report(50_000)
        assert peer.is_closed()
        assert store.ha_service.push2_slave_max_offset.get() == 1000


def test_two_connections_of_one_host_are_one_slave_and_the_newer_one_counts(master):
    with Peer.connect(master) as old, Peer.connect(master) as new:
        old.report(9000)
        wait_until(lambda: served(master) == 1)
        new.report(5000)
        wait_until(lambda: served(master) == 2)
        assert master.ha_service.counted_slaves.slave_acks() == {"127.0.0.1": 5000}
        assert master.ha_service.ack_rule.in_sync_replicas_nums(20_000) == 2
        assert master.ha_service.ack_rule.acked_offset(2) == 5000 and master.ha_service.ack_rule.acked_offset(3) == -1


# What an acknowledgement means.

def test_slave_reports_only_what_it_has_flushed():
    slave, body = FakeStore(haSlaveAckAfterFlush=True), record(800)
    slave.segments[0] = bytearray(record(300))
    with FakeMaster() as master, running(slave):
        slave.ha_service.update_master_address(master.address)
        with master.accept() as peer:
            assert peer.read_report() == 300 == slave.flushed
            peer.send_frame(300, body)
            assert peer.next_report() == 1100 <= slave.flushed
            slave.flush_fails = True
            peer.send_frame(1100, body)
            assert peer.is_closed()
            wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.APPEND_FAILED)
        assert slave.flushed == 1100
        with master.accept() as peer:
            assert peer.is_closed()  # it does not even ask


def test_without_the_key_nothing_is_flushed_for_a_report():
    master, slave = FakeStore(), FakeStore()
    with running(master, slave):
        follow(slave, master)
        master.put(500)
        wait_until(lambda: master.ha_service.push2_slave_max_offset.get() == 500, 60_000)
        assert slave.flushed == 0


def test_slave_that_reads_nothing_does_not_block_the_others():
    store, other = FakeStore(mappedFileSizeCommitLog=8 << 20), FakeStore(mappedFileSizeCommitLog=8 << 20)
    with running(store, other), Peer.connect(store) as stuck:
        stuck.report(0)
        wait_until(lambda: served(store) == 1)
        follow(other, store)
        for seed in range(60):
            store.put(100_000, seed)
        wait_until(lambda: store.ha_service.push2_slave_max_offset.get() == 6_000_000, 60_000)
        assert other.log() == store.log()
