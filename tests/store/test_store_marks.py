"""Marks of the store: the ends of consume queues saved at a clean stop, and deleted topics."""
import json
import os
import shutil
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import mix_all
from rmqha.common.message import message_decoder
from rmqha.store import store_marks
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.store.support import batch, bodies, crash, message, new_store, open_store, put, wait_dispatched
from tests.support.wait import wait_until

# The queue ends saved at a clean stop, and a start that uses or discards them.

BELIEVED = "using the queue ends saved at the last shutdown"
THROWN_AWAY = "discarding the queue ends saved at the last shutdown"
QUEUES = [("A", 0), ("A", 1), ("B", 0), ("%RETRY%g", 0)]


def put_all(store, count=3):
    """Put `count` messages into each queue."""
    for _ in range(count):
        for topic, queue_id in QUEUES:
            assert store.put_message(message(topic, queue_id)).is_ok
    assert wait_until(lambda: store.dispatch_behind_bytes() == 0)


def state(store):
    """Return the state that a queue's next message and its readers depend on."""
    return {(queue.topic, queue.queue_id): (
        queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue(),
        queue.mapped_file_queue.flushed_where, queue.mapped_file_queue.committed_where,
        [(file.file_name, file.wrote_position, file.committed_position, file.flushed_position)
         for file in queue.mapped_file_queue.mapped_files]) for queue in store.all_consume_queues()}


def ends_file(root):
    """Return the path of the saved queue ends."""
    return root / "consumequeue.ends"


def noted(root):
    """Read the queue ends that a stop has saved."""
    return store_marks.decode(ends_file(root).read_bytes())


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    """Make a stopped store whose queue A-0 has more than one file."""
    root = tmp_path / "store"
    with open_store(root, mappedFileSizeConsumeQueue=200) as store:
        put_all(store, 12)
        for _ in range(12):
            assert store.put_message(message("A", 0)).is_ok
    return root


def start_again(root, **keys):
    """Start the store and put and read messages; return the state of the queues after the start."""
    with open_store(root, **{"mappedFileSizeConsumeQueue": 200, **keys}) as store:
        result = state(store)
        put_all(store, 2)
        for topic, queue_id in QUEUES:
            assert indexes(store, topic, queue_id, 2) == [result_end(result, topic, queue_id) + n for n in (0, 1)]
    return result


def result_end(result, topic, queue_id):
    """Return the index of a queue's next message; 0 if the queue did not exist."""
    return result[topic, queue_id][2] if (topic, queue_id) in result else 0


def indexes(store, topic, queue_id, count):
    """Return the indexes in the records of a queue's last messages."""
    found, end = [], store.get_max_offset_in_queue(topic, queue_id)
    for index in range(end - count, end):
        result = store.get_message("g", topic, queue_id, index, 1)
        found += [msg.queue_offset for part in result.message_buffer_list for msg in [message_decoder.decode(part)]]
        result.release()
    return found


def without_notes(root, **keys):
    """Return the state of the queues when a copy of the store starts without saved queue ends."""
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    ends_file(copy).unlink()
    with open_store(copy, **{"mappedFileSizeConsumeQueue": 200, **keys}) as store:
        found = state(store)
    shutil.rmtree(copy)
    return {queue: (*numbers, [(name.replace(str(copy), str(root)), *positions) for name, *positions in files])
            for queue, (*numbers, files) in found.items()}


def test_a_start_after_a_clean_stop_has_the_same_result_as_recovery(root, caplog):
    expected = without_notes(root)
    with caplog.at_level("INFO", "RocketmqStore"):
        assert start_again(root) == expected
    assert BELIEVED in caplog.text


def test_a_start_after_a_clean_stop_opens_no_queue_file(root, monkeypatch):
    opened = []
    real = MappedFile._map_of
    monkeypatch.setattr(MappedFile, "_map_of", lambda file, fd: opened.append(file.file_name) or real(file, fd))
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    try:
        assert not [name for name in opened if "consumequeue" in name]
        assert opened  # the log's
    finally:
        store.shutdown()


