"""Forcing all of a store to the disk when it is closed, and the names of its files after a crash."""
from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from rmqha.common.filesystem import NotAskedError, fsync_path
from rmqha.common.process import how_to_raise
from rmqha.store.config import store_path_config_helper as paths
from rmqha.store.config.message_store_config import MULTI_PATH_SPLITTER
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER
from rmqha.store.mapped_file import fsync_folder

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")


def flush_all(store: DefaultMessageStore) -> bool:
    """All services have ended: flush what they have left, log before queues before checkpoint; whether all is there.

    Differs: the original asks nobody, and takes a store for stopped well whose flush services have given up.
    """
    if store.running_flags.is_flush_error:
        return False
    try:
        if not _flush_log(store):
            return False
        store.flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)
        behind = [queue for queue in store.all_consume_queues() if not queue.is_flushed_to(queue.written_to())]
        for queue in behind:
            log.error("consume queue %s-%s is not flushed", queue.topic, queue.queue_id)
        store.store_checkpoint.flush()
    except NotAskedError as error:
        log.error("the last flush could not ask the disk, and the next start looks at the files as after a crash: %s%s",
                  error, how_to_raise(error))
        return False
    except OSError as error:
        log.exception("the last flush failed")
        store.running_flags.make_flush_error(f"the last flush: {error!r}")
        return False
    return not behind


def _flush_log(store: DefaultMessageStore) -> bool:
    queue = store.commit_log.mapped_file_queue
    end = queue.get_max_wrote_position()
    if store.commit_log.flush_up_to(end):
        return True
    log.error("the log ends at %s, and is flushed up to %s", end, queue.flushed_where)
    return False


def _doubtful_topics(store: DefaultMessageStore, root: str) -> list[str]:
    """The folders below that of the queues of which not all names are known to be on the disk."""
    known = {topic for topic, queues in store.consume_queue_table.items()
             if queues and all(queue.has_its_names for queue in queues.values())}
    with os.scandir(root) as entries:
        return [entry.path for entry in entries if entry.name not in known]


def sync_files(store: DefaultMessageStore) -> None:
    """What a crashed process has made, and not flushed, is not on the disk yet. OSError.

    All names of files, but those of topics whose queues' names are known to be there; and the length of the log's last
    file, the only one that may not have it: a file is made when the one before it is there.
    """
    root, queues = store.message_store_config.storePathRootDir, store.get_store_path_logic()
    fsync_folder(queues)
    for top in (*store.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER), *_doubtful_topics(store, queues),
                paths.get_store_path_consume_queue_ext(root), paths.get_store_path_index(root)):
        for folder, _folders, _files in os.walk(top):
            fsync_folder(folder)
    fsync_folder(root)
    last = store.commit_log.mapped_file_queue.get_last_mapped_file()
    if last is not None:
        fsync_path(last.file_name)
