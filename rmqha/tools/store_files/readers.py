"""Read-only access to a whole store without its broker: state, log, consume queues and index.

- `StoreReader`: the store. `open_log`: the commit log alone.
- `QueueReader`: the units of one consume queue, read in blocks.
- `IndexReader`: one file of the hash index, read with pread. The file does not record its shape: the caller gives it,
  or it is determined from the entries.
"""
import os
import struct
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from rmqha.common.filesystem import Segment, is_segment_name, open_regular, read_at
from rmqha.store import store_path_config_helper as paths
from rmqha.store.consume_queue_layout import (
    BLANK_POSITION,
    CQ_STORE_UNIT_SIZE,
    CQ_UNIT,
    MAX_EXT_ADDR,
    count_valid_units,
    first_unit_at,
)
from rmqha.store.index.index_file import USUAL, Shape, shape_of
from rmqha.store.index.index_layout import (
    ENTRY,
    HASH_SLOT_SIZE,
    HEADER,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
    SLOT,
    file_size,
    index_key_hash_method,
)
from rmqha.store.store_path_config_helper import read_deleted_topics
from rmqha.tools.store_files import reading
from rmqha.tools.store_files.reading import CommitLogReader, Folder, list_folder
from rmqha.tools.terminal import CannotAnswerError

UNIT = CQ_STORE_UNIT_SIZE
_LONG_MIN = -(1 << 63)
_CHUNK_UNITS = 16384

QueueKey = tuple[str, int]


class Unit(NamedTuple):
    """A unit of a consume queue: commit log offset, size and tags code."""

    offset: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """True if the unit fills the place before the first message of a queue that began in the middle."""
        return (self.offset, self.size) == BLANK_POSITION

    @property
    def is_valid(self) -> bool:
        """True if recovery would accept it as a unit."""
        return self.offset >= 0 and self.size > 0


