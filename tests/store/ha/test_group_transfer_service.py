"""Acknowledgements: their number, the requests and waiters that they wake, and masters with several slaves."""
import select
import struct
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from rmqha.common.futures import AtomicLong
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha import ha_connection, ha_handshake
from rmqha.store.ha.autoswitch.sync_state_set import SyncStateSet
from rmqha.store.ha.group_transfer_service import ANY_SLAVE, GroupTransferService
from rmqha.store.ha.ha_connection import WriteSocketService
from rmqha.store.ha.ha_handshake import Block, Finding, Question, Verdict, Who, WhoCompares
from rmqha.store.ha.log_comparison import read_tail
from rmqha.store.ha.wait_notify_object import WaitNotifyObject
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.store.ha.support import FakeStore, Peer, running
from tests.store.support import message, open_store
from tests.support.wait import at_least, lasting, own_threads, wait_until


class Acks:
    """The acknowledgement rule and the term, as GroupTransferService uses them."""

    def __init__(self) -> None:
        self.term = 0
        self.push2_slave_max_offset = AtomicLong(0)
        # Offset by number of acknowledgements, for numbers other than 1.
        self.several: dict[int, int] = {}

    def acked_offset(self, ack_nums: int) -> int:
        return self.several.get(ack_nums, -1) if ack_nums != 1 else self.push2_slave_max_offset.get()


def new_service() -> GroupTransferService:
    acks = Acks()
    service = GroupTransferService(acks, acks)
    service.acks = acks
    return service


@pytest.fixture
def service():
    service = new_service()
    service.start()
    yield service
    service.shutdown()


def acknowledge(service: GroupTransferService, offset: int) -> None:
    if service.acks.push2_slave_max_offset.set_max(offset):
        service.notify_transfer_some()


def put(service: GroupTransferService, offset: int, timeout_ms: int = 60_000) -> GroupCommitRequest:
    request = GroupCommitRequest(offset, timeout_ms)
    service.put_request(request)
    return request


def test_request_completes_with_its_acknowledgement(service):
    request = put(service, 100)
    acknowledge(service, 99)
    with pytest.raises(TimeoutError):
        request.future.get(50)
    acknowledge(service, 100)
    assert request.future.get(60_000) is PutMessageStatus.PUT_OK
    wait_until(lambda: service.waiting_requests() == 0)


def test_request_that_is_acknowledged_already_completes_at_once(service):
    acknowledge(service, 100)
    assert put(service, 100).future.is_done


def test_request_times_out_at_its_deadline(service):
    with lasting(0.15):
        assert put(service, 100, 150).future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_acknowledged_request_does_not_wait_for_an_earlier_one(service):
    big, small = put(service, 1_000_000), put(service, 100)
    acknowledge(service, 500)
    assert small.future.get(60_000) is PutMessageStatus.PUT_OK
    assert not big.future.is_done


def test_earlier_deadline_after_a_later_one_is_kept(service):
    late, soon = put(service, 100, 600_000), put(service, 200, 100)
    assert soon.future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert not late.future.is_done


def test_many_wakeups_do_not_shorten_the_deadline(service):
    """4.9 counted wake-ups: with many acknowledgements, a large message timed out early."""
    request = put(service, 1_000_000, 60_000)
    for offset in range(1, 2000):
        acknowledge(service, offset)
    assert not request.future.is_done
    acknowledge(service, 1_000_000)
    assert request.future.get(60_000) is PutMessageStatus.PUT_OK


def test_a_round_completes_in_order_of_arrival(service):
    done = []
    for number, offset in enumerate((300, 100, 200)):
        put(service, offset).future.then(lambda _status, number=number: done.append(number))
    acknowledge(service, 300)
    wait_until(lambda: len(done) == 3)
    assert done == [0, 1, 2]


