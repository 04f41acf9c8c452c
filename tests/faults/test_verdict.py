"""Tests of the fault suite's checks: verdicts, the final check of a life, and the reading of changing logs."""
import itertools
import random
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults import pair as last_word
from tests.faults import verdict
from tests.faults.drawn_messages import EDGES, KIB, LONGEST_PROPERTIES, Drawing
from tests.faults.machine_faults import Power
from tests.faults.pair import SMALL, Pair
from tests.faults.pair_broker import Broker
from tests.faults.senders import TOPICS, Senders
from tests.faults.verdict import LogCopy, Violation, check_queues
from tests.store.support import message, open_store
from tests.support import store_compare
from tests.support.raw_remoting import SEND_BATCH

# The verdict on an index that was given twice, and on a record that the original has torn.


@pytest.fixture
def repeated(tmp_path):
    """Return the folder of a store whose log has index 1 of a queue twice."""
    with open_store(tmp_path) as store:
        for index in (0, 1, 1, 2):
            store.commit_log.topic_queue_table["T-0"] = index
            assert store.put_message(message(body=b"%d" % index)).is_ok
    return tmp_path


def broker(kind, name, store):
    """Return the attributes of a Broker that the verdict reads."""
    log = store / "commitlog"
    return SimpleNamespace(kind=kind, base_name=name, store=store, commit_log=log,
                           log_end=lambda: store_compare.log_end(log))


@pytest.mark.parametrize(("master_kind", "after_power_loss", "flawed", "good"), [
    ("java", True, True, True), ("java", True, False, False), ("java", False, True, False),
    ("rmqha", True, False, False)])
def test_only_an_original_that_lost_units_may_repeat_an_index(repeated, master_kind, after_power_loss, flawed, good):
    master, slave = broker(master_kind, "master", repeated), broker("rmqha", "slave", repeated)
    pair = SimpleNamespace(master=master, slave=slave, original_may_lose_units=after_power_loss,
                           flawed_queues=[master] if flawed else [],
                           copies={one.base_name: LogCopy(one.commit_log) for one in (master, slave)})
    if good:
        Pair._check_queues(pair, slave)
        assert pair.flawed_queues == [master, slave]
    else:
        with pytest.raises(verdict.Repeat, match="index 1 twice"):
            Pair._check_queues(pair, slave)


@pytest.mark.parametrize(("begin", "size", "torn"), [
    (-40, 40, True), (-1, 1, True), (-40, 20, True), (-500, 1, False), (-690, 690, False), (0, 0, False)], ids=str)
