"""Reading through consume queues, and stores that RocketMQ 4.9.7 wrote."""
import shutil
import struct

import pytest

from rmqha.common.java import string_hash_code
from rmqha.common.message.message import MessageExtBatch
from rmqha.common.message.message_layout import INT, encode_batch_message
from rmqha.store import commit_log
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.message_reader import MessageFilter
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import GetMessageStatus
from rmqha.store.running_flags import RunningFlags
from tests.store.support import (
    GOLDEN,
    bodies,
    describe,
    message,
    new_store,
    open_store,
    put,
    tree,
    unpack_golden,
    wait_dispatched,
)
from tests.support.wait import wait_until

# Reading through consume queues: statuses, next offsets, limits, filters.


class TagFilter(MessageFilter):
    """A filter that accepts one tag by its hash, and bodies that contain `word`."""

    def __init__(self, tag=None, word=None):
        self.code = string_hash_code(tag) if tag else None
        self.word = word

    def is_matched_by_consume_queue(self, tags_code, cq_ext_unit=None):
        return self.code is None or tags_code == self.code

    def is_matched_by_commit_log(self, msg_buffer, properties):
        return self.word is None or self.word in bytes(msg_buffer)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        put(opened, *(message(body=b"%03d" % index, TAGS="even" if index % 2 == 0 else "odd") for index in range(60)))
        wait_dispatched(opened)
        yield opened


def get(store, offset, count=32, message_filter=None, topic="T"):
    result = store.get_message("g", topic, 0, offset, count, message_filter)
    try:
        return result.status.name, result.next_begin_offset, result.message_count
    finally:
        result.release()


@pytest.mark.parametrize("offset, expected", [
    (0, ("FOUND", 32, 32)), (58, ("FOUND", 60, 2)), (60, ("OFFSET_OVERFLOW_ONE", 60, 0)),
    (61, ("OFFSET_OVERFLOW_BADLY", 60, 0)), ((1 << 63) - 1, ("OFFSET_OVERFLOW_BADLY", 60, 0)),
    (-1, ("OFFSET_TOO_SMALL", 0, 0)), (-(1 << 63), ("OFFSET_TOO_SMALL", 0, 0))])
def test_status_and_next_offset_by_offset(store, offset, expected):
    assert get(store, offset) == expected


@pytest.mark.parametrize("offset", [0, 5])
def test_empty_queue_has_no_messages(store, offset):
    assert get(store, offset, topic="nobody") == ("NO_MESSAGE_IN_QUEUE", 0, 0)
    assert get(store, offset, topic="../nobody") == ("NO_MATCHED_LOGIC_QUEUE", 0, 0)


def test_answer_stops_at_the_end_of_a_queue_file(store):
    assert get(store, 40) == ("FOUND", 50, 10)
    assert len(bodies(store)) == 60


@pytest.mark.parametrize("count, found", [(1, 1), (0, 1), (-1, 1), (5, 5), (1 << 31, 32), (-(1 << 31), 1)])
def test_number_of_messages_is_limited(store, count, found):
    assert get(store, 0, count) == ("FOUND", found, found)


def test_bytes_are_limited_but_at_least_one_message_is_returned(tmp_path):
    with open_store(tmp_path, maxTransferBytesOnMessageInMemory=3000) as store:
        put(store, *(message(body=b"x" * 1000) for _ in range(5)), message(body=b"x" * 5000))
        wait_dispatched(store)
        assert get(store, 0) == ("FOUND", 2, 2)
        assert get(store, 5) == ("FOUND", 6, 1)


def test_old_messages_count_as_on_disk(tmp_path):
    with open_store(tmp_path, accessMessageInMemoryMaxRatio=0) as store:
        put(store, *(message() for _ in range(20)))
        wait_dispatched(store)
        result = store.get_message("g", "T", 0, 0, 32)
        assert (result.message_count, result.suggest_pulling_from_slave) == (8, True)
        result.release()
        assert store.check_in_disk_by_consume_offset("T", 0, 0)
        assert not store.check_in_disk_by_consume_offset("T", 0, 99)