def test_saved_ends_are_used_at_every_start(root, caplog):
    for _ in range(3):
        expected = without_notes(root)
        caplog.clear()
        with caplog.at_level("INFO", "RocketmqStore"):
            assert start_again(root) == expected
        assert BELIEVED in caplog.text


def test_saved_ends_are_used_after_messages_have_expired(root, caplog):
    with open_store(root, mappedFileSizeConsumeQueue=200) as store:
        for _ in range(200):
            assert store.put_message(message("A", 0)).is_ok
        assert wait_until(lambda: store.dispatch_behind_bytes() == 0)
        assert store.commit_log.mapped_file_queue.delete_expired_file_by_time(0, 0, 0, True) > 0
        service = store.clean_consume_queue_service

        def is_clean():
            """Run the service; a file that is being flushed is left to the next round."""
            service._last_physical_min_offset = 0
            service.run()
            return store.get_min_offset_in_queue("A", 0) > 0
        wait_until(is_clean)
    expected = without_notes(root)
    with caplog.at_level("INFO", "RocketmqStore"):
        assert start_again(root) == expected
    assert BELIEVED in caplog.text


def test_saved_ends_are_used_with_an_empty_queue(tmp_path, caplog):
    with open_store(tmp_path) as store:
        store.consume_queue_table.find_queue("Empty", 0)
    with caplog.at_level("INFO", "RocketmqStore"), open_store(tmp_path) as store:
        # Nothing of the queue was on the disk.
        assert store.get_consume_queue("Empty", 0) is None
    assert BELIEVED in caplog.text


def test_saved_ends_are_not_used_after_a_crash(root, caplog):
    kept = ends_file(root).read_bytes()
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    assert not ends_file(root).exists()
    put_all(store)
    crash(store)
    assert not ends_file(root).exists()
    ends_file(root).write_bytes(kept)
    # Drop the lines of the first start, which uses the saved ends.
    caplog.clear()
    with caplog.at_level("INFO", "RocketmqStore"):
        start_again(root)
    assert BELIEVED not in caplog.text


def test_an_unclean_stop_saves_no_ends(root):
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    store.running_flags.make_flush_error()
    store.shutdown()
    assert not ends_file(root).exists()


def test_no_ends_are_saved_for_a_queue_with_a_gap(root, caplog):
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    queue = store.get_consume_queue("A", 0).mapped_file_queue
    queue.mapped_files = [queue.mapped_files[0], *queue.mapped_files[2:]]
    store.shutdown()
    assert not ends_file(root).exists()
    assert "were not saved" in caplog.text


def changed(root, change):
    """Change the content of the file, and correct its checksum."""
    ends = json.loads(ends_file(root).read_bytes().split(b"\n")[1])
    change(ends)
    text = json.dumps(ends).encode()
    ends_file(root).write_bytes(b"%d\n%b\n" % (zlib.crc32(text), text))


def older(root, other):
    """Restore the queue ends of the previous stop."""
    kept = ends_file(root).read_bytes()
    start_again(root)
    ends_file(root).write_bytes(kept)


def newer(root, other):
    """Install the queue ends of a later stop."""
    shutil.copytree(root, other)
    start_again(root)
    shutil.copy(ends_file(root), ends_file(other))
    shutil.rmtree(root)
    shutil.copytree(other, root)


def of_another_store(root, other):
    """Install the queue ends of another store, with the same stop number."""
    with open_store(other, mappedFileSizeConsumeQueue=200) as store:
        put_all(store, 12)
    changed(other, lambda ends: ends.__setitem__(1, noted(root).number))
    shutil.copy(ends_file(other), ends_file(root))


