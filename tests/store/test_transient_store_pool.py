"""Writing through a pool of off-heap buffers: readable messages, the bytes on the disk, and a bad disk."""
import errno
import os
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from rmqha.store import commit_log, mapped_file
from rmqha.store.mapped_memory import TransientStorePool
from rmqha.store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmqha.store.results import PutMessageStatus
from tests.store.support import FILE_SIZE, batch, bodies, message, open_store, put, tree, wait_dispatched
from tests.support import store_compare
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

POOL = {"transientStorePoolEnable": True, "transientStorePoolSize": 3, "commitIntervalCommitLog": 20}
NEVER = 1 << 30
# Settings with which nothing is committed automatically.
HELD = {**POOL, "commitIntervalCommitLog": NEVER, "commitCommitLogThoroughInterval": NEVER,
        "commitCommitLogLeastPages": NEVER}


@contextmanager
def held_store(root, **keys):
    """Open a store that commits only on request, by `flush` or `commit_all`."""
    with open_store(root, **HELD, **keys) as store:
        store.commit_log.commit_log_service.shutdown()
        yield store


@pytest.fixture
def held(tmp_path):
    """A store that commits only on request."""
    with held_store(tmp_path / "store") as store:
        yield store


def commit_all(store) -> None:
    """Commit all write buffers."""
    while not store.commit_log.mapped_file_queue.commit(0):
        continue
    store.on_appended()


def wait_stored(store, count: int, topic: str = "T") -> None:
    wait_until(lambda: store.get_max_offset_in_queue(topic, 0) == count, 60_000, f"{count} messages in the queue")


def test_message_is_readable_once_it_is_committed(held):
    result = put(held, message())[0]
    assert held.get_max_phy_offset() == 0
    assert held.commit_log.remain_how_many_data_to_commit() == result.wrote_bytes
    assert held.commit_log.mapped_file_queue.get_max_wrote_position() == result.wrote_bytes
    assert held.look_message_by_offset(0) is None
    held.flush()
    assert held.commit_log.remain_how_many_data_to_commit() == 0
    assert held.get_max_phy_offset() == held.commit_log.mapped_file_queue.flushed_where == result.wrote_bytes
    wait_stored(held, 1)
    assert held.look_message_by_offset(0).body == b"b" * 100


def test_flush_covers_only_the_committed_bytes(held):
    first = put(held, message())[0]
    queue = held.commit_log.mapped_file_queue
    assert not queue.commit(0)
    put(held, message())
    queue.flush(0)
    assert queue.flushed_where == queue.mapped_files[0].flushed_position == first.wrote_bytes
    assert held.commit_log.remain_how_many_data_to_flush() == 0


def test_commits_happen_automatically_over_many_files(tmp_path):
    with open_store(tmp_path, **POOL) as store:
        put(store, *(message(body=b"%04d" % number * 50) for number in range(400)))
        wait_stored(store, 400)
        assert bodies(store) == [b"%04d" % number * 50 for number in range(400)]
        wait_until(lambda: store.commit_log.remain_how_many_data_to_commit() == 0, 60_000)
        assert len(store.commit_log.mapped_file_queue.mapped_files) > 2 * POOL["transientStorePoolSize"]
    assert store_compare.check_consume_queues(tmp_path) == 400


def test_files_are_identical_with_and_without_a_pool(tmp_path, monkeypatch):
    now = [1_600_000_000_000]
    monkeypatch.setattr(commit_log, "current_time_millis", lambda: now[0])
    written = {}
    for name, keys in (("pool", POOL), ("plain", {})):
        with open_store(tmp_path / name, **keys) as store:
            for number in range(150):
                now[0] = 1_600_000_000_000 + number
                put(store, message(body=b"%04d" % number * (number * 7 % 300), KEYS=f"k{number}"))
                if number % 20 == 0:
                    assert store.put_messages(batch([b"in a batch"] * 5)).is_ok
            wait_dispatched(store)
            wait_until(lambda store=store: store.commit_log.remain_how_many_data_to_commit() == 0, 60_000)
        written[name] = {path: data for path, data in tree(tmp_path / name).items()
                         if path.startswith(("commitlog/", "consumequeue/"))}
    assert len(written["plain"]) > 8
    assert written["pool"] == written["plain"]


def test_shutdown_commits_pending_bytes(tmp_path):
    with open_store(tmp_path, **HELD) as store:
        put(store, *(message(body=b"%04d" % number) for number in range(20)))
    assert store.shut_down_normal
    with open_store(tmp_path) as store:
        assert bodies(store) == [b"%04d" % number for number in range(20)]


