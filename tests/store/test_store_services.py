"""Services of the store: cleaning, allocating, notifying, counting, and multi dispatch."""
import errno
import os
import threading

import pytest

from rmqha.common.futures import ANSWER, Round, at_round_end
from rmqha.store import clean_commit_log_service, mapped_file
from rmqha.store.consume_queue_layout import CQ_UNIT
from rmqha.store.dispatch import MessageArrivingListener
from rmqha.store.reput_message_service import _GATHER_MS
from rmqha.store.results import PutMessageStatus
from rmqha.store.running_flags import RunningFlags, disk_of
from rmqha.store.store_stats_service import StoreStatsService
from tests.store.support import FILE_SIZE, bodies, message, new_store, open_store, put, wait_dispatched
from tests.support.in_process import gathering
from tests.support.wait import wait_until


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def disks(monkeypatch):
    """Set the used part of each disk, by the last folder of the path."""
    used = {}

    def percent(path):
        return next((value for name, value in used.items() if path.endswith(name)), 0.10)

    monkeypatch.setattr(clean_commit_log_service, "get_disk_partition_space_used_percent", percent)
    monkeypatch.setattr(clean_commit_log_service, "disk_of", os.path.basename)
    return used


def age(store, *indexes):
    for index in indexes:
        os.utime(store.commit_log.mapped_file_queue.mapped_files[index].file_name, (1, 1))


