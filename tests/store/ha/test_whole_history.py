"""haSyncFromFirstFile: an empty slave takes the master's log from its first file on."""
import pytest

from rmqha.store.ha import ha_client, master_connection
from rmqha.store.ha.peers import HAConnectionState
from tests.store.ha.support import SEGMENT, FakeMaster, FakeStore, follow, record, running
from tests.support.wait import wait_until


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


def test_slave_that_holds_something_goes_on_there():
    master, slave = filled(3), FakeStore(haSyncFromFirstFile=True)
    slave.segments[SEGMENT] = bytearray(master.segments[SEGMENT][:9000])
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        assert list(slave.segments) == [SEGMENT, 2 * SEGMENT]


def test_empty_master_is_waited_for():
    master, slave = FakeStore(), FakeStore(haSyncFromFirstFile=True)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: slave.ha_service.ha_client.state is HAConnectionState.TRANSFER, 60_000)
        for seed in range(50):
            master.put(3000, seed)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
        assert slave.segments == master.segments


def test_master_that_sends_heartbeats_only_is_asked_for_later_files():
    """As 4.9 does it when its first files are deleted: nothing but heartbeats at the offset that was asked for."""
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
                    peer.send_frame(report)  # a heartbeat was due just then
                    peer.send_frame(report, log[1:])
                    assert peer.next_report() == first + len(log)
                    break
                if report == 0:
                    peer.send_frame(4 * SEGMENT, b"\0\0")
                elif report > first:  # its files are searched from the middle
                    peer.send_frame(report, b"\0\0")
                else:
                    peer.send_frame(report)
                peer.is_closed()
        assert asked == [0, 1, 2 * SEGMENT + 1, SEGMENT + 1, 2 * SEGMENT + 1]
        assert slave.segments == {first: log}


def test_first_record_that_is_no_record_is_refused():
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
