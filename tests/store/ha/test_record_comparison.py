"""Comparing with a master that compares nothing, by the records that its main port shows."""
import struct

import pytest

from rmqha.store.ha import ha_client, master_connection, peers
from rmqha.store.ha.log_comparison import ends_as_master, first_other_record
from rmqha.store.ha.peers import HAConnectionState, MasterKind
from tests.store.ha.support import FakeMaster, FakeStore, follow, running, served
from tests.store.ha.test_log_comparison import COMMON, first_other, store_of
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)


def shown_by(master: FakeStore):
    """A main port that shows what RocketMQ's does: as many bytes as the int at the offset says."""
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
def test_other_end_is_found_and_where_it_begins(written):
    slave, master = store_of([*COMMON, *LOST]), store_of([*COMMON, *written])
    end = slave.get_max_phy_offset()
    assert ends_as_master(slave, end, shown_by(master)) is False
    assert first_other_record(slave, end, shown_by(master)) == first_other(slave, master)


def test_part_of_the_masters_log_is_the_same():
    master = store_of([*COMMON, *LOST])
    slave = store_of(COMMON)
    assert ends_as_master(slave, slave.get_max_phy_offset(), shown_by(master)) is True
    slave.segments[65536] = bytearray(master.segments[65536][:-300])  # and a part of a record
    assert ends_as_master(slave, slave.get_max_phy_offset(), shown_by(master)) is True


def test_end_behind_a_files_blank_is_compared_by_the_record_before():
    master = store_of(COMMON)
    slave = FakeStore()
    slave.segments = {0: bytearray(master.segments[0])}
    assert ends_as_master(slave, 65536, shown_by(master)) is True
    slave.segments[0][64010] ^= 1
    assert ends_as_master(slave, 65536, shown_by(master)) is False


def test_what_the_master_has_deleted_or_does_not_tell_is_unknown():
    master, slave = store_of([*COMMON, *COMMON]), store_of(COMMON[:5])
    del master.segments[0]
    assert ends_as_master(slave, 5000, shown_by(master)) is None
    assert ends_as_master(slave, 5000, lambda _offset: None) is None
    assert ends_as_master(FakeStore(), 0, shown_by(master)) is None


def test_other_log_has_no_record_in_common():
    slave, master = store_of([(1000, number + 9) for number in range(90)]), store_of(COMMON)
    assert first_other_record(slave, slave.get_max_phy_offset(), shown_by(master)) == -1


def asking(slave: FakeStore, master: FakeStore, kind: MasterKind | None) -> list[str]:
    """Let the slave ask a main port of that kind; the addresses that it asked."""
    asked: list[str] = []
    client, show = slave.ha_service.ha_client, shown_by(master)
    client.ask_main_port = lambda address: asked.append(address) or kind
    client.ask_record = lambda _address, offset: show(offset)
    return asked


def test_slave_with_another_end_does_not_follow_a_master_of_rocketmq():
    master, slave = store_of([*COMMON, *[(1000, 201)] * 9]), store_of([*COMMON, *LOST])
    before = slave.log()
    asking(slave, master, MasterKind.OTHER)
    with running(master, slave):
        follow(slave, master)
        client = slave.ha_service.ha_client
        wait_until(lambda: client.state is HAConnectionState.DIVERGED, 60_000)
        assert slave.ha_service.divergence.found.offset == first_other(slave, master)
        assert slave.log() == before and not served(master)


def test_master_of_rocketmq_hears_its_own_protocol_and_nothing_else():
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


def test_unknown_master_is_waited_for_and_then_followed_by_the_old_protocol(monkeypatch, caplog):
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
                except EOFError:  # it was still waiting for the main port
                    continue
                break
    assert len(asked) > 1 and "followed as one of RocketMQ 4.9" in caplog.text


def test_empty_slave_does_not_wait_for_the_main_port():
    master, slave = store_of(COMMON), FakeStore()
    asked = asking(slave, master, None)
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        with fake.accept() as peer:
            assert peer.read_report() == 0
    assert len(asked) == 1


def test_master_that_is_known_to_be_ours_is_never_followed_unchecked(monkeypatch):
    monkeypatch.setattr(master_connection, "_SOON_MS", 20)
    monkeypatch.setattr(peers, "_MAIN_PORT_WAIT_MS", 0)
    slave = store_of(COMMON)
    kinds = [MasterKind.OURS]
    client = slave.ha_service.ha_client
    client.ask_main_port = lambda _address: kinds.pop() if kinds else None
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        with fake.accept() as peer:
            assert peer.read_report() == -1  # the question for a handshake; the master is gone before it answers
        for _ in range(10):
            with fake.accept() as peer, pytest.raises(EOFError):
                peer.read_report()
        assert "can't be found out yet" in client.last_error


def test_ours_that_says_nothing_to_the_question_is_not_followed(monkeypatch):
    monkeypatch.setattr(master_connection, "_VERDICT_WAIT_MS", 50)
    slave = store_of(COMMON)
    asking(slave, slave, MasterKind.OURS)
    with FakeMaster() as fake, running(slave):
        slave.ha_service.update_master_address(fake.address)
        for _ in range(2):
            with fake.accept() as peer:
                assert peer.read_report() == -1
                assert peer.is_closed()
