"""The search for the end of the commit log when the store is opened.

`CommitLogRecovery` runs on the opening thread, before any service starts. It walks over whole files at once with the
bulk kernel, or record by record without it; the first bad record ends the walk. If the walk does not dispatch, and the
kernel is compiled, other threads scan the next files meanwhile, one on each further core. Each result is used when the
walk reaches its file. If records are dispatched, another thread scans the next records while the previous ones get
their units and keys.

`RecoveryTimes` measures how long the store took to open.
"""
from __future__ import annotations

import logging
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from rmqha.common import sys_flags
from rmqha.common.futures import Ahead, WorkAhead, usable_cores
from rmqha.common.message.message_layout import (
    HEAD_LENGTH,
    INT,
    LONG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    SYSFLAG_POSITION,
    decode_text,
    store_timestamp_position,
)
from rmqha.common.util_all import time_millis_to_human_string
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Span, Stop
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, first_unit_behind, unpack_unit
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.dispatch import RecordDispatcher
from rmqha.store.index.index_service import IndexService
from rmqha.store.mapped_file import MappedFile
from rmqha.store.record_check import keep_rest, records, skip_good_records, torn_at_the_end, torn_records
from rmqha.store.results import DispatchRequest
from rmqha.store.store_checkpoint import NONE_WHOLE, WholeRecords
from rmqha.store.store_marks import RecoveryBase
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

# Recovery reads at least this many of the last files.
_FILES_LOOKED_AT = 3
_TRANSACTION_MASK = sys_flags.TRANSACTION_ROLLBACK_TYPE
# The position after the good records at a file's beginning, and (topic, queue id) -> queue offset of the last one.
_GoodRecords = tuple[int, dict[tuple[bytes, int], int]]
_NOT_IN_QUEUES = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


class DamagedCommitLogError(Exception):
    """A bad record before the last file, where truncating the log would drop whole files of messages."""


