"""A master with several slaves: what one of them does changes nothing for the others."""
import select

import pytest

from rmqha.store.ha import ha_connection
from rmqha.store.ha.group_transfer_service import ANY_SLAVE
from rmqha.store.ha.ha_connection import WriteSocketService
from tests.store.ha.support import FakeStore, Peer, running
from tests.support.own_threads import own_threads
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
        wait_until(lambda: store.ha_service.ack_rule.acked_offset(ANY_SLAVE) == at)
        wait_until(lambda: len(store.ha_service.connection_list) == 3, what="the dead one is gone")
        with behind:
            assert read_until(behind, 1, at) == store.log(1)
        assert read_until(slow, 10_000, at) == store.log(10_000)
    wait_until(lambda: store.shares == 0, what="all of the log is given back")


class Writers:
    """The writers of a master's slaves, by the slave's port."""

    def __init__(self, store: FakeStore) -> None:
        self._service = store.ha_service

    def of(self, peer: Peer) -> WriteSocketService:
        port = peer.sock.getsockname()[1]
        return next(one.write_socket_service for one in self._service.connection_list
                    if one.client_addr.endswith(f":{port}"))

    def leads(self, peer: Peer) -> bool:
        return self._service.leader is self.of(peer).connection


def two_slaves(store: FakeStore, first: Peer, second: Peer) -> Writers:
    """Both are served, and `first` leads."""
    first.report(0)
    wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 1)
    put_and_send(store, 100, 0)
    first.read_data_frame()
    first.report(100)
    second.report(0)
    wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 2)
    writers = Writers(store)
    wait_until(lambda: writers.leads(first))
    assert read_until(second, 0, 100) == store.log(0)
    second.report(100)
    wait_until(lambda: writers.of(second).connection.follows_another)
    return writers


def busy(monkeypatch, gather_ms: int) -> None:
    """Every put is one of many; what gathers does it for so long."""
    monkeypatch.setattr(ha_connection, "_BUSY_NS", 1 << 62)
    monkeypatch.setattr(ha_connection, "_GATHER_MS", gather_ms)


def test_a_slave_that_follows_another_gets_what_gathers_in_one_piece(monkeypatch):
    busy(monkeypatch, 60_000)
    store = FakeStore(haSendHeartbeatInterval=60_000)  # none comes before it gathers
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        writers = two_slaves(store, first, second)
        wait_until(lambda: writers.of(second).gathers)
        for number in range(1, 6):  # the one that leads never waits, and what is waited for is not held up
            put_and_send(store, 100, number)
            first.read_data_frame()
            first.report(100 + 100 * number)
            wait_until(lambda end=100 + 100 * number: store.ha_service.ack_rule.acked_offset(ANY_SLAVE) == end)
        assert select.select([second.sock], [], [], 0)[0] == [], "it gathers still"
        writers.of(second).wakeup()
        frames = [second.read_data_frame()]
        while sum(len(body) for _, body in frames) < 500:
            frames.append(second.read_data_frame())
        assert len(frames) <= 2 and b"".join(body for _, body in frames) == store.log(100)


def test_a_slave_leads_when_the_other_stops(monkeypatch):
    busy(monkeypatch, 20)
    store = FakeStore()
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        writers = two_slaves(store, first, second)
        end = 100
        while not writers.leads(second):
            assert end < 10_000, "the first one says nothing any more"
            put_and_send(store, 100, end)
            end += 100
            assert read_until(second, end - 100, end) == store.log(end - 100)
            second.report(end)
            wait_until(lambda end=end: store.ha_service.ack_rule.acked_offset(ANY_SLAVE) == end)
        assert not writers.of(second).connection.follows_another
        first.report(200)
        wait_until(lambda: writers.of(first).connection.follows_another)
        second.close()
        wait_until(lambda: len(store.ha_service.connection_list) == 1)
        put_and_send(store, 100, end)
        assert read_until(first, 100, end + 100) == store.log(100)
        first.report(end + 100)
        wait_until(lambda: writers.leads(first) and store.ha_service.ack_rule.acked_offset(ANY_SLAVE) == end + 100)
        assert not writers.of(first).connection.follows_another


@pytest.mark.parametrize("keys", [{"inSyncReplicas": 3}, {"allAckInSyncStateSet": True}, {"minInSyncReplicas": 3}])
def test_no_slave_follows_when_puts_ask_for_more_than_any_one(monkeypatch, keys):
    busy(monkeypatch, 60_000)
    store = FakeStore(**keys)
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        for peer in (first, second):
            peer.report(0)
        wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 2)
        for number in range(1, 6):
            put_and_send(store, 100, number)
            for peer in (first, second):
                assert read_until(peer, 100 * number - 100, 100 * number) == store.log(100 * number - 100)
                peer.report(100 * number)
            wait_until(lambda end=100 * number: all(
                one.slave_ack_offset == end for one in store.ha_service.connection_list))
            assert not any(one.follows_another for one in store.ha_service.connection_list)


def test_a_shutdown_does_not_wait_for_what_gathers(monkeypatch):
    busy(monkeypatch, 60_000)
    before = own_threads()
    store = FakeStore()
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        writers = two_slaves(store, first, second)
        wait_until(lambda: writers.of(second).gathers)
        store.ha_service.shutdown()
        left = own_threads() - before
        assert not [thread for thread in left if thread.name.endswith("SocketService")]
