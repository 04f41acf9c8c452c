"""The reading of messages: through consume queues, by commit log offset and by key.

`MessageFilter` selects the messages that a consumer wants. Nothing here has a thread or state of its own.
"""
from __future__ import annotations

import logging
import struct
import time

from rmqha.common import mix_all
from rmqha.common.java import int32
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt
from rmqha.common.message.message_layout import HEAD_LENGTH, INT, MIN_RECORD_LENGTH, MessageDecodeError
from rmqha.common.subscriptions import SUB_ALL, SubscriptionData
from rmqha.common.util_all import current_time_millis
from rmqha.store.broker_stats_manager import BrokerStatsManager
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_ext import CqExtUnit
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, is_blank, is_ext_addr, is_safe_topic, iter_units
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.index.index_service import IndexService
from rmqha.store.results import (
    TOTAL_PHYSICAL_MEMORY_SIZE,
    GetMessageResult,
    GetMessageStatus,
    QueryMessageResult,
    SelectMappedBufferResult,
)
from rmqha.store.store_state import StoreState


class MessageFilter:
    """A filter of messages, which is called first with the consume queue's unit, then with the record itself.

    Java: org.apache.rocketmq.store.MessageFilter (4.9.8)
    """

    @property
    def takes_all(self) -> bool:
        """True if every message is wanted, so that the filter need not be called."""
        return False

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit: CqExtUnit | None = None) -> bool:
        """Return False if the unit alone shows that the message is not wanted. `tags_code` may be None, for unknown."""
        raise NotImplementedError

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """Return False if the record is not wanted. One of the two arguments is given."""
        raise NotImplementedError


class DefaultMessageFilter(MessageFilter):
    """The filter by tag hashes of a subscription. The client compares the tags themselves.

    Java: org.apache.rocketmq.store.DefaultMessageFilter (4.9.8)
    """

    def __init__(self, subscription_data: SubscriptionData | None) -> None:
        self.subscription_data = subscription_data

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit: CqExtUnit | None = None) -> bool:
        """Return True without a code, without a subscription, for all tags, or for a subscribed code."""
        subscription = self.subscription_data
        if tags_code is None or subscription is None or subscription.classFilterMode:
            return True
        return subscription.subString == SUB_ALL or int32(tags_code) in subscription.codeSet

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """Return True, because the tags were already checked."""
        return True


log = logging.getLogger("RocketmqStore")

MIN_FILTER_BYTES = 16000
# The most messages that a client of 4.9 can request.
MAX_FILTER_UNITS = 1024
# The time that a pull may spend on messages that its filter refuses.
_FILTER_NS = 20_000_000
# Refused messages between two reads of the clock.
_LOOK_AT_CLOCK = 32
_QUERY_ROUNDS = 3
_LONG_MIN = -(1 << 63)
_STORE_TIME_END = HEAD_LENGTH


