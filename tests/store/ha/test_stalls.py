"""A frame or a record whose size arrived damaged: its end never comes, and the slave does not wait for it for ever."""
import random
import struct
import threading
from types import SimpleNamespace

import pytest

from rmqha.store.ha import master_connection
from rmqha.store.ha.master_connection import OffsetMasterConnection
from rmqha.store.ha.peers import HAConnectionState
from tests.fast_ways.compare_ha import record
from tests.store.ha.support import FakeMaster, FakeStore, running
from tests.support.wait import wait_until


@pytest.fixture
def slave():
    store = FakeStore(haVerifyRecords=True, haHandshakeEnable="false", haHousekeepingInterval=200,
                      haSendHeartbeatInterval=20)
    with running(store):
        yield store


def heartbeats_until_closed(peer, offset: int) -> None:
    """As a master that has nothing more to send."""
    stop = threading.Event()

    def beat() -> None:
        try:
            while not stop.wait(0.02):
                peer.send_frame(offset)
        except OSError:
            return
    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        assert peer.is_closed(120)
    finally:
        stop.set()
        beating.join()


def damaged_frame(good: bytes) -> bytes:
    """Its header says that a thousand bytes more follow."""
    return struct.pack(">qi", 0, len(good) + 1000) + good


def damaged_record(good: bytes) -> bytes:
    """It says that its properties have a thousand bytes more."""
    return struct.pack(">qi", 0, len(good)) + struct.pack(">i", len(good) + 1000) + good[4:]


@pytest.mark.parametrize("damaged", [damaged_frame, damaged_record])
def test_what_has_no_end_is_fetched_again_and_then_told(slave, damaged):
    good = record(random.Random(1), 0, 500)
    with FakeMaster() as master:
        slave.ha_service.update_master_address(master.address)
        client = slave.ha_service.ha_client
        while client.verify_failures < 2:  # a connection whose heartbeats came too late ends without a judgement
            with master.accept() as peer:
                peer.send(damaged(good))
                heartbeats_until_closed(peer, len(good))
        slave.message_store_config.haHousekeepingInterval = 20_000  # for the next connection: it brings no heartbeats
        wait_until(lambda: client.state is HAConnectionState.DIVERGED)
        assert slave.get_max_phy_offset() == 0 and client.verify_failures == 2
        assert "has an end that does not come" in client.last_error
        with master.accept() as peer:
            peer.send_frame(0, good)
            wait_until(lambda: slave.log() == good)
            wait_until(lambda: client.state is HAConnectionState.TRANSFER)


def test_bytes_that_go_on_coming_are_no_stall(monkeypatch):
    """By a clock of the test's: a kilobyte within each interval is a slow link, less of it is heartbeats."""
    now, flaws = [0], []
    monkeypatch.setattr(master_connection, "time", SimpleNamespace(monotonic_ns=lambda: now[0] * 1_000_000))
    connection = object.__new__(OffsetMasterConnection)
    connection.config, connection._within, connection._received = SimpleNamespace(haHousekeepingInterval=100), None, 0
    connection.master_address, connection._verifier = "m", SimpleNamespace(end=7)
    connection.store = SimpleNamespace(get_max_phy_offset=lambda: 7)
    connection.client = SimpleNamespace(record_is_flawed=lambda address, flaw: flaws.append((address, flaw.offset)))
    for _ in range(20):
        now[0] += 60
        connection._received += 600
        connection._look_for_stall()
    assert not flaws
    for _ in range(3):
        now[0] += 60
        connection._received += 12
        connection._look_for_stall()
    assert set(flaws) == {("m", 7)}
    flaws.clear()
    connection._verifier.end = 8  # one that was waited for has come
    now[0] += 60
    connection._look_for_stall()
    now[0] += 60
    connection._look_for_stall()
    assert not flaws