def cut(root, _other):
    """Truncate the file in the middle."""
    os.truncate(ends_file(root), ends_file(root).stat().st_size // 2)


def empty(root, _other):
    """Empty the file, as a loss of power may do."""
    os.truncate(ends_file(root), 0)


def flipped(root, _other):
    """Flip one bit of the file."""
    data = bytearray(ends_file(root).read_bytes())
    data[len(data) // 2] ^= 4
    ends_file(root).write_bytes(data)


def of_another_version(root, _other):
    """Set an unknown version."""
    changed(root, lambda ends: ends.__setitem__(0, 99))


def with_a_queue_changed(root, _other):
    """Remove existing units of a queue."""
    with open(next((root / "consumequeue" / "B" / "0").iterdir()), "r+b") as file:
        file.seek(20)
        file.write(bytes(180))


def with_a_queue_gone(root, _other):
    """Delete a queue, as an operator does who wants it rebuilt."""
    shutil.rmtree(root / "consumequeue" / "A" / "1")


def with_a_topic_gone(root, _other):
    """Delete all queues of a topic."""
    shutil.rmtree(root / "consumequeue" / "B")


def with_a_file_gone(root, _other):
    """Delete the last file of a queue."""
    sorted((root / "consumequeue" / "A" / "0").iterdir())[-1].unlink()


def with_a_file_cut(root, _other):
    """Truncate the last file of a queue; the start extends it again."""
    os.truncate(sorted((root / "consumequeue" / "A" / "0").iterdir())[-1], 60)


def with_all_queues_gone(root, _other):
    """Delete all queues and their folder."""
    shutil.rmtree(root / "consumequeue")


def with_a_queue_more(root, _other):
    """Add a queue of an unknown topic."""
    shutil.copytree(root / "consumequeue" / "B" / "0", root / "consumequeue" / "C" / "0")


@pytest.mark.parametrize("lie", [
    older, newer, of_another_store, cut, empty, flipped, of_another_version, with_a_queue_changed, with_a_queue_gone,
    with_a_topic_gone, with_a_file_gone, with_a_file_cut, with_all_queues_gone, with_a_queue_more])
def test_wrong_saved_ends_are_discarded(root, tmp_path, lie, caplog):
    lie(root, tmp_path / "other")
    expected = without_notes(root)
    caplog.clear()
    with caplog.at_level("INFO", "RocketmqStore"):
        found = start_again(root)
    assert found == expected
    assert THROWN_AWAY in caplog.text
    assert BELIEVED not in caplog.text


def test_files_of_another_size_are_refused(root, caplog):
    caplog.clear()
    store = new_store(root, mappedFileSizeConsumeQueue=400)
    # Their length differs from the configured one.
    assert not store.load()
    assert "queue files had 200 bytes, and have 400 now" in caplog.text


ENDS = st.builds(
    store_marks.QueueEnds, st.just(1), st.integers(0, 2**62), st.integers(20, 6_000_000), st.integers(0, 2**62),
    st.lists(st.builds(store_marks.TopicEnds, st.text(), st.integers(0, 2**62), st.lists(st.builds(
        store_marks.QueueEnd, st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 2**62),
        st.lists(st.integers(0, 2**62)), st.integers(0, 2**62), st.integers(-1, 2**62), st.integers(0, 2**62),
        st.none() | st.lists(st.integers(-1, 2**63 - 1), min_size=3, max_size=3))))))


@given(ENDS)
def test_queue_ends_survive_a_round_trip(ends):
    assert store_marks.decode(store_marks.encode(ends)) == ends


@given(ENDS, st.data())
def test_queue_ends_with_one_changed_byte_are_refused(ends, data):
    content = bytearray(store_marks.encode(ends))
    # The last byte is a line end, which may be missing.
    at = data.draw(st.integers(0, len(content) - 2))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(store_marks.WrongQueueEndsError):
        store_marks.decode(bytes(content))


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
    lambda value: b"%d\n%b" % (zlib.crc32(json.dumps(value).encode()), json.dumps(value).encode())))
def test_other_content_is_refused(content):
    with pytest.raises(store_marks.WrongQueueEndsError):
        store_marks.decode(content)


# Deleted topics in the store: marks, and the handling of dead records by dispatch, recovery and queries.


def put_numbered(store, prefix: str, count: int, topic: str = "T", queues: int = 2) -> None:
    for number in range(count):
        put(store, message(topic, number % queues, f"{prefix}{number}".encode()))


