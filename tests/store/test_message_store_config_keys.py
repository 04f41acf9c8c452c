"""The keys of MessageStoreConfig: every key has an effect that a test shows, or a comment that says why not."""
import ast
import dataclasses
import inspect
import os
import threading
from pathlib import Path

import pytest

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message.message_layout import HEAD_LENGTH
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.common.util_all import LONG_AGO, current_time_millis
from rmqha.store import (
    clean_commit_log_service,
    delay_levels,
    mapped_file,
    message_store_config,
    schedule_message_service,
)
from rmqha.store.broker_stats_manager import BrokerStatsManager
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import FlushDiskType, MessageStoreConfig
from rmqha.store.results import GetMessageStatus, PutMessageStatus
from tests.store.support import FILE_SIZE, bodies, config, crash, message, new_store, open_store, put, wait_dispatched
from tests.support.sources import ROOT, modules
from tests.support.tiers import of_sources
from tests.support.wait import wait_until

NEVER = 1 << 30
# Key -> a test in another file that fails when the key has no effect.
ELSEWHERE = {
    "storePathRootDir": "store/test_message_reader.py::test_every_message_and_key_is_found_as_java_finds_it",
    "storePathCommitLog": "store/test_commit_log.py::test_log_over_two_folders_alternates_and_loads",
    "readOnlyCommitLogStorePaths": "interop/test_store_keys_beside_java.py::test_files_are_the_same",
    "mappedFileSizeCommitLog": "store/test_commit_log.py::test_file_ends_with_a_blank_that_fills_it",
    "mappedFileSizeConsumeQueue": "store/test_message_reader.py::test_answer_stops_at_the_end_of_a_queue_file",
    "enableConsumeQueueExt": "interop/test_store_keys_beside_java.py::test_files_are_the_same",
    "mappedFileSizeConsumeQueueExt": "interop/test_store_keys_beside_java.py::test_files_are_the_same",
    "flushIntervalCommitLog": "store/test_flush_services.py::test_asynchronous_flush_happens_automatically",
    "flushCommitLogThoroughInterval": "store/test_flush_services.py::test_asynchronous_flush_happens_automatically",
    "flushIntervalConsumeQueue": "store/test_flush_services.py::test_failed_flush_of_a_consume_queue_stops_puts",
    "deleteWhen":
        "store/test_store_services.py::test_expired_files_are_deleted_at_the_hour_with_their_queues_and_index",
    "fileReservedTime":
        "store/test_store_services.py::test_expired_files_are_deleted_at_the_hour_with_their_queues_and_index",
    "cleanFileForciblyEnable": "store/test_store_services.py::test_young_files_stay_until_the_disk_is_nearly_full",
    "maxMessageSize": "store/test_commit_log.py::test_maximum_can_change_at_run_time",
    "maxTransferBytesOnMessageInMemory":
        "store/test_message_reader.py::test_bytes_are_limited_but_at_least_one_message_is_returned",
    "accessMessageInMemoryMaxRatio": "store/test_message_reader.py::test_old_messages_count_as_on_disk",
    "messageIndexEnable": "store/test_index.py::test_index_can_be_switched_off",
    "maxHashSlotNum": "store/test_index.py::test_header_slot_and_entries_lie_where_java_puts_them",
    "maxIndexNum": "store/test_index.py::test_full_files_are_followed_by_new_ones_and_all_are_searched",
    "maxMsgsNumBatch": "store/test_index.py::test_number_of_answers_is_limited",
    "haListenPort": "store/ha/test_ha_service.py::test_bound_port_is_readable_and_a_taken_one_is_an_error",
    "haSendHeartbeatInterval": "store/ha/test_ha_connection.py::test_idle_link_gets_heartbeats_at_the_next_offset",
    "haHousekeepingInterval": "store/ha/test_ha_connection.py::test_seven_bytes_and_silence_are_closed_by_housekeeping",
    "haTransferBatchSize":
        "store/ha/test_ha_connection.py::test_frames_are_at_most_the_batch_size_and_never_cross_a_file",
    "haMasterAddress": "broker/test_registration.py::",
    "haSlaveFallbehindMax": "store/ha/test_ha_connection.py::test_slave_too_far_behind_is_not_ok",
    "brokerRole": "store/test_commit_log.py::test_slave_accepts_no_puts",
    "flushDiskType": "store/test_flush_services.py::test_synchronous_put_is_done_once_it_is_flushed",
    "syncFlushTimeout": "store/test_flush_services.py::test_slow_disk_times_out_but_the_message_stays",
    "slaveTimeout": "store/ha/test_ha_service.py::test_put_without_its_slave_is_answered_at_the_deadline",
    "messageDelayLevel": "store/test_schedule_message_service.py::test_levels_are_parsed",
    "offsetCheckInSlave": "store/test_message_reader.py::test_slave_does_not_correct_offsets",
    "transientStorePoolEnable": "store/test_transient_store_pool.py::test_message_is_readable_once_it_is_committed",
    "transientStorePoolSize": "store/test_transient_store_pool.py::test_file_without_a_buffer_is_written_directly",
    "fastFailIfNoBufferInStorePool":
        "store/test_transient_store_pool.py::test_fast_failure_refuses_when_no_buffer_is_left",
    "defaultQueryMaxNum": "broker/processor/test_pull_message_processor.py::"
                          "test_query_by_unique_key_has_its_own_limit_of_answers",
    "enableLmq": "interop/test_store_keys_beside_java.py::test_files_are_the_same",
    "enableMultiDispatch": "interop/test_store_keys_beside_java.py::test_files_are_the_same",
    "enableScheduleAsyncDeliver": "store/test_schedule_message_service.py::"
                                  "test_asynchronous_delivery_does_not_wait_for_puts_and_counts_in_order",
    "scheduleAsyncDeliverMaxPendingLimit": "store/test_schedule_message_service.py::"
                                           "test_asynchronous_delivery_stops_at_the_limit_of_pending_puts",
    "scheduleAsyncDeliverMaxResendNum2Blocked":
        "store/test_schedule_message_service.py::"
        "test_asynchronous_delivery_waits_for_a_message_that_keeps_failing",
    "enableDLegerCommitLog": "broker/test_broker_startup.py::",
    "preallocateMappedFile": "store/test_disk_faults.py::test_full_disk_needs_the_preallocation",
    "dispatchBehindFlush": "store/test_flush_services.py::test_queues_are_dispatched_after_the_flush_if_configured",
}
# Keys without effect: a comment above each, or above the first key of its block, says why.
WITHOUT = ("storePathDLedgerCommitLog", "bitMapLengthConsumeQueueExt", "useReentrantLockWhenPutMessage",
           "putMsgIndexHightWater", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId",
           "isEnableBatchPush")
