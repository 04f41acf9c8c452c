"""Opening a store again: after a clean shutdown, after a crash, and with damaged files."""
import os
import random
import shutil

import pytest

from rmqha.common.message import message_layout
from rmqha.store import reput_message_service
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.store_marks import RecoveryBase
from tests.store.support import FILE_SIZE, bodies, crash, message, new_store, open_store, put, tree, wait_dispatched
from tests.support.own_threads import own_threads

RECORDS = 60


def write(root, count=RECORDS, ending=None, **keys) -> list[int]:
    """A store with `count` messages in queue 0 of T; the offset of each."""
    store = new_store(root, **keys)
    assert store.load()
    store.start()
    offsets = [put(store, message(body=b"%03d" % index + b"x" * 700))[0].wrote_offset for index in range(count)]
    wait_dispatched(store)
    (ending or type(store).shutdown)(store)
    return offsets


def log_file(root, offset: int):
    return root / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"


def patch(root, offset: int, data: bytes) -> None:
    with open(log_file(root, offset), "r+b") as file:
        file.seek(offset % FILE_SIZE)
        file.write(data)


def numbers(store) -> list[int]:
    return [int(body[:3]) for body in bodies(store)]


@pytest.mark.parametrize("ending", [None, crash])
def test_store_opens_as_it_was(tmp_path, ending):
    write(tmp_path, ending=ending)
    assert (tmp_path / "abort").exists() is (ending is crash)
    with open_store(tmp_path) as store:
        assert numbers(store) == list(range(RECORDS))
        assert put(store, message())[0].logics_offset == RECORDS
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("lost", [["consumequeue"], ["consumequeue", "index", "checkpoint"], ["checkpoint"], ["index"]])
@pytest.mark.parametrize("ending", [None, crash])
def test_what_the_log_can_give_back_is_rebuilt(tmp_path, lost, ending):
    write(tmp_path, ending=ending)
    before = tree(tmp_path / "consumequeue")
    for name in lost:
        path = tmp_path / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    with open_store(tmp_path) as store:
        assert numbers(store) == list(range(RECORDS))
    assert tree(tmp_path / "consumequeue") == before


@pytest.mark.parametrize("ending", [None, crash])
@pytest.mark.parametrize("field", [0, 4, 84, 87, 88, 100, 700])
def test_last_file_is_cut_at_the_flaw(tmp_path, ending, field):
    offsets = write(tmp_path, ending=ending)
    bad = offsets[-3]
    patch(tmp_path, bad + field, b"\x55\xaa")
    with open_store(tmp_path) as store:
        assert numbers(store) == list(range(RECORDS - 3))
        assert store.get_max_phy_offset() == bad
        assert not any(log_file(tmp_path, bad).read_bytes()[bad % FILE_SIZE:])
        assert put(store, message())[0].logics_offset == RECORDS - 3


@pytest.mark.parametrize("ending", [None, crash])
def test_flaw_in_an_earlier_file_is_refused_and_nothing_is_changed(tmp_path, ending, caplog):
    offsets = write(tmp_path, ending=ending)
    bad = offsets[5] if ending is crash else offsets[-25]
    assert log_file(tmp_path, bad) != log_file(tmp_path, offsets[-1])
    patch(tmp_path, bad + 4, b"\0\0\0\0")
    before = tree(tmp_path / "commitlog")
    if ending is crash:
        (tmp_path / "checkpoint").unlink()
    store = new_store(tmp_path)
    assert not store.load()
    assert str(bad) in caplog.text and "damaged" in caplog.text
    assert tree(tmp_path / "commitlog") == before
    store.shutdown()


def test_file_of_another_length_is_refused(tmp_path, caplog):
    offsets = write(tmp_path)
    with open(log_file(tmp_path, offsets[0]), "ab") as file:
        file.write(b"x")
    store = new_store(tmp_path)
    assert not store.load()
    assert "length not matched" in caplog.text


@pytest.mark.parametrize("ending", [None, crash])
def test_empty_last_file_is_taken(tmp_path, ending):
    offsets = write(tmp_path, ending=ending)
    path = log_file(tmp_path, offsets[-1] + FILE_SIZE)
    path.write_bytes(b"")
    with open_store(tmp_path) as store:
        assert numbers(store) == list(range(RECORDS))
        put(store, *(message(body=b"099" + b"x" * 700) for _ in range(30)))
    with open_store(tmp_path) as store:
        assert len(numbers(store)) == RECORDS + 30


def test_log_that_is_gone_takes_its_queues_along(tmp_path):
    write(tmp_path)
    shutil.rmtree(tmp_path / "commitlog")
    with open_store(tmp_path) as store:
        assert store.get_max_offset_in_queue("T", 0) == 0
        assert put(store, message())[0].logics_offset == 0


