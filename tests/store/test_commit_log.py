"""Putting into the commit log: refused puts, the layout, acknowledgements, and puts during a shutdown."""
import errno
import threading
from contextlib import contextmanager

import pytest

from rmqha.common import sys_flags
from rmqha.common.message import message_layout
from rmqha.common.util_all import current_time_millis
from rmqha.store import append, mapped_file
from rmqha.store import commit_log as module
from rmqha.store.append import MessageRow
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from tests.store.support import FILE_SIZE, batch, bodies, message, new_store, open_store, put, wait_dispatched
from tests.support.wait import wait_until

# Putting into the commit log: refused puts, the layout, and acknowledgements.


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path, maxMessageSize=4000) as opened:
        yield opened


def status(store, msg):
    return store.put_message(msg).put_message_status


def heads(store):
    """Return (offset, size, magic) of everything in the log, blanks included."""
    found, offset, end = [], store.get_min_phy_offset(), store.get_max_phy_offset()
    while offset < end:
        with store.get_commit_log_data(offset) as data:
            size, magic = message_layout.BLANK.unpack_from(data.buffer)
        found.append((offset, size, magic))
        offset += size
    return found


def test_message_is_stored_with_offsets_and_id(store):
    first, second = put(store, message(body=b"one"), message(body=b"two", TAGS="a", KEYS="k"))
    assert (first.wrote_offset, first.logics_offset, first.msg_num) == (0, 0, 1)
    assert (second.wrote_offset, second.logics_offset) == (first.wrote_bytes, 1)
    assert second.msg_id == f"7F00000100002A9F{first.wrote_bytes:016X}"
    stored = store.look_message_by_offset(second.wrote_offset)
    assert (stored.body, stored.tags, stored.keys, stored.queue_offset) == (b"two", "a", "k", 1)
    assert stored.store_timestamp == second.store_timestamp > 0
    assert stored.body_crc == message_layout.body_crc32(b"two")
    assert stored.store_host == ("127.0.0.1", 10911) and stored.born_host == ("10.1.2.3", 40000)


@pytest.mark.parametrize("body", [b"", b"x", memoryview(b"view"), bytearray(b"array"), b"y" * 4000])
def test_every_body_up_to_the_maximum_is_stored(store, body):
    put(store, message(body=body))
    wait_dispatched(store)
    assert bodies(store) == [bytes(body)]


def illegal():
    yield "body above the maximum", message(body=b"x" * 4001), "MESSAGE_ILLEGAL"
    yield "topic of 128", message("t" * 128), "MESSAGE_ILLEGAL"
    yield "topic of 100 times two bytes", message("\u00e4" * 100), "MESSAGE_ILLEGAL"
    yield "empty topic", message(""), "MESSAGE_ILLEGAL"
    yield "topic that leads out", message("../../etc"), "MESSAGE_ILLEGAL"
    yield "negative queue", message(queue_id=-1), "MESSAGE_ILLEGAL"
    yield "queue beyond 32 bits", message(queue_id=1 << 31), "MESSAGE_ILLEGAL"
    yield "long properties", message(a="x" * 32766), "MESSAGE_ILLEGAL"
    yield "long properties in bytes", message(a="\u00e4" * 17000), "PROPERTIES_SIZE_EXCEEDED"
    flag = message()
    flag.flag = 1 << 40
    yield "flag beyond 32 bits", flag, "MESSAGE_ILLEGAL"


@pytest.mark.parametrize("what, msg, expected", list(illegal()), ids=[what for what, _, _ in illegal()])
def test_illegal_message_is_refused_and_changes_nothing(store, what, msg, expected):
    put(store, message())
    end = store.get_max_phy_offset()
    assert status(store, msg) is PutMessageStatus[expected]
    assert store.get_max_phy_offset() == end
    assert put(store, message())[0].logics_offset == 1
    assert store.get_runtime_info()["putMessageFailedTimes"] == ("1" if "32 bits" in what or "bytes" in what
                                                                 or "body" in what else "0")


def test_longest_properties_are_stored(tmp_path):
    with open_store(tmp_path, mappedFileSizeCommitLog=65536) as store:
        text = "x" * (32767 - 2)
        result = put(store, message(a=text))[0]
        assert store.look_message_by_offset(result.wrote_offset).properties == {"a": text}


