"""The slave's side of replication, with a master that the test drives byte by byte."""
import gc
import logging
import time
import weakref

import pytest

from rmqha.store.ha import ha_client
from rmqha.store.ha.ha_client import parse_address
from rmqha.store.ha.peers import HAConnectionState
from tests.store.ha.support import SEGMENT, FakeMaster, FakeStore, open_descriptors, record, running
from tests.support.wait import lasting, own_threads, wait_until


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)


@pytest.fixture
def slave():
    store = FakeStore()
    with running(store):
        yield store


@pytest.fixture
def master():
    with FakeMaster() as master:
        yield master


@pytest.fixture
def peer(slave, master):
    """The master's end of the slave's first connection."""
    slave.ha_service.update_master_address(master.address)
    with master.accept() as peer:
        yield peer


def test_slave_reports_at_once_after_connecting(slave, master):
    # The first report must not depend on this interval.
    slave.message_store_config.haSendHeartbeatInterval = 600_000
    slave.ha_service.update_master_address(master.address)
    with master.accept() as peer:
        assert peer.read_report() == 0


def test_frame_is_appended_and_reported(peer, slave):
    peer.read_report()
    peer.send_frame(0, record(500))
    assert peer.next_report() == 500
    assert slave.log() == record(500)


def test_frames_of_one_read_are_one_append_and_one_report(peer, slave):
    peer.read_report()
    log = b"".join(record(100, seed) for seed in range(50))
    peer.send(b"".join(bytes(frame) for at in range(0, len(log), 100)
                       for frame in (at.to_bytes(8, "big") + (100).to_bytes(4, "big"), log[at:at + 100])))
    while peer.read_report() < len(log):
        continue
    assert slave.log() == log
    assert slave.appends < 10


def test_frames_of_whole_and_partial_records_make_one_log(peer, slave):
    peer.read_report()
    log = b"".join(record(100, seed) for seed in range(12))
    # Some cuts are at records' ends, some within.
    cuts = [0, 100, 200, 230, 300, 400, 600, 700, 707, 800, 900, 1100, 1200]
    for begin, end in zip(cuts, cuts[1:], strict=False):
        peer.send_frame(begin, log[begin:end])
        while peer.read_report() < end:
            continue
    assert slave.log() == log and slave.ha_service.ha_client.state is HAConnectionState.TRANSFER


def test_frames_split_into_single_bytes_are_appended(peer, slave):
    peer.read_report()
    stream = b"\0" * 8 + (100).to_bytes(4, "big") + record(100)
    peer.sock.setsockopt(6, 1, 1)  # TCP_NODELAY
    for at in range(len(stream)):
        peer.send(stream[at:at + 1])
    assert peer.read_report() in (0, 100)
    wait_until(lambda: slave.log() == record(100))


def test_idle_slave_repeats_its_report(peer, slave):
    peer.read_report()
    peer.send_frame(0, record(100))
    assert peer.next_report() == 100
    peer.send_frame(100)
    assert [peer.read_report() for _ in range(3)] == [100, 100, 100]


def test_slave_stays_connected_while_the_master_sends_heartbeats(peer, slave):
    """4.9 dropped idle links, because it checked the time of its own writes."""
    slave.message_store_config.haHousekeepingInterval = 3000
    peer.read_report()
    began = time.monotonic()
    while time.monotonic() - began < 5:
        peer.send_frame(0)
        assert peer.read_report() == 0


def test_silent_master_is_disconnected(peer, master, slave):
    """4.9 does not notice a silent master."""
    slave.message_store_config.haHousekeepingInterval = 1000
    peer.read_report()
    assert peer.is_closed()
    with master.accept() as again:
        assert again.read_report() == 0


def test_slave_reconnects_after_the_master_closes(peer, master, slave):
    peer.read_report()
    peer.send_frame(0, record(500))
    assert peer.next_report() == 500
    peer.close()
    with master.accept() as again:
        assert again.read_report() == 500
        again.send_frame(500, record(300, 1))
        assert again.next_report() == 800
    assert slave.log() == record(500) + record(300, 1)