def test_recent_messages_are_in_memory(store):
    result = store.get_message("g", "T", 0, 0, 1)
    assert not result.suggest_pulling_from_slave
    result.release()
    assert not store.check_in_disk_by_consume_offset("T", 0, 0)


def test_tag_filter_keeps_scanning(store):
    assert get(store, 0, 10, TagFilter("odd")) == ("FOUND", 20, 10)
    assert get(store, 0, 10, TagFilter("none")) == ("NO_MATCHED_MESSAGE", 50, 0)
    assert get(store, 58, 10, TagFilter("even")) == ("FOUND", 60, 1)


def test_scan_is_limited_even_for_a_huge_number_of_messages(tmp_path):
    with open_store(tmp_path, mappedFileSizeConsumeQueue=20 * 4000) as store:
        put(store, *(message(body=b"x", TAGS="even") for _ in range(1500)))
        wait_dispatched(store)
        assert get(store, 0, 1_000_000, TagFilter("none")) == ("NO_MATCHED_MESSAGE", 1024, 0)
        assert get(store, 0, 32, TagFilter("none")) == ("NO_MATCHED_MESSAGE", 800, 0)


def test_slow_filter_stops_the_scan_and_the_next_pull_continues(store, monkeypatch):
    class Slow(MessageFilter):
        def is_matched_by_consume_queue(self, tags_code, cq_ext_unit=None):
            return True

        def is_matched_by_commit_log(self, msg_buffer, properties):
            clock[0] += 1_000_000
            return False

    clock = [1]
    monkeypatch.setattr("rmqha.store.message_reader.time.monotonic_ns", lambda: clock[0])
    status, next_offset, found = get(store, 0, 32, Slow())
    assert (status, found) == ("NO_MATCHED_MESSAGE", 0) and 20 <= next_offset < 50
    assert get(store, next_offset, 32, Slow())[1] == 50


def test_queries_create_no_queue(store):
    before = set(store.consume_queue_table)
    assert (store.get_max_offset_in_queue("nobody", 0), store.get_min_offset_in_queue("nobody", 0)) == (0, 0)
    assert store.get_min_offset_in_queue("../nobody", 0) == -1
    assert store.get_offset_in_queue_by_time("nobody", 0, 1) == 0
    assert store.get_earliest_message_time("nobody", 0) == store.get_message_store_timestamp("nobody", 0, 0) == -1
    assert store.get_message_ids("nobody", 0, 0, 9, ("127.0.0.1", 10911)) == {}
    assert not store.check_in_disk_by_consume_offset("nobody", 0, 0)
    assert set(store.consume_queue_table) == before


def test_record_filter_gets_the_record(store):
    assert get(store, 0, 10, TagFilter(word=b"017")) == ("FOUND", 50, 1)


def test_deleted_file_is_skipped(store):
    files = store.commit_log.mapped_file_queue.mapped_files
    assert len(files) == 1
    put(store, *(message(body=b"x" * 1000) for _ in range(40)))
    wait_dispatched(store)
    store.commit_log.mapped_file_queue.delete_expired_file([files[0]])
    files[0].destroy(0)
    status, next_offset, count = get(store, 0)
    assert (status, count) == ("MESSAGE_WAS_REMOVING", 0)
    assert next_offset == 50
    assert get(store, 50)[0] == "FOUND"


def test_missing_queue_file_is_skipped(store):
    queue = store.get_consume_queue("T", 0)
    first = queue.mapped_file_queue.mapped_files[0]
    queue.mapped_file_queue.delete_expired_file([first])
    assert get(store, 3) == ("OFFSET_FOUND_NULL", 50, 0)
    first.destroy(0)


def test_slave_does_not_correct_offsets(tmp_path):
    with open_store(tmp_path, brokerRole=BrokerRole.SLAVE) as slave:
        assert get(slave, 7) == ("NO_MESSAGE_IN_QUEUE", 7, 0)
        slave.message_store_config.offsetCheckInSlave = True
        assert get(slave, 7) == ("NO_MESSAGE_IN_QUEUE", 0, 0)