OWN = ("preallocateMappedFile", "dispatchBehindFlush", "dataReadAheadEnable")
HERE: dict[str, object] = {}  # key -> the function below that shows its effect


def shows(*keys: str):
    """Mark the function that shows the effect of `keys`."""
    def note(function):
        HERE.update(dict.fromkeys(keys, function))
        return function
    return note


def test_every_key_of_the_original_is_accounted_for():
    keys = {field.name for field in dataclasses.fields(MessageStoreConfig)
            if not field.metadata.get("extension") or field.name in OWN}
    accounted = [*ELSEWHERE, *WITHOUT, *HERE]
    assert sorted(accounted) == sorted(keys)
    assert len(keys) == 78 + len(OWN)


@pytest.mark.parametrize("key", ELSEWHERE)
def test_named_test_of_each_key_exists(key):
    path, _, name = ELSEWHERE[key].partition("::")
    source = (ROOT / "tests" / path).read_text("utf-8")
    assert f"def {name}(" in source if name else key in source


@pytest.mark.parametrize("key", WITHOUT)
def test_key_without_effect_is_documented_in_the_class(key):
    source = Path(inspect.getsourcefile(message_store_config)).read_text("utf-8").splitlines()
    at = next(number for number, line in enumerate(source) if line.startswith(f"    {key}:"))
    block = []
    while source[at - 1].strip() and len(block) < 12:
        at -= 1
        block.append(source[at])
    words = " ".join(block)
    assert "no effect" in words or "DLedger" in words or "nothing reads" in words or "never looks" in words, words


