"""A master with several slaves: what one of them does changes nothing for the others."""
import threading
import time

import pytest

from rmqha.store.ha import ha_connection
from rmqha.store.ha.group_transfer_service import ANY_SLAVE
from rmqha.store.ha.ha_connection import ReadSocketService
from tests.store.ha.support import FakeStore, Peer, running
from tests.support.wait import wait_until


def put_and_send(store: FakeStore, size: int, seed: int) -> None:
    """As a send by itself does it: the putting thread names what it has written."""
    end = store.get_max_phy_offset()
    put = store.ha_service.on_appended
    store.ha_service.on_appended = lambda: None
    try:
        store.put(size, seed)
    finally:
        store.ha_service.on_appended = put
    store.ha_service.send_appended(end, store.log(end))


def read_until(peer: Peer, begin: int, end: int) -> bytes:
    """The log from `begin` to `end`, of frames that follow each other."""
    log = b""
    while begin + len(log) < end:
        offset, body = peer.read_data_frame()
        assert offset == begin + len(log)
        log += body
    return log


def test_a_slow_one_one_that_dies_and_one_that_is_behind_do_not_hold_the_others():
    store = FakeStore(mappedFileSizeCommitLog=32 << 20, haHousekeepingInterval=60_000)
    for seed in range(10):
        store.put(1000, seed)
    with running(store), Peer.connect(store) as good, Peer.connect(store) as slow, Peer.connect(store) as dies:
        for peer in (good, slow, dies):
            peer.report(10_000)
        wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 3)
        at = 10_000
        for seed in range(60):  # more than the slow one's socket takes
            put_and_send(store, 200_000, seed)
            assert read_until(good, at, at + 200_000) == store.log(at)
            at += 200_000
            good.report(at)
            if seed == 3:
                dies.read(12 + 5000)
                dies.close()
            if seed == 5:
                behind = Peer.connect(store)
                behind.report(1)
        wait_until(lambda: store.ha_service.acked_offset(ANY_SLAVE) == at)
        wait_until(lambda: len(store.ha_service.connection_list) == 3, what="the dead one is gone")
        with behind:
            assert read_until(behind, 1, at) == store.log(1)
        assert read_until(slow, 10_000, at) == store.log(10_000)
    assert store.shares == 0


def held_back(monkeypatch) -> list[int]:
    """Ports of slaves whose reports were let gather, one for each time; that lasts longer than a test may take."""
    monkeypatch.setattr(ha_connection, "_REPORTS_GATHER_MS", 500)
    seen: list[int] = []
    take_over = ReadSocketService._take_over

    def noted(self, *reports) -> None:
        take_over(self, *reports)
        if self._gathers:
            seen.append(self.connection.socket.getpeername()[1])
    monkeypatch.setattr(ReadSocketService, "_take_over", noted)
    return seen


def test_reports_gather_of_a_slave_that_another_is_ahead_of(monkeypatch):
    seen = held_back(monkeypatch)
    store = FakeStore()
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        for peer in (first, second):
            peer.report(0)
        wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 2)
        begin = time.monotonic()
        for number in range(1, 6):  # the one ahead never waits, and what is waited for is not held up
            put_and_send(store, 100, number)
            first.read_data_frame()
            first.report(100 * number)
            wait_until(lambda end=100 * number: store.ha_service.acked_offset(ANY_SLAVE) == end)
        assert time.monotonic() - begin < 0.5 and seen == []
        second.report(100)
        wait_until(lambda: seen == [second.sock.getsockname()[1]])
        second.report(200, 300)
        second.report(400)
        put_and_send(store, 100, 6)
        second.report(600)  # it is ahead now: taken over with what gathered, when that is over
        wait_until(lambda: store.ha_service.acked_offset(ANY_SLAVE) == 600)
        assert len(seen) == 1


@pytest.mark.parametrize("keys", [{"inSyncReplicas": 3}, {"allAckInSyncStateSet": True}, {"minInSyncReplicas": 3}])
def test_no_report_gathers_when_puts_ask_for_more_than_any_one(monkeypatch, keys):
    seen = held_back(monkeypatch)
    store = FakeStore(**keys)
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        for peer in (first, second):
            peer.report(0)
        wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 2)
        put_and_send(store, 100, 1)
        first.report(100)
        wait_until(lambda: store.ha_service.acked_offset(ANY_SLAVE) == 100)
        second.report(100)
        wait_until(lambda: all([one.slave_ack_offset == 100 for one in store.ha_service.connection_list]))
        assert seen == []


def test_no_thread_of_a_slave_outlives_a_shutdown_while_reports_gather(monkeypatch):
    held_back(monkeypatch)
    store = FakeStore()
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        for peer in (first, second):
            peer.report(0)
        wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 2)
        put_and_send(store, 100, 1)
        for peer in (first, second):
            peer.report(100)
        wait_until(lambda: all([one.slave_ack_offset == 100 for one in store.ha_service.connection_list]))
        store.ha_service.shutdown()
        assert not [thread for thread in threading.enumerate() if thread.name == "ReadSocketService"]
