"""The log of all messages, in the order in which they came.

    putting threads  --async_put_message(s)--> encode --put--> [put lock] append -> flush and replica futures
    IO thread        --put_rows-------------> what came together --put--> the same
    HAClient         --append_data-->          [put lock] append (slave)
    flushing thread  --mapped_file_queue.flush-->
    any thread       --get_message, get_data--> slices of the map
"""
from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import time_ns
from typing import Protocol

from rmqha.common import mix_all, sys_flags
from rmqha.common.futures import Completable
from rmqha.common.message import message_const, message_layout
from rmqha.common.message.message import MessageExt, MessageExtBatch
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.common.message.message_layout import body_crc32
from rmqha.common.process import how_to_raise
from rmqha.common.texts import LATER
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.common.util_all import current_time_millis
from rmqha.store.allocate_mapped_file_service import AllocateMappedFileService
from rmqha.store.append import (
    MessageExtBrokerInner,
    MessageExtEncoder,
    MessageRow,
    PutMessageContext,
    records_of_rows,
)
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.flush_disk_watcher import FlushDiskWatcher
from rmqha.store.flush_services import (
    CommitRealTimeService,
    FlushCommitLogService,
    FlushRealTimeService,
    GroupCommitRequest,
    GroupCommitService,
)
from rmqha.store.mapped_file import MappedFile, is_no_space
from rmqha.store.mapped_file_queue import MappedFileQueue, MultiPathMappedFileQueue
from rmqha.store.mapped_memory import TransientStorePool
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER, SYNC_FLUSH
from rmqha.store.multi_dispatch import MultiDispatch
from rmqha.store.record_check import check_message_and_return_size, may_be_torn
from rmqha.store.results import (
    AppendMessageResult,
    AppendMessageStatus,
    DispatchRequest,
    PutMessageResult,
    PutMessageStatus,
    SelectMappedBufferResult,
)
from rmqha.store.role import PutGuard
from rmqha.store.running_flags import disk_of
from rmqha.store.store_state import StoreState

__all__ = ["CommitLog", "CommitRealTimeService", "FlushCommitLogService", "FlushRealTimeService", "GroupCommitRequest",
           "GroupCommitService", "MessageExtEncoder", "PutMessageContext"]

log = logging.getLogger("RocketmqStore")

MESSAGE_MAGIC_CODE = message_layout.MESSAGE_MAGIC_CODE
BLANK_MAGIC_CODE = message_layout.BLANK_MAGIC_CODE
# Files that one flush may span, and more: another thread that flushes may set the position back.
_FLUSH_ATTEMPTS = 1000
END_FILE_MIN_BLANK_LENGTH = message_layout.END_FILE_MIN_BLANK_LENGTH
_PUT_OK_STATUS, _APPENDED = PutMessageStatus.PUT_OK, AppendMessageStatus.PUT_OK
_PUT_OK = Completable.completed(_PUT_OK_STATUS)
_DELAY = message_const.PROPERTY_DELAY_TIME_LEVEL
_TRANSACTION_MASK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_NOT_DELAYED = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


class Replication(Protocol):
    """The replicas of a log, as far as its puts need them. `ack_rule`: see AckRule."""

    @property
    def ack_rule(self) -> AckRule: ...

    def put_request(self, request: GroupCommitRequest) -> None:
        """Complete `request` once the replicas have its bytes, or at its deadline."""


