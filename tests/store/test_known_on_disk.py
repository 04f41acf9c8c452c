"""The recorded state of the disk compared with the real one, and the start of a store with damaged files."""
import os
import re
import shutil
import time
from unittest import mock

import pytest

from rmqha.store import store_life
from rmqha.store.commit_log_recovery import CommitLogRecovery
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from rmqha.store.store_checkpoint import StoreCheckpoint
from tests.faults.machine import NothingByChance, SteppedStore, SyncedDisk, in_use
from tests.store.damages import COUNT, DAMAGES, SIZES, Place, write
from tests.store.support import FILE_SIZE, bodies, config, message, new_store, open_store, put, tree, wait_dispatched
from tests.support import store_compare

# The recorded state of the disk compared with the real one: checkpoint, recovery, clean stops. Each was wrong once.

SYNC = {"flushDiskType": FlushDiskType.SYNC_FLUSH}
BIG = b"x" * 3000  # five messages per file


def opened(root, **keys) -> SteppedStore:
    store = SteppedStore(config(root, **keys))
    assert store.open()
    return store


def times(root) -> tuple[int, ...]:
    """Return the times that RocketMQ would read."""
    data = (root / "checkpoint").read_bytes()
    return tuple(int.from_bytes(data[at:at + 8], "big", signed=True) for at in (0, 8, 16))


def test_slave_that_catches_up_by_many_files_reports_none_as_flushed_too_early(tmp_path):
    master = opened(tmp_path / "master")
    put(master, *(message(body=BIG) for _ in range(20)))
    slave = opened(tmp_path / "slave", brokerRole=BrokerRole.SLAVE)
    while (data := master.get_commit_log_data(slave.get_max_phy_offset())) is not None:
        with data:
            assert slave.append_to_commit_log(data.start_offset, data.buffer, 0, data.size)
    slave.dispatch()
    queue, checkpoint = slave.commit_log.mapped_file_queue, slave.store_checkpoint
    seen = []
    while queue.flushed_where < queue.get_max_offset():
        seen.append(checkpoint.physic_msg_timestamp)
        slave.flush_log()
    assert seen == [0] * 4 and checkpoint.physic_msg_timestamp == checkpoint.dispatched_timestamp > 0
    slave.kill()
    master.kill()


def test_killed_recovery_keeps_the_recorded_state(tmp_path):
    """Index files that recovery fills are flushed by another thread, while the offsets are not known yet."""
    keys = dict(SYNC, maxIndexNum=20, maxHashSlotNum=10)
    store = opened(tmp_path, **keys)
    put_and_flush(store, "A", 100)
    store.flush_queues(thoroughly=True)
    store.kill()
    known = StoreCheckpoint(str(tmp_path / "checkpoint")).found
    assert known.log_flushed > 0
    again = SteppedStore(config(tmp_path, **keys))

    def kill(*_args):
        again.index_flushes.run()
        assert len(again.index_service.index_file_list) > 3
        raise KeyError("killed")
    with mock.patch.object(CommitLogRecovery, "_finish", kill):
        assert not again.open()
    assert StoreCheckpoint(str(tmp_path / "checkpoint")).found == known


@pytest.mark.parametrize("second_kill", [False, True])
def test_units_of_a_killed_process_survive_a_loss_of_power_after_the_next_start(tmp_path, second_kill):
    disk = SyncedDisk(tmp_path)
    with in_use(disk):
        store = opened(tmp_path, **SYNC)
        answers = [store.async_put_message(message(body=b"%d" % number)) for number in range(100)]
        store.flush_log()
        assert {answer.get().put_message_status for answer in answers} == {PutMessageStatus.PUT_OK}
        store.dispatch()
        store.kill()
        store = opened(tmp_path, **SYNC)
        if second_kill:
            store.kill()
            store = opened(tmp_path, **SYNC)
        store.flush_queues(thoroughly=True)
        store.kill()
        disk.lose_power(NothingByChance())
    with open_store(tmp_path) as again:
        assert bodies(again) == [b"%d" % number for number in range(100)]