def test_unreadable_store_returns_nothing(store, monkeypatch):
    monkeypatch.setattr(RunningFlags, "is_readable", False)
    assert store.get_message("g", "T", 0, 0, 1) is None


def test_result_keeps_its_bytes_while_it_is_held(store):
    result = store.get_message("g", "T", 0, 0, 2)
    file = store.commit_log.mapped_file_queue.mapped_files[0]
    # Wait until the dispatch has released the file.
    wait_until(lambda: file.ref_count == 2, what="the file has no user but the result")
    assert result.buffer_total_size == sum(len(buffer) for buffer in result.message_buffer_list)
    assert [INT.unpack_from(buffer)[0] for buffer in result.message_buffer_list] == \
        [len(buffer) for buffer in result.message_buffer_list]
    result.release()
    result.release()
    assert file.ref_count == 1
    assert result.status is GetMessageStatus.FOUND and result.msg_count4_commercial == 2


# By commit log offset.

@pytest.mark.parametrize("offset", [-1, 1, 5000, 1 << 40, -(1 << 62)])
def test_no_message_is_found_at_a_wrong_offset(store, offset):
    assert store.look_message_by_offset(offset) is None


def test_message_is_found_by_offset_and_size(store):
    offset, size, _ = store.get_consume_queue("T", 0).get_unit(7)
    assert store.look_message_by_offset(offset).body == b"007"
    assert store.look_message_by_offset(offset, size).body == b"007"
    assert store.look_message_by_offset(offset, size - 1) is None
    with store.select_one_message_by_offset(offset) as result:
        assert result.size == size
    assert store.get_commit_log_offset_in_queue("T", 0, 7) == offset
    assert store.get_commit_log_offset_in_queue("T", 0, 700) == 0


def test_store_times_are_read_from_records(store):
    first = store.look_message_by_offset(0).store_timestamp
    assert store.get_earliest_message_time() == first
    assert store.get_earliest_message_time("T", 0) == first
    assert store.get_message_store_timestamp("T", 0, 0) == first
    assert store.get_message_store_timestamp("T", 0, 1000) == -1
    assert store.get_earliest_message_time("nobody", 0) == -1
    assert store.get_message_total_in_queue("T", 0) == 60


def test_earliest_time_of_an_empty_store(tmp_path):
    with open_store(tmp_path) as store:
        assert store.get_earliest_message_time() == -1
        assert (store.get_min_phy_offset(), store.get_max_phy_offset()) == (-1, 0)


def test_message_ids_of_a_range(store):
    ids = store.get_message_ids("T", 0, 45, 55, ("127.0.0.1", 10911))
    assert sorted(ids.values()) == list(range(45, 56))
    assert store.get_message_ids("T", 0, 58, 1000, ("127.0.0.1", 10911)).keys() == {
        f"7F00000100002A9F{store.get_commit_log_offset_in_queue('T', 0, index):016X}" for index in (58, 59)}


# Stores that RocketMQ 4.9.7 wrote: read, dispatched again and written again.

STORES = ["normal", "kill"]


@pytest.mark.parametrize("name", STORES)
def test_every_message_and_key_is_found_as_java_finds_it(tmp_path, name):
    with open_store(unpack_golden(name, tmp_path)) as store:
        assert describe(store) == (GOLDEN / f"{name}.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", STORES)
def test_rebuilt_consume_queues_and_index_are_byte_identical(tmp_path, name):
    root = unpack_golden(name, tmp_path)
    before = tree(root)
    for gone in ("consumequeue", "index"):
        shutil.rmtree(root / gone)
    (root / "checkpoint").unlink()
    with open_store(root):
        pass
    after = tree(root)
    assert {path: data for path, data in after.items() if path.startswith("consumequeue/")} == \
        {path: data for path, data in before.items() if path.startswith("consumequeue/")}
    # Index files are named by the time of their creation.
    assert [data for path, data in after.items() if path.startswith("index/")] == \
        [data for path, data in before.items() if path.startswith("index/")]


