"""The store: commit log, consume queues, index, replication and delayed messages behind one interface.

    putting threads --> CommitLog --wake--> ReputMessageService --> ConsumeQueue, IndexService, MessageArrivingListener
                                  --wake--> HAService (slaves), flush services
    StoreScheduledThread: old files, self check     DiskCheckScheduledThread: full disks
    FlushConsumeQueueService, StoreStatsService, AllocateMappedFileService: see their modules
"""
from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterator

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import WAKE, Completable, at_round_end, serves_one_connection
from rmqha.common.message.message import MessageExt, MessageExtBatch
from rmqha.common.threads import ScheduledService
from rmqha.common.util_all import current_time_millis, get_disk_partition_space_used_percent, is_path_exists
from rmqha.native import kernels
from rmqha.store import store_marks
from rmqha.store import store_path_config_helper as paths
from rmqha.store.allocate_mapped_file_service import AllocateMappedFileService
from rmqha.store.append import MessageExtBrokerInner, MessageRow, PutMessageContext
from rmqha.store.broker_stats_manager import BrokerStatsManager
from rmqha.store.clean_commit_log_service import CleanCommitLogService
from rmqha.store.commit_log import CommitLog
from rmqha.store.commit_log_recovery import CommitLogRecovery, RecoveryTimes
from rmqha.store.consume_queue import ConsumeQueue, ConsumeQueueContext
from rmqha.store.consume_queue_layout import is_safe_topic
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.dispatch import MessageArrivingListener, RecordDispatcher
from rmqha.store.flush_consume_queue_service import FlushConsumeQueueService
from rmqha.store.flush_services import dump_long_lock
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.ha.ha_service import HAService
from rmqha.store.index.index_service import IndexService
from rmqha.store.mapped_file import MappedFile, ensure_dir_ok
from rmqha.store.mapped_file_queue import MapKeeper
from rmqha.store.mapped_memory import TransientStorePool
from rmqha.store.message_reader import MessageFilter, MessageReader
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER, SLAVE, BrokerRole, MessageStoreConfig
from rmqha.store.put_gate import PutGate
from rmqha.store.queue_removal import CleanConsumeQueueService, QueueRemoval
from rmqha.store.record_check import end_of_whole_records
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.results import (
    GetMessageResult,
    PutMessageResult,
    PutMessageStatus,
    QueryMessageResult,
    SelectMappedBufferResult,
)
from rmqha.store.role import Role
from rmqha.store.schedule_message_service import ScheduleMessageService
from rmqha.store.store_checkpoint import POSITIONS_SUFFIX, StoreCheckpoint
from rmqha.store.store_life import flush_all, start_dispatch, sync_files
from rmqha.store.store_marks import RecoveryBase, StoreLock, create_temp_file, delete_file
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

_CLEAN_INITIAL_MS = 1000 * 60
_CHECK_SELF_INITIAL_MS = 1000 * 60
_CHECK_SELF_MS = 1000 * 60 * 10
_DISK_CHECK_INITIAL_MS = 1000
_DISK_CHECK_MS = 10_000
_UNLOCK_MS = 6000
_SLOW_PUT_MS = 500
_PUT_OK = PutMessageStatus.PUT_OK
_QUEUE = operator.attrgetter("topic", "queue_id")