def test_shutdown_answers_pending_and_later_requests():
    service = new_service()
    service.start()
    request = put(service, 100)
    service.shutdown()
    assert request.future.get(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert put(service, 100).future.get(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    service.shutdown()


def test_every_request_of_many_threads_is_answered_once(service):
    answers, count = [], 500

    def puts(first: int) -> None:
        for offset in range(first, count * 4, 4):
            request = GroupCommitRequest(offset, 60_000)
            request.future.then(answers.append)
            service.put_request(request)

    threads = [threading.Thread(target=puts, args=(first,)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for offset in range(0, count * 4 + 10, 10):
        acknowledge(service, offset)
    for thread in threads:
        thread.join(240)
    wait_until(lambda: service.waiting_requests() == 0 and len(answers) >= count * 4 - 3)
    assert set(answers) == {PutMessageStatus.PUT_OK}
    assert service._by_deadline == []


def waiters(notify: WaitNotifyObject, count: int, interval_ms: int, rounds: int = 2):
    waited = []

    def wait():
        # The first wait of a thread returns at once.
        for _round in range(rounds):
            notify.all_wait_for_running(interval_ms)
        waited.append(time.monotonic())
        notify.remove_from_waiting_thread_table()

    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, waited


def test_all_waiters_wake():
    notify = WaitNotifyObject()
    threads, waited = waiters(notify, 5, 60_000)
    wait_until(lambda: notify._asleep == 5)
    notify.wakeup_all()
    for thread in threads:
        thread.join(900)
    assert len(waited) == 5 and notify.waiting_threads == 0


def test_waiting_ends_at_the_interval():
    notify = WaitNotifyObject()
    with lasting(0.05):
        threads, waited = waiters(notify, 1, 50)
        threads[0].join(900)
    assert len(waited) == 1


def test_a_wakeup_while_the_waiter_works_is_not_lost():
    notify = WaitNotifyObject()
    notify.all_wait_for_running(1)
    notify.wakeup_all()
    notify.wakeup_all()
    began = time.monotonic()
    notify.all_wait_for_running(600_000)
    assert time.monotonic() - began < 300
    with lasting(0.03):
        notify.all_wait_for_running(30)


def test_no_wakeup_is_lost_between_two_threads():
    notify, produced, consumed = WaitNotifyObject(), [0], []
    rounds = 3000

    def consume():
        seen = 0
        while seen < rounds:
            if produced[0] == seen:
                before = time.monotonic()
                notify.all_wait_for_running(600_000)
                assert time.monotonic() - before < 300, "a wake-up was lost"
            seen = produced[0]
            consumed.append(seen)

    thread = threading.Thread(target=consume)
    thread.start()
    for number in range(1, rounds + 1):
        produced[0] = number
        notify.wakeup_all()
        if number % 7 == 0:
            at_least(0)
    thread.join(900)
    assert consumed[-1] == rounds


# The number of replicas that must have a message: the keys of 5.x, and 4.9's rule when they are not set.

EVERY, NONE, ANY = -1, 0, 1
RECORDS = 20


@contextmanager
def slaves(*names: str, **keys):
    """Open a running store of 20 records of 1000 bytes, with a peer for each name that holds all of them."""
    store = FakeStore(haHandshakeEnable=True, haHousekeepingInterval=60_000, **keys)
    for seed in range(RECORDS):
        store.put(1000, seed)
    with running(store), ExitStack() as stack:
        peers = [stack.enter_context(introduced(store, name)) for name in names]
        wait_until(lambda: store.ha_service.slave_count() == len(set(names)), 60_000)
        yield store, dict(zip(names, peers))


def introduced(store: FakeStore, name: str) -> Peer:
    peer = Peer.connect(store)
    peer.send(ha_handshake.ASK + ha_handshake.encode_who(Who(name, 0, 0, 0)))
    peer.read(34 + 30)
    peer.report(store.get_max_phy_offset())
    return peer


@pytest.mark.parametrize("keys, in_sync_slaves, need", [
    ({}, 0, ANY), ({}, 2, ANY), ({"totalReplicas": 3}, 0, ANY),
    ({"inSyncReplicas": 2}, 0, None), ({"inSyncReplicas": 2}, 1, 2), ({"inSyncReplicas": 3}, 1, None),
    ({"inSyncReplicas": 3}, 2, 3), ({"inSyncReplicas": 2}, 2, 2),
    ({"minInSyncReplicas": 2}, 0, None), ({"minInSyncReplicas": 2}, 1, ANY),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, 2, 3),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, 1, 2),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True}, 0, NONE),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True, "minInSyncReplicas": 2}, 0, None),
    ({"inSyncReplicas": 3, "enableAutoInSyncReplicas": True, "minInSyncReplicas": 2}, 1, 2),
    ({"allAckInSyncStateSet": True}, 0, EVERY), ({"allAckInSyncStateSet": True}, 2, EVERY),
    ({"allAckInSyncStateSet": True, "minInSyncReplicas": 2}, 0, None),
    ({"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "inSyncReplicas": 3}, 1, EVERY)])
def test_number_of_acknowledgements_follows_the_keys(keys, in_sync_slaves, need):
    with slaves(*"abc"[:in_sync_slaves], **keys) as (store, _peers):
        assert store.ha_service.ack_rule.need_ack_nums() == need


def test_request_waits_for_as_many_slaves_as_it_asks_for():
    with slaves("a", "b", "c") as (store, peers):
        end = store.put(1000)
        requests = {ack_nums: GroupCommitRequest(end, 60_000, ack_nums) for ack_nums in (EVERY, 1, 2, 3, 4)}
        for request in requests.values():
            store.ha_service.put_request(request)
        for name, done in (("b", {1, 2}), ("a", {1, 2, 3}), ("c", {1, 2, 3, 4, EVERY})):
            peers[name].read_data_frame()
            peers[name].report(end)
            wait_until(lambda done=done: done == {n for n, r in requests.items() if r.future.is_done}, 60_000)
        assert all(request.future.get(0) is PutMessageStatus.PUT_OK for request in requests.values())


def test_connections_of_one_slave_count_once():
    with slaves("a") as (store, _peers), introduced(store, "a") as again:
        end = store.put(1000)
        request = GroupCommitRequest(end, 300, 3)
        again.read_data_frame()
        again.report(end)
        wait_until(lambda: store.ha_service.push2_slave_max_offset.get() == end, 60_000)
        store.ha_service.put_request(request)
        assert request.future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_disconnected_slave_is_no_longer_counted():
    with slaves("a", "b") as (store, peers):
        assert store.ha_service.ack_rule.acked_offset(3) == RECORDS * 1000
        peers["a"].close()
        wait_until(lambda: store.ha_service.slave_count() == 1, 60_000)
        assert store.ha_service.ack_rule.acked_offset(3) == -1


def test_every_slave_in_sync_excludes_those_far_behind():
    with slaves("a", "b", haMaxGapNotInSync=5000) as (store, peers):
        for seed in range(10):
            end = store.put(1000, seed)
        peers["a"].read_data_frame()
        wait_until(lambda: all(c.transfer_from_where == end for c in store.ha_service.connection_list), 60_000)
        peers["a"].report(end)
        wait_until(lambda: store.ha_service.ack_rule.acked_offset(EVERY) == end, 60_000)
        assert store.ha_service.ack_rule.in_sync_replicas_nums(end) == 2


def test_every_slave_means_at_least_one():
    with slaves() as (store, _peers):
        assert store.ha_service.ack_rule.acked_offset(EVERY) == -1


def test_too_few_replicas_refuse_the_message_before_it_is_written(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, inSyncReplicas=2) as store:
        result = store.put_message(message())
        assert result.put_message_status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert result.append_message_result is None and store.get_max_phy_offset() == 0
        unacknowledged = message(WAIT="false")
        assert store.put_message(unacknowledged).put_message_status is PutMessageStatus.PUT_OK


def test_asynchronous_master_waits_for_no_slave(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.ASYNC_MASTER, inSyncReplicas=3, minInSyncReplicas=2) as store:
        assert store.put_message(message()).put_message_status is PutMessageStatus.PUT_OK


def test_automatic_number_lets_a_lone_master_continue(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SYNC_MASTER, inSyncReplicas=2,
                    enableAutoInSyncReplicas=True) as store:
        assert store.put_message(message()).put_message_status is PutMessageStatus.PUT_OK


# A master with several slaves: one of them never affects the others.


def put_and_send(store: FakeStore, size: int, seed: int) -> None:
    """Put a record and pass its bytes on, as the thread of a single send does."""
    end = store.get_max_phy_offset()
    put = store.ha_service.on_appended
    store.ha_service.on_appended = lambda: None
    try:
        store.put(size, seed)
    finally:
        store.ha_service.on_appended = put
    store.ha_service.send_appended(end, store.log(end))


def read_until(peer: Peer, begin: int, end: int) -> bytes:
    """Read the log from `begin` to `end`, from consecutive frames."""
    log = b""
    while begin + len(log) < end:
        offset, body = peer.read_data_frame()
        assert offset == begin + len(log)
        log += body
    return log


def test_slow_dying_and_lagging_slaves_do_not_delay_the_others():
    store = FakeStore(mappedFileSizeCommitLog=32 << 20, haHousekeepingInterval=60_000)
    for seed in range(10):
        store.put(1000, seed)
    with running(store), Peer.connect(store) as good, Peer.connect(store) as slow, Peer.connect(store) as dies:
        for peer in (good, slow, dies):
            peer.report(10_000)
        wait_until(lambda: sum(one.is_serving for one in store.ha_service.connection_list) == 3)
        at = 10_000
        # More than fits into the slow slave's socket.
        for seed in range(60):
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
        wait_until(lambda: len(store.ha_service.connection_list) == 3, what="the dead slave is gone")
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
    """Bring both into sync, with `first` leading."""
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
    """Treat every put as one of many; bytes are gathered for `gather_ms`."""
    monkeypatch.setattr(ha_connection, "_BUSY_NS", 1 << 62)
    monkeypatch.setattr(ha_connection, "_GATHER_MS", gather_ms)


def test_a_slave_that_follows_another_gets_gathered_bytes_in_one_piece(monkeypatch):
    busy(monkeypatch, 60_000)
    # No heartbeat comes before bytes are gathered.
    store = FakeStore(haSendHeartbeatInterval=60_000)
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        writers = two_slaves(store, first, second)
        wait_until(lambda: writers.of(second).gathers)
        # The leading slave never waits, and pending puts are not delayed.
        for number in range(1, 6):
            put_and_send(store, 100, number)
            first.read_data_frame()
            first.report(100 + 100 * number)
            wait_until(lambda end=100 + 100 * number: store.ha_service.ack_rule.acked_offset(ANY_SLAVE) == end)
        assert select.select([second.sock], [], [], 0)[0] == [], "the writer still gathers"
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
            assert end < 10_000, "the first slave does not report any more"
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
def test_no_slave_follows_when_puts_need_more_than_one_slave(monkeypatch, keys):
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


def test_shutdown_does_not_wait_for_gathered_bytes(monkeypatch):
    busy(monkeypatch, 60_000)
    before = own_threads()
    store = FakeStore()
    with running(store), Peer.connect(store) as first, Peer.connect(store) as second:
        writers = two_slaves(store, first, second)
        wait_until(lambda: writers.of(second).gathers)
        store.ha_service.shutdown()
        left = own_threads() - before
        assert not [thread for thread in left if thread.name.endswith("SocketService")]


# An in-sync slave loses power and returns before its master notices. It has lost bytes that it had acknowledged.

LOST_TAIL_RECORDS, END = 20, 20_000


@pytest.fixture
def master():
    store = FakeStore(haHousekeepingInterval=60_000)
    for seed in range(LOST_TAIL_RECORDS):
        store.put(1000, seed)
    with running(store):
        yield store


def slave_at(master: FakeStore, end: int, name: str = "c/b/1") -> Peer:
    """Connect a slave whose log equals the master's up to `end`; its handshake and first report are done."""
    peer = Peer.connect(master)
    question = Question(0, [Block(end, read_tail(master, 0, end))])
    peer.send(ha_handshake.ASK + ha_handshake.encode_who_compares(WhoCompares(name, 0, end))
              + ha_handshake.encode_question(question) + ha_handshake.encode_finding(Finding(Verdict.GOOD, end)))
    assert peer.read_frame()[0] == ha_handshake.HELLO_OFFSET
    assert peer.read_frame() == (ha_handshake.ANSWER_OFFSET, struct.pack(">ih", 1, 0))
    offset, verdict = peer.read_frame()
    assert (offset, verdict[:2]) == (ha_handshake.VERDICT_OFFSET, struct.pack(">h", Verdict.GOOD))
    peer.report(end)
    return peer


def told(master: FakeStore) -> dict[str, str]:
    stats: dict[str, str] = {}
    master.ha_service.build_running_stats(stats)
    return stats


def lost(master: FakeStore) -> list[str]:
    return [value for key, value in told(master).items() if key.startswith("haSlaveLost_")]


def test_lost_bytes_are_sent_again_and_not_counted_meanwhile(master, caplog):
    service = master.ha_service
    with slave_at(master, END) as before:
        wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": END}, 60_000)
        # The connection from before the loss of power is still open.
        with slave_at(master, 12_000) as after:
            assert before.is_closed()
            wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": 12_000}, 60_000)
            assert lost(master) == [f"12000,{END}"]
            assert service.ack_rule.acked_offset(2) == 12_000 and service.ack_rule.in_sync_replicas_nums(END) == 2
            (info,) = service.get_runtime_info(END).haConnectionInfo
            assert (info.slaveAckOffset, info.diff) == (12_000, 8000)
            data = b""
            while len(data) < END - 12_000:
                offset, body = after.read_data_frame()
                assert offset == 12_000 + len(data)
                data += body
            assert data == master.log(12_000)
            after.report(END)
            wait_until(lambda: not lost(master), 60_000, "it has the whole log again")
    assert "had acknowledged 20000, but returns with 12000" in caplog.text


def test_put_waits_for_the_bytes_that_the_slave_holds_now(master):
    """Offsets that the slave acknowledged earlier do not count for a later put."""
    service = master.ha_service
    with slave_at(master, END):
        wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": END}, 60_000)
        with slave_at(master, 12_000) as after:
            wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": 12_000}, 60_000)
            end = master.put(1000, 50)
            request = GroupCommitRequest(end, 60_000)
            service.put_request(request)
            after.report(16_000)
            wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": 16_000}, 60_000)
            assert not request.future.is_done
            after.report(END, end)
            assert request.future.get(60_000) is PutMessageStatus.PUT_OK


def test_loss_is_reported_after_a_long_absence_too(master):
    service = master.ha_service
    slave_at(master, END).close()
    wait_until(lambda: service.connection_count.get() == 0, 60_000)
    with slave_at(master, 5000):
        wait_until(lambda: lost(master) == [f"5000,{END}"], 60_000)


def test_other_slave_has_lost_nothing(master):
    with slave_at(master, END), slave_at(master, 5000, "c/b/2"):
        wait_until(lambda: len(master.ha_service.counted_slaves.slave_acks()) == 2, 60_000)
        assert not lost(master)


def test_peers_without_a_name_are_not_distinguished_and_no_loss_is_reported(master):
    with Peer.connect(master) as one, Peer.connect(master) as other:
        one.report(END)
        wait_until(lambda: master.ha_service.slave_count() == 1, 60_000)
        other.report(5000)
        wait_until(lambda: list(master.ha_service.counted_slaves.slave_acks().values()) == [5000], 60_000)
        assert not lost(master)


def test_member_that_lost_its_tail_leaves_the_sync_state_set_until_it_has_caught_up():
    end = 1000
    members = SyncStateSet(lambda: end)
    members.become_master(1)
    members.acknowledged(2, 1000, time.monotonic_ns(), True)
    assert members.members == {1, 2} and members.confirm_offset() == 1000
    members.acknowledged(2, 400, None, False)
    assert members.members == {1} and members.confirm_offset() == 1000
    end = 1200
    members.acknowledged(2, 900, time.monotonic_ns(), True)
    assert members.members == {1}
    members.acknowledged(2, 1200, time.monotonic_ns(), True)
    assert members.members == {1, 2} and members.confirm_offset() == 1200
