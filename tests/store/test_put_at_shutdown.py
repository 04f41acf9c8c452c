"""A put in the midst of a shutdown: it is on the disk when it is acknowledged, and it never hangs."""
import threading
from contextlib import contextmanager

import pytest

from rmqha.store.append import MessageRow
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from tests.store.support import bodies, message, new_store, open_store, put, wait_dispatched
from tests.support.wait import wait_until

STORE_HOST = bytes((127, 0, 0, 1, 0, 0, 0x2a, 0x9f))
FLUSHES = pytest.mark.parametrize("keys", [
    {"flushDiskType": FlushDiskType.SYNC_FLUSH}, {"flushDiskType": FlushDiskType.ASYNC_FLUSH},
    {"transientStorePoolEnable": True, "transientStorePoolSize": 3}], ids=["sync", "async", "pool"])


class Gate:
    """Stands in a method's place: its callers wait in front of it until it is opened."""

    def __init__(self, monkeypatch, owner: object, name: str) -> None:
        self._real = getattr(owner, name)
        self.reached, self.opened = threading.Event(), threading.Event()
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *args, **kwargs):
        self.reached.set()
        assert self.opened.wait(240)
        return self._real(*args, **kwargs)


@contextmanager
def thread(target):
    """`target` on a thread of its own; its result is the list's only item at the end."""
    results = []
    runner = threading.Thread(target=lambda: results.append(target()))
    runner.start()
    try:
        yield results
    finally:
        runner.join(240)
        assert not runner.is_alive(), "it hangs"


def started(folder, **keys):
    store = new_store(folder, **keys)
    assert store.load()
    store.start()
    return store


def _put_row(store):
    tail = b"\1T\0\0"
    send = MessageRow("T", 0, "T-0", MessageRow.record_size(4, len(tail)), 1, 0, 0, 1_700_000_000_000,
                     bytes((10, 0, 0, 1, 0, 0, 0, 80)), 0, b"late", tail)
    return store.put_rows([send], STORE_HOST)


def reopened_bodies(folder, keys) -> list[bytes]:
    with open_store(folder, **keys) as store:
        wait_dispatched(store)
        return bodies(store)


@FLUSHES
def test_put_that_was_checked_before_a_shutdown_is_refused_behind_it(tmp_path, monkeypatch, keys):
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log.message_ext_encoder, "encode")
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        store.shutdown()
        assert store.shut_down_normal
        gate.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert reopened_bodies(tmp_path, keys) == [b"first"]


@FLUSHES
def test_put_that_was_checked_before_a_shutdown_is_refused_while_it_flushes(tmp_path, monkeypatch, keys):
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log.message_ext_encoder, "encode")
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        end = Gate(monkeypatch, store.reput_message_service, "shutdown")  # the flush thread is at its end then
        with thread(store.shutdown):
            assert end.reached.wait(240)
            gate.opened.set()
            wait_until(lambda: results)
            end.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert store.shut_down_normal and reopened_bodies(tmp_path, keys) == [b"first"]


def test_row_that_was_checked_before_a_shutdown_is_refused_behind_it(tmp_path, monkeypatch):
    store = started(tmp_path)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log, "put_rows")
    with thread(lambda: _put_row(store)) as results:
        assert gate.reached.wait(240)
        store.shutdown()
        gate.opened.set()
    assert results == [None]  # whoever puts it singly gets the reason
    assert reopened_bodies(tmp_path, {}) == [b"first"]


@FLUSHES
def test_put_that_is_in_the_log_before_a_shutdown_is_acknowledged_and_there(tmp_path, monkeypatch, keys):
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log, "when_safe")
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        store.shutdown()
        gate.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.PUT_OK]
    assert reopened_bodies(tmp_path, keys) == [b"first", b"late"]


def test_put_behind_a_flush_that_failed_at_the_end_is_not_acknowledged(tmp_path, monkeypatch):
    keys = {"flushDiskType": FlushDiskType.SYNC_FLUSH}
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log, "when_safe")
    flushes = Gate(monkeypatch, store.commit_log.flush_commit_log_service, "flush")  # none brings it to the disk before
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        store.running_flags.make_flush_error()
        flushes.opened.set()
        store.shutdown()
        gate.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.FLUSH_DISK_TIMEOUT]
    assert not store.shut_down_normal


def test_replicated_put_in_a_shutdown_is_answered(tmp_path, monkeypatch):
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        master = started(tmp_path / "master", brokerRole=BrokerRole.SYNC_MASTER)
        slave.update_ha_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")
        wait_until(lambda: master.ha_service.slave_count() == 1)
        put(master, message(body=b"first"))
        request = GroupCommitRequest(1 << 40, 60_000)
        master.ha_service.put_request(request)  # waits for a slave when the shutdown comes
        gate = Gate(monkeypatch, master.commit_log, "submit_replica_request")
        with thread(lambda: master.put_message(message(body=b"late"))) as results:
            assert gate.reached.wait(240)
            master.shutdown()
            gate.opened.set()
        assert request.get(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert results[0].put_message_status in (PutMessageStatus.PUT_OK, PutMessageStatus.SLAVE_NOT_AVAILABLE,
                                                 PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


def test_requests_left_at_the_watchers_end_time_out(tmp_path):
    with open_store(tmp_path) as store:
        request = GroupCommitRequest(1 << 40, 60_000)
        store.commit_log.flush_disk_watcher.add(request)
    assert request.get(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT
