"""What replication needs of a log, so that it needs no store: the store gives it, and in tests segments in memory."""
from __future__ import annotations

from typing import Protocol

from rmqha.store.results import SelectMappedBufferResult


class LogReader(Protocol):
    """A commit log to read from; offsets are bytes since the first message ever."""

    @property
    def mapped_file_size(self) -> int:
        """Bytes of each of its files."""

    def get_min_phy_offset(self) -> int:
        """Where the log begins; -1 when it has no file."""

    def get_max_phy_offset(self) -> int:
        """Where it ends."""

    def get_commit_log_data(self, offset: int) -> SelectMappedBufferResult | None:
        """All log bytes from `offset` to the end of its file; None when there are none. The caller releases it."""


class ReplicatedLog(LogReader, Protocol):
    """A commit log that a master serves and a slave extends. What changes it is called by one thread at a time.

    Java: org.apache.rocketmq.store.DefaultMessageStore (4.9.8)
    """

    @property
    def is_shutdown(self) -> bool:
        """Whether it takes nothing now."""

    def append_to_commit_log(self, start_offset: int, data: bytes | bytearray | memoryview, data_start: int,
                             data_length: int) -> bool:
        """Append a piece of the master's log, which begins at `start_offset`; False when it can't be written."""

    def flush_up_to(self, offset: int) -> bool:
        """Flush until all below `offset` is on the disk; False when that fails."""

    def end_of_whole_records(self) -> int:
        """Where the last whole record ends; the log's end when nothing is cut off."""

    def truncate_dirty_files(self, offset: int) -> None:
        """Drop everything at and behind `offset`, and what points there."""

    def cut_off(self, offset: int) -> None:
        """`truncate_dirty_files`, and have what is left on the disk."""


def get_log_bytes(log: LogReader, offset: int, size: int) -> bytes:
    """The log's bytes from `offset` on, `size` at most; fewer at the end of a file, none where it has none."""
    result = log.get_commit_log_data(offset)
    if result is None:
        return b""
    with result:
        with result.buffer[:size] as view:
            return bytes(view)
