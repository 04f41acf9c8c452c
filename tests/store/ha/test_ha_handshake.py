"""The greeting of two rmqha peers, and an empty slave that copies the log from its first file on."""
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha import ha_client, ha_handshake, master_connection
from rmqha.store.ha.ha_handshake import HandshakeError, Range, Verdict, Who
from rmqha.store.ha.peers import HAConnectionState
from tests.store.ha.support import SEGMENT, FakeMaster, FakeStore, Peer, follow, record, running, served
from tests.support.wait import wait_until

# The greeting of two rmqha peers: its bytes, and the decisions of both.

LONG = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)
    monkeypatch.setattr(master_connection, "_HELLO_WAIT_MS", 60_000)


def greeting_store(records: int = 0, seed: int = 0, **keys) -> FakeStore:
    store = FakeStore(haHandshakeEnable=True, **keys)
    for number in range(records):
        store.put(1000, seed + number)
    return store


@settings(deadline=None)
@given(LONG, LONG)
def test_hello_is_read_from_any_piece(low, high):
    data = ha_handshake.encode_hello(Range(low, high))
    assert all(ha_handshake.decode_hello(data[:size]) is None for size in range(len(data)))
    assert ha_handshake.decode_hello(data + b"more") == (Range(low, high), len(data))


@settings(deadline=None)
@given(st.sampled_from(Verdict), LONG, LONG)
def test_verdict_is_read_from_any_piece(verdict, low, high):
    data = ha_handshake.encode_verdict(verdict, Range(low, high))
    assert all(ha_handshake.decode_verdict(data[:size]) is None for size in range(len(data)))
    assert ha_handshake.decode_verdict(data) == (verdict, Range(low, high), len(data))


@settings(deadline=None)
@given(st.text(max_size=50), st.integers(0, 1 << 62), st.integers(0, ha_handshake.MAX_TAIL),
       st.integers(0, 0xFFFF_FFFF))
def test_introduction_is_read_from_any_piece(identity, end, tail_size, crc):
    who = Who(identity.encode("utf-8", "replace").decode(), max(end, tail_size), tail_size, crc)
    data = ha_handshake.encode_who(who)
    assert all(ha_handshake.decode_who(data[:size]) is None for size in range(len(data)))
    assert ha_handshake.decode_who(data + b"\0" * 8) == (who, len(data))


@settings(deadline=None)
@given(st.binary(max_size=100), st.sampled_from([ha_handshake.decode_hello, ha_handshake.decode_verdict,
                                                 ha_handshake.decode_who]), st.booleans())
def test_any_bytes_are_a_greeting_or_an_error(data, decode, with_magic):
    try:
        decode(ha_handshake.MAGIC + data if with_magic else data)
    except HandshakeError as error:
        assert str(error)


def test_the_request_for_a_greeting_is_a_meaningless_report():
    assert ha_handshake.ASK == struct.pack(">q", -1)


@pytest.mark.parametrize("end, begin, place", [
    (0, 0, (0, 0)), (100, 0, (0, 100)), (SEGMENT, 0, (0, SEGMENT)), (SEGMENT + 9, 0, (SEGMENT, 9)),
    (3 * SEGMENT, 3 * SEGMENT, (3 * SEGMENT, 0))])
def test_tail_lies_in_one_file(end, begin, place):
    assert ha_handshake.tail_place(end, begin, SEGMENT) == place


def test_slave_whose_log_is_a_prefix_of_the_masters_resumes():
    master, slave = greeting_store(20), greeting_store()
    slave.segments[0] = bytearray(master.segments[0][:7000])
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        (connection,) = master.ha_service.connection_list
        assert connection.slave_identity == "DefaultCluster/" + slave.broker_config.brokerName + "/0"
        assert slave.log() == master.log()


def test_empty_slave_follows_an_empty_master():
    master, slave = greeting_store(), greeting_store()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: served(master) == 1, 60_000)
        master.put(500)
        wait_until(lambda: slave.log() == master.log(), 60_000)


def test_diverged_slave_is_refused_with_the_offsets_on_both_sides(caplog):
    master, slave = greeting_store(20), greeting_store(10, seed=100)
    before = slave.log()
    with running(master, slave):
        follow(slave, master)
        client = slave.ha_service.ha_client
        wait_until(lambda: client.state is HAConnectionState.DIVERGED and client.last_error, 60_000)
        (refused,) = master.ha_service.refused_slaves()
        assert refused.slave_offset == 10_000
        assert re.search(r"SLAVE: 10000 MASTER: 0 to 20000\. The master holds other bytes", client.last_error)
        wait_until(lambda: "SLAVE: 10000 MASTER: 0 to 20000. The master holds other bytes" in caplog.text)
        assert master.ha_service.push2_slave_max_offset.get() == 0
        assert slave.log() == before