def test_units_written_only_by_a_killed_process_do_not_count_as_flushed(tmp_path):
    now = 1_700_000_000_000
    disk, clock = SyncedDisk(tmp_path), mock.Mock(return_value=now * 1_000_000)
    with in_use(disk), mock.patch.object(time, "time_ns", clock):
        store = opened(tmp_path, **SYNC)
        put_and_flush(store, "A", 20)
        store.dispatch()
        store.kill()
        store = opened(tmp_path, **SYNC)
        for topic in "BC":
            clock.return_value += 10_000 * 1_000_000
            put_and_flush(store, topic, 20)
        store.dispatch()
        store.flush_queues(thoroughly=True)
        store.kill()
        disk.lose_power(NothingByChance())
    with open_store(tmp_path) as again:
        assert [len(bodies(again, topic)) for topic in "ABC"] == [20, 20, 20]


def test_acknowledged_messages_stay_in_their_queue_after_a_clock_change_and_a_loss_of_power(tmp_path):
    now = 1_700_000_000_000
    disk, clock = SyncedDisk(tmp_path), mock.Mock(return_value=now * 1_000_000)
    with in_use(disk), mock.patch.object(time, "time_ns", clock):
        store = opened(tmp_path, **SYNC)
        put_and_flush(store, "A", 20)
        store.dispatch()
        store.flush_queues(thoroughly=True)
        clock.return_value = (now - 3_600_000) * 1_000_000
        put_and_flush(store, "B", 20)
        put_and_flush(store, "C", 20)
        store.dispatch()
        while not store.consume_queue_table.find_queue("C", 0).flush(0):
            continue
        store.kill()
        disk.lose_power(NothingByChance())
    with open_store(tmp_path) as again:
        assert [again.get_max_offset_in_queue(topic, 0) for topic in "ABC"] == [20, 20, 20]
        assert [len(bodies(again, topic)) for topic in "ABC"] == [20, 20, 20]


def put_and_flush(store: SteppedStore, topic: str, count: int) -> None:
    answers = [store.async_put_message(message(topic, body=BIG, KEYS=str(number))) for number in range(count)]
    store.flush_log()
    assert {answer.get().put_message_status for answer in answers} == {PutMessageStatus.PUT_OK}


def test_clean_stop_flushes_more_than_ten_files_of_log_queues_index_and_extension(tmp_path):
    disk = SyncedDisk(tmp_path)
    keys = {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 200, "mappedFileSizeConsumeQueue": 100,
            "flushIntervalCommitLog": 600_000, "flushCommitLogTimed": True, "flushIntervalConsumeQueue": 600_000}
    with in_use(disk):
        store = opened(tmp_path, **keys)
        put(store, *(message(body=BIG, KEYS="k%d" % number) for number in range(100)))
        store.dispatch()
        store.shutdown()
        assert store.shut_down_normal and not (tmp_path / "abort").exists()
        disk.lose_power(NothingByChance())
    assert len(list((tmp_path / "commitlog").iterdir())) >= 20
    with open_store(tmp_path, **keys) as again:
        assert len(bodies(again)) == 100
        queue = again.consume_queue_table.find_queue("T", 0)
        assert all(queue.get_ext(queue.get_unit(index)[2]) for index in range(100))
        for number in (0, 99):
            found = again.query_message("T", f"k{number}", 8, 0, 1 << 62)
            assert len(found.message_buffer_list) == 1
            found.release()


def test_abort_file_stays_when_the_final_flush_is_incomplete(tmp_path):
    store = new_store(tmp_path)
    assert store.load()
    store.start()
    put(store, message())
    wait_dispatched(store)
    store.flush_consume_queue_service.do_flush = lambda _times: None
    store.shutdown()
    assert (tmp_path / "abort").exists() and not store.shut_down_normal


