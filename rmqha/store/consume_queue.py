"""The index of one queue of one topic: unit n says where message n lies in the commit log.

    dispatching thread --put_message_position_info_wrapper--> last file
    pulling threads    --get_index_buffer-->                  slices of the map
    FlushConsumeQueueService --flush--> disk;  cleaning thread --delete_expired_file-->
"""
from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from rmqha.common import mix_all
from rmqha.common.message.message_layout import HEAD_LENGTH
from rmqha.common.process import how_to_raise, is_shortage
from rmqha.common.texts import is_folder_name
from rmqha.store.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from rmqha.store.consume_queue_layout import (
    BLANK_POSITION,
    CQ_STORE_UNIT_SIZE,
    CQ_UNIT,
    PRE_BLANK_UNIT,
    count_blank_units,
    count_sure_units,
    count_valid_units,
    file_by_time,
    filled_unit_before,
    first_unit_at,
    first_unit_behind,
    is_ext_addr,
    iter_units,
    pack_unit,
    unit_by_time,
    unpack_unit,
)
from rmqha.store.mapped_file import MappedFile, is_no_space
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.message_store_config import SLAVE
from rmqha.store.record_check import SECTOR_SIZE
from rmqha.store.results import DispatchRequest, SelectMappedBufferResult
from rmqha.store.running_flags import disk_of
from rmqha.store.store_marks import QueueEnd, RecoveryBase, WrongQueueEndsError, check_mtime, mtime_of
from rmqha.store.store_path_config_helper import get_store_path_consume_queue_ext

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")
log_error = logging.getLogger("RocketmqStoreError")

MAX_RETRIES = 30
_RETRY_MS = 1000
_FILES_LOOKED_AT = 3  # by recovery, the last ones at least
_ANY_OFFSET = 2**63 - 1
_UNITS_LOOKED_AT = 4096  # by recovery, the last ones that are sure to be on the disk
_NO_LIMIT = 1 << 63  # behind any offset of the log
_ALLOCATION_UNIT = 64 * 1024  # bytes reserved on disk at a time, at most
_OFFSET_SIZE = 8  # bytes of a unit
_LOOKED_AT = 64 * 1024  # bytes behind the end of the units
_LOOKED_AHEAD = 1 << 20  # bytes of log, for the next record of a queue that seems to begin again


class _MinOf(NamedTuple):
    """A queue's minimum stays as it is while the log begins between `low` and `high`, `file` is the queue's first, and,
    when nothing in it is left, ends at `end` (-1: wherever it ends)."""

    file: MappedFile
    low: int
    high: int
    end: int

    def holds(self, file: MappedFile, offset: int) -> bool:
        """Whether that is so for a log that begins at `offset`."""
        return self.file is file and self.low <= offset <= self.high and self.end in (-1, file.wrote_position)