class QueueReader:
    """One queue. `block_units`: the number of units per read when single units are requested."""

    def __init__(self, topic: str, queue_id: int, path: str, folder: Folder | None = None,
                 block_units: int = _CHUNK_UNITS) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.path = path
        self.folder = folder if folder is not None else list_folder([path])
        self.file_size = self.folder.file_size
        self.block_units = block_units
        self._block = b""
        self._block_index = 0

    @property
    def name(self) -> str:
        """The name of the queue: topic/queueId."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def first_index(self) -> int:
        """The index of the first unit that fits in the files."""
        return self.folder.segments[0].start // UNIT if self.folder.segments else 0

    @property
    def files_end(self) -> int:
        """The index after the last unit that fits in the files."""
        if not self.folder.segments:
            return 0
        return (self.folder.segments[-1].start + self.file_size) // UNIT

    def read(self, index: int, count: int) -> bytes:
        """Return the bytes of up to `count` units from `index` on: zeros for a missing file, fewer at the end."""
        count = min(count, self.files_end - index)
        address, end, parts = index * UNIT, (index + count) * UNIT, []
        while address < end:
            at = self.folder.at(address)
            segment = self.folder.segments[at] if at >= 0 else None
            if segment is not None and address < segment.start + self.file_size:
                stop = min(end, segment.start + self.file_size)
                data = read_at(segment.path, address - segment.start, stop - address)
            else:
                stop, data = min(end, self.folder.segments[at + 1].start), b""
            parts.append(data.ljust(stop - address, b"\0"))
            address = stop
        return b"".join(parts)

    def unit_bytes(self, index: int) -> bytes:
        """Return one unit, from the last block read or a new one; b"" after the files."""
        at = (index - self._block_index) * UNIT
        if not 0 <= at < len(self._block):
            self._block, self._block_index, at = self.read(index, self.block_units), index, 0
        return self._block[at:at + UNIT]

    def fresh_unit(self, index: int, look_for_files: bool = False) -> bytes:
        """Return one unit as it is on disk now; with `look_for_files`, also from files created since."""
        if look_for_files and index >= self.files_end:
            self.folder = list_folder([self.path])
            self.file_size = self.file_size or self.folder.file_size
        return self.read(index, 1)

    def end_index(self) -> int:
        """Return the index after the last valid unit, found in the last file that begins with one."""
        for segment in reversed(self.folder.segments):
            data = read_at(segment.path, 0, self.file_size)
            count = count_valid_units(data)
            if count:
                return segment.start // UNIT + count
        return self.first_index

    def index_of_offset(self, phy_offset: int) -> int:
        """Return the index of the first valid unit that points at `phy_offset` or later; `end_index()` if none does."""
        for segment in self.folder.segments:
            data = read_at(segment.path, 0, self.file_size)
            count = count_valid_units(data)
            fillers = _leading_fillers(data, count)
            found = fillers + first_unit_at(data[fillers * UNIT:], count - fillers, phy_offset)
            if found < count:
                return segment.start // UNIT + found
        return self.end_index()

    def position(self, index: int) -> tuple[str, int]:
        """Return (path, byte position) of a unit, for error texts."""
        address = index * UNIT
        at = self.folder.at(address)
        if at < 0:
            return self.path, address
        segment = self.folder.segments[at]
        return segment.path, address - segment.start


def unpack(data: bytes) -> Unit:
    """Return the unit of 20 bytes."""
    return Unit._make(CQ_UNIT.unpack(data))


def _leading_fillers(data: bytes, count: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if CQ_UNIT.unpack_from(data, middle * UNIT)[:2] == BLANK_POSITION:
            low = middle + 1
        else:
            high = middle
    return low


def list_queues(consume_queue_path: str) -> tuple[dict[QueueKey, str], list[str]]:
    """Return (topic, queue id) -> folder, and all other entries: folders that are not queues, and files."""
    queues, foreign = {}, []
    for topic in _entries(consume_queue_path):
        if not topic.is_dir():
            foreign.append(topic.path)
            continue
        for queue in _entries(topic.path):
            if queue.is_dir() and queue.name.isascii() and queue.name.isdigit() and len(queue.name) <= 10:
                queues[topic.name, int(queue.name)] = queue.path
            else:
                foreign.append(queue.path)
    return queues, foreign


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(path), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def ext_position(tags_code: int) -> int | None:
    """Return the position in the extension files that a tags code encodes; None for a real tags code."""
    return tags_code - _LONG_MIN if tags_code <= MAX_EXT_ADDR else None


ENTRIES_AT_ONCE = 65536
_MAX_CHAIN = 1 << 20


class IndexHead(NamedTuple):
    """The header of an index file; times in ms."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    slot_count: int
    index_count: int


class IndexEntry(NamedTuple):
    """Entry `number` of an index file."""

    number: int
    key_hash: int
    phy_offset: int
    seconds: int
    previous: int


