"""The index of one queue of one topic: unit n contains the place of message n in the commit log.

    dispatching thread --put_message_position_info_wrapper--> last file
    pulling threads    --get_index_buffer-->                  slices of the map
    FlushConsumeQueueService --flush--> disk;  cleaning thread --delete_expired_file-->
"""
from __future__ import annotations

import logging
import os
from collections.abc import Callable

from rmqha.common import mix_all
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message_layout import HEAD_LENGTH
from rmqha.common.process import how_to_raise, is_shortage
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from rmqha.store.consume_queue_layout import (
    BLANK_POSITION,
    CQ_STORE_UNIT_SIZE,
    CQ_UNIT,
    PRE_BLANK_UNIT,
    count_blank_units,
    count_valid_units,
    filled_unit_before,
    first_unit_at,
    first_unit_behind,
    is_blank,
    is_ext_addr,
    is_safe_topic,
    iter_units,
    pack_unit,
    unpack_unit,
)
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.mapped_file import MappedFile, is_no_space
from rmqha.store.mapped_file_queue import MapKeeper, MappedFileQueue
from rmqha.store.results import DispatchRequest, SelectMappedBufferResult
from rmqha.store.running_flags import disk_of
from rmqha.store.store_path_config_helper import get_store_path_consume_queue_ext
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")
log_error = logging.getLogger("RocketmqStoreError")

MAX_RETRIES = 30
_RETRY_MS = 1000
_ANY_OFFSET = 2**63 - 1
# The most bytes of disk space that are reserved at a time.
_ALLOCATION_UNIT = 64 * 1024
# Bytes of the log that are searched for the next record of a queue that seems to start again.
_LOOKED_AHEAD = 1 << 20


class MinOf(NamedTuple):
    """A cached result of `correct_min_offset`.

    It is still right while the queue's first file is `file` and the log begins between `low` and `high`. If every unit
    of the file has expired, appending another unit changes the result. In this case `end` is the file's write position,
    and the result is right only while that stays the same. Otherwise `end` is -1.
    """

    file: MappedFile
    low: int
    high: int
    end: int

    def holds(self, file: MappedFile, offset: int) -> bool:
        """Return whether the conditions hold for a log that begins at `offset`."""
        return self.file is file and self.low <= offset <= self.high and self.end in (-1, file.wrote_position)


@dataclass(slots=True)
class ConsumeQueueContext:
    """The objects that all consume queues of a store share.

    `note_dirty` is called for a queue with units that are not flushed. `does_not_fit` is called on a slave, with the
    commit log offset of a record whose queue offset is not the next one of its queue, and with the reason.
    """

    state: StoreState
    commit_log: CommitLog
    map_keeper: MapKeeper
    deleted_topics: DeletedTopics
    note_dirty: Callable[[ConsumeQueue], None]
    does_not_fit: Callable[[int, str], None]


