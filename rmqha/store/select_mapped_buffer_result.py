"""A slice of a mapped file together with a share of the file."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.mapped_file import MappedFile


class SelectMappedBufferResult:
    """`size` bytes at commit log (or queue) offset `start_offset`, read in place through `buffer`.

    Use it as a context manager or call `release` once done: first the view goes, then the share of the file.
    Releasing twice does nothing.

    Java: org.apache.rocketmq.store.SelectMappedBufferResult (4.9.8)
    """

    __slots__ = ("start_offset", "buffer", "size", "mapped_file")

    def __init__(self, start_offset: int, buffer: memoryview, size: int, mapped_file: MappedFile | None) -> None:
        self.start_offset = start_offset
        self.buffer = buffer
        self.size = size
        self.mapped_file = mapped_file

    def release(self) -> None:
        """Let go of the view and of the file."""
        mapped_file, self.mapped_file = self.mapped_file, None
        if mapped_file is not None:
            self.buffer.release()
            mapped_file.release()

    def __enter__(self) -> SelectMappedBufferResult:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()
