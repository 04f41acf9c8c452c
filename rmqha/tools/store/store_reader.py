"""Read-only access to a whole store: its state, its log, its queues, its index."""
import os
import struct
from typing import NamedTuple

from rmqha.common.filesystem import Segment, is_segment_name, read_at
from rmqha.store import store_path_config_helper as paths
from rmqha.store.index.index_file import Shape
from rmqha.store.store_path_config_helper import read_deleted_topics
from rmqha.tools.store import broker_lock
from rmqha.tools.store.errors import StoreToolError
from rmqha.tools.store.index_reader import IndexReader, list_index
from rmqha.tools.store.log_reader import CommitLogReader
from rmqha.tools.store.queue_reader import QueueKey, QueueReader, list_queues
from rmqha.tools.store.segments import Folder, list_folder

_BLOCKS_OF_ALL_QUEUES = 64 << 20  # bytes
_CHECKPOINT = struct.Struct(">qqq")
_WHAT_TO_GIVE = "Give the broker's storePathRootDir, a folder of commit log files, or one of them."


class Checkpoint(NamedTuple):
    """The times in the checkpoint file, ms."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int


class StoreReader:
    """A store. `live`: a broker holds its lock; `crashed`: none does, and the last one left no farewell."""

    def __init__(self, root: str, commit_log_paths: tuple[str, ...] = (), index_shape: Shape | None = None,
                 file_size: int | None = None) -> None:
        self.root = root
        self.live = broker_lock.is_held(paths.get_lock_file(root))
        self.crashed = not self.live and os.path.exists(paths.get_abort_file(root))
        self.commit_log_paths = commit_log_paths or (os.path.join(root, "commitlog"),)
        missing = [path for path in self.commit_log_paths if not os.path.isdir(path)]
        if missing:
            raise StoreToolError(f"{missing[0]} is no folder of a commit log. Give the broker's storePathRootDir, and "
                                 "its storePathCommitLog with --commitlog when that lies elsewhere.")
        self.file_size = file_size
        self.log = self.log_now()
        self.index_shape = index_shape

    def log_now(self) -> CommitLogReader:
        """The commit log with the files that are there now."""
        return CommitLogReader(list_folder(self.commit_log_paths), self.file_size, self.live)

    @property
    def state(self) -> str:
        """One word for the state."""
        return "running" if self.live else "crashed" if self.crashed else "stopped"

    @property
    def may_be_torn(self) -> bool:
        """Whether the ends of its files may be unfinished: a running broker writes on, a starting one mends."""
        return self.live or self.crashed

    @property
    def consume_queue_path(self) -> str:
        """Folder of the consume queues."""
        return paths.get_store_path_consume_queue(self.root)

    @property
    def index_path(self) -> str:
        """Folder of the index files."""
        return paths.get_store_path_index(self.root)

    def queues(self) -> tuple[dict[QueueKey, QueueReader], list[str]]:
        """The consume queues, and what is foreign in their folder."""
        found, foreign = list_queues(self.consume_queue_path)
        block_units = max(min(_BLOCKS_OF_ALL_QUEUES // 20 // max(len(found), 1), 16384), 64)
        return {key: QueueReader(*key, path, block_units=block_units) for key, path in found.items()}, foreign

    def ext_folder(self, key: QueueKey) -> Folder:
        """The extension files of a consume queue."""
        return list_folder([os.path.join(paths.get_store_path_consume_queue_ext(self.root), key[0], str(key[1]))])

    def index_files(self) -> tuple[list[IndexReader], list[str]]:
        """The index files, oldest first, and what is foreign in their folder."""
        return list_index(self.index_path, self.index_shape)

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint file."""
        return paths.get_store_checkpoint(self.root)

    def deleted_topics(self) -> dict[str, int]:
        """See read_deleted_topics; StoreToolError."""
        try:
            return read_deleted_topics(self.root)
        except ValueError as error:
            raise StoreToolError(str(error)) from None

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint; None when it is missing or too short."""
        data = read_at(self.checkpoint_path, 0, _CHECKPOINT.size)
        return Checkpoint._make(_CHECKPOINT.unpack(data)) if len(data) == _CHECKPOINT.size else None


def open_log(path: str) -> CommitLogReader:
    """The commit log of a store, of a folder of commit log files, or of one such file. StoreToolError when it is
    something else."""
    log = _log_of(path)
    if not log.looks_like_one():
        raise StoreToolError(f"{path} is no commit log: {log.folder.segments[0].path} has no message, neither at its "
                             f"beginning nor behind that. {_WHAT_TO_GIVE}")
    return log


def _log_of(path: str) -> CommitLogReader:
    if os.path.isfile(path):
        return CommitLogReader(Folder([_single_file(path)], []), live=_is_live(os.path.dirname(path)))
    if os.path.exists(path) and not os.path.isdir(path):
        raise StoreToolError(f"{path} is neither a folder nor a regular file. {_WHAT_TO_GIVE}")
    inner = os.path.join(path, "commitlog")
    if os.path.isdir(inner):
        return CommitLogReader(list_folder([inner]), live=_is_live(inner))
    folder = list_folder([path])
    if not folder.segments:
        raise StoreToolError(f"{path} has no folder commitlog and no commit log files. {_WHAT_TO_GIVE}")
    return CommitLogReader(folder, live=_is_live(path))


def _is_live(commit_log_path: str) -> bool:
    """Whether a broker runs on the store whose commit log folder this is."""
    return broker_lock.is_held(paths.get_lock_file(os.path.dirname(os.path.abspath(commit_log_path))))


def _single_file(path: str) -> Segment:
    """A file of its own; under another name than its offset it begins where its first record says."""
    size = os.stat(path).st_size
    if not size and not is_segment_name(os.path.basename(path)):
        raise StoreToolError(f"{path} is empty. {_WHAT_TO_GIVE}")
    if is_segment_name(os.path.basename(path)):
        return Segment(int(os.path.basename(path)), path, size)
    log = CommitLogReader(Folder([Segment(0, path, size)], []))
    first = log.record_at(0, check_crc=False)
    return Segment(max(first.physical_offset, 0) if first is not None else 0, path, size)
