"""Cutting a store that is in use back to an offset. Works on the store that it is given."""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")


def truncate_files(store: DefaultMessageStore, offset_to_truncate: int) -> bool:
    """Drop everything at and behind `offset_to_truncate`; False when no record begins there.

    Java: org.apache.rocketmq.store.DefaultMessageStore#truncateFiles (5.1.4)
    """
    max_offset = store.get_max_phy_offset()
    if offset_to_truncate >= max_offset:
        log.info("no need to truncate files, truncate offset is %s, max physical offset is %s", offset_to_truncate,
                 max_offset)
        return True
    if not is_offset_aligned(store, offset_to_truncate):
        log.error("offset %s is not align, truncate failed, need manual fix", offset_to_truncate)
        return False
    truncate_dirty_files(store, offset_to_truncate)
    return True


def is_offset_aligned(store: DefaultMessageStore, offset: int) -> bool:
    """Whether a record, or the blank at the end of a file, begins at `offset`; True when the log does not hold it.

    Java: org.apache.rocketmq.store.DefaultMessageStore#isOffsetAligned (5.1.4)
    """
    result = store.get_commit_log_data(offset)
    if result is None:
        return True
    with result:
        request = store.commit_log.check_message_and_return_size(result.buffer, 0, True, True)
        return request.success and (request.msg_size == 0 or request.commit_log_offset == offset)


def truncate_dirty_files(store: DefaultMessageStore, offset: int) -> None:
    """Drop everything at and behind `offset`. Nobody appends meanwhile: the caller sees to it.

    Differs: flushing pauses too, and what is cut off is zeroed; the original only moves its positions back.

    Java: org.apache.rocketmq.store.DefaultMessageStore#truncateDirtyFiles (5.1.4)
    """
    log.info("truncate dirty files to %s", offset)
    commit_log, reput = store.commit_log, store.reput_message_service
    services = reput, commit_log.flush_commit_log_service, store.flush_consume_queue_service
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
        store.deleted_topics.clamp(offset)
        assert store.store_checkpoint is not None  # it is loaded
        store.store_checkpoint.lower(offset)
        if old_reput_from_offset > offset:
            store.truncate_dirty_logic_files(offset)
            store.index_service.truncate(offset)
        store.recover_topic_queue_table()
        reput.reput_from_offset = min(old_reput_from_offset, offset)
        log.info("oldReputFromOffset is %s, reset reput from offset to %s", old_reput_from_offset,
                 reput.reput_from_offset)
    finally:
        for service in running:
            service.start()


def end_of_whole_records(store: DefaultMessageStore) -> int:
    """Where the last whole record ends, looking from what is dispatched on; the log's end when nothing is cut off.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#truncateInvalidMsg (5.1.4)
    """
    commit_log, max_offset = store.commit_log, store.get_max_phy_offset()
    offset = max(store.reput_message_service.reput_from_offset, commit_log.get_min_offset(), 0)
    while offset < max_offset:
        result = commit_log.get_data(offset)
        if result is None:
            break
        with result:
            position, end_of_file = _walk(commit_log, result.buffer, result.size)
        if end_of_file and commit_log.roll_next_file(offset) > max_offset:
            return offset + position  # of the blank only a part is there
        if not end_of_file and position < result.size:
            return offset + position
        offset = commit_log.roll_next_file(offset) if end_of_file else offset + position
    return min(offset, max_offset)


def _walk(commit_log: CommitLog, buffer: memoryview, size: int) -> tuple[int, bool]:
    """Position behind the last whole record, and whether the file's blank is there."""
    position = 0
    while position < size:
        request = commit_log.check_message_and_return_size(buffer, position, False, False)
        if not request.success:
            return position, False
        if request.msg_size == 0:
            return position, True
        position += request.msg_size
    return position, False