def test_store_continues_after_the_end_of_an_existing_file(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message(body=b"before"))
    with open_store(tmp_path, **POOL) as store:
        assert store.commit_log.mapped_file_queue.mapped_files[0].write_buffer is None
        put(store, *(message(body=b"%04d" % number * 40) for number in range(200)))
        wait_stored(store, 201)
        assert store.commit_log.mapped_file_queue.mapped_files[-1].write_buffer is not None
    with open_store(tmp_path) as store:
        assert bodies(store)[0] == b"before" and len(bodies(store)) == 201


@pytest.mark.parametrize("keys", [{"brokerRole": BrokerRole.SLAVE}, {"flushDiskType": FlushDiskType.SYNC_FLUSH},
                                  {"transientStorePoolEnable": False}])
def test_pool_is_used_only_by_masters_that_flush_asynchronously(tmp_path, keys):
    with open_store(tmp_path, **{**POOL, **keys}) as store:
        assert not store.transient_store_pool.is_in_use
        assert store.remain_transient_store_buffer_numbs() == (1 << 31) - 1
        assert not store.is_transient_store_pool_deficient()
        assert not store.commit_log.commit_log_service.is_alive()


def test_files_borrow_their_buffers_from_the_pool_and_return_them(held):
    assert held.remain_transient_store_buffer_numbs() == 3
    put(held, message())
    wait_until(lambda: held.remain_transient_store_buffer_numbs() == 1, 60_000, "one in use, one in stock")
    while len(held.commit_log.mapped_file_queue.mapped_files) < 2:
        put(held, message(body=b"x" * 2000))
    wait_until(held.is_transient_store_pool_deficient, 60_000)
    held.flush()
    assert held.remain_transient_store_buffer_numbs() == 1
    assert not held.is_transient_store_pool_deficient()


def test_file_without_a_buffer_is_written_directly(held):
    bodies_put = [b"%04d" % number * 200 for number in range(150)]
    put(held, *(message(body=body) for body in bodies_put))
    files = held.commit_log.mapped_file_queue.mapped_files
    with_buffers = [file.write_buffer is not None for file in files]
    assert with_buffers[:4] == [True, True, True, False] and not any(with_buffers[4:])
    commit_all(held)
    wait_stored(held, 150)
    assert bodies(held) == bodies_put


def test_fast_failure_refuses_when_no_buffer_is_left(tmp_path):
    with held_store(tmp_path, fastFailIfNoBufferInStorePool=True) as store:
        statuses = Counter(store.put_message(message(body=b"x" * 2000)).put_message_status for _ in range(60))
        assert set(statuses) == {PutMessageStatus.PUT_OK, PutMessageStatus.CREATE_MAPEDFILE_FAILED}
        commit_all(store)
        put(store, message())
        commit_all(store)
    with open_store(tmp_path) as again:
        assert len(bodies(again)) == statuses[PutMessageStatus.PUT_OK] + 1


