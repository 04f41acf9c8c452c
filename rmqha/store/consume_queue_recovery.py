"""The search for the ends of the consume queues when a store is opened. It runs before any service starts.

Queue ends
----------
A consume queue file has its full length from the beginning, filled with zeros, so its length does not show where the
units end. Without help a start has to map the last files of each queue and search them for the last valid unit. With
tens of thousands of queues this takes most of the start, and fills memory with pages that are not needed.

A clean shutdown has flushed everything and knows each end. So it saves the ends in `consumequeue.ends` (`noted_end`;
`store_marks` describes the file), and the next start takes them over without opening a single queue file
(`take_noted_end`).

The saved ends must never be trusted after any change of the files: an end that is too small gives an index to a second
message, one that is too large lets consumers read zeros. So they count only if all of this holds:

- the last stop was clean, and the checkpoint was not written since;
- the listed folders and files are all there is, with the right lengths, and each has its saved modification time;
- the file's own checksum is right. It is not forced to the disk; after a power loss the checksum is wrong.

The start deletes the file before the first unit is written. If one check fails, all saved ends are discarded, and
`ConsumeQueueRecovery.recover` searches the files. A queue with a gap between its files, or with an extension, can't be
described this way; then the stop saves no ends at all.
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

# Recovery reads at least this many of the last files.
_FILES_LOOKED_AT = 3
# Of the units that are certainly on the disk, only this many, the last ones, are checked one by one.
_UNITS_LOOKED_AT = 4096
# Beyond any offset of the log.
_NO_LIMIT = 1 << 63
# Bytes of a unit that hold the commit log offset.
_OFFSET_SIZE = 8
# Bytes after the end of the units that have to be zero.
_LOOKED_AT = 64 * 1024


def noted_end(queue: ConsumeQueue, log_min_offset: int) -> QueueEnd | None:
    """Return the end of a queue as a clean stop saves it for `take_noted_end`, or None for a queue without a folder.

    Raise OSError if the files can't be examined, and WrongQueueEndsError for a queue that can't be described this way.
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
    """The recovery of one queue while the store is opened.

    Java: org.apache.rocketmq.store.ConsumeQueue#recover (4.9.8)
    """

    __slots__ = ("queue", "is_behind", "dispatched_before", "has_its_names", "_config", "_commit_log", "_clean_at",
                 "_emptied_at")

    def __init__(self, queue: ConsumeQueue, config: MessageStoreConfig, commit_log: CommitLog) -> None:
        self.queue = queue
        self._config = config
        self._commit_log = commit_log
        # True if units are missing, so that dispatching has to start again at max_physic_offset.
        self.is_behind = False
        # The end of the last record that had a unit, on the disk or not.
        self.dispatched_before = -1
        # True if the names of its files are certainly on the disk.
        self.has_its_names = False
        # The end of the units, if only zeros follow it.
        self._clean_at = -1
        # The offset at which the queue begins if none of its units is certainly on the disk, otherwise 0.
        self._emptied_at = 0

    def take_noted_end(self, noted: QueueEnd) -> None:
        """Take over the end that the last stop saved, instead of `load` and `recover`.

        Raise WrongQueueEndsError if a file or folder was changed since.
        """
        queue = self.queue.mapped_file_queue
        check_mtime(queue.store_path, noted.folder_mtime)
        queue.take_files(noted.first, noted.file_mtimes, noted.end)
        self.queue.max_physic_offset, self.queue.min_logic_offset = noted.max_physic_offset, noted.min_logic_offset
        self._clean_at = noted.end
        if noted.min_is_of is not None:
            self.queue.min_is_of = MinOf(queue.mapped_files[0], *noted.min_is_of)

    def recover(self, base: RecoveryBase) -> None:
        """Find the end of the units in the last files, and truncate the queue there."""
        files = self._drop_behind_a_gap()
        if not files:
            return
        self.is_behind |= self.queue.mapped_file_queue.last_file_was_mended
        process_offset = 0
        begin = self._first_unsure(files, base)
        # Differs: if none of the last files of a consume queue has a unit, recovery checks earlier files too. The
        # original assumes that they are full. Here the file before them is taken as full at first,
        # and its last unit is checked.
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
        # Done here because the file is mapped now.
        self.queue.correct_min_offset(self._commit_log.get_min_offset())
        if self.queue.consume_queue_ext is not None:
            self.queue.consume_queue_ext.recover(base)
            self.queue.consume_queue_ext.truncate_by_max_address(max_ext_addr)

    @staticmethod
    def _was_flushed(buffer: memoryview, base: RecoveryBase) -> bool:
        """Return whether a file's first unit was flushed, and with it the file's name.

        Units of records before `base.dispatched` are flushed. The caller makes sure that the file is the last one and
        not full. Otherwise a later file, whose deletion did not reach the disk, could reappear after it unnoticed.
        """
        offset, size, _ = unpack_unit(buffer)
        return base.is_noted and size > 0 and (offset, size) != BLANK_POSITION and 0 <= offset < base.dispatched

    @staticmethod
    def _count_units(buffer: memoryview, base: RecoveryBase) -> int:
        """Return the number of valid units of a file up to the first invalid one."""
        if not base.is_noted:
            return count_valid_units(buffer)
        # Differs: of the units that are certainly on the disk (after a clean shutdown, all of them), recovery checks
        # only the last ones one by one. The original reads all units of three files.
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
        """Set the queue's maximum log offset from its last unit, and return the last address of the extension."""
        if not valid:
            return 1
        units = mapped_file.slice_byte_buffer()[:valid]
        self.queue.set_max_physic_offset(*unpack_unit(units, valid - CQ_STORE_UNIT_SIZE))
        return self.queue.last_ext_addr(units, 1)

    def _begin_at(self, process_offset: int, files: list[MappedFile], base: RecoveryBase) -> None:
        """Set the end of the units to `process_offset`, after forcing `files` to the disk.

        `files` are those that may not be on the disk yet.
        """
        for mapped_file in files:
            mapped_file.force()
        queue = self.queue.mapped_file_queue
        queue.flushed_where = queue.committed_where = process_offset
        if base.was_stopped:
            queue.go_back_to(process_offset) if process_offset == self._clean_at \
                else queue.truncate_dirty_files(process_offset)
        elif self._emptied_at > 0:
            # The first file's name may not be on the disk: drop all files. The next unit shows where the queue begins.
            queue.truncate_dirty_files(0)
            queue.flushed_where = queue.committed_where = 0
        else:
            # The units are about to be dispatched again.
            queue.go_back_to(process_offset)

    def end_recovery(self) -> None:
        """Remove everything after the units, once all records are dispatched again."""
        queue, begin = self.queue.mapped_file_queue, self._emptied_at
        self._emptied_at = 0
        # If the log no longer begins at 0, messages of the queue may have expired.
        has_expired = self._commit_log.get_min_offset() > 0
        if begin > 0 and has_expired and not queue.mapped_files and queue.try_create_mapped_file(begin) is not None:
            # The queue continues at its old index, so that no index is given to a second message.
            queue.flushed_where = queue.committed_where = begin
        if self._clean_at < 0 or queue.get_max_offset() != self._clean_at:
            queue.truncate_dirty_files(queue.get_max_offset())

    def _without_unsure_units(self, mapped_file: MappedFile, valid: int, dispatched: int) -> tuple[MappedFile, int]:
        """Return file and end of the last unit before commit log offset `dispatched`, from where recovery dispatches.

        Differs: recovery drops the units that may not have been flushed. The original keeps all units that it finds,
        and treats units that were never flushed as flushed.
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
        """Return False for a unit that spans two sectors, if its offset or a part of it did not reach the disk.

        The sector with the unit's first bytes is missing, and the next one, with the rest, is there. This is possible
        only for the first unit that was not flushed: the units after it in the second sector are all complete, or all
        missing.
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
        # A light queue has messages of other topics, with indexes of its own.
        return request.success and (self._config.enableMultiDispatch or mine == (
            request.topic, request.queue_id, request.consume_queue_offset))

    def _first_unsure(self, files: list[MappedFile], base: RecoveryBase) -> int:
        """Return the index of the file to begin with. The units of all earlier files are on the disk.

        Differs: recovery checks all files of a consume queue that may lack units; the original checks three. After a
        power loss units of earlier files may be missing, if more than three files were filled since the last flush, or
        if the disk wrote the later ones first.
        """
        begin = max(len(files) - _FILES_LOOKED_AT, 0)
        while begin > 0 and not base.was_stopped and not self._begins_before(files[begin], base.dispatched):
            begin -= 1
        return begin

    @staticmethod
    def _begins_before(mapped_file: MappedFile, offset: int) -> bool:
        """Return whether the record of a file's first unit is before `offset` of the commit log."""
        phy_offset, size, _tags_code = unpack_unit(mapped_file.slice_byte_buffer(), 0)
        return size > 0 and phy_offset < offset

    def _drop_behind_a_gap(self) -> list[MappedFile]:
        """Drop the files after a gap, and return the others.

        Differs: the files of a consume queue after a missing one are dropped and built again from the log. The original
        keeps reading after the gap.
        """
        queue = self.queue.mapped_file_queue
        files, count = queue.mapped_files, queue.files_before_gap()
        if count < len(files):
            queue.truncate_dirty_files(files[count - 1].file_from_offset + self.queue.mapped_file_size)
            self.is_behind = True
        return files[:count]

    def _look_behind_the_end(self, mapped_file: MappedFile, end: int) -> None:
        """Check that only zeros follow the last valid unit: other bytes or a further file mean that units were lost."""
        files = self.queue.mapped_file_queue.mapped_files
        behind = mapped_file.first_byte_behind(end)
        if behind < 0 and mapped_file is files[-1]:
            self._clean_at = mapped_file.file_from_offset + end
        if mapped_file is not files[-1] or 0 <= behind < end + _LOOKED_AT:
            log.error("consume queue %s-%s: %s is damaged at position %s; rebuilding everything after it",
                      self.queue.topic, self.queue.queue_id, mapped_file.file_name, end)
            self.is_behind = True

    def _end_of_right_units(self, mapped_file: MappedFile, valid: int) -> tuple[MappedFile, int]:
        """Search backwards from `valid` bytes of a file for a unit that refers to a record of its size.

        Return the file and the unit's end.

        Differs: recovery skips units at a queue's end that do not refer to a record. The original trusts the last unit,
        and because of a wrong one starts dispatching too late.
        """
        files = self.queue.mapped_file_queue.mapped_files
        index, end = files.index(mapped_file), valid
        while end > 0 and not self._is_right(files[index], end - CQ_STORE_UNIT_SIZE):
            end -= CQ_STORE_UNIT_SIZE
            if end == 0 and index > 0:
                index, end = index - 1, self.queue.mapped_file_size
        log.error("consume queue %s-%s: the records of the units in %s after position %s are not in the log; "
                  "rebuilding them", self.queue.topic, self.queue.queue_id, files[index].file_name, end)
        self.is_behind = True
        return files[index], end

    def _is_right(self, mapped_file: MappedFile, position: int) -> bool:
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), position)
        return (offset, size) == BLANK_POSITION or self._commit_log.may_hold_record(offset, size)
