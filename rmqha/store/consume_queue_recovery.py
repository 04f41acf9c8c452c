"""Finding the ends of consume queues when a store is opened: as the last stop noted them, or by looking.

Runs on the opening thread before any service does.
"""
from __future__ import annotations

import logging

from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue import ConsumeQueue, MinOf
from rmqha.store.consume_queue_layout import (
    BLANK_POSITION,
    CQ_STORE_UNIT_SIZE,
    count_sure_units,
    count_valid_units,
    first_unit_at,
    unpack_unit,
)
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.record_check import SECTOR_SIZE
from rmqha.store.store_marks import QueueEnd, RecoveryBase, WrongQueueEndsError, check_mtime, mtime_of

log = logging.getLogger("RocketmqStore")

_FILES_LOOKED_AT = 3  # the last ones at least
_UNITS_LOOKED_AT = 4096  # the last ones that are sure to be on the disk
_NO_LIMIT = 1 << 63  # behind any offset of the log
_OFFSET_SIZE = 8  # bytes of a unit
_LOOKED_AT = 64 * 1024  # bytes behind the end of the units


def noted_end(queue: ConsumeQueue, log_min_offset: int) -> QueueEnd | None:
    """What a stop notes, for `take_noted_end`; None of a queue that has no folder. OSError.

    WrongQueueEndsError when that would not say it all.
    """
    files, size = queue.mapped_file_queue.mapped_files, queue.mapped_file_size
    first = files[0].file_from_offset if files else 0
    if queue.consume_queue_ext is not None or \
            any(file.file_from_offset != first + index * size for index, file in enumerate(files)):
        raise WrongQueueEndsError(f"{queue.topic}-{queue.queue_id} has a gap, or an extension")
    try:
        folder_mtime = mtime_of(queue.mapped_file_queue.store_path)
    except FileNotFoundError:
        if files:
            raise
        return None
    queue.correct_min_offset(log_min_offset)
    mine = queue.min_is_of if files and queue.min_is_of is not None and queue.min_is_of.file is files[0] else None
    return QueueEnd(queue.queue_id, folder_mtime, first, [mtime_of(file.file_name) for file in files],
                    queue.mapped_file_queue.get_max_offset(), queue.max_physic_offset, queue.min_logic_offset,
                    [mine.low, mine.high, mine.end] if mine is not None else None)