def test_only_lost_properties_count_as_holes(tmp_path, begin, size, torn):
    with open_store(tmp_path / "slave") as store:
        for _ in range(3):
            assert store.put_message(message(body=b"b" * 500, KEYS="k" * 100)).is_ok
        end = store.get_max_phy_offset()
    shutil.copytree(tmp_path / "slave", tmp_path / "master")
    with open(tmp_path / "master" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(end + begin)
        file.write(bytes(size))
    original, other = broker("java", "master", tmp_path / "master"), broker("rmqha", "slave", tmp_path / "slave")
    assert Power._keeps_holes(original, other, end) is torn


@pytest.mark.parametrize("is_written", [True, False])
def test_logs_are_compared_after_the_last_record_is_written(tmp_path, monkeypatch, is_written):
    for name in ("master", "slave"):
        with open_store(tmp_path / name) as store:
            assert store.put_message(message(body=bytes(range(1, 256)) * 6)).is_ok
    master, slave = (broker("rmqha", name, tmp_path / name) for name in ("master", "slave"))
    end = master.log_end()
    file = next(slave.commit_log.iterdir())
    whole = next(master.commit_log.iterdir()).read_bytes()
    file.write_bytes(whole[:end - 500] + bytes(len(whole) - end + 500))
    if not is_written:
        monkeypatch.setattr(verdict, "_WRITE_MS", 50)
        with pytest.raises(verdict.Violation, match=f"B: commit logs differ at offset {end - 500}"):
            verdict._equal_range(master, slave, end)
        return
    compare = store_compare.compare_commit_logs
    monkeypatch.setattr(store_compare, "compare_commit_logs", lambda *logs: _then(
        lambda: compare(*logs), lambda: file.write_bytes(whole)))
    assert verdict._equal_range(master, slave, end) == (0, end)


def _then(first, second):
    """Call `first`, and then `second` even after an exception; return the result of `first`."""
    try:
        return first()
    finally:
        second()


# The final check of a life finds missing messages, over the wire and in the files.


def test_messages_that_differ_from_those_sent_are_found(tmp_path):
    broker = Broker("rmqha", tmp_path / "one", "one", **SMALL)
    try:
        broker.start(120_000)
        senders = Senders(broker.address, "s", 1, tmp_path / "journal", drawing=Drawing(128 * KIB))
        try:
            senders.go()
            senders.wait_for_more(200)
            senders.pause()
        finally:
            senders.close()
        copy = LogCopy(broker.commit_log)
        check_queues(broker, copy)
        placed = list(senders.acknowledged.items())
        assert last_word.check_by_offset(broker.address, "one", placed) == len(placed) >= 200
        assert last_word.check_by_queue(broker.address, "one", copy) == copy.count >= 200
        last_word.check_store(broker)
        name, first = placed[0]
        for wrong in (replace(first, crc=first.crc ^ 1), replace(first, offset=first.offset + 12)):
            with pytest.raises(Violation, match=f"read from the one at {wrong.offset}"):
                last_word.check_by_offset(broker.address, "one", [(name, wrong)])
        copy.places[name] = [(*first.place()[:-1], first.crc ^ 1)]
        with pytest.raises(Violation, match="a consumer reads"):
            last_word.check_by_queue(broker.address, "one", copy)
        # a CRC; that of an empty body is never checked
        offset = next(record.offset for record in store_compare.walk(broker.commit_log) if record.body)
        with open(broker.commit_log / f"{0:020d}", "r+b") as log:
            log.seek(offset + 8)
            log.write(b"\x7f\xff\xff\xff")
        with pytest.raises(Violation, match="V: store verify of the one: code 1"):
            last_word.check_store(broker)
    finally:
        broker.kill()


# The campaigns' reading of a log: it continues where it ended, and detects changes and incomplete records.


@pytest.fixture
def store(tmp_path):
    """Yield an open store with three messages."""
    with open_store(tmp_path) as opened:
        for number in range(3):
            assert opened.put_message(message(body=b"%d" % number * 500, KEYS=f"m{number}", TAGS="T")).is_ok
        yield opened


def folder_of(store):
    """Return the folder of its log."""
    return Path(store.message_store_config.get_store_path_commit_log())


def log_of(store):
    """Return the only file of its log."""
    (file,) = folder_of(store).glob("0*0")
    return file


def write(file, at, data):
    """Overwrite bytes of a file."""
    with open(file, "r+b") as log:
        log.seek(at)
        log.write(data)


def test_growing_log_is_read_incrementally(store):
    copy = LogCopy(folder_of(store))
    copy.read()
    assert (copy.count, sorted(copy.places), copy.flaw) == (3, ["m0", "m1", "m2"], "")
    assert store.put_message(message(body=b"", KEYS="m3", TAGS="T")).is_ok
    ends = copy.followed_end()
    assert copy.log_end() == ends() == store.get_max_phy_offset() > copy.end
    copy.read()
    assert copy.count == 4 and copy.end == store.get_max_phy_offset()
    assert store.put_message(message(body=b"m" * 99)).is_ok
    assert ends() == store.get_max_phy_offset()


def test_half_written_size_is_read_again(store):
    """Its bytes may be in two cache lines: a record of 29,046 bytes (0x7176) was once seen with 118 (0x76)."""
    copy = LogCopy(folder_of(store))
    copy.read()
    begin = copy.end
    for name in ("long", "next"):
        assert store.put_message(message(body=bytes(900), KEYS=name)).is_ok
    end = store.get_max_phy_offset()
    whole = log_of(store).read_bytes()[begin:end]
    size = int.from_bytes(whole[:4], "big")
    assert size & 0xFF00 and size & 0xFF
    ends = copy.followed_end()
    # the states of the two records: missing, torn, ...
    for seen, behind in (
            (bytes(end - begin), begin), (bytes(3) + whole[3:8], begin + (size & 0xFF)), (whole[:size], begin + size),
            (whole[:size] + bytes(3) + whole[size + 3:size + 8], begin + size + (size & 0xFF)), (whole, end)):
        write(log_of(store), begin, seen.ljust(end - begin, b"\0"))
        assert ends() == behind


def test_body_with_a_wrong_crc_ends_the_reading(store):
    copy = LogCopy(folder_of(store))
    copy.read()
    (_, _, _, second, _), = copy.places["m1"]
    copy.forget()
    write(log_of(store), second + 100, b"\xff")
    copy.read()
    assert copy.count == 1 and copy.end == second
    assert "has another body than its CRC is of" in copy.flaw


def test_partial_record_of_a_slave_is_not_a_flaw_and_is_read_when_complete(store):
    copy, end = LogCopy(folder_of(store)), store.get_max_phy_offset()
    copy.read()
    (_, _, _, third, _), = copy.places["m2"]
    data = log_of(store).read_bytes()[third:end]
    for size in (1, 7, 8, len(data) // 2, len(data) - 1):
        copy.forget()
        write(log_of(store), third + size, bytes(len(data) - size))
        copy.read(third + size)
        assert (copy.count, copy.end, copy.flaw) == (2, third, "")
        write(log_of(store), third, data)
        copy.read(end)
        assert (copy.count, copy.end, copy.flaw) == (3, end, "")


def test_changed_last_record_makes_it_read_everything_again(store):
    copy = LogCopy(folder_of(store))
    copy.read()
    (_, _, _, third, _), = copy.places["m2"]
    write(log_of(store), third, bytes(copy.end - third))
    copy.read()
    assert copy.count == 2 and sorted(copy.places) == ["m0", "m1"] and copy.end == third


@pytest.mark.parametrize("read_before_the_blank", [False, True])
def test_removed_blank_makes_it_read_everything_again(tmp_path, read_before_the_blank):
    """The original, killed before it had the next file, puts a smaller message in the blank's place."""
    def put(store, name, size=1500):
        assert store.put_message(message(body=bytes(size), KEYS=name)).is_ok

    with open_store(tmp_path, mappedFileSizeCommitLog=4096) as store:
        copy = LogCopy(folder_of(store))
        put(store, "m0")
        put(store, "m1")
        if read_before_the_blank:
            copy.read()
        before = store.get_max_phy_offset()
        put(store, "m2")
    first, second = sorted(copy.folder.iterdir())
    second.unlink()
    copy.read()
    assert (copy.count, copy.end) == (2, 4096)
    write(first, before, bytes(4096 - before))
    with open_store(tmp_path, mappedFileSizeCommitLog=4096) as store:
        assert store.get_max_phy_offset() == before
        put(store, "small", 10)
        put(store, "m3")
        copy.read(store.get_max_phy_offset())
        assert sorted(copy.places) == ["m0", "m1", "m3", "small"] and copy.end == store.get_max_phy_offset()


def test_index_lower_than_the_previous_one_is_a_repeat(store):
    """This does not depend on whether the log still has the first message with the index."""
    copy = LogCopy(folder_of(store))
    copy.read()
    (topic, queue_id, *_), = copy.places["m2"]
    assert copy.repeated == ""
    for index, repeated in ((9, ""), (7, f"{topic}/{queue_id}: index 7 after 9")):
        store.commit_log.topic_queue_table[f"{topic}-{queue_id}"] = index
        assert store.put_message(message(body=b"", KEYS="later")).is_ok
        copy.read()
        assert copy.repeated == repeated


def test_nothing_is_read_beyond_a_limit(store):
    copy = LogCopy(folder_of(store))
    copy.read()
    (_, _, _, third, _), = copy.places["m2"]
    copy.read(third)
    assert copy.count == 2 and copy.end == third


def test_record_at_another_offset_is_a_flaw(store):
    copy = LogCopy(folder_of(store))
    write(log_of(store), 28, struct.pack(">q", 12))
    copy.read()
    assert copy.count == 0 and copy.flaw.endswith("says 12")


def drawn(drawing, count=6000):
    """Return the requests of one seed."""
    rng, names = random.Random(3), (f"n{number}" for number in itertools.count())
    return [drawing.request(rng, TOPICS, 4, names) for _ in range(count)]


@pytest.mark.parametrize("largest", [128 * KIB, 4 << 20])
def test_messages_of_all_sizes_are_drawn(largest):
    requests = drawn(Drawing(largest))
    messages = [one for request in requests for one in request.messages]
    sizes = Counter(len(one.body) for one in messages)
    assert sizes[0] > 50 and max(sizes) <= largest
    assert max(sizes) > largest // 2 and sum(count for size, count in sizes.items() if 5000 <= size <= 30_000) > 1000
    assert all(any(abs(size - edge) < 3 for size in sizes) for edge in EDGES if edge <= largest)
    properties = [len(one.properties) for one in messages]
    assert LONGEST_PROPERTIES - 60 < max(properties) <= LONGEST_PROPERTIES
    batches = [request for request in requests if request.code == SEND_BATCH]
    assert len(batches) > 500 and max(len(batch.messages) for batch in batches) > 15
    assert max(len(request.body()) for request in requests) <= largest
    assert {request.topic for request in requests} == set(TOPICS)
    assert len({one.name for one in messages}) == len(messages)


def test_messages_of_a_fixed_size_make_records_of_one_size():
    requests = drawn(Drawing(fixed_size=300), 100)
    assert {(len(one.messages), one.topic, len(one.body())) for one in requests} == {(1, TOPICS[0], 300)}


def test_same_seed_draws_the_same_messages():
    assert [request.messages for request in drawn(Drawing(), 200)] == [
        request.messages for request in drawn(Drawing(), 200)]
