"""Master and slave in one process, with in-memory and real stores: the slave's files equal the master's."""
import errno
import shutil
import threading

import pytest

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Round
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha import ha_client
from rmqha.store.ha.ha_client import RateLimit
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.results import PutMessageStatus
from tests.store.ha.support import BIG_SEGMENT, SEGMENT, FakeStore, follow, running, served
from tests.support.wait import lasting, own_threads, wait_until


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
        # An empty slave begins at the master's last file.
        wait_until(lambda: master.ha_service.slave_count())
        for size in range(100, 3000, 7):
            master.put(size, size)
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset())
        assert slave.log() == master.log() and len(slave.segments) > 5
    wait_until(lambda: master.shares == 0, what="all of the log is given back")


def test_two_slaves_and_a_chained_slave_hold_the_same_log():
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


def test_slave_that_is_ahead_of_its_master_never_acknowledges():
    """The master lost its tail: in 4.9, the slave's report made sync puts succeed at once."""
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


def test_diverged_slave_is_detected_after_the_masters_log_has_grown_past_it():
    master, slave = FakeStore(), FakeStore()
    for seed in range(10):
        slave.put(1000, seed)
    for seed in range(15):
        master.put(777, seed)
    with running(master, slave):
        follow(slave, master)
        wait_until(lambda: "no valid record" in slave.ha_service.ha_client.last_error)
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


def test_rate_limit_allows_each_key_once_per_interval():
    limit = RateLimit(60_000)
    assert [limit.allow("a"), limit.allow("b"), limit.allow("a")] == [True, True, False]
    limit = RateLimit(0)
    assert limit.allow("a") and limit.allow("a")
    limit = RateLimit(60_000)
    assert all(limit.allow(number) for number in range(5000))
    assert len(limit._said) <= RateLimit.MAX_KEYS


# Two real stores in one process: the slave's files equal the master's.

REAL_STORES_SEGMENT = 64 * 1024


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)


def make_store(root, role: BrokerRole, **keys) -> DefaultMessageStore:
    config = MessageStoreConfig()
    values = {"storePathRootDir": str(root), "storePathCommitLog": f"{root}/commitlog", "haListenPort": 0,
              "mappedFileSizeCommitLog": REAL_STORES_SEGMENT, "mappedFileSizeConsumeQueue": 20 * 1000,
              "maxHashSlotNum": 100,
              "maxIndexNum": 400, "brokerRole": role, "slaveTimeout": 60_000, **keys}
    for key, value in values.items():
        assert hasattr(config, key), key
        setattr(config, key, value)
    # A slave waits at an incomplete record.
    broker_id = 1 if role is BrokerRole.SLAVE else 0
    return DefaultMessageStore(config, None, None, BrokerConfig(brokerId=broker_id))


@pytest.fixture
def stores(tmp_path):
    """start(name, role) returns a running store in its folder; all are shut down at the end."""
    running: list[DefaultMessageStore] = []

    def start(name: str, role: BrokerRole, master: DefaultMessageStore | None = None, **keys) -> DefaultMessageStore:
        store = make_store(tmp_path / name, role, **keys)
        assert store.load()
        if master is not None:
            store.update_ha_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")
        store.start()
        running.append(store)
        return store

    yield start
    for store in reversed(running):
        store.shutdown()


def put(store: DefaultMessageStore, body: bytes, queue_id: int = 0) -> PutMessageStatus:
    msg = MessageExtBrokerInner("T", body)
    msg.queue_id = queue_id
    msg.properties_string = message_properties2string({"KEYS": "k"})
    msg.born_host, msg.store_host = ("10.1.2.3", 4567), ("10.1.2.4", 10911)
    return store.put_message(msg).put_message_status


def log_of(store: DefaultMessageStore) -> bytes:
    data, offset = b"", max(0, store.get_min_phy_offset())
    while (result := store.get_commit_log_data(offset)) is not None:
        with result:
            data += bytes(result.buffer)
            offset += result.size
    return data


def wait_for_same_logs(master: DefaultMessageStore, slave: DefaultMessageStore) -> None:
    wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), 60_000)
    assert log_of(slave) == log_of(master) != b""


def test_logs_are_equal_and_the_slave_dispatches(stores):
    master = stores("master", BrokerRole.ASYNC_MASTER)
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.slave_count())
    for number in range(500):
        assert put(master, b"%d" % number * 100, number % 3) is PutMessageStatus.PUT_OK
    wait_for_same_logs(master, slave)
    assert master.get_max_phy_offset() > 2 * REAL_STORES_SEGMENT
    for queue_id in range(3):
        wait_until(lambda queue_id=queue_id: slave.get_max_offset_in_queue("T", queue_id)
                   == master.get_max_offset_in_queue("T", queue_id))