def names(root):
    return sorted(int(name) // FILE_SIZE for name in os.listdir(root / "commitlog"))


# Cleaning.

def test_expired_files_are_deleted_at_the_hour_with_their_queues_and_index(tmp_path, disks, monkeypatch):
    with open_store(tmp_path, fileReservedTime=1) as store:
        put(store, *(message(body=b"%03d" % number + b"x" * 500, KEYS=f"k{number}") for number in range(100)))
        wait_dispatched(store)
        age(store, 0, 1)
        monkeypatch.setattr(clean_commit_log_service, "is_it_time_to_do", lambda when: False)
        store._clean_files_periodically()
        assert names(tmp_path)[0] == 0
        monkeypatch.setattr(clean_commit_log_service, "is_it_time_to_do", lambda when: when == "04")
        store._clean_files_periodically()
        assert names(tmp_path)[0] == 2
        assert store.get_min_phy_offset() == 2 * FILE_SIZE
        first = store.get_min_offset_in_queue("T", 0)
        assert 0 < first and store.get_commit_log_offset_in_queue("T", 0, first) == 2 * FILE_SIZE
        assert [int(body[:3]) for body in bodies(store, offset=first)] == list(range(first, 100))
        assert store.get_message("g", "T", 0, 0, 1).status.name == "OFFSET_TOO_SMALL"
        assert store.get_earliest_message_time("T", 0) > 0


def test_young_files_stay_until_the_disk_is_nearly_full(store, tmp_path, disks):
    put(store, *(message(body=b"x" * 500) for _ in range(100)))
    wait_dispatched(store)
    store.message_store_config.deleteWhen = "not an hour"
    disks["commitlog"] = 0.80
    store.clean_commit_log_service.run()
    assert names(tmp_path)[0] == 0
    disks["commitlog"] = 0.86
    store.message_store_config.cleanFileForciblyEnable = False
    store.clean_commit_log_service.run()
    assert names(tmp_path)[0] == 0
    store.message_store_config.cleanFileForciblyEnable = True
    store.clean_commit_log_service.run()
    assert store.get_max_phy_offset() - store.get_min_phy_offset() <= FILE_SIZE
    assert store.running_flags.is_writeable


def test_manual_deletion_lasts_twenty_rounds(store, tmp_path, disks):
    store.message_store_config.deleteWhen = "99"
    put(store, *(message(body=b"x" * 500) for _ in range(60)))
    wait_dispatched(store)
    age(store, 0)
    store.clean_commit_log_service.run()
    assert names(tmp_path)[0] == 0
    store.execute_delete_files_manually()
    store.clean_commit_log_service.run()
    assert names(tmp_path)[0] == 1
    assert store.clean_commit_log_service.manual_delete_file_several_times == 19


@pytest.mark.parametrize("disk", ["commitlog", "consumequeue"])
def test_full_disk_refuses_puts_until_there_is_space_again(store, disks, disk):
    disks[disk] = 0.91
    assert store.clean_commit_log_service.is_space_full()
    assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.running_flags.is_cq_writeable
    disks[disk] = 0.90
    assert not store.clean_commit_log_service.is_space_full()
    put(store, message())


def test_free_space_on_one_disk_does_not_help_the_other(store, disks):
    disks["consumequeue"] = 0.95
    store.clean_commit_log_service.is_space_to_delete()
    assert not store.running_flags.is_writeable
    store.clean_commit_log_service.is_space_full()
    assert not store.running_flags.is_writeable


def test_dispatch_waits_while_the_disk_of_the_consume_queues_is_full(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        real = os.posix_fallocate

        def full(fd, offset, length):
            if "consumequeue" in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(errno.ENOSPC, "No space left on device")
            real(fd, offset, length)

        monkeypatch.setattr(mapped_file.os, "posix_fallocate", full)
        put(store, message(body=b"1"))
        wait_until(lambda: not store.running_flags.is_writeable, what="puts refused")
        assert not store.running_flags.is_logics_queue_error
        monkeypatch.undo()
        wait_dispatched(store)
        store.clean_commit_log_service.is_space_full()
        put(store, message(body=b"2"))
        wait_dispatched(store)
        assert bodies(store) == [b"1", b"2"]


def test_unused_topics_are_deleted(store, tmp_path):
    for topic in ("keep", "drop", "SCHEDULE_TOPIC_XXXX"):
        put(store, message(topic))
    wait_dispatched(store)
    store.clean_unused_topic({"keep"})
    assert set(store.consume_queue_table) == {"keep", "SCHEDULE_TOPIC_XXXX"}
    assert sorted(os.listdir(tmp_path / "consumequeue")) == ["SCHEDULE_TOPIC_XXXX", "keep"]
    assert put(store, message("drop"))[0].logics_offset == 0
    wait_dispatched(store)
    assert len(bodies(store, "drop")) == 1


def test_queues_without_remaining_messages_are_deleted_on_demand(store):
    put(store, message("old"), *(message("new", body=b"x" * 1000) for _ in range(40)))
    wait_dispatched(store)
    store.commit_log.delete_expired_file(0, 0, 0, True)
    store.consume_queue_table.find_queue("empty", 0)
    store.clean_expired_consumer_queue(lambda topic: topic == "old")
    assert set(store.consume_queue_table) - {"SCHEDULE_TOPIC_XXXX"} == {"old", "new", "empty"}
    store.clean_expired_consumer_queue()
    assert set(store.consume_queue_table) - {"SCHEDULE_TOPIC_XXXX"} == {"new", "empty"}


# Allocating.

def test_next_file_is_created_in_advance_and_deleted_at_shutdown(tmp_path):
    with open_store(tmp_path) as store:
        put(store, message())
        wait_until(lambda: names(tmp_path) == [0, 1])
    assert names(tmp_path) == [0]


def test_failed_allocation_fails_the_put_and_is_retried_by_the_next_one(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        def fail(*_args):
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(mapped_file.mmap, "mmap", fail)
        assert store.put_message(message()).put_message_status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
        monkeypatch.undo()
        put(store, message())


# Notifying.

class Listener(MessageArrivingListener):
    """A listener that records its notifications."""

    def __init__(self, waiting=True):
        self.told, self.waiting = [], waiting

    def is_waiting(self, topic, queue_id):
        return self.waiting

    def arriving(self, *args):
        self.told.append(args)


@pytest.mark.parametrize("waiting", [True, False])
def test_listener_is_notified_of_every_awaited_message(tmp_path, waiting):
    listener = Listener(waiting)
    with open_store(tmp_path, listener) as store:
        results = put(store, message(TAGS="a"), message(queue_id=1))
        wait_dispatched(store)
    expected = [("T", 0, 1, 97, results[0].store_timestamp, None, {"TAGS": "a"}),
                ("T", 1, 1, 0, results[1].store_timestamp, None, None)]
    assert listener.told == (expected if waiting else [])


def test_listener_that_fails_does_not_stop_dispatch(tmp_path):
    listener = Listener()
    listener.arriving = None
    with open_store(tmp_path, listener) as store:
        put(store, message(), message())
        wait_dispatched(store)
        assert len(bodies(store)) == 2


# Counting.

def test_runtime_info_has_the_keys_of_java(store):
    put(store, message(body=b"x" * 10))
    wait_dispatched(store)
    bodies(store)
    store.store_stats_service.sampling()
    info = store.get_runtime_info()
    for key in ("bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes",
                "putMessageSizeTotal", "putMessageDistributeTime", "putMessageAverageSize", "dispatchMaxBuffer",
                "getMessageEntireTimeMax", "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps",
                "putLatency99", "putLatency999", "commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset",
                "commitLogMaxOffset"):
        assert isinstance(info[key], str), key
    assert info["putMessageTimesTotal"] == "1" and info["putTps"] == "  "
    assert info["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, ")
    assert float(info["putMessageAverageSize"]) == store.get_max_phy_offset()


def test_rates_are_differences_of_samples(monkeypatch):
    now = [1_000_000]
    monkeypatch.setattr("rmqha.store.store_stats_service.current_time_millis", lambda: now[0])
    stats = StoreStatsService()
    for _ in range(12):
        stats.sampling()
        stats.count_put("T", 5, 100)
        stats.count_get(True, 3, 1)
        stats.count_get(False, 0, 7)
        now[0] += 1000
    info = stats.get_runtime_info()
    assert info["putTps"] == "5.0  " and info["getTransferedTps"] == "3.0  "
    assert info["getTotalTps"] == "2.0 0.0 0.0"
    assert (info["putMessageSizeTotal"], info["getMessageEntireTimeMax"]) == ("1200", "7")


def test_latencies_fall_into_buckets():
    stats = StoreStatsService()
    for value in [0] * 10 + [9] * 10 + [10] * 10 + [10_000] * 10:
        stats.set_put_message_entire_time_max(value)
    assert stats._distribution == [10, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10]
    stats._last_buckets = stats._buckets
    assert stats.find_put_message_entire_time_px(0.25) <= 1
    assert 8 <= stats.find_put_message_entire_time_px(0.6) <= 10
    assert stats.find_put_message_entire_time_px(1.0) == 10_000


def test_flags_return_their_previous_state():
    flags = RunningFlags()
    assert flags.get_and_make_not_writeable() and not flags.get_and_make_not_writeable()
    flags = RunningFlags()
    assert flags.get_and_make_disk_full("a") and not flags.get_and_make_disk_full("b")
    assert not flags.get_and_make_disk_ok("a") and not flags.is_writeable
    assert not flags.get_and_make_disk_ok("b") and flags.is_writeable
    flags.make_index_file_error()
    assert not flags.is_cq_writeable and flags.is_index_file_error and flags.flag_bits == 8


def test_disk_of_a_missing_folder_is_that_of_its_parent(tmp_path):
    assert disk_of(str(tmp_path / "a" / "b")) == disk_of(str(tmp_path))


# Several queues for one message.

LMQ = {"enableLmq": True, "enableMultiDispatch": True}


def test_message_of_several_queues_is_found_in_all(tmp_path):
    with open_store(tmp_path, **LMQ) as store:
        for body in (b"1", b"2"):
            put(store, message(queue_id=3, body=body, WAIT="true", INNER_MULTI_DISPATCH="%LMQ%a,other"))
        put(store, message("%LMQ%a", 0, b"3"))
        wait_dispatched(store)
        assert bodies(store, "T", 3) == bodies(store, "other", 3) == [b"1", b"2"]
        assert bodies(store, "%LMQ%a", 0)[:2] == [b"1", b"2"]
        stored = store.look_message_by_offset(store.get_commit_log_offset_in_queue("T", 3, 1))
        assert stored.properties == {"INNER_MULTI_DISPATCH": "%LMQ%a,other", "INNER_MULTI_QUEUE_OFFSET": "1,1"}
        assert store.consume_queue_table.lmq_consume_queue_num.get() == 1
        store.clean_unused_lmq_topic("%LMQ%a")
        assert store.consume_queue_table.lmq_consume_queue_num.get() == 0
    with open_store(tmp_path, **LMQ) as store:
        assert store.commit_log.topic_queue_table["other-3"] == 2


def test_invalid_queue_offsets_of_several_queues_are_ignored(tmp_path):
    with open_store(tmp_path, **LMQ) as store:
        store.message_store_config.enableMultiDispatch = False
        put(store, message(INNER_MULTI_DISPATCH="a,b", INNER_MULTI_QUEUE_OFFSET="1,x"))
        wait_dispatched(store)
        store.message_store_config.enableMultiDispatch = True
        put(store, message(INNER_MULTI_DISPATCH=",,"))
        wait_dispatched(store)
        assert store.get_max_offset_in_queue("T", 0) == 2


def test_unit_of_a_queue_is_read_while_it_is_written(store):
    stop, seen = threading.Event(), []

    def read():
        while not stop.is_set():
            queue = store.get_consume_queue("T", 0)
            buffer = queue.get_index_buffer(0) if queue is not None else None
            if buffer is not None:
                with buffer:
                    seen.append(all(size > 0 for _, size, _ in CQ_UNIT.iter_unpack(buffer.buffer)))

    thread = threading.Thread(target=read)
    thread.start()
    put(store, *(message() for _ in range(200)))
    wait_dispatched(store)
    stop.set()
    thread.join()
    assert all(seen)


@pytest.mark.parametrize("waiting, gathers", [(False, 1), (True, 0)])
def test_only_messages_without_a_listener_are_gathered(tmp_path, waiting, gathers):
    service, waits = new_store(tmp_path, Listener(waiting)).reput_message_service, []
    service.wait_for_running = waits.append
    service._gather()
    # The first message comes alone.
    assert waits == []
    # The next one does not.
    service._woken_ns = 1 << 62
    service.on_appended("T", 0)
    service._gather()
    assert waits == [_GATHER_MS] * gathers
    waits.clear()
    service._woken_ns = 1 << 62
    # Appended by something else than one message.
    service.on_appended(None, 0)
    service._gather()
    assert waits == []


def test_gathered_messages_are_dispatched_on_request(tmp_path):
    called = []
    with open_store(tmp_path, Listener(False)) as store, gathering(store):
        assert not store.call_when_dispatched(called.append)  # nothing is there
        put(store, message())
        assert store.get_max_offset_in_queue("T", 0) == 0
        assert store.call_when_dispatched(lambda: called.append(store.get_max_offset_in_queue("T", 0)))
        wait_until(lambda: called, 60_000, "an answer")
        assert called == [1] and not store.call_when_dispatched(called.append)


def test_callers_do_not_wait_for_a_failing_dispatch(tmp_path):
    called = []

    def fails():
        raise OSError(errno.ENOSPC, "no space")
    with open_store(tmp_path, Listener(False)) as store:
        service = store.reput_message_service
        dispatch, service.do_reput = service.do_reput, fails
        put(store, message())
        wait_until(lambda: service._pause.is_on, 60_000, "a failed dispatch")
        assert not store.call_when_dispatched(lambda: called.append("while it waits"))
        wait_until(lambda: store.call_when_dispatched(lambda: called.append("later")), 60_000, "another attempt")
        wait_until(lambda: called, 60_000, "an answer")
        assert called == ["later"]
        service.do_reput = dispatch


def test_gathered_messages_are_dispatched(tmp_path):
    with open_store(tmp_path, Listener(False)) as store:
        put(store, *[message() for _ in range(50)])
        wait_until(lambda: store.get_max_offset_in_queue("T", 0) == 50, 60_000, "dispatched")


def test_enabling_role_changes_at_run_time_does_not_stop_the_dispatch(store):
    store.message_store_config.enableAutoSwitchHA = True
    put(store, message())
    wait_dispatched(store)
    assert len(bodies(store)) == 1


def test_disabling_role_changes_at_run_time_dispatches_nothing_unconfirmed(tmp_path, monkeypatch):
    with open_store(tmp_path, enableAutoSwitchHA=True) as store:
        put(store, message())
        monkeypatch.setattr(store.ha_service, "confirm_offset", lambda: 17)
        store.message_store_config.enableAutoSwitchHA = False
        assert store.readable_offset() == 17
        monkeypatch.undo()


def test_round_with_puts_wakes_the_dispatch_after_its_answers(tmp_path):
    order = []

    service = new_store(tmp_path).reput_message_service
    service.wakeup = lambda: order.append("dispatch")
    with Round():
        service.on_appended("T", 0)
        at_round_end(ANSWER, lambda: order.append("answer"))
        assert order == []
    assert order == ["answer", "dispatch"]