def test_only_the_timestamps_outlive_a_connection(peer, master, slave, caplog):
    # A captured log record would hold the error, and with it the frames.
    caplog.set_level(logging.WARNING, "RocketmqStore")
    client = slave.ha_service.ha_client
    peer.read_report()
    peer.send_frame(0, record(500))
    assert peer.next_report() == 500
    peer.send(b"\0" * 11)  # the beginning of a frame
    old, heard, reported = weakref.ref(client._connection), client.last_read_timestamp, client.last_write_timestamp
    assert client.local_address == "{}:{}".format(*peer.sock.getpeername()) and client.silence_ms() >= 0
    # Do not accept the next connection before all checks are done.
    master.server.settimeout(0)
    slave.ha_service.update_master_address(None)
    peer.close()
    wait_until(lambda: client._connection is None, 60_000)
    # The thread drops its reference when it leaves the connection.
    wait_until(lambda: gc.collect() >= 0 and old() is None, what="the connection is gone")
    assert (client.local_address, client.silence_ms(), client.retransmits()) == ("", -1, 0)
    assert client.last_read_timestamp >= heard - 100 and client.last_write_timestamp >= reported - 100
    master.server.settimeout(60)
    slave.ha_service.update_master_address(master.address)
    with master.accept() as again:
        assert again.read_report() == 500
        again.send_frame(500, record(300, 1))
        assert again.next_report() == 800


def test_slave_recovers_from_a_reset_within_a_frame(peer, master, slave):
    peer.read_report()
    log = record(500) + record(600, 1)
    peer.send_frame(0, log[:300])
    assert peer.next_report() == 300
    peer.send(b"\0" * 6)
    peer.close()
    with master.accept() as again:
        assert again.read_report() == 300
        again.send_frame(300, log[300:])
        assert again.next_report() == 1100
    assert slave.log() == log


@pytest.mark.parametrize("size", [4 * 1024 * 1024, 2**31 - 1, -1, -13])
def test_impossible_frame_size_closes_and_does_not_spin(peer, slave, size):
    peer.read_report()
    began = time.thread_time()
    peer.send_frame(0, b"", size)
    assert peer.is_closed()
    wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.APPEND_FAILED)
    assert slave.log() == b"" and time.thread_time() - began < 1
    assert str(size) in slave.ha_service.ha_client.last_error


def test_refused_slave_retries_at_intervals(slave, master, monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 300)
    slave.put(5000)
    rounds = 4
    with lasting(0.3 * (rounds - 1)):
        slave.ha_service.update_master_address(master.address)
        for _round in range(rounds):
            with master.accept() as peer:
                assert peer.read_report() == 5000
                peer.send_frame(77_777)
                assert peer.is_closed()


def test_offset_mismatch_is_one_error_with_both_offsets_and_a_state(slave, master, caplog):
    slave.put(5000)
    with caplog.at_level(logging.ERROR, "RocketmqStore"):
        slave.ha_service.update_master_address(master.address)
        for _round in range(3):
            with master.accept() as peer:
                peer.read_report()
                peer.send_frame(3000, record(100))
                assert peer.is_closed()
    errors = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "master pushed offset not equal the max phy offset in slave, SLAVE: 5000 MASTER: 3000" in errors[0]
    assert slave.ha_service.ha_client.state is HAConnectionState.OFFSET_REFUSED
    assert len(slave.log()) == 5000


def test_heartbeat_of_another_offset_closes(slave, master):
    slave.put(5000)
    slave.ha_service.update_master_address(master.address)
    with master.accept() as peer:
        peer.read_report()
        peer.send_frame(SEGMENT)
        assert peer.is_closed()


def test_refused_slave_recovers_when_the_master_serves_it(slave, master):
    slave.put(5000)
    slave.ha_service.update_master_address(master.address)
    with master.accept() as peer:
        peer.send_frame(SEGMENT)
        assert peer.is_closed()
    wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.OFFSET_REFUSED)
    with master.accept() as peer:
        peer.send_frame(5000)
        wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.TRANSFER)
        assert slave.ha_service.ha_client.last_error == ""


def test_empty_slave_accepts_any_file_of_the_master(peer, slave):
    peer.read_report()
    peer.send_frame(7 * SEGMENT, record(100))
    assert peer.next_report() == 7 * SEGMENT + 100


@pytest.mark.parametrize("offset", [100, -SEGMENT, SEGMENT + 1])
def test_empty_slave_refuses_to_begin_within_a_file(peer, slave, offset):
    peer.read_report()
    peer.send_frame(offset, record(100))
    assert peer.is_closed()
    assert slave.log() == b""
    wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.OFFSET_REFUSED)