@pytest.mark.parametrize("slave_end, gone", [(30, False), (2, True)])
def test_slave_outside_of_the_masters_log_is_refused(slave_end, gone):
    master, slave = greeting_store(20 if not gone else 100), greeting_store(slave_end)
    if gone:
        del master.segments[0]
    with running(master, slave):
        follow(slave, master)
        client = slave.ha_service.ha_client
        wait_until(lambda: client.state is HAConnectionState.OFFSET_REFUSED and client.last_error, 60_000)
        assert f"SLAVE: {slave_end}000 MASTER:" in client.last_error and "does not hold" in client.last_error
        assert master.ha_service.push2_slave_max_offset.get() == 0


def test_slave_that_does_not_ask_is_served_without_a_greeting():
    master, slave = greeting_store(20), FakeStore()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.log() == master.log(), 60_000)


def test_master_that_refuses_the_greeting_is_followed_without_it(caplog):
    master, slave = FakeStore(haHandshakeEnable="false"), greeting_store()
    master.put(500)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.log() == master.log(), 60_000)
    wait_until(lambda: "following it without" in caplog.text)


def test_master_of_rocketmq_gets_a_report_of_minus_one_and_then_normal_reports(monkeypatch):
    monkeypatch.setattr(master_connection, "_HELLO_WAIT_MS", 50)
    slave, body = greeting_store(), record(500)
    with FakeMaster() as master, running(slave):
        slave.ha_service.update_master_address(master.address)
        with master.accept() as peer:
            assert [peer.read_report(), peer.read_report()] == [-1, 0]
            peer.send_frame(0, body)
            assert peer.next_report() == 500


def test_peer_that_asks_and_reports_at_once_is_served():
    """The slave did not wait for the hello."""
    master = greeting_store(20)
    with running(master), Peer.connect(master) as peer:
        peer.report(-1, 0)
        hello = peer.read(34)
        assert ha_handshake.decode_hello(hello)[0] == Range(0, 20_000)
        assert peer.read_data_frame()[0] == 0


@pytest.mark.parametrize("data", [b"RMQ!" + b"x" * 40, b"RMQH\0\2" + b"x" * 40, b"RMQH\0\1" + b"\xff" * 40])
def test_invalid_introduction_closes_and_acknowledges_nothing(data):
    master = greeting_store(20)
    with running(master), Peer.connect(master) as peer:
        peer.send(ha_handshake.ASK + data)
        assert peer.is_closed()
        assert master.ha_service.push2_slave_max_offset.get() == 0
        assert not served(master)


def test_peer_that_asks_and_stays_silent_is_closed_and_never_a_slave():
    master = greeting_store(20)
    master.message_store_config.haHousekeepingInterval = 1000
    with running(master), Peer.connect(master) as peer:
        peer.report(-1)
        peer.read(34)
        assert not master.ha_service.slave_count()
        assert peer.is_closed()


def test_report_after_a_wrong_introduction_does_not_count():
    master = greeting_store(20)
    with running(master), Peer.connect(master) as peer:
        peer.send(ha_handshake.ASK + ha_handshake.encode_who(Who("liar", 15_000, 100, 1)) + struct.pack(">q", 15_000))
        assert peer.is_closed()
        assert master.ha_service.push2_slave_max_offset.get() == 0


def test_reconnected_slave_replaces_its_older_connection():
    master, end = greeting_store(20), 20_000

    def introduced(name: str) -> Peer:
        peer = Peer.connect(master)
        peer.send(ha_handshake.ASK + ha_handshake.encode_who(Who(name, 0, 0, 0)) + struct.pack(">q", end))
        return peer
    with running(master), introduced("a") as old, introduced("b"):
        wait_until(lambda: master.ha_service.slave_count() == 2, 60_000)
        with introduced("a"):
            assert old.is_closed()
            wait_until(lambda: set(master.ha_service.counted_slaves.slave_acks()) == {"a", "b"}, 60_000)


def test_ended_connection_does_not_close_a_newer_one_and_reports_no_loss(caplog):
    """The ended connection's thread may get there late, when the slave has already reconnected."""
    master = greeting_store(20)
    end = master.get_max_phy_offset()

    def introduced(offset: int) -> Peer:
        peer = Peer.connect(master)
        peer.send(ha_handshake.ASK + ha_handshake.encode_who(Who("a", 0, 0, 0)) + struct.pack(">q", offset))
        wait_until(lambda: set(master.ha_service.counted_slaves.slave_acks()) == {"a"}, 60_000)
        return peer
    with running(master):
        with introduced(0):
            (ended,) = master.ha_service.connection_list
        wait_until(lambda: not master.ha_service.connection_list, 60_000)
        with introduced(end):
            present = master.ha_service.connection_list
            master.ha_service.connection_serves(ended)
            assert master.ha_service.connection_list == present and not present[0].closing
    assert "was lost" not in caplog.text


