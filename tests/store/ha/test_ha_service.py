"""Master and slave in one process."""
import threading

import pytest

from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha import ha_client
from rmqha.store.ha.ha_client import RateLimit
from rmqha.store.results import PutMessageStatus
from tests.store.ha.support import BIG_SEGMENT, SEGMENT, FakeStore, follow, running, served
from tests.support.own_threads import own_threads
from tests.support.wait import lasting, wait_until


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)


def put_and_wait(master: FakeStore, size: int, timeout_ms: int) -> GroupCommitRequest:
    end = master.put(size)
    request = GroupCommitRequest(end, timeout_ms)
    master.ha_service.put_request(request)
    return request


def test_slave_holds_the_masters_bytes_across_files():
    master, slave = FakeStore(), FakeStore()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: master.ha_service.slave_count())  # an empty slave begins at the master's last file
        for size in range(100, 3000, 7):
            master.put(size, size)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset())
        assert slave.log() == master.log() and len(slave.segments) > 5
    wait_until(lambda: master.shares == 0, what="all of the log is given back")


def test_two_slaves_and_a_chained_one_hold_the_same():
    master, first, second, chained = (FakeStore() for _ in range(4))
    with running(master, first, second, chained):
        follow(first, master)
        follow(second, master)
        follow(chained, first)
        wait_until(lambda: served(master) == 2 and first.ha_service.slave_count() == 1)
        for seed in range(300):
            master.put(500, seed)
        for store in (first, second, chained):
            wait_until(lambda store=store: store.get_max_phy_offset() == master.get_max_phy_offset())
            assert store.log() == master.log()
        assert served(master) == 2 and first.ha_service.slave_count() == 1


def test_synchronous_put_is_acknowledged_by_the_slave():
    master, slave = FakeStore(), FakeStore()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: master.ha_service.slave_count())
        for _round in range(50):
            assert put_and_wait(master, 200, 60_000).future.get(60_000) is PutMessageStatus.PUT_OK
        assert master.ha_service.push2_slave_max_offset.get() == master.get_max_phy_offset()


@pytest.mark.parametrize("size", [1 << 20, 4 << 20])
def test_big_messages_beside_small_traffic_are_acknowledged(size):
    keys = {"mappedFileSizeCommitLog": 2 * BIG_SEGMENT, "haHousekeepingInterval": 60_000}
    master, slave = FakeStore(**keys), FakeStore(**keys)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: master.ha_service.slave_count())
        requests = []
        for _round in range(3):
            requests.append(put_and_wait(master, size, 60_000))
            requests += [put_and_wait(master, 200, 60_000) for _ in range(20)]
        assert {request.future.get(60_000) for request in requests} == {PutMessageStatus.PUT_OK}


def test_put_without_its_slave_is_answered_at_the_deadline():
    master, slave = FakeStore(), FakeStore()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: master.ha_service.slave_count())
        slave.append_fails = True
        with lasting(0.3):
            assert put_and_wait(master, 200, 300).future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert slave.log() == b"" and master.ha_service.push2_slave_max_offset.get() == 0


def test_slave_that_was_down_catches_up():
    master, slave = FakeStore(), FakeStore()
    with running(master):
        with running(slave):
            follow(slave, master)
            master.put(1000)
            wait_until(lambda: slave.get_max_phy_offset() == 1000)
        for seed in range(200):
            master.put(1000, seed)
        with running(slave):
            wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset())
            assert slave.log() == master.log()


def test_master_that_was_down_is_found_again():
    master, slave = FakeStore(), FakeStore()
    with running(slave):
        with running(master):
            follow(slave, master)
            master.put(1000)
            wait_until(lambda: slave.get_max_phy_offset() == 1000)
            master.message_store_config.haListenPort = master.ha_service.ha_listen_port
        with running(master):
            master.put(1000)
            wait_until(lambda: slave.log() == master.log() and slave.log())


def test_slave_that_is_ahead_never_acknowledges():
    """The master lost its tail: in 4.9 the slave's report made sync puts succeed at once."""
    master, slave = FakeStore(), FakeStore()
    for seed in range(10):
        slave.put(1000, seed)
    master.put(1000)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: master.ha_service.refused_slaves())
        assert master.ha_service.push2_slave_max_offset.get() == 0
        assert not master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset())
        wait_until(lambda: "SLAVE: 10000 MASTER: 1000" in slave.ha_service.ha_client.last_error)


def test_diverged_slave_is_found_when_the_masters_log_has_grown_past_it():
    master, slave = FakeStore(), FakeStore()
    for seed in range(10):
        slave.put(1000, seed)
    for seed in range(15):
        master.put(777, seed)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: "is no record" in slave.ha_service.ha_client.last_error)
        assert slave.get_max_phy_offset() == 10_000


def test_bound_port_is_readable_and_a_taken_one_is_an_error():
    first = FakeStore()
    with running(first):
        port = first.ha_service.ha_listen_port
        assert port > 0
        second = FakeStore(haListenPort=port)
        with pytest.raises(OSError):
            second.ha_service.start()
        second.ha_service.shutdown()


def test_services_start_again_after_shutdown():
    master, slave = FakeStore(), FakeStore()
    for _round in range(3):
        with running(master, slave):
            follow(slave, master)
            master.put(500)
            wait_until(lambda: slave.log() == master.log())


def test_shutdown_without_start_and_twice():
    before = own_threads()
    store = FakeStore()
    store.ha_service.shutdown()
    with running(store):
        pass
    store.ha_service.shutdown()
    assert not own_threads() - before


def test_many_putting_threads_and_a_slave_agree():
    master, slave = FakeStore(), FakeStore()
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: master.ha_service.slave_count())
        lock, answers = threading.Lock(), []

        def puts() -> None:
            for _round in range(100):
                with lock:
                    end = master.put(300)
                request = GroupCommitRequest(end, 60_000)
                master.ha_service.put_request(request)
                answers.append(request.future.get(60_000))

        threads = [threading.Thread(target=puts) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert answers == [PutMessageStatus.PUT_OK] * 800
        assert slave.log() == master.log() and len(master.log()) > 3 * SEGMENT


def test_rate_limit_says_each_key_once_per_interval():
    limit = RateLimit(60_000)
    assert [limit.allow("a"), limit.allow("b"), limit.allow("a")] == [True, True, False]
    limit = RateLimit(0)
    assert limit.allow("a") and limit.allow("a")
    limit = RateLimit(60_000)
    assert all(limit.allow(number) for number in range(5000))
    assert len(limit._said) <= RateLimit.MAX_KEYS