class IndexReader:
    """An index file; `head` was read when this was created. `shape`: None if it can't be determined."""

    def __init__(self, path: str, size: int, told: Shape | None = None) -> None:
        self.path = path
        self.size = size
        self._read_head()
        self.shape = told if told is not None else self._find_shape()
        # A running broker may have been changing the head.
        if self.shape is None and not self.is_empty:
            self._read_head()
            self.shape = self._find_shape()

    def _read_head(self) -> None:
        data = read_at(self.path, 0, INDEX_HEADER_SIZE).ljust(INDEX_HEADER_SIZE, b"\0")
        head = IndexHead._make(HEADER.unpack(data))
        self.head_count_on_disk = head.index_count
        self.head = head._replace(index_count=max(head.index_count, 1))

    @property
    def name(self) -> str:
        """The file's name: the local time of its creation."""
        return os.path.basename(self.path)

    @property
    def is_empty(self) -> bool:
        """True if no entry was written yet."""
        return self.head.index_count <= 1

    def _find_shape(self) -> Shape | None:
        """Return the usual shape if the file has the usual size, else the shape determined from the entries."""
        if self.size == file_size(*USUAL):
            return USUAL
        with open(open_regular(self.path), "rb") as file:
            return shape_of(file)

    def entries(self, shape: Shape, first: int = 1, end: int | None = None) -> Iterator[IndexEntry]:
        """Yield entries `first` up to `end` (by default all that the header counts); fewer if the file ends earlier."""
        end = min(self.head.index_count if end is None else end, shape.entries)
        at = INDEX_HEADER_SIZE + shape.slots * HASH_SLOT_SIZE
        for number in range(first, end, ENTRIES_AT_ONCE):
            count = min(ENTRIES_AT_ONCE, end - number)
            data = read_at(self.path, at + number * INDEX_SIZE, count * INDEX_SIZE)
            whole = len(data) // INDEX_SIZE
            for index, fields in enumerate(ENTRY.iter_unpack(data[:whole * INDEX_SIZE]), number):
                yield IndexEntry(index, *fields)
            if whole < count:
                return

    def slots(self, shape: Shape) -> "array[int]":
        """Return the slots: the number of the newest entry of each; padded with 0 if the file ends earlier."""
        size = shape.slots * HASH_SLOT_SIZE
        slots = array("i", read_at(self.path, INDEX_HEADER_SIZE, size).ljust(size, b"\0"))
        if struct.pack("=i", 1) != struct.pack(">i", 1):
            slots.byteswap()
        return slots

    def find(self, topic: str, key: str) -> Iterator[int]:
        """Yield the commit log offsets of messages that may have `key`, newest first."""
        if self.shape is None:
            return
        key_hash = index_key_hash_method(f"{topic}#{key}")
        at = INDEX_HEADER_SIZE + self.shape.slots * HASH_SLOT_SIZE
        data = read_at(self.path, INDEX_HEADER_SIZE + key_hash % self.shape.slots * HASH_SLOT_SIZE, HASH_SLOT_SIZE)
        number = SLOT.unpack(data)[0] if len(data) == HASH_SLOT_SIZE else 0
        bound = self.head.index_count
        for _ in range(_MAX_CHAIN):
            if not 0 < number < bound:
                return
            data = read_at(self.path, at + number * INDEX_SIZE, INDEX_SIZE)
            if len(data) < INDEX_SIZE:
                return
            entry_hash, phy_offset, _seconds, previous = ENTRY.unpack(data)
            if entry_hash == key_hash:
                yield phy_offset
            bound, number = number, previous


def list_index(path: str, told: Shape | None = None) -> tuple[list[IndexReader], list[str]]:
    """Return the index files, oldest first, and the other entries. Empty files get the shape of others of that size."""
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except FileNotFoundError:
        return [], []
    readers, foreign = [], []
    for entry in entries:
        if entry.is_file() and entry.name.isascii() and entry.name.isdigit():
            readers.append(IndexReader(entry.path, entry.stat().st_size, told))
        else:
            foreign.append(entry.path)
    known = {reader.size: reader.shape for reader in readers if reader.shape is not None}
    for reader in readers:
        if reader.shape is None:
            reader.shape = known.get(reader.size)
    return readers, foreign


_BLOCKS_OF_ALL_QUEUES = 64 << 20  # bytes
_CHECKPOINT = struct.Struct(">qqq")
_WHAT_TO_GIVE = "Give the broker's storePathRootDir, a folder of commit log files, or one of them."


