"""What a clean stop notes of the consume queues, and a start that believes it, or doesn't."""
import json
import os
import shutil
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.message import message_decoder
from rmqha.store import store_marks
from rmqha.store.mapped_file import MappedFile
from tests.store.support import crash, message, new_store, open_store
from tests.support.wait import wait_until

BELIEVED = "the ends of the consume queues are those that the last stop noted"
THROWN_AWAY = "what the last stop noted of the consume queues is thrown away"
QUEUES = [("A", 0), ("A", 1), ("B", 0), ("%RETRY%g", 0)]


def put_all(store, count=3):
    """So many messages into each queue."""
    for _ in range(count):
        for topic, queue_id in QUEUES:
            assert store.put_message(message(topic, queue_id)).is_ok
    assert wait_until(lambda: store.dispatch_behind_bytes() == 0)


def state(store):
    """All that a queue's next message and its readers go by."""
    return {(queue.topic, queue.queue_id): (
        queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue(),
        queue.mapped_file_queue.flushed_where, queue.mapped_file_queue.committed_where,
        [(file.file_name, file.wrote_position, file.committed_position, file.flushed_position)
         for file in queue.mapped_file_queue.mapped_files]) for queue in store.all_consume_queues()}


def ends_file(root):
    """Its path."""
    return root / "consumequeue.ends"


def noted(root):
    """Of a store that was stopped."""
    return store_marks.decode(ends_file(root).read_bytes())


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    """A stopped store whose queue A-0 has more than one file."""
    root = tmp_path / "store"
    with open_store(root, mappedFileSizeConsumeQueue=200) as store:
        put_all(store, 12)
        for _ in range(12):
            assert store.put_message(message("A", 0)).is_ok
    return root


def start_again(root, **keys):
    """The state of the queues behind another start; the messages that it takes are read."""
    with open_store(root, **{"mappedFileSizeConsumeQueue": 200, **keys}) as store:
        result = state(store)
        put_all(store, 2)
        for topic, queue_id in QUEUES:
            assert indexes(store, topic, queue_id, 2) == [result_end(result, topic, queue_id) + n for n in (0, 1)]
    return result


def result_end(result, topic, queue_id):
    """Index of a queue's next message; 0 of a queue that was not there."""
    return result[topic, queue_id][2] if (topic, queue_id) in result else 0


def indexes(store, topic, queue_id, count):
    """Those in the records of a queue's last messages."""
    found, end = [], store.get_max_offset_in_queue(topic, queue_id)
    for index in range(end - count, end):
        result = store.get_message("g", topic, queue_id, index, 1)
        found += [msg.queue_offset for part in result.message_buffer_list for msg in [message_decoder.decode(part)]]
        result.release()
    return found


def without_notes(root, **keys):
    """The state of the queues of a copy of the store that has nothing noted."""
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    ends_file(copy).unlink()
    with open_store(copy, **{"mappedFileSizeConsumeQueue": 200, **keys}) as store:
        found = state(store)
    shutil.rmtree(copy)
    return {queue: (*numbers, [(name.replace(str(copy), str(root)), *positions) for name, *positions in files])
            for queue, (*numbers, files) in found.items()}


def test_a_start_behind_a_clean_stop_finds_what_recovery_would(root, caplog):
    expected = without_notes(root)
    with caplog.at_level("INFO", "RocketmqStore"):
        assert start_again(root) == expected
    assert BELIEVED in caplog.text


def test_it_opens_no_file_of_a_queue(root, monkeypatch):
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


def test_again_and_again(root, caplog):
    for _ in range(3):
        expected = without_notes(root)
        caplog.clear()
        with caplog.at_level("INFO", "RocketmqStore"):
            assert start_again(root) == expected
        assert BELIEVED in caplog.text


def test_a_store_of_which_messages_have_expired(root, caplog):
    with open_store(root, mappedFileSizeConsumeQueue=200) as store:
        for _ in range(200):
            assert store.put_message(message("A", 0)).is_ok
        assert wait_until(lambda: store.dispatch_behind_bytes() == 0)
        assert store.commit_log.mapped_file_queue.delete_expired_file_by_time(0, 0, 0, True) > 0
        service = store.clean_consume_queue_service

        def is_clean():
            """A file that is being flushed is left to the next round."""
            service._last_physical_min_offset = 0
            service.run()
            return store.get_min_offset_in_queue("A", 0) > 0
        wait_until(is_clean)
    expected = without_notes(root)
    with caplog.at_level("INFO", "RocketmqStore"):
        assert start_again(root) == expected
    assert BELIEVED in caplog.text


def test_a_queue_without_messages(tmp_path, caplog):
    with open_store(tmp_path) as store:
        store.find_consume_queue("Empty", 0)
    with caplog.at_level("INFO", "RocketmqStore"), open_store(tmp_path) as store:
        assert store.get_consume_queue("Empty", 0) is None  # nothing of it was on the disk
    assert BELIEVED in caplog.text


def test_nothing_is_believed_behind_a_crash(root, caplog):
    kept = ends_file(root).read_bytes()
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    assert not ends_file(root).exists()
    put_all(store)
    crash(store)
    assert not ends_file(root).exists()
    ends_file(root).write_bytes(kept)
    caplog.clear()  # of the first start, which believes it
    with caplog.at_level("INFO", "RocketmqStore"):
        start_again(root)
    assert BELIEVED not in caplog.text


def test_a_stop_that_was_not_clean_notes_nothing(root):
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    store.running_flags.make_flush_error()
    store.shutdown()
    assert not ends_file(root).exists()


