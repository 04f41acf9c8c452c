"""The interface of a commit log that replication uses.

It lets replication run without a store: the store implements it, and so do in-memory segments in tests.
"""
from __future__ import annotations

from typing import Protocol

from rmqha.store.results import SelectMappedBufferResult


class LogReader(Protocol):
    """A readable commit log; offsets are bytes since the first message that the log ever had."""

    @property
    def mapped_file_size(self) -> int:
        """Size of each of its files in bytes."""

    def get_min_phy_offset(self) -> int:
        """Return the offset at which the log begins; -1 when it has no file."""

    def get_max_phy_offset(self) -> int:
        """Return the offset at which the log ends."""

    def get_commit_log_data(self, offset: int) -> SelectMappedBufferResult | None:
        """Return all log bytes from `offset` to the end of its file; None when there are none.

        The caller releases the result.
        """


class ReplicatedLog(LogReader, Protocol):
    """A commit log that a master serves and a slave extends. Only one thread at a time calls methods that change it.

    Java: org.apache.rocketmq.store.DefaultMessageStore (4.9.8)
    """

    @property
    def is_shutdown(self) -> bool:
        """True while the log accepts no appends."""

    def append_to_commit_log(self, start_offset: int, data: bytes | bytearray | memoryview, data_start: int,
                             data_length: int) -> bool:
        """Append bytes of the master's log that begin at `start_offset`; return False when they can't be written."""

    def flush_up_to(self, offset: int) -> bool:
        """Flush until everything below `offset` is on disk; return False when that fails."""

    def end_of_whole_records(self) -> int:
        """Return the offset at which the last complete record ends: the log's end unless its last record is cut off."""

    def truncate_dirty_files(self, offset: int) -> None:
        """Drop everything from `offset` on, and all queue and index entries that refer to it."""

    def cut_off(self, offset: int) -> None:
        """Call `truncate_dirty_files`, then flush the rest of the log to disk."""


def get_log_bytes(log: LogReader, offset: int, size: int) -> bytes:
    """Return up to `size` bytes of the log from `offset` on: fewer at the end of a file, none where it holds none."""
    result = log.get_commit_log_data(offset)
    if result is None:
        return b""
    with result:
        with result.buffer[:size] as view:
            return bytes(view)