class MessageReader:
    """The reading half of DefaultMessageStore.

    Java: org.apache.rocketmq.store.DefaultMessageStore#getMessage (4.9.8)
    """

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable,
                 index_service: IndexService, deleted_topics: DeletedTopics,
                 broker_stats_manager: BrokerStatsManager | None) -> None:
        self._state = state
        self.config = state.config
        self._commit_log = commit_log
        self._table = table
        self._index_service = index_service
        self._deleted_topics = deleted_topics
        self._broker_stats = broker_stats_manager

    def get_message(self, group: str, topic: str, queue_id: int, offset: int, max_msg_nums: int,
                    message_filter: MessageFilter | None) -> GetMessageResult | None:
        """See DefaultMessageStore.get_message."""
        state = self._state
        if state.is_shutdown:
            log.warning("message store has shutdown, so getMessage is forbidden")
            return None
        if not state.running_flags.is_readable:
            log.warning("message store is not readable, so getMessage is forbidden %s", state.running_flags.flag_bits)
            return None
        if mix_all.is_lmq(topic) and self._table.is_lmq_num_exceeded():
            log.warning("message store is not available, lmq consumeQueue num exceed maxLmqConsumeQueueNum config num")
            return None
        begin = current_time_millis()
        result = GetMessageResult()
        queue = self._table.get_queue(topic, queue_id)
        if queue is None:
            result.status = (GetMessageStatus.NO_MESSAGE_IN_QUEUE if is_safe_topic(topic)
                             else GetMessageStatus.NO_MATCHED_LOGIC_QUEUE)
            result.next_begin_offset = self._next_offset_correction(offset, 0)
        else:
            result.min_offset, result.max_offset = queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()
            self._look_into(queue, group, offset, max_msg_nums, message_filter, result)
        state.stats.count_get(result.status is GetMessageStatus.FOUND, result.message_count,
                              current_time_millis() - begin)
        return result

    def _look_into(self, queue: ConsumeQueue, group: str, offset: int, max_msg_nums: int,
                   message_filter: MessageFilter | None, result: GetMessageResult) -> None:
        min_offset, max_offset = result.min_offset, result.max_offset
        if max_offset == 0:
            status, next_offset = GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
        elif offset < min_offset:
            status, next_offset = GetMessageStatus.OFFSET_TOO_SMALL, min_offset
        elif offset == max_offset:
            status, next_offset = GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
        elif offset > max_offset:
            status, next_offset = GetMessageStatus.OFFSET_OVERFLOW_BADLY, max_offset
        else:
            units = queue.get_index_buffer(offset)
            if units is not None:
                with units:
                    self._collect(queue, group, offset, units, max_msg_nums, message_filter, result)
                return
            status, next_offset = GetMessageStatus.OFFSET_FOUND_NULL, queue.roll_next_file(offset)
            log.warning("consumer request topic: %s offset: %s minOffset: %s maxOffset: %s, but access logic queue "
                        "failed.", queue.topic, offset, min_offset, max_offset)
        result.status = status
        result.next_begin_offset = self._next_offset_correction(offset, next_offset)

    def _collect(self, queue: ConsumeQueue, group: str, offset: int, units: SelectMappedBufferResult, max_msg_nums: int,
                 message_filter: MessageFilter | None, result: GetMessageResult) -> None:
        """Read the units, and add their records to the result until it is full."""
        commit_log, found = self._commit_log, result.message_buffer_list
        max_offset_py = commit_log.get_max_offset()
        memory = self._memory()
        limits = [self._limits_of_batch(max_msg_nums, is_in_disk) for is_in_disk in (False, True)]
        is_wanted = None if message_filter is None or message_filter.takes_all else message_filter
        result.status = GetMessageStatus.NO_MATCHED_MESSAGE
        next_phy_file_start_offset = _LONG_MIN
        max_phy_offset_pulling = 0
        # Differs: a pull reads at most 1024 units, and stops when its filter has refused messages for 20 ms; the next
        # pull continues there. The original reads as many units as the client requests.
        wanted = min(max(max_msg_nums, 0), MAX_FILTER_UNITS) * CQ_STORE_UNIT_SIZE
        limit = min(units.size, max(MIN_FILTER_BYTES, wanted)) // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE
        scanned = refused = begin_ns = 0
        for offset_py, size_py, tags_code in iter_units(units.buffer[:limit]):
            max_phy_offset_pulling = offset_py
            if offset_py < next_phy_file_start_offset:
                scanned += 1
                continue
            most_bytes, most = limits[max_offset_py - offset_py > memory]
            if found and (len(found) >= most or result.buffer_total_size + size_py > most_bytes):
                break
            scanned += 1
            if is_wanted is not None and not self._matches_unit(queue, is_wanted, tags_code, offset_py):
                continue
            record = self._record(offset_py, size_py, result)
            if record is None:
                if not found:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                if is_blank(offset_py, size_py):
                    # Differs: after a blank unit, the next pull begins at the next unit that refers to a record. The
                    # original takes the blank for a deleted record of the log's first file, and skips all records of
                    # this file.
                    scanned = (offset + scanned - 1 if found else queue.next_filled(offset + scanned)) - offset
                    break
                next_phy_file_start_offset = commit_log.roll_next_file(offset_py)
                continue
            if is_wanted is not None and not is_wanted.is_matched_by_commit_log(record, None):
                if not found:
                    result.status = GetMessageStatus.NO_MATCHED_MESSAGE
                record.release()
                refused += 1
                if refused % _LOOK_AT_CLOCK == 1:
                    begin_ns = begin_ns or time.monotonic_ns()
                    if time.monotonic_ns() - begin_ns > _FILTER_NS:
                        break
                continue
            result.add_record(record)
            result.status = GetMessageStatus.FOUND
            next_phy_file_start_offset = _LONG_MIN
        stats = self._broker_stats
        if self.config.diskFallRecorded and stats is not None:
            stats.record_disk_fall_behind_size(group, queue.topic, queue.queue_id,
                                               max_offset_py - max_phy_offset_pulling)
        result.next_begin_offset = offset + scanned
        result.suggest_pulling_from_slave = max_offset_py - max_phy_offset_pulling > memory

    @staticmethod
    def _matches_unit(queue: ConsumeQueue, message_filter: MessageFilter, tags_code: int, offset_py: int) -> bool:
        if queue.consume_queue_ext is None or not is_ext_addr(tags_code):
            return message_filter.is_matched_by_consume_queue(tags_code, None)
        ext = queue.get_ext(tags_code)
        if ext is None:
            log.error("[BUG] can't find consume queue extend file content!addr=%s, offsetPy=%s, topic=%s",
                      tags_code, offset_py, queue.topic)
            return message_filter.is_matched_by_consume_queue(None, None)
        return message_filter.is_matched_by_consume_queue(ext.tags_code, ext)

    def _next_offset_correction(self, old_offset: int, new_offset: int) -> int:
        if not self._state.role.is_slave or self.config.offsetCheckInSlave:
            return new_offset
        return old_offset

    def _memory(self) -> int:
        """Return the number of bytes at the end of the log that are assumed to be in memory."""
        return int(TOTAL_PHYSICAL_MEMORY_SIZE * (self.config.accessMessageInMemoryMaxRatio / 100))

    def check_in_disk_by_commit_offset(self, offset_py: int, max_offset_py: int) -> bool:
        """Return whether the record is so far from the log's end that it is probably not in memory."""
        return max_offset_py - offset_py > self._memory()

    def _limits_of_batch(self, max_msg_nums: int, is_in_disk: bool) -> tuple[int, int]:
        """Return the maximum bytes and messages of one result. Its first message may exceed the bytes.

        Java: org.apache.rocketmq.store.DefaultMessageStore#isTheBatchFull (4.9.8)
        """
        config = self.config
        if is_in_disk:
            return config.maxTransferBytesOnMessageInDisk, min(max_msg_nums, config.maxTransferCountOnMessageInDisk)
        return config.maxTransferBytesOnMessageInMemory, min(max_msg_nums, config.maxTransferCountOnMessageInMemory)

    def _record(self, offset: int, size: int, result: GetMessageResult) -> memoryview | None:
        """Return the `size` bytes at a commit log offset, without a copy. The result holds a reference to their file.
        """
        if size <= 0:
            return None
        # Differs: the answer to a pull has one reference to a file for all its records. In Java each record has its
        # own.
        part = result.last_part
        begin = offset - part.start_offset
        if not 0 <= begin <= part.size - size:
            rest = self._commit_log.get_data(offset, False)
            if rest is None:
                return None
            result.add_part(rest)
            if size > rest.size:
                return None
            part, begin = rest, 0
        return part.buffer[begin:begin + size]

    # By commit log offset.

    def _size_at(self, commit_log_offset: int) -> int:
        """Return the TOTALSIZE at an offset, or 0 if the log has no bytes there."""
        if commit_log_offset < 0:
            return 0
        result = self._commit_log.get_message(commit_log_offset, INT.size)
        if result is None:
            return 0
        with result:
            size: int = INT.unpack_from(result.buffer)[0]
            return size

    def look_message_by_offset(self, commit_log_offset: int, size: int | None) -> MessageExt | None:
        """See DefaultMessageStore."""
        result = self.select_one_message_by_offset(commit_log_offset, size)
        if result is None:
            return None
        with result:
            try:
                return message_decoder.decode(result.buffer, True, False)
            except MessageDecodeError as error:
                log.warning("no message at commit log offset %s: %s", commit_log_offset, error)
                return None

    def select_one_message_by_offset(self, commit_log_offset: int, size: int | None) -> SelectMappedBufferResult | None:
        """See DefaultMessageStore."""
        if size is None:
            size = self._size_at(commit_log_offset)
        if size < MIN_RECORD_LENGTH or commit_log_offset < 0:
            return None
        return self._commit_log.get_message(commit_log_offset, size)

    def store_time_at(self, commit_log_offset: int) -> int:
        """Return the store time (ms) of the record at an offset, or -1 without a record there.

        Differs: the store time of a record is read from its head alone. The original reads twice the size of the
        largest message, and returns -1 if the file has fewer bytes there.
        """
        if commit_log_offset < 0:
            return -1
        return self._commit_log.pickup_store_timestamp(commit_log_offset, _STORE_TIME_END)

    def store_time_of(self, queue: ConsumeQueue, index: int) -> int:
        """Return the store time (ms) of message `index`, or -1 if the queue does not have it."""
        unit = queue.get_unit(index)
        return self._commit_log.pickup_store_timestamp(unit[0], unit[1]) if unit is not None else -1

    def get_message_ids(self, topic: str, queue_id: int, min_offset: int, max_offset: int,
                        store_host: tuple[str, int]) -> dict[str, int]:
        """See DefaultMessageStore."""
        queue = None if self._state.is_shutdown else self._table.get_queue(topic, queue_id)
        ids: dict[str, int] = {}
        if queue is None:
            return ids
        next_offset = max(min_offset, queue.get_min_offset_in_queue())
        max_offset = min(max_offset, queue.get_max_offset_in_queue())
        while next_offset < max_offset:
            result = queue.get_index_buffer(next_offset)
            if result is None:
                break
            with result:
                for offset_py, size_py, _tags_code in iter_units(result.buffer):
                    if not is_blank(offset_py, size_py):
                        ids[message_decoder.create_message_id(store_host, offset_py)] = next_offset
                    next_offset += 1
                    if next_offset > max_offset:
                        return ids
        return ids

    # By key.

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """See DefaultMessageStore."""
        answer = QueryMessageResult()
        last_query_msg_time = end
        for _ in range(_QUERY_ROUNDS):
            found = self._index_service.query_offset(topic, key, max_num, begin, last_query_msg_time)
            if not found.phy_offsets:
                break
            offsets = sorted(found.phy_offsets)
            answer.index_last_update_phyoffset = found.index_last_update_phyoffset
            answer.index_last_update_timestamp = found.index_last_update_timestamp
            first_time = self.store_time_at(offsets[0])
            if first_time >= 0:
                last_query_msg_time = first_time
            for offset in offsets:
                # Differs: messages of a deleted topic are not found by a query for a new topic with the same name.
                selected = None if self._deleted_topics.is_dead(topic, offset) else self._record_at(offset)
                if selected is not None:
                    answer.add_message(selected)
            if answer.buffer_total_size > 0 or last_query_msg_time < begin:
                break
        return answer

    def _record_at(self, offset: int) -> SelectMappedBufferResult | None:
        try:
            return self.select_one_message_by_offset(offset, None)
        except struct.error:
            log.exception("queryMessage exception")
            return None