def test_bytes_after_the_greeting_are_reports_however_they_are_split():
    master = greeting_store(20)
    stream = ha_handshake.ASK + ha_handshake.encode_who(Who("name", 0, 0, 0)) + struct.pack(">q", 5000)
    with running(master):
        for cut in range(1, len(stream), 7):
            with Peer.connect(master) as peer:
                peer.send(stream[:cut])
                peer.send(stream[cut:])
                peer.read(34 + 30)
                assert peer.read_data_frame()[0] == 5000


def test_two_brokers_with_the_same_identity_are_reported_with_a_remedy(caplog):
    master = greeting_store(20)

    def introduced() -> Peer:
        peer = Peer.connect(master)
        peer.send(ha_handshake.ASK + ha_handshake.encode_who(Who("c/name/1", 0, 0, 0)) + struct.pack(">q", 20_000))
        return peer
    with running(master), introduced() as first:
        for _ in range(3):
            second = introduced()
            assert first.is_closed()
            first = second
        first.close()
    told = [record.getMessage() for record in caplog.records if "has reconnected" in record.getMessage()]
    assert len(told) == 1 and told[0].startswith("slave c/name/1 has reconnected")
    assert "the same brokerClusterName, brokerName and brokerId: give one of them another brokerId" in told[0]


# haSyncFromFirstFile: an empty slave copies the master's log from its first file on.


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)
    monkeypatch.setattr(master_connection, "_HELLO_WAIT_MS", 60_000)


def filled(files: int, **keys) -> FakeStore:
    store, seed = FakeStore(**keys), 0
    while len(store.segments) < files:
        store.put(3000, seed)
        seed += 1
    return store


@pytest.mark.parametrize("deleted", [0, 1, 3, 4])
@pytest.mark.parametrize("slave_keys, master_keys", [
    ({"haSyncFromFirstFile": True}, {}), ({"haSyncFromFirstFile": True}, {"haSyncFromFirstFile": True}),
    ({}, {"haSyncFromFirstFile": True}), ({"haSyncFromFirstFile": True, "haHandshakeEnable": True},
                                          {"haHandshakeEnable": True})])
def test_new_slave_holds_the_log_from_the_masters_first_file(deleted, slave_keys, master_keys):
    master, slave = filled(5, **master_keys), FakeStore(**slave_keys)
    for file in range(deleted):
        del master.segments[file * SEGMENT]
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        master.put(500)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        assert slave.segments == master.segments


def test_without_the_key_a_new_slave_begins_at_the_last_file():
    master, slave = filled(3), FakeStore()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        assert list(slave.segments) == [2 * SEGMENT]


def test_slave_that_is_not_empty_resumes_at_its_end():
    master, slave = filled(3), FakeStore(haSyncFromFirstFile=True)
    slave.segments[SEGMENT] = bytearray(master.segments[SEGMENT][:9000])
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        assert list(slave.segments) == [SEGMENT, 2 * SEGMENT]


def test_slave_waits_for_an_empty_master():
    master, slave = FakeStore(), FakeStore(haSyncFromFirstFile=True)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.TRANSFER, 60_000)
        for seed in range(50):
            master.put(3000, seed)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        assert slave.segments == master.segments


def test_master_that_sends_only_heartbeats_is_asked_for_later_files():
    """4.9 does this when its first files are deleted: it sends only heartbeats, at the requested offset."""
    slave, first = FakeStore(haSyncFromFirstFile=True), 2 * SEGMENT
    log = record(1000, 1) + record(2000, 2)
    with FakeMaster() as master, running(slave):
        slave.ha_service.update_master_address(master.address)
        asked = []
        while True:
            with master.accept() as peer:
                report = peer.read_report()
                asked.append(report)
                if asked[-2:] == [SEGMENT + 1, first + 1]:
                    # A heartbeat was due just then.
                    peer.send_frame(report)
                    peer.send_frame(report, log[1:])
                    assert peer.next_report() == first + len(log)
                    break
                if report == 0:
                    peer.send_frame(4 * SEGMENT, b"\0\0")
                elif report > first:
                    # The slave searches the files from the middle.
                    peer.send_frame(report, b"\0\0")
                else:
                    peer.send_frame(report)
                peer.is_closed()
        assert asked == [0, 1, 2 * SEGMENT + 1, SEGMENT + 1, 2 * SEGMENT + 1]
        assert slave.segments == {first: log}


def test_invalid_first_record_is_refused():
    slave = FakeStore(haSyncFromFirstFile=True)
    with FakeMaster() as master, running(slave):
        slave.ha_service.update_master_address(master.address)
        for answer in ((SEGMENT, b"\0\0"), (1, b"\1" * 100)):
            with master.accept() as peer:
                peer.read_report()
                peer.send_frame(*answer)
                assert peer.is_closed()
        wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.APPEND_FAILED, 60_000)
        assert not slave.segments