@of_sources
def test_keys_without_effect_are_read_nowhere():
    # The broker's filters set it.
    keys = set(WITHOUT) - {"bitMapLengthConsumeQueueExt"}
    for path, tree in modules().items():
        assert not keys & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}, path


def stats_store(root, **keys) -> DefaultMessageStore:
    """Make a store that counts, not loaded yet."""
    return DefaultMessageStore(config(root, **keys), BrokerStatsManager("c", True), None, BrokerConfig())


def full_log(store, files: int = 5) -> None:
    """Put and dispatch messages for `files` files of the commit log."""
    while len(store.commit_log.mapped_file_queue.mapped_files) < files:
        put(store, message(body=b"x" * 1000))
    wait_dispatched(store)


# Flushing and committing.

@shows("flushCommitLogLeastPages")
def test_asynchronous_flush_waits_for_its_pages(tmp_path):
    keys = {"flushIntervalCommitLog": 5, "flushCommitLogThoroughInterval": NEVER, "mappedFileSizeCommitLog": 1 << 20}
    with open_store(tmp_path, flushCommitLogLeastPages=2, **keys) as store:
        # The first round, a thorough one, is over once this is flushed.
        put(store, message(body=b"x" * 9000))
        wait_until(lambda: store.commit_log.mapped_file_queue.flushed_where > 9000, 60_000)
        flushed = store.commit_log.mapped_file_queue.flushed_where
        service = store.commit_log.flush_commit_log_service
        put(store, message(body=b"x" * 500))
        service.flush(2)
        assert store.commit_log.mapped_file_queue.flushed_where == flushed
        service.flush(0)
        assert store.commit_log.remain_how_many_data_to_flush() == 0


@shows("flushCommitLogTimed")
@pytest.mark.parametrize("timed", [True, False])
def test_put_wakes_the_flush_only_if_it_is_not_timed(tmp_path, timed, monkeypatch):
    with open_store(tmp_path, flushCommitLogTimed=timed, flushIntervalCommitLog=NEVER) as store:
        service = store.commit_log.flush_commit_log_service
        wait_until(lambda: service.timed is timed, 60_000, "the service has read its configuration")
        woken = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(service, "wakeup", woken.set)
            put(store, message())
        assert woken.is_set() is not timed


@shows("commitIntervalCommitLog", "commitCommitLogLeastPages", "commitCommitLogThoroughInterval")
def test_commit_happens_by_pages_or_by_time(tmp_path):
    pool = {"transientStorePoolEnable": True, "mappedFileSizeCommitLog": 1 << 18}
    held = {"commitIntervalCommitLog": NEVER, "commitCommitLogThoroughInterval": NEVER}
    with open_store(tmp_path / "pages", commitCommitLogLeastPages=2, **held, **pool) as store:
        # Its wake-up causes one more round, which finds too little.
        put(store, message())
        put(store, message(body=b"x" * 9000))
        wait_until(lambda: store.get_max_phy_offset() > 9000, 60_000, "two pages are committed")
        committed = store.get_max_phy_offset()
        put(store, message())
        assert not store.commit_log.commit_log_service._commit(2)
        assert store.get_max_phy_offset() == committed
    with open_store(tmp_path / "time", commitCommitLogLeastPages=NEVER, **pool, commitIntervalCommitLog=5) as store:
        put(store, message())
        wait_until(lambda: store.get_max_phy_offset() > 0, 60_000, "a thorough commit")