class AckRule(Protocol):
    """Which replicas must have a put before it is acknowledged."""

    def need_ack_nums(self) -> int | None:
        """How many must have the message that is about to be put, the master included; None when there are too few."""

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Whether there is a slave close enough to a log that ends at `master_put_where`."""


class CommitLog:
    """Mapped files of mappedFileSizeCommitLog bytes; offsets are bytes since the first message ever.

    `on_appended`: the log has grown by what the put carries; None: by anything. `unlock`: a warmed file is full.
    `replication` is set before the first put. `topic_queue_table` (next queue offset by "topic-queueId") and
    `begin_time_in_lock` (ms, 0 = free) are guarded by `put_message_lock`.

    Java: org.apache.rocketmq.store.CommitLog (4.9.8)
    """

    def __init__(self, state: StoreState, allocate_mapped_file_service: AllocateMappedFileService,
                 transient_store_pool: TransientStorePool, deleted_topics: DeletedTopics,
                 on_appended: Callable[[PutMessageContext | None], None],
                 unlock: Callable[[MappedFile], object]) -> None:
        config = state.config
        self.config = config
        self.transient_store_pool = transient_store_pool
        self.replication: Replication = LATER
        self._state = state
        self._role = state.role
        self._deleted_topics = deleted_topics
        self._on_appended = on_appended
        self._unlock = unlock
        self.mapped_file_size = config.mappedFileSizeCommitLog
        self.mapped_file_queue = self._new_mapped_file_queue(allocate_mapped_file_service)
        # Records that look torn, and are whole: ends of those that are not flushed, appended under the put lock, taken
        # by the flushing thread; offsets and bytes of those in write buffers, taken by who commits
        self.unsure_ends: deque[int] = deque()
        self._uncommitted: deque[tuple[int, bytes]] = deque()
        self._noting = threading.Lock()  # of those, in their order
        self.mapped_file_queue.on_committed = self.note_whole_records
        flush_service = GroupCommitService if config.flushDiskType is SYNC_FLUSH else FlushRealTimeService
        self.flush_commit_log_service: FlushCommitLogService = flush_service(state, self.mapped_file_queue,
                                                                             self.unsure_ends)
        self.commit_log_service = CommitRealTimeService(state, self.mapped_file_queue, self._committed,
                                                        self.make_disk_full)
        self.message_ext_encoder = MessageExtEncoder(config.maxMessageSize)
        self.topic_queue_table: dict[str, int] = {}
        self.lmq_topic_queue_table: dict[str, int] = {}
        self.confirm_offset = -1
        self.begin_time_in_lock = 0
        self.append_failure = ""  # why `append_data` last took nothing; written under the put lock
        # Differs: one kind of lock; spinning under the GIL would only keep the holder from going on.
        self.put_message_lock = threading.Lock()
        self.full_store_paths: frozenset[str] = frozenset()  # replaced by the disk check
        self.multi_dispatch = MultiDispatch(config, self.message_ext_encoder, self._next_offsets_of)
        self.flush_disk_watcher = FlushDiskWatcher()

    def _new_mapped_file_queue(self, allocate_service: AllocateMappedFileService) -> MappedFileQueue:
        path, allocation_unit = self.config.get_store_path_commit_log(), allocate_service.allocation_unit
        if MULTI_PATH_SPLITTER in path:
            return MultiPathMappedFileQueue(self.config, self.mapped_file_size, allocate_service, allocation_unit,
                                            lambda: self.full_store_paths)
        return MappedFileQueue(path, self.mapped_file_size, allocate_service, allocation_unit, keep_descriptor=True)

    def _next_offsets_of(self, key: str) -> dict[str, int]:
        """The table, guarded by the put lock, that has the next offset of a further queue."""
        is_lmq = self.config.enableLmq and mix_all.is_lmq(key)
        return self.lmq_topic_queue_table if is_lmq else self.topic_queue_table

    def _committed(self) -> None:
        """CommitRealTimeService has written buffers into their files: wake who follows the log, and who flushes it."""
        self._on_appended(None)
        if not self.flush_commit_log_service.timed:
            self.flush_commit_log_service.wakeup()

    def load(self) -> bool:
        """Map the files; False when one does not belong to the log."""
        # Differs: a log with a file missing in the middle is refused; the original serves what it finds
        result = self.mapped_file_queue.load() and \
            self.mapped_file_queue.files_before_gap() == len(self.mapped_file_queue.mapped_files)
        if not self.config.dataReadAheadEnable:
            for mapped_file in self.mapped_file_queue.mapped_files:
                mapped_file.set_read_ahead(False)
        log.info("load commit log %s", "OK" if result else "Failed")
        return result

    def start(self) -> None:
        """Start flushing."""
        self.flush_commit_log_service.start()
        self.flush_disk_watcher.start()
        if self.transient_store_pool.is_in_use:
            self.commit_log_service.start()

    def shutdown(self) -> None:
        """Flush everything and stop flushing."""
        self.commit_log_service.shutdown()
        self.flush_commit_log_service.shutdown()
        self.flush_disk_watcher.shutdown(True)
        if self.flush_commit_log_service.failure or self.commit_log_service.failure:
            failure = self.flush_commit_log_service.failure or self.commit_log_service.failure
            self._state.running_flags.make_flush_error(  # the next start has to look at the log
                f"a service that flushes the commit log: {failure!r}")

    def flush(self) -> int:
        """Flush now; the flushed offset. OSError when the disk says no."""
        if self.mapped_file_queue.commit(0) is False:
            self._on_appended(None)
        self.flush_commit_log_service.flush(0)
        return self.mapped_file_queue.flushed_where

    def flush_up_to(self, offset: int) -> bool:
        """Flush until all below `offset` is on the disk, with other flushing threads beside; False when that fails."""
        queue, service = self.mapped_file_queue, self.flush_commit_log_service
        for _attempt in range(_FLUSH_ATTEMPTS):
            if queue.flushed_where >= offset:
                return not self._state.running_flags.is_flush_error
            if queue.remain_how_many_data_to_commit():
                queue.commit(0)
            service.flush(0)
            if service.shortage.lasts:
                return False
        return False

    def get_max_offset(self) -> int:
        """End of the log."""
        return self.mapped_file_queue.get_max_offset()

    def get_max_wrote_position(self) -> int:
        """End of what was written, write buffers included."""
        return self.mapped_file_queue.get_max_wrote_position()

    def remain_how_many_data_to_commit(self) -> int:
        """Bytes in write buffers."""
        return self.mapped_file_queue.remain_how_many_data_to_commit()

    def remain_how_many_data_to_flush(self) -> int:
        """Bytes not flushed yet."""
        return self.mapped_file_queue.remain_how_many_data_to_flush()

    def delete_expired_file(self, expired_time_ms: int, delete_files_interval_ms: int, interval_forcibly_ms: int,
                            clean_immediately: bool, pause: Callable[[int], bool] | None = None) -> int:
        """Delete old files from the front; return how many."""
        return self.mapped_file_queue.delete_expired_file_by_time(
            expired_time_ms, delete_files_interval_ms, interval_forcibly_ms, clean_immediately, pause)

    def get_data(self, offset: int, return_first_on_not_found: bool | None = None) -> SelectMappedBufferResult | None:
        """All bytes from `offset` to the end of its file; None when there are none."""
        if return_first_on_not_found is None:
            return_first_on_not_found = offset == 0
        mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(offset, return_first_on_not_found)
        if mapped_file is None:
            return None
        return mapped_file.select_mapped_buffer(offset % self.mapped_file_size)

    def check_message_and_return_size(self, buffer: memoryview, position: int = 0, check_crc: bool = False,
                                      read_body: bool = True) -> DispatchRequest:
        """Summary of the record at `position` of `buffer`."""
        return check_message_and_return_size(buffer, position, check_crc, read_body, self._state.delay_levels)

    def walk_records(self, start_offset: int, end_offset: int) -> Iterator[DispatchRequest]:
        """The records between two offsets, `start_offset` being the beginning of one; ends at the first bad one."""
        offset = start_offset
        while offset < end_offset:
            result = self.get_data(offset)
            if result is None:
                return
            with result:
                offset, position = result.start_offset, 0
                while position < result.size and offset + position < end_offset:
                    request = self.check_message_and_return_size(result.buffer, position, read_body=False)
                    if not request.success:
                        return
                    if request.msg_size == 0:
                        break
                    yield request
                    position += request.msg_size
            offset = offset + position if position >= result.size else self.roll_next_file(offset)

    def reset_offset(self, offset: int) -> bool:
        """Cut the log off at `offset`, while nobody writes; False when that is more than two files back."""
        with self.put_message_lock:
            result = self.mapped_file_queue.reset_offset(offset)
        if result:
            self._state.checkpoint.lower(offset)
            self._deleted_topics.clamp(offset)
        return result

    def get_confirm_offset(self) -> int:
        """End of what duplication has confirmed; -1 for nothing."""
        return self.confirm_offset

    def update_max_message_size(self) -> None:
        """Follow a change of maxMessageSize at run time."""
        size = self.config.maxMessageSize
        if size >= 10 and size != self.message_ext_encoder.max_message_body_size:
            self.message_ext_encoder.update_encoder_buffer_capacity(size)

    def async_put_message(self, msg: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Append one message; done once it is as safe as the configuration and its WAIT ask."""
        body = msg.body
        msg.body_crc = body_crc32(body) if body else 0
        if _DELAY in msg.properties and msg.sys_flag & _TRANSACTION_MASK not in _NOT_DELAYED \
                and msg.delay_time_level > 0:
            self._to_schedule_topic(msg)
        _set_v6_flags(msg)
        config = self.config
        if config.maxMessageSize != self.message_ext_encoder.max_message_body_size:
            self.update_max_message_size()
        if config.enableMultiDispatch and self.multi_dispatch.is_multi_dispatch_msg(msg):
            return self._put([], msg, msg.prepared_transaction_offset, multi_dispatch=msg)
        row = self.message_ext_encoder.encode(msg)
        if isinstance(row, PutMessageResult):
            return Completable.completed(row)
        return self._put([row], msg, msg.prepared_transaction_offset)

    def _to_schedule_topic(self, msg: MessageExtBrokerInner) -> None:
        """A delayed message waits in the queue of its level; where it is bound for is kept in its properties."""
        max_level = self._state.delay_levels.max_level
        if msg.delay_time_level > max_level:
            msg.delay_time_level = max_level
        msg.put_property(message_const.PROPERTY_REAL_TOPIC, msg.topic)
        msg.put_property(message_const.PROPERTY_REAL_QUEUE_ID, str(msg.queue_id))
        msg.properties_string = message_properties2string(msg.properties)
        msg.topic = RMQ_SYS_SCHEDULE_TOPIC
        msg.queue_id = msg.delay_time_level - 1

    def async_put_messages(self, batch: MessageExtBatch) -> Completable[PutMessageResult]:
        """Append a batch: all of it in one file, with neighbouring queue offsets and one store time."""
        if batch.sys_flag & _TRANSACTION_MASK or batch.delay_time_level > 0:
            return _completed(PutMessageStatus.MESSAGE_ILLEGAL)
        _set_v6_flags(batch)
        self.update_max_message_size()
        rows = self.message_ext_encoder.encode_batch(batch)
        if isinstance(rows, PutMessageResult):
            return Completable.completed(rows)
        return self._put(rows, batch, is_batch=True)

    def put_rows(self, rows: list[MessageRow], store_host: bytes) -> PutMessageContext | None:
        """Append rows that came together: one lock, one clock, one write, one wait for disk and slaves. At the end of a
        file fewer of them are taken: `rows` of what comes back. None when none was: whoever puts them one by one gets
        the reason."""
        context = PutMessageContext(rows, store_host)
        context.begin = time_ns() // 1_000_000
        context.status = self.put(context)
        return context if context.is_ok else None

    def _put(self, rows: list[MessageRow], msg: MessageExt, prepared_offset: int = 0, is_batch: bool = False,
             multi_dispatch: MessageExtBrokerInner | None = None) -> Completable[PutMessageResult]:
        """Append a message, or the messages of a batch, and count them; see PutMessageContext."""
        try:
            store_host = msg.store_host_bytes
        except ValueError as error:
            log.warning("message of topic %s can't be stored: %s", msg.topic, error)
            return _completed(PutMessageStatus.MESSAGE_ILLEGAL)
        context = PutMessageContext(rows, store_host, msg, prepared_offset, is_batch, multi_dispatch)
        status = self.put(context)
        if not context.is_ok:
            return Completable.completed(PutMessageResult(status.get()))
        msg.store_timestamp = context.store_timestamp
        for topic, (times, size) in context.totals.items():
            self._state.stats.count_put(topic, times, size)
        put_result = PutMessageResult(_PUT_OK_STATUS, AppendMessageResult(
            _APPENDED, context.end - context.size, context.size, msg.store_host,
            context.store_timestamp, context.queue_offsets[0], context.physical_offsets if context.is_batch else None))
        if status is _PUT_OK:
            return Completable.completed(put_result)

        def tell(put_message_status: PutMessageStatus) -> PutMessageResult:
            put_result.put_message_status = put_message_status
            return put_result

        return status.then_apply(tell, lambda _error: put_result)

    def put(self, context: PutMessageContext) -> Completable[PutMessageStatus]:
        """Append what `context` carries, and say there where it went; done once it is as safe as the configuration and
        its WAIT ask, or at once when it was not appended.

        Whatever is acknowledged has come through here: nothing else puts a message into the log of a master. The
        asyncPutMessage and asyncPutMessages of Java have this twice, from the lock to the wait.
        """
        role, ack_nums = self._role, None
        term = role.term  # before the role is looked at
        if role.is_sync_master and context.waits:
            ack_nums = self.replication.ack_rule.need_ack_nums()
            if ack_nums is None:
                return Completable.completed(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        with self.put_message_lock:
            # The role has changed since the message was checked, or nobody flushes and dispatches any more.
            # Differs: the original takes what was checked before its shutdown and comes behind its last flush
            if role.is_slave or role.term != term or self._state.is_shutdown:
                return Completable.completed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
            if role.guard is not None and not role.guard.takes_puts():
                return Completable.completed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
            if self._deleted_topics.names and self._deleted_topics.refuses(context):
                return Completable.completed(PutMessageStatus.TOPIC_NOT_EXIST)
            # under the lock, so that store times never go down along the log
            self.begin_time_in_lock = context.store_timestamp = current_time_millis()
            try:
                status = self._append(context)
            finally:
                self.begin_time_in_lock = 0
        if status is not _PUT_OK_STATUS:
            return Completable.completed(status)
        context.is_ok = True
        if not self.transient_store_pool.is_in_use:  # otherwise a commit makes it readable
            self._on_appended(context)
        context.data = b""  # it may be long, and wait long
        return self.when_safe(context, ack_nums, term)

    def _append(self, context: PutMessageContext) -> PutMessageStatus:
        """Under the put lock: append what `context` carries to the last file, or when that is full to the next one."""
        files, position = self.mapped_file_queue.mapped_files, -1
        mapped_file = files[-1] if files else None
        try:
            for _ in (1, 2):
                if mapped_file is None or mapped_file.wrote_position == mapped_file.file_size:
                    mapped_file = self.mapped_file_queue.get_last_mapped_file(0)
                if mapped_file is None:
                    log.error("create mapped file error, topic: %s clientAddr: %s", context.topic, context.client)
                    return PutMessageStatus.CREATE_MAPEDFILE_FAILED
                position = mapped_file.wrote_position
                several = context.multi_dispatch
                if several is not None and not context.rows \
                        and not self.multi_dispatch.wrap_multi_dispatch(several, context):
                    break
                room = mapped_file.file_size - position - END_FILE_MIN_BLANK_LENGTH
                if context.size <= room or context.keep_what_fits(room):
                    self._write(mapped_file, position, context)
                    return _PUT_OK_STATUS
                if not self._fill_up(mapped_file, position, context):
                    log.warning("message of %s bytes is larger than a file of the commit log", context.size)
                    return PutMessageStatus.MESSAGE_ILLEGAL
                position = -1
        except OSError as error:
            return self._append_failed(error)
        except ValueError as error:
            # Differs: the original writes numbers that do not fit their field cut off.
            log.warning("message of topic %s can't be stored: %s", context.topic, error)
            return PutMessageStatus.MESSAGE_ILLEGAL
        except Exception:
            log.exception("append of a message of topic %s to the commit log failed", context.topic)
            self._append_broke_off(mapped_file, position, context)
        return PutMessageStatus.UNKNOWN_ERROR

    def _write(self, mapped_file: MappedFile, position: int, context: PutMessageContext) -> None:
        """Give messages their queue offsets, their places and their store time, and write them; a batch as one message.

        ValueError when a field does not fit: then nothing was written and no offset was used. `records_of_rows` fills
        in what both doAppend of Java write into the encoded messages.

        Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
        """
        begin, rows, size = mapped_file.file_from_offset + position, context.rows, context.size
        try:
            queue_offsets, context.physical_offsets, data, next_offsets, context.totals, with_nuls = records_of_rows(
                rows, size, self.topic_queue_table, begin, context.store_timestamp, context.store_host,
                context.prepared_offset)
        except (TypeError, OverflowError, struct.error) as error:
            raise ValueError(error) from error
        mapped_file.write_at(position, data)
        if with_nuls is not None:
            for index in with_nuls:
                place = context.physical_offsets[index] - mapped_file.file_from_offset
                self.note_if_it_looks_torn(mapped_file, place, rows[index].size)
        context.data, context.queue_offsets, context.end = data, queue_offsets, begin + size
        self.topic_queue_table.update(next_offsets)
        if context.multi_dispatch is not None and next_offsets:
            self.multi_dispatch.update_multi_queue_offset(context.multi_dispatch)
        mapped_file.wrote_position = position + size
        mapped_file.store_timestamp = context.store_timestamp

    def _fill_up(self, mapped_file: MappedFile, position: int, context: PutMessageContext) -> bool:
        """Close the file with a blank; False, and nothing is done, when what is to be put is larger than any file."""
        size = context.size if context.message is not None else context.rows[0].size
        if size + END_FILE_MIN_BLANK_LENGTH > mapped_file.file_size:
            # Differs: the original closes one empty file after the other for such a message
            return False
        mapped_file.fill_up(message_layout.encode_blank(mapped_file.file_size - position), context.store_timestamp)
        if self.config.warmMapedFileEnable:
            self._unlock(mapped_file)
        return True

    def note_if_it_looks_torn(self, mapped_file: MappedFile, position: int, size: int) -> None:
        """Under the put lock: a record with NULs in its properties was written. Have recovery know that it is whole."""
        buffer = mapped_file.write_buffer or mapped_file.slice_byte_buffer()
        if may_be_torn(buffer, position, size):
            offset = mapped_file.file_from_offset + position
            none_waits = not self._uncommitted
            self._uncommitted.append((offset, bytes(buffer[position:position + size])))
            self.unsure_ends.append(offset + size)
            # where a buffer in front is not committed, the log ends there for recovery
            if none_waits and mapped_file.write_buffer is None and (
                    not self.transient_store_pool.is_in_use
                    or self.mapped_file_queue.committed_where >= mapped_file.file_from_offset):
                self.note_whole_records(offset + size)

    def note_whole_records(self, end: int) -> None:
        """Note those that are in the file, which has all before `end`."""
        if not self._uncommitted:
            return
        with self._noting:
            while self._uncommitted and self._uncommitted[0][0] + len(self._uncommitted[0][1]) <= end:
                offset, record = self._uncommitted.popleft()
                try:
                    self._state.checkpoint.note_whole(offset, record)
                except OSError as error:
                    log.error("that the record at %s is whole can't be noted: %s", offset, error)

    def _append_failed(self, error: OSError) -> PutMessageStatus:
        """No room on the disk, or worse: nothing was written."""
        log.error("append to the commit log failed: %s", error)
        if not is_no_space(error):
            return PutMessageStatus.UNKNOWN_ERROR
        self.make_disk_full()
        return PutMessageStatus.SERVICE_NOT_AVAILABLE

    def _append_broke_off(self, mapped_file: MappedFile | None, position: int, context: PutMessageContext) -> None:
        """An append that began at `position` has failed for no known reason: log and tables must fit together."""
        is_counted = bool(context.queue_offsets)
        if mapped_file is not None and position >= 0 and (
                mapped_file.wrote_position != position or is_counted and context.multi_dispatch is not None):
            log.error("What the commit log has taken is not known. The store takes no more messages.")
            self._state.running_flags.make_flush_error("an append broke off, as the log says")
        elif is_counted:
            for row, offset in zip(reversed(context.rows), reversed(context.queue_offsets), strict=True):
                if row.sys_flag & _TRANSACTION_MASK not in _NOT_DELAYED:  # prepared and rolled back ones do not count
                    self.topic_queue_table[row.queue_key] = offset

    def make_disk_full(self) -> None:
        """A write found no room: refuse puts until the disk check finds some."""
        path = self.config.get_store_path_commit_log().split(MULTI_PATH_SPLITTER)[0]
        self._state.running_flags.get_and_make_disk_full(disk_of(path))

    def when_safe(self, context: PutMessageContext, ack_nums: int | None,
                  term: int) -> Completable[PutMessageStatus]:
        """The status of what was appended: once it is as safe as it gets, on disk and on `ack_nums` replicas."""
        flush = self.submit_flush_request(context.end, context.waits)
        if flush is not _PUT_OK and (guard := self._role.guard) is not None:
            flush = flush.then_apply(partial(self._when_flushed, guard, term),
                                     lambda _error: PutMessageStatus.UNKNOWN_ERROR)
        replica = _PUT_OK if ack_nums is None else self.submit_replica_request(context.end, ack_nums, term)
        if flush is _PUT_OK:
            return replica
        if replica is _PUT_OK:
            return flush
        return Completable.combine(flush, replica, lambda flushed, replicated: (
            flushed if replicated is _PUT_OK_STATUS else replicated))

    def _when_flushed(self, guard: PutGuard, term: int, status: PutMessageStatus) -> PutMessageStatus:
        """What is acknowledged once it is flushed, perhaps by nobody else, is so by a master only."""
        if guard.may_acknowledge() and self._role.term == term:
            return status
        return PutMessageStatus.FLUSH_SLAVE_TIMEOUT

    def submit_flush_request(self, end: int, waits: bool) -> Completable[PutMessageStatus]:
        """Done once the log is flushed up to `end`, with SYNC_FLUSH, if the sender waits; at once otherwise."""
        service, config = self.flush_commit_log_service, self.config
        if config.flushDiskType is SYNC_FLUSH and isinstance(service, GroupCommitService):
            if waits:
                request = GroupCommitRequest(end, config.syncFlushTimeout)
                self.flush_disk_watcher.add(request)
                service.put_request(request)
                return request
            service.wakeup()
        elif self.transient_store_pool.is_in_use:
            self.commit_log_service.wakeup()
        elif not service.timed:
            service.wakeup()
        return _PUT_OK

    def submit_replica_request(self, end: int, ack_nums: int, term: int) -> Completable[PutMessageStatus]:
        """Done once `ack_nums` replicas (see AckRule.need_ack_nums) have the log up to `end`, put in `term`."""
        if ack_nums == 0 and self._role.term == term:
            return _PUT_OK
        if not self.replication.ack_rule.is_slave_ok(end):
            return Completable.completed(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        request = GroupCommitRequest(end, self.config.slaveTimeout, ack_nums, term)
        self.replication.put_request(request)
        return request

    def pickup_store_timestamp(self, offset: int, size: int) -> int:
        """Store time (ms) of the record of `size` bytes at `offset`; -1 when it is not there."""
        if offset < self.get_min_offset():
            return -1
        result = self.get_message(offset, size)
        if result is None:
            return -1
        with result:
            return store_timestamp_of(result.buffer)

    def get_min_offset(self) -> int:
        """Offset of the first file in use; -1 when there is none."""
        mapped_file = self.mapped_file_queue.get_first_mapped_file()
        if mapped_file is None:
            return -1
        if mapped_file.available:
            return mapped_file.file_from_offset
        return self.roll_next_file(mapped_file.file_from_offset)

    def get_message(self, offset: int, size: int) -> SelectMappedBufferResult | None:
        """The `size` bytes at `offset`, which must lie in one file."""
        # Differs: offset 0 is no other than the rest; once it is deleted the original answers with what begins the
        # oldest file.
        mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(offset)
        if mapped_file is None:
            return None
        return mapped_file.select_mapped_buffer(offset % self.mapped_file_size, size)

    def may_hold_record(self, offset: int, size: int) -> bool:
        """False when the log holds `offset` and has no record of `size` bytes there."""
        queue = self.mapped_file_queue
        if not 0 <= self.get_min_offset() <= offset < queue.get_max_offset():
            return offset < self.get_min_offset()
        mapped_file = queue.find_mapped_file_by_offset(offset)
        if mapped_file is None:
            return False
        position = offset - mapped_file.file_from_offset
        if position + max(size, message_layout.HEAD_LENGTH) > mapped_file.file_size:
            return False
        head = message_layout.HEADS[0].unpack_from(mapped_file.slice_byte_buffer(), position)
        return bool(head[:2] == (size, MESSAGE_MAGIC_CODE))

    def roll_next_file(self, offset: int) -> int:
        """Offset of the file behind the one that holds `offset`."""
        return offset + self.mapped_file_size - offset % self.mapped_file_size

    def destroy(self) -> None:
        """Delete all files."""
        self.mapped_file_queue.destroy()

    def append_data(self, start_offset: int, data: bytes | bytearray | memoryview, data_start: int,
                    data_length: int) -> bool:
        """Append a piece of the master's log, which begins at `start_offset`; False when it can't be written.

        Differs: a piece that does not begin at the end of this log is refused; the original writes it all the same.
        """
        with self.put_message_lock:
            files = self.mapped_file_queue.mapped_files
            mapped_file = last = files[-1] if files else None
            end = (start_offset - start_offset % self.mapped_file_size if last is None
                   else last.file_from_offset + last.wrote_position)
            if self._state.is_shutdown:
                return self._not_appended("the store is shut down")
            if start_offset != end:
                log.error("appendData at %s, but the log ends at %s", start_offset, end)
                return self._not_appended(f"the log ends at {end}")
            try:
                if last is None or last.wrote_position == last.file_size:
                    mapped_file = self.mapped_file_queue.get_last_mapped_file(start_offset)
                if mapped_file is None:
                    log.error("appendData getLastMappedFile error  %s", start_offset)
                    return self._not_appended("no further file of the log could be made, see the lines above")
                position = mapped_file.wrote_position
                if not mapped_file.append_bytes(memoryview(data)[data_start:data_start + data_length]):
                    return self._not_appended(f"the piece does not fit into {mapped_file.file_name}")
                if mapped_file.write_buffer is not None:  # left from when this was a master
                    self._commit_piece(mapped_file, position)
                self.flush_commit_log_service.on_data_appended()
                return True
            except OSError as error:
                self._append_failed(error)
                return self._not_appended(f"{error}{how_to_raise(error)}")

    def _not_appended(self, reason: str) -> bool:
        self.append_failure = reason
        return False

    def _commit_piece(self, mapped_file: MappedFile, position: int) -> None:
        """Write a buffer to its file, with the piece that was appended at `position`. OSError: the piece is not there.

        Differs: what is not in the file is taken back, and the next try begins where this one did. The original keeps
        it, and counts what it reports to its master from the file's end.
        """
        try:
            while mapped_file.read_position < mapped_file.wrote_position:
                self.mapped_file_queue.commit(0)
        except OSError:
            if self.mapped_file_queue.take_back(mapped_file, position):
                raise

    def retry_delete_first_file(self, interval_forcibly_ms: int) -> bool:
        """Try again to delete a first file that was still held."""
        return self.mapped_file_queue.retry_delete_first_file(interval_forcibly_ms)

    def remove_queue_from_topic_queue_table(self, topic: str, queue_id: int, due: int | None = None) -> bool:
        """Forget the queue's next offset: it starts again at 0. False, and nothing is done, when it is not `due`."""
        key = f"{topic}-{queue_id}"
        with self.put_message_lock:
            if due is not None and self.topic_queue_table.get(key, due) != due:
                return False
            self.topic_queue_table.pop(key, None)
            self.lmq_topic_queue_table.pop(key, None)
        log.info("removeQueueFromTopicQueueTable OK Topic: %s QueueId: %s", topic, queue_id)
        return True

    def take_queue_offsets(self, topic: str) -> list[dict[str, int]]:
        """Under the put lock: forget the next offsets of all queues of a topic; what they were."""
        taken, prefix = [], topic + "-"
        for table in (self.topic_queue_table, self.lmq_topic_queue_table):
            keys = [key for key in table if key.startswith(prefix) and key[len(prefix):].isdecimal()]
            taken.append({key: table.pop(key) for key in keys})
        return taken

    def give_queue_offsets_back(self, taken: list[dict[str, int]]) -> None:
        """Under the put lock: undo `take_queue_offsets`."""
        self.topic_queue_table.update(taken[0])
        self.lmq_topic_queue_table.update(taken[1])

    def check_self(self) -> None:
        """Complain about files that do not fit together."""
        self.mapped_file_queue.check_self()

    def lock_time_mills(self) -> int:
        """How long the put lock has been held by its present holder, ms; 0 when it is free."""
        begin = self.begin_time_in_lock
        return max(current_time_millis() - begin, 0) if begin > 0 else 0

    def set_topic_queue_table(self, table: dict[str, int]) -> None:
        """Replace the next queue offsets, those of light queues included."""
        with self.put_message_lock:
            self.topic_queue_table = table
            if self.config.enableLmq:
                self.lmq_topic_queue_table = {key: value for key, value in table.items() if mix_all.is_lmq(key)}


def store_timestamp_of(buffer: memoryview) -> int:
    """STORETIMESTAMP of the record at the beginning of `buffer`; -1 when the buffer ends before."""
    if len(buffer) < message_layout.HEAD_LENGTH:
        return -1
    sys_flag, = message_layout.INT.unpack_from(buffer, message_layout.SYSFLAG_POSITION)
    store_timestamp: int = message_layout.LONG.unpack_from(buffer, message_layout.store_timestamp_position(sys_flag))[0]
    return store_timestamp


def _set_v6_flags(msg: MessageExt) -> None:
    if msg.born_host and ":" in msg.born_host[0]:
        msg.sys_flag |= message_layout.host_flags(msg.born_host_bytes, b"")
    if msg.store_host and ":" in msg.store_host[0]:
        msg.sys_flag |= message_layout.host_flags(b"", msg.store_host_bytes)


def _completed(status: PutMessageStatus) -> Completable[PutMessageResult]:
    return Completable.completed(PutMessageResult(status))
