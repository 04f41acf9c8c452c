"""Address spaces of files named by the offset of their first byte: commit logs, consume queues, their extensions."""
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rmqha.common.filesystem import Segment, list_segments


class Folder(NamedTuple):
    """The files of one address space in order, and the paths of all other entries."""

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
            found, others = list_segments(path)
        except FileNotFoundError:
            continue
        segments += found
        foreign += others
    return Folder(sorted(segments), sorted(foreign))
