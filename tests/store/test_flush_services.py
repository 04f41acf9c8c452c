"""Flushing: the end of a put, a failing or slow disk, and the checkpoint."""
import errno
import os
import threading
from types import SimpleNamespace

import pytest

from rmqha.store import flush_consume_queue_service, flush_services, mapped_file
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.flush_disk_watcher import FlushDiskWatcher
from rmqha.store.flush_services import GroupCommitRequest, GroupCommitService
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from rmqha.store.store_checkpoint import CHECKPOINT_SIZE, StoreCheckpoint
from tests.store.support import message, new_store, open_store, put, tree, wait_dispatched
from tests.support.wait import lasting, wait_until

# Long enough that only a wake-up causes a flush.
IDLE_MS = 600_000
SYNC = {"flushDiskType": FlushDiskType.SYNC_FLUSH}


class Disk:
    """A wrapper of fdatasync that can wait or fail, and counts the calls for the log."""

    def __init__(self, monkeypatch):
        self.real, self.calls, self.error = mapped_file.os.fdatasync, 0, None
        self.ready = threading.Event()
        self.ready.set()
        monkeypatch.setattr(mapped_file.os, "fdatasync", self)

    def __call__(self, fd):
        self.calls += "/commitlog/" in os.readlink(f"/proc/self/fd/{fd}")
        self.ready.wait(240)
        if self.error is not None:
            raise self.error
        self.real(fd)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def test_synchronous_put_is_done_once_it_is_flushed(tmp_path, disk):
    with open_store(tmp_path, **SYNC) as store:
        disk.ready.clear()
        future = store.async_put_message(message())
        assert not future.is_done
        disk.ready.set()
        result = future.get(60_000)
        assert result.put_message_status is PutMessageStatus.PUT_OK
        assert store.commit_log.mapped_file_queue.flushed_where >= result.append_message_result.wrote_bytes


def test_pending_puts_are_flushed_together(tmp_path, disk):
    with open_store(tmp_path, **SYNC) as store:
        store.put_message(message())
        disk.ready.clear()
        futures = [store.async_put_message(message()) for _ in range(50)]
        before = disk.calls
        disk.ready.set()
        assert all(future.get(60_000).put_message_status is PutMessageStatus.PUT_OK for future in futures)
        assert disk.calls - before <= 10


def test_puts_over_several_files_are_flushed(tmp_path):
    with open_store(tmp_path, **SYNC) as store:
        futures = [store.async_put_message(message(body=b"x" * 3000)) for _ in range(30)]
        statuses = {future.get(60_000).put_message_status for future in futures}
        assert statuses <= {PutMessageStatus.PUT_OK}
        assert store.commit_log.remain_how_many_data_to_flush() == 0


def test_put_that_does_not_wait_is_done_at_once_and_still_flushed(tmp_path, disk):
    with open_store(tmp_path, **SYNC) as store:
        disk.ready.clear()
        msg = message()
        msg.wait_store_msg_ok = False
        assert store.async_put_message(msg).is_done
        disk.ready.set()
        wait_until(lambda: store.commit_log.remain_how_many_data_to_flush() == 0)


@pytest.fixture
def waits(monkeypatch):
    """Record the interval (ms) of each wait of a GroupCommitService; IDLE_MS means that nothing is left to flush."""
    monkeypatch.setattr(flush_services, "_IDLE_MS", IDLE_MS)
    waits, wait_for_running = [], GroupCommitService.wait_for_running

    def note(self, interval_ms):
        waits.append(interval_ms)
        wait_for_running(self, interval_ms)
    monkeypatch.setattr(GroupCommitService, "wait_for_running", note)
    return waits


def test_idle_service_waits_for_a_put(tmp_path, waits):
    with open_store(tmp_path, **SYNC) as store:
        wait_until(lambda: waits[-1:] == [IDLE_MS])
        store.put_message(message())
        wait_until(lambda: waits[-2:] == [10, IDLE_MS], what="one round after the put's")


