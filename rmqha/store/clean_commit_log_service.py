"""The deletion of old commit log files, and the check for full disks."""
from __future__ import annotations

import logging
import os
import time

from rmqha.common.util_all import LONG_AGO, get_disk_partition_space_used_percent, is_it_time_to_do
from rmqha.store.commit_log import CommitLog
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER
from rmqha.store.running_flags import disk_of
from rmqha.store.store_path_config_helper import get_store_path_consume_queue
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

MAX_MANUAL_DELETE_FILE_TIMES = 20
# Java system properties; here they are environment variables, with underscores for the dots.
WARNING_LEVEL_VARIABLE = "rocketmq_broker_diskSpaceWarningLevelRatio"
CLEAN_FORCIBLY_VARIABLE = "rocketmq_broker_diskSpaceCleanForciblyRatio"


class CleanCommitLogService:
    """The cleaner of the commit log. It runs on the store's scheduled thread, `is_space_full` on the disk check's.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CleanCommitLogService (4.9.8)
    """

    def __init__(self, state: StoreState, commit_log: CommitLog) -> None:
        self._state = state
        self._config = state.config
        self._commit_log = commit_log
        self.disk_space_warning_level_ratio = float(os.environ.get(WARNING_LEVEL_VARIABLE, "0.90"))
        self.disk_space_clean_forcibly_ratio = float(os.environ.get(CLEAN_FORCIBLY_VARIABLE, "0.85"))
        self._last_redelete_ms: float = LONG_AGO  # monotonic
        # Rounds left. Set by an admin thread, counted down by the scheduled thread.
        self.manual_delete_file_several_times = 0
        self._clean_immediately = False

    def execute_delete_files_manually(self) -> None:
        """Delete expired files in the next 20 rounds, at any hour."""
        self.manual_delete_file_several_times = MAX_MANUAL_DELETE_FILE_TIMES
        log.info("executeDeleteFilesManually was invoked")

    def run(self) -> None:
        """Run one round."""
        self._delete_expired_files()
        self._redelete_hanged_file()

    def _delete_expired_files(self) -> None:
        config = self._config
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
        count = self._commit_log.delete_expired_file(
            config.fileReservedTime * 60 * 60 * 1000, config.deleteCommitLogFilesInterval,
            config.destroyMapedFileIntervalForcibly, clean_at_once, self._state.tasks_pause.wait)
        if count == 0 and space_full:
            log.warning("disk space will be full soon, but delete file failed.")

    def _redelete_hanged_file(self) -> None:
        config, now_ms = self._config, time.monotonic() * 1000
        if now_ms - self._last_redelete_ms > config.redeleteHangedFileInterval:
            self._last_redelete_ms = now_ms
            self._commit_log.retry_delete_first_file(config.destroyMapedFileIntervalForcibly)

    def _is_time_to_delete(self) -> bool:
        when = self._config.deleteWhen
        try:
            due = is_it_time_to_do(when)
        except ValueError as error:
            log.error("deleteWhen=%s is not a valid list of hours: %s", when, error)
            return False
        if due:
            log.info("it's time to reclaim disk space, %s", when)
        return due

    def is_space_to_delete(self) -> bool:
        """Return whether a disk is fuller than diskMaxUsedSpaceRatio.

        Also mark the disks that are full, and decide whether files have to be deleted before they expire.
        """
        ratio = self._config.get_disk_max_used_space_ratio() / 100
        physic_ratio = self.calc_store_path_physic_ratio()
        logics_ratio = get_disk_partition_space_used_percent(self._logics_path())
        self._clean_immediately = max(physic_ratio, logics_ratio) > self.disk_space_clean_forcibly_ratio
        self._mark("physic", self._physic_disk(), physic_ratio)
        self._mark("logics", disk_of(self._logics_path()), logics_ratio)
        for name, used in (("physic", physic_ratio), ("logics", logics_ratio)):
            if used < 0 or used > ratio:
                log.info("%s disk maybe full soon, so reclaim space, %s", name, used)
                return True
        return False

    def calc_store_path_physic_ratio(self) -> float:
        """Return the used fraction of the emptiest commit log disk, and set `full_store_paths` of the log."""
        paths = self._physic_paths()
        ratios = {path: get_disk_partition_space_used_percent(path) for path in paths}
        self._commit_log.full_store_paths = frozenset(
            path for path, used in ratios.items() if used > self.disk_space_clean_forcibly_ratio)
        return min(ratios.values())

    def is_space_full(self) -> bool:
        """Mark the disks that are so full that puts have to be refused; return whether there is one.

        Differs: the disk of the consume queues is checked too. For puts and for deletions each disk has its own mark;
        in the original the disk that was checked last decides.
        """
        physic_ratio = self.calc_store_path_physic_ratio()
        logics_ratio = get_disk_partition_space_used_percent(self._logics_path())
        full = self._mark("physic", self._physic_disk(), physic_ratio)
        logics_disk = disk_of(self._logics_path())
        if logics_disk != self._physic_disk():
            full = self._mark("logics", logics_disk, logics_ratio) or full
        return full

    def _mark(self, name: str, disk: str, used: float) -> bool:
        flags = self._state.running_flags
        if used > self.disk_space_warning_level_ratio:
            if flags.get_and_make_disk_full(disk):
                log.error("%s disk maybe full soon %s, so mark disk full", name, used)
            return True
        if not flags.get_and_make_disk_ok(disk) and flags.is_writeable:
            log.info("%s disk space OK %s, so mark disk ok", name, used)
        return False

    def _physic_disk(self) -> str:
        return disk_of(self._physic_paths()[0])

    def _physic_paths(self) -> list[str]:
        return self._config.get_store_path_commit_log().strip().split(MULTI_PATH_SPLITTER)

    def _logics_path(self) -> str:
        return get_store_path_consume_queue(self._config.storePathRootDir)
