"""Opening a store again: after a clean shutdown, a crash or damage, with a flipped bit, and with several threads."""
import errno
import json
import os
import random
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rmqha.common.message import message_decoder, message_layout
from rmqha.store import commit_log_recovery, dispatch, reput_message_service
from rmqha.store.bulk import bulk
from rmqha.store.commit_log_recovery import CommitLogRecovery, DamagedCommitLogError
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.store_marks import RecoveryBase
from rmqha.tools.store_files.dump import dump_command
from tests.store.support import FILE_SIZE, bodies, crash, message, new_store, open_store, put, tree, wait_dispatched
from tests.support.wait import own_threads

# Opening a store again: after a clean shutdown, after a crash, and with damaged files.

RECORDS = 60


def write(root, count=RECORDS, ending=None, **keys) -> list[int]:
    """Write a store with `count` messages in queue 0 of T; return the offset of each."""
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
def test_lost_files_are_rebuilt_from_the_log(tmp_path, lost, ending):
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
def test_last_file_is_truncated_at_the_flaw(tmp_path, ending, field):
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
def test_empty_last_file_is_accepted(tmp_path, ending):
    offsets = write(tmp_path, ending=ending)
    path = log_file(tmp_path, offsets[-1] + FILE_SIZE)
    path.write_bytes(b"")
    with open_store(tmp_path) as store:
        assert numbers(store) == list(range(RECORDS))
        put(store, *(message(body=b"099" + b"x" * 700) for _ in range(30)))
    with open_store(tmp_path) as store:
        assert len(numbers(store)) == RECORDS + 30


def test_queues_of_a_missing_log_are_discarded(tmp_path):
    write(tmp_path)
    shutil.rmtree(tmp_path / "commitlog")
    with open_store(tmp_path) as store:
        assert store.get_max_offset_in_queue("T", 0) == 0
        assert put(store, message())[0].logics_offset == 0


def test_queues_longer_than_the_log_are_truncated(tmp_path):
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


def test_truncated_records_do_not_reappear_after_a_second_crash(tmp_path):
    offsets = write(tmp_path, ending=crash)
    # The four records after it are complete.
    patch(tmp_path, offsets[-5] + 4, b"\0\0\0\0")
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    assert store.get_max_phy_offset() == offsets[-5]
    # As long as the damaged record.
    put(store, message(body=b"055" + b"y" * 700))
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


def test_dispatch_that_stopped_at_any_record_is_completed(tmp_path, monkeypatch):
    """The process dies with its dispatch stopped at various records in turn, across several files."""
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


def test_master_keeps_the_blank_at_the_end_and_a_slave_truncates_it(tmp_path):
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


def test_slave_with_an_incomplete_record_waits_for_the_rest(tmp_path):
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
def test_absurd_size_in_the_log_does_not_stop_dispatch_forever(tmp_path, total_size, caplog):
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


def test_lock_is_compatible_with_java(tmp_path):
    """Java locks byte 0 to 1 of the file with fcntl, per process, so another process has to try the lock."""
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


def test_closed_store_leaves_no_descriptors_or_threads(tmp_path):
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
def test_lost_units_before_the_last_three_files_are_rebuilt(tmp_path, lost):
    """After a loss of power, only later ones of the files filled since the queue's last flush may be on the disk."""
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


