"""Finding the end of the commit log when the store is opened.

Runs on the opening thread before any service does. The walk goes record by record; the first bad one ends it.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.message.message_layout import INT, LONG, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_POSITION
from rmqha.common.message.message_layout import SYSFLAG_POSITION, store_timestamp_position
from rmqha.common.util_all import time_millis_to_human_string
from rmqha.store.config.broker_role import BrokerRole
from rmqha.store.dispatch_request import DispatchRequest
from rmqha.store.mapped_file import MappedFile

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog

log = logging.getLogger("RocketmqStore")

_FILES_AFTER_NORMAL_EXIT = 3
# A record at the beginning of a file has its system flag and store time within these bytes.
_LOOKED_AT = 80


class DamagedCommitLogError(Exception):
    """A record in front of the last file is bad: cutting there would drop whole files of messages."""


class CommitLogRecovery:
    """Walks the tail of a commit log, and cuts off what lies behind the last good record.

    Java: org.apache.rocketmq.store.CommitLog#recoverNormally (4.9.8)
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self.commit_log = commit_log

    def recover_normally(self, max_phy_offset_of_consume_queue: int) -> None:
        """After a clean shutdown: look at the last three files."""
        files = self.commit_log.mapped_file_queue.mapped_files
        if not files:
            self._no_files()
            return
        self._finish(self._walk(files, max(len(files) - _FILES_AFTER_NORMAL_EXIT, 0), None),
                     max_phy_offset_of_consume_queue)

    def recover_abnormally(self, max_phy_offset_of_consume_queue: int) -> None:
        """After a crash: start at the newest file that the checkpoint covers and dispatch again from there."""
        files = self.commit_log.mapped_file_queue.mapped_files
        if not files:
            self._no_files()
            return
        index = len(files) - 1
        # Differs: it starts no later than the furthest consume queue ends. The original believes the checkpoint even
        # when the queues are gone, and what lies before that file never gets its units and keys again.
        while index > 0 and not (files[index].file_from_offset <= max_phy_offset_of_consume_queue
                                 and self._is_mapped_file_matched_recover(files[index])):
            index -= 1
        log.info("recover from this mapped file %s", files[index].file_name)
        end = self._walk(files, index, self._dispatch)
        for mapped_file in files[index:]:
            mapped_file.force()  # what the crashed process did not flush counts as flushed from here on
        self._finish(end, max_phy_offset_of_consume_queue)

    def _dispatch(self, request: DispatchRequest) -> None:
        store = self.commit_log.default_message_store
        if not store.message_store_config.duplicationEnable \
                or request.commit_log_offset < store.get_confirm_offset():
            store.do_dispatch(request)

    def _walk(self, files: list[MappedFile], index: int, dispatch: Callable[[DispatchRequest], None] | None) -> int:
        """Offset behind the last good record, walking from file `index` on."""
        check = self.commit_log.check_message_and_return_size
        check_crc = self.commit_log.default_message_store.message_store_config.checkCRCOnRecover
        while True:
            mapped_file = files[index]
            buffer, position, size = mapped_file.slice_byte_buffer(), 0, self.commit_log.mapped_file_size
            blank = False
            while position < size:
                request = check(buffer, position, check_crc)
                if not request.success:
                    break
                if request.msg_size == 0:
                    blank = True
                    break
                position += request.msg_size
                if dispatch is not None:
                    dispatch(request)
            index += 1
            if not blank:
                if index < len(files):
                    self._check_what_follows(files, index, mapped_file, position)
                log.info("recover physics file end, %s pos=%s", mapped_file.file_name, position)
                return mapped_file.file_from_offset + position
            if index >= len(files):
                log.info("recover physics file over, last mapped file %s", mapped_file.file_name)
                return mapped_file.file_from_offset + self._behind_blank(buffer, position)
            log.info("recover next physics file, %s", files[index].file_name)

    def _behind_blank(self, buffer: memoryview, position: int) -> int:
        """End of a last file that is closed by a blank.

        Differs: a master keeps the blank. The original cuts it off, and may put a message where slaves have a blank.
        A slave cuts it off too: the master sends it again, and it may not be there whole.
        """
        size = self.commit_log.mapped_file_size
        is_slave = self.commit_log.default_message_store.message_store_config.brokerRole is BrokerRole.SLAVE
        return position if is_slave or INT.unpack_from(buffer, position)[0] != size - position else size

    def _check_what_follows(self, files: list[MappedFile], index: int, bad_file: MappedFile, position: int) -> None:
        """A flaw is the end of the log only when no later file has records.

        Differs: the original deletes all later files silently.
        """
        for mapped_file in files[index:]:
            if _magic_of(mapped_file) == MESSAGE_MAGIC_CODE:
                raise DamagedCommitLogError(
                    f"commit log file {bad_file.file_name} is damaged at position {position} (offset "
                    f"{bad_file.file_from_offset + position}), and {mapped_file.file_name} behind it has messages. "
                    f"Nothing was changed. Restore the file from a replica, or move it and all files behind it away to "
                    f"go on without them.")

    def _finish(self, process_offset: int, max_phy_offset_of_consume_queue: int) -> None:
        queue = self.commit_log.mapped_file_queue
        queue.flushed_where = process_offset
        queue.committed_where = process_offset
        queue.truncate_dirty_files(process_offset)
        # the original also goes through all queues when they end exactly with the log, to no effect
        if max_phy_offset_of_consume_queue > process_offset:
            log.warning("maxPhyOffsetOfConsumeQueue(%s) > processOffset(%s), truncate dirty logic files",
                        max_phy_offset_of_consume_queue, process_offset)
            self.commit_log.default_message_store.truncate_dirty_logic_files(process_offset)

    def _no_files(self) -> None:
        log.warning("The commitlog files are deleted, and delete the consume queue files")
        self.commit_log.mapped_file_queue.flushed_where = 0
        self.commit_log.mapped_file_queue.committed_where = 0
        self.commit_log.default_message_store.destroy_logics()

    def _is_mapped_file_matched_recover(self, mapped_file: MappedFile) -> bool:
        """True when the checkpoint says that everything before this file is on disk and dispatched."""
        if _magic_of(mapped_file) != MESSAGE_MAGIC_CODE or mapped_file.file_size < _LOOKED_AT:
            return False
        buffer = mapped_file.slice_byte_buffer()
        sys_flag = INT.unpack_from(buffer, SYSFLAG_POSITION)[0]
        store_timestamp = LONG.unpack_from(buffer, store_timestamp_position(sys_flag))[0]
        if store_timestamp == 0:
            return False
        store = self.commit_log.default_message_store
        config, checkpoint = store.message_store_config, store.store_checkpoint
        by_index = config.messageIndexEnable and config.messageIndexSafe
        limit = checkpoint.get_min_timestamp_index() if by_index else checkpoint.get_min_timestamp()
        if store_timestamp > limit:
            return False
        log.info("find check timestamp, %s %s", store_timestamp, time_millis_to_human_string(store_timestamp))
        return True


def _magic_of(mapped_file: MappedFile) -> int:
    if mapped_file.file_size < MESSAGE_MAGIC_CODE_POSITION + INT.size:
        return 0
    return INT.unpack_from(mapped_file.slice_byte_buffer(), MESSAGE_MAGIC_CODE_POSITION)[0]