def test_queues_longer_than_the_log_are_cut(tmp_path):
    offsets = write(tmp_path)
    keep = offsets[30]
    for path in (tmp_path / "commitlog").iterdir():
        if int(path.name) > keep:
            path.unlink()
    patch(tmp_path, keep, bytes(FILE_SIZE - keep % FILE_SIZE))
    with open_store(tmp_path) as store:
        assert numbers(store) == list(range(30))
        assert put(store, message(body=b"030"))[0].logics_offset == 30
        wait_dispatched(store)
        assert numbers(store) == list(range(31))


def test_second_crash_cannot_bring_cut_records_back(tmp_path):
    offsets = write(tmp_path, ending=crash)
    patch(tmp_path, offsets[-5] + 4, b"\0\0\0\0")  # the four behind it are whole
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    assert store.get_max_phy_offset() == offsets[-5]
    put(store, message(body=b"055" + b"y" * 700))  # as long as the record that was damaged
    wait_dispatched(store)
    crash(store)
    with open_store(tmp_path) as again:
        assert numbers(again) == list(range(56))
        assert again.get_max_phy_offset() == offsets[-4]


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_to_the_last_file_leaves_a_prefix(tmp_path, seed):
    rng = random.Random(seed)
    offsets = write(tmp_path, ending=rng.choice((None, crash)))
    first = next(offset for offset in offsets if log_file(tmp_path, offset) == log_file(tmp_path, offsets[-1]))
    data = bytearray(log_file(tmp_path, first).read_bytes())
    end = offsets[-1] % FILE_SIZE + 800
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(end)] ^= 1 << rng.randrange(8)
    log_file(tmp_path, first).write_bytes(data)
    with open_store(tmp_path) as store:
        wait_dispatched(store)
        found = numbers(store)
        assert found == list(range(len(found)))
        assert put(store, message())[0].logics_offset == len(found)


def test_dispatch_that_stopped_anywhere_is_made_up(tmp_path, monkeypatch):
    """The process dies with dispatch paused at every record in turn, across file rolls."""
    monkeypatch.setattr(reput_message_service, "BULK_BYTES", 1 << 40)  # record by record
    write(tmp_path / "whole", 45, ending=crash)
    expected = tree(tmp_path / "whole" / "consumequeue")
    for stop in range(0, 45, 4):
        root = tmp_path / str(stop)
        store = new_store(root)
        assert store.load()
        store.start()
        seen = [0]

        def dispatch(request, real=store.record_dispatcher.do_dispatch, seen=seen, stop=stop):
            if seen[0] < stop:
                seen[0] += 1
                real(request)

        store.record_dispatcher.do_dispatch = dispatch
        for index in range(45):
            put(store, message(body=b"%03d" % index + b"x" * 700))
        wait_dispatched(store)
        assert store.get_max_offset_in_queue("T", 0) == stop
        crash(store)
        with open_store(root) as again:
            assert numbers(again) == list(range(45))
        assert tree(root / "consumequeue") == expected


def test_replayed_dispatch_changes_nothing(tmp_path):
    write(tmp_path)
    with open_store(tmp_path) as store:
        before = tree(tmp_path / "consumequeue")
        for request in store.commit_log.walk_records(0, store.get_max_phy_offset()):
            store.record_dispatcher.do_dispatch(request)
        assert tree(tmp_path / "consumequeue") == before
        assert store.get_max_offset_in_queue("T", 0) == RECORDS


