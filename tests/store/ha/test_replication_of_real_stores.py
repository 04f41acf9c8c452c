"""Two real stores in one process: what the slave's files hold is what the master's hold."""
import errno
import shutil
import threading

import pytest

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Round
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.ha import ha_client
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.results import PutMessageStatus
from tests.support.wait import wait_until

SEGMENT = 64 * 1024


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)


def make_store(root, role: BrokerRole, **keys) -> DefaultMessageStore:
    config = MessageStoreConfig()
    values = {"storePathRootDir": str(root), "storePathCommitLog": f"{root}/commitlog", "haListenPort": 0,
              "mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20 * 1000, "maxHashSlotNum": 100,
              "maxIndexNum": 400, "brokerRole": role, "slaveTimeout": 60_000, **keys}
    for key, value in values.items():
        assert hasattr(config, key), key
        setattr(config, key, value)
    broker_id = 1 if role is BrokerRole.SLAVE else 0  # a slave waits at a record that is not whole yet
    return DefaultMessageStore(config, None, None, BrokerConfig(brokerId=broker_id))


@pytest.fixture
def stores(tmp_path):
    """start(name, role) -> a running store in its folder; all are shut down at the end."""
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
    assert master.get_max_phy_offset() > 2 * SEGMENT
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


def test_slave_that_is_killed_within_a_record_catches_up(stores, tmp_path):
    """Recovery cuts the log behind the last whole record; the stream goes on from there."""
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


def test_promoted_slave_goes_on_with_the_next_offsets(stores):
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


def test_slave_acknowledges_what_is_on_its_disk(stores):
    master = stores("master", BrokerRole.SYNC_MASTER)
    slave = stores("slave", BrokerRole.SLAVE, master, haSlaveAckAfterFlush=True, flushIntervalCommitLog=600_000)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), 60_000)
    for number in range(300):
        assert put(master, b"%d" % number * 100) is PutMessageStatus.PUT_OK
        acknowledged = master.ha_service.push2_slave_max_offset.get()
        assert slave.commit_log.mapped_file_queue.flushed_where >= acknowledged == master.get_max_phy_offset()
    assert acknowledged > SEGMENT


def test_slave_whose_disk_fails_acknowledges_nothing_any_more(stores, monkeypatch):
    master = stores("master", BrokerRole.SYNC_MASTER, slaveTimeout=500)
    slave = stores("slave", BrokerRole.SLAVE, master, haSlaveAckAfterFlush=True, flushIntervalCommitLog=600_000)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), 60_000)

    def fail(_least_pages):
        raise OSError(errno.EIO, "injected")
    monkeypatch.setattr(slave.commit_log.mapped_file_queue, "flush", fail)
    statuses = {put(master, b"x" * 100) for _ in range(3)}
    assert statuses <= {PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE}
    assert master.ha_service.push2_slave_max_offset.get() == 0


def test_put_that_is_waited_for_within_a_round_does_not_wait_for_its_end(stores, monkeypatch):
    monkeypatch.setattr("rmqha.store.ha.ha_connection._NO_DATA_WAIT_MS", 600_000)  # nor for the writer's next look
    master = stores("master", BrokerRole.SYNC_MASTER)
    stores("slave", BrokerRole.SLAVE, master)
    wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), 60_000)
    with Round():
        assert put(master, b"within") is PutMessageStatus.PUT_OK