class CommitLogRecovery:
    """The recovery of a commit log: it walks the log's tail and truncates the log after the last good record.

    Java: org.apache.rocketmq.store.CommitLog#recoverNormally (4.9.8)
    """

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable, index_service: IndexService,
                 deleted_topics: DeletedTopics, record_dispatcher: RecordDispatcher) -> None:
        self._state = state
        self._config = state.config
        self.commit_log = commit_log
        self._table = table
        self._index_service = index_service
        self._deleted_topics = deleted_topics
        self._dispatcher = record_dispatcher
        # (topic, queue id) -> queue offset of the last record that the walk has seen. Used during the walk only.
        self._last_queue_offsets: dict[tuple[bytes, int], int] = {}
        # The log offset up to which the furthest consume queue had units when recovery began.
        self._dispatched_to = -1

    def base(self, last_exit_ok: bool) -> RecoveryBase:
        """Return the offsets from which recovery starts, as the checkpoint has them.

        Differs: recovery trusts offsets, not times. If the clock was set back, the original may start beyond records
        that have no units yet, and these never get them. Times are used if the checkpoint was last written by the
        original, or never.
        """
        found = self._state.checkpoint.found
        if found is not None:
            base = RecoveryBase(found.log_flushed, found.dispatched, True, found.by_slave,
                                found.by_slave and not found.is_same_boot, last_exit_ok)
        elif last_exit_ok:
            base = RecoveryBase(0, 0, False, False, False, True)
        else:
            start = self._begin_by_times()
            base = RecoveryBase(start, start, False, False, False, False)
        log.info("recover from %s", base)
        return base

    def recover_normally(self, max_phy_offset_of_consume_queue: int, base: RecoveryBase) -> None:
        """Recover after a clean shutdown: check the last three files."""
        files = self.commit_log.mapped_file_queue.mapped_files
        if not files:
            self._no_files()
            return
        self._dispatched_to = max_phy_offset_of_consume_queue
        index = max(len(files) - _FILES_LOOKED_AT, 0)
        end = self._without_part_of_a_record(files, self._walk(files, index, False, base), base)
        # Differs: if the original was the last to write the store, its files are flushed again, because the original
        # may stop without flushing them.
        self._finish(files[index:], end, max_phy_offset_of_consume_queue, base)

    @staticmethod
    def _without_part_of_a_record(files: list[MappedFile], end: int, base: RecoveryBase) -> int:
        """Return `end`, or the beginning of a record of which a slave had only a part when it was stopped.

        Differs: recovery cuts off a record of which a slave had only a part. The properties have no CRC, and the
        original treats such a record as complete if its body is there.
        """
        if not base.is_noted or end <= base.log_flushed:
            return end
        for mapped_file in files:
            start = mapped_file.file_from_offset
            if start < base.log_flushed < start + mapped_file.file_size:
                for at, size in records(mapped_file.slice_byte_buffer(), 0, mapped_file.file_size):
                    if start + at < base.log_flushed < start + at + size:
                        return start + at
        return end

    def recover_abnormally(self, max_phy_offset_of_consume_queue: int, base: RecoveryBase) -> None:
        """Recover after a crash: walk the log from the first offset at which units, keys or log bytes may be missing on
        the disk, and dispatch the records that lack units or keys."""
        files = self.commit_log.mapped_file_queue.mapped_files
        if not files:
            self._no_files()
            return
        self._dispatched_to = max_phy_offset_of_consume_queue
        # Differs: recovery starts no later than where the furthest consume queue ends. The original trusts the
        # checkpoint even if the queues are gone, and records before the checkpoint's file never get their units and
        # keys again.
        start = min(base.log_flushed, base.dispatched, max_phy_offset_of_consume_queue)
        covering = bisect_right(files, start, key=lambda file: file.file_from_offset) - 1
        index = max(min(covering, len(files) - _FILES_LOOKED_AT), 0)
        log.info("recover from this mapped file %s", files[index].file_name)
        limited = self._config.enableAutoSwitchHA
        walked = self._walk(files, index, not limited, base)
        end = self._without_torn_records(files, walked, base)
        if limited:
            dispatched = max((self._table.recovery_of(queue).dispatched_before for queue in self._table.all_queues()),
                             default=-1)
            self._dispatch_again(files[index:], min(end, dispatched))
        elif end < walked:
            # The queues got the units of the records that are cut off.
            max_phy_offset_of_consume_queue = max(max_phy_offset_of_consume_queue, walked)
        self._finish(files[index:], end, max_phy_offset_of_consume_queue, base)

    def _begin_by_times(self) -> int:
        """Return the offset at which the original starts: the newest file that the checkpoint's times cover.

        Without a file, return 0.
        """
        files = self.commit_log.mapped_file_queue.mapped_files
        index = len(files) - 1
        while index > 0 and not self._is_mapped_file_matched_recover(files[index]):
            index -= 1
        return files[index].file_from_offset if files else 0

    def _without_torn_records(self, files: list[MappedFile], end: int, base: RecoveryBase) -> int:
        """Return `end`, or the beginning of the first torn record: one of which a part never reached the disk.

        The problem: a disk writes sectors of 512 bytes, in any order. After a power loss any sector that was not
        flushed may be missing; it reads as zeros. Most torn records are easy to detect: the magic code, the lengths or
        the body's CRC are wrong, and the walk ends there. But properties have no CRC. A record that lost a sector of
        its properties has correct lengths and a correct body, so it passes every check, with zeros in its properties.

        The rule: of the records that end after the checkpoint's flushed offset, the first one that looks torn (zeros up
        to the end of a sector, see `record_check`) ends the log, unless its writer noted that it is whole (see "Unsure
        ends" in CommitLog). Records before the flushed offset are not doubted.

        It is safe to cut there: the record was not flushed, so with SYNC_FLUSH it was never acknowledged, and the
        records after it were not flushed either. Keeping it would give consumers a damaged message, and a slave that
        received the whole record would differ from its master from then on, without any sign of it.

        Without such a checkpoint (the original wrote the files), nothing is known about the flushed offset or about
        notes. Then only the last record is checked, and only for whole sectors of zeros.
        """
        # Differs: a record that lost a part without a CRC is cut off, with everything after it. The original keeps it,
        # and a slave with the whole record differs from its master from then on.
        if base.is_noted:
            whole = self._whole_records(files, end)
            suspects = self._suspects(files, base.log_flushed, end, base.by_slave, base.doubts_heads)
            torn = next((offset for offset, record in suspects
                         if offset < whole.begin or offset + len(record) > whole.end), -1)
        else:
            torn = self._torn_at_the_end(files, end)
        if torn < 0:
            return end
        log.warning("incomplete record at %s; truncating the log there", torn)
        return torn

    @staticmethod
    def _suspects(files: list[MappedFile], begin: int, end: int, in_pieces: bool,
                  doubts_heads: bool) -> Iterator[tuple[int, memoryview]]:
        """Yield offset and bytes of the records that look torn and end between `begin` and `end`."""
        for mapped_file in files:
            start = mapped_file.file_from_offset
            if start < end and start + mapped_file.file_size > begin:
                buffer = mapped_file.slice_byte_buffer()
                stop = min(end - start, mapped_file.file_size)
                for at, size in torn_records(buffer, stop, begin - start, in_pieces, doubts_heads):
                    yield start + at, buffer[at:at + size]

    def _whole_records(self, files: list[MappedFile], end: int) -> WholeRecords:
        """Return the range of the records that look torn but were noted as whole; empty if they have changed since."""
        noted = self._state.checkpoint.found_whole
        crc = 0
        if noted.begin < noted.end <= end:
            for _offset, record in self._suspects(files, noted.begin, noted.end, False, False):
                crc = zlib.crc32(record, crc)
        return noted if crc == noted.crc else NONE_WHOLE

    @staticmethod
    def _torn_at_the_end(files: list[MappedFile], end: int) -> int:
        mapped_file = next((file for file in reversed(files) if file.file_from_offset < end), None)
        if mapped_file is None:
            return -1
        start = mapped_file.file_from_offset
        at = torn_at_the_end(mapped_file.slice_byte_buffer(), end - start)
        return start + at if at >= 0 else -1

    def _dispatch_again(self, files: list[MappedFile], end: int) -> None:
        """Dispatch the records of `files` before `end` that lack units or keys. `end` is at most the offset up to which
        records had units before the stop. With enableAutoSwitchHA, later records are possibly not confirmed yet, and
        might still be cut off."""
        with WorkAhead("RecoverCommitLogThread_", usable_cores() - 1) as work:
            for mapped_file in files:
                if mapped_file.file_from_offset >= end or not self._dispatch_file_again(mapped_file, end, work):
                    return

    def _dispatch_file_again(self, mapped_file: MappedFile, end: int, work: WorkAhead) -> bool:
        """Dispatch the records of one file as `_dispatch_again` does; return False at a bad record."""
        buffer = mapped_file.slice_byte_buffer()
        stop = min(end - mapped_file.file_from_offset, self.commit_log.mapped_file_size)
        dispatch_good_records = self._good_records_walk(mapped_file, stop, False, True, work)
        position = 0
        while position < stop and (position := dispatch_good_records(position)) < stop:
            request = self.commit_log.check_message_and_return_size(buffer, position, read_body=False)
            if not request.success:
                return False
            if request.msg_size == 0:
                return True
            self._dispatch_record(request)
            position += request.msg_size
        return True

    def _dispatch_record(self, request: DispatchRequest) -> None:
        if not self._config.duplicationEnable or request.commit_log_offset < self.commit_log.confirm_offset:
            self._dispatcher.do_dispatch(request)

    def _walk(self, files: list[MappedFile], index: int, dispatch: bool, base: RecoveryBase) -> int:
        """Walk from file `index` on; return the offset after the last good record."""
        self._last_queue_offsets.clear()
        with WorkAhead("RecoverCommitLogThread_", usable_cores() - 1) as work:
            return self._walk_files(files, index, dispatch, base, work)

    def _walk_files(self, files: list[MappedFile], index: int, dispatch: bool, base: RecoveryBase,
                    work: WorkAhead) -> int:
        look_ahead = not dispatch and bulk.is_compiled()
        # The scans of the files after `index`.
        begun: deque[Ahead[_GoodRecords]] = deque()
        own = None
        while True:
            while look_ahead and len(begun) < min(work.threads, len(files) - index - 1):
                begun.append(work.begin(partial(self._look_over_file, files[index + 1 + len(begun)])))
            mapped_file = files[index]
            position, is_blank = self._walk_file(mapped_file, dispatch, own, work)
            own = begun.popleft() if begun else None
            index += 1
            if not is_blank:
                if index < len(files) and not self._may_be_missing(mapped_file, position, base):
                    self._check_what_follows(files, index, mapped_file, position)
                log.info("recover physics file end, %s pos=%s", mapped_file.file_name, position)
                return mapped_file.file_from_offset + position
            if index >= len(files):
                log.info("recover physics file over, last mapped file %s", mapped_file.file_name)
                return mapped_file.file_from_offset + self._behind_blank(mapped_file.slice_byte_buffer(), position)
            log.info("recover next physics file, %s", files[index].file_name)

    def _walk_file(self, mapped_file: MappedFile, dispatch: bool, begun: Ahead[_GoodRecords] | None,
                   work: WorkAhead) -> tuple[int, bool]:
        """Return the position after the last good record of a file, and whether the file's blank is there.

        `begun`: the scan of the good records at its beginning, on another thread.
        """
        check = self.commit_log.check_message_and_return_size
        check_crc = self._config.checkCRCOnRecover
        file_from_offset = mapped_file.file_from_offset
        buffer, position, size = mapped_file.slice_byte_buffer(), 0, self.commit_log.mapped_file_size
        walk_good_records = self._good_records_walk(mapped_file, size, check_crc, dispatch, work)
        while position < size:
            if begun is None:
                position = walk_good_records(position)
            else:
                (position, last_queue_offsets), begun = begun.take(), None
                self._last_queue_offsets.update(last_queue_offsets)
            request = check(buffer, position, check_crc)
            if not request.success:
                return position, False
            if request.msg_size == 0:
                return position, True
            if request.commit_log_offset != file_from_offset + position:
                # Differs: a record that contains another offset than its own is damaged; the original accepts a record
                # at any place.
                log.error("the record at %s contains another offset: %s", file_from_offset + position,
                          request.commit_log_offset)
                return position, False
            position += request.msg_size
            if request.sys_flag & _TRANSACTION_MASK not in _NOT_IN_QUEUES:
                self._note(request.topic.encode(), request.queue_id, request.consume_queue_offset,
                           file_from_offset + position)
            if dispatch:
                self._dispatch_record(request)
        return position, False

    def _good_records_walk(self, mapped_file: MappedFile, size: int, check_crc: bool, dispatch: bool,
                           work: WorkAhead) -> Callable[[int], int]:
        """Return a function that processes good records, from a position to the first record that needs a closer check.

        The function takes that position and returns the position of this record. It ignores what follows `size` bytes.
        """
        buffer = mapped_file.slice_byte_buffer()
        file_from_offset = mapped_file.file_from_offset
        if self._dispatcher.takes_spans() if dispatch else bulk.is_compiled():
            if dispatch or self._queues_have_files():
                return lambda position: self._walk_spans(buffer, position, size, file_from_offset, check_crc,
                                                         self._last_queue_offsets, work if dispatch else None)
            return lambda position: bulk.walk(buffer, position, size, check_crc, file_from_offset).position
        is_dispatched = self._is_dispatched(file_from_offset) if dispatch else self._only_note(file_from_offset)
        return lambda position: skip_good_records(buffer, position, size, file_from_offset, check_crc, is_dispatched)

    def _look_over_file(self, mapped_file: MappedFile) -> _GoodRecords:
        """Scan the good records at a file's beginning, for `_walk_file` without `dispatch`.

        Any thread may call it, because it changes no state; the caller takes over the queue offsets that it returns.
        """
        check_crc = self._config.checkCRCOnRecover
        buffer, size = mapped_file.slice_byte_buffer(), self.commit_log.mapped_file_size
        file_from_offset = mapped_file.file_from_offset
        last_queue_offsets: dict[tuple[bytes, int], int] = {}
        if self._queues_have_files():
            position = self._walk_spans(buffer, 0, size, file_from_offset, check_crc, last_queue_offsets, None)
        else:
            position = bulk.walk(buffer, 0, size, check_crc, file_from_offset).position
        return position, last_queue_offsets

    def _walk_spans(self, buffer: memoryview, position: int, size: int, file_from_offset: int, check_crc: bool,
                    last_queue_offsets: dict[tuple[bytes, int], int], dispatching: WorkAhead | None) -> int:
        """Walk span by span, and return the position after the last one.

        If `dispatching` is given, each span is dispatched while a thread of `dispatching` scans the next one.
        """
        def scan(start: int) -> Ahead[Span]:
            call = partial(self._dispatcher.scan, buffer, start, size, file_from_offset, check_crc)
            return dispatching.begin(call) if dispatching else Ahead(call)

        stop, scanned = Stop.LIMIT, scan(position)
        while stop is Stop.LIMIT:
            span = scanned.take()
            position, stop = span.position, span.stop
            if stop is Stop.LIMIT:
                scanned = scan(position)
            self._note_runs(span, last_queue_offsets)
            if dispatching:
                self._dispatcher.dispatch_span(span)
        return position

    def _note_runs(self, span: Span, last_queue_offsets: dict[tuple[bytes, int], int]) -> None:
        units = memoryview(span.units)
        for run in span.runs:
            if self._is_dead(span.topics[run.topic].name, unpack_unit(units, run.first_unit * CQ_STORE_UNIT_SIZE)[0]):
                continue
            begin = run.first_unit * CQ_STORE_UNIT_SIZE
            count = first_unit_behind(units[begin:begin + run.count * CQ_STORE_UNIT_SIZE], self._dispatched_to)
            if count:
                last_queue_offsets[span.topics[run.topic].name.encode(), run.queue_id] = \
                    run.queue_offset + count - 1

    def _note(self, topic: bytes, queue_id: int, queue_offset: int, end: int) -> None:
        """Note the queue offset of a record that ends at `end` of the log, if it was dispatched before.

        Records that were never dispatched are dispatched after the start, in the usual way.
        """
        name = decode_text(topic)
        if end <= self._dispatched_to and not self._is_dead(name, end - 1):
            # The queue's topic is the decoded text, even if the bytes are not valid UTF-8.
            self._last_queue_offsets[name.encode(), queue_id] = queue_offset

    def _is_dead(self, topic: str, offset: int) -> bool:
        """Return whether a record was deleted with its topic, so that it needs no unit."""
        return self._deleted_topics.is_dead(topic, offset)

    def _only_note(self, file_from_offset: int) -> Callable[[bytes, int, int, int], bool]:
        def note(topic: bytes, queue_id: int, queue_offset: int, end: int) -> bool:
            self._note(topic, queue_id, queue_offset, file_from_offset + end)
            return True

        return note

    def _queues_have_files(self) -> bool:
        """Return whether there is a consume queue that might lack units of the walked records."""
        return any(queue.mapped_file_queue.mapped_files
                   for queue in self._table.all_queues())

    def _is_dispatched(self, file_from_offset: int) -> Callable[[bytes, int, int, int], bool]:
        """Return a function that says whether a record already has its units and keys.

        If only the process crashed, nearly all records have their units and keys.

        Differs: recovery dispatches only records that lack units or keys. The original hands every record to the
        dispatchers, which log a warning for each record that they have.
        """
        index_end = self._index_service.get_end_phy_offset()
        # With multi dispatch, a record has units in several queues, but only one queue is checked here. So all records
        # are dispatched again.
        multi_dispatch = self._config.enableMultiDispatch
        queues: dict[tuple[bytes, int], ConsumeQueue] = {}

        def is_dispatched(topic: bytes, queue_id: int, queue_offset: int, end: int) -> bool:
            self._note(topic, queue_id, queue_offset, file_from_offset + end)
            key = topic, queue_id
            queue = queues.get(key)
            if queue is None:
                queue = self._table.get_queue(decode_text(topic), queue_id)
                if queue is None:
                    return False
                queues[key] = queue
            # index_end is where the last indexed record begins. The index may have only some of that record's keys, so
            # it is always dispatched again.
            return file_from_offset + end <= min(queue.max_physic_offset, index_end) and \
                queue.consume_queue_ext is None and not multi_dispatch

        return is_dispatched

    def _behind_blank(self, buffer: memoryview, position: int) -> int:
        """Return the end of a last file that is closed by a blank.

        Differs: recovery of a master keeps the blank at the end of the last file. The original cuts it off, and may
        then append a message where slaves have a blank. A slave cuts it off too: the blank may be incomplete, and the
        master sends it again.
        """
        size = self.commit_log.mapped_file_size
        is_blank = INT.unpack_from(buffer, position)[0] == size - position
        return size if is_blank and not self._state.role.is_slave else position

    @staticmethod
    def _may_be_missing(mapped_file: MappedFile, position: int, base: RecoveryBase) -> bool:
        """Return whether the bad record at `position` was not flushed completely, so that the log may end at it.

        A flush up to the end of a file is reported as done only once the checkpoint's positions are on the disk. So if
        these positions do not cover this record, no flush up to the end of this file was ever reported, and the log may
        end here although later files exist.
        """
        if not base.is_noted or base.was_stopped:
            return False
        # Flushed bytes of the record.
        flushed = base.log_flushed - mapped_file.file_from_offset - position
        if flushed <= 0 or not base.by_slave:
            return flushed <= 0
        return flushed < INT.size or INT.unpack_from(mapped_file.slice_byte_buffer(), position)[0] > flushed

    def _check_what_follows(self, files: list[MappedFile], index: int, bad_file: MappedFile, position: int) -> None:
        """Raise DamagedCommitLogError if a later file has records: then the bad record is not the end of the log.

        Differs: a store does not start if a record is damaged and a later file still has records; the original deletes
        all later files silently.
        """
        for mapped_file in files[index:]:
            if _magic_of(mapped_file) == MESSAGE_MAGIC_CODE:
                raise DamagedCommitLogError(
                    f"commit log file {bad_file.file_name} is damaged at position {position} (offset "
                    f"{bad_file.file_from_offset + position}), and {mapped_file.file_name} after it has messages. "
                    f"Nothing was changed. Restore the file from a replica, or move it and all later files away to "
                    f"start without their messages.")

    def _finish(self, files: list[MappedFile], process_offset: int, max_phy_offset_of_consume_queue: int,
                base: RecoveryBase) -> None:
        queue = self.commit_log.mapped_file_queue
        keep_rest(queue.mapped_files, self._config.storePathRootDir, process_offset, base)
        for mapped_file in files:
            if mapped_file.file_from_offset < process_offset and \
                    mapped_file.file_from_offset + mapped_file.file_size > base.log_flushed < process_offset:
                # From here on these bytes count as flushed.
                mapped_file.force()
        queue.flushed_where = process_offset
        queue.committed_where = process_offset
        queue.truncate_dirty_files(process_offset)
        self._truncate_index(process_offset)
        # The original also goes through all queues if they end exactly with the log, to no effect.
        if max_phy_offset_of_consume_queue > process_offset:
            log.warning("maxPhyOffsetOfConsumeQueue(%s) > processOffset(%s), truncate dirty logic files",
                        max_phy_offset_of_consume_queue, process_offset)
            self._table.truncate_dirty_logic_files(process_offset)
        checkpoint = self._state.checkpoint
        checkpoint.by_slave = base.by_slave
        checkpoint.log_flushed = process_offset
        checkpoint.dispatched = process_offset if base.was_stopped and not base.is_noted \
            else min(base.dispatched, process_offset)
        self._mend_consume_queues(process_offset)
        self._table.end_recovery()

    def _truncate_index(self, process_offset: int) -> None:
        """Drop index entries after the log's end; the next records at these offsets will have other keys.

        The index may have reached the disk before the log did.
        """
        if self._config.messageIndexEnable:
            self._index_service.truncate(process_offset)

    def _mend_consume_queues(self, process_offset: int) -> None:
        """Add the units that queues lack before the end of the furthest queue, where dispatching starts again.

        Differs: recovery adds the units that any consume queue lacks; the original checks only the furthest queue, and
        never adds the missing units of the others.
        """
        behind = {}
        for queue in self._table.all_queues():
            recovery = self._table.recovery_of(queue)
            last = self._last_queue_offsets.get((queue.topic.encode(), queue.queue_id))
            # A deleted topic has records in the log, but no files.
            has_files = bool(queue.mapped_file_queue.mapped_files)
            short = last is not None and has_files and last >= queue.get_max_offset_in_queue()
            if recovery.is_behind or short:
                log.warning("consume queue %s-%s ends at %s, but the log has message %s; adding the missing units",
                            queue.topic, queue.queue_id, queue.get_max_offset_in_queue(), last)
                recovery.is_behind = False
                behind[queue.topic, queue.queue_id] = queue
        self._last_queue_offsets.clear()
        if not behind:
            return
        start = max(min(queue.max_physic_offset for queue in behind.values()), self.commit_log.get_min_offset())
        multi_dispatch = self.commit_log.multi_dispatch if self._config.enableMultiDispatch else None
        checkpoint = self._state.checkpoint
        checkpoint.dispatched = min(checkpoint.dispatched, start)
        for request in self.commit_log.walk_records(start, min(self._dispatched_to, process_offset)):
            lacking = behind.get((request.topic, request.queue_id))
            if lacking is not None and request.sys_flag & _TRANSACTION_MASK not in _NOT_IN_QUEUES \
                    and request.commit_log_offset >= lacking.max_physic_offset \
                    and not self._is_dead(request.topic, request.commit_log_offset):
                lacking.put_message_position_info_wrapper(request)
            for name, queue_id, queue_offset in multi_dispatch.queues_of(request) if multi_dispatch else ():
                further = behind.get((name, queue_id))
                if further is not None and request.commit_log_offset >= further.max_physic_offset \
                        and not self._is_dead(name, request.commit_log_offset):
                    further.put_lmq_position_info(request, queue_offset)

    def _no_files(self) -> None:
        log.warning("The commitlog files are deleted, and delete the consume queue files")
        self.commit_log.mapped_file_queue.flushed_where = 0
        self.commit_log.mapped_file_queue.committed_where = 0
        self._table.destroy()
        self._truncate_index(0)

    def _is_mapped_file_matched_recover(self, mapped_file: MappedFile) -> bool:
        """Return whether, by the checkpoint, everything before this file is on the disk and dispatched."""
        if _magic_of(mapped_file) != MESSAGE_MAGIC_CODE or mapped_file.file_size < HEAD_LENGTH:
            return False
        buffer = mapped_file.slice_byte_buffer()
        sys_flag = INT.unpack_from(buffer, SYSFLAG_POSITION)[0]
        store_timestamp = LONG.unpack_from(buffer, store_timestamp_position(sys_flag))[0]
        if store_timestamp == 0:
            return False
        config, checkpoint = self._config, self._state.checkpoint
        by_index = config.messageIndexEnable and config.messageIndexSafe
        limit = checkpoint.get_min_timestamp_index() if by_index else checkpoint.get_min_timestamp()
        if store_timestamp > limit:
            return False
        log.info("find check timestamp, %s %s", store_timestamp, time_millis_to_human_string(store_timestamp))
        return True