def all_bodies(store, topic: str = "T", queues: int = 2) -> list[list[bytes]]:
    wait_dispatched(store)
    return [bodies(store, topic, queue_id) for queue_id in range(queues)]


def of(prefix: str, count: int, queues: int = 2) -> list[list[bytes]]:
    return [[f"{prefix}{number}".encode() for number in range(queue_id, count, queues)] for queue_id in range(queues)]


def marks_in(root) -> dict[str, int]:
    return json.loads((root / "config" / "deletedTopics.json").read_text())["deletedTopics"]


def lose_queues(root) -> None:
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index", ignore_errors=True)


@pytest.mark.parametrize("lose", [lambda root: None, lose_queues], ids=["queues are there", "queues are lost"])
@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("compiled", [False, True], ids=["one by one", "spans"])
def test_recreated_topic_is_rebuilt_without_its_earlier_messages(tmp_path, monkeypatch, lose, crashed, compiled):
    if not compiled:
        monkeypatch.setattr("rmqha.store.bulk.bulk.is_compiled", lambda: False)
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 100)
        put_numbered(store, "other", 10, "O")
        store.delete_topic("T")
        put_numbered(store, "new", 31)
        assert all_bodies(store) == of("new", 31)
        if crashed:
            crash(store)
    lose(tmp_path)
    with open_store(tmp_path) as store:
        assert all_bodies(store) == of("new", 31)
        assert all_bodies(store, "O") == of("other", 10)
        assert put(store, message("T", 1))[0].logics_offset == 15


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "killed"])
def test_deleted_topic_is_not_rebuilt_when_the_queues_are_lost(tmp_path, crashed):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 100)
        put_numbered(store, "other", 10, "O")
        store.delete_topic("T")
        if crashed:
            crash(store)
    lose_queues(tmp_path)
    with open_store(tmp_path) as store:
        wait_dispatched(store)
        assert "T" not in store.consume_queue_table and os.listdir(tmp_path / "consumequeue") == ["O"]
        assert put(store, message("T"))[0].logics_offset == 0


def test_message_zero_restarts_its_queue_without_marks(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 100)
        store.delete_topic("T")
        put_numbered(store, "new", 31)
        wait_dispatched(store)
    lose_queues(tmp_path)
    os.unlink(tmp_path / "config" / "deletedTopics.json")
    with open_store(tmp_path) as store:
        assert all_bodies(store) == of("new", 31)


def test_index_flipped_to_zero_does_not_restart_a_queue(tmp_path):
    with open_store(tmp_path) as store:
        results = put(store, *[message(body=b"%d" % number) for number in range(8)])
        wait_dispatched(store)
    lose_queues(tmp_path)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(results[4].wrote_offset + 20)
        assert file.read(8) == struct.pack(">q", 4)
        file.seek(results[4].wrote_offset + 20)
        file.write(bytes(8))
    with open_store(tmp_path) as store:
        wait_dispatched(store)
        assert bodies(store) == [b"%d" % number for number in range(8)]


def test_queues_left_by_a_kill_after_the_mark_are_deleted_at_the_next_start(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 100)
        put_numbered(store, "other", 10, "O")
        wait_dispatched(store)
        monkeypatch.setattr(store.queue_removal, "drop_topic", lambda topic: crash(store))
        store.delete_topic("T")
    assert "T" in os.listdir(tmp_path / "consumequeue")
    with open_store(tmp_path) as store:
        assert "T" not in store.consume_queue_table and os.listdir(tmp_path / "consumequeue") == ["O"]
        put_numbered(store, "new", 5)
        assert all_bodies(store) == of("new", 5)