def test_queue_files_covered_by_the_checkpoint_are_not_scanned(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        put(store, *(message() for _ in range(290)))
        wait_dispatched(store)
        end = store.get_max_phy_offset()
    with open_store(tmp_path) as store:
        queue = store.consume_queue_table.find_queue("T", 0)
        recovery, files = store.consume_queue_table.recovery_of(queue), queue.mapped_file_queue.mapped_files
        stopped, killed, early = (RecoveryBase(end, dispatched, True, False, False, was_stopped)
                                  for dispatched, was_stopped in ((0, True), (end, False), (0, False)))
        assert [recovery._first_unsure(files, base) for base in (stopped, killed, early)] == [3, 3, 0]


# A flipped bit in the log: truncated bytes are saved where they may hold good messages, or the start is refused.

REST_RECORDS = 50  # in three files


def body(number: int) -> bytes:
    return b"%03d" % number * 250


def write_rest(root: Path, ending=None) -> list[tuple[int, int]]:
    """Write a store with REST_RECORDS messages, closed or crashed; return offset and size of each."""
    store = new_store(root)
    assert store.load()
    store.start()
    places = []
    for number in range(REST_RECORDS):
        result = put(store, message(body=body(number)))[0]
        places.append((result.wrote_offset, result.wrote_bytes))
    wait_dispatched(store)
    (ending or type(store).shutdown)(store)
    return places


@pytest.fixture(scope="module", params=[None, crash], ids=["stopped", "crashed"])
def written(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("written") / "store"
    places = write_rest(root, request.param)
    assert [offset // FILE_SIZE for offset, _size in places[::REST_RECORDS - 1]] == [0, 2]
    return SimpleNamespace(root=root, places=places, was_stopped=request.param is None)


@pytest.fixture
def root(written, tmp_path):
    return Path(shutil.copytree(written.root, tmp_path / "store"))


def flip(root: Path, offset: int, bit: int = 0) -> None:
    path = root / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[offset % FILE_SIZE] ^= 1 << bit
    path.write_bytes(data)


def kept_in(root: Path) -> list[Path]:
    return sorted((root / "diverged").iterdir()) if (root / "diverged").exists() else []


def messages_of(path: Path) -> list[bytes]:
    """Return the bodies that `store dump` finds in a saved file."""
    run = CliRunner().invoke(dump_command, [str(path), "-o", "json"])
    return [json.loads(line)["body"].encode() for line in run.stdout.splitlines() if '"body"' in line]


@pytest.mark.parametrize("place", ["body", "body length", "magic code", "size", "physical offset"])
@pytest.mark.parametrize("from_end", [9, 2, 1])
def test_rest_after_a_flipped_bit_in_the_last_file_is_saved(written, root, place, from_end, caplog):
    at = {"size": 2, "magic code": 5, "physical offset": 34, "body length": 86, "body": 100}[place]
    bad, size = written.places[-from_end]
    flip(root, bad + at, 3)
    log_file = root / "commitlog" / f"{bad // FILE_SIZE * FILE_SIZE:020d}"
    rest = log_file.read_bytes()[bad % FILE_SIZE:]
    with open_store(root) as store:
        wait_dispatched(store)
        assert bodies(store) == [body(number) for number in range(REST_RECORDS - from_end)]
        assert store.get_max_phy_offset() == bad
    kept = kept_in(root)
    if not written.was_stopped and from_end == 1:
        assert not kept, "the torn tail of a crash was saved"
        return
    assert [path.name[:21] for path in kept] == [f"{bad:020d}.", f"{bad + size:020d}."][:from_end]
    data = b"".join(path.read_bytes() for path in kept)
    assert data == rest[:len(data)] and not any(rest[len(data):])
    if from_end > 1:
        assert messages_of(kept[1]) == [body(number) for number in range(REST_RECORDS - from_end + 1, REST_RECORDS)]
    said = [record for record in caplog.records if str(kept[0]) in record.getMessage()]
    assert [record.levelname for record in said] == ["ERROR"] and "store dump" in said[0].getMessage()
    assert (f"the first at {bad + size}" in said[0].getMessage()) == (from_end > 1)


def test_flipped_bit_in_an_earlier_file_is_refused_or_not_scanned(written, root):
    bad, _size = written.places[3]
    flip(root, bad + 100)
    before = tree(root / "commitlog")
    store = new_store(root)
    loaded = store.load()
    store.shutdown()
    assert not loaded or not written.was_stopped
    assert tree(root / "commitlog") == before and not kept_in(root)


def test_truncated_unflushed_files_are_saved_completely(tmp_path):
    """A crash may write later files to the disk before an earlier one; the unflushed part is truncated."""
    root = tmp_path / "store"
    store = new_store(root, flushIntervalCommitLog=600_000, flushIntervalConsumeQueue=600_000)
    assert store.load()
    store.start()
    # Nothing is flushed until the crash.
    store.commit_log.flush_commit_log_service.flush = lambda _pages: True
    places = []
    for number in range(REST_RECORDS):
        result = put(store, message(body=body(number)))[0]
        places.append((result.wrote_offset, result.wrote_bytes))
    wait_dispatched(store)
    log = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    positions = (root / "checkpoint.positions").read_bytes()
    crash(store)
    (root / "checkpoint.positions").write_bytes(positions)
    for name, data in log.items():
        (root / "commitlog" / name).write_bytes(data)
    flip(root, places[5][0] + 100)
    with open_store(root) as again:
        wait_dispatched(again)
        assert bodies(again) == [body(number) for number in range(5)]
    bad, *kept = kept_in(root)
    assert bad.stat().st_size == places[5][1] and len(kept) == 3
    assert [each for path in kept for each in messages_of(path)] == [body(number) for number in range(6, REST_RECORDS)]


@pytest.mark.parametrize("how", ["statvfs", "write"])
def test_start_is_refused_when_there_is_no_space_for_the_rest(written, root, monkeypatch, caplog, how):
    flip(root, written.places[-5][0] + 100)
    before = {name: data for name, data in tree(root).items() if name.startswith(("commitlog", "consumequeue"))}
    with monkeypatch.context() as patched:
        if how == "statvfs":
            patched.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=0, f_frsize=4096))
        else:
            def full(fd):
                if ".rest.part" in os.readlink(f"/proc/self/fd/{fd}"):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            patched.setattr(os, "fsync", full)
        store = new_store(root)
        assert not store.load()
        store.shutdown()
    assert "can't be saved" in caplog.text and "No space left on device" in caplog.text
    assert "Free some space" in caplog.text
    after = tree(root)
    assert {name: after[name] for name in before if name.startswith("commitlog")} == \
        {name: data for name, data in before.items() if name.startswith("commitlog")}
    assert not kept_in(root)
    # There is space again.
    with open_store(root) as store:
        assert len(bodies(store)) == REST_RECORDS - 5
    assert len(kept_in(root)) == 2


def test_later_starts_save_nothing_more(written, root):
    flip(root, written.places[-5][0] + 100)
    for _ in range(3):
        with open_store(root) as store:
            assert len(bodies(store)) == REST_RECORDS - 5
    assert len(kept_in(root)) == 2


def test_store_without_a_flaw_saves_nothing(written, root):
    with open_store(root) as store:
        assert len(bodies(store)) == REST_RECORDS
    assert not kept_in(root)


def test_torn_tail_of_a_crash_is_truncated_and_not_saved(tmp_path):
    root = tmp_path / "store"
    places = write_rest(root, crash)
    path = root / "commitlog" / f"{places[-1][0] // FILE_SIZE * FILE_SIZE:020d}"
    data = path.read_bytes()
    at, size = places[-1][0] % FILE_SIZE, places[-1][1]
    path.write_bytes(data[:at + size // 2] + bytes(FILE_SIZE - at - size // 2))
    with open_store(root) as store:
        assert len(bodies(store)) == REST_RECORDS - 1
    assert not kept_in(root)


@pytest.mark.parametrize("part", [1, 3, 5, 30, 100])
def test_slave_stopped_within_a_record_saves_nothing(tmp_path, part):
    places = write_rest(tmp_path / "master")
    data = (tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()
    end = places[3][0]
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(0, data, 0, end + part)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.get_max_phy_offset() == end
    assert not kept_in(tmp_path / "slave")


@pytest.mark.parametrize("seed", range(12))
def test_all_bytes_truncated_after_a_drawn_flip_are_saved(written, root, seed):
    draw = random.Random(seed)
    first = next(offset for offset, _size in written.places if offset >= 2 * FILE_SIZE)
    end = sum(written.places[-1])
    at = draw.randrange(first, end)
    flip(root, at, draw.randrange(8))
    log = (root / "commitlog" / f"{first // FILE_SIZE * FILE_SIZE:020d}").read_bytes()
    with open_store(root) as store:
        wait_dispatched(store)
        cut = store.get_max_phy_offset()
    # No check covers this bit.
    if cut == end:
        return
    kept = kept_in(root)
    if not kept:
        assert not written.was_stopped and cut == written.places[-1][0]
        return
    data = b"".join(path.read_bytes() for path in kept)
    assert data[:end - cut] == log[cut % FILE_SIZE:][:end - cut]


def test_decoder_reads_a_saved_file(written, root):
    """Each whole record of a saved file contains its former offset."""
    bad, size = written.places[-4]
    flip(root, bad + 100)
    with open_store(root):
        pass
    decoded = message_decoder.decode(memoryview(kept_in(root)[1].read_bytes()), True, False)
    assert decoded.body == body(REST_RECORDS - 3) and decoded.commit_log_offset == bad + size


# Recovery that scans several files in parallel has the same result as one that scans them in turn.

TOPICS = ("T", "U")


@pytest.fixture(scope="module")
def threads_written(tmp_path_factory):
    """Write a store of five files and two topics, and close it properly."""
    root = tmp_path_factory.mktemp("threads_written") / "store"
    store = new_store(root)
    assert store.load()
    store.start()
    for number in range(90):
        put(store, message(TOPICS[number % 2], number % 3, b"%03d" % number + b"x" * 700, KEYS=f"k{number}"))
    wait_dispatched(store)
    store.shutdown()
    assert len(list((root / "commitlog").iterdir())) >= 5
    return root


def recovered(written, root, cores, monkeypatch, caplog, change):
    """Start a store; return if it loads, its end, the results of the scan, its log lines, the flaws, and its files."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(written, root)
    change(root)
    noted, threads = [], []
    original, look_over = CommitLogRecovery._finish, CommitLogRecovery._look_over_file

    def finish(self, files, process_offset, *rest):
        assert not any(thread.name.startswith("RecoverCommitLogThread_") for thread in own_threads())
        noted.append((process_offset, dict(self._last_queue_offsets)))
        original(self, files, process_offset, *rest)

    def look(self, mapped_file):
        threads.append(threading.current_thread().name)
        return look_over(self, mapped_file)

    with monkeypatch.context() as patch:
        patch.setattr(commit_log_recovery, "usable_cores", lambda: cores)
        patch.setattr(bulk, "is_compiled", lambda: True)
        patch.setattr(dispatch, "SPAN_RECORDS", 4)
        patch.setattr(CommitLogRecovery, "_finish", finish)
        patch.setattr(CommitLogRecovery, "_look_over_file", look)
        caplog.clear()
        store = new_store(root)
        loaded = store.load()
        lines = [record.getMessage() for record in caplog.records
                 if record.module in ("commit_log_recovery", "record_check")
                 # The name contains the time.
                 and " are kept in " not in record.getMessage()]
        flaws = [str(record.exc_info[1]) for record in caplog.records
                 if record.exc_info and isinstance(record.exc_info[1], DamagedCommitLogError)]
        log = tree(root / "commitlog")
        end = store.get_max_phy_offset()
        store.shutdown()
    assert bool(threads) is (cores > 1) or not loaded
    return loaded, end, noted, lines, flaws, log


def same(written, tmp_path, monkeypatch, caplog, change):
    """Recover with one core and with several, each on a copy at the same path; return the common result."""
    results = [recovered(written, tmp_path / "store", cores, monkeypatch, caplog, change) for cores in (1, 2, 4)]
    assert results[1] == results[0]
    assert results[2] == results[0]
    return results[0]


def patch_file(root, number, position, data):
    path = sorted((root / "commitlog").iterdir())[number]
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def positions(root, number):
    """Return the begins of the records of a file, and the end of the last one."""
    data, position, found = sorted((root / "commitlog").iterdir())[number].read_bytes(), 0, []
    while data[position + 4:position + 8] == b"\xda\xa3\x20\xa7":
        found.append(position)
        position += int.from_bytes(data[position:position + 4], "big")
    return found, position


def without_queues(root):
    shutil.rmtree(root / "consumequeue")


CHANGES = {
    "whole": lambda root: None,
    "no queues": without_queues,
    "bad magic early": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 4, b"\0\0\0\0"),
    "bad magic in the second": lambda root: patch_file(root, -2, positions(root, -2)[0][5] + 4, b"\x55\xaa"),
    "bad magic last": lambda root: patch_file(root, -1, positions(root, -1)[0][1] + 4, b"\x55\xaa"),
    "bad crc early": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 100, b"\x55\xaa"),
    "bad crc last": lambda root: patch_file(root, -1, positions(root, -1)[0][1] + 100, b"\x55\xaa"),
    "says another place": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 28, bytes(6) + b"\x01\x02"),
    "topic is no text": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 88 + 703 + 1, b"\xff"),
    "blank says too little": lambda root: patch_file(root, -3, positions(root, -3)[1], b"\0\0\0\x09"),
    "no blank": lambda root: patch_file(root, -3, positions(root, -3)[1], bytes(8)),
    "nothing in the last": lambda root: patch_file(root, -1, 0, bytes(FILE_SIZE)),
    "no file before the last": lambda root: sorted((root / "commitlog").iterdir())[-2].unlink(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_several_threads_have_the_same_result_as_one(threads_written, tmp_path, monkeypatch, caplog, name):
    caplog.set_level("INFO")
    loaded, _, noted, lines, flaws, _ = same(threads_written, tmp_path, monkeypatch, caplog, CHANGES[name])
    if "early" in name or name == "bad magic in the second":
        assert not loaded and flaws
    if name == "whole":
        assert loaded and noted and len(noted[0][1]) == 6 and any("last mapped file" in each or "end" in each
                                                                   for each in lines)


@pytest.mark.parametrize("seed", range(25))
def test_random_damage_has_the_same_result_with_several_threads(threads_written, tmp_path, monkeypatch, caplog, seed):
    caplog.set_level("INFO")

    def change(root):
        random_ = random.Random(seed)
        for _ in range(random_.randrange(1, 4)):
            number, size = random_.choice((-1, -2, -3)), random_.choice((1, 2, 40))
            end = positions(root, number)[1] + 8
            patch_file(root, number, random_.randrange(end), random_.randbytes(size))

    same(threads_written, tmp_path, monkeypatch, caplog, change)
