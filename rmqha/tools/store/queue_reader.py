"""The units of one consume queue, read in blocks."""
import os
from typing import NamedTuple

from rmqha.common.filesystem import read_at
from rmqha.store.consume_queue_layout import (
    BLANK_POSITION,
    CQ_STORE_UNIT_SIZE,
    CQ_UNIT,
    MAX_EXT_ADDR,
    count_valid_units,
    first_unit_at,
)
from rmqha.tools.store.segments import Folder, list_folder

UNIT = CQ_STORE_UNIT_SIZE
_LONG_MIN = -(1 << 63)
_CHUNK_UNITS = 16384

QueueKey = tuple[str, int]


class Unit(NamedTuple):
    """Commit log offset, size and tags code."""

    offset: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """Whether it stands before the first message of a queue that began in the middle."""
        return (self.offset, self.size) == BLANK_POSITION

    @property
    def is_valid(self) -> bool:
        """Whether recovery would take it for a unit."""
        return self.offset >= 0 and self.size > 0


class QueueReader:
    """One queue. `block_units`: how many units are read at a time when they are asked for one by one."""

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
        """topic/queueId."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def first_index(self) -> int:
        """Index of the first unit that the files have room for."""
        return self.folder.segments[0].start // UNIT if self.folder.segments else 0

    @property
    def files_end(self) -> int:
        """Index behind the last unit that the files have room for."""
        if not self.folder.segments:
            return 0
        return (self.folder.segments[-1].start + self.file_size) // UNIT

    def read(self, index: int, count: int) -> bytes:
        """The bytes of up to `count` units from `index` on; zeros where a file is missing, short where all end."""
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
        """One unit, from the block that was read last or a new one; b"" behind the files."""
        at = (index - self._block_index) * UNIT
        if not 0 <= at < len(self._block):
            self._block, self._block_index, at = self.read(index, self.block_units), index, 0
        return self._block[at:at + UNIT]

    def fresh_unit(self, index: int, look_for_files: bool = False) -> bytes:
        """One unit as it is on disk now; in files that came since, too, with `look_for_files`."""
        if look_for_files and index >= self.files_end:
            self.folder = list_folder([self.path])
            self.file_size = self.file_size or self.folder.file_size
        return self.read(index, 1)

    def end_index(self) -> int:
        """Index behind the last valid unit, found in the last file that begins with one."""
        for segment in reversed(self.folder.segments):
            data = read_at(segment.path, 0, self.file_size)
            count = count_valid_units(data)
            if count:
                return segment.start // UNIT + count
        return self.first_index

    def index_of_offset(self, phy_offset: int) -> int:
        """Index of the first valid unit that points at `phy_offset` of the log or behind; `end_index()` for none."""
        for segment in self.folder.segments:
            data = read_at(segment.path, 0, self.file_size)
            count = count_valid_units(data)
            fillers = _leading_fillers(data, count)
            found = fillers + first_unit_at(data[fillers * UNIT:], count - fillers, phy_offset)
            if found < count:
                return segment.start // UNIT + found
        return self.end_index()

    def position(self, index: int) -> tuple[str, int]:
        """(path, byte position) of a unit, for messages."""
        address = index * UNIT
        at = self.folder.at(address)
        if at < 0:
            return self.path, address
        segment = self.folder.segments[at]
        return segment.path, address - segment.start


def unpack(data: bytes) -> Unit:
    """The unit of 20 bytes."""
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
    """(topic, queue id) -> folder, and what lies beside them: folders that are no queue, files where folders belong."""
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
    """Position in the extension files that a tags code stands for; None when it is a tags code."""
    return tags_code - _LONG_MIN if tags_code <= MAX_EXT_ADDR else None
