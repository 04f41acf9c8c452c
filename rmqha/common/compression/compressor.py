"""What a compressor does."""
from typing import Protocol

# Differs: Java inflates without a limit; here a body may not grow beyond this, so a small one can't fill the memory.
MAX_DECOMPRESSED_SIZE = 256 * 1024 * 1024


class CompressionError(ValueError):
    """Bytes that do not decompress, or to more than the limit; or the type's library is missing."""


class Compressor(Protocol):
    """Bodies to and from their compressed form. Stateless.

    Java: org.apache.rocketmq.common.compression.Compressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """The compressed form."""

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """The plain form; CompressionError for damage and above `max_size` bytes."""
