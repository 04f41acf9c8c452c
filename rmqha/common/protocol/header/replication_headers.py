"""Headers of comparing the logs of replicas."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    not_null,
    nullable,
)

MAX_BLOCK_SIZE = 1 << 20
MAX_BLOCKS = 4096
MAX_RANGE = 16 << 20  # bytes that one request may have read
MAX_BYTES = 1 << 20  # bytes that one request may get


@dataclass
class GetCommitLogChecksumsRequestHeader(CommandCustomHeader):
    """rmqha's own: the CRC32 of `count` blocks of `blockSize` bytes from commit log `offset` on.

    `count * blockSize` is at most MAX_RANGE. `withBytes`: the blocks themselves, too, then MAX_BYTES at most.
    """

    offset: int = not_null(LONG)
    blockSize: int = not_null(INTEGER)
    count: int = not_null(INTEGER)
    withBytes: bool = nullable(default=False)

    def check_fields(self) -> None:
        """Bound what one request reads and gets."""
        if self.offset < 0:
            raise HeaderFieldError(f"offset is {self.offset}, and must not be negative")
        if not 1 <= self.blockSize <= MAX_BLOCK_SIZE:
            raise HeaderFieldError(f"blockSize is {self.blockSize}, and must be from 1 to {MAX_BLOCK_SIZE}")
        if not 1 <= self.count <= MAX_BLOCKS:
            raise HeaderFieldError(f"count is {self.count}, and must be from 1 to {MAX_BLOCKS}")
        if self.blockSize * self.count > MAX_RANGE:
            raise HeaderFieldError(f"{self.count} blocks of {self.blockSize} bytes are {self.blockSize * self.count} "
                                   f"bytes; a request may ask for {MAX_RANGE}")
        if self.withBytes and self.blockSize * self.count > MAX_BYTES:
            raise HeaderFieldError(f"{self.blockSize * self.count} bytes are asked for; a request may get {MAX_BYTES}")


@dataclass
class GetCommitLogChecksumsResponseHeader(CommandCustomHeader):
    """rmqha's own: where the log begins and ends. The body has the checksums: see `log_checksums`."""

    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)