def test_heartbeat_creates_no_file_on_an_empty_slave(peer, slave):
    peer.read_report()
    peer.send_frame(SEGMENT)
    wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.TRANSFER)
    assert slave.segments == {}


def test_failed_append_is_never_acknowledged(peer, slave, master):
    peer.read_report()
    slave.append_fails = True
    peer.send_frame(0, record(500))
    data = b""
    while more := peer.sock.recv(100):
        data += more
    assert set(data) <= {0}, "an offset above 0 was reported"
    assert slave.ha_service.ha_client.state is HAConnectionState.APPEND_FAILED
    slave.append_fails = False
    with master.accept() as again:
        assert again.read_report() == 0
        again.send_frame(0, record(500))
        assert again.next_report() == 500
        assert slave.ha_service.ha_client.state is HAConnectionState.TRANSFER


def test_bytes_that_are_not_messages_are_not_appended(peer, slave, master):
    peer.read_report()
    peer.send_frame(0, record(500))
    assert peer.next_report() == 500
    peer.send_frame(500, b"no message at all")
    assert peer.is_closed()
    with master.accept() as again:
        assert again.read_report() == 500
        again.send_frame(500, record(300)[:250])
        assert again.next_report() == 750
        again.send_frame(750, b"x" * 50 + b"neither is this")
        assert again.is_closed()
    assert slave.log() == record(500) + record(300)[:250]
    wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.APPEND_FAILED)


def test_locally_appended_records_are_followed(peer, slave, master):
    """The store was a master for a while, and is a slave again."""
    peer.read_report()
    peer.send_frame(0, record(500))
    assert peer.next_report() == 500
    peer.close()
    slave.put(300, 1)
    with master.accept() as again:
        if again.read_report() == 500:
            # The slave reconnected before the put.
            return
        again.send_frame(800, record(200, 2))
        assert again.next_report() == 1000


def test_new_master_address_is_used_at_the_next_connect(peer, slave, master):
    peer.read_report()
    with FakeMaster() as other:
        slave.ha_service.update_master_address(other.address)
        peer.send_frame(0)
        # The open connection stays.
        assert peer.read_report() == 0
        peer.close()
        with other.accept() as new:
            assert new.read_report() == 0


@pytest.mark.parametrize("address", ["", "localhost", ":10912", "host:", "host:0", "host:65536", "host:1x", "a:-1"])
def test_invalid_address_is_refused_and_logged(slave, caplog, address):
    with caplog.at_level(logging.ERROR, "RocketmqStore"):
        slave.ha_service.update_master_address(address)
    assert slave.ha_service.ha_client.master_address is None
    assert "host:port" in caplog.text


def test_addresses_are_parsed():
    assert parse_address("127.0.0.1:10912") == ("127.0.0.1", 10912)
    assert parse_address(" master.example:1 ") == ("master.example", 1)
    assert parse_address("[::1]:10912") == ("::1", 10912)


def test_shutdown_interrupts_every_wait(master):
    threads, descriptors = len(own_threads()), open_descriptors()
    for address in (None, master.address, "192.0.2.1:10912", "127.0.0.1:1"):
        store = FakeStore()
        with running(store):
            store.ha_service.update_master_address(address)
            peer = master.accept() if address == master.address else None
        if peer is not None:
            peer.close()
    wait_until(lambda: len(own_threads()) <= threads)
    wait_until(lambda: open_descriptors() <= descriptors)


def test_master_that_accepts_and_closes_leaks_nothing(slave, master, monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 1)
    slave.ha_service.update_master_address(master.address)
    master.accept().close()
    descriptors = open_descriptors()
    for _round in range(100):
        master.accept().close()
    wait_until(lambda: open_descriptors() <= descriptors + 2)


def test_slave_waits_for_a_store_that_is_not_up_yet(slave, master):
    slave.is_shutdown = True
    master.server.settimeout(0.2)
    slave.ha_service.update_master_address(master.address)
    with pytest.raises(TimeoutError):
        master.accept()
    slave.is_shutdown = False
    master.server.settimeout(60)
    with master.accept() as peer:
        assert peer.read_report() == 0