def test_flaw_after_the_flushed_offset_ends_the_log_and_an_earlier_one_is_refused(tmp_path):
    """After a loss of power, a later file may be on the disk without the end of the previous one."""
    store = opened(tmp_path / "one", **SYNC)
    put_and_flush(store, "T", 5)
    for _ in range(10):
        store.async_put_message(message(body=BIG))
    flushed = store.store_checkpoint.log_flushed
    shutil.copytree(tmp_path / "one", tmp_path / "first")
    put_and_flush(store, "T", 1)
    store.kill()
    shutil.move(tmp_path / "one", tmp_path / "other")
    shutil.move(tmp_path / "first", tmp_path / "one")
    for root, at in ((tmp_path / "one", FILE_SIZE + 3200), (tmp_path / "other", 3200)):
        with open(root / "commitlog" / f"{at // FILE_SIZE * FILE_SIZE:020d}", "r+b") as file:
            file.seek(at % FILE_SIZE // 512 * 512)
            file.write(bytes(512))
    again = new_store(tmp_path / "one", **SYNC)
    assert again.load() and flushed <= again.get_max_phy_offset() <= FILE_SIZE + 3200
    again.start()
    again.shutdown()
    other = new_store(tmp_path / "other", **SYNC)
    assert not other.load()
    other.shutdown()


def test_store_last_written_by_rocketmq_is_recovered_by_its_times(tmp_path, caplog):
    store = opened(tmp_path)
    put(store, *(message() for _ in range(50)))
    store.dispatch()
    store.flush_log()
    store.flush_queues(thoroughly=True)
    store.kill()
    with open(tmp_path / "checkpoint", "r+b") as file:
        file.write((1).to_bytes(8, "big") * 3)
    caplog.set_level("INFO")
    with open_store(tmp_path) as again:
        assert "is_noted=False" in caplog.text and len(bodies(again)) == 50


@pytest.mark.parametrize("damage", [b"", b"\xff" * 60])
def test_damaged_or_missing_positions_are_not_trusted(tmp_path, damage, caplog):
    store = opened(tmp_path)
    put(store, *(message() for _ in range(50)))
    store.kill()
    path = tmp_path / "checkpoint.positions"
    if damage:
        path.write_bytes(damage * 20)
    else:
        os.unlink(path)
    caplog.set_level("INFO")
    with open_store(tmp_path) as again:
        assert "is_noted=False" in caplog.text and len(bodies(again)) == 50


def test_log_continues_in_another_folder_without_a_duplicate_file(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    where = {"storePathCommitLog": ",".join(map(str, folders))}
    store = opened(tmp_path / "store", **where)
    # The next file exists already, in folder b.
    put(store, *(message(body=BIG) for _ in range(3)))
    store.commit_log.full_store_paths = frozenset([str(folders[1])])
    put(store, *(message(body=BIG) for _ in range(10)))
    names = [path.name for folder in folders for path in folder.iterdir()]
    assert len(names) == len(set(names)) >= 3
    store.kill()
    with open_store(tmp_path / "store", **where) as again:
        assert len(bodies(again)) == 13


def test_blank_duplicate_of_a_file_is_moved_aside(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    where = {"storePathCommitLog": ",".join(map(str, folders))}
    with open_store(tmp_path / "store", **where) as store:
        put(store, *(message(body=BIG) for _ in range(13)))
        wait_dispatched(store)
    first = sorted(folders[0].iterdir())[0]
    (folders[1] / first.name).write_bytes(bytes(FILE_SIZE))
    with open_store(tmp_path / "store", **where) as again:
        assert len(bodies(again)) == 13
    assert [path.name for path in (tmp_path / "b.aside").iterdir()] == [first.name]
    shutil.copy(first, folders[1])
    refused = new_store(tmp_path / "store", **where)
    assert not refused.load()
    refused.shutdown()


def test_names_of_files_are_synced_after_a_kill_unless_known_to_be_on_the_disk(tmp_path):
    """One queue is flushed, one fills its file completely, one is new, and one begins in the middle."""
    store = opened(tmp_path)
    put(store, *(message("flushed") for _ in range(20)), *(message("full") for _ in range(50)))
    store.dispatch()
    store.flush_log()
    store.flush_queues(thoroughly=True)
    store.store_checkpoint.flush()
    put(store, message("flushed"), message("new"))
    store.flush_log()
    store.dispatch()
    queue = store.consume_queue_table.find_queue("middle", 0)
    queue.put_message_position_info(store.get_max_phy_offset() - 100, 100, 0, 5)
    store.kill()
    forced, real = set(), store_life.fsync_folder
    with mock.patch.object(store_life, "fsync_folder", lambda folder: (forced.add(folder), real(folder))):
        store = opened(tmp_path)
    queues = tmp_path / "consumequeue"
    assert {path for path in forced if path.startswith(str(queues))} == {
        str(queues / below) for below in ("", "full", "full/0", "new", "new/0", "middle", "middle/0")}
    store.kill()


@pytest.mark.parametrize("flushed, begin", [(51, 1020), (102, 2040)])
def test_a_unit_with_a_missing_first_sector_is_rebuilt(tmp_path, flushed, begin):
    """Only the later of its two sectors reached the disk, and the queue was flushed up to that unit."""
    keys = {"mappedFileSizeConsumeQueue": 5000, "mappedFileSizeCommitLog": 1 << 20}
    store = opened(tmp_path, **keys)
    put(store, *(message(body=b"%d" % number) for number in range(flushed)))
    store.dispatch()
    store.flush_log()
    store.flush_queues(thoroughly=True)
    put(store, *(message(body=b"%d" % number) for number in range(flushed, flushed + 20)))
    store.dispatch()
    store.flush_log()
    store.kill()
    with open(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", "r+b") as file:
        file.seek(begin)
        file.write(bytes(-begin % 512))
    with open_store(tmp_path, **keys) as again:
        assert bodies(again) == [b"%d" % number for number in range(flushed + 20)]


# Each kind of damage to a store's files: a start finds the expected messages, or is refused with the file's name.
#
# A flaw in the last file of the log ends the log there, and everything before it is readable; a flaw in an earlier file
# is refused with the file's name; consume queues are rebuilt from the log. Nothing hangs, and nothing is skipped
# silently.

NUMBER = re.compile(rb"body(\d{3})x{100}")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the store whose copies are damaged."""
    root = tmp_path_factory.mktemp("written") / "store"
    write(root)
    assert len(list((root / "commitlog").iterdir())) >= 6
    assert len(list((root / "consumequeue" / "T" / "0").iterdir())) == 3
    assert len(list((root / "index").iterdir())) >= 3
    return root


def numbers(store: DefaultMessageStore) -> list[int]:
    """Return the numbers of all messages in both queues, in the order of the log."""
    found = []
    for queue_id in (0, 1):
        offset = store.get_min_offset_in_queue("T", queue_id)
        while offset < store.get_max_offset_in_queue("T", queue_id):
            result = store.get_message("g", "T", queue_id, offset, 32)
            found += [int(NUMBER.search(bytes(buffer))[1]) for buffer in result.message_buffer_list]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
            result.release()
    return sorted(found)


def check_usable(store: DefaultMessageStore, kept: int) -> None:
    """Check that the first `kept` messages are there, that puts continue after them, and that queries by key end."""
    wait_dispatched(store)
    assert numbers(store) == list(range(kept))
    offsets = [put(store, message("T", queue_id, b"body999" + b"x" * 100, KEYS="new"))[0].logics_offset
               for queue_id in (0, 1)]
    assert offsets == [(kept + 1) // 2, kept // 2]
    wait_dispatched(store)
    assert numbers(store) == [*range(kept), 999, 999]
    for key in ("key0", f"key{COUNT - 1}", "new", "none"):
        found = store.query_message("T", key, 32, 0, (1 << 63) - 1)
        assert len(found.message_buffer_list) <= 32
        found.release()


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damage_is_truncated_rebuilt_or_refused_by_name(written, tmp_path, damage, crashed, caplog):
    root = tmp_path / "store"
    shutil.copytree(written, root)
    if crashed:
        (root / "abort").touch()
    place = Place(root)
    kept = damage.kept(place) if damage.outcome == "cut" else COUNT
    name = damage.names(place) if damage.names else None
    damage.do(place)
    before = tree(root / "commitlog")
    store = new_store(root, **SIZES)
    loaded = store.load()
    if damage.outcome == "refused":
        store.shutdown()
        assert not loaded
        assert name in caplog.text
        assert tree(root / "commitlog") == before
        return
    assert loaded, caplog.text
    try:
        store.start()
        check_usable(store, kept)
    finally:
        store.shutdown()
    if damage.name.startswith(("log", "queue")) and "flipped" not in damage.name:
        store_compare.check_consume_queues(root)


@pytest.mark.parametrize("position", [20, 23, 24, 27])
@pytest.mark.parametrize("number", [80, 118])
def test_record_with_a_wrong_queue_offset_affects_no_other_message(written, tmp_path, number, position, caplog):
    """In the rebuilt queue the record is missing, or stored at its wrong index, and nothing else changes."""
    root = tmp_path / "store"
    shutil.copytree(written, root)
    Place(root).flip(number, position)
    shutil.rmtree(root / "consumequeue")
    store = new_store(root, **SIZES)
    assert store.load()
    try:
        store.start()
        wait_dispatched(store)
        assert set(range(COUNT)) - set(numbers(store)) <= {number}
        assert f"{offset_of(written, number)}" in caplog.text
    finally:
        store.shutdown()


def offset_of(root, number: int) -> int:
    """Return the message's offset in the log."""
    return Place(root).records[number].offset