def test_slave_gathers_bytes_before_it_flushes(tmp_path, disk, waits):
    with open_store(tmp_path / "master", **SYNC) as master:
        results = put(master, *(message() for _ in range(60)))
    end = results[-1].wrote_offset + results[-1].wrote_bytes
    data = (tmp_path / "master" / "commitlog" / f"{0:020}").read_bytes()[:end]
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, **SYNC) as slave:
        wait_until(lambda: waits[-1:] == [IDLE_MS])
        calls = disk.calls
        for result in results:
            assert slave.append_to_commit_log(result.wrote_offset, data, result.wrote_offset, result.wrote_bytes)
        wait_until(lambda: slave.commit_log.mapped_file_queue.flushed_where == end)
        assert disk.calls - calls < 40


def test_slow_disk_times_out_but_the_message_stays(tmp_path, disk):
    with open_store(tmp_path, syncFlushTimeout=200, **SYNC) as store:
        store.put_message(message())
        disk.ready.clear()
        with lasting(0.2):
            status = store.async_put_message(message()).get(60_000).put_message_status
        assert status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        disk.ready.set()
        wait_dispatched(store)
        assert store.get_max_offset_in_queue("T", 0) == 2


@pytest.mark.parametrize("flush_disk_type", list(FlushDiskType))
def test_no_put_is_acknowledged_after_a_failed_flush(tmp_path, disk, flush_disk_type):
    store = new_store(tmp_path, flushDiskType=flush_disk_type, flushIntervalCommitLog=10, flushCommitLogTimed=False,
                      flushCommitLogLeastPages=0)
    assert store.load()
    store.start()
    put(store, message())
    disk.error = OSError(errno.EIO, "Input/output error")
    first = store.put_message(message()).put_message_status
    assert first is (PutMessageStatus.FLUSH_DISK_TIMEOUT if flush_disk_type is FlushDiskType.SYNC_FLUSH
                     else PutMessageStatus.PUT_OK)
    wait_until(lambda: store.running_flags.is_flush_error, what="the failure is detected")
    # Like a kernel, which drops the pages and lets the next fsync succeed.
    disk.error = None
    calls = disk.calls
    for _ in range(3):
        assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.shutdown()
    # The checkpoint's own page, and the positions file beside it.
    assert disk.calls <= calls + 2
    assert (tmp_path / "abort").exists() and not store.shut_down_normal


def test_failed_flush_of_a_consume_queue_stops_puts(tmp_path, disk):
    store = new_store(tmp_path, flushIntervalCommitLog=60_000, flushIntervalConsumeQueue=10)
    assert store.load()
    store.start()
    put(store, *(message() for _ in range(60)))
    disk.error = OSError(errno.EIO, "Input/output error")
    # The first 60 may be flushed already: the next flush needs a full file or two pages.
    wait_until(lambda: store.put_message(message()) and store.running_flags.is_flush_error)
    disk.error = None
    assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.shutdown()


def test_asynchronous_flush_happens_automatically(tmp_path):
    with open_store(tmp_path, flushIntervalCommitLog=20, flushCommitLogThoroughInterval=40) as store:
        put(store, message())
        wait_until(lambda: store.commit_log.remain_how_many_data_to_flush() == 0)


def test_shutdown_flushes_everything_and_updates_the_checkpoint(tmp_path):
    with open_store(tmp_path, flushIntervalCommitLog=60_000, flushIntervalConsumeQueue=60_000) as store:
        last = put(store, *(message(body=b"x" * 1000, KEYS="k") for _ in range(50)))[-1]
        queue = store.commit_log.mapped_file_queue
    assert queue.flushed_where == last.wrote_offset + last.wrote_bytes
    checkpoint = StoreCheckpoint(str(tmp_path / "checkpoint"))
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == last.store_timestamp
    assert checkpoint.index_msg_timestamp == last.store_timestamp
    checkpoint.shutdown()


def test_checkpoint_never_covers_unflushed_bytes(tmp_path):
    with open_store(tmp_path, flushIntervalCommitLog=60_000, flushIntervalConsumeQueue=60_000) as store:
        put(store, *(message() for _ in range(20)))
        wait_dispatched(store)
        store.store_checkpoint.flush()
        assert (tmp_path / "checkpoint").read_bytes() == bytes(CHECKPOINT_SIZE)