@shows("flushConsumeQueueLeastPages", "flushConsumeQueueThoroughInterval")
def test_consume_queues_are_flushed_by_pages_or_by_time(tmp_path):
    with open_store(tmp_path, flushIntervalConsumeQueue=NEVER, flushConsumeQueueThoroughInterval=NEVER,
                    flushConsumeQueueLeastPages=2, mappedFileSizeConsumeQueue=20 * 2000) as store:
        service = store.flush_consume_queue_service
        # The first round is a thorough one.
        service.do_flush(1)
        put(store, *(message() for _ in range(300)))
        wait_dispatched(store)
        queue = store.get_consume_queue("T", 0).mapped_file_queue
        service.do_flush(1)
        assert queue.flushed_where == 0  # 6,000 bytes
        put(store, *(message() for _ in range(200)))
        wait_dispatched(store)
        service.do_flush(1)
        assert queue.flushed_where == 10_000
        put(store, message())
        wait_dispatched(store)
        store.message_store_config.flushConsumeQueueThoroughInterval = 0
        service.do_flush(1)
        assert queue.flushed_where == 10_020


@shows("warmMapedFileEnable", "flushLeastPagesWhenWarmMapedFile")
@pytest.mark.parametrize("flush_disk_type", list(FlushDiskType))
def test_new_files_are_warmed_and_locked_until_they_are_full(tmp_path, monkeypatch, flush_disk_type):
    monkeypatch.setattr("rmqha.store.default_message_store._UNLOCK_MS", 10)
    forced = []
    force = mapped_file.MappedFile._force
    monkeypatch.setattr(mapped_file.MappedFile, "_force", lambda self: (forced.append(self.file_name), force(self)))
    with open_store(tmp_path, warmMapedFileEnable=True, flushLeastPagesWhenWarmMapedFile=2,
                    flushIntervalCommitLog=NEVER, flushDiskType=flush_disk_type) as store:
        put(store, message())
        first = store.commit_log.mapped_file_queue.mapped_files[0]
        # Once per two of four pages, and once at the end.
        warming = forced.count(first.file_name)
        assert warming >= 2 if flush_disk_type is FlushDiskType.SYNC_FLUSH else not warming
        locked = locked_kib(first.file_name)
        if not first.mlock():
            pytest.skip("this user may not lock memory")
        assert locked == FILE_SIZE // 1024
        full_log(store, 2)
        wait_until(lambda: locked_kib(first.file_name) == 0, 60_000, "the full file is unlocked")
        assert locked_kib(store.commit_log.mapped_file_queue.mapped_files[-1].file_name) == FILE_SIZE // 1024


@shows("dataReadAheadEnable")
def test_read_ahead_can_be_disabled(tmp_path):
    with open_store(tmp_path) as store:
        full_log(store, 2)
        assert not any(map(is_read_at_random, store.commit_log.mapped_file_queue.mapped_files))
    with open_store(tmp_path, dataReadAheadEnable=False) as store:
        full_log(store, 4)
        assert all(map(is_read_at_random, store.commit_log.mapped_file_queue.mapped_files))


def is_read_at_random(file: mapped_file.MappedFile) -> bool:
    """Return whether read-ahead is disabled for the file's map."""
    return "rr" in map_of(file.file_name, "VmFlags")


def locked_kib(path: str) -> int:
    """Return the locked memory of this process's map of a file."""
    return int((map_of(path, "Locked") or ["0"])[0])


