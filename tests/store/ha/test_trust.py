"""Trust between peers: allowed addresses, the acknowledgements that count, and masters without a log comparison."""
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha import ha_client, master_connection, peers
from rmqha.store.ha.log_comparison import ends_as_master, first_other_record
from rmqha.store.ha.peers import AllowedPeers, HAConnectionState, MasterKind
from tests.store.ha.support import BIG_SEGMENT, FakeMaster, FakeStore, Peer, follow, record, running, served
from tests.store.ha.test_log_comparison import COMMON, first_other, store_of
from tests.support.wait import wait_until

# Peers that may connect, slaves that count, and the meaning of an acknowledgement.


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


# Peers that may connect.

@pytest.mark.parametrize("text, host, allowed", [
    (None, "203.0.113.9", True), ("", "::1", True), (" , ;", "10.0.0.1", True), ("10.1.2.3", "10.1.2.3", True),
    ("10.1.2.3", "10.1.2.4", False), ("10.0.0.0/8;192.168.1.7", "192.168.1.7", True),
    ("10.0.0.0/8, 192.168.1.7", "192.168.1.8", False), ("10.9.9.9/8", "10.1.1.1", True), ("fd00::/8", "fd00::1", True),
    ("fd00::/8", "10.0.0.1", False), ("127.0.0.1", "::ffff:127.0.0.1", True), ("10.0.0.0/8", "no address", False),
    ("fe80::/10", "fe80::1%eth0", True)])
def test_addresses_and_networks_are_allowed(text, host, allowed):
    assert AllowedPeers(text).allows(host) is allowed


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.0/33", "host", "10.0.0.1-10.0.0.9", "10.0.0.1,,x"])
def test_invalid_address_is_named_in_the_error(text):
    with pytest.raises(ValueError, match="haAllowedPeers: '.*' is not a valid address"):
        AllowedPeers(text)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_list_or_an_error_that_names_the_key(text):
    try:
        AllowedPeers(text).allows("10.0.0.1")
    except ValueError as error:
        assert "haAllowedPeers" in str(error)


def test_invalid_list_prevents_the_start_and_binds_no_port():
    store = FakeStore(haAllowedPeers="nonsense")
    with pytest.raises(ValueError, match="haAllowedPeers"):
        store.ha_service.start()
    store.ha_service.shutdown()


def test_disallowed_peer_is_closed_at_once(caplog):
    store = FakeStore(haAllowedPeers="10.0.0.0/8")
    with running(store):
        for _ in range(3):
            with Peer.connect(store) as peer:
                assert peer.is_closed()
        assert store.ha_service.connection_count.get() == 0
    assert caplog.text.count("is not in haAllowedPeers") == 1


def test_allowed_peer_is_served():
    store = FakeStore(haAllowedPeers="10.0.0.0/8,127.0.0.0/8")
    store.put(500)
    with running(store), Peer.connect(store) as peer:
        peer.report(0)
        assert peer.read_data_frame()[0] == 0


# Slaves that count.

def test_report_of_unsent_bytes_closes(master):
    """The offset is within the master's log, but beyond the bytes sent on this connection."""
    with Peer.connect(master) as peer:
        peer.report(5000, 6000)
        assert peer.is_closed()
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_report_ahead_of_a_throttled_stream_closes():
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


# The meaning of an acknowledgement.

def test_slave_reports_only_flushed_bytes():
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


# The comparison with a master that does not support it, by the records that its main port returns.


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)


def shown_by(master: FakeStore):
    """Make a main port like RocketMQ's: it returns as many bytes as the int at the offset says."""
    def show(offset: int) -> bytes | None:
        data = master.log(offset)
        if offset < max(0, master.get_min_phy_offset()):
            return None
        size = struct.unpack_from(">i", data)[0] if len(data) >= 4 else 0
        return data[:size] if 0 < size <= len(data) else b""
    return show


LOST = [(1000, 200)] * 5
WRITTEN = {"equal sizes": [(1000, 201)] * 9, "other sizes": [(731, 201)] * 9, "nothing new": [], "one": [(1000, 201)]}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=list(WRITTEN))
def test_diverged_end_is_found_with_its_offset(written):
    slave, master = store_of([*COMMON, *LOST]), store_of([*COMMON, *written])
    end = slave.get_max_phy_offset()
    assert ends_as_master(slave, end, shown_by(master)) is False
    assert first_other_record(slave, end, shown_by(master)) == first_other(slave, master)


def test_prefix_of_the_masters_log_matches():
    master = store_of([*COMMON, *LOST])
    slave = store_of(COMMON)
    assert ends_as_master(slave, slave.get_max_phy_offset(), shown_by(master)) is True
    slave.segments[65536] = bytearray(master.segments[65536][:-300])  # and a part of a record
    assert ends_as_master(slave, slave.get_max_phy_offset(), shown_by(master)) is True