def test_mark_beyond_the_end_of_a_shorter_log_affects_no_later_messages(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "other", 10, "O")
        wait_dispatched(store)
        end = store.get_max_phy_offset()
        put_numbered(store, "old", 50)
        store.delete_topic("T")
        crash(store)
    # As after a loss of power.
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(end)
        file.write(bytes(10_000))
    with open_store(tmp_path) as store:
        assert marks_in(tmp_path) == {"T": end}
        put_numbered(store, "new", 31)
        assert all_bodies(store) == of("new", 31)
    lose_queues(tmp_path)
    with open_store(tmp_path) as store:
        assert all_bodies(store) == of("new", 31)


def test_mark_beyond_the_truncated_offset_affects_no_later_messages(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "other", 10, "O")
        end = store.get_max_phy_offset()
        put_numbered(store, "old", 10)
        store.delete_topic("T")
        middle = next(store.commit_log.walk_records(end, store.get_max_phy_offset())).msg_size + end
        store.truncate_dirty_files(middle)
        assert marks_in(tmp_path) == {"T": middle}
        assert store.reset_write_offset(end)
        assert marks_in(tmp_path) == {"T": end}


def test_unreadable_marks_prevent_the_start(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 10)
        store.delete_topic("T")
    (tmp_path / "config" / "deletedTopics.json").write_text('{"deletedTopics":{"T":"x"}}')
    assert not new_store(tmp_path).load()