def test_queues_are_dispatched_after_the_flush_if_configured(tmp_path, disk):
    with open_store(tmp_path, dispatchBehindFlush=True, **SYNC) as store:
        disk.ready.clear()
        future = store.async_put_message(message())
        assert not store.reput_message_service.wait_caught_up(1) or not store.get_max_offset_in_queue("T", 0)
        assert store.get_max_offset_in_queue("T", 0) == 0
        disk.ready.set()
        future.get(60_000)
        wait_until(lambda: store.get_max_offset_in_queue("T", 0) == 1)


# The watcher and the checkpoint alone.

def test_watcher_completes_overdue_requests_and_forgets_done_ones():
    watcher = FlushDiskWatcher()
    watcher.start()
    done, late = GroupCommitRequest(1, 60_000), GroupCommitRequest(1, 50)
    done.wakeup_customer(PutMessageStatus.PUT_OK)
    watcher.add(done)
    watcher.add(late)
    assert late.future.get(60_000) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    wait_until(lambda: watcher.queue_size() == 0)
    watcher.shutdown()


def test_checkpoint_is_a_page_with_three_times(tmp_path):
    path = tmp_path / "checkpoint"
    checkpoint = StoreCheckpoint(str(path))
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp = 10_000, 9_000, 1
    assert (checkpoint.get_min_timestamp(), checkpoint.get_min_timestamp_index()) == (6_000, 1)
    checkpoint.shutdown()
    checkpoint.shutdown()
    data = path.read_bytes()
    assert data[:24].hex() == "0000000000002710" "0000000000002328" "0000000000000001"
    assert len(data) == CHECKPOINT_SIZE and not any(data[24:])
    again = StoreCheckpoint(str(path))
    assert again.logics_msg_timestamp == 9_000
    again.logics_msg_timestamp = 100
    assert again.get_min_timestamp() == 0
    again.shutdown()


@pytest.mark.parametrize("content", [b"", b"\xff" * 10, b"\xff" * 4096, b"\xff" * 8192])
def test_any_checkpoint_file_opens(tmp_path, content):
    (tmp_path / "checkpoint").write_bytes(content)
    with open_store(tmp_path) as store:
        put(store, message())
    assert len(tree(tmp_path)["checkpoint"]) >= CHECKPOINT_SIZE


def test_checkpoint_waits_for_every_file_of_queues_and_index(tmp_path, monkeypatch):
    forced, force = [], MappedFile._force

    def note(self):
        force(self)
        forced.append(self.file_name)
    with open_store(tmp_path, flushIntervalCommitLog=60_000, flushIntervalConsumeQueue=60_000) as store:
        # The index files are never flushed in the background.
        store.index_service._flush_pool.submit = lambda *_: None
        put(store, *(message(KEYS=f"k{number}") for number in range(420)))
        wait_dispatched(store)
        monkeypatch.setattr(MappedFile, "_force", note)
        store.flush_consume_queue_service.do_flush(1)
        queue = store.consume_queue_table.find_queue("T", 0)
        written = [each.file_name for each in queue.mapped_file_queue.mapped_files]
        written += [each.file_name for each in store.index_service.index_file_list]
        assert len(written) >= 9 + 3 and sorted(forced) == sorted(written)
        assert store.store_checkpoint.logics_msg_timestamp == store.store_checkpoint.dispatched_timestamp
        forced.clear()
        store.flush_consume_queue_service.do_flush(3)
        # Full files are forced only once.
        assert forced == written[-1:]


def test_flush_visits_only_the_appended_queues(tmp_path, monkeypatch):
    """A thorough round visits all of them, and updates the checkpoint."""
    visited, flush = [], ConsumeQueue.flush

    def note(self, least_pages):
        visited.append(self.queue_id)
        return flush(self, least_pages)
    with open_store(tmp_path, flushIntervalConsumeQueue=IDLE_MS, flushConsumeQueueThoroughInterval=IDLE_MS) as store:
        service, config = store.flush_consume_queue_service, store.message_store_config
        put(store, *(message(queue_id=queue_id) for queue_id in range(50)))
        wait_dispatched(store)
        monkeypatch.setattr(ConsumeQueue, "flush", note)
        # The first round is a thorough one.
        service.do_flush(1)
        assert {*visited} == {*range(50)}
        # This round finds everything flushed.
        service.do_flush(1)
        visited.clear()
        service.do_flush(1)
        assert not visited
        put(store, message(queue_id=7))
        wait_dispatched(store)
        # Less than the least pages: the queue stays noted.
        for _ in range(3):
            service.do_flush(1)
        assert visited == [7, 7, 7]
        config.flushConsumeQueueLeastPages = 1
        put(store, *(message(queue_id=7) for _ in range(300)))
        wait_dispatched(store)
        queue = store.get_consume_queue("T", 7)
        visited.clear()
        for _ in range(20):
            service.do_flush(1)
        assert {*visited} == {7} and queue.mapped_file_queue.flushed_where > 0
        monkeypatch.setattr(ConsumeQueue, "flush", _no_descriptor)
        with pytest.raises(OSError, match="too many"):
            service.do_flush(1)
        monkeypatch.setattr(ConsumeQueue, "flush", note)
        visited.clear()
        put(store, message(queue_id=9))
        wait_dispatched(store)
        service.do_flush(1)
        assert {*visited} == {7, 9}, "a failed flush is retried"


