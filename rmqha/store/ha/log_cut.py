"""Cutting off what a slave has and its master has not, and keeping it in a file."""
from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from rmqha.common.filesystem import fsync_path
from rmqha.common.util_all import current_time_millis, offset_to_file_name, time_millis_to_human_string
from rmqha.store.config.store_path_config_helper import get_diverged_folder
from rmqha.store.ha.autoswitch.log_truncation import truncate_dirty_files

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")


def cut_off(store: DefaultMessageStore, offset: int) -> str:
    """Cut log, queues and index off at `offset`; the file that has what was behind it. Nobody appends meanwhile.

    OSError when the file can't be written: nothing is cut off then.
    """
    path = _keep(store, offset)
    log.warning("the log is cut off at %d, and ended at %d; what is cut off is in %s", offset,
                store.get_max_phy_offset(), path)
    ha_service = store.ha_service
    ha_service.destroy_connections()  # slaves of this one hold what goes
    truncate_dirty_files(store, offset)
    for queue in store.all_consume_queues():
        last = queue.mapped_file_queue.get_last_mapped_file()
        if last is not None:
            last.force()
    ha_service.divergence.cut_off(offset)
    return path


def _keep(store: DefaultMessageStore, offset: int) -> str:
    """Write the log from `offset` on to a file that is named after it; on the disk at the end."""
    folder = get_diverged_folder(store.message_store_config.storePathRootDir)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{offset_to_file_name(offset)}.{time_millis_to_human_string(current_time_millis())}")
    with open(path, "xb") as file:
        while (result := store.get_commit_log_data(offset)) is not None:
            with result:
                file.write(result.buffer)
                offset += result.size
        file.flush()
        os.fsync(file.fileno())
    fsync_path(folder)
    return path
