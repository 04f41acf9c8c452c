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
    """Flush the rest after all services have ended: the log, then the queues, then the checkpoint.

    Return whether everything is on disk.

    Differs: a shutdown is clean only if everything is on disk. The original does not check, and considers a store
    cleanly stopped even if its flush services gave up.
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
        log.error("the final flush could not reach the disk; the next start will recover the files as after a crash: "
                  "%s%s", error, how_to_raise(error))
        return False
    except OSError as error:
        log.exception("the final flush failed")
        state.running_flags.make_flush_error(f"the final flush: {error!r}")
        return False
    return not behind


def _flush_log(commit_log: CommitLog) -> bool:
    end = commit_log.get_max_wrote_position()
    if commit_log.flush_up_to(end):
        return True
    log.error("the log ends at %s but is flushed only up to %s", end, commit_log.mapped_file_queue.flushed_where)
    return False


def sync_files(config: MessageStoreConfig, commit_log: CommitLog, table: ConsumeQueueTable) -> None:
    """Force to disk what a crashed process created but did not flush: file names, and the last file's length.

    All file names are forced, except for topics whose queue names are known to be on disk. The log's last file is the
    only one whose length may be missing, because a file is created only once the previous one is on disk. OSError.
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
    """Start the ReputMessageService, and wait until everything is dispatched or the store is shutting down.

    The next queue offsets are read from the consume queues, so no message may be put before the dispatch is complete.
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
    """Return the offset to begin at: everything before the end of the furthest consume queue is dispatched."""
    min_offset, furthest = commit_log.get_min_offset(), table.max_physic_offset()
    offset = max(furthest, min_offset, 0)
    if max(furthest, 0) < min_offset:
        log.warning("[TooSmallCqOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s", furthest, min_offset)
    log.info("[SetReputOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s clMaxOffset=%s clConfirmedOffset=%s",
             offset, min_offset, commit_log.get_max_offset(), commit_log.get_confirm_offset())
    return reput.take_start(offset)


def _lower_checkpoint(state: StoreState, commit_log: CommitLog, offset: int) -> None:
    """Lower the checkpoint to `offset`: later records have no consume queue units and index keys yet.

    Differs: the checkpoint does not claim that units and keys are on disk that are still to be dispatched, in case
    power is lost before they are written. The original keeps the earlier value, even if the files that it describes
    have been deleted since.
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
