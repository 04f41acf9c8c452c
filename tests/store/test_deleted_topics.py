"""Deleted topics in the store: marks, and what dispatch, recovery and queries make of records that are dead."""
import json
import os
import shutil
import struct

import pytest

from rmqha.common import mix_all
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.store.support import batch, bodies, crash, message, new_store, open_store, put, wait_dispatched


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
def test_topic_made_again_is_rebuilt_without_the_messages_of_before(tmp_path, monkeypatch, lose, crashed, compiled):
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
def test_deleted_topic_stays_away_when_the_queues_are_lost(tmp_path, crashed):
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


def test_without_marks_message_zero_begins_its_queue_anew(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 100)
        store.delete_topic("T")
        put_numbered(store, "new", 31)
        wait_dispatched(store)
    lose_queues(tmp_path)
    os.unlink(tmp_path / "config" / "deletedTopics.json")
    with open_store(tmp_path) as store:
        assert all_bodies(store) == of("new", 31)


def test_flipped_index_zero_does_not_begin_a_queue_anew(tmp_path):
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


def test_queues_that_a_kill_left_after_the_mark_go_at_the_next_start(tmp_path, monkeypatch):
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


def test_mark_behind_the_end_of_a_shorter_log_kills_nothing_that_comes_there(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "other", 10, "O")
        wait_dispatched(store)
        end = store.get_max_phy_offset()
        put_numbered(store, "old", 50)
        store.delete_topic("T")
        crash(store)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:  # of a loss of power
        file.seek(end)
        file.write(bytes(10_000))
    with open_store(tmp_path) as store:
        assert marks_in(tmp_path) == {"T": end}
        put_numbered(store, "new", 31)
        assert all_bodies(store) == of("new", 31)
    lose_queues(tmp_path)
    with open_store(tmp_path) as store:
        assert all_bodies(store) == of("new", 31)


def test_mark_behind_the_place_at_which_the_log_is_cut_off_kills_nothing_that_comes_there(tmp_path):
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


def test_marks_that_can_not_be_read_stop_the_start(tmp_path):
    with open_store(tmp_path) as store:
        put_numbered(store, "old", 10)
        store.delete_topic("T")
    (tmp_path / "config" / "deletedTopics.json").write_text('{"deletedTopics":{"T":"x"}}')
    assert not new_store(tmp_path).load()


def test_topic_stays_whole_when_its_mark_can_not_be_written(tmp_path, monkeypatch):
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


def test_marks_go_with_the_log_files_before_them(tmp_path):
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


def test_put_checked_before_the_deletion_is_told_that_the_topic_is_gone(tmp_path):
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


def test_query_by_key_finds_the_messages_of_the_topic_made_again_only(tmp_path):
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


def test_light_queue_begins_anew_and_its_topic_keeps_its_messages(tmp_path):
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


def test_expired_queue_with_a_message_on_its_way_stays(tmp_path, monkeypatch):
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
    """A store that gets the bytes of another one's log."""

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


def test_slaves_queues_are_the_masters_once_it_has_the_marks(tmp_path):
    with open_store(tmp_path / "master") as master, open_store(tmp_path / "slave") as store:
        slave = Slave(store, master)
        put_numbered(master, "old", 50, queues=4)
        slave.follow()
        master.delete_topic("T")
        put_numbered(master, "new", 7)
        slave.follow()
        assert all_bodies(store) == of("new", 7)  # that much the log says by itself
        assert bodies(store, "T", 3)
        assert store.queue_removal.take_over(master.deleted_topics.marks) == ["T"]
        assert not store.queue_removal.take_over(master.deleted_topics.marks)
        assert all_bodies(store) == of("new", 7) and set(store.consume_queue_table["T"]) == {0, 1}
        assert marks_in(tmp_path / "slave") == marks_in(tmp_path / "master")
    lose_queues(tmp_path / "slave")
    with open_store(tmp_path / "slave") as store:
        assert all_bodies(store) == of("new", 7) and set(store.consume_queue_table["T"]) == {0, 1}


def test_slave_takes_no_mark_before_its_log_is_there(tmp_path):
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