class DefaultMessageStore:
    """The message store of one broker: call `load`, then `start`, finally `shutdown`; `destroy` deletes everything.

    Java: org.apache.rocketmq.store.DefaultMessageStore (4.9.8)
    """

    def __init__(self, message_store_config: MessageStoreConfig, broker_stats_manager: BrokerStatsManager | None,
                 message_arriving_listener: MessageArrivingListener | None, broker_config: BrokerConfig,
                 role: Role | None = None) -> None:
        self.message_store_config = message_store_config
        self.broker_stats_manager = broker_stats_manager
        self.broker_config = broker_config
        if broker_config.enableControllerMode:
            # As in 5.1.4, which has only enableControllerMode.
            message_store_config.enableAutoSwitchHA = True
        self.state = state = StoreState(message_store_config, role or Role(message_store_config, broker_config))
        self.role = state.role
        self.running_flags = state.running_flags
        self.store_stats_service = state.stats
        self.transient_store_pool = TransientStorePool(message_store_config)
        self.allocate_mapped_file_service = AllocateMappedFileService(state, self.transient_store_pool)
        self.deleted_topics = deleted = DeletedTopics(message_store_config.storePathRootDir)
        self.commit_log = commit_log = CommitLog(
            state, self.allocate_mapped_file_service, self.transient_store_pool, deleted, self.on_appended,
            self._unlock_mapped_file)
        self.index_service = index = IndexService(state, commit_log)
        self.flush_consume_queue_service = FlushConsumeQueueService(state, self.all_consume_queues, index,
                                                                    self.dispatched_offset)
        self.map_keeper = MapKeeper()
        self.consume_queue_table = table = ConsumeQueueTable(ConsumeQueueContext(
            state, commit_log, self.map_keeper, deleted, self.flush_consume_queue_service.note_dirty,
            self._queue_does_not_fit))
        self.record_dispatcher = RecordDispatcher(state, table, index, deleted, commit_log.multi_dispatch)
        self.reput_message_service = ReputMessageService(state, broker_config, commit_log, self.record_dispatcher,
                                                         self.readable_offset, message_arriving_listener)
        self.queue_removal = QueueRemoval(state, commit_log, table, deleted, self.reput_message_service)
        self.clean_commit_log_service = CleanCommitLogService(state, commit_log)
        self.clean_consume_queue_service = CleanConsumeQueueService(state, commit_log, table, index, deleted)
        # Read once at start: the key may change at run time, the service may not.
        self.auto_switch = AutoSwitchHAService(self, state, broker_config, commit_log, self.reput_message_service,
                                               self.recover_topic_queue_table) \
            if message_store_config.enableAutoSwitchHA else None
        self.ha_service: HAService = self.auto_switch or HAService(self, state, broker_config)
        commit_log.replication = self.ha_service
        self._gate = PutGate(state, commit_log, table)
        self._reader = MessageReader(state, commit_log, table, index, deleted, broker_stats_manager)
        self.schedule_message_service = ScheduleMessageService(state, commit_log, table, self._reader, deleted,
                                                               broker_stats_manager, self)
        self._recovery = CommitLogRecovery(state, commit_log, table, index, deleted, self.record_dispatcher)
        self._scheduled_service = ScheduledService("StoreScheduledThread1")
        self._disk_check_service = ScheduledService("DiskCheckScheduledThread1")
        self.shut_down_normal = False
        self.recovery_times = RecoveryTimes()
        self._store_lock = StoreLock(paths.get_lock_file(message_store_config.storePathRootDir))

    @property
    def is_shutdown(self) -> bool:
        """True if the store refuses puts and gets."""
        return self.state.is_shutdown

    @property
    def mapped_file_size(self) -> int:
        """The size of each file of the commit log, in bytes."""
        return self.commit_log.mapped_file_size

    @property
    def store_checkpoint(self) -> StoreCheckpoint:
        """The checkpoint; available after `load`."""
        return self.state.checkpoint

    # Start and shutdown.

    def load(self) -> bool:
        """Map and recover the existing files; return False if they can't be used.

        Raise RuntimeError if another broker has locked the store.

        Differs: a broker locks its store before it changes anything. The original recovers (and truncates) first, and
        finds out only at its start that another broker runs on the same files.
        """
        config = self.message_store_config
        self._store_lock.acquire()
        self.state.tasks_pause.begin()
        result = False
        try:
            ensure_dir_ok(config.storePathRootDir)
            ensure_dir_ok(self.get_store_path_physic(), MULTI_PATH_SPLITTER)
            ensure_dir_ok(self.get_store_path_logic())
            if config.is_transient_store_pool_enable():
                self.transient_store_pool.init()
            self.allocate_mapped_file_service.start()
            last_exit_ok = not os.path.exists(self._abort_file())
            self.recovery_times.begin(last_exit_ok)
            kernels.log_choice()
            log.info("last shutdown %s", "normally" if last_exit_ok else "abnormally")
            root = config.storePathRootDir
            self.state.checkpoint = checkpoint = StoreCheckpoint(paths.get_store_checkpoint(root))
            noted = store_marks.read(root, checkpoint, config.get_mapped_file_size_consume_queue()) \
                if last_exit_ok else None
            if self.deleted_topics.load() and self.commit_log.load() and self.consume_queue_table.load(noted):
                base = self._recovery.base(last_exit_ok)
                self.index_service.load(base)
                # Differs: the delay levels are known before recovery dispatches. When the original dispatches delayed
                # messages again after a crash, they get no delivery time and are delivered at once.
                self.state.delay_levels.parse()
                # An index file that is filled during recovery is flushed, and that would write the checkpoint.
                checkpoint.is_held = True
                self._recover(base)
                checkpoint.is_held = False
                if not (base.was_stopped and base.is_noted):
                    sync_files(config, self.commit_log, self.consume_queue_table)
                self.consume_queue_table.forget_recovery()
                log.info("load over, and the max phy offset = %s", self.get_max_phy_offset())
                result = self.schedule_message_service.load()
        except Exception:
            log.exception("load exception")
        self.recovery_times.loaded()
        if not result:
            self._abandon()
        return result

    def _abandon(self) -> None:
        """Release everything after a failed load."""
        self.allocate_mapped_file_service.shutdown()
        self._unmap()
        self.transient_store_pool.destroy()
        self._store_lock.release()

    def start(self) -> None:
        """Dispatch the remaining records, then start all services.

        Raise RuntimeError if another broker has locked the store.
        """
        self._store_lock.acquire()
        # Differs: the abort file is created before anything is dispatched. The original creates it last; if it is
        # killed while it builds queues and index, its next start assumes a clean shutdown.
        create_temp_file(self._abort_file())
        store_marks.forget(self.message_store_config.storePathRootDir)
        self.recovery_times.dispatch_begins()
        start_dispatch(self.state, self.commit_log, self.consume_queue_table, self.reput_message_service)
        self.recovery_times.dispatched()
        self.recover_topic_queue_table()
        self.map_keeper.end_recovery()
        try:
            self.ha_service.start()
            self.handle_schedule_message_service(self.role.kind)
            self.flush_consume_queue_service.start()
            self.commit_log.start()
            self.store_stats_service.start()
            self._add_schedule_task()
        except BaseException:
            # Otherwise the services that have started would keep running without their store, with their ports open.
            self._stop_services()
            raise
        self.state.is_shutdown = False

    def shutdown(self) -> None:
        """Stop all services, flush, and unmap. Idempotent."""
        self.state.tasks_pause.end()
        if not self.is_shutdown:
            self.state.is_shutdown = True
            self._stop_services()
            self.allocate_mapped_file_service.shutdown()
            # Differs: the shutdown of a slave with part of a record is clean, because the master sends the record
            # again.
            dispatched = self.dispatch_behind_bytes() <= 0 or self.reput_message_service.has_only_part_of_a_record()
            flushed = flush_all(self.state, self.commit_log, self.consume_queue_table, self.flush_consume_queue_service)
            if self.running_flags.is_writeable and dispatched and flushed:
                store_marks.write(self.message_store_config.storePathRootDir,
                                  lambda: self.consume_queue_table.noted_ends(self.store_checkpoint.number))
                delete_file(self._abort_file())
                self.shut_down_normal = True
            else:
                log.warning("the store may be wrong, so shutdown abnormally, and keep abort file.")
        self.reput_message_service.shutdown()
        self.allocate_mapped_file_service.shutdown()
        self._unmap()
        self.transient_store_pool.destroy()
        self._store_lock.release()

    def _stop_services(self) -> None:
        """Stop all services. Puts must be refused already."""
        self._scheduled_service.shutdown()
        self._disk_check_service.shutdown()
        with self.commit_log.put_message_lock:
            log.info("the last put is over")
        self.schedule_message_service.shutdown()
        self.ha_service.shutdown()
        self.store_stats_service.shutdown()
        self.commit_log.shutdown()
        self.reput_message_service.shutdown()
        self.index_service.shutdown()
        self.flush_consume_queue_service.shutdown()

    def _unmap(self) -> None:
        """Unmap all files.

        Differs: a store that is closed unmaps its files, because one process may have several stores. The original
        unmaps nothing until its process ends.
        """
        self.consume_queue_table.unmap()
        self.commit_log.mapped_file_queue.shutdown(0)
        for index_file in self.index_service.index_file_list:
            index_file.mapped_file.shutdown(0)
        if self.store_checkpoint is not None:
            self.store_checkpoint.close()

    def destroy(self) -> None:
        """Delete all files of the store."""
        checkpoint = paths.get_store_checkpoint(self.message_store_config.storePathRootDir)
        self.consume_queue_table.destroy()
        self.commit_log.destroy()
        self.index_service.destroy()
        for file_name in (self._abort_file(), checkpoint, checkpoint + POSITIONS_SUFFIX):
            delete_file(file_name)

    # Putting.

    def async_put_message(self, msg: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store one message. The future completes when the message is as safe as the configuration and its WAIT
        property ask.

        Invalid messages get an error status, never an exception.
        """
        status = self._gate.check(msg)
        if status is not _PUT_OK:
            return Completable.completed(PutMessageResult(status))
        return self._count_when_done(current_time_millis(), self.commit_log.async_put_message(msg))

    def async_put_messages(self, message_ext_batch: MessageExtBatch) -> Completable[PutMessageResult]:
        """Store a batch: all or nothing."""
        status = self._gate.check_batch(message_ext_batch)
        if status is not _PUT_OK:
            return Completable.completed(PutMessageResult(status))
        return self._count_when_done(current_time_millis(), self.commit_log.async_put_messages(message_ext_batch))

    def put_rows(self, rows: list[MessageRow], store_host: bytes) -> PutMessageContext | None:
        """Store messages that were received together and only have to be appended; see `CommitLog.put_rows`.

        At the end of a file only the first ones are stored. Return None if no message was stored; putting them one by
        one then returns the reason. The caller counts the messages with `count_rows`.
        """
        return self.commit_log.put_rows(rows, store_host) if self.running_flags.is_writeable else None

    def count_rows(self, context: PutMessageContext) -> None:
        """Count the messages of a completed `put_rows`. The thread that has answered them calls it."""
        elapsed = current_time_millis() - context.begin
        if elapsed > _SLOW_PUT_MS:
            _log_slow_put(elapsed, context)
        self.store_stats_service.count_puts(context.totals, elapsed, len(context.queue_offsets))

    def _count_when_done(self, begin: int, result: Completable[PutMessageResult]) -> Completable[PutMessageResult]:
        """Count a put that began at `begin` (ms since 1970) when it completes."""
        if result.is_done:
            self._count_put(result.get(), begin)
        else:
            result.then(lambda put_result: self._count_put(put_result, begin))
        return result

    def _count_put(self, result: PutMessageResult, begin: int) -> None:
        """Count a completed put that began at `begin` (ms since 1970)."""
        elapsed = current_time_millis() - begin
        if elapsed > _SLOW_PUT_MS:
            _log_slow_put(elapsed, result)
        self.store_stats_service.set_put_message_entire_time_max(elapsed)
        if not result.is_ok:
            self.store_stats_service.count_put_failed()

    def put_message(self, msg: MessageExtBrokerInner) -> PutMessageResult:
        """Store one message, and wait for the result."""
        return self._wait_for_put_result(self.async_put_message(msg))

    def put_messages(self, message_ext_batch: MessageExtBatch) -> PutMessageResult:
        """Store a batch, and wait for the result."""
        return self._wait_for_put_result(self.async_put_messages(message_ext_batch))

    def _wait_for_put_result(self, future: Completable[PutMessageResult]) -> PutMessageResult:
        config = self.message_store_config
        if not future.is_done:
            # If this thread is within a round, the bytes would be sent only at the end of the round.
            self.ha_service.send_to_slaves()
        try:
            return future.get(max(config.syncFlushTimeout, config.slaveTimeout) + 5000)
        except TimeoutError:
            log.error("usually it will never timeout, putMessageTimeout is much bigger than slaveTimeout and "
                      "flushTimeout")
            return PutMessageResult(PutMessageStatus.UNKNOWN_ERROR)

    def on_appended(self, context: PutMessageContext | None = None) -> None:
        """Wake the services that send the log to slaves and that dispatch it, because the log has grown.

        `context`: the put that was appended; None for any other growth.
        """
        ha_service, reput = self.ha_service, self.reput_message_service
        if context is None or context.message is not None or not serves_one_connection():
            ha_service.on_appended()
        else:
            ha_service.send_appended(context.physical_offsets[0], context.data)
        if context is None or self.message_store_config.enableMultiDispatch:  # messages may go to other queues too
            reput.on_appended(None, 0)
        elif context.is_batch or len(context.rows) == 1:
            row = context.rows[0]
            reput.on_appended(row.topic, row.queue_id)
        else:
            for topic, queue_id in set(map(_QUEUE, context.rows)):
                reput.on_appended(topic, queue_id)

    def is_os_page_cache_busy(self) -> bool:
        """Return whether the put lock has been held for too long."""
        return self._gate.is_os_page_cache_busy()

    def lock_time_mills(self) -> int:
        """Return for how many ms the put lock has been held."""
        return self.commit_log.lock_time_mills()

    # Getting.

    def get_message(self, group: str, topic: str, queue_id: int, offset: int, max_msg_nums: int,
                    message_filter: MessageFilter | None = None) -> GetMessageResult | None:
        """Return messages of a queue from index `offset` on, or None if gets are not served.

        The caller releases the result.
        """
        return self._reader.get_message(group, topic, queue_id, offset, max_msg_nums, message_filter)

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the queue's next message; 0 without a queue."""
        queue = self.get_consume_queue(topic, queue_id)
        return queue.get_max_offset_in_queue() if queue is not None else 0

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the queue's oldest message; 0 without a queue, -1 for a topic that can't have one."""
        queue = self.get_consume_queue(topic, queue_id)
        if queue is not None:
            return queue.get_min_offset_in_queue()
        return 0 if is_safe_topic(topic) else -1

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, consume_queue_offset: int) -> int:
        """Return the commit log offset of message `consume_queue_offset`, or 0 if the queue does not have it."""
        unit = self._unit(topic, queue_id, consume_queue_offset)
        return unit[0] if unit is not None else 0

    def get_offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the index of the message stored nearest to `timestamp` (ms)."""
        queue = self.get_consume_queue(topic, queue_id)
        return queue.get_offset_in_queue_by_time(timestamp) if queue is not None else 0

    def look_message_by_offset(self, commit_log_offset: int, size: int | None = None) -> MessageExt | None:
        """Return the message at a commit log offset, or None without a message there."""
        return self._reader.look_message_by_offset(commit_log_offset, size)

    def select_one_message_by_offset(self, commit_log_offset: int,
                                     msg_size: int | None = None) -> SelectMappedBufferResult | None:
        """Return the bytes of the record at a commit log offset, or None without a record there.

        The caller releases the result.
        """
        return self._reader.select_one_message_by_offset(commit_log_offset, msg_size)

    def get_store_path_physic(self) -> str:
        """Return the folder (or folders) of the commit log."""
        return self.message_store_config.get_store_path_commit_log()

    def get_store_path_logic(self) -> str:
        """Return the folder of the consume queues."""
        return self.consume_queue_table.folder()

    def get_runtime_info(self) -> dict[str, str]:
        """Return the store's part of the broker's runtime info."""
        result = self.store_stats_service.get_runtime_info()
        ratios = []
        for path in self.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER):
            ratio = float(get_disk_partition_space_used_percent(path)) if is_path_exists(path) else -1.0
            result[f"commitLogDiskRatio_{path}"] = str(ratio)
            ratios.append(ratio)
        result["commitLogDiskRatio"] = str(min(ratios))
        result["consumeQueueDiskRatio"] = str(float(get_disk_partition_space_used_percent(self.get_store_path_logic())))
        self.schedule_message_service.build_running_stats(result)
        self.ha_service.build_running_stats(result)
        result["commitLogMinOffset"] = str(self.get_min_phy_offset())
        result["commitLogMaxOffset"] = str(self.get_max_phy_offset())
        return result

    def get_max_phy_offset(self) -> int:
        """Return the end of the commit log."""
        return self.commit_log.mapped_file_queue.get_max_offset()

    def get_min_phy_offset(self) -> int:
        """Return the beginning of the commit log, or -1 without a file."""
        return self.commit_log.get_min_offset()

    def get_earliest_message_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """Return the store time (ms) of the oldest message of the log or of a queue, or -1 without messages."""
        if topic is None or queue_id is None:
            return self._reader.store_time_at(self.get_min_phy_offset())
        queue = self.get_consume_queue(topic, queue_id)
        return self._reader.store_time_of(queue, queue.get_min_offset_in_queue()) if queue is not None else -1

    def get_message_store_timestamp(self, topic: str, queue_id: int, consume_queue_offset: int) -> int:
        """Return the store time (ms) of message `consume_queue_offset`, or -1 if the queue does not have it."""
        queue = self.get_consume_queue(topic, queue_id)
        return self._reader.store_time_of(queue, consume_queue_offset) if queue is not None else -1

    def get_message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the number of messages in a queue; -1 without a queue."""
        queue = self.get_consume_queue(topic, queue_id)
        return queue.get_message_total_in_queue() if queue is not None else -1

    # Replication.

    def get_commit_log_data(self, offset: int) -> SelectMappedBufferResult | None:
        """Return all log bytes from `offset` to the end of its file, or None if the log has no bytes there.

        The caller releases the result.
        """
        if self.is_shutdown:
            log.warning("message store has shutdown, so getPhyQueueData is forbidden")
            return None
        return self.commit_log.get_data(offset)

    def append_to_commit_log(self, start_offset: int, data: bytes | bytearray | memoryview, data_start: int,
                             data_length: int) -> bool:
        """Append a piece of the master's log; return False if it can't be written."""
        if self.is_shutdown:
            log.warning("message store has shutdown, so appendToPhyQueue is forbidden")
            return False
        # Differs: a read-only store that refuses the master's bytes logs the reason; the original's log line lacks it.
        if self.running_flags.is_flush_error:
            log.error("appendToPhyQueue failed %s %s: the store is read-only since %s. Restart the broker, so that "
                      "recovery checks what is on the disk", start_offset, data_length,
                      self.running_flags.flush_error_reason or "a failed flush")
            return False
        if not self.commit_log.append_data(start_offset, data, data_start, data_length):
            log.error("appendToPhyQueue failed %s %s: %s", start_offset, data_length, self.commit_log.append_failure)
            return False
        # Wake the followers only after the report to the master: the report is sent within the round, the wake-ups come
        # at its end.
        if not at_round_end(WAKE, self.on_appended):
            self.on_appended()
        return True

    def end_of_whole_records(self) -> int:
        """Return the end of the last complete record, searched from the dispatched offset on.

        It is the log's end unless the last record is incomplete.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#truncateInvalidMsg (5.1.4)
        """
        commit_log = self.commit_log
        begin = max(self.dispatched_offset(), commit_log.get_min_offset(), 0)
        return end_of_whole_records(commit_log.get_data, begin, commit_log.get_max_offset(),
                                    commit_log.mapped_file_size)

    def truncate_dirty_files(self, offset: int) -> None:
        """Truncate the log, the consume queues and the index at `offset`.

        The caller makes sure that nothing is appended meanwhile.

        Differs: while a store is truncated, flushing pauses too, and the truncated bytes are zeroed. The original only
        moves its positions back.

        Java: org.apache.rocketmq.store.DefaultMessageStore#truncateDirtyFiles (5.1.4)
        """
        log.info("truncate dirty files to %s", offset)
        commit_log, reput = self.commit_log, self.reput_message_service
        services = reput, commit_log.flush_commit_log_service, self.flush_consume_queue_service
        running = [service for service in services if service.is_alive()]
        for service in running:
            service.shutdown()
        try:
            old_reput_from_offset = reput.reput_from_offset
            queue = commit_log.mapped_file_queue
            with commit_log.put_message_lock:
                queue.truncate_dirty_files(offset)
                queue.flushed_where = min(queue.flushed_where, offset)
                queue.committed_where = min(queue.committed_where, offset)
            self.deleted_topics.clamp(offset)
            self.store_checkpoint.lower(offset)
            if old_reput_from_offset > offset:
                self.consume_queue_table.truncate_dirty_logic_files(offset)
                self.index_service.truncate(offset)
            self.recover_topic_queue_table()
            reput.reput_from_offset = min(old_reput_from_offset, offset)
            log.info("oldReputFromOffset is %s, reset reput from offset to %s", old_reput_from_offset,
                     reput.reput_from_offset)
        finally:
            for service in running:
                service.start()

    def cut_off(self, offset: int) -> None:
        """Call `truncate_dirty_files`, then force the truncated queues to the disk."""
        self.truncate_dirty_files(offset)
        for queue in self.all_consume_queues():
            last = queue.mapped_file_queue.get_last_mapped_file()
            if last is not None:
                last.force()

    def update_ha_master_address(self, new_addr: str | None) -> None:
        """Set the address of the master's HA port."""
        self.ha_service.update_master_address(new_addr)

    def slave_fall_behind_much(self) -> int:
        """Return the number of bytes that the most advanced slave has not acknowledged."""
        return self.commit_log.get_max_offset() - self.ha_service.push2_slave_max_offset.get()

    # Administration.

    def execute_delete_files_manually(self) -> None:
        """Delete expired files now, at any hour."""
        self.clean_commit_log_service.execute_delete_files_manually()

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """Return messages with `key` stored between `begin` and `end` (ms). The caller releases the result."""
        return self._reader.query_message(topic, key, max_num, begin, end)

    def delete_topic(self, topic: str) -> None:
        """Delete all messages of a topic. Puts to the topic must already be refused.

        Raise OSError, and delete nothing, if the deletion can't be recorded on the disk.
        """
        self.queue_removal.delete_topic(topic)
        self._forget_stats(topic)

    def clean_unused_topic(self, topics: set[str]) -> int:
        """Delete the consume queues of all topics except `topics` and the system topics."""
        for topic in self.queue_removal.unused_topics(topics):
            self.delete_topic(topic)
        return 0

    def clean_unused_lmq_topic(self, topic: str) -> None:
        """Delete a light queue's consume queue."""
        if topic in self.consume_queue_table:
            self.delete_topic(topic)

    def _forget_stats(self, topic: str) -> None:
        if self.broker_config.autoDeleteUnusedStats and self.broker_stats_manager is not None:
            self.broker_stats_manager.on_topic_deleted(topic)

    def clean_expired_consumer_queue(self, is_kept: Callable[[str], bool] = lambda topic: False) -> None:
        """Delete the consume queues whose last message is no longer in the log, except those with `is_kept(topic)`."""
        self.reput_message_service.run_between_records(lambda: self.queue_removal.drop_expired_queues(is_kept))

    def get_message_ids(self, topic: str, queue_id: int, min_offset: int, max_offset: int,
                        store_host: tuple[str, int]) -> dict[str, int]:
        """Return the offset message ids of the messages between two indexes, with each message's index."""
        return self._reader.get_message_ids(topic, queue_id, min_offset, max_offset, store_host)

    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, consume_offset: int) -> bool:
        """Return whether message `consume_offset` is so old that it is probably not in memory."""
        unit = self._unit(topic, queue_id, consume_offset)
        max_offset_py = self.commit_log.get_max_offset()
        return unit is not None and self._reader.check_in_disk_by_commit_offset(unit[0], max_offset_py)

    def _unit(self, topic: str, queue_id: int, index: int) -> tuple[int, int, int] | None:
        queue = self.get_consume_queue(topic, queue_id)
        return queue.get_unit(index) if queue is not None else None

    def readable_offset(self) -> int:
        """Return the offset up to which records may be dispatched.

        It is the end of the log; with an AutoSwitchHAService, the confirmed offset.
        """
        max_offset, auto_switch = self.commit_log.get_max_offset(), self.auto_switch
        return max_offset if auto_switch is None else min(max_offset, auto_switch.confirm_offset())

    def dispatched_offset(self) -> int:
        """Return the offset up to which records are dispatched."""
        return self.reput_message_service.reput_from_offset

    def dispatch_behind_bytes(self) -> int:
        """Return the number of bytes of the log that are not dispatched yet."""
        return self.reput_message_service.behind()

    def call_when_dispatched(self, callback: Callable[[], object]) -> bool:
        """Call `callback` when the latest messages are in their queues.

        Return False, without calling it, if they already are, or will not be soon.
        """
        return self.reput_message_service.call_when_dispatched(callback)

    def flush_up_to(self, offset: int) -> bool:
        """Flush the commit log until everything below `offset` is on the disk; return False if that fails."""
        return self.commit_log.flush_up_to(offset)

    def flush(self) -> int:
        """Flush the commit log, and return the flushed offset. Raise OSError if the disk fails."""
        return self.commit_log.flush()

    def reset_write_offset(self, phy_offset: int) -> bool:
        """Truncate the commit log at `phy_offset`; return False if that is more than two files back.

        No thread may write meanwhile.
        """
        return self.commit_log.reset_offset(phy_offset)

    def get_confirm_offset(self) -> int:
        """Return the offset up to which duplication has confirmed the log."""
        return self.commit_log.confirm_offset

    # Consume queues.

    def all_consume_queues(self) -> Iterator[ConsumeQueue]:
        """Iterate over a snapshot of all consume queues."""
        return self.consume_queue_table.all_queues()

    def get_consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None, which readers treat as an empty queue."""
        # Differs: a query of a queue that does not exist creates none. The original creates a permanent queue for each
        # name that is queried.
        return self.consume_queue_table.get_queue(topic, queue_id)

    def _recover(self, base: RecoveryBase) -> None:
        self.consume_queue_table.recover(base)
        self.queue_removal.drop_dead_queues(at_start=True)
        max_phy_offset = self.consume_queue_table.max_physic_offset()
        if base.was_stopped:
            self._recovery.recover_normally(max_phy_offset, base)
        else:
            self._recovery.recover_abnormally(max_phy_offset, base)
        self.deleted_topics.clamp(self.get_max_phy_offset())
        self.recover_topic_queue_table()

    def recover_topic_queue_table(self) -> None:
        """Set the next offset of each queue from the ends of the consume queues."""
        self.commit_log.set_topic_queue_table(self.consume_queue_table.next_offsets())

    def handle_schedule_message_service(self, broker_role: BrokerRole) -> None:
        """Start or stop the delivery of delayed messages, which only a master does."""
        if broker_role is SLAVE:
            self.schedule_message_service.shutdown()
        else:
            self.schedule_message_service.start()

    def remain_transient_store_buffer_numbs(self) -> int:
        """Return the number of free write buffers; without a pool the maximum of an int."""
        return self.transient_store_pool.available_buffer_nums()

    def is_transient_store_pool_deficient(self) -> bool:
        """Return whether the pool has no free write buffer."""
        pool = self.transient_store_pool
        return pool.is_in_use and pool.available_buffer_nums() == 0

    def _unlock_mapped_file(self, mapped_file: MappedFile) -> None:
        """Unlock a full warmed file after 6 s."""
        self._scheduled_service.schedule(mapped_file.munlock, _UNLOCK_MS)

    def _queue_does_not_fit(self, offset: int, reason: str) -> None:
        """Report, on a slave, that the record at `offset` does not fit its queue: slave and master have diverged."""
        self.ha_service.divergence.queue_does_not_fit(offset, reason)

    # Tasks.

    def _abort_file(self) -> str:
        return paths.get_abort_file(self.message_store_config.storePathRootDir)

    def _add_schedule_task(self) -> None:
        config, schedule = self.message_store_config, self._scheduled_service.schedule_at_fixed_rate
        schedule(self._clean_files_periodically, _CLEAN_INITIAL_MS, config.cleanResourceInterval)
        schedule(self._check_self, _CHECK_SELF_INITIAL_MS, _CHECK_SELF_MS)
        schedule(self._dump_long_lock, 1000, 1000)
        self._disk_check_service.schedule_at_fixed_rate(
            self.clean_commit_log_service.is_space_full, _DISK_CHECK_INITIAL_MS, _DISK_CHECK_MS)

    def _dump_long_lock(self) -> None:
        if self.message_store_config.debugLockEnable:
            dump_long_lock(self.commit_log.begin_time_in_lock, self.commit_log.lock_time_mills())

    def _clean_files_periodically(self) -> None:
        self.clean_commit_log_service.run()
        self.clean_consume_queue_service.run()

    def _check_self(self) -> None:
        self.commit_log.check_self()
        for queue in self.all_consume_queues():
            queue.check_self()


def _log_slow_put(elapsed: int, result: object) -> None:
    log.warning("putMessage not in lock elapsed time(ms)=%s, %s", elapsed, result)