def _magic_of(mapped_file: MappedFile) -> int:
    if mapped_file.file_size < MESSAGE_MAGIC_CODE_POSITION + INT.size:
        return 0
    magic_code: int = INT.unpack_from(mapped_file.slice_byte_buffer(), MESSAGE_MAGIC_CODE_POSITION)[0]
    return magic_code


class RecoveryTimes:
    """The duration of the last start, in seconds.

    `load_s`: mapping and checking the files. `dispatch_s`: completing the consume queues and the index. Each is 0.0
    until that step is finished. `was_clean`: whether the last stop was clean; None before the first start.
    """

    def __init__(self) -> None:
        # All attributes are written by the starting thread.
        self.load_s = self.dispatch_s = 0.0
        self.was_clean: bool | None = None
        self._since_ns = time.monotonic_ns()

    def begin(self, was_clean: bool) -> None:
        """Record that loading starts. `was_clean`: the store was stopped in good order."""
        self.was_clean, self._since_ns = was_clean, time.monotonic_ns()

    def loaded(self) -> None:
        """Record that loading is finished."""
        self.load_s = self._elapsed_s()

    def dispatch_begins(self) -> None:
        """Record that dispatching of the remaining records starts."""
        self._since_ns = time.monotonic_ns()

    def dispatched(self) -> None:
        """Record that dispatching is finished."""
        self.dispatch_s = self._elapsed_s()

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._since_ns) / 1e9