def _no_descriptor(*_):
    raise OSError(errno.EMFILE, "too many open files")


def test_flush_concurrent_with_a_failing_one_does_not_succeed(tmp_path, disk):
    """Linux reports a failed write-back to one fsync only; a concurrent one would succeed."""
    with open_store(tmp_path, flushIntervalConsumeQueue=600_000, **SYNC) as store:
        disk.ready.clear()
        disk.calls = 0
        store.async_put_message(message())
        wait_until(lambda: disk.calls == 1, 60_000, "the service flushes")
        flushed: list[bool] = []
        beside = threading.Thread(target=lambda: flushed.append(store.flush_up_to(store.get_max_phy_offset())))
        beside.start()
        with pytest.raises(AssertionError):
            wait_until(lambda: disk.calls == 2, 200)
        disk.error = OSError(errno.EIO, "told once")
        disk.ready.set()
        beside.join(240)
        assert flushed == [False] and disk.calls == 1
        # At the end the checkpoint's own page is flushed.
        disk.error = None


@pytest.mark.parametrize("error", [RuntimeError("planted"), MemoryError(), SystemExit("planted")])
def test_flush_with_an_unexpected_error_acknowledges_nothing(tmp_path, disk, error):
    with open_store(tmp_path, **SYNC) as store:
        put(store, message())
        disk.error = error
        result = store.put_message(message())
        assert result.put_message_status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        disk.error = None
        assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert store.commit_log.flush_commit_log_service.is_alive()
    assert not store.shut_down_normal


def test_failed_group_commit_completes_its_requests(tmp_path, monkeypatch):
    with open_store(tmp_path, **SYNC) as store:
        service = store.commit_log.flush_commit_log_service
        real = service._complete

        def fail_once(request):
            monkeypatch.setattr(service, "_complete", real)
            raise RuntimeError("planted")

        monkeypatch.setattr(service, "_complete", fail_once)
        assert store.put_message(message()).put_message_status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        put(store, message())


@pytest.mark.parametrize("name", ["flush_commit_log_service", "flush_consume_queue_service"])
def test_store_whose_flush_service_fails_keeps_its_abort_file(tmp_path, monkeypatch, name):
    with open_store(tmp_path, **SYNC) as store:
        service = getattr(store, name, None) or getattr(store.commit_log, name)

        def broken(*_args):
            raise RuntimeError("planted")

        put(store, message())
        monkeypatch.setattr(service, "_swap_requests" if name == "flush_commit_log_service" else "do_flush", broken)
    assert service.failure is not None and not store.shut_down_normal
    assert (tmp_path / "abort").exists()


def test_a_thorough_round_comes_at_once_on_a_freshly_booted_machine(tmp_path, monkeypatch):
    """After a boot, the monotonic clock is smaller than the interval."""
    with open_store(tmp_path, flushIntervalConsumeQueue=IDLE_MS, flushConsumeQueueThoroughInterval=IDLE_MS) as store:
        put(store, message())
        wait_dispatched(store)
        monkeypatch.setattr(flush_consume_queue_service, "time", SimpleNamespace(monotonic=lambda: 1.5))
        assert store.store_checkpoint.logics_msg_timestamp == 0
        store.flush_consume_queue_service.do_flush(1)
        assert store.store_checkpoint.logics_msg_timestamp > 0