class ConsumeQueueRecovery:
    """One queue while the store is opened: what is known of its end.

    Java: org.apache.rocketmq.store.ConsumeQueue#recover (4.9.8)
    """

    __slots__ = ("queue", "is_behind", "dispatched_before", "has_its_names", "_config", "_commit_log", "_clean_at",
                 "_emptied_at")

    def __init__(self, queue: ConsumeQueue, config: MessageStoreConfig, commit_log: CommitLog) -> None:
        self.queue = queue
        self._config = config
        self._commit_log = commit_log
        self.is_behind = False  # units are missing, dispatch has to begin again at max_physic_offset
        self.dispatched_before = -1  # end of the last record that had a unit, on the disk or not
        self.has_its_names = False  # those of its files are on the disk, whatever happened
        self._clean_at = -1  # nothing but zeros lies behind these units
        self._emptied_at = 0  # where the queue began that has no unit which is sure to be on the disk

    def take_noted_end(self, noted: QueueEnd) -> None:
        """Instead of `load` and `recover`: be as the last stop noted. WrongQueueEndsError: something has changed."""
        queue = self.queue.mapped_file_queue
        check_mtime(queue.store_path, noted.folder_mtime)
        queue.take_files(noted.first, noted.file_mtimes, noted.end)
        self.queue.max_physic_offset, self.queue.min_logic_offset = noted.max_physic_offset, noted.min_logic_offset
        self._clean_at = noted.end
        if noted.min_is_of is not None:
            self.queue.min_is_of = MinOf(queue.mapped_files[0], *noted.min_is_of)

    def recover(self, base: RecoveryBase) -> None:
        """Find the end of the units, looking at the last files, and cut off what lies behind it."""
        files = self._drop_behind_a_gap()
        if not files:
            return
        self.is_behind |= self.queue.mapped_file_queue.last_file_was_mended
        process_offset = 0
        begin = self._first_unsure(files, base)
        # Differs: when none of them has a unit, those before are looked at, too; the original takes them for full.
        last_good = (files[begin - 1], self.queue.mapped_file_size) if begin else (files[0], 0)
        for mapped_file in files[begin:]:
            buffer = mapped_file.slice_byte_buffer()
            valid = self._count_units(buffer, base) * CQ_STORE_UNIT_SIZE
            process_offset = mapped_file.file_from_offset + valid
            if valid:
                last_good = mapped_file, valid
            if valid != self.queue.mapped_file_size:
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
        log.debug("recover current consume queue over %s-%s %s", self.queue.topic, self.queue.queue_id, process_offset)
        self._begin_at(process_offset, files[begin:] if not base.is_noted else [], base)
        self.queue.correct_min_offset(self._commit_log.get_min_offset())  # now that the file is mapped
        if self.queue.consume_queue_ext is not None:
            self.queue.consume_queue_ext.recover(base)
            self.queue.consume_queue_ext.truncate_by_max_address(max_ext_addr)

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
        self.queue.set_max_physic_offset(*unpack_unit(units, valid - CQ_STORE_UNIT_SIZE))
        return self.queue.last_ext_addr(units, 1)

    def _begin_at(self, process_offset: int, files: list[MappedFile], base: RecoveryBase) -> None:
        """The units end at `process_offset`, and are on the disk: `files` are those of which that is not sure."""
        for mapped_file in files:
            mapped_file.force()
        queue = self.queue.mapped_file_queue
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
        queue, begin = self.queue.mapped_file_queue, self._emptied_at
        self._emptied_at = 0
        has_expired = self._commit_log.get_min_offset() > 0  # messages of it, perhaps
        if begin > 0 and has_expired and not queue.mapped_files and queue.try_create_mapped_file(begin) is not None:
            queue.flushed_where = queue.committed_where = begin  # no index is given to a second message
        if self._clean_at < 0 or queue.get_max_offset() != self._clean_at:
            queue.truncate_dirty_files(queue.get_max_offset())

    def _without_unsure_units(self, mapped_file: MappedFile, valid: int, dispatched: int) -> tuple[MappedFile, int]:
        """The last unit before commit log offset `dispatched`: file and end. Recovery dispatches from there on.

        Differs: the original keeps what it finds, and takes for flushed what nobody has flushed.
        """
        limit = max(dispatched, self._commit_log.get_min_offset())
        files = self.queue.mapped_file_queue.mapped_files
        index = files.index(mapped_file)
        while True:
            buffer = files[index].slice_byte_buffer()
            count = first_unit_at(buffer, valid // CQ_STORE_UNIT_SIZE, limit)
            if count and not self._is_mine(files[index], count - 1):
                count -= 1
            if count or index == 0:
                return files[index], count * CQ_STORE_UNIT_SIZE
            index, valid = index - 1, self.queue.mapped_file_size

    def _is_mine(self, mapped_file: MappedFile, number: int) -> bool:
        """False for a unit of whose offset only the part in the later of two sectors came to the disk, if any.

        That is the first one that was not flushed: those behind it in that sector are whole, or none are there.
        """
        place = number * CQ_STORE_UNIT_SIZE
        if -place % SECTOR_SIZE not in range(1, _OFFSET_SIZE + 1):
            return True
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), place)
        commit_log = self._commit_log
        if (offset, size) == BLANK_POSITION or offset < commit_log.get_min_offset():
            return True
        result = commit_log.get_message(offset, size) if commit_log.may_hold_record(offset, size) else None
        if result is None:
            return False
        with result:
            request = commit_log.check_message_and_return_size(result.buffer)
        index = mapped_file.file_from_offset // CQ_STORE_UNIT_SIZE + number
        mine = self.queue.topic, self.queue.queue_id, index
        # a light queue has messages of other topics, with indexes of its own
        return request.success and (self._config.enableMultiDispatch or mine == (
            request.topic, request.queue_id, request.consume_queue_offset))

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
        queue = self.queue.mapped_file_queue
        files, count = queue.mapped_files, queue.files_before_gap()
        if count < len(files):
            queue.truncate_dirty_files(files[count - 1].file_from_offset + self.queue.mapped_file_size)
            self.is_behind = True
        return files[:count]

    def _look_behind_the_end(self, mapped_file: MappedFile, end: int) -> None:
        """Anything but zeros behind the last valid unit means that units were lost."""
        files = self.queue.mapped_file_queue.mapped_files
        behind = mapped_file.first_byte_behind(end)
        if behind < 0 and mapped_file is files[-1]:
            self._clean_at = mapped_file.file_from_offset + end
        if mapped_file is not files[-1] or 0 <= behind < end + _LOOKED_AT:
            log.error("consume queue %s-%s: %s is damaged at position %s; all behind it is built again",
                      self.queue.topic, self.queue.queue_id, mapped_file.file_name, end)
            self.is_behind = True

    def _end_of_right_units(self, mapped_file: MappedFile, valid: int) -> tuple[MappedFile, int]:
        """The last unit, from `valid` bytes of a file backwards, that points at a record of its size: file and end.

        Differs: the original believes the last unit, and with it begins its dispatch too late.
        """
        files = self.queue.mapped_file_queue.mapped_files
        index, end = files.index(mapped_file), valid
        while end > 0 and not self._is_right(files[index], end - CQ_STORE_UNIT_SIZE):
            end -= CQ_STORE_UNIT_SIZE
            if end == 0 and index > 0:
                index, end = index - 1, self.queue.mapped_file_size
        log.error("consume queue %s-%s: what %s says behind position %s is not in the log; it is built again",
                  self.queue.topic, self.queue.queue_id, files[index].file_name, end)
        self.is_behind = True
        return files[index], end

    def _is_right(self, mapped_file: MappedFile, position: int) -> bool:
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), position)
        return (offset, size) == BLANK_POSITION or self._commit_log.may_hold_record(offset, size)