def test_shutdown_releases_buffers_and_descriptors(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with open_store(tmp_path, **HELD) as store:
        put(store, *(message(body=b"x" * 2000) for _ in range(20)))
        assert store.transient_store_pool.is_in_use
    assert not store.transient_store_pool.is_in_use
    assert len(os.listdir("/proc/self/fd")) <= before


def test_buffers_are_locked_in_memory_and_allocated_once():
    pool = TransientStorePool(MessageStoreConfig(mappedFileSizeCommitLog=1 << 16, transientStorePoolSize=2))
    assert pool.available_buffer_nums() == (1 << 31) - 1 and pool.borrow_buffer() is None
    locked = locked_kib()
    pool.init()
    pool.init()
    assert pool.available_buffer_nums() == 2
    # 0 if this user may not lock memory.
    assert locked_kib() - locked in (0, 128)
    buffer = pool.borrow_buffer()
    buffer[:2] = b"xy"
    pool.return_buffer(buffer)
    again = pool.borrow_buffer()
    assert again is buffer and bytes(again[:2]) == b"xy"
    pool.return_buffer(again)
    pool.destroy()
    pool.destroy()
    assert locked_kib() == locked


def locked_kib() -> int:
    """Return the locked memory of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck:"))


# A bad disk.

class Writes:
    """A pwrite that fails while `error` is set."""

    def __init__(self, monkeypatch):
        self.real, self.error, self.failed = os.pwrite, None, 0
        monkeypatch.setattr(mapped_file.os, "pwrite", self)

    def __call__(self, fd, data, position):
        if self.error is not None:
            self.failed += 1
            raise self.error
        return self.real(fd, data, position)


@pytest.fixture
def writes(monkeypatch):
    return Writes(monkeypatch)


def test_short_writes_are_continued(tmp_path, writes):
    real = writes.real
    writes.real = lambda fd, data, position: real(fd, data[:max(1, len(data) // 3)], position)
    with open_store(tmp_path, **POOL) as store:
        put(store, *(message(body=b"%04d" % number * 60) for number in range(100)))
        wait_stored(store, 100)
        assert bodies(store) == [b"%04d" % number * 60 for number in range(100)]


def test_half_written_record_is_not_readable(held, writes):
    first = put(held, message(body=b"before"))[0]
    commit_all(held)
    wait_stored(held, 1)
    real = writes.real

    def half(fd, data, position):
        writes.real, writes.error = real, OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:len(data) // 2], position)

    writes.real = half
    put(held, message(body=b"waits"))
    with pytest.raises(OSError, match="No space"):
        held.commit_log.mapped_file_queue.commit(0)
    assert held.get_max_phy_offset() == first.wrote_bytes
    held.on_appended()
    assert held.reput_message_service.wait_caught_up(10_000)
    assert held.reput_message_service.reput_from_offset == first.wrote_bytes
    writes.error = None
    commit_all(held)
    wait_stored(held, 2)
    assert bodies(held) == [b"before", b"waits"]


def test_commit_during_a_truncation_restores_nothing(held, writes):
    first = put(held, message(body=b"stays"))[0]
    commit_all(held)
    wait_stored(held, 1)
    put(held, message(body=b"goes"))
    queue, real = held.commit_log.mapped_file_queue, writes.real
    truncating = threading.Thread(target=queue.reset_offset, args=(first.wrote_bytes,))

    def beside(fd, data, position):
        truncating.start()
        truncating.join(0.2)
        return real(fd, data, position)

    writes.real = beside
    queue.commit(0)
    truncating.join()
    assert queue.get_max_offset() == queue.get_max_wrote_position() == first.wrote_bytes


def test_full_disk_at_a_commit_refuses_puts_and_loses_nothing(tmp_path, writes):
    with open_store(tmp_path, **POOL) as store:
        put(store, message(body=b"before"))
        wait_stored(store, 1)
        writes.error = OSError(errno.ENOSPC, "No space left on device")
        put(store, message(body=b"waits"))
        wait_until(lambda: not store.running_flags.is_writeable, 60_000, "the full disk is detected")
        assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert bodies(store) == [b"before"]
        writes.error = None
        wait_stored(store, 2)
        wait_until(lambda: store.put_message(message(body=b"after")).is_ok, 60_000, "puts are accepted again")
        wait_stored(store, 3)
        assert bodies(store) == [b"before", b"waits", b"after"]


def test_no_put_is_acknowledged_after_a_failed_commit(tmp_path, writes):
    with open_store(tmp_path, **POOL) as store:
        put(store, message(body=b"good"))
        wait_stored(store, 1)
        writes.error = OSError(errno.EIO, "Input/output error")
        put(store, message(body=b"lost"))
        wait_until(lambda: store.running_flags.is_flush_error, 60_000, "the failure is detected")
        for _ in range(3):
            assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert writes.failed and not store.shut_down_normal and (tmp_path / "abort").exists()
    writes.error = None
    with open_store(tmp_path, **POOL) as again:
        assert bodies(again) == [b"good"]
        put(again, message(body=b"next"))
        wait_stored(again, 2)


def test_no_put_is_acknowledged_after_a_failed_fsync_of_committed_bytes(tmp_path, monkeypatch):
    real, failing = os.fdatasync, []

    def fdatasync(fd):
        if failing and f"{os.sep}commitlog{os.sep}" in os.readlink(f"/proc/self/fd/{fd}"):
            failing.clear()
            raise OSError(errno.EIO, "Input/output error")
        real(fd)
    monkeypatch.setattr(mapped_file.os, "fdatasync", fdatasync)
    with open_store(tmp_path, **POOL, flushIntervalCommitLog=10, flushCommitLogLeastPages=0) as store:
        put(store, message())
        wait_stored(store, 1)
        failing.append(True)
        put(store, message())
        wait_until(lambda: store.running_flags.is_flush_error, 60_000, "the failure is detected")
        flushed = store.commit_log.mapped_file_queue.flushed_where
        assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert not failing and store.commit_log.mapped_file_queue.flushed_where == flushed
    assert (tmp_path / "abort").exists()


def test_killed_broker_keeps_a_prefix_of_the_acknowledged_messages(nodes, tmp_path):
    broker = BrokerNode("rmqha", tmp_path, None, mappedFileSizeCommitLog=FILE_SIZE * 4,
                        **{**POOL, "transientStorePoolEnable": "true"})
    nodes.append(broker)
    acknowledged = first = 0
    for _ in range(2):
        broker.start()
        with RawClient(broker.address) as client:
            assert first <= client.max_offset("T", 0) <= acknowledged
            first = client.max_offset("T", 0)
            for number in range(first, first + 300):
                answer = client.send_message("T", b"%06d" % number * 30)
                assert (answer.code, answer.fields["queueOffset"]) == (0, str(number))
            acknowledged = first + 300
            broker.kill()
    broker.start()
    with RawClient(broker.address) as client:
        kept = client.max_offset("T", 0)
    broker.stop()
    assert first <= kept <= acknowledged
    records = list(store_compare.walk(broker.commit_log))
    assert [record.body for record in records] == [b"%06d" % number * 30 for number in range(kept)]
    assert store_compare.check_consume_queues(broker.store) == kept


# A slave that was a master, and still writes through a buffer.

@contextmanager
def slave_with_a_buffer(root, **keys):
    """Open a held store with one partly committed message that then becomes a slave, and its master's log."""
    with open_store(root / "master") as master, held_store(root / "slave", **keys) as store:
        results = put(master, *(message(body=b"%02d" % number * 50) for number in range(9)))
        wait_dispatched(master)
        data = (root / "master" / "commitlog" / f"{0:020}").read_bytes()
        put(store, message(body=b"00" * 50))
        store.role.take(BrokerRole.SLAVE)
        yield store, data, results


@pytest.mark.parametrize("written", [0, 40, 150])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ENOMEM])
def test_piece_whose_commit_fails_is_removed_and_accepted_again(tmp_path, monkeypatch, number, written):
    """`written` is the number of bytes of the piece that reach the file before its write fails."""
    with slave_with_a_buffer(tmp_path) as (store, data, results):
        real, failing = os.pwrite, []

        def pwrite(fd, piece, offset):
            # The other writes put zeros over the failed piece.
            if failing and any(piece):
                left = failing.pop()
                if left:
                    failing.append(0)
                    return real(fd, bytes(piece)[:left], offset)
                raise OSError(number, os.strerror(number))
            return real(fd, piece, offset)
        monkeypatch.setattr(os, "pwrite", pwrite)
        queue, end = store.commit_log.mapped_file_queue, results[0].wrote_bytes
        commit_all(store)
        first = results[1]
        failing.append(written)
        assert not store.append_to_commit_log(end, data, end, first.wrote_bytes * 2)
        assert not failing
        assert queue.get_max_wrote_position() == queue.get_max_offset() == end == queue.committed_where
        file = tmp_path / "slave" / "commitlog" / f"{0:020}"
        assert not any(file.read_bytes()[end:]), "bytes after the end are not zero"
        # The log comes again in other pieces.
        for result in results[1:]:
            assert store.append_to_commit_log(result.wrote_offset, data, result.wrote_offset, result.wrote_bytes)
        assert queue.get_max_wrote_position() == queue.get_max_offset() == results[-1].wrote_offset + end
        assert file.read_bytes()[end:results[-1].wrote_offset + end] == data[end:results[-1].wrote_offset + end]


def test_piece_that_another_thread_commits_after_the_failure_is_kept(tmp_path, monkeypatch):
    with slave_with_a_buffer(tmp_path) as (store, data, results):
        commit_all(store)
        queue, end, size = store.commit_log.mapped_file_queue, results[0].wrote_bytes, results[1].wrote_bytes
        real, calls = queue.commit, []

        def commit(pages):
            calls.append(pages)
            assert not real(pages)
            raise OSError(errno.EIO, "Input/output error")
        monkeypatch.setattr(queue, "commit", commit)
        assert store.append_to_commit_log(end, data, end, size) and calls
        assert queue.get_max_wrote_position() == queue.get_max_offset() == end + size


def test_log_truncated_after_the_committed_bytes_still_commits_the_rest(held):
    first, second, third = put(held, message(body=b"a"), message(body=b"b"), message(body=b"c"))
    queue = held.commit_log.mapped_file_queue
    assert held.commit_log.reset_offset(third.wrote_offset)
    assert queue.get_max_wrote_position() == third.wrote_offset and queue.get_max_offset() == 0
    held.flush()
    wait_stored(held, 2)
    assert bodies(held) == [b"a", b"b"]