@pytest.mark.parametrize("name", STORES)
def test_missing_queues_are_rebuilt_completely_after_a_crash_despite_the_checkpoint(tmp_path, name):
    root = unpack_golden(name, tmp_path)
    before = tree(root)
    for gone in ("consumequeue", "index"):
        shutil.rmtree(root / gone)
    (root / "abort").touch()
    all_flushed = struct.pack(">qqq", 1 << 62, 1 << 62, 1 << 62)
    (root / "checkpoint").write_bytes(all_flushed.ljust(4096, b"\0"))
    with open_store(root):
        pass
    after = tree(root)
    assert {path: data for path, data in after.items() if path.startswith("consumequeue/")} == \
        {path: data for path, data in before.items() if path.startswith("consumequeue/")}
    assert [data for path, data in after.items() if path.startswith("index/")] == \
        [data for path, data in before.items() if path.startswith("index/")]


@pytest.mark.parametrize("name", STORES)
def test_opening_changes_no_byte_of_log_and_queues(tmp_path, name):
    root = unpack_golden(name, tmp_path)
    before = tree(root)
    with open_store(root):
        pass
    after = tree(root)
    for path, data in before.items():
        if path.startswith(("commitlog/", "consumequeue/")) and any(data):
            assert after[path] == data, path


def test_writing_javas_messages_again_gives_the_same_log(tmp_path, monkeypatch):
    java = new_store(unpack_golden("normal", tmp_path))
    assert java.load()
    records = list(_messages(java))
    now = [0]
    monkeypatch.setattr(commit_log, "current_time_millis", lambda: now[0])
    with open_store(tmp_path / "ours") as ours:
        # Otherwise it would deliver the delayed messages, which are long due.
        ours.schedule_message_service.shutdown()
        for group in _groups(records):
            now[0] = group[0].store_timestamp
            msg = _inner(group[0]) if len(group) == 1 else _batch(group)
            result = ours.put_message(msg) if len(group) == 1 else ours.put_messages(msg)
            assert result.is_ok
        wait_dispatched(ours)
        assert ours.get_max_phy_offset() == java.get_max_phy_offset()
    java.shutdown()
    for path, data in tree(tmp_path / "normal" / "commitlog").items():
        assert (tmp_path / "ours" / "commitlog" / path).read_bytes() == data, path


def _messages(store):
    """Return all messages of the log in order, with the stored text of their properties."""
    offset, end = store.get_min_phy_offset(), store.get_max_phy_offset()
    for request in store.commit_log.walk_records(offset, end):
        yield store.look_message_by_offset(request.commit_log_offset, request.msg_size)


def _groups(records):
    """Separate batches, whose messages share a key word, from single messages."""
    group, name = [], None
    for record in records:
        word = (record.keys or "").split(" ")[0]
        batch = word if word.startswith("batch") else None
        if group and (batch is None or batch != name):
            yield group
            group = []
        group.append(record)
        name = batch
    yield group


def _inner(record) -> MessageExtBrokerInner:
    msg = MessageExtBrokerInner(record.topic, record.body)
    for name in ("queue_id", "flag", "born_timestamp", "born_host", "store_host", "reconsume_times",
                 "prepared_transaction_offset"):
        setattr(msg, name, getattr(record, name))
    msg.sys_flag = record.sys_flag & ~0x30
    msg.properties = {name: value for name, value in record.properties.items() if name != "DELAY"}
    msg.properties_string = _text(record)
    return msg


def _batch(group) -> MessageExtBatch:
    first = group[0]
    msg = MessageExtBatch(first.topic, b"".join(
        encode_batch_message(record.flag, record.body, _text(record).encode()) for record in group))
    for name in ("queue_id", "born_timestamp", "born_host", "store_host", "reconsume_times"):
        setattr(msg, name, getattr(first, name))
    return msg


def _text(record) -> str:
    """Return the properties in the order in which they were stored."""
    return "\x02".join(f"{name}\x01{value}" for name, value in record.properties.items())
