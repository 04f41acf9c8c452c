"""The service that finds messages by key.

    dispatching thread --build_index--> last IndexFile;  FlushIndexFileThread flushes a full file
    querying threads   --query_offset--> files, newest first
"""
from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right

from rmqha.common import sys_flags
from rmqha.common.filesystem import NotAskedError
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message import message_const
from rmqha.common.process import how_to_raise, is_shortage
from rmqha.common.threads import NamedThreadPool
from rmqha.common.util_all import current_time_millis, time_millis_to_human_string
from rmqha.store.bulk.bulk_layout import KEY
from rmqha.store.commit_log import CommitLog
from rmqha.store.index.index_file import IndexFile
from rmqha.store.index.index_layout import index_key_hash_method
from rmqha.store.mapped_file import fsync_folder, is_no_space
from rmqha.store.results import DispatchRequest
from rmqha.store.running_flags import disk_of
from rmqha.store.store_marks import RecoveryBase
from rmqha.store.store_path_config_helper import get_store_path_index
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

MAX_TRY_IDX_CREATE = 3
_RETRY_MS = 1000


class QueryOffsetResult(NamedTuple):
    """The commit log offsets that were found, and the store time (ms) and offset of the index's last entry.

    Java: org.apache.rocketmq.store.index.QueryOffsetResult (4.9.8)
    """

    phy_offsets: list[int]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class IndexService:
    """The index files of one store, oldest first. The list is replaced under `_change`, never changed in place.

    Java: org.apache.rocketmq.store.index.IndexService (4.9.8)
    """

    def __init__(self, state: StoreState, commit_log: CommitLog) -> None:
        config = state.config
        self._state = state
        self._config = config
        self._commit_log = commit_log
        self.hash_slot_num = config.maxHashSlotNum
        self.index_num = config.maxIndexNum
        self.store_path = get_store_path_index(config.storePathRootDir)
        self.preallocate = config.preallocateMappedFile
        self.index_file_list: list[IndexFile] = []
        self._change = threading.Lock()
        # The commit log offset of the last record whose keys are all in the index. Used by the dispatching thread only.
        self._built_to = -1
        # True if the last file could not be created for lack of descriptors, maps or memory. Used by the dispatching
        # thread only.
        self._is_short = False
        self._flush_pool = NamedThreadPool("FlushIndexFileThread", 1, 16)

    def load(self, base: RecoveryBase) -> bool:
        """Map the files, and drop entries that were not flushed after a crash; return False if one can't be mapped."""
        if not os.path.isdir(self.store_path):
            return True
        for name in sorted(os.listdir(self.store_path)):
            try:
                int(name)
                index_file = IndexFile(os.path.join(self.store_path, name), self.hash_slot_num, self.index_num,
                                       preallocate=self.preallocate)
            except ValueError as error:
                log.error("load file %s error %s", name, error)
                continue
            except OSError:
                log.exception("load file %s error", name)
                return False
            index_file.load()
            if not base.was_stopped and not self._keep_after_crash(index_file, base):
                index_file.destroy(0)
                continue
            index_file.is_flushed_full = index_file.is_write_full
            log.info("load index file OK, %s", index_file.file_name)
            self.index_file_list = [*self.index_file_list, index_file]
        return True

    def _keep_after_crash(self, index_file: IndexFile, base: RecoveryBase) -> bool:
        """Keep the flushed entries of a file after a crash; return False if the file has to be deleted.

        Differs: after a crash, the index file that was being written keeps its flushed entries, and recovery adds the
        others again. The original drops the whole file, and with it the keys of all messages that recovery does not
        read.
        """
        if index_file.index_header.index_count <= 1:
            # As the last file it would hide the offset up to which the earlier files have keys, and all keys would be
            # added again.
            log.info("index file %s has no entries; dropping it", index_file.file_name)
            return False
        flushed = self._state.checkpoint.index_msg_timestamp
        is_flushed = index_file.end_phy_offset < base.dispatched if base.is_noted \
            else index_file.end_timestamp <= flushed
        if is_flushed:
            if not index_file.is_write_full:
                index_file.mend_slots()
            return True
        if base.is_noted:
            kept = index_file.cut_back_to_offset(base.dispatched)
        else:
            kept = 0 < index_file.begin_timestamp <= flushed and index_file.cut_back(flushed)
        log.info("index file %s was not flushed completely: %s", index_file.file_name,
                 f"{index_file.index_header.index_count - 1} entries kept" if kept else "dropped")
        return kept

    def delete_expired_file(self, offset: int) -> None:
        """Delete files whose entries are all below commit log offset `offset`, except the last file."""
        for index_file in self.index_file_list[:-1]:
            if index_file.end_phy_offset >= offset:
                break
            if not index_file.destroy(3000):
                log.error("deleteExpiredFile remove failed.")
                break
            self._remove(index_file)

    def _remove(self, index_file: IndexFile) -> None:
        with self._change:
            self.index_file_list = [each for each in self.index_file_list if each is not index_file]

    def destroy(self) -> None:
        """Delete all files."""
        with self._change:
            files, self.index_file_list = self.index_file_list, []
        self._built_to = -1
        for index_file in files:
            if not index_file.destroy(1000 * 3):
                index_file.mapped_file.delete()

    def truncate(self, phy_offset: int) -> None:
        """Rebuild the files with entries at or after `phy_offset`, where the commit log was truncated.

        Differs: index files with entries after the point where the log was truncated are rebuilt. The original keeps
        them, and never adds the keys of the next records at these offsets.
        """
        files = [each for each in self.index_file_list if each.end_phy_offset >= phy_offset]
        if not files:
            return
        commit_log = self._commit_log
        start = max(files[0].index_header.begin_phy_offset, commit_log.get_min_offset(), 0)
        for index_file in files:
            self._remove(index_file)
            if not index_file.destroy(1000):
                index_file.mapped_file.delete()
        fsync_folder(self.store_path)
        self._built_to = -1
        for request in commit_log.walk_records(start, phy_offset):
            self.build_index(request)
        self.flush_all()  # The new entries replace entries that count as flushed.

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryOffsetResult:
        """Return the log offsets of messages with `key` stored between `begin` and `end` (ms), maxMsgsNumBatch at most.
        """
        phy_offsets: list[int] = []
        files = self.index_file_list
        max_num = min(max_num, self._config.maxMsgsNumBatch)
        for index_file in reversed(files):
            if index_file.is_time_matched(begin, end):
                index_file.select_phy_offset(phy_offsets, build_key(topic, key), max_num, begin, end)
            if index_file.begin_timestamp < begin or len(phy_offsets) >= max_num:
                break
        last = files[-1] if files else None
        return QueryOffsetResult(phy_offsets, last.end_timestamp if last else 0, last.end_phy_offset if last else 0)

    def build_index(self, request: DispatchRequest) -> None:
        """Add the keys of one record, unless they are already in the index."""
        # Differs: a record without keys creates no index file. The original creates 420 MB for the first message.
        keys = keys_of(request)
        # Differs: the keys of a record that recovery has dispatched are not added twice when it is dispatched again.
        if not keys or request.commit_log_offset <= self._built_to:
            return
        index_file = self._file_to_write()
        if index_file is None:
            return
        end_phy_offset = index_file.end_phy_offset
        if request.commit_log_offset < end_phy_offset:
            return
        if request.commit_log_offset == end_phy_offset:
            # Differs: of the last record before a crash, the index gets only the missing keys. The original adds all of
            # them again.
            files = self.index_file_list[-2:]
            keys = [key for key in keys if not any(
                each.has_entry(index_key_hash_method(build_key(request.topic, key)), end_phy_offset) for each in files)]
        self._put_keys(index_file, request, [f"{request.topic}#{key}" for key in keys])

    def _file_to_write(self) -> IndexFile | None:
        """Return the last file while it has room, or a new file. If none can be created, log it and return None."""
        files = self.index_file_list
        index_file = files[-1] if files and not files[-1].is_write_full else self.retry_get_and_create_index_file()
        if index_file is None:
            log.error("build index error, stop building index")
        return index_file

    def _put_keys(self, index_file: IndexFile, request: DispatchRequest, keys: list[str]) -> None:
        while True:
            try:
                keys = keys[index_file.put_keys(keys, request.commit_log_offset, request.store_timestamp):]
            except OSError as error:
                if not self._wait_for_space(error):
                    return
                continue
            if not keys:
                self._built_to = request.commit_log_offset
                return
            log.warning("Index file [%s] is full, trying to create another one", index_file.file_name)
            next_file = self.retry_get_and_create_index_file()
            if next_file is None:
                log.error("putKey error commitlog %s uniqkey %s", request.commit_log_offset, request.uniq_key)
                return
            index_file = next_file

    def build_index_of_rows(self, rows: bytes) -> None:
        """Add the keys of many records in order, the key rows of a bulk scan, like `build_index`."""
        first = _first_row_behind(rows, self._built_to)
        if first == len(rows) // KEY.size:
            return
        index_file = self._file_to_write()
        if index_file is None:
            return
        end_phy_offset = index_file.end_phy_offset
        behind = max(first, _first_row_behind(rows, end_phy_offset))
        at_end = [row for row in KEY.iter_unpack(rows[first * KEY.size:behind * KEY.size]) if row[0] == end_phy_offset]
        if at_end:  # the index's last record gets its missing keys; see build_index
            files = self.index_file_list[-2:]
            lacking = [KEY.pack(*row) for row in at_end
                       if not any(each.has_entry(row[2], end_phy_offset) for each in files)]
            rows, behind = b"".join(lacking) + rows[behind * KEY.size:], 0
        self._put_rows(index_file, rows, behind)

    def _put_rows(self, index_file: IndexFile | None, rows: bytes, first: int) -> None:
        total = len(rows) // KEY.size
        while first < total:
            if index_file is None:
                log.error("putKey error commitlog %s", KEY.unpack_from(rows, first * KEY.size)[0])
                return
            try:
                first = index_file.put_key_rows(rows, first)
            except OSError as error:
                if not self._wait_for_space(error):
                    return
                continue
            if first < total:
                log.info("Index file [%s] is full, trying to create another one", index_file.file_name)
                index_file = self.retry_get_and_create_index_file()
        if total:
            self._built_to = KEY.unpack_from(rows, (total - 1) * KEY.size)[0]

    def _wait_for_space(self, error: OSError) -> bool:
        """Wait for space on a full disk, with puts refused, or for a descriptor, with puts accepted.

        Return False for any other error, and when the store shuts down.
        """
        state = self._state
        log.error("write of the index failed: %s%s", error, how_to_raise(error))
        if is_shortage(error):
            return not state.dispatch_pause.pause(_RETRY_MS)
        if not is_no_space(error):
            state.running_flags.make_index_file_error()
            return False
        state.running_flags.get_and_make_disk_full(disk_of(self.store_path))
        return not state.dispatch_pause.pause(_RETRY_MS)

    def retry_get_and_create_index_file(self) -> IndexFile | None:
        """Return the file to which keys are added. If none can be created, make the store read-only and return None."""
        times = 0
        while times < MAX_TRY_IDX_CREATE:
            index_file = self.get_and_create_last_index_file()
            if index_file is not None:
                return index_file
            times += not self._is_short  # A shortage is waited out, without a limit.
            log.info("Tried to create index file %s times", times)
            if self._state.dispatch_pause.pause(_RETRY_MS):
                return None
        self._state.running_flags.make_index_file_error()
        log.error("Mark index file cannot build flag")
        return None

    def get_and_create_last_index_file(self) -> IndexFile | None:
        """Return the last file, or a new one if it is full; None if that can't be created."""
        files = self.index_file_list
        last = files[-1] if files else None
        if last is not None and not last.is_write_full:
            return last
        name = time_millis_to_human_string(current_time_millis())
        if last is not None and name <= os.path.basename(last.file_name):
            # Differs: the names of index files keep their order even if the clock was set back, or if two files are
            # created in one millisecond. The original's next start opens the files in the wrong order, or one file
            # twice.
            name = f"{int(os.path.basename(last.file_name)) + 1:017d}"
        try:
            index_file = IndexFile(os.path.join(self.store_path, name), self.hash_slot_num, self.index_num,
                                   last.end_phy_offset if last else 0, last.end_timestamp if last else 0,
                                   self.preallocate)
        except (OSError, ValueError) as error:
            log.exception("getLastIndexFile exception ")
            self._is_short = is_shortage(error)
            return None
        with self._change:
            self.index_file_list = [*self.index_file_list, index_file]
        if last is not None:
            self._flush_pool.submit(self.flush, last)
        return index_file

    def flush(self, index_file: IndexFile | None) -> None:
        """Flush a full file, and update the checkpoint."""
        if index_file is None:
            return
        timestamp = index_file.end_timestamp if index_file.is_write_full else 0
        try:
            index_file.flush()
        except NotAskedError as error:
            log.error("can't flush index file %s now; the next thorough flush retries: %s%s",
                      index_file.file_name, error, how_to_raise(error))
            return
        except OSError:
            log.exception("can't flush index file %s", index_file.file_name)
            self._state.running_flags.make_index_file_error()
            return
        if timestamp > 0:
            self._state.checkpoint.index_msg_timestamp = timestamp
            try:
                self._state.checkpoint.flush()
            except OSError as error:
                log.exception("can't flush the checkpoint")
                self._state.running_flags.make_flush_error(f"a flush of the checkpoint: {error!r}")

    def get_end_phy_offset(self) -> int:
        """Return the commit log offset up to which the index has all keys; beyond any offset without an index."""
        if not self._config.messageIndexEnable:
            return 1 << 63
        files = self.index_file_list
        return files[-1].end_phy_offset if files else 0

    def flush_all(self) -> None:
        """Flush the file that is being written, and full files that are not flushed yet.

        Raise OSError if the disk fails.
        """
        files = self.index_file_list
        for index_file in files:
            if index_file is files[-1] or not index_file.is_flushed_full:
                index_file.flush()

    def start(self) -> None:
        """Do nothing: the service has no thread of its own."""

    def shutdown(self) -> None:
        """Wait for a running flush."""
        self._flush_pool.shutdown()


def _first_row_behind(rows: bytes, phy_offset: int) -> int:
    """Return the number of the first key row whose record is after `phy_offset`."""
    if rows and KEY.unpack_from(rows)[0] > phy_offset:  # the usual case
        return 0
    return bisect_right(range(len(rows) // KEY.size), phy_offset,
                        key=lambda number: KEY.unpack_from(rows, number * KEY.size)[0])


def build_key(topic: str, key: str) -> str:
    """Return the text that is hashed."""
    return f"{topic}#{key}"


def keys_of(request: DispatchRequest) -> list[str]:
    """Return the keys of a record: its unique key, then the words of its KEYS. A rolled back message has none."""
    if request.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE == sys_flags.TRANSACTION_ROLLBACK_TYPE:
        return []
    keys = [request.uniq_key] if request.uniq_key is not None else []
    if request.keys:
        keys += [key for key in request.keys.split(message_const.KEY_SEPARATOR) if key]
    return keys
