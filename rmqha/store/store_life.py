"""Steps of a store's start and shutdown: the final flush, the sync after a crash and the start of the dispatch.

- `flush_all`: forces everything to disk on shutdown.
- `sync_files`: forces the file names and the last file's length to disk after a crash.
- `start_dispatch`: chooses the offset at which the dispatch begins, and lowers the checkpoint accordingly: units
  and keys of later records are not on disk until the dispatch has written them.
"""
from __future__ import annotations

import logging
import os

from rmqha.common.filesystem import NotAskedError, fsync_path
from rmqha.common.process import how_to_raise
from rmqha.store import store_path_config_helper as paths
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER, FlushConsumeQueueService
from rmqha.store.mapped_file import fsync_folder
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER, MessageStoreConfig
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

_STEP_MS = 1000


def flush_all(state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable,
              flush_consume_queue_service: FlushConsumeQueueService) -> bool:
    """All services have ended: flush what they have left, log before queues before checkpoint; whether all is there.

    Differs: the original asks nobody, and takes a store for stopped well whose flush services have given up.
    """
    if state.running_flags.is_flush_error:
        return False
    try:
        if not _flush_log(commit_log):
            return False
        flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)
        behind = [queue for queue in table.all_queues() if not queue.is_flushed_to(queue.written_to())]
        for queue in behind:
            log.error("consume queue %s-%s is not flushed", queue.topic, queue.queue_id)
        state.checkpoint.flush()
    except NotAskedError as error:
        log.error("the last flush could not ask the disk, and the next start looks at the files as after a crash: %s%s",
                  error, how_to_raise(error))
        return False
    except OSError as error:
        log.exception("the last flush failed")
        state.running_flags.make_flush_error(f"the last flush: {error!r}")
        return False
    return not behind


def _flush_log(commit_log: CommitLog) -> bool:
    end = commit_log.get_max_wrote_position()
    if commit_log.flush_up_to(end):
        return True
    log.error("the log ends at %s, and is flushed up to %s", end, commit_log.mapped_file_queue.flushed_where)
    return False


def sync_files(config: MessageStoreConfig, commit_log: CommitLog, table: ConsumeQueueTable) -> None:
    """What a crashed process has made, and not flushed, is not on the disk yet. OSError.

    All names of files, but those of topics whose queues' names are known to be there; and the length of the log's last
    file, the only one that may not have it: a file is made when the one before it is there.
    """
    root, log_folders = config.storePathRootDir, config.get_store_path_commit_log()
    fsync_folder(table.folder())
    for top in (*log_folders.strip().split(MULTI_PATH_SPLITTER), *table.doubtful_folders(),
                paths.get_store_path_consume_queue_ext(root), paths.get_store_path_index(root)):
        for folder, _folders, _files in os.walk(top):
            fsync_folder(folder)
    fsync_folder(root)
    last = commit_log.mapped_file_queue.get_last_mapped_file()
    if last is not None:
        fsync_path(last.file_name)


def start_dispatch(state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable,
                   reput: ReputMessageService) -> None:
    """Start the ReputMessageService and wait until everything is dispatched, or the store goes down.

    The next queue offsets come from the consume queues, so nothing may be put before.
    """
    reput.reput_from_offset = first_offset(commit_log, table, reput)
    _lower_checkpoint(state, commit_log, reput.reput_from_offset)
    reput.start()
    while not reput.wait_caught_up(_STEP_MS) and not state.tasks_pause.is_over:
        log.info("Try to finish doing reput the messages fall behind during the starting, reputOffset=%s "
                 "maxOffset=%s behind=%s", reput.reput_from_offset, commit_log.get_max_offset(), reput.behind())
        if reput.has_only_part_of_a_record():
            break


def first_offset(commit_log: CommitLog, table: ConsumeQueueTable, reput: ReputMessageService) -> int:
    """Where to begin: everything before the end of the furthest consume queue is dispatched."""
    min_offset, furthest = commit_log.get_min_offset(), table.max_physic_offset()
    offset = max(furthest, min_offset, 0)
    if max(furthest, 0) < min_offset:
        log.warning("[TooSmallCqOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s", furthest, min_offset)
    log.info("[SetReputOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s clMaxOffset=%s clConfirmedOffset=%s",
             offset, min_offset, commit_log.get_max_offset(), commit_log.get_confirm_offset())
    return reput.take_start(offset)


def _lower_checkpoint(state: StoreState, commit_log: CommitLog, offset: int) -> None:
    """What lies behind `offset` has no units and keys yet.

    Differs: so the checkpoint must not say that they are on disk, for the case of a power loss before they are; the
    original leaves it at what it said of files that somebody has deleted since.
    """
    checkpoint = state.checkpoint
    request = next(commit_log.walk_records(offset, commit_log.get_max_offset()), None)
    checkpoint.by_slave |= state.role.is_slave
    checkpoint.dispatched = min(checkpoint.dispatched, offset)
    if request is not None and request.store_timestamp < max(checkpoint.logics_msg_timestamp,
                                                             checkpoint.index_msg_timestamp):
        checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, request.store_timestamp)
        checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, request.store_timestamp)
        checkpoint.flush()
    checkpoint.flush_positions()