class ConsumeQueue:
    """Queue `queue_id` of `topic`. Offsets named "logic" are bytes in the queue, 20 per message.

    Java: org.apache.rocketmq.store.ConsumeQueue (4.9.8)
    """

    def __init__(self, topic: str, queue_id: int, store_path: str, mapped_file_size: int,
                 context: ConsumeQueueContext) -> None:
        if not is_safe_topic(topic):
            raise ValueError(f"topic {topic!r} is not a valid name for a folder")
        config = context.state.config
        self.topic = topic
        self.queue_id = queue_id
        self.store_path = store_path
        self.mapped_file_size = mapped_file_size
        self._context = context
        self._commit_log = context.commit_log
        self._flags = context.state.running_flags
        self.mapped_file_queue = self._new_mapped_file_queue()
        # The log offset at which the record of the queue's last unit ends. Written by the dispatching thread.
        self.max_physic_offset = -1
        # Written by recovery, the dispatching and the cleaning thread.
        self.min_logic_offset = 0
        # The conditions under which min_logic_offset is right.
        self.min_is_of: MinOf | None = None
        # True while FlushConsumeQueueService knows that units are not flushed.
        self.is_dirty = False
        self.consume_queue_ext: ConsumeQueueExt | None = None
        if config.enableConsumeQueueExt:
            self.consume_queue_ext = ConsumeQueueExt(
                topic, queue_id, get_store_path_consume_queue_ext(config.storePathRootDir),
                config.mappedFileSizeConsumeQueueExt, self.mapped_file_queue.allocation_unit)

    def _new_mapped_file_queue(self) -> MappedFileQueue:
        preallocated = self._context.state.config.preallocateMappedFile
        files = MappedFileQueue(os.path.join(self.store_path, self.topic, str(self.queue_id)), self.mapped_file_size,
                                allocation_unit=_ALLOCATION_UNIT if preallocated else 0,
                                map_keeper=self._context.map_keeper)
        files.can_be_built_again = True
        return files

    def load(self) -> bool:
        """Load the files; return False if one does not fit.

        Differs: the log lines of `load` and `recover` about healthy queues have level DEBUG instead of INFO. With
        thousands of queues, these lines took two fifths of the time of loading and recovering.
        """
        result = self.mapped_file_queue.load()
        log.log(logging.DEBUG if result else logging.INFO, "load consume queue %s-%s %s", self.topic, self.queue_id,
                "OK" if result else "Failed")
        if self.consume_queue_ext is not None:
            result &= self.consume_queue_ext.load()
        return result

    def set_max_physic_offset(self, offset: int, size: int, _tags_code: int) -> None:
        """Set the end of the last unit's record, from that record's offset and size. For recovery."""
        # Differs: a queue that has only the blanks at its beginning refers to no record yet, so blanks do not move the
        # end of its last record. The original adds the blank's size, 2 GiB - 1, like a record's, and drops the queue's
        # messages until the log is that long.
        if (offset, size) != BLANK_POSITION:
            self.max_physic_offset = offset + size

    def last_ext_addr(self, units: memoryview, default: int) -> int:
        """Return the extension address of the last of `units` that has one, or `default`. For recovery."""
        if self.consume_queue_ext is not None:
            for _offset, _size, tags_code in iter_units(units):
                if is_ext_addr(tags_code):
                    default = tags_code
        return default

    def get_offset_in_queue_by_time(self, timestamp: int) -> int:
        """Return the index of the message stored nearest to `timestamp` (ms), or 0 if no message is found.

        One file is searched, by bisection.
        """
        mapped_file = _file_by_time(self.mapped_file_queue, self._commit_log, timestamp)
        result = mapped_file.select_mapped_buffer(0) if mapped_file is not None else None
        if mapped_file is None or result is None:
            return 0
        with result:
            low = max(self.min_logic_offset - mapped_file.file_from_offset, 0)
            position = _unit_by_time(result.buffer, low, self._commit_log, self._commit_log.get_min_offset(), timestamp)
        return 0 if position is None else (mapped_file.file_from_offset + position) // CQ_STORE_UNIT_SIZE

    def truncate_dirty_logic_files(self, phy_offset: int) -> None:
        """Drop the units of records at or after `phy_offset`, the new end of the commit log."""
        self.max_physic_offset = phy_offset
        self.min_is_of = None
        max_ext_addr = 1
        while (mapped_file := self.mapped_file_queue.get_last_mapped_file()) is not None:
            buffer = mapped_file.slice_byte_buffer()
            if unpack_unit(buffer)[0] >= phy_offset:
                self.mapped_file_queue.delete_last_mapped_file()
                continue
            count = first_unit_at(buffer, count_valid_units(buffer), phy_offset)
            # Differs: a consume queue that is truncated also loses the blank units at its new end. Each is
            # in the place of a message that the log did not have (see _close_gap). If the record arrives later, its
            # unit fits there.
            count = filled_unit_before(buffer, count - 1) + 1 or count
            keep = count * CQ_STORE_UNIT_SIZE
            if count:
                self.set_max_physic_offset(*unpack_unit(buffer, keep - CQ_STORE_UNIT_SIZE))
                max_ext_addr = self.last_ext_addr(buffer[:keep], max_ext_addr)
            mapped_file.zero_from(keep)
            mapped_file.go_back_to(keep)
            break
        # Differs: a truncation of a consume queue also lowers its flushed position. The original leaves it beyond the
        # end, and flushes nothing until the queue has grown past it again.
        end = self.mapped_file_queue.get_max_offset()
        self.mapped_file_queue.flushed_where = min(self.mapped_file_queue.flushed_where, end)
        self.mapped_file_queue.committed_where = min(self.mapped_file_queue.committed_where, end)
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.truncate_by_max_address(max_ext_addr)

    def get_last_offset(self) -> int:
        """Return the commit log offset at which the last unit's record ends, or -1 without a unit."""
        mapped_file = self.mapped_file_queue.get_last_mapped_file()
        if mapped_file is None:
            return -1
        position = max(mapped_file.wrote_position - CQ_STORE_UNIT_SIZE, 0)
        offset, size, _ = unpack_unit(mapped_file.slice_byte_buffer(), position)
        return offset + size if offset >= 0 and size > 0 else -1

    def flush(self, flush_least_pages: int) -> bool:
        """Flush if at least `flush_least_pages` pages are dirty; return True if there was nothing to do.

        Raise OSError if the disk fails.
        """
        result = self.mapped_file_queue.flush(flush_least_pages)
        if self.consume_queue_ext is not None:
            result &= self.consume_queue_ext.flush(flush_least_pages)
        return result

    def written_to(self) -> tuple[int, int]:
        """Return the ends of the units and of the extension."""
        ext = self.consume_queue_ext
        return self.mapped_file_queue.get_max_offset(), ext.mapped_file_queue.get_max_offset() if ext is not None else 0

    def is_flushed_to(self, end: tuple[int, int]) -> bool:
        """Return whether units and extension are on the disk up to `end`, a result of `written_to`."""
        ext = self.consume_queue_ext
        return self.mapped_file_queue.flushed_where >= end[0] and \
            (ext is None or ext.mapped_file_queue.flushed_where >= end[1])

    def delete_expired_file(self, offset: int) -> int:
        """Delete the files whose units all refer to records below commit log offset `offset`; return their number."""
        count = self.mapped_file_queue.delete_expired_file_by_offset(offset, CQ_STORE_UNIT_SIZE)
        self.correct_min_offset(offset)
        return count

    def correct_min_offset(self, phy_min_offset: int) -> None:
        """Set the queue's minimum to the first unit whose record is at or after `phy_min_offset`."""
        mapped_file = self.mapped_file_queue.get_first_mapped_file()
        if mapped_file is None or self.min_is_of is not None and self.min_is_of.holds(mapped_file, phy_min_offset):
            # The cached minimum is still right, so the file of an idle queue need not be mapped.
            return
        result = mapped_file.select_mapped_buffer(0)
        if result is None:
            return
        with result:
            # Differs: a bisection finds the first unit of a consume queue that the log still has; the original reads up
            # to 300,000 units of every queue.
            total = result.size // CQ_STORE_UNIT_SIZE
            first = first_unit_at(result.buffer, total, phy_min_offset)
            if first == total:
                self.min_is_of = MinOf(mapped_file, phy_min_offset, _ANY_OFFSET, total * CQ_STORE_UNIT_SIZE)
                return
            first_offset, _size, tags_code = unpack_unit(result.buffer, first * CQ_STORE_UNIT_SIZE)
        self.min_logic_offset = mapped_file.file_from_offset + first * CQ_STORE_UNIT_SIZE
        self.min_is_of = MinOf(mapped_file, phy_min_offset, max(first_offset, phy_min_offset), -1)
        if first or mapped_file.file_from_offset:
            log.info("Compute logical min offset: %s, topic: %s, queueId: %s", self.get_min_offset_in_queue(),
                     self.topic, self.queue_id)
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.truncate_by_min_address(tags_code if is_ext_addr(tags_code) else 1)

    def get_min_offset_in_queue(self) -> int:
        """Return the index of the oldest message."""
        return self.min_logic_offset // CQ_STORE_UNIT_SIZE

    def put_message_position_info_wrapper(self, request: DispatchRequest) -> bool:
        """Append the unit of one record.

        After 30 failed attempts, one per second, mark the consume queues as broken and return False. A full disk and a
        lack of descriptors do not count. Return False at a shutdown, too.
        """
        # A light queue has two counters: one for messages that are sent to it, one for those that multi dispatch adds.
        # So a message with queue offset 0 does not mean that the queue begins again.
        if request.consume_queue_offset == 0 and not mix_all.is_lmq(self.topic):
            self._begin_anew_at(request.commit_log_offset)
        tags_code = self._ext_or_tags_code(request)
        if not self._put_with_retries(request.commit_log_offset, request.msg_size, tags_code,
                                      request.consume_queue_offset):
            log.error("[BUG]consume queue can not write, %s %s", self.topic, self.queue_id)
            self._flags.make_logics_queue_error()
            return False
        self._context.state.checkpoint.dispatched_timestamp = request.store_timestamp
        return True

    def _ext_or_tags_code(self, request: DispatchRequest) -> int:
        if self.consume_queue_ext is None or not self._context.state.config.enableConsumeQueueExt:
            return request.tags_code
        unit = CqExtUnit(request.tags_code, request.store_timestamp, request.bit_map)
        ext_addr = self.consume_queue_ext.put(unit)
        if is_ext_addr(ext_addr):
            return ext_addr
        log.warning("Save consume queue extend fail, So just save tagsCode! %s, topic:%s, queueId:%s, offset:%s",
                    unit, self.topic, self.queue_id, request.commit_log_offset)
        return request.tags_code

    def _put_with_retries(self, offset: int, size: int, tags_code: int, cq_offset: int) -> bool:
        times = 0
        while self._flags.is_cq_writeable and times < MAX_RETRIES:
            try:
                self.mapped_file_queue.create_failure = None
                if self.put_message_position_info(offset, size, tags_code, cq_offset):
                    return True
                # Differs: a consume queue also waits until descriptors are available again, without refusing puts. The
                # original keeps its files open, so it never lacks them.
                times += not is_shortage(self.mapped_file_queue.create_failure)
            except OSError as error:
                if not is_no_space(error):
                    times += not is_shortage(error)
                    log.error("write of consume queue %s-%s failed: %s%s", self.topic, self.queue_id, error,
                              how_to_raise(error))
                else:
                    # Differs: a consume queue waits out a full disk, which is not an error of the queue. Puts are
                    # refused meanwhile.
                    self._flags.get_and_make_disk_full(disk_of(self.store_path))
            log.warning("[BUG]put commit log position info to %s:%s %s failed, retry %s times",
                        self.topic, self.queue_id, offset, times)
            if self._context.state.dispatch_pause.pause(_RETRY_MS):
                return False  # The store is shutting down; the unit is built after the next start.
        return False

    def put_lmq_position_info(self, request: DispatchRequest, cq_offset: int) -> None:
        """Append a unit for a record of another topic (multi dispatch)."""
        if cq_offset == 0:
            self._begin_anew_at(request.commit_log_offset)
        if not self._put_with_retries(request.commit_log_offset, request.msg_size, request.tags_code, cq_offset):
            log.error("[BUG]consume queue can not write, %s %s", self.topic, self.queue_id)

    def put_units(self, queue_offset: int, units: memoryview) -> bool:
        """Append consecutive units, in blocks. The first unit gets index `queue_offset`.

        For queues without extension. Units that the queue already has are skipped. If the queue can't be written, mark
        the consume queues as broken and return False.
        """
        known = first_unit_behind(units, self.max_physic_offset)
        if known:
            log.debug("the queue already has %s of the units, maxPhysicOffset=%s", known, self.max_physic_offset)
        at = known * CQ_STORE_UNIT_SIZE
        if queue_offset == 0 and not known and not mix_all.is_lmq(self.topic):
            self._begin_anew_at(unpack_unit(units)[0])
        while at < len(units):
            index = queue_offset + at // CQ_STORE_UNIT_SIZE
            size = self._put_block(index, units[at:])
            if not size:
                # The first unit of a file, a unit after a gap, one with a wrong index, or a failed write.
                if not self._put_with_retries(*unpack_unit(units, at), index):
                    log.error("[BUG]consume queue can not write, %s %s", self.topic, self.queue_id)
                    self._flags.make_logics_queue_error()
                    return False
                size = CQ_STORE_UNIT_SIZE
            at += size
        return True

    def _put_block(self, index: int, units: memoryview) -> int:
        """Append the units that fit into the last file, if they continue it; return the number of appended bytes."""
        files = self.mapped_file_queue.mapped_files
        if not files or not self._flags.is_cq_writeable:
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
            self._context.note_dirty(self)
        offset, size, _ = unpack_unit(block, len(block) - CQ_STORE_UNIT_SIZE)
        self.max_physic_offset = offset + size
        return len(block)

    def _begin_anew_at(self, phy_offset: int) -> None:
        """Empty the queue if it begins again with the record at log offset `phy_offset`, whose queue offset is 0.

        Differs: message 0 empties a queue whose earlier messages were deleted with their topic, or have expired. The
        original appends message 0's unit after the existing units, and then drops the messages that follow it.
        """
        end = self.get_max_offset_in_queue()
        if not end or phy_offset < self.max_physic_offset or self._goes_on_behind(phy_offset, end):
            return
        log.warning("consume queue %s-%s starts again with the record at %s; dropping its %s earlier messages",
                    self.topic, self.queue_id, phy_offset, end)
        self.destroy()

    def _goes_on_behind(self, phy_offset: int, end: int) -> bool:
        """Return whether the queue's next record after `phy_offset` is message `end` + 1.

        If it is, the queue continues: the record at `phy_offset` is really message `end`, and its queue offset of 0 is
        wrong.
        """
        commit_log = self._commit_log
        behind = commit_log.walk_records(phy_offset, min(phy_offset + _LOOKED_AHEAD, commit_log.get_max_offset()))
        return next((request.consume_queue_offset == end + 1 for request in behind
                     if request.commit_log_offset > phy_offset
                     and (request.topic, request.queue_id) == (self.topic, self.queue_id)), False)

    def first_record_offset(self) -> int | None:
        """Return the log offset in the first filled unit of the first file, even if that unit's record has expired.

        Return None if the file has only blanks.
        """
        mapped_file = self.mapped_file_queue.get_first_mapped_file()
        result = mapped_file.select_mapped_buffer(0) if mapped_file is not None else None
        if result is None:
            return None
        with result:
            return next((offset for offset, size, _ in iter_units(result.buffer)
                         if (offset, size) != BLANK_POSITION), None)

    def put_message_position_info(self, offset: int, size: int, tags_code: int, cq_offset: int) -> bool:
        """Append one unit as index `cq_offset`. Also return True if the queue already has the unit."""
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
            self._context.note_dirty(self)
        self.max_physic_offset = offset + size
        return True

    def _start_behind(self, mapped_file: MappedFile, expect_logic_offset: int) -> None:
        """Fill the beginning of the queue's first file with blanks, because the queue's first unit does not belong
        there."""
        self.min_logic_offset = expect_logic_offset
        self.mapped_file_queue.flushed_where = expect_logic_offset
        self.mapped_file_queue.committed_where = expect_logic_offset
        blank = expect_logic_offset % self.mapped_file_size // CQ_STORE_UNIT_SIZE
        mapped_file.append_bytes(PRE_BLANK_UNIT * blank)
        log.info("fill pre blank space %s %s %s", mapped_file.file_name, expect_logic_offset,
                 mapped_file.wrote_position)

    def _is_no_gap(self, current_logic_offset: int, expect_logic_offset: int, phy_offset: int) -> bool:
        """Return True if a record's queue offset is wrong: then the queue lacks no records before it.

        It is wrong if the log between the queue's last record and this one is too short for the missing records.

        Differs: a record whose queue offset can't be right (a flipped bit) is left out of its queue, with an
        error. In the original it shifts all later messages of the queue.
        """
        missing = (expect_logic_offset - current_logic_offset) // CQ_STORE_UNIT_SIZE
        # If the queue's last record is no longer in the log, max_physic_offset is not relied on. Everything from log
        # offset 0 then counts as room for the missing records, so fewer queue offsets are judged wrong.
        seen = self.max_physic_offset >= self._commit_log.get_min_offset()
        start = max(self.max_physic_offset, 0) if seen else 0
        if missing <= (phy_offset - start) // HEAD_LENGTH:
            return False
        log_error.error("the record at %s has index %s of %s-%s, but that queue ends at %s; leaving it out",
                        phy_offset, expect_logic_offset // CQ_STORE_UNIT_SIZE, self.topic, self.queue_id,
                        current_logic_offset // CQ_STORE_UNIT_SIZE)
        self._does_not_fit(phy_offset, expect_logic_offset // CQ_STORE_UNIT_SIZE, current_logic_offset)
        return True

    def _does_not_fit(self, phy_offset: int, index: int, end: int) -> None:
        """Report, on a slave, a record whose queue offset is not the queue's next one (`end`, in bytes).

        It means that slave and master have diverged.
        """
        if self._context.state.role.is_slave:
            self._context.does_not_fit(
                phy_offset, f"the record at commit log offset {phy_offset} is message {index} of {self.topic}-"
                f"{self.queue_id}, whose next one is {end // CQ_STORE_UNIT_SIZE} here")

    def _close_gap(self, current_logic_offset: int, expect_logic_offset: int, phy_offset: int) -> None:
        """Build, from the log, the units that are missing before a queue offset; use blanks where the log has no
        record.

        Differs: a gap before a record's queue offset is closed with units from the log, or with blanks; the original
        logs the gap and appends anyway, which moves every later message to a wrong queue offset.
        """
        log_error.warning("[BUG]logic queue order maybe wrong, expectLogicOffset: %s currentLogicOffset: %s Topic: %s "
                          "QID: %s Diff: %s", expect_logic_offset, current_logic_offset, self.topic, self.queue_id,
                          expect_logic_offset - current_logic_offset)
        missing = dict.fromkeys(range(current_logic_offset // CQ_STORE_UNIT_SIZE,
                                      expect_logic_offset // CQ_STORE_UNIT_SIZE))
        deleted_topics = self._context.deleted_topics
        for request in self._commit_log.walk_records(max(self.max_physic_offset, 0), phy_offset):
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
        """Return the units from `start_index` to the end of their file, or None if the queue does not have the first
        one."""
        offset = start_index * CQ_STORE_UNIT_SIZE
        if offset >= self.min_logic_offset:
            mapped_file = self.mapped_file_queue.find_mapped_file_by_offset(offset)
            if mapped_file is not None:
                return mapped_file.select_mapped_buffer(offset % self.mapped_file_size)
        return None

    def next_filled(self, index: int) -> int:
        """Return the index of the first unit from `index` on that refers to a record, or else the queue's end."""
        end = self.get_max_offset_in_queue()
        while index < end:
            result = self.get_index_buffer(index)
            if result is None:
                # A pull from this index gets a status that says why it has no unit.
                return index
            with result:
                count = result.size // CQ_STORE_UNIT_SIZE
                blank = count_blank_units(result.buffer)
            if blank < count:
                return index + blank
            index += count
        return index

    def get_unit(self, index: int) -> tuple[int, int, int] | None:
        """Return (commit log offset, size, tags code) of message `index`, or None if the queue does not have it."""
        result = self.get_index_buffer(index)
        if result is None:
            return None
        with result:
            return CQ_UNIT.unpack_from(result.buffer)

    def get_ext(self, offset: int) -> CqExtUnit | None:
        """Return the extension unit at address `offset`, or None if it is deleted or extensions are disabled."""
        return self.consume_queue_ext.get(offset) if self.consume_queue_ext is not None else None

    def roll_next_file(self, index: int) -> int:
        """Return the index of the first message of the next file."""
        total_units_in_file = self.mapped_file_size // CQ_STORE_UNIT_SIZE
        return index + total_units_in_file - index % total_units_in_file

    def destroy(self) -> None:
        """Delete all files. Later units go to new files."""
        # A new MappedFileQueue, so that a thread that still flushes or reads the old files does not affect the new
        # ones.
        files, self.mapped_file_queue = self.mapped_file_queue, self._new_mapped_file_queue()
        self.max_physic_offset = -1
        self.min_logic_offset = 0
        self.min_is_of = None
        files.destroy()
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.destroy()

    def get_message_total_in_queue(self) -> int:
        """Return the number of messages between minimum and end."""
        return self.get_max_offset_in_queue() - self.get_min_offset_in_queue()

    def get_max_offset_in_queue(self) -> int:
        """Return the index of the next message."""
        return self.mapped_file_queue.get_max_offset() // CQ_STORE_UNIT_SIZE

    def check_self(self) -> None:
        """Log an error for files that do not fit together."""
        self.mapped_file_queue.check_self()
        if self.consume_queue_ext is not None:
            self.consume_queue_ext.check_self()

    is_ext_addr = staticmethod(is_ext_addr)


def _file_by_time(files: MappedFileQueue, commit_log: CommitLog, timestamp: int) -> MappedFile | None:
    """Return the file to search: the first whose last message was stored at or after `timestamp` (ms), or the last.

    If `timestamp` lies between two files, the result may be either of them.

    Differs: a search by time compares the store times of messages; the original uses the files' modification times. A
    mapped file's modification time is the time of the first write after its last flush; a copied file's is the time of
    the copy. Here these times only give the file at which the search begins.
    """
    begin = files.get_mapped_file_by_time(timestamp)
    if begin is None:
        return None
    candidates = files.mapped_files
    at = candidates.index(begin) if begin in candidates else 0
    while at > 0 and _last_time(candidates[at - 1], commit_log) >= timestamp:
        at -= 1
    while at + 1 < len(candidates) and 0 <= _last_time(candidates[at], commit_log) < timestamp \
            and 0 <= _first_time(candidates[at + 1], commit_log) <= timestamp:
        at += 1
    return candidates[at]


def _unit_by_time(buffer: memoryview, low: int, commit_log: CommitLog, min_physic_offset: int,
                 timestamp: int) -> int | None:
    """Return the position, from `low` on, of the unit whose message was stored nearest to `timestamp`.

    The search is a bisection. It skips units of messages before `min_physic_offset`. Return None if the search reaches
    a unit whose record is at or after `min_physic_offset` but can't be read.
    """
    high = len(buffer) - CQ_STORE_UNIT_SIZE
    left_offset = right_offset = -1
    left_time = right_time = -1
    while high >= low:
        middle = (low + high) // (2 * CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        phy_offset, size, _ = unpack_unit(buffer, middle)
        if is_blank(phy_offset, size):
            # Differs: a search by time treats a blank unit as if it had the time of the unit before it. The original
            # returns 0 while the log begins at offset 0, and otherwise treats the blank unit as an expired message.
            filled = filled_unit_before(buffer, middle // CQ_STORE_UNIT_SIZE, low // CQ_STORE_UNIT_SIZE)
            if filled < 0:
                low = middle + CQ_STORE_UNIT_SIZE
                continue
            middle = filled * CQ_STORE_UNIT_SIZE
            phy_offset, size, _ = unpack_unit(buffer, middle)
        if phy_offset < min_physic_offset:
            low, left_offset = middle + CQ_STORE_UNIT_SIZE, middle
            continue
        store_time = commit_log.pickup_store_timestamp(phy_offset, size)
        if store_time < 0:
            return None
        if store_time == timestamp:
            return middle
        if store_time > timestamp:
            high, right_offset, right_time = middle - CQ_STORE_UNIT_SIZE, middle, store_time
        else:
            low, left_offset, left_time = middle + CQ_STORE_UNIT_SIZE, middle, store_time
    if left_time == -1:
        # Differs: a search by time never returns a negative offset; the original does if all units have expired.
        return right_offset if right_offset >= 0 else max(left_offset, 0)
    if right_time == -1:
        return left_offset
    return right_offset if abs(timestamp - left_time) > abs(timestamp - right_time) else left_offset


def _last_time(mapped_file: MappedFile, commit_log: CommitLog) -> int:
    return _time_of(mapped_file, commit_log, -1)


def _first_time(mapped_file: MappedFile, commit_log: CommitLog) -> int:
    return _time_of(mapped_file, commit_log, 0)


def _time_of(mapped_file: MappedFile, commit_log: CommitLog, unit: int) -> int:
    """Return the store time of the message of the first unit (0) or of the last filled one (-1); -1 if unknown."""
    result = mapped_file.select_mapped_buffer(0)
    if result is None:
        return -1
    with result:
        last = len(result.buffer) // CQ_STORE_UNIT_SIZE - 1
        number = unit if unit == 0 else filled_unit_before(result.buffer, last)
        if not 0 <= number <= last:
            return -1
        phy_offset, size, _ = unpack_unit(result.buffer, number * CQ_STORE_UNIT_SIZE)
    return -1 if is_blank(phy_offset, size) else commit_log.pickup_store_timestamp(phy_offset, size)
