"""Finding messages by key.

    dispatching thread --build_index--> last IndexFile;  a full file is flushed by FlushIndexFileThread
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
    """Commit log offsets, and store time (ms) and offset up to which the index had come.

    Java: org.apache.rocketmq.store.index.QueryOffsetResult (4.9.8)
    """

    phy_offsets: list[int]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class IndexService:
    """The index files of one store, oldest first; the list is replaced under `_change`, never changed in place.

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
        self._built_to = -1  # commit log offset of the last record whose keys are all in; the dispatching thread's own
        self._is_short = False  # why no file could be made last; the dispatching thread's own
        self._flush_pool = NamedThreadPool("FlushIndexFileThread", 1, 16)

    def load(self, base: RecoveryBase) -> bool:
        """Map the files; after a crash drop what was not flushed. False when one can't be mapped."""
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
        """Differs: the file that was being written keeps what was flushed of it, and recovery adds the rest again; the
        original drops the whole file, and with it the keys of all messages that recovery does not look at.
        """
        if index_file.index_header.index_count <= 1:
            # it would be the last file, and knows nothing of what the files before it have: all would be added again
            log.info("index file %s has no entries: dropped", index_file.file_name)
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
        log.info("index file %s was not flushed: %s", index_file.file_name,
                 f"{index_file.index_header.index_count - 1} entries kept" if kept else "dropped")
        return kept

    def delete_expired_file(self, offset: int) -> None:
        """Delete files that point below commit log offset `offset`, never the last file."""
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
        """The commit log was cut off at `phy_offset`: build the files that point behind it again.

        Differs: the original keeps them, and leaves the keys of what comes at these offsets next out.
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
        self.flush_all()  # in the place of entries that count as flushed

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryOffsetResult:
        """Commit log offsets of messages with `key` stored between `begin` and `end` (ms), at most maxMsgsNumBatch."""
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
        """Add the keys of one record; a record that is in the index already is left out."""
        # Differs: a record without keys makes no index file; the original creates 420 MB for the first message.
        keys = keys_of(request)
        # Differs: a record is not added twice when it is dispatched by recovery and then again.
        if not keys or request.commit_log_offset <= self._built_to:
            return
        index_file = self._file_to_write()
        if index_file is None:
            return
        end_phy_offset = index_file.end_phy_offset
        if request.commit_log_offset < end_phy_offset:
            return
        if request.commit_log_offset == end_phy_offset:
            # Differs: the last record before a crash gets the keys that it lacks; the original adds all of them again.
            files = self.index_file_list[-2:]
            keys = [key for key in keys if not any(
                each.has_entry(index_key_hash_method(build_key(request.topic, key)), end_phy_offset) for each in files)]
        self._put_keys(index_file, request, [f"{request.topic}#{key}" for key in keys])

    def _file_to_write(self) -> IndexFile | None:
        """The last file while it has room, or a new one; None, with a line in the log, when none can be made."""
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
        """`build_index` of many records in order: the key rows of a bulk scan."""
        first = _first_row_behind(rows, self._built_to)
        if first == len(rows) // KEY.size:
            return
        index_file = self._file_to_write()
        if index_file is None:
            return
        end_phy_offset = index_file.end_phy_offset
        behind = max(first, _first_row_behind(rows, end_phy_offset))
        at_end = [row for row in KEY.iter_unpack(rows[first * KEY.size:behind * KEY.size]) if row[0] == end_phy_offset]
        if at_end:  # the last record of the index gets the keys that it lacks, see build_index
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
        """A full disk is waited for, puts being refused; False for any other error and when the store goes down.

        So is a descriptor, while puts go on.
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
        """The file to add to; None, and the store is not writable any more, when none can be made."""
        times = 0
        while times < MAX_TRY_IDX_CREATE:
            index_file = self.get_and_create_last_index_file()
            if index_file is not None:
                return index_file
            times += not self._is_short  # the end of that is waited for
            log.info("Tried to create index file %s times", times)
            if self._state.dispatch_pause.pause(_RETRY_MS):
                return None
        self._state.running_flags.make_index_file_error()
        log.error("Mark index file cannot build flag")
        return None

    def get_and_create_last_index_file(self) -> IndexFile | None:
        """The last file, or a new one behind it when it is full; None when that fails."""
        files = self.index_file_list
        last = files[-1] if files else None
        if last is not None and not last.is_write_full:
            return last
        name = time_millis_to_human_string(current_time_millis())
        if last is not None and name <= os.path.basename(last.file_name):
            # Differs: the names keep the order of the files also when the clock went back or two are made in one
            # millisecond; the original opens the next start's files in the wrong order, or one file twice.
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
        """Flush a full file, and tell the checkpoint."""
        if index_file is None:
            return
        timestamp = index_file.end_timestamp if index_file.is_write_full else 0
        try:
            index_file.flush()
        except NotAskedError as error:
            log.error("flush of index file %s could not ask the disk, the next thorough one does: %s%s",
                      index_file.file_name, error, how_to_raise(error))
            return
        except OSError:
            log.exception("flush of index file %s failed", index_file.file_name)
            self._state.running_flags.make_index_file_error()
            return
        if timestamp > 0:
            self._state.checkpoint.index_msg_timestamp = timestamp
            try:
                self._state.checkpoint.flush()
            except OSError as error:
                log.exception("flush of the checkpoint failed")
                self._state.running_flags.make_flush_error(f"a flush of the checkpoint: {error!r}")

    def get_end_phy_offset(self) -> int:
        """Commit log offset up to which all keys are in; beyond any offset when there is no index."""
        if not self._config.messageIndexEnable:
            return 1 << 63
        files = self.index_file_list
        return files[-1].end_phy_offset if files else 0

    def flush_all(self) -> None:
        """Flush the file that is being written, and full ones whose turn has not come. OSError: the disk says no."""
        files = self.index_file_list
        for index_file in files:
            if index_file is files[-1] or not index_file.is_flushed_full:
                index_file.flush()

    def start(self) -> None:
        """Nothing to start."""

    def shutdown(self) -> None:
        """Wait for a flush that is under way."""
        self._flush_pool.shutdown()


def _first_row_behind(rows: bytes, phy_offset: int) -> int:
    """Number of the first key row whose record lies behind `phy_offset`."""
    if rows and KEY.unpack_from(rows)[0] > phy_offset:  # as a rule
        return 0
    return bisect_right(range(len(rows) // KEY.size), phy_offset,
                        key=lambda number: KEY.unpack_from(rows, number * KEY.size)[0])


def build_key(topic: str, key: str) -> str:
    """The text that is hashed."""
    return f"{topic}#{key}"


def keys_of(request: DispatchRequest) -> list[str]:
    """The keys of a record: its unique key, then the words of its KEYS; none for a rolled back message."""
    if request.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE == sys_flags.TRANSACTION_ROLLBACK_TYPE:
        return []
    keys = [request.uniq_key] if request.uniq_key is not None else []
    if request.keys:
        keys += [key for key in request.keys.split(message_const.KEY_SEPARATOR) if key]
    return keys
