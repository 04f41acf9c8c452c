"""Folders of files named by the offset of their first byte: commit logs, consume queues and their extensions."""
import os
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

NAME_LENGTH = 20  # digits


class Segment(NamedTuple):
    """One file; `size` is what it had when the folder was listed."""

    start: int
    path: str
    size: int

    @property
    def name(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)


class Folder(NamedTuple):
    """The files of one address space in order, and the paths of entries that are none."""

    segments: list[Segment]
    foreign: list[str]

    @property
    def file_size(self) -> int:
        """The size that most of the files have, the larger one of two; 0 without files."""
        counted = Counter(segment.size for segment in self.segments if segment.size > 0)
        return max(counted, key=lambda size: (counted[size], size), default=0)

    def at(self, offset: int) -> int:
        """Index of the last file that begins at or before `offset`; -1 for none."""
        index = len(self.segments) - 1
        while index >= 0 and self.segments[index].start > offset:
            index -= 1
        return index


def list_folder(paths: Iterable[str]) -> Folder:
    """The files of one address space, which may be spread over several folders; a folder that is missing is empty."""
    segments, foreign = [], []
    for path in paths:
        try:
            entries = list(os.scandir(path))
        except FileNotFoundError:
            continue
        for entry in entries:
            try:
                is_file, size = entry.is_file(), entry.stat().st_size
            except FileNotFoundError:  # a running broker removed it meanwhile, or a link that leads nowhere
                is_file, size = False, 0
                if not os.path.lexists(entry.path):
                    continue
            if is_file and is_segment_name(entry.name):
                segments.append(Segment(int(entry.name), entry.path, size))
            else:
                foreign.append(entry.path)
    return Folder(sorted(segments), sorted(foreign))


def is_segment_name(name: str) -> bool:
    """Whether `name` is an offset of 20 digits that fits 63 bits."""
    return len(name) == NAME_LENGTH and name.isascii() and name.isdigit() and int(name) < 1 << 63


def read_at(path: str, position: int, size: int) -> bytes:
    """Up to `size` bytes of a file from `position` on; b"" when there is no such file any more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return pread(fd, size, position)
    finally:
        os.close(fd)


def pread(fd: int, size: int, position: int) -> bytes:
    """Like os.pread, but only shorter than `size` where the file ends."""
    data = os.pread(fd, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    position += len(data)
    size -= len(data)
    while size > 0 and (data := os.pread(fd, size, position)):
        parts.append(data)
        position += len(data)
        size -= len(data)
    return b"".join(parts)