def test_end_after_a_files_blank_is_compared_by_the_record_before_it():
    master = store_of(COMMON)
    slave = FakeStore()
    slave.segments = {0: bytearray(master.segments[0])}
    assert ends_as_master(slave, 65536, shown_by(master)) is True
    slave.segments[0][64010] ^= 1
    assert ends_as_master(slave, 65536, shown_by(master)) is False


def test_deleted_or_unavailable_records_leave_the_comparison_open():
    master, slave = store_of([*COMMON, *COMMON]), store_of(COMMON[:5])
    del master.segments[0]
    assert ends_as_master(slave, 5000, shown_by(master)) is None
    assert ends_as_master(slave, 5000, lambda _offset: None) is None
    assert ends_as_master(FakeStore(), 0, shown_by(master)) is None


def test_other_log_has_no_record_in_common():
    slave, master = store_of([(1000, number + 9) for number in range(90)]), store_of(COMMON)
    assert first_other_record(slave, slave.get_max_phy_offset(), shown_by(master)) == -1


def asking(slave: FakeStore, master: FakeStore, kind: MasterKind | None) -> list[str]:
    """Let the slave ask a main port of that kind; return the list of addresses that it asks."""
    asked: list[str] = []
    client, show = slave.ha_service.ha_client, shown_by(master)
    client.ask_main_port = lambda address: asked.append(address) or kind
    client.ask_record = lambda _address, offset: show(offset)
    return asked


def test_diverged_slave_does_not_follow_a_master_of_rocketmq():
    master, slave = store_of([*COMMON, *[(1000, 201)] * 9]), store_of([*COMMON, *LOST])
    before = slave.log()
    asking(slave, master, MasterKind.OTHER)
    with running(master, slave):
        follow(slave, master)
        client = slave.ha_service.ha_client
        wait_until(lambda: client.state is HAConnectionState.DIVERGED, 60_000)
        assert slave.ha_service.divergence.found.offset == first_other(slave, master)
        assert slave.log() == before and not served(master)


def test_master_of_rocketmq_gets_only_its_own_protocol():
    master, slave = store_of([*COMMON, *LOST]), store_of(COMMON)
    end = slave.get_max_phy_offset()
    asked = asking(slave, master, MasterKind.OTHER)
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        with fake.accept() as peer:
            assert peer.read_report() == end
            peer.send_frame(end, master.log(end))
            assert peer.next_report() == master.get_max_phy_offset()
    assert asked[0] == fake.address


def test_slave_waits_for_an_unknown_master_and_then_follows_it_by_the_old_protocol(monkeypatch, caplog):
    monkeypatch.setattr(master_connection, "_SOON_MS", 20)
    monkeypatch.setattr(peers, "_MAIN_PORT_WAIT_MS", 300)
    master, slave = store_of([*COMMON, *LOST]), store_of(COMMON)
    asked = asking(slave, master, None)
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        for _ in range(1000):
            with fake.accept() as peer:
                try:
                    assert peer.read_report() == slave.get_max_phy_offset()
                except EOFError:
                    # The slave was still waiting for the main port.
                    continue
                break
    assert len(asked) > 1 and "following it like a RocketMQ 4.9 master" in caplog.text


def test_empty_slave_does_not_wait_for_the_main_port():
    master, slave = store_of(COMMON), FakeStore()
    asked = asking(slave, master, None)
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        with fake.accept() as peer:
            assert peer.read_report() == 0
    assert len(asked) == 1


def test_master_known_to_be_rmqha_is_never_followed_unchecked(monkeypatch):
    monkeypatch.setattr(master_connection, "_SOON_MS", 20)
    monkeypatch.setattr(peers, "_MAIN_PORT_WAIT_MS", 0)
    slave = store_of(COMMON)
    kinds = [MasterKind.OURS]
    client = slave.ha_service.ha_client
    client.ask_main_port = lambda _address: kinds.pop() if kinds else None
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        with fake.accept() as peer:
            # The request for a greeting; the master is gone before it answers.
            assert peer.read_report() == -1
        for _ in range(10):
            with fake.accept() as peer, pytest.raises(EOFError):
                peer.read_report()
        assert "can't be compared yet" in client.last_error


def test_rmqha_master_that_does_not_answer_the_greeting_is_not_followed(monkeypatch):
    monkeypatch.setattr(master_connection, "_VERDICT_WAIT_MS", 50)
    slave = store_of(COMMON)
    asking(slave, slave, MasterKind.OURS)
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        for _ in range(2):
            with fake.accept() as peer:
                assert peer.read_report() == -1
                assert peer.is_closed()