class Checkpoint(NamedTuple):
    """The times in the checkpoint file, in ms."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int


class StoreReader:
    """A store. `live`: a broker holds its lock; `crashed`: none does, and the last one did not shut down cleanly."""

    def __init__(self, root: str, commit_log_paths: tuple[str, ...] = (), index_shape: Shape | None = None,
                 file_size: int | None = None) -> None:
        self.root = root
        self.live = reading.is_held(paths.get_lock_file(root))
        self.crashed = not self.live and os.path.exists(paths.get_abort_file(root))
        self.commit_log_paths = commit_log_paths or (os.path.join(root, "commitlog"),)
        missing = [path for path in self.commit_log_paths if not os.path.isdir(path)]
        if missing:
            raise CannotAnswerError(f"{missing[0]} is not a commit log folder. Give the broker's storePathRootDir, "
                                    "and its storePathCommitLog with --commitlog if that is elsewhere.")
        self.file_size = file_size
        self.log = self.log_now()
        self.index_shape = index_shape

    def log_now(self) -> CommitLogReader:
        """Return the commit log with the files that exist now."""
        return CommitLogReader(list_folder(self.commit_log_paths), self.file_size, self.live)

    @property
    def state(self) -> str:
        """The state in one word."""
        return "running" if self.live else "crashed" if self.crashed else "stopped"

    @property
    def may_be_torn(self) -> bool:
        """True if the ends of files may be incomplete: a running broker is writing, or a start has to recover them."""
        return self.live or self.crashed

    @property
    def consume_queue_path(self) -> str:
        """The folder of the consume queues."""
        return paths.get_store_path_consume_queue(self.root)

    @property
    def index_path(self) -> str:
        """The folder of the index files."""
        return paths.get_store_path_index(self.root)

    def queues(self) -> tuple[dict[QueueKey, QueueReader], list[str]]:
        """Return the consume queues, and the foreign entries in their folder."""
        found, foreign = list_queues(self.consume_queue_path)
        block_units = max(min(_BLOCKS_OF_ALL_QUEUES // 20 // max(len(found), 1), 16384), 64)
        return {key: QueueReader(*key, path, block_units=block_units) for key, path in found.items()}, foreign

    def ext_folder(self, key: QueueKey) -> Folder:
        """Return the extension files of a consume queue."""
        return list_folder([os.path.join(paths.get_store_path_consume_queue_ext(self.root), key[0], str(key[1]))])

    def index_files(self) -> tuple[list[IndexReader], list[str]]:
        """Return the index files, oldest first, and the foreign entries in their folder."""
        return list_index(self.index_path, self.index_shape)

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint file."""
        return paths.get_store_checkpoint(self.root)

    def deleted_topics(self) -> dict[str, int]:
        """Return the marks of deleted topics, see read_deleted_topics; CannotAnswerError when their file is invalid."""
        try:
            return read_deleted_topics(self.root)
        except ValueError as error:
            raise CannotAnswerError(str(error)) from None

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint, or None when it is missing or too short."""
        data = read_at(self.checkpoint_path, 0, _CHECKPOINT.size)
        return Checkpoint._make(_CHECKPOINT.unpack(data)) if len(data) == _CHECKPOINT.size else None


def open_log(path: str) -> CommitLogReader:
    """Return the commit log of a store, of a folder of commit log files, or of one such file. CannotAnswerError for
    anything else."""
    log = _log_of(path)
    if not log.looks_like_one():
        raise CannotAnswerError(f"{path} is not a commit log: {log.folder.segments[0].path} contains no message. "
                                f"{_WHAT_TO_GIVE}")
    return log


def _log_of(path: str) -> CommitLogReader:
    if os.path.isfile(path):
        return CommitLogReader(Folder([_single_file(path)], []), live=_is_live(os.path.dirname(path)))
    if os.path.exists(path) and not os.path.isdir(path):
        raise CannotAnswerError(f"{path} is neither a folder nor a regular file. {_WHAT_TO_GIVE}")
    inner = os.path.join(path, "commitlog")
    if os.path.isdir(inner):
        return CommitLogReader(list_folder([inner]), live=_is_live(inner))
    folder = list_folder([path])
    if not folder.segments:
        raise CannotAnswerError(f"{path} has no folder commitlog and no commit log files. {_WHAT_TO_GIVE}")
    return CommitLogReader(folder, live=_is_live(path))


def _is_live(commit_log_path: str) -> bool:
    """Return whether a broker runs on the store that this commit log folder belongs to."""
    return reading.is_held(paths.get_lock_file(os.path.dirname(os.path.abspath(commit_log_path))))


def _single_file(path: str) -> Segment:
    """Return a single file; if its name is not an offset, it begins at the offset that its first record contains."""
    size = os.stat(path).st_size
    if not size and not is_segment_name(os.path.basename(path)):
        raise CannotAnswerError(f"{path} is empty. {_WHAT_TO_GIVE}")
    if is_segment_name(os.path.basename(path)):
        return Segment(int(os.path.basename(path)), path, size)
    log = CommitLogReader(Folder([Segment(0, path, size)], []))
    first = log.record_at(0, check_crc=False)
    return Segment(max(first.physical_offset, 0) if first is not None else 0, path, size)
