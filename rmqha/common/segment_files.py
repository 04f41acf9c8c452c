"""Files named by the offset of their first byte: of commit logs, consume queues and their extensions. Read only."""
import os
from typing import NamedTuple

from rmqha.common.regular_file import open_regular

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

    @property
    def end(self) -> int:
        """Offset behind its last byte."""
        return self.start + self.size


def is_segment_name(name: str) -> bool:
    """Whether `name` is an offset of 20 digits that fits 63 bits."""
    return len(name) == NAME_LENGTH and name.isascii() and name.isdigit() and int(name) < 1 << 63


def list_segments(path: str) -> tuple[list[Segment], list[str]]:
    """The files of one folder in order, and the paths of what else is in it. OSError when there is no such folder."""
    segments, foreign = [], []
    for entry in list(os.scandir(path)):
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
    return sorted(segments), foreign


def read_at(path: str, position: int, size: int) -> bytes:
    """Up to `size` bytes of a file from `position` on; b"" when there is no such file any more. OSError."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return b""
    try:
        return pread(fd, size, position)
    finally:
        os.close(fd)


def pread(fd: int, size: int, position: int) -> bytes:
    """Like os.pread, but only shorter than `size` where the file ends; nothing for a negative size."""
    data = os.pread(fd, max(size, 0), position)
    if len(data) == size or not data:
        return data
    parts, got = [data], len(data)
    while got < size and (data := os.pread(fd, size - got, position + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)
