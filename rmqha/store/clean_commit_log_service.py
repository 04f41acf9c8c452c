"""Deleting old files of the commit log, and watching the disks."""
from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from rmqha.common.util_all import LONG_AGO, get_disk_partition_space_used_percent, is_it_time_to_do
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER
from rmqha.store.running_flags import disk_of

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

MAX_MANUAL_DELETE_FILE_TIMES = 20
# Java system properties; here environment variables with dots as underscores.
WARNING_LEVEL_VARIABLE = "rocketmq_broker_diskSpaceWarningLevelRatio"
CLEAN_FORCIBLY_VARIABLE = "rocketmq_broker_diskSpaceCleanForciblyRatio"


class CleanCommitLogService:
    """Runs on the store's scheduled thread; `is_space_full` on the disk check's.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CleanCommitLogService (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store
        self.disk_space_warning_level_ratio = float(os.environ.get(WARNING_LEVEL_VARIABLE, "0.90"))
        self.disk_space_clean_forcibly_ratio = float(os.environ.get(CLEAN_FORCIBLY_VARIABLE, "0.85"))
        self._last_redelete_ms: float = LONG_AGO  # monotonic
        self.manual_delete_file_several_times = 0  # set by an admin thread, counted down by the scheduled one
        self._clean_immediately = False

    def execute_delete_files_manually(self) -> None:
        """Delete expired files in the next 20 rounds, whatever the hour."""
        self.manual_delete_file_several_times = MAX_MANUAL_DELETE_FILE_TIMES
        log.info("executeDeleteFilesManually was invoked")

    def run(self) -> None:
        """One round."""
        self._delete_expired_files()
        self._redelete_hanged_file()

    def _delete_expired_files(self) -> None:
        store = self.default_message_store
        config = store.message_store_config
        time_up, space_full = self._is_time_to_delete(), self.is_space_to_delete()
        manual_delete = self.manual_delete_file_several_times > 0
        if not (time_up or space_full or manual_delete):
            return
        if manual_delete:
            self.manual_delete_file_several_times -= 1
        clean_at_once = config.cleanFileForciblyEnable and self._clean_immediately
        log.info("begin to delete before %s hours file. timeup: %s spacefull: %s manualDeleteFileSeveralTimes: %s "
                 "cleanAtOnce: %s", config.fileReservedTime, time_up, space_full, self.manual_delete_file_several_times,
                 clean_at_once)
        count = store.commit_log.delete_expired_file(
            config.fileReservedTime * 60 * 60 * 1000, config.deleteCommitLogFilesInterval,
            config.destroyMapedFileIntervalForcibly, clean_at_once, store.pause)
        if count == 0 and space_full:
            log.warning("disk space will be full soon, but delete file failed.")

    def _redelete_hanged_file(self) -> None:
        config, now_ms = self.default_message_store.message_store_config, time.monotonic() * 1000
        if now_ms - self._last_redelete_ms > config.redeleteHangedFileInterval:
            self._last_redelete_ms = now_ms
            self.default_message_store.commit_log.retry_delete_first_file(config.destroyMapedFileIntervalForcibly)

    def _is_time_to_delete(self) -> bool:
        when = self.default_message_store.message_store_config.deleteWhen
        try:
            due = is_it_time_to_do(when)
        except ValueError as error:
            log.error("deleteWhen=%s is no list of hours: %s", when, error)
            return False
        if due:
            log.info("it's time to reclaim disk space, %s", when)
        return due

    def is_space_to_delete(self) -> bool:
        """True when a disk is fuller than diskMaxUsedSpaceRatio; notes which are full, and whether to clean at once."""
        store = self.default_message_store
        ratio = store.message_store_config.get_disk_max_used_space_ratio() / 100
        physic_ratio = self.calc_store_path_physic_ratio()
        logics_ratio = get_disk_partition_space_used_percent(store.get_store_path_logic())
        self._clean_immediately = max(physic_ratio, logics_ratio) > self.disk_space_clean_forcibly_ratio
        self._mark("physic", self._physic_disk(), physic_ratio)
        self._mark("logics", disk_of(store.get_store_path_logic()), logics_ratio)
        for name, used in (("physic", physic_ratio), ("logics", logics_ratio)):
            if used < 0 or used > ratio:
                log.info("%s disk maybe full soon, so reclaim space, %s", name, used)
                return True
        return False

    def calc_store_path_physic_ratio(self) -> float:
        """Used part of the emptiest commit log disk; tells the log which of several are full."""
        paths = self.default_message_store.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER)
        ratios = {path: get_disk_partition_space_used_percent(path) for path in paths}
        self.default_message_store.commit_log.full_store_paths = frozenset(
            path for path, used in ratios.items() if used > self.disk_space_clean_forcibly_ratio)
        return min(ratios.values())

    def is_space_full(self) -> bool:
        """Note whether the disks are so full that puts have to be refused.

        Differs: the disk of the consume queues is looked at too; here and in `is_space_to_delete` each disk has its own
        mark, where in the original the last disk looked at decides.
        """
        store = self.default_message_store
        physic_ratio = self.calc_store_path_physic_ratio()
        logics_ratio = get_disk_partition_space_used_percent(store.get_store_path_logic())
        full = self._mark("physic", self._physic_disk(), physic_ratio)
        logics_disk = disk_of(store.get_store_path_logic())
        if logics_disk != self._physic_disk():
            full = self._mark("logics", logics_disk, logics_ratio) or full
        return full

    def _mark(self, name: str, disk: str, used: float) -> bool:
        flags = self.default_message_store.running_flags
        if used > self.disk_space_warning_level_ratio:
            if flags.get_and_make_disk_full(disk):
                log.error("%s disk maybe full soon %s, so mark disk full", name, used)
            return True
        if not flags.get_and_make_disk_ok(disk) and flags.is_writeable:
            log.info("%s disk space OK %s, so mark disk ok", name, used)
        return False

    def _physic_disk(self) -> str:
        return disk_of(self.default_message_store.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER)[0])