def test_topic_stays_complete_when_its_mark_cannot_be_written(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with open_store(tmp_path) as store:
        put_numbered(store, "a", 10)
        monkeypatch.setattr(mix_all, "string2file", fail)
        with pytest.raises(OSError):
            store.delete_topic("T")
        monkeypatch.undo()
        put(store, message("T", 0, b"a10"), message("T", 1, b"a11"))
        assert all_bodies(store) == of("a", 12)


def test_marks_are_deleted_with_the_log_files_before_them(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 10)
        store.delete_topic("T")
        put_numbered(store, "other", 200, "O")
        wait_dispatched(store)
        assert marks_in(tmp_path) == dict(store.deleted_topics.marks) != {}
        store.execute_delete_files_manually()
        store.commit_log.delete_expired_file(0, 0, 0, True)
        store.clean_consume_queue_service.run()
        assert marks_in(tmp_path) == dict(store.deleted_topics.marks) == {}
        assert not store.deleted_topics.names


def test_put_checked_before_the_deletion_returns_topic_not_exist(tmp_path):
    queues = {"T": 4}
    with open_store(tmp_path) as store:
        store.deleted_topics.queues_of = lambda topic: queues.get(topic, 0)
        put(store, message("T", 3))
        queues.clear()
        store.delete_topic("T")
        gone = [store.put_message(message("T")), store.put_messages(batch([b"1", b"2"])),
                store.put_message(message("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="T", REAL_QID="0")),
                store.put_message(message("T", DELAY="3"))]
        assert {result.put_message_status for result in gone} == {PutMessageStatus.TOPIC_NOT_EXIST}
        queues["T"] = 2
        assert store.put_message(message("T", 3)).put_message_status is PutMessageStatus.TOPIC_NOT_EXIST
        put(store, message("T", 1, b"x"))
        wait_dispatched(store)
        assert bodies(store, "T", 1) == [b"x"] and not bodies(store, "T", 3)


def test_query_by_key_finds_only_messages_of_the_recreated_topic(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message(body=b"old", KEYS="k"), message("O", KEYS="k"))
        store.delete_topic("T")
        for expected in ([], [b"new"]):
            if expected:
                put(store, message(body=b"new", KEYS="k"))
            wait_dispatched(store)
            result = store.query_message("T", "k", 10, 0, 1 << 60)
            found = [bytes(buffer[88:91]) for buffer in result.message_buffer_list]
            result.release()
            assert found == expected


def test_light_queue_restarts_and_its_topic_keeps_its_messages(tmp_path):
    keys = {"enableLmq": True, "enableMultiDispatch": True}
    with open_store(tmp_path, **keys) as store:
        put(store, *[message(body=b"%d" % number, INNER_MULTI_DISPATCH="%LMQ%a") for number in range(5)])
        wait_dispatched(store)
        store.clean_unused_lmq_topic("%LMQ%a")
        assert store.consume_queue_table.lmq_consume_queue_num.get() == 0
        put(store, message(body=b"5", INNER_MULTI_DISPATCH="%LMQ%a"))
        wait_dispatched(store)
        assert bodies(store, "%LMQ%a") == [b"5"]
    lose_queues(tmp_path)
    with open_store(tmp_path, **keys) as store:
        wait_dispatched(store)
        assert bodies(store, "%LMQ%a") == [b"5"]
        assert bodies(store) == [b"%d" % number for number in range(6)]


def test_expired_queue_with_an_undispatched_message_stays(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 10)
        put_numbered(store, "other", 300, "O")
        wait_dispatched(store)
        store.commit_log.delete_expired_file(0, 0, 0, True)
        real = store.queue_removal.drop_expired_queues

        def with_a_put_before(is_kept):
            put(store, message("T", 0, b"late"))
            real(is_kept)

        monkeypatch.setattr(store.queue_removal, "drop_expired_queues", with_a_put_before)
        store.clean_expired_consumer_queue()
        assert set(store.consume_queue_table["T"]) == {0}
        put(store, message("T", 0, b"later"), message("T", 1, b"first"))
        wait_dispatched(store)
        assert bodies(store, "T", 0, 5) == [b"late", b"later"] and bodies(store, "T", 1) == [b"first"]


def test_half_messages_stay_when_unknown_topics_are_cleaned(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message("RMQ_SYS_TRANS_HALF_TOPIC", body=b"half"))
        wait_dispatched(store)
        store.clean_unused_topic(set())
        assert bodies(store, "RMQ_SYS_TRANS_HALF_TOPIC") == [b"half"]


class Slave:
    """A store that receives the bytes of another store's log."""

    def __init__(self, store, master) -> None:
        self.store, self.master = store, master
        store.role.take(BrokerRole.SLAVE)

    def follow(self, end: int | None = None) -> None:
        at, end = self.store.get_max_phy_offset(), end or self.master.get_max_phy_offset()
        while at < end:
            with self.master.commit_log.get_data(at) as data:
                size = min(data.size, end - at)
                assert self.store.append_to_commit_log(at, bytes(data.buffer[:size]), 0, size)
                at += size
        wait_dispatched(self.store)


def test_slaves_queues_equal_the_masters_once_it_has_the_marks(tmp_path):
    with open_store(tmp_path / "master") as master, open_store(tmp_path / "slave") as store:
        slave = Slave(store, master)
        put_numbered(master, "old", 50, queues=4)
        slave.follow()
        master.delete_topic("T")
        put_numbered(master, "new", 7)
        slave.follow()
        # The log alone is enough for this.
        assert all_bodies(store) == of("new", 7)
        assert bodies(store, "T", 3)
        assert store.queue_removal.take_over(master.deleted_topics.marks) == ["T"]
        assert not store.queue_removal.take_over(master.deleted_topics.marks)
        assert all_bodies(store) == of("new", 7) and set(store.consume_queue_table["T"]) == {0, 1}
        assert marks_in(tmp_path / "slave") == marks_in(tmp_path / "master")
    lose_queues(tmp_path / "slave")
    with open_store(tmp_path / "slave") as store:
        assert all_bodies(store) == of("new", 7) and set(store.consume_queue_table["T"]) == {0, 1}


def test_slave_accepts_no_mark_before_it_has_the_log(tmp_path):
    with open_store(tmp_path / "master") as master, open_store(tmp_path / "slave") as store:
        slave = Slave(store, master)
        put_numbered(master, "old", 50)
        wait_dispatched(master)
        half = list(master.commit_log.walk_records(0, master.get_max_phy_offset()))[25].commit_log_offset
        slave.follow(half)
        master.delete_topic("T")
        assert not store.queue_removal.take_over(master.deleted_topics.marks)
        assert sum(map(len, all_bodies(store))) >= 20
        slave.follow()
        assert store.queue_removal.take_over(master.deleted_topics.marks) == ["T"]
        assert "T" not in store.consume_queue_table