def test_maximum_can_change_at_run_time(store):
    assert status(store, message(body=b"x" * 5000)) is PutMessageStatus.MESSAGE_ILLEGAL
    store.message_store_config.maxMessageSize = 6000
    put(store, message(body=b"x" * 5000))
    store.message_store_config.maxMessageSize = 10
    assert status(store, message(body=b"x" * 11)) is PutMessageStatus.MESSAGE_ILLEGAL
    # A value below 10 is not applied.
    store.message_store_config.maxMessageSize = 9
    put(store, message(body=b"x" * 10))


def test_file_ends_with_a_blank_that_fills_it(store):
    size = put(store, message())[0].wrote_bytes
    put(store, *(message() for _ in range(200)))
    everything = heads(store)
    blanks = [(offset, length) for offset, length, magic in everything if magic == message_layout.BLANK_MAGIC_CODE]
    assert blanks and all((offset + length) % FILE_SIZE == 0 and 8 <= length < size + 8 for offset, length in blanks)
    assert all(length == size for _, length, magic in everything if magic == message_layout.MESSAGE_MAGIC_CODE)


def row(store, msg):
    return store.commit_log.message_ext_encoder.encode(msg)._replace(crc=message_layout.body_crc32(msg.body))


@pytest.mark.parametrize("lengths", [[100] * 90, [5, 3000, 700, 2000, 1, 1, 3900, 9, 1500] * 4])
def test_rows_at_the_end_of_a_file_continue_in_the_next_one_as_messages_do(tmp_path, lengths):
    logs = []
    for together in (False, True):
        with open_store(tmp_path / str(together)) as store:
            messages = [message(queue_id=number % 3, body=b"x" * length) for number, length in enumerate(lengths)]
            if together:
                rows, most = [row(store, msg) for msg in messages], []
                while rows:
                    context = store.put_rows(rows, messages[0].store_host_bytes)
                    assert context.rows == rows[:len(context.rows)] and len(context.queue_offsets) == len(context.rows)
                    most.append(len(context.rows))
                    del rows[:len(context.rows)]
                assert max(most) > 1 < len(most) < len(messages)
            else:
                put(store, *messages)
            wait_dispatched(store)
            logs.append((heads(store), [bodies(store, "T", queue_id) for queue_id in range(3)]))
    assert logs[0] == logs[1]