class ConsumeQueue:
    """Queue `queue_id` of `topic`; offsets named "logic" are bytes in the queue, 20 per message.

    Java: org.apache.rocketmq.store.ConsumeQueue (4.9.8)
    """

    def __init__(self, topic: str, queue_id: int, store_path: str, mapped_file_size: int,
                 default_message_store: DefaultMessageStore) -> None:
        if not is_safe_topic(topic):
            raise ValueError(f"topic {topic!r} is no name for a folder")
        config = default_message_store.message_store_config
        self.topic = topic
        self.queue_id = queue_id
        self.store_path = store_path
        self.mapped_file_size = mapped_file_size
        self.default_message_store = default_message_store
        self.mapped_file_queue = self._new_mapped_file_queue()
        self.max_physic_offset = -1  # end of the last record in the commit log; written by the dispatching thread
        self.min_logic_offset = 0  # written by recovery, the dispatching and the cleaning thread
        self._min_is_of: _MinOf | None = None  # what min_logic_offset is right for
        self.dispatched_before = -1  # recovery: end of the last record that had a unit, on the disk or not
        self.has_its_names = False  # recovery: those of its files are on the disk, whatever happened
        self._clean_at = -1  # recovery: nothing but zeros lies behind these units
        self._emptied_at = 0  # recovery: where the queue began that has no unit which is sure to be on the disk
        self.is_dirty = False  # FlushConsumeQueueService knows that units are not flushed
        self.is_behind = False  # set by recovery: units are missing, dispatch has to begin again at max_physic_offset
        self.consume_queue_ext: ConsumeQueueExt | None = None
        if config.enableConsumeQueueExt:
            self.consume_queue_ext = ConsumeQueueExt(
                topic, queue_id, get_store_path_consume_queue_ext(config.storePathRootDir),
                config.mappedFileSizeConsumeQueueExt, self.mapped_file_queue.allocation_unit)

    def _new_mapped_file_queue(self) -> MappedFileQueue:
        preallocated = self.default_message_store.message_store_config.preallocateMappedFile
        files = MappedFileQueue(os.path.join(self.store_path, self.topic, str(self.queue_id)), self.mapped_file_size,
                                allocation_unit=_ALLOCATION_UNIT if preallocated else 0,
                                map_keeper=self.default_message_store.map_keeper)
        files.can_be_built_again = True
        return files

    def load(self) -> bool:
        """Map the files; False when one does not fit.

        Differs: a line of the log for each queue that is as it should be is at level DEBUG here and in `recover`; the
        original says it at INFO. With thousands of queues these lines were two fifths of the time.
        """
        result = self.mapped_file_queue.load()
        log.log(logging.DEBUG if result else logging.INFO, "load consume queue %s-%s %s", self.topic, self.queue_id,
                "OK" if result else "Failed")
        if self.consume_queue_ext is not None:
            result &= self.consume_queue_ext.load()
        return result

    def noted_end(self) -> QueueEnd | None:
        """What a stop notes, for `take_noted_end`; None of a queue that has no folder. OSError.

        WrongQueueEndsError when that would not say it all.
        """
        files, size = self.mapped_file_queue.mapped_files, self.mapped_file_size
        first = files[0].file_from_offset if files else 0
        if self.consume_queue_ext is not None or \
                any(file.file_from_offset != first + index * size for index, file in enumerate(files)):
            raise WrongQueueEndsError(f"{self.topic}-{self.queue_id} has a gap, or an extension")
        try:
            folder_mtime = mtime_of(self.mapped_file_queue.store_path)
        except FileNotFoundError:
            if files:
                raise
            return None
        self.correct_min_offset(self.default_message_store.commit_log.get_min_offset())
        mine = self._min_is_of if files and self._min_is_of is not None and self._min_is_of.file is files[0] else None
        return QueueEnd(self.queue_id, folder_mtime, first, [mtime_of(file.file_name) for file in files],
                        self.mapped_file_queue.get_max_offset(), self.max_physic_offset, self.min_logic_offset,
                        [mine.low, mine.high, mine.end] if mine is not None else None)

    def take_noted_end(self, noted: QueueEnd) -> None:
        """Instead of `load` and `recover`: be as the last stop noted. WrongQueueEndsError: something has changed."""
        queue = self.mapped_file_queue
        check_mtime(queue.store_path, noted.folder_mtime)
        queue.take_files(noted.first, noted.file_mtimes, noted.end)
        self.max_physic_offset, self.min_logic_offset = noted.max_physic_offset, noted.min_logic_offset
        self._clean_at = noted.end
        if noted.min_is_of is not None:
            self._min_is_of = _MinOf(queue.mapped_files[0], *noted.min_is_of)

    def recover(self, base: RecoveryBase) -> None:
        """Find the end of the units, looking at the last files, and cut off what lies behind it."""
        files = self._drop_behind_a_gap()
        if not files:
            return
        self.is_behind |= self.mapped_file_queue.last_file_was_mended
        process_offset = 0
        begin = self._first_unsure(files, base)
        # Differs: when none of them has a unit, those before are looked at, too; the original takes them for full.
        last_good = (files[begin - 1], self.mapped_file_size) if begin else (files[0], 0)
        for mapped_file in files[begin:]:
            buffer = mapped_file.slice_byte_buffer()
            valid = self._count_units(buffer, base) * CQ_STORE_UNIT_SIZE
            process_offset = mapped_file.file_from_offset + valid
            if valid:
                last_good = mapped_file, valid
            if valid != self.mapped_file_size:
                self._look_behind_the_end(mapped_file, valid)
                self.has_its_names = mapped_file is files[-1] and self._was_flushed(buffer, base)
                break
        if last_good[1] and not self._is_right(last_good[0], last_good[1] - CQ_STORE_UNIT_SIZE):
            last_good = self._end_of_right_units(*last_good)
            process_offset = last_good[0].file_from_offset + last_good[1]
        self.dispatched_before = self._end_of_record(*last_good)
        if not base.was_stopped:
            last_good = self._without_unsure_units(*last_good, base.dispatched)
            process_offset = last_good[0].file_from_offset + last_good[1]
        max_ext_addr = self._take_last_unit(*last_good)
        if not (base.was_stopped or last_good[1]):
            self._emptied_at = process_offset
        log.debug("recover current consume queue over %s-%s %s", self.topic, self.queue_id, process_offset)
        self._begin_at(process_offset, files[begin:] if not base.is_noted else [], base)
        self.correct_min_offset(self.default_message_store.commit_log.get_min_offset())  # now that the file is mapped
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.recover(base)
            self.consume_queue_ext.truncate_by_max_address(max_ext_addr)

    @staticmethod
    def _was_flushed(buffer: memoryview, base: RecoveryBase) -> bool:
        """Whether the first unit of a file was, and with it the file's name: what is dispatched is flushed.

        Of a last file that is not full: a deleted one that comes back behind it is found.
        """
        offset, size, _ = unpack_unit(buffer)
        return base.is_noted and size > 0 and (offset, size) != BLANK_POSITION and 0 <= offset < base.dispatched

    @staticmethod
    def _count_units(buffer: memoryview, base: RecoveryBase) -> int:
        """Number of valid units of a file up to the first invalid one."""
        if not base.is_noted:
            return count_valid_units(buffer)
        # Differs: units that are sure to be on the disk, all of them after a good shutdown, are not looked at one by
        # one, but for the last; the original reads those of three files.
        sure = count_sure_units(buffer, _NO_LIMIT if base.was_stopped else base.dispatched)
        begin = max(sure - _UNITS_LOOKED_AT, 0)
        return begin + count_valid_units(buffer[begin * CQ_STORE_UNIT_SIZE:])

    @staticmethod
    def _end_of_record(mapped_file: MappedFile, valid: int) -> int:
        if not valid:
            return -1
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), valid - CQ_STORE_UNIT_SIZE)
        return offset + size if (offset, size) != BLANK_POSITION else -1

    def _take_last_unit(self, mapped_file: MappedFile, valid: int) -> int:
        """Note where the record of the last unit ends; the last address of the extension."""
        if not valid:
            return 1
        units = mapped_file.slice_byte_buffer()[:valid]
        self._set_max_physic_offset(*unpack_unit(units, valid - CQ_STORE_UNIT_SIZE))
        return self._last_ext_addr(units, 1)

    def _begin_at(self, process_offset: int, files: list[MappedFile], base: RecoveryBase) -> None:
        """The units end at `process_offset`, and are on the disk: `files` are those of which that is not sure."""
        for mapped_file in files:
            mapped_file.force()
        queue = self.mapped_file_queue
        queue.flushed_where = queue.committed_where = process_offset
        if base.was_stopped:
            queue.go_back_to(process_offset) if process_offset == self._clean_at \
                else queue.truncate_dirty_files(process_offset)
        elif self._emptied_at > 0:  # the file in front may have lost its name: the next unit tells where to begin
            queue.truncate_dirty_files(0)
            queue.flushed_where = queue.committed_where = 0
        else:
            queue.go_back_to(process_offset)  # units are about to be dispatched again

    def end_recovery(self) -> None:
        """Everything is dispatched again: nothing lies behind the units."""
        queue, begin = self.mapped_file_queue, self._emptied_at
        self._emptied_at = 0
        has_expired = self.default_message_store.commit_log.get_min_offset() > 0  # messages of it, perhaps
        if begin > 0 and has_expired and not queue.mapped_files and queue.try_create_mapped_file(begin) is not None:
            queue.flushed_where = queue.committed_where = begin  # no index is given to a second message
        if self._clean_at < 0 or queue.get_max_offset() != self._clean_at:
            queue.truncate_dirty_files(queue.get_max_offset())

    def _without_unsure_units(self, mapped_file: MappedFile, valid: int, dispatched: int) -> tuple[MappedFile, int]:
        """The last unit before commit log offset `dispatched`: file and end. Recovery dispatches from there on.

        Differs: the original keeps what it finds, and takes for flushed what nobody has flushed.
        """
        limit = max(dispatched, self.default_message_store.commit_log.get_min_offset())
        files = self.mapped_file_queue.mapped_files
        index = files.index(mapped_file)
        while True:
            buffer = files[index].slice_byte_buffer()
            count = first_unit_at(buffer, valid // CQ_STORE_UNIT_SIZE, limit)
            if count and not self._is_mine(files[index], count - 1):
                count -= 1
            if count or index == 0:
                return files[index], count * CQ_STORE_UNIT_SIZE
            index, valid = index - 1, self.mapped_file_size

    def _is_mine(self, mapped_file: MappedFile, number: int) -> bool:
        """False for a unit of whose offset only the part in the later of two sectors came to the disk, if any.

        That is the first one that was not flushed: those behind it in that sector are whole, or none are there.
        """
        place = number * CQ_STORE_UNIT_SIZE
        if -place % SECTOR_SIZE not in range(1, _OFFSET_SIZE + 1):
            return True
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), place)
        commit_log = self.default_message_store.commit_log
        if (offset, size) == BLANK_POSITION or offset < commit_log.get_min_offset():
            return True
        result = commit_log.get_message(offset, size) if commit_log.may_hold_record(offset, size) else None
        if result is None:
            return False
        with result:
            request = commit_log.check_message_and_return_size(result.buffer)
        index = mapped_file.file_from_offset // CQ_STORE_UNIT_SIZE + number
        # a light queue has messages of other topics, with indexes of its own
        return request.success and (self.default_message_store.message_store_config.enableMultiDispatch or (
            (request.topic, request.queue_id, request.consume_queue_offset) == (self.topic, self.queue_id, index)))

    def _first_unsure(self, files: list[MappedFile], base: RecoveryBase) -> int:
        """Index of the file to begin with: the units of all before it are on the disk.

        Differs: the original looks at three. After a loss of power units may be missing further to the front, when
        more files than that were filled since the last flush, or the disk has taken the later ones first.
        """
        begin = max(len(files) - _FILES_LOOKED_AT, 0)
        while begin > 0 and not base.was_stopped and not self._begins_before(files[begin], base.dispatched):
            begin -= 1
        return begin

    @staticmethod
    def _begins_before(mapped_file: MappedFile, offset: int) -> bool:
        """Whether the first unit of a file points before `offset` of the commit log."""
        phy_offset, size, _tags_code = unpack_unit(mapped_file.slice_byte_buffer(), 0)
        return size > 0 and phy_offset < offset

    def _drop_behind_a_gap(self) -> list[MappedFile]:
        """Differs: files behind a missing one go, to be built again from the log; the original reads on behind it."""
        files = self.mapped_file_queue.mapped_files
        count = self.mapped_file_queue.files_before_gap()
        if count < len(files):
            self.mapped_file_queue.truncate_dirty_files(files[count - 1].file_from_offset + self.mapped_file_size)
            self.is_behind = True
        return files[:count]

    def _look_behind_the_end(self, mapped_file: MappedFile, end: int) -> None:
        """Anything but zeros behind the last valid unit means that units were lost."""
        files = self.mapped_file_queue.mapped_files
        behind = mapped_file.first_byte_behind(end)
        if behind < 0 and mapped_file is files[-1]:
            self._clean_at = mapped_file.file_from_offset + end
        if mapped_file is not files[-1] or 0 <= behind < end + _LOOKED_AT:
            log.error("consume queue %s-%s: %s is damaged at position %s; all behind it is built again", self.topic,
                      self.queue_id, mapped_file.file_name, end)
            self.is_behind = True

    def _end_of_right_units(self, mapped_file: MappedFile, valid: int) -> tuple[MappedFile, int]:
        """The last unit, from `valid` bytes of a file backwards, that points at a record of its size: file and end.

        Differs: the original believes the last unit, and with it begins its dispatch too late.
        """
        files = self.mapped_file_queue.mapped_files
        index, end = files.index(mapped_file), valid
        while end > 0 and not self._is_right(files[index], end - CQ_STORE_UNIT_SIZE):
            end -= CQ_STORE_UNIT_SIZE
            if end == 0 and index > 0:
                index, end = index - 1, self.mapped_file_size
        log.error("consume queue %s-%s: what %s says behind position %s is not in the log; it is built again",
                  self.topic, self.queue_id, files[index].file_name, end)
        self.is_behind = True
        return files[index], end

    def _is_right(self, mapped_file: MappedFile, position: int) -> bool:
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), position)
        return (offset, size) == BLANK_POSITION or self.default_message_store.commit_log.may_hold_record(offset, size)

    def _set_max_physic_offset(self, offset: int, size: int, _tags_code: int) -> None:
        # Differs: a queue that ends in the blanks before its first message points at nothing yet; the original takes
        # the blank's size for an offset and drops the queue's messages until the log is 2 GiB long.
        if (offset, size) != BLANK_POSITION:
            self.max_physic_offset = offset + size

    def _last_ext_addr(self, units: memoryview, default: int) -> int:
        if self.consume_queue_ext is not None:
            for _offset, _size, tags_code in iter_units(units):
                if is_ext_addr(tags_code):
                    default = tags_code
        return default

    def get_offset_in_queue_by_time(self, timestamp: int) -> int:
        """Index of the message stored nearest to `timestamp` (ms), by bisection of one file; 0 when none is found."""
        commit_log = self.default_message_store.commit_log
        mapped_file = file_by_time(self.mapped_file_queue, commit_log, timestamp)
        result = mapped_file.select_mapped_buffer(0) if mapped_file is not None else None
        if mapped_file is None or result is None:
            return 0
        with result:
            low = max(self.min_logic_offset - mapped_file.file_from_offset, 0)
            position = unit_by_time(result.buffer, low, commit_log, self.default_message_store.get_min_phy_offset(),
                                    timestamp)
        return 0 if position is None else (mapped_file.file_from_offset + position) // CQ_STORE_UNIT_SIZE

    def truncate_dirty_logic_files(self, phy_offset: int) -> None:
        """Recovery: drop the units of records at or behind `phy_offset`, the end of the commit log."""
        self.max_physic_offset = phy_offset
        self._min_is_of = None
        max_ext_addr = 1
        while (mapped_file := self.mapped_file_queue.get_last_mapped_file()) is not None:
            buffer = mapped_file.slice_byte_buffer()
            if unpack_unit(buffer)[0] >= phy_offset:
                self.mapped_file_queue.delete_last_mapped_file()
                continue
            count = first_unit_at(buffer, count_valid_units(buffer), phy_offset)
            # Differs: units at the end that point at no record go too, so that theirs find their place
            count = filled_unit_before(buffer, count - 1) + 1 or count
            keep = count * CQ_STORE_UNIT_SIZE
            if count:
                self._set_max_physic_offset(*unpack_unit(buffer, keep - CQ_STORE_UNIT_SIZE))
                max_ext_addr = self._last_ext_addr(buffer[:keep], max_ext_addr)
            mapped_file.zero_from(keep)
            mapped_file.go_back_to(keep)
            break
        # Differs: the flushed position follows the cut; the original leaves it beyond the end, and flushes nothing
        # until the queue has grown past it again.
        end = self.mapped_file_queue.get_max_offset()
        self.mapped_file_queue.flushed_where = min(self.mapped_file_queue.flushed_where, end)
        self.mapped_file_queue.committed_where = min(self.mapped_file_queue.committed_where, end)
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.truncate_by_max_address(max_ext_addr)

    def get_last_offset(self) -> int:
        """End in the commit log of the last unit's record; -1 when there is no unit."""
        mapped_file = self.mapped_file_queue.get_last_mapped_file()
        if mapped_file is None:
            return -1
        position = max(mapped_file.wrote_position - CQ_STORE_UNIT_SIZE, 0)
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), position)
        return offset + size if offset >= 0 and size > 0 else -1

    def flush(self, flush_least_pages: int) -> bool:
        """Flush what is at least so many pages; True when there was nothing to do. OSError when the disk says no."""
        result = self.mapped_file_queue.flush(flush_least_pages)
        if self.consume_queue_ext is not None:
            result &= self.consume_queue_ext.flush(flush_least_pages)
        return result

    def written_to(self) -> tuple[int, int]:
        """Ends of the units and of the extension."""
        ext = self.consume_queue_ext
        return self.mapped_file_queue.get_max_offset(), ext.mapped_file_queue.get_max_offset() if ext is not None else 0

    def is_flushed_to(self, end: tuple[int, int]) -> bool:
        """Whether units and extension are on the disk up to what `written_to` said."""
        ext = self.consume_queue_ext
        return self.mapped_file_queue.flushed_where >= end[0] and \
            (ext is None or ext.mapped_file_queue.flushed_where >= end[1])

    def delete_expired_file(self, offset: int) -> int:
        """Delete files that point below commit log offset `offset`; return how many."""
        count = self.mapped_file_queue.delete_expired_file_by_offset(offset, CQ_STORE_UNIT_SIZE)
        self.correct_min_offset(offset)
        return count

    def correct_min_offset(self, phy_min_offset: int) -> None:
        """Set the queue's minimum to the first unit that points at or behind `phy_min_offset`."""
        mapped_file = self.mapped_file_queue.get_first_mapped_file()
        if mapped_file is None or self._min_is_of is not None and self._min_is_of.holds(mapped_file, phy_min_offset):
            return  # without its map, which an idle queue does not have
        result = mapped_file.select_mapped_buffer(0)
        if result is None:
            return
        with result:
            # Differs: a bisection; the original reads up to 300,000 units of every queue.
            total = result.size // CQ_STORE_UNIT_SIZE
            first = first_unit_at(result.buffer, total, phy_min_offset)
            if first == total:
                self._min_is_of = _MinOf(mapped_file, phy_min_offset, _ANY_OFFSET, total * CQ_STORE_UNIT_SIZE)
                return
            first_offset, _size, tags_code = unpack_unit(result.buffer, first * CQ_STORE_UNIT_SIZE)
        self.min_logic_offset = mapped_file.file_from_offset + first * CQ_STORE_UNIT_SIZE
        self._min_is_of = _MinOf(mapped_file, phy_min_offset, max(first_offset, phy_min_offset), -1)
        if first or mapped_file.file_from_offset:
            log.info("Compute logical min offset: %s, topic: %s, queueId: %s", self.get_min_offset_in_queue(),
                     self.topic, self.queue_id)
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.truncate_by_min_address(tags_code if is_ext_addr(tags_code) else 1)

    def get_min_offset_in_queue(self) -> int:
        """Index of the oldest message."""
        return self.min_logic_offset // CQ_STORE_UNIT_SIZE

    def put_message_position_info_wrapper(self, request: DispatchRequest, multi_queue: bool = False) -> None:
        """Add the unit of one record, trying for 30 s before the store is declared broken."""
        store = self.default_message_store
        if request.consume_queue_offset == 0 and not mix_all.is_lmq(self.topic):  # whose own messages are counted apart
            self._begin_anew_at(request.commit_log_offset)
        tags_code = self._ext_or_tags_code(request)
        if not self._put_with_retries(request.commit_log_offset, request.msg_size, tags_code,
                                      request.consume_queue_offset):
            log.error("[BUG]consume queue can not write, %s %s", self.topic, self.queue_id)
            store.running_flags.make_logics_queue_error()
            return
        store.store_checkpoint.dispatched_timestamp = request.store_timestamp
        if multi_queue:
            store.multi_dispatch.dispatch_lmq_queue(request)

    def _ext_or_tags_code(self, request: DispatchRequest) -> int:
        if self.consume_queue_ext is None or not self.default_message_store.message_store_config.enableConsumeQueueExt:
            return request.tags_code
        unit = CqExtUnit(request.tags_code, request.store_timestamp, request.bit_map)
        ext_addr = self.consume_queue_ext.put(unit)
        if is_ext_addr(ext_addr):
            return ext_addr
        log.warning("Save consume queue extend fail, So just save tagsCode! %s, topic:%s, queueId:%s, offset:%s",
                    unit, self.topic, self.queue_id, request.commit_log_offset)
        return request.tags_code

    def _put_with_retries(self, offset: int, size: int, tags_code: int, cq_offset: int) -> bool:
        store = self.default_message_store
        times = 0
        while store.running_flags.is_cq_writeable and times < MAX_RETRIES:
            try:
                self.mapped_file_queue.create_failure = None
                if self.put_message_position_info(offset, size, tags_code, cq_offset):
                    return True
                # Differs: so is the end of a lack of descriptors, while puts go on; the original keeps files open
                times += not is_shortage(self.mapped_file_queue.create_failure)
            except OSError as error:
                if not is_no_space(error):
                    times += not is_shortage(error)
                    log.error("write of consume queue %s-%s failed: %s%s", self.topic, self.queue_id, error,
                              how_to_raise(error))
                else:
                    # Differs: a full disk is waited for, and is no error of the queue: puts are refused meanwhile.
                    store.running_flags.get_and_make_disk_full(disk_of(self.store_path))
            log.warning("[BUG]put commit log position info to %s:%s %s failed, retry %s times",
                        self.topic, self.queue_id, offset, times)
            if store.reput_message_service.pause(_RETRY_MS):
                return False  # the store is going down: the unit is built again after the next start
        return False

    def put_lmq_position_info(self, request: DispatchRequest, cq_offset: int) -> None:
        """Add a unit for a record that belongs to another topic (multi dispatch)."""
        if cq_offset == 0:
            self._begin_anew_at(request.commit_log_offset)
        if not self._put_with_retries(request.commit_log_offset, request.msg_size, request.tags_code, cq_offset):
            log.error("[BUG]consume queue can not write, %s %s", self.topic, self.queue_id)

    def put_units(self, queue_offset: int, units: memoryview) -> bool:
        """Append the units of records that follow one another, in blocks, the first one as index `queue_offset`.

        For queues without extension. Units that are there already are passed over. False when the queue can't be
        written, which is then said of the store.
        """
        known = first_unit_behind(units, self.max_physic_offset)
        if known:
            log.debug("%s units are there already, maxPhysicOffset=%s", known, self.max_physic_offset)
        at = known * CQ_STORE_UNIT_SIZE
        if queue_offset == 0 and not known and not mix_all.is_lmq(self.topic):
            self._begin_anew_at(unpack_unit(units)[0])
        while at < len(units):
            index = queue_offset + at // CQ_STORE_UNIT_SIZE
            size = self._put_block(index, units[at:])
            if not size:  # the first unit of a file or of a gap, a wrong index, a full disk
                if not self._put_with_retries(*unpack_unit(units, at), index):
                    log.error("[BUG]consume queue can not write, %s %s", self.topic, self.queue_id)
                    self.default_message_store.running_flags.make_logics_queue_error()
                    return False
                size = CQ_STORE_UNIT_SIZE
            at += size
        return True

    def _put_block(self, index: int, units: memoryview) -> int:
        """Append what fits into the last file when `units` begin at its end; how many bytes."""
        files = self.mapped_file_queue.mapped_files
        if not files or not self.default_message_store.running_flags.is_cq_writeable:
            return 0
        mapped_file = files[-1]
        place = mapped_file.wrote_position
        if not place or mapped_file.file_from_offset + place != index * CQ_STORE_UNIT_SIZE:
            return 0
        block = units[:mapped_file.file_size - place]
        try:
            if not block or not mapped_file.append_bytes(block):
                return 0
        except OSError as error:
            log.warning("write of consume queue %s-%s failed: %s", self.topic, self.queue_id, error)
            return 0
        if not self.is_dirty:
            self.default_message_store.flush_consume_queue_service.note_dirty(self)
        offset, size, _ = unpack_unit(block, len(block) - CQ_STORE_UNIT_SIZE)
        self.max_physic_offset = offset + size
        return len(block)

    def _begin_anew_at(self, phy_offset: int) -> None:
        """The record at `phy_offset` of the log is message 0, and others lie before it: they were deleted with their
        topic, or expired, and the queue begins again.

        Differs: the original adds its unit behind those that are there, and none of the messages that follow.
        """
        end = self.get_max_offset_in_queue()
        if not end or phy_offset < self.max_physic_offset or self._goes_on_behind(phy_offset, end):
            return
        log.warning("consume queue %s-%s begins anew with the record at %s; it had %s messages", self.topic,
                    self.queue_id, phy_offset, end)
        self.destroy()

    def _goes_on_behind(self, phy_offset: int, end: int) -> bool:
        """Whether the next record of the queue is message `end` + 1: the index of the one at `phy_offset` is wrong."""
        commit_log = self.default_message_store.commit_log
        behind = commit_log.walk_records(phy_offset, min(phy_offset + _LOOKED_AHEAD, commit_log.get_max_offset()))
        return next((request.consume_queue_offset == end + 1 for request in behind
                     if request.commit_log_offset > phy_offset
                     and (request.topic, request.queue_id) == (self.topic, self.queue_id)), False)

    def first_record_offset(self) -> int | None:
        """Where in the log the record of the first unit lies or lay; None without a unit."""
        mapped_file = self.mapped_file_queue.get_first_mapped_file()
        result = mapped_file.select_mapped_buffer(0) if mapped_file is not None else None
        if result is None:
            return None
        with result:
            return next((offset for offset, size, _ in iter_units(result.buffer)
                         if (offset, size) != BLANK_POSITION), None)

    def put_message_position_info(self, offset: int, size: int, tags_code: int, cq_offset: int) -> bool:
        """Append one unit as index `cq_offset`; True as well for a unit that is there already."""
        if offset + size <= self.max_physic_offset:
            log.warning("Maybe try to build consume queue repeatedly maxPhysicOffset=%s phyOffset=%s",
                        self.max_physic_offset, offset)
            return True
        expect_logic_offset = cq_offset * CQ_STORE_UNIT_SIZE
        mapped_file = self.mapped_file_queue.get_last_mapped_file(expect_logic_offset)
        if mapped_file is None:
            return False
        if cq_offset != 0:
            if mapped_file.wrote_position == 0 and self.mapped_file_queue.mapped_files[0] is mapped_file:
                self._start_behind(mapped_file, expect_logic_offset)
            current_logic_offset = mapped_file.wrote_position + mapped_file.file_from_offset
            if expect_logic_offset < current_logic_offset:
                log.warning("Build  consume queue repeatedly, expectLogicOffset: %s currentLogicOffset: %s Topic: %s "
                            "QID: %s Diff: %s PhyOffset: %s", expect_logic_offset, current_logic_offset, self.topic,
                            self.queue_id, expect_logic_offset - current_logic_offset, offset)
                self._does_not_fit(offset, cq_offset, current_logic_offset)
                return True
            if expect_logic_offset != current_logic_offset:
                if self._is_no_gap(current_logic_offset, expect_logic_offset, offset):
                    return True
                self._close_gap(current_logic_offset, expect_logic_offset, offset)
                mapped_file = self.mapped_file_queue.get_last_mapped_file(expect_logic_offset)
                if mapped_file is None:
                    return False
        if not mapped_file.append_bytes(pack_unit(offset, size, tags_code)):
            return False
        if not self.is_dirty:
            self.default_message_store.flush_consume_queue_service.note_dirty(self)
        self.max_physic_offset = offset + size
        return True

    def _start_behind(self, mapped_file: MappedFile, expect_logic_offset: int) -> None:
        """The first file of the queue begins in the middle: fill it up to there."""
        self.min_logic_offset = expect_logic_offset
        self.mapped_file_queue.flushed_where = expect_logic_offset
        self.mapped_file_queue.committed_where = expect_logic_offset
        blank = expect_logic_offset % self.mapped_file_size // CQ_STORE_UNIT_SIZE
        mapped_file.append_bytes(PRE_BLANK_UNIT * blank)
        log.info("fill pre blank space %s %s %s", mapped_file.file_name, expect_logic_offset,
                 mapped_file.wrote_position)

    def _is_no_gap(self, current_logic_offset: int, expect_logic_offset: int, phy_offset: int) -> bool:
        """True when the log could not hold as many records as an index says are missing: the index is wrong.

        Differs: such a record (a flipped bit) is left out of its queue with an error; the original moves all later
        messages of the queue.
        """
        missing = (expect_logic_offset - current_logic_offset) // CQ_STORE_UNIT_SIZE
        # the records of missing units may have expired
        seen = self.max_physic_offset >= self.default_message_store.get_min_phy_offset()
        start = max(self.max_physic_offset, 0) if seen else 0
        if missing <= (phy_offset - start) // HEAD_LENGTH:
            return False
        log_error.error("the record at %s says that it is message %s of %s-%s, which has %s: it is left out",
                        phy_offset, expect_logic_offset // CQ_STORE_UNIT_SIZE, self.topic, self.queue_id,
                        current_logic_offset // CQ_STORE_UNIT_SIZE)
        self._does_not_fit(phy_offset, expect_logic_offset // CQ_STORE_UNIT_SIZE, current_logic_offset)
        return True

    def _does_not_fit(self, phy_offset: int, index: int, end: int) -> None:
        """On a slave a record whose index is not the queue's next one (`end`, in bytes) says that the two diverged."""
        store = self.default_message_store
        if store.message_store_config.brokerRole is SLAVE:
            store.ha_service.divergence.queue_does_not_fit(
                phy_offset, f"the record at commit log offset {phy_offset} is message {index} of {self.topic}-"
                f"{self.queue_id}, whose next one is {end // CQ_STORE_UNIT_SIZE} here")

    def _close_gap(self, current_logic_offset: int, expect_logic_offset: int, phy_offset: int) -> None:
        """Units are missing in front of an index: build them from the log, and what is not there as blanks.

        Differs: the original logs the gap and appends all the same, which moves every later message to a wrong index.
        """
        log_error.warning("[BUG]logic queue order maybe wrong, expectLogicOffset: %s currentLogicOffset: %s Topic: %s "
                          "QID: %s Diff: %s", expect_logic_offset, current_logic_offset, self.topic, self.queue_id,
                          expect_logic_offset - current_logic_offset)
        missing = dict.fromkeys(range(current_logic_offset // CQ_STORE_UNIT_SIZE,
                                      expect_logic_offset // CQ_STORE_UNIT_SIZE))
        deleted_topics = self.default_message_store.deleted_topics
        for request in self.default_message_store.commit_log.walk_records(max(self.max_physic_offset, 0), phy_offset):
            if request.topic == self.topic and request.queue_id == self.queue_id \
                    and request.consume_queue_offset in missing \
                    and not deleted_topics.is_dead(request.topic, request.commit_log_offset):
                missing[request.consume_queue_offset] = pack_unit(request.commit_log_offset, request.msg_size,
                                                                  request.tags_code)
        if not all(missing.values()):
            self._does_not_fit(phy_offset, expect_logic_offset // CQ_STORE_UNIT_SIZE, current_logic_offset)
        for index, unit in missing.items():
            mapped_file = self.mapped_file_queue.get_last_mapped_file(index * CQ_STORE_UNIT_SIZE)
            if mapped_file is None:
                raise OSError(f"no file for unit {index} of {self.topic}-{self.queue_id}")
            mapped_file.append_bytes(unit or PRE_BLANK_UNIT)

    def get_index_buffer(self, start_index: int) -> SelectMappedBufferResult | None:
        """The units from `start_index` to the end of its file; None when there is none."""
        offset = start_index * CQ_STORE_UNIT_SIZE
        if offset >= self.min_logic_offset:
            mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(offset)
            if mapped_file is not None:
                return mapped_file.select_mapped_buffer(offset % self.mapped_file_size)
        return None

    def next_filled(self, index: int) -> int:
        """Index of the first unit from `index` on that points at a record; the queue's end when there is none."""
        end = self.get_max_offset_in_queue()
        while index < end:
            result = self.get_index_buffer(index)
            if result is None:
                return index  # whoever asks for it is told
            with result:
                count = result.size // CQ_STORE_UNIT_SIZE
                blank = count_blank_units(result.buffer)
            if blank < count:
                return index + blank
            index += count
        return index

    def get_unit(self, index: int) -> tuple[int, int, int] | None:
        """(commit log offset, size, tags code) of message `index`; None when there is none."""
        result = self.get_index_buffer(index)
        if result is None:
            return None
        with result:
            return CQ_UNIT.unpack_from(result.buffer)

    def get_ext(self, offset: int) -> CqExtUnit | None:
        """The extension unit at address `offset`; None when it is gone or extensions are off."""
        return self.consume_queue_ext.get(offset) if self.consume_queue_ext is not None else None

    def roll_next_file(self, index: int) -> int:
        """Index of the first message of the next file."""
        total_units_in_file = self.mapped_file_size // CQ_STORE_UNIT_SIZE
        return index + total_units_in_file - index % total_units_in_file

    def destroy(self) -> None:
        """Delete all files. What is put later makes new ones."""
        # others, so that a thread that flushes or reads the old ones meanwhile does nothing to those to come
        files, self.mapped_file_queue = self.mapped_file_queue, self._new_mapped_file_queue()
        self.max_physic_offset = -1
        self.min_logic_offset = 0
        self._min_is_of = None
        files.destroy()
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.destroy()

    def get_message_total_in_queue(self) -> int:
        """Number of messages between minimum and end."""
        return self.get_max_offset_in_queue() - self.get_min_offset_in_queue()

    def get_max_offset_in_queue(self) -> int:
        """Index of the next message."""
        return self.mapped_file_queue.get_max_offset() // CQ_STORE_UNIT_SIZE

    def check_self(self) -> None:
        """Complain about files that do not fit together."""
        self.mapped_file_queue.check_self()
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.check_self()

    is_ext_addr = staticmethod(is_ext_addr)


def is_safe_topic(topic: str) -> bool:
    """True when `topic` names one folder below its parent and nothing else."""
    return is_folder_name(topic)
