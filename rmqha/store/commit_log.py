"""The log of all messages, in the order of their arrival.

    putting threads  --async_put_message(s)--> encode --put--> [put lock] append -> flush and replica futures
    IO thread        --put_rows-------------> the sends of one read --put--> the same
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
# Maximum number of attempts of flush_up_to, each for one file. It is far above the number of files, because a failed
# flush on another thread may set the flushed position back.
_FLUSH_ATTEMPTS = 1000
END_FILE_MIN_BLANK_LENGTH = message_layout.END_FILE_MIN_BLANK_LENGTH
_PUT_OK_STATUS, _APPENDED = PutMessageStatus.PUT_OK, AppendMessageStatus.PUT_OK
_PUT_OK = Completable.completed(_PUT_OK_STATUS)
_DELAY = message_const.PROPERTY_DELAY_TIME_LEVEL
_TRANSACTION_MASK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_NOT_DELAYED = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


class Replication(Protocol):
    """The replicas of a log, as its puts see them."""

    @property
    def ack_rule(self) -> AckRule: ...

    def put_request(self, request: GroupCommitRequest) -> None:
        """Complete `request` when the replicas have its bytes, or at its deadline."""


class AckRule(Protocol):
    """The rule that says which replicas must have a put before it is acknowledged."""

    def need_ack_nums(self) -> int | None:
        """Return the next message's `ack_nums`, as in GroupCommitRequest; None if there are too few replicas."""

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Return whether a slave is close enough to a log that ends at `master_put_where`."""


class CommitLog:
    """The commit log: mapped files of mappedFileSizeCommitLog bytes. Offsets count bytes since the first message ever.

    `on_appended` is called with each put that was appended, and with None after a commit; not after `append_data`.
    `unlock` is called with a full, warmed file, to munlock its pages. `replication` is set before the first put.
    `put_message_lock` guards `topic_queue_table` (the next queue offset by "topic-queueId") and `begin_time_in_lock`
    (ms; 0: no put is appending).

    Unsure ends
    -----------
    After a crash, which may have been a power loss, recovery reads on from the flushed end, and ends the log at the
    first record that looks torn (see `record_check`): one whose properties contain zeros where a lost sector would have
    left them. But a producer may send a property with NULs. So a whole record can look torn, and cutting it off may
    lose an acknowledged message. So when such a record is appended, a note is left that it is whole.

    - `note_if_it_looks_torn` checks only records with NULs in their properties, under the put lock.
    - If one looks torn, `note_whole_records` writes its place and checksum into the checkpoint once its bytes are in
      the file (with a TransientStorePool, only after the commit). The note is not forced to the disk: it is for a
      crash of the process, after which the page cache still has record and note. For a power loss see the next point.
    - The end of the record goes to `unsure_ends`. A flush that passes one of these ends also forces the checkpoint's
      positions to the disk before it reports the record as flushed (`FlushCommitLogService._is_news`). After a power
      loss, recovery does not doubt the record, because it lies before the flushed end.

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
        # Unflushed ends of whole records that look torn (see the class). Added under the put lock, removed by a flush.
        self.unsure_ends: deque[int] = deque()
        # Offset and bytes of those records that have no note yet. Added under the put lock, removed under _noting.
        self._uncommitted: deque[tuple[int, bytes]] = deque()
        # Held while notes are written, so that they are in the order of the records.
        self._noting = threading.Lock()
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
        # The reason for the latest failure of append_data. Written under the put lock.
        self.append_failure = ""
        # Differs: there is one kind of put lock. Under the GIL a spinning thread would only slow down its holder.
        self.put_message_lock = threading.Lock()
        # Replaced by the disk check.
        self.full_store_paths: frozenset[str] = frozenset()
        self.multi_dispatch = MultiDispatch(config, self.message_ext_encoder, self._next_offsets_of)
        self.flush_disk_watcher = FlushDiskWatcher()

    def _new_mapped_file_queue(self, allocate_service: AllocateMappedFileService) -> MappedFileQueue:
        path, allocation_unit = self.config.get_store_path_commit_log(), allocate_service.allocation_unit
        if MULTI_PATH_SPLITTER in path:
            return MultiPathMappedFileQueue(self.config, self.mapped_file_size, allocate_service, allocation_unit,
                                            lambda: self.full_store_paths)
        return MappedFileQueue(path, self.mapped_file_size, allocate_service, allocation_unit, keep_descriptor=True)

    def _next_offsets_of(self, key: str) -> dict[str, int]:
        """Return the table that has the next offset of `key`, a queue of multi dispatch. The put lock guards it."""
        is_lmq = self.config.enableLmq and mix_all.is_lmq(key)
        return self.lmq_topic_queue_table if is_lmq else self.topic_queue_table

    def _committed(self) -> None:
        """Wake the log's followers and its flushing thread after CommitRealTimeService has written buffers to files."""
        self._on_appended(None)
        if not self.flush_commit_log_service.timed:
            self.flush_commit_log_service.wakeup()

    def load(self) -> bool:
        """Map the files; return False if one is missing or does not belong to the log."""
        # Differs: a log with a missing file in the middle is refused. The original serves the files that it finds.
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
            # The next start has to check the log.
            self._state.running_flags.make_flush_error(
                f"a service that flushes the commit log: {failure!r}")

    def flush(self) -> int:
        """Flush now, and return the flushed offset. Raise OSError if the disk fails."""
        if self.mapped_file_queue.commit(0) is False:
            self._on_appended(None)
        self.flush_commit_log_service.flush(0)
        return self.mapped_file_queue.flushed_where

    def flush_up_to(self, offset: int) -> bool:
        """Flush until everything below `offset` is on the disk; return False if that fails.

        Other threads may flush at the same time.
        """
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
        """Return the end of the log."""
        return self.mapped_file_queue.get_max_offset()

    def get_max_wrote_position(self) -> int:
        """Return the end of the written bytes, including those in write buffers."""
        return self.mapped_file_queue.get_max_wrote_position()

    def remain_how_many_data_to_commit(self) -> int:
        """Return the number of bytes in write buffers."""
        return self.mapped_file_queue.remain_how_many_data_to_commit()

    def remain_how_many_data_to_flush(self) -> int:
        """Return the number of appended bytes that are not yet on disk."""
        return self.mapped_file_queue.remain_how_many_data_to_flush()

    def delete_expired_file(self, expired_time_ms: int, delete_files_interval_ms: int, interval_forcibly_ms: int,
                            clean_immediately: bool, pause: Callable[[int], bool] | None = None) -> int:
        """Delete old files, oldest first; return the number of deleted files."""
        return self.mapped_file_queue.delete_expired_file_by_time(
            expired_time_ms, delete_files_interval_ms, interval_forcibly_ms, clean_immediately, pause)

    def get_data(self, offset: int, return_first_on_not_found: bool | None = None) -> SelectMappedBufferResult | None:
        """Return the readable bytes from `offset` to the end of its file.

        If no file contains it, return None; with `return_first_on_not_found` (default: at 0), the first file's bytes.
        """
        if return_first_on_not_found is None:
            return_first_on_not_found = offset == 0
        mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(offset, return_first_on_not_found)
        if mapped_file is None:
            return None
        return mapped_file.select_mapped_buffer(offset % self.mapped_file_size)

    def check_message_and_return_size(self, buffer: memoryview, position: int = 0, check_crc: bool = False,
                                      read_body: bool = True) -> DispatchRequest:
        """Return a summary of the record at `position` of `buffer`."""
        return check_message_and_return_size(buffer, position, check_crc, read_body, self._state.delay_levels)

    def walk_records(self, start_offset: int, end_offset: int) -> Iterator[DispatchRequest]:
        """Yield the records between two offsets, up to the first bad one. A record must begin at `start_offset`."""
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
        """Truncate the log at `offset`; return False if that is more than two files back. No thread may write."""
        with self.put_message_lock:
            result = self.mapped_file_queue.reset_offset(offset)
        if result:
            self._state.checkpoint.lower(offset)
            self._deleted_topics.clamp(offset)
        return result

    def get_confirm_offset(self) -> int:
        """Return the offset up to which duplication has confirmed the log; -1 if nothing is confirmed."""
        return self.confirm_offset

    def update_max_message_size(self) -> None:
        """Apply a change of maxMessageSize at run time."""
        size = self.config.maxMessageSize
        if size >= 10 and size != self.message_ext_encoder.max_message_body_size:
            self.message_ext_encoder.update_encoder_buffer_capacity(size)

    def async_put_message(self, msg: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Append one message. The future completes when it is as safe as configuration and WAIT property ask."""
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
        """Redirect a delayed message to the queue of its level, and keep its real destination in its properties."""
        max_level = self._state.delay_levels.max_level
        if msg.delay_time_level > max_level:
            msg.delay_time_level = max_level
        msg.put_property(message_const.PROPERTY_REAL_TOPIC, msg.topic)
        msg.put_property(message_const.PROPERTY_REAL_QUEUE_ID, str(msg.queue_id))
        msg.properties_string = message_properties2string(msg.properties)
        msg.topic = RMQ_SYS_SCHEDULE_TOPIC
        msg.queue_id = msg.delay_time_level - 1

    def async_put_messages(self, batch: MessageExtBatch) -> Completable[PutMessageResult]:
        """Append a batch to one file, with consecutive queue offsets and one store time."""
        if batch.sys_flag & _TRANSACTION_MASK or batch.delay_time_level > 0:
            return _completed(PutMessageStatus.MESSAGE_ILLEGAL)
        _set_v6_flags(batch)
        self.update_max_message_size()
        rows = self.message_ext_encoder.encode_batch(batch)
        if isinstance(rows, PutMessageResult):
            return Completable.completed(rows)
        return self._put(rows, batch, is_batch=True)

    def put_rows(self, rows: list[MessageRow], store_host: bytes) -> PutMessageContext | None:
        """Append rows that were received together; return the context, or None if no row was appended.

        The store's end of the express lane (`rmqha.broker.processor.express_send`). The rows of one read, up to 256,
        are one put: they share the lock, the clock, the write, the wake-ups and the request for flush and replicas,
        which cost more than the copying of a row's bytes. Each row becomes the record that `async_put_message` would
        write. The rows are acknowledged together, when the last of them is safe; the earlier ones are safe then, too.

        At a file's end only the rows that still fit are appended. The context's `rows` then has only these, and the
        caller puts the others with another call. If it gets None, it puts the messages one by one.
        """
        context = PutMessageContext(rows, store_host)
        context.begin = time_ns() // 1_000_000
        context.status = self.put(context)
        return context if context.is_ok else None

    def _put(self, rows: list[MessageRow], msg: MessageExt, prepared_offset: int = 0, is_batch: bool = False,
             multi_dispatch: MessageExtBrokerInner | None = None) -> Completable[PutMessageResult]:
        """Append a message or a batch, and count its messages. See PutMessageContext."""
        try:
            store_host = msg.store_host_bytes
        except ValueError as error:
            log.warning("can't store a message of topic %s: %s", msg.topic, error)
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
        """Append the rows of `context`, and set their places in it.

        The future completes when the rows are as safe as the configuration and their WAIT properties ask; at once if
        they were not appended. Every acknowledged message passes through this method: nothing else appends messages to
        a master's log. Java has this code twice, in asyncPutMessage and asyncPutMessages.
        """
        role, ack_nums = self._role, None
        # Read first: if the role changes after this, the check under the lock sees another term.
        term = role.term
        if role.is_sync_master and context.waits:
            ack_nums = self.replication.ack_rule.need_ack_nums()
            if ack_nums is None:
                return Completable.completed(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        with self.put_message_lock:
            # The role may have changed since the message was checked, and flush and dispatch may have stopped.
            # Differs: in the original, messages checked before the shutdown may be appended after its last flush.
            if role.is_slave or role.term != term or self._state.is_shutdown:
                return Completable.completed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
            if role.guard is not None and not role.guard.takes_puts():
                return Completable.completed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
            if self._deleted_topics.names and self._deleted_topics.refuses(context):
                return Completable.completed(PutMessageStatus.TOPIC_NOT_EXIST)
            # Read under the lock, so that store times never decrease along the log.
            self.begin_time_in_lock = context.store_timestamp = current_time_millis()
            try:
                status = self._append(context)
            finally:
                self.begin_time_in_lock = 0
        if status is not _PUT_OK_STATUS:
            return Completable.completed(status)
        context.is_ok = True
        if not self.transient_store_pool.is_in_use:  # with the pool, the commit makes the rows readable
            self._on_appended(context)
        # The context may wait long, and its data may be large.
        context.data = b""
        return self.when_safe(context, ack_nums, term)

    def _append(self, context: PutMessageContext) -> PutMessageStatus:
        """Append the rows of `context` to the last file, or to the next one if it is full. Under the put lock."""
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
                    log.warning("a message of %s bytes does not fit into a file of the commit log", context.size)
                    return PutMessageStatus.MESSAGE_ILLEGAL
                position = -1
        except OSError as error:
            return self._append_failed(error)
        except ValueError as error:
            # Differs: a number that does not fit its field is refused; the original truncates it.
            log.warning("can't store a message of topic %s: %s", context.topic, error)
            return PutMessageStatus.MESSAGE_ILLEGAL
        except Exception:
            log.exception("can't append a message of topic %s to the commit log", context.topic)
            self._append_broke_off(mapped_file, position, context)
        return PutMessageStatus.UNKNOWN_ERROR

    def _write(self, mapped_file: MappedFile, position: int, context: PutMessageContext) -> None:
        """Assign queue offsets, log offsets and the store time to the rows, and write their records with one write.

        Raise ValueError if a field does not fit; then nothing was written and no queue offset was used.
        `records_of_rows` fills in the fields that the two doAppend methods of Java write into the encoded messages.

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
        """Close the file with a blank. Return False, and do nothing, if the message is larger than any file.

        A record never spans two files, so that each file can be mapped, checked and deleted on its own. If the next
        record does not fit into the rest of a file, the rest becomes a blank: 4 bytes with the number of remaining
        bytes, 4 bytes with BLANK_MAGIC_CODE, then zeros. Readers that meet the blank continue at the beginning of the
        next file (`roll_next_file`). There is always room for the first 8 bytes, because `_append` keeps
        END_FILE_MIN_BLANK_LENGTH free when it checks whether a record fits.

        - The blank is part of the log: slaves copy it, so the next record has the same offset on every replica. A
          master's recovery keeps a blank at the end of the log (`CommitLogRecovery._behind_blank`). Without it, a
          restarted master could append a shorter record where its slaves have the blank.
        - A slave may have received only the first bytes of a blank. Dispatch waits for the rest of it
          (`ReputMessageService`), and recovery of a slave cuts the blank off, so that the master sends it again.
        """
        size = context.size if context.message is not None else context.rows[0].size
        if size + END_FILE_MIN_BLANK_LENGTH > mapped_file.file_size:
            # Differs: a message larger than a file is refused; the original closes one empty file after the other.
            return False
        mapped_file.fill_up(message_layout.encode_blank(mapped_file.file_size - position), context.store_timestamp)
        if self.config.warmMapedFileEnable:
            self._unlock(mapped_file)
        return True

    def note_if_it_looks_torn(self, mapped_file: MappedFile, position: int, size: int) -> None:
        """Note that a record with NULs in its properties is whole, if it looks torn: see "Unsure ends" in the class."""
        buffer = mapped_file.write_buffer or mapped_file.slice_byte_buffer()
        if may_be_torn(buffer, position, size):
            offset = mapped_file.file_from_offset + position
            none_waits = not self._uncommitted
            self._uncommitted.append((offset, bytes(buffer[position:position + size])))
            self.unsure_ends.append(offset + size)
            # The note is only true once the file has the record. While an earlier file has uncommitted bytes, recovery
            # would end the log in that file, so the note waits for the commit.
            if none_waits and mapped_file.write_buffer is None and (
                    not self.transient_store_pool.is_in_use
                    or self.mapped_file_queue.committed_where >= mapped_file.file_from_offset):
                self.note_whole_records(offset + size)

    def note_whole_records(self, end: int) -> None:
        """Write the notes of the waiting records that end at or before `end`; the files have the log up to there."""
        if not self._uncommitted:
            return
        with self._noting:
            while self._uncommitted and self._uncommitted[0][0] + len(self._uncommitted[0][1]) <= end:
                offset, record = self._uncommitted.popleft()
                try:
                    self._state.checkpoint.note_whole(offset, record)
                except OSError as error:
                    log.error("can't note in the checkpoint that the record at %s is whole: %s", offset, error)

    def _append_failed(self, error: OSError) -> PutMessageStatus:
        """Return the status of a put that failed with `error`, a full disk or worse. Nothing was written."""
        log.error("append to the commit log failed: %s", error)
        if not is_no_space(error):
            return PutMessageStatus.UNKNOWN_ERROR
        self.make_disk_full()
        return PutMessageStatus.SERVICE_NOT_AVAILABLE

    def _append_broke_off(self, mapped_file: MappedFile | None, position: int, context: PutMessageContext) -> None:
        """Keep log and queue offsets consistent after an append at `position` that failed for an unknown reason."""
        is_counted = bool(context.queue_offsets)
        if mapped_file is not None and position >= 0 and (
                mapped_file.wrote_position != position or is_counted and context.multi_dispatch is not None):
            log.error("Commit log state is unknown after a failed append; the store is now read-only.")
            self._state.running_flags.make_flush_error("an append that failed halfway, see the lines above")
        elif is_counted:
            for row, offset in zip(reversed(context.rows), reversed(context.queue_offsets), strict=True):
                # Prepared and rolled back messages have no queue offset.
                if row.sys_flag & _TRANSACTION_MASK not in _NOT_DELAYED:
                    self.topic_queue_table[row.queue_key] = offset

    def make_disk_full(self) -> None:
        """Refuse puts until the disk check finds free space, because a write found none."""
        path = self.config.get_store_path_commit_log().split(MULTI_PATH_SPLITTER)[0]
        self._state.running_flags.get_and_make_disk_full(disk_of(path))

    def when_safe(self, context: PutMessageContext, ack_nums: int | None,
                  term: int) -> Completable[PutMessageStatus]:
        """Return the future status of an append, which waits for the disk and for `ack_nums` replicas."""
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
        """Return `status` if this broker is still the master; otherwise the flushed message must not be acknowledged.

        Where no replica has to confirm a message, its flush alone would acknowledge it, even after another broker has
        become the master.
        """
        if guard.may_acknowledge() and self._role.term == term:
            return status
        return PutMessageStatus.FLUSH_SLAVE_TIMEOUT

    def submit_flush_request(self, end: int, waits: bool) -> Completable[PutMessageStatus]:
        """Request a flush of the log up to `end`.

        With SYNC_FLUSH and a waiting sender, the future completes when `end` is flushed; otherwise at once.
        """
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
        """Return a future that completes when `ack_nums` replicas have the log up to `end`, which was put in `term`.

        `ack_nums`: see GroupCommitRequest.
        """
        if ack_nums == 0 and self._role.term == term:
            return _PUT_OK
        if not self.replication.ack_rule.is_slave_ok(end):
            return Completable.completed(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        request = GroupCommitRequest(end, self.config.slaveTimeout, ack_nums, term)
        self.replication.put_request(request)
        return request

    def pickup_store_timestamp(self, offset: int, size: int) -> int:
        """Return the store time (ms) of the record of `size` bytes at `offset`, or -1 if it is not there."""
        if offset < self.get_min_offset():
            return -1
        result = self.get_message(offset, size)
        if result is None:
            return -1
        with result:
            return store_timestamp_of(result.buffer)

    def get_min_offset(self) -> int:
        """Return the offset of the first file in use, or -1 without a file."""
        mapped_file = self.mapped_file_queue.get_first_mapped_file()
        if mapped_file is None:
            return -1
        if mapped_file.available:
            return mapped_file.file_from_offset
        return self.roll_next_file(mapped_file.file_from_offset)

    def get_message(self, offset: int, size: int) -> SelectMappedBufferResult | None:
        """Return the `size` bytes at `offset`, which must lie in one file."""
        # Differs: log offset 0 is not special. The original returns bytes of the oldest file, wherever that begins.
        mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(offset)
        if mapped_file is None:
            return None
        return mapped_file.select_mapped_buffer(offset % self.mapped_file_size, size)

    def may_hold_record(self, offset: int, size: int) -> bool:
        """Return whether the log has a record of `size` bytes at `offset`; True for an offset before its beginning."""
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
        """Return the offset of the file after the one that holds `offset`."""
        return offset + self.mapped_file_size - offset % self.mapped_file_size

    def destroy(self) -> None:
        """Delete all files."""
        self.mapped_file_queue.destroy()

    def append_data(self, start_offset: int, data: bytes | bytearray | memoryview, data_start: int,
                    data_length: int) -> bool:
        """Append the piece of the master's log that begins at `start_offset`; return False if it can't be written.

        Differs: a slave refuses bytes that do not begin at the end of its log; the original writes them anyway.
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
                    return self._not_appended("can't create the log's next file, see the lines above")
                position = mapped_file.wrote_position
                if not mapped_file.append_bytes(memoryview(data)[data_start:data_start + data_length]):
                    return self._not_appended(f"the piece does not fit into {mapped_file.file_name}")
                if mapped_file.write_buffer is not None:  # the broker was started as a master, with a buffer pool
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
        """Write a buffer to its file, including the piece that was appended at `position`.

        Raise OSError if that fails; then the piece is not in the log.

        Differs: received bytes that are not in the file are removed from the buffer, so that the next attempt begins at
        the same place. The original keeps them, but the offset that it reports to its master does not include them.
        """
        try:
            while mapped_file.read_position < mapped_file.wrote_position:
                self.mapped_file_queue.commit(0)
        except OSError:
            if self.mapped_file_queue.take_back(mapped_file, position):
                raise

    def retry_delete_first_file(self, interval_forcibly_ms: int) -> bool:
        """Retry the deletion of a first file that was still held."""
        return self.mapped_file_queue.retry_delete_first_file(interval_forcibly_ms)

    def remove_queue_from_topic_queue_table(self, topic: str, queue_id: int, due: int | None = None) -> bool:
        """Forget the queue's next offset, so that the queue starts again at 0.

        Return False, and do nothing, if the next offset is not `due`.
        """
        key = f"{topic}-{queue_id}"
        with self.put_message_lock:
            if due is not None and self.topic_queue_table.get(key, due) != due:
                return False
            self.topic_queue_table.pop(key, None)
            self.lmq_topic_queue_table.pop(key, None)
        log.info("removeQueueFromTopicQueueTable OK Topic: %s QueueId: %s", topic, queue_id)
        return True

    def take_queue_offsets(self, topic: str) -> list[dict[str, int]]:
        """Remove the next offsets of all queues of a topic, and return them. Called under the put lock."""
        taken, prefix = [], topic + "-"
        for table in (self.topic_queue_table, self.lmq_topic_queue_table):
            keys = [key for key in table if key.startswith(prefix) and key[len(prefix):].isdecimal()]
            taken.append({key: table.pop(key) for key in keys})
        return taken

    def give_queue_offsets_back(self, taken: list[dict[str, int]]) -> None:
        """Undo `take_queue_offsets`. Called under the put lock."""
        self.topic_queue_table.update(taken[0])
        self.lmq_topic_queue_table.update(taken[1])

    def check_self(self) -> None:
        """Log an error for files that do not fit together."""
        self.mapped_file_queue.check_self()

    def lock_time_mills(self) -> int:
        """Return for how many ms the present put has been appending; 0 if none is."""
        begin = self.begin_time_in_lock
        return max(current_time_millis() - begin, 0) if begin > 0 else 0

    def set_topic_queue_table(self, table: dict[str, int]) -> None:
        """Replace the next queue offsets, including those of light queues."""
        with self.put_message_lock:
            self.topic_queue_table = table
            if self.config.enableLmq:
                self.lmq_topic_queue_table = {key: value for key, value in table.items() if mix_all.is_lmq(key)}


def store_timestamp_of(buffer: memoryview) -> int:
    """Return the STORETIMESTAMP of the record at the beginning of `buffer`, or -1 if the buffer ends before it."""
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