def map_of(path: str, field: str) -> list[str]:
    """Return the kernel's information on this process's map of a file; nothing if the file is not mapped."""
    mine = False
    with open("/proc/self/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            if "-" in line.split(" ", 1)[0]:
                mine = line.rstrip().endswith(path)
            elif mine and line.startswith(field + ":"):
                return line.split()[1:]
    return []


# Cleaning.

@shows("cleanResourceInterval")
def test_cleaning_runs_at_its_interval(tmp_path, monkeypatch):
    monkeypatch.setattr("rmqha.store.default_message_store._CLEAN_INITIAL_MS", 10)
    rounds = []
    monkeypatch.setattr(clean_commit_log_service.CleanCommitLogService, "run", lambda self: rounds.append(self))
    with open_store(tmp_path / "often", cleanResourceInterval=10) as store:
        wait_until(lambda: rounds.count(store.clean_commit_log_service) > 3, 60_000)
    with open_store(tmp_path / "seldom", cleanResourceInterval=NEVER) as store:
        wait_until(lambda: store.clean_commit_log_service in rounds, 60_000)
        store.state.tasks_pause.wait(100)
        assert rounds.count(store.clean_commit_log_service) == 1


@shows("deleteCommitLogFilesInterval", "deleteConsumeQueueFilesInterval")
def test_deletions_pause_for_their_interval(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_commit_log_service, "get_disk_partition_space_used_percent", lambda path: 0.5)
    with open_store(tmp_path, deleteCommitLogFilesInterval=17, deleteConsumeQueueFilesInterval=23,
                    fileReservedTime=0) as store:
        full_log(store)
        put(store, *(message("U") for _ in range(60)))
        wait_dispatched(store)
        pauses = []
        monkeypatch.setattr(store.state.tasks_pause, "wait", lambda interval_ms: pauses.append(interval_ms) or False)
        store.execute_delete_files_manually()
        store.clean_commit_log_service.run()
        deleted = pauses.count(17)
        assert deleted >= 3 and set(pauses) == {17}
        store.clean_consume_queue_service.run()
        assert 23 in pauses[deleted:]


@shows("destroyMapedFileIntervalForcibly", "redeleteHangedFileInterval")
def test_file_held_by_a_reader_is_deleted_eventually(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_commit_log_service, "get_disk_partition_space_used_percent", lambda path: 0.5)
    with open_store(tmp_path, destroyMapedFileIntervalForcibly=NEVER, redeleteHangedFileInterval=NEVER,
                    fileReservedTime=0) as store:
        full_log(store)
        files = store.commit_log.mapped_file_queue
        first = files.mapped_files[0]
        reader = store.commit_log.get_message(0, 4)
        service = store.clean_commit_log_service
        service._last_redelete_ms = float("inf")
        store.execute_delete_files_manually()
        service.run()
        assert files.mapped_files[0] is first and not first.available and os.path.exists(first.file_name)
        # A file waiting for its deletion does not count.
        assert store.commit_log.get_min_offset() == FILE_SIZE
        service._last_redelete_ms = LONG_AGO
        store.message_store_config.redeleteHangedFileInterval = 0
        service._redelete_hanged_file()
        # The reader may still hold the file.
        assert os.path.exists(first.file_name)
        store.message_store_config.destroyMapedFileIntervalForcibly = 0
        store.message_store_config.redeleteHangedFileInterval = NEVER
        service._redelete_hanged_file()
        # The next attempt is not due yet.
        assert os.path.exists(first.file_name)
        store.message_store_config.redeleteHangedFileInterval = 0
        service._redelete_hanged_file()
        assert not os.path.exists(first.file_name) and files.mapped_files[0] is not first
        reader.release()


@shows("diskMaxUsedSpaceRatio")
@pytest.mark.parametrize("configured, used, goes", [(75, 0.74, False), (75, 0.76, True), (5, 0.09, False),
                                                    (5, 0.11, True), (99, 0.94, False), (99, 0.96, True)])
def test_disk_ratio_from_which_old_files_go(tmp_path, monkeypatch, configured, used, goes):
    monkeypatch.setattr(clean_commit_log_service, "get_disk_partition_space_used_percent", lambda path: used)
    store = new_store(tmp_path, diskMaxUsedSpaceRatio=configured)
    assert store.clean_commit_log_service.is_space_to_delete() is goes


# Recovery.

@shows("checkCRCOnRecover")
@pytest.mark.parametrize("check, kept", [(True, 2), (False, 5)])
def test_damaged_body_ends_the_log_when_it_is_checked(tmp_path, check, kept):
    with open_store(tmp_path) as store:
        offsets = [put(store, message())[0].wrote_offset for _ in range(5)]
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(offsets[2] + 100)
        log.write(b"\xff")
    with open_store(tmp_path, checkCRCOnRecover=check) as store:
        assert store.get_max_offset_in_queue("T", 0) == kept


@shows("messageIndexSafe")
@pytest.mark.parametrize("safe, start", [(False, 2), (True, 0)])
def test_recovery_starts_where_the_index_was_safe(tmp_path, safe, start):
    store = new_store(tmp_path, messageIndexSafe=safe, flushIntervalCommitLog=NEVER, flushIntervalConsumeQueue=NEVER)
    assert store.load()
    store.start()
    full_log(store, 4)
    files = store.commit_log.mapped_file_queue.mapped_files
    times = [store.commit_log.pickup_store_timestamp(file.file_from_offset, HEAD_LENGTH) for file in files]
    checkpoint = store.store_checkpoint
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = times[2] + 3000
    checkpoint.index_msg_timestamp = times[0] - 1
    recovery = store._recovery
    newest = max((number for number in range(3) if recovery._is_mapped_file_matched_recover(files[number])), default=0)
    crash(store)
    assert newest == start


@shows("duplicationEnable")
def test_duplication_dispatches_up_to_the_confirmed_offset(tmp_path):
    with open_store(tmp_path) as store:
        first, second = put(store, message(), message())
    with open_store(tmp_path, duplicationEnable=True) as store:
        put(store, message())
        service = store.reput_message_service
        service.do_reput()
        assert store.get_max_offset_in_queue("T", 0) == 2 and store.dispatch_behind_bytes() > 0
        store.commit_log.confirm_offset = store.get_max_phy_offset()
        service.wakeup()
        wait_until(lambda: store.get_max_offset_in_queue("T", 0) == 3, 60_000)
    assert first.wrote_offset < second.wrote_offset


# Getting.

@shows("maxTransferCountOnMessageInMemory", "maxTransferCountOnMessageInDisk", "maxTransferBytesOnMessageInDisk")
def test_limits_of_answers_depend_on_memory_or_disk(tmp_path):
    with open_store(tmp_path, maxTransferCountOnMessageInMemory=7, maxTransferCountOnMessageInDisk=5,
                    maxTransferBytesOnMessageInDisk=NEVER) as store:
        size = put(store, *(message() for _ in range(20)))[0].wrote_bytes
        wait_dispatched(store)
        keys = store.message_store_config
        assert get(store, 0) == ("FOUND", 7)
        keys.accessMessageInMemoryMaxRatio = 0
        assert get(store, 0) == ("FOUND", 5)
        keys.maxTransferBytesOnMessageInDisk = size * 3 + 1
        assert get(store, 0) == ("FOUND", 3)


def get(store, offset: int) -> tuple[str, int]:
    """Pull up to 32 messages; return the status and the number of messages."""
    result = store.get_message("g", "T", 0, offset, 32)
    result.release()
    return result.status.name, result.message_count


@shows("diskFallRecorded")
@pytest.mark.parametrize("recorded", [True, False])
def test_distance_of_readers_is_recorded(tmp_path, recorded):
    store = stats_store(tmp_path, diskFallRecorded=recorded)
    assert store.load()
    try:
        store.start()
        last = put(store, *(message() for _ in range(3)))[-1]
        wait_dispatched(store)
        get(store, 0)
        get(store, 2)
        items = store.broker_stats_manager.moment_stats_item_set_fall_size.stats_item_table
        assert {key: item.value for key, item in items.items()} == ({"0@T@g": last.wrote_bytes} if recorded else {})
    finally:
        store.shutdown()


# The put lock.

@shows("osPageCacheBusyTimeOutMills")
def test_lock_held_for_too_long_refuses_puts(tmp_path):
    with open_store(tmp_path, osPageCacheBusyTimeOutMills=5000) as store:
        now = current_time_millis()
        store.commit_log.begin_time_in_lock = now - 3000
        assert not store.is_os_page_cache_busy() and store.put_message(message()).is_ok
        store.commit_log.begin_time_in_lock = now - 6000
        assert store.is_os_page_cache_busy()
        assert store.put_message(message()).put_message_status is PutMessageStatus.OS_PAGECACHE_BUSY
        # This long, something else must be wrong.
        store.commit_log.begin_time_in_lock = now - 11_000_000
        assert not store.is_os_page_cache_busy()
        store.commit_log.begin_time_in_lock = 0


@shows("debugLockEnable")
@pytest.mark.parametrize("enabled", [True, False])
def test_stacks_are_written_when_the_lock_is_held(tmp_path, monkeypatch, enabled):
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_store(tmp_path / "store", debugLockEnable=enabled) as store:
        store.commit_log.begin_time_in_lock = current_time_millis() - 2000
        try:
            store._dump_long_lock()
        finally:
            store.commit_log.begin_time_in_lock = 0
    files = list((tmp_path / "debug" / "lock").glob("stack-*")) if enabled else []
    assert bool(files) is enabled and all("dump_long_lock" in file.read_text("utf-8") for file in files)
    assert (tmp_path / "debug").exists() is enabled


# Delayed messages and light queues.

@shows("flushDelayOffsetInterval")
def test_progress_of_delayed_messages_is_saved_at_its_interval(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule_message_service, "_FIRST_PERSIST_MS", 10)
    saved = []
    monkeypatch.setattr(schedule_message_service.ScheduleMessageService, "persist", lambda self: saved.append(1))
    with open_store(tmp_path, flushDelayOffsetInterval=10):
        wait_until(lambda: len(saved) > 3, 60_000)


@shows("enableScheduleMessageStats")
@pytest.mark.parametrize("counted", [True, False])
def test_deliveries_are_counted(tmp_path, monkeypatch, counted):
    monkeypatch.setattr(schedule_message_service, "FIRST_DELAY_TIME_MS", 10)
    monkeypatch.setattr(delay_levels, "_TIME_UNITS_MS", {"s": 1})
    store = stats_store(tmp_path, enableScheduleMessageStats=counted, messageDelayLevel="1s")
    assert store.load()
    try:
        store.start()
        put(store, message(DELAY="1"))
        wait_until(lambda: store.get_max_offset_in_queue("T", 0) == 1, 60_000)
        wait_until(lambda: store.schedule_message_service.offset_table.get(1) == 1, 60_000)
        item = store.broker_stats_manager.get_stats_item(
            "GROUP_GET_NUMS", f"{RMQ_SYS_SCHEDULE_TOPIC}@{mix_all.SCHEDULE_CONSUMER_GROUP}")
        assert (item is not None) is counted
    finally:
        store.shutdown()


@shows("maxLmqConsumeQueueNum")
def test_number_of_light_queues_is_limited(tmp_path):
    with open_store(tmp_path, enableLmq=True, enableMultiDispatch=True, maxLmqConsumeQueueNum=2) as store:
        for number in range(3):
            put(store, message(INNER_MULTI_DISPATCH=f"%LMQ%{number}"))
        wait_dispatched(store)
        assert store.consume_queue_table.is_lmq_num_exceeded()
        refused = store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%0"))
        assert refused.put_message_status is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        assert store.get_message("g", "%LMQ%0", 0, 0, 32) is None
        put(store, message())
        store.clean_unused_lmq_topic("%LMQ%2")
        put(store, message(INNER_MULTI_DISPATCH="%LMQ%0"))
        wait_dispatched(store)
        assert len(bodies(store, "%LMQ%0")) == 2


# Results of puts and gets.

def test_every_put_status_is_used():
    assert names_used("PutMessageStatus") >= {status.name for status in PutMessageStatus} - {
        "IN_SYNC_REPLICAS_NOT_ENOUGH"}  # of 5.1.4


def test_every_get_status_is_used():
    assert names_used("GetMessageStatus") == {status.name for status in GetMessageStatus}


def names_used(enum: str) -> set[str]:
    """Return the members of an enum that the store uses."""
    return {node.attr for path, tree in modules().items() if path.startswith("rmqha/store/") for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == enum}