def test_synchronous_master_answers_ok_with_a_slave_and_not_available_without(stores):
    master = stores("master", BrokerRole.SYNC_MASTER)
    assert put(master, b"alone") is PutMessageStatus.SLAVE_NOT_AVAILABLE
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()))
    threads = [threading.Thread(target=lambda: statuses.extend(put(master, b"x" * 300) for _ in range(50)))
               for _ in range(4)]
    statuses: list[PutMessageStatus] = []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert statuses == [PutMessageStatus.PUT_OK] * 200
    assert master.slave_fall_behind_much() == 0
    wait_for_same_logs(master, slave)


def test_slave_restarts_and_catches_up(stores):
    master = stores("master", BrokerRole.ASYNC_MASTER)
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.slave_count())
    for number in range(100):
        put(master, b"%d" % number * 100)
    wait_for_same_logs(master, slave)
    slave.shutdown()
    for number in range(300):
        put(master, b"%d" % number * 100)
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_for_same_logs(master, slave)


def test_slave_killed_within_a_record_catches_up(stores, tmp_path):
    """Recovery truncates the log after the last whole record; the stream resumes from there."""
    master = stores("master", BrokerRole.ASYNC_MASTER, haTransferBatchSize=1000)
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.slave_count())
    for number in range(20):
        put(master, b"%d" % number * 100)
    wait_for_same_logs(master, slave)
    slave.ha_service.shutdown()
    end = slave.get_max_phy_offset()
    put(master, b"cut" * 100)
    with master.get_commit_log_data(end) as result:
        record = bytes(result.buffer)
    assert slave.append_to_commit_log(end, record, 0, 150)
    shutil.copytree(tmp_path / "slave", tmp_path / "killed")
    assert slave.append_to_commit_log(end + 150, record, 150, len(record) - 150)
    killed = stores("killed", BrokerRole.SLAVE)
    assert killed.get_max_phy_offset() == end
    killed.update_ha_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")
    put(master, b"after")
    wait_for_same_logs(master, killed)


def test_promoted_slave_continues_with_the_next_offsets(stores):
    master = stores("master", BrokerRole.SYNC_MASTER)
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()))
    for number in range(10):
        assert put(master, b"%d" % number) is PutMessageStatus.PUT_OK
    master.shutdown()
    slave.shutdown()
    promoted = stores("slave", BrokerRole.ASYNC_MASTER)
    assert put(promoted, b"new") is PutMessageStatus.PUT_OK
    wait_until(lambda: promoted.get_max_offset_in_queue("T", 0) == 11)


def test_read_only_slave_never_acknowledges(stores):
    master = stores("master", BrokerRole.SYNC_MASTER, slaveTimeout=300)
    slave = stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()))
    slave.append_to_commit_log = lambda *_args: False
    assert put(master, b"x") in (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE)
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_slave_acknowledges_only_flushed_bytes(stores):
    master = stores("master", BrokerRole.SYNC_MASTER)
    slave = stores("slave", BrokerRole.SLAVE, master, haSlaveAckAfterFlush=True, flushIntervalCommitLog=600_000)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), 60_000)
    for number in range(300):
        assert put(master, b"%d" % number * 100) is PutMessageStatus.PUT_OK
        acknowledged = master.ha_service.push2_slave_max_offset.get()
        assert slave.commit_log.mapped_file_queue.flushed_where >= acknowledged == master.get_max_phy_offset()
    assert acknowledged > REAL_STORES_SEGMENT


def test_slave_whose_disk_fails_stops_acknowledging(stores, monkeypatch):
    master = stores("master", BrokerRole.SYNC_MASTER, slaveTimeout=500)
    slave = stores("slave", BrokerRole.SLAVE, master, haSlaveAckAfterFlush=True, flushIntervalCommitLog=600_000)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), 60_000)

    def fail(_least_pages):
        raise OSError(errno.EIO, "injected")
    monkeypatch.setattr(slave.commit_log.mapped_file_queue, "flush", fail)
    statuses = {put(master, b"x" * 100) for _ in range(3)}
    assert statuses <= {PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE}
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_put_awaited_within_a_round_does_not_wait_for_the_end_of_the_round(stores, monkeypatch):
    # The put must not wait for the writer's next poll either.
    monkeypatch.setattr("rmqha.store.ha.ha_connection._NO_DATA_WAIT_MS", 600_000)
    master = stores("master", BrokerRole.SYNC_MASTER)
    stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), 60_000)
    with Round():
        assert put(master, b"within") is PutMessageStatus.PUT_OK