def test_a_queue_with_a_gap_is_not_noted(root, caplog):
    store = new_store(root, mappedFileSizeConsumeQueue=200)
    assert store.load()
    store.start()
    queue = store.get_consume_queue("A", 0).mapped_file_queue
    queue.mapped_files = [queue.mapped_files[0], *queue.mapped_files[2:]]
    store.shutdown()
    assert not ends_file(root).exists()
    assert "are not noted" in caplog.text


def changed(root, change):
    """The file with another content, and a checksum that is right."""
    ends = json.loads(ends_file(root).read_bytes().split(b"\n")[1])
    change(ends)
    text = json.dumps(ends).encode()
    ends_file(root).write_bytes(b"%d\n%b\n" % (zlib.crc32(text), text))


def older(root, other):
    """Of the stop before."""
    kept = ends_file(root).read_bytes()
    start_again(root)
    ends_file(root).write_bytes(kept)


def newer(root, other):
    """Of a stop that is still to come."""
    shutil.copytree(root, other)
    start_again(root)
    shutil.copy(ends_file(root), ends_file(other))
    shutil.rmtree(root)
    shutil.copytree(other, root)


def of_another_store(root, other):
    """Which has been written as often."""
    with open_store(other, mappedFileSizeConsumeQueue=200) as store:
        put_all(store, 12)
    changed(other, lambda ends: ends.__setitem__(1, noted(root).number))
    shutil.copy(ends_file(other), ends_file(root))


def cut(root, _other):
    """In the middle."""
    os.truncate(ends_file(root), ends_file(root).stat().st_size // 2)


def empty(root, _other):
    """As a loss of power may leave it."""
    os.truncate(ends_file(root), 0)


def flipped(root, _other):
    """One bit of it."""
    data = bytearray(ends_file(root).read_bytes())
    data[len(data) // 2] ^= 4
    ends_file(root).write_bytes(data)


def of_another_version(root, _other):
    """Whose fields nobody knows."""
    changed(root, lambda ends: ends.__setitem__(0, 99))


def with_a_queue_changed(root, _other):
    """A unit that was there is gone."""
    with open(next((root / "consumequeue" / "B" / "0").iterdir()), "r+b") as file:
        file.seek(20)
        file.write(bytes(180))


def with_a_queue_gone(root, _other):
    """By somebody who wants it built again."""
    shutil.rmtree(root / "consumequeue" / "A" / "1")


def with_a_topic_gone(root, _other):
    """All its queues."""
    shutil.rmtree(root / "consumequeue" / "B")


def with_a_file_gone(root, _other):
    """The last one of a queue."""
    sorted((root / "consumequeue" / "A" / "0").iterdir())[-1].unlink()


def with_a_file_cut(root, _other):
    """The last one of a queue, which is brought to its length again."""
    os.truncate(sorted((root / "consumequeue" / "A" / "0").iterdir())[-1], 60)


def with_all_queues_gone(root, _other):
    """The folder, too."""
    shutil.rmtree(root / "consumequeue")


def with_a_queue_more(root, _other):
    """Of a topic that nobody knows."""
    shutil.copytree(root / "consumequeue" / "B" / "0", root / "consumequeue" / "C" / "0")


@pytest.mark.parametrize("lie", [
    older, newer, of_another_store, cut, empty, flipped, of_another_version, with_a_queue_changed, with_a_queue_gone,
    with_a_topic_gone, with_a_file_gone, with_a_file_cut, with_all_queues_gone, with_a_queue_more])
def test_a_lie_is_found(root, tmp_path, lie, caplog):
    lie(root, tmp_path / "other")
    expected = without_notes(root)
    caplog.clear()
    with caplog.at_level("INFO", "RocketmqStore"):
        found = start_again(root)
    assert found == expected
    assert THROWN_AWAY in caplog.text
    assert BELIEVED not in caplog.text


def test_files_of_another_size_are_asked_for(root, caplog):
    caplog.clear()
    store = new_store(root, mappedFileSizeConsumeQueue=400)
    assert not store.load()  # as ever: their length is not the configured one
    assert "files of queues had 200 bytes, and have 400 now" in caplog.text


ENDS = st.builds(
    store_marks.QueueEnds, st.just(1), st.integers(0, 2**62), st.integers(20, 6_000_000), st.integers(0, 2**62),
    st.lists(st.builds(store_marks.TopicEnds, st.text(), st.integers(0, 2**62), st.lists(st.builds(
        store_marks.QueueEnd, st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 2**62),
        st.lists(st.integers(0, 2**62)), st.integers(0, 2**62), st.integers(-1, 2**62), st.integers(0, 2**62),
        st.none() | st.lists(st.integers(-1, 2**63 - 1), min_size=3, max_size=3))))))


@given(ENDS)
def test_what_is_read_is_what_was_written(ends):
    assert store_marks.decode(store_marks.encode(ends)) == ends


@given(ENDS, st.data())
def test_a_file_with_one_byte_changed_is_refused(ends, data):
    content = bytearray(store_marks.encode(ends))
    at = data.draw(st.integers(0, len(content) - 2))  # the last one is a line's end, which may be missing
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(store_marks.WrongQueueEndsError):
        store_marks.decode(bytes(content))


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
    lambda value: b"%d\n%b" % (zlib.crc32(json.dumps(value).encode()), json.dumps(value).encode())))
def test_anything_else_is_refused(content):
    with pytest.raises(store_marks.WrongQueueEndsError):
        store_marks.decode(content)