def test_master_keeps_the_blank_at_the_end_and_a_slave_cuts_it(tmp_path):
    offsets = write(tmp_path, 25)
    end = offsets[-1] // FILE_SIZE * FILE_SIZE
    last_in_first = max(offset for offset in offsets if offset < end)
    blank_at = last_in_first + offsets[1] - offsets[0]
    for path in (tmp_path / "commitlog").iterdir():
        if int(path.name) >= end:
            path.unlink()
    shutil.copytree(tmp_path, tmp_path / "copy")
    with open_store(tmp_path / "copy", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.get_max_phy_offset() == blank_at
    with open_store(tmp_path) as master:
        assert master.get_max_phy_offset() == end
        assert put(master, message(body=b""))[0].wrote_offset == end


def test_slave_with_half_a_record_waits_for_the_rest(tmp_path):
    write(tmp_path / "master", 10)
    data = (tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()
    size = message_layout.INT.unpack_from(data)[0]
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(0, data, 0, size + 50)
        assert slave.reput_message_service.wait_caught_up(300) is False
        assert slave.get_max_offset_in_queue("T", 0) == 1
        assert slave.append_to_commit_log(size + 50, data, size + 50, size - 50)
        wait_dispatched(slave)
        assert slave.get_max_offset_in_queue("T", 0) == 2
        assert slave.append_to_commit_log(2 * size, data, 2 * size, 30)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.get_max_phy_offset() == 2 * size


@pytest.mark.parametrize("total_size", [0, 1, 90, 2**31 - 1, -1, -(2**31)])
def test_absurd_size_in_the_log_does_not_stop_dispatch_for_ever(tmp_path, total_size, caplog):
    with open_store(tmp_path) as store:
        first = put(store, message())[0]
        wait_dispatched(store)
        mapped_file = store.commit_log.mapped_file_queue.mapped_files[-1]
        mapped_file.append_bytes(message_layout.BLANK.pack(total_size, message_layout.MESSAGE_MAGIC_CODE) + bytes(200))
        store.on_appended()
        wait_dispatched(store)
        assert str(first.wrote_bytes) in caplog.text
        put(store, message(body=b"after"))
        wait_dispatched(store)
        assert bodies(store)[-1] == b"after"


def test_two_stores_exclude_each_other(tmp_path):
    with open_store(tmp_path):
        before = tree(tmp_path)
        other = new_store(tmp_path)
        with pytest.raises(RuntimeError, match="Lock failed,MQ already started"):
            other.load()
        other.shutdown()
        assert tree(tmp_path) == before
        assert (tmp_path / "lock").read_bytes() == b"lock"
    with open_store(tmp_path):
        assert (tmp_path / "lock").read_bytes() == b"lock"


def test_lock_is_the_one_that_java_takes(tmp_path):
    """Java locks byte 0 to 1 of the file with fcntl, per process: so ask from another process."""
    script = ("import fcntl, os, sys\n"
              "fd = os.open(sys.argv[1], os.O_RDWR)\n"
              "try:\n"
              "    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
              "except OSError:\n"
              "    sys.exit(7)\n")
    import subprocess
    import sys
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    with open_store(tmp_path):
        assert subprocess.run(command, check=False, timeout=600).returncode == 7
    assert subprocess.run(command, check=False, timeout=600).returncode == 0


def test_nothing_is_left_behind_by_a_store_that_was_closed(tmp_path):
    def state():
        return len(os.listdir("/proc/self/fd")), len(own_threads())

    write(tmp_path / "warm")
    before = state()
    for index in range(3):
        write(tmp_path / str(index))
    assert state() == before


def test_offsets_of_a_promoted_slave_follow_its_queues(tmp_path):
    write(tmp_path / "master")
    shutil.copytree(tmp_path / "master", tmp_path / "slave")
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.get_max_offset_in_queue("T", 0) == RECORDS
    with open_store(tmp_path / "slave") as promoted:
        assert put(promoted, message())[0].logics_offset == RECORDS


def test_destroyed_store_leaves_no_message(tmp_path):
    write(tmp_path)
    store = new_store(tmp_path)
    assert store.load()
    store.destroy()
    store.shutdown()
    assert not list((tmp_path / "consumequeue").rglob("0*")) and not (tmp_path / "commitlog").exists()
    with open_store(tmp_path) as again:
        assert again.get_max_phy_offset() == 0


@pytest.mark.parametrize("lost", [[0], [1], [0, 1, 2], [2, 5]])
def test_units_that_are_lost_before_the_last_three_files_are_built_again(tmp_path, lost):
    """A loss of power: of the files that a queue has filled since its last flush only later ones are on the disk."""
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    put(store, *(message(body=b"%d" % number) for number in range(290)), message(queue_id=1))
    wait_dispatched(store)
    crash(store)
    files = sorted((tmp_path / "consumequeue/T/0").iterdir())
    assert len(files) == 6
    for index in lost:
        files[index].write_bytes(bytes(1000))
    with open_store(tmp_path) as again:
        wait_dispatched(again)
        assert bodies(again) == [b"%d" % number for number in range(290)]


def test_queue_files_that_the_checkpoint_covers_are_not_looked_at(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        put(store, *(message() for _ in range(290)))
        wait_dispatched(store)
        end = store.get_max_phy_offset()
    with open_store(tmp_path) as store:
        queue = store.find_consume_queue("T", 0)
        recovery, files = store.consume_queue_table.recovery_of(queue), queue.mapped_file_queue.mapped_files
        stopped, killed, early = (RecoveryBase(end, dispatched, True, False, False, was_stopped)
                                  for dispatched, was_stopped in ((0, True), (end, False), (0, False)))
        assert [recovery._first_unsure(files, base) for base in (stopped, killed, early)] == [3, 3, 0]