def test_message_too_large_for_any_file_closes_no_file(tmp_path):
    with open_store(tmp_path, maxMessageSize=4 * FILE_SIZE) as store:
        large = message(body=b"x" * FILE_SIZE)
        put(store, message())
        assert store.put_rows([row(store, large), row(store, message())], large.store_host_bytes) is None
        assert status(store, large) is PutMessageStatus.MESSAGE_ILLEGAL
        parts = [b"x" * (FILE_SIZE // 2)] * 3
        assert store.put_messages(batch(parts)).put_message_status is PutMessageStatus.MESSAGE_ILLEGAL
        put(store, message())
        assert len(heads(store)) == 2


@pytest.mark.parametrize("room", [8, 7])
def test_eight_bytes_are_always_left_for_the_blank(tmp_path, room):
    with open_store(tmp_path) as store:
        overhead = put(store, message(body=b""))[0].wrote_bytes
        put(store, message(body=b"x" * (FILE_SIZE - 2 * overhead - room)))
        wait_dispatched(store)
        end = store.get_max_phy_offset()
        assert end == (FILE_SIZE - 8 if room == 8 else FILE_SIZE + FILE_SIZE - overhead - 7)


def test_message_larger_than_a_file_is_refused_without_closing_files(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message())
        end = store.get_max_phy_offset()
        assert status(store, message(body=b"x" * FILE_SIZE)) is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.get_max_phy_offset() == end


def test_ipv6_hosts_set_their_flags(store):
    msg = message()
    msg.born_host, msg.store_host = ("2001:db8::1", 1), ("::1", 2)
    result = put(store, msg)[0]
    stored = store.look_message_by_offset(result.wrote_offset)
    assert stored.sys_flag & 0x30 == 0x30
    assert (stored.born_host, stored.store_host) == (("2001:db8::1", 1), ("::1", 2))
    assert len(result.msg_id) == 56


def test_mapped_ipv4_address_is_ipv4(store):
    msg = message()
    msg.born_host = ("::ffff:10.0.0.1", 5)
    stored = store.look_message_by_offset(put(store, msg)[0].wrote_offset)
    assert stored.born_host == ("10.0.0.1", 5) and not stored.sys_flag & 0x10


@pytest.mark.parametrize("flag, queued", [(sys_flags.TRANSACTION_PREPARED_TYPE, False),
                                          (sys_flags.TRANSACTION_ROLLBACK_TYPE, False),
                                          (sys_flags.TRANSACTION_COMMIT_TYPE, True)])
def test_prepared_and_rolled_back_messages_have_no_queue_offset(store, flag, queued):
    put(store, message(), message())
    msg = message()
    msg.sys_flag = flag
    result = put(store, msg)[0]
    assert result.logics_offset == (2 if queued else 0)
    assert put(store, message())[0].logics_offset == (3 if queued else 2)
    wait_dispatched(store)
    assert store.get_max_offset_in_queue("T", 0) == (4 if queued else 3)


def test_delayed_message_waits_in_the_queue_of_its_level(store):
    result = put(store, message(queue_id=3, DELAY="5", TAGS="x"))[0]
    stored = store.look_message_by_offset(result.wrote_offset)
    assert (stored.topic, stored.queue_id) == ("SCHEDULE_TOPIC_XXXX", 4)
    assert stored.properties == {"REAL_TOPIC": "T", "REAL_QID": "3", "DELAY": "5", "TAGS": "x"}
    wait_dispatched(store)
    unit = store.get_consume_queue("SCHEDULE_TOPIC_XXXX", 4).get_unit(0)
    assert unit[2] == result.store_timestamp + 60_000


def test_delay_level_above_the_last_is_the_last(store):
    stored = store.look_message_by_offset(put(store, message(DELAY="99"))[0].wrote_offset)
    assert (stored.queue_id, stored.properties["DELAY"]) == (17, "18")


def test_prepared_message_is_not_delayed(store):
    msg = message(DELAY="5")
    msg.sys_flag = sys_flags.TRANSACTION_PREPARED_TYPE
    assert store.look_message_by_offset(put(store, msg)[0].wrote_offset).topic == "T"


# Batches.

def test_batch_gets_consecutive_offsets_and_one_store_time(store):
    result = store.put_messages(batch([b"a", b"bb", b""], CLUSTER="c")).append_message_result
    assert (result.msg_num, result.logics_offset) == (3, 0)
    ids = result.msg_id.split(",")
    assert len(ids) == 3 and ids[0] == "7F00000100002A9F" + "0" * 16
    wait_dispatched(store)
    assert bodies(store) == [b"a", b"bb", b""]
    stored = store.look_message_by_offset(0)
    assert stored.properties == {"KEYS": "k", "CLUSTER": "c"}
    assert put(store, message())[0].logics_offset == 3


def test_batch_moves_whole_to_the_next_file(store):
    single = put(store, message())[0].wrote_bytes
    put(store, *(message() for _ in range((FILE_SIZE - 8) // single - 3)))
    before = store.get_max_phy_offset()
    assert before < FILE_SIZE - 2 * single
    result = store.put_messages(batch([b"b" * 100] * 8)).append_message_result
    assert result.wrote_offset == FILE_SIZE
    assert heads(store)[-9] == (before, FILE_SIZE - before, message_layout.BLANK_MAGIC_CODE)


def bad_batches():
    good = batch([b"a", b"b"])
    yield "empty", batch([]), "MESSAGE_ILLEGAL"
    for cut in (1, 19, 21, 25):
        bad = batch([b"a", b"b"])
        bad.body = good.body[:-cut]
        yield f"cut by {cut}", bad, "MESSAGE_ILLEGAL"
    lying = batch([b"a"])
    lying.body = message_layout.BATCH_HEAD.pack(0, 0, 0, 0, 1 << 30) + b"xx"
    yield "lying body length", lying, "MESSAGE_ILLEGAL"
    prepared = batch([b"a"])
    prepared.sys_flag = sys_flags.TRANSACTION_PREPARED_TYPE
    yield "prepared", prepared, "MESSAGE_ILLEGAL"
    yield "delayed", batch([b"a"], DELAY="3"), "MESSAGE_ILLEGAL"
    yield "above the maximum", batch([b"x" * 2000, b"y" * 2000]), "MESSAGE_ILLEGAL"
    yield "long properties", batch([b"a"], p="x" * 32768), "PROPERTIES_SIZE_EXCEEDED"


@pytest.mark.parametrize("what, bad, expected", list(bad_batches()), ids=[what for what, _, _ in bad_batches()])
def test_invalid_batch_is_refused_completely(store, what, bad, expected):
    put(store, message())
    end = store.get_max_phy_offset()
    assert store.put_messages(bad).put_message_status is PutMessageStatus[expected]
    assert store.get_max_phy_offset() == end
    assert put(store, message())[0].logics_offset == 1


def test_batch_of_too_many_messages_is_refused(store, monkeypatch):
    monkeypatch.setattr(append, "MAX_BATCH_MESSAGES", 3)
    assert store.put_messages(batch([b""] * 4)).put_message_status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put_messages(batch([b""] * 3)).append_message_result.msg_num == 3


def test_batch_too_large_with_its_common_properties_is_refused():
    encoder = append.MessageExtEncoder(10_000)
    assert len(encoder.encode_batch(batch([b"x"] * 4, p="x" * 30_000))) == 4
    refused = encoder.encode_batch(batch([b"x"] * 6, p="x" * 30_000))
    assert refused.put_message_status is PutMessageStatus.MESSAGE_ILLEGAL


# States of the store.

def test_store_that_is_not_running_accepts_nothing(tmp_path):
    store = new_store(tmp_path)
    assert status(store, message()) is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.load()
    assert status(store, message()) is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.start()
    put(store, message())
    store.shutdown()
    store.shutdown()
    assert status(store, message()) is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.get_message("g", "T", 0, 0, 1) is None


def test_slave_accepts_no_puts(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as store:
        assert status(store, message()) is PutMessageStatus.SERVICE_NOT_AVAILABLE


def test_busy_lock_refuses_puts(store):
    store.commit_log.begin_time_in_lock = current_time_millis() - 1500
    assert status(store, message()) is PutMessageStatus.OS_PAGECACHE_BUSY
    assert store.lock_time_mills() >= 1500
    store.commit_log.begin_time_in_lock = 0
    put(store, message())


def test_exception_in_the_lock_leaves_it_usable(store, monkeypatch):
    def fail(*_args):
        raise ZeroDivisionError

    monkeypatch.setattr(store.commit_log, "_write", fail)
    assert store.put_message(message()).put_message_status is PutMessageStatus.UNKNOWN_ERROR
    monkeypatch.undo()
    assert store.commit_log.begin_time_in_lock == 0
    put(store, message())


def test_append_that_fails_after_counting_uses_no_queue_offset(store):
    put(store, message())
    table = store.commit_log.topic_queue_table

    class FailsBehindTheCount(dict):
        def update(self, *args):
            super().update(*args)
            raise ZeroDivisionError

    store.commit_log.topic_queue_table = FailsBehindTheCount(table)
    for queue_id in (0, 1):
        assert store.put_message(message(queue_id=queue_id)).put_message_status is PutMessageStatus.UNKNOWN_ERROR
    store.commit_log.topic_queue_table = dict(store.commit_log.topic_queue_table)
    results = put(store, message(body=b"second"), message(queue_id=1, body=b"first"))
    assert [result.logics_offset for result in results] == [1, 0]
    wait_dispatched(store)
    assert bodies(store)[1] == b"second" and bodies(store, "T", 1) == [b"first"]


def test_append_that_fails_after_writing_stops_the_store(store, monkeypatch):
    put(store, message())
    real = store.commit_log._write

    def fail_at_the_end(*args):
        real(*args)
        raise ZeroDivisionError

    monkeypatch.setattr(store.commit_log, "_write", fail_at_the_end)
    assert store.put_message(message()).put_message_status is PutMessageStatus.UNKNOWN_ERROR
    monkeypatch.undo()
    assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert not store.running_flags.is_writeable


def test_full_disk_refuses_puts_until_there_is_room(store, monkeypatch):
    put(store, message(body=b"x" * 4000))

    def full(_fd, _offset, _length):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mapped_file.os, "posix_fallocate", full)
    statuses = []
    # Set by the dispatch, which runs beside the puts.
    while PutMessageStatus.SERVICE_NOT_AVAILABLE not in statuses:
        statuses.append(status(store, message(body=b"x" * 4000)))
        assert len(statuses) < 100_000
    assert status(store, message(body=b"x" * 4000)) is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert set(statuses) <= {PutMessageStatus.PUT_OK, PutMessageStatus.SERVICE_NOT_AVAILABLE,
                             PutMessageStatus.CREATE_MAPEDFILE_FAILED}
    monkeypatch.undo()
    store.clean_commit_log_service.is_space_full()
    count = 1 + statuses.count(PutMessageStatus.PUT_OK)
    put(store, message(body=b"last"))
    wait_dispatched(store)
    assert len(bodies(store)) == count + 1


def test_store_times_never_decrease_along_the_log(tmp_path):
    with open_store(tmp_path) as store:
        threads = [threading.Thread(target=put, args=(store, *(message("T", index) for _ in range(50))))
                   for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_dispatched(store)
        times = [request.store_timestamp for request in store.commit_log.walk_records(0, store.get_max_phy_offset())]
        assert len(times) == 200 and times == sorted(times)
        for index in range(4):
            assert store.get_max_offset_in_queue("T", index) == 50


# The slave's side.

def test_appended_pieces_of_a_masters_log_make_the_same_log(tmp_path):
    with open_store(tmp_path / "master") as master, \
            open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        put(master, *(message(body=bytes([index]) * (index * 3)) for index in range(150)))
        wait_dispatched(master)
        offset = 0
        while offset < master.get_max_phy_offset():
            with master.get_commit_log_data(offset) as data:
                piece = bytes(data.buffer[:777])
            assert slave.append_to_commit_log(offset, b"??" + piece, 2, len(piece))
            offset += len(piece)
        wait_dispatched(slave)
        assert bodies(slave) == bodies(master)
        assert slave.get_max_phy_offset() == master.get_max_phy_offset()
        assert slave.get_runtime_info()["putMessageTimesTotal"] == "150"
    for path in (tmp_path / "master" / "commitlog").iterdir():
        assert (tmp_path / "slave" / "commitlog" / path.name).read_bytes() == path.read_bytes()


def test_slave_log_starts_at_the_file_of_the_first_piece(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(3 * FILE_SIZE, b"x" * 10, 0, 10)
        assert (slave.get_min_phy_offset(), slave.get_max_phy_offset()) == (3 * FILE_SIZE, 3 * FILE_SIZE + 10)


@pytest.mark.parametrize("offset", [0, 9, 11, FILE_SIZE])
def test_piece_that_does_not_follow_is_refused(tmp_path, offset):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(0, b"x" * 10, 0, 10)
        assert not slave.append_to_commit_log(offset, b"y" * 10, 0, 10)
        assert slave.get_max_phy_offset() == 10


def test_piece_beyond_the_end_of_its_file_is_refused(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert not slave.append_to_commit_log(0, b"x" * (FILE_SIZE + 1), 0, FILE_SIZE + 1)
        assert slave.get_max_phy_offset() == 0


def test_failed_append_on_a_slave_is_reported(tmp_path, monkeypatch):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        def fail(_self, _data):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(mapped_file.MappedFile, "append_bytes", fail)
        assert not slave.append_to_commit_log(0, b"x", 0, 1)


# Several folders.

def test_log_over_two_folders_alternates_and_loads(tmp_path):
    folders = [str(tmp_path / name) for name in ("a", "b")]
    where = {"storePathCommitLog": ",".join(folders)}
    with open_store(tmp_path, **where) as store:
        put(store, *(message(body=b"x" * 1000) for _ in range(70)))
        end = store.get_max_phy_offset()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [f"{n * FILE_SIZE:020d}" for n in (0, 2, 4)]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [f"{n * FILE_SIZE:020d}" for n in (1, 3)]
    with open_store(tmp_path, **where) as store:
        assert store.get_max_phy_offset() == end
        store.commit_log.full_store_paths = frozenset([folders[1]])
        store.message_store_config.readOnlyCommitLogStorePaths = None
        put(store, *(message(body=b"x" * 1000) for _ in range(40)))
    assert f"{6 * FILE_SIZE:020d}" in {path.name for path in (tmp_path / "a").iterdir()}


def test_module_reexports_its_parts():
    for name in module.__all__:
        assert hasattr(module, name)


@pytest.mark.parametrize("pool", [False, True])
def test_log_is_truncated_by_at_most_two_files(tmp_path, pool):
    with open_store(tmp_path, transientStorePoolEnable=pool) as store:
        offsets = [put(store, message(body=b"%04d" % number * 100))[0].wrote_offset for number in range(150)]
        wait_until(lambda: store.get_max_offset_in_queue("T", 0) == 150, 60_000)
        end = store.commit_log.mapped_file_queue.get_max_wrote_position()
        files = len(store.commit_log.mapped_file_queue.mapped_files)
        assert not store.reset_write_offset(end - 2 * FILE_SIZE - 1)
        assert store.get_max_phy_offset() == end
        cut = next(offset for offset in offsets if offset >= end - FILE_SIZE - 500)
        assert store.reset_write_offset(cut)
        assert store.get_max_phy_offset() == cut and store.commit_log.remain_how_many_data_to_commit() == 0
        assert len(store.commit_log.mapped_file_queue.mapped_files) < files
        queue = store.commit_log.mapped_file_queue
        assert max(queue.flushed_where, queue.committed_where) <= cut
        assert put(store, message(body=b"again"))[0].wrote_offset == cut
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() > cut
        assert store.look_message_by_offset(cut).body == b"again"


# A put during a shutdown: it is on the disk when it is acknowledged, and it never hangs.

STORE_HOST = bytes((127, 0, 0, 1, 0, 0, 0x2a, 0x9f))
FLUSHES = pytest.mark.parametrize("keys", [
    {"flushDiskType": FlushDiskType.SYNC_FLUSH}, {"flushDiskType": FlushDiskType.ASYNC_FLUSH},
    {"transientStorePoolEnable": True, "transientStorePoolSize": 3}], ids=["sync", "async", "pool"])


class Gate:
    """A replacement for a method: its callers wait until it is opened."""

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
    """Run `target` on its own thread; at the end, its result is the list's only item."""
    results = []
    runner = threading.Thread(target=lambda: results.append(target()))
    runner.start()
    try:
        yield results
    finally:
        runner.join(240)
        assert not runner.is_alive(), "the thread hangs"


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
def test_put_checked_before_a_shutdown_is_refused_after_it(tmp_path, monkeypatch, keys):
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
def test_put_checked_before_a_shutdown_is_refused_while_it_flushes(tmp_path, monkeypatch, keys):
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log.message_ext_encoder, "encode")
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        # The flush thread has ended by then.
        end = Gate(monkeypatch, store.reput_message_service, "shutdown")
        with thread(store.shutdown):
            assert end.reached.wait(240)
            gate.opened.set()
            wait_until(lambda: results)
            end.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert store.shut_down_normal and reopened_bodies(tmp_path, keys) == [b"first"]


def test_row_checked_before_a_shutdown_is_refused_after_it(tmp_path, monkeypatch):
    store = started(tmp_path)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log, "put_rows")
    with thread(lambda: _put_row(store)) as results:
        assert gate.reached.wait(240)
        store.shutdown()
        gate.opened.set()
    # A single put of the row would return the reason.
    assert results == [None]
    assert reopened_bodies(tmp_path, {}) == [b"first"]


@FLUSHES
def test_put_appended_before_a_shutdown_is_acknowledged_and_stored(tmp_path, monkeypatch, keys):
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log, "when_safe")
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        store.shutdown()
        gate.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.PUT_OK]
    assert reopened_bodies(tmp_path, keys) == [b"first", b"late"]


def test_put_after_a_failed_final_flush_is_not_acknowledged(tmp_path, monkeypatch):
    keys = {"flushDiskType": FlushDiskType.SYNC_FLUSH}
    store = started(tmp_path, **keys)
    put(store, message(body=b"first"))
    gate = Gate(monkeypatch, store.commit_log, "when_safe")
    # No other flush writes it to the disk before.
    flushes = Gate(monkeypatch, store.commit_log.flush_commit_log_service, "flush")
    with thread(lambda: store.put_message(message(body=b"late"))) as results:
        assert gate.reached.wait(240)
        store.running_flags.make_flush_error()
        flushes.opened.set()
        store.shutdown()
        gate.opened.set()
    assert [result.put_message_status for result in results] == [PutMessageStatus.FLUSH_DISK_TIMEOUT]
    assert not store.shut_down_normal


def test_replicated_put_during_a_shutdown_is_answered(tmp_path, monkeypatch):
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        master = started(tmp_path / "master", brokerRole=BrokerRole.SYNC_MASTER)
        slave.update_ha_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")
        wait_until(lambda: master.ha_service.slave_count() == 1)
        put(master, message(body=b"first"))
        request = GroupCommitRequest(1 << 40, 60_000)
        # This request waits for a slave when the shutdown begins.
        master.ha_service.put_request(request)
        gate = Gate(monkeypatch, master.commit_log, "submit_replica_request")
        with thread(lambda: master.put_message(message(body=b"late"))) as results:
            assert gate.reached.wait(240)
            master.shutdown()
            gate.opened.set()
        assert request.get(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert results[0].put_message_status in (PutMessageStatus.PUT_OK, PutMessageStatus.SLAVE_NOT_AVAILABLE,
                                                 PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


def test_requests_left_when_the_watcher_ends_time_out(tmp_path):
    with open_store(tmp_path) as store:
        request = GroupCommitRequest(1 << 40, 60_000)
        store.commit_log.flush_disk_watcher.add(request)
    assert request.get(0) is PutMessageStatus.FLUSH_DISK_TIMEOUT
