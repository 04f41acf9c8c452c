"""The body of the answer to GET_COMMIT_LOG_CHECKSUMS: the CRC32 of each requested block, in 4 bytes, big-endian.

It ends before the first block that the log does not hold completely. If the request asks for the bytes too, the bytes
of the same blocks follow.
"""
import struct
from collections.abc import Sequence

from rmqha.common.lazy_tuples import NamedTuple

_CRC_SIZE = 4


class LogChecksums(NamedTuple):
    """The range of a broker's commit log, and the CRC32 of each requested block that exists."""

    min_offset: int
    max_offset: int
    crcs: tuple[int, ...]


def encode(crcs: Sequence[int]) -> bytes:
    """Return the body of the answer."""
    return struct.pack(f">{len(crcs)}I", *crcs)


def decode(body: bytes | memoryview, count: int) -> tuple[int, ...]:
    """Return the checksums of at most `count` blocks; ValueError for a malformed body."""
    size = len(body)
    if size % _CRC_SIZE or size > count * _CRC_SIZE:
        raise ValueError(f"{size} bytes are not the checksums of at most {count} blocks")
    return struct.unpack(f">{size // _CRC_SIZE}I", body)


def decode_with_bytes(body: bytes | memoryview, count: int, block_size: int) -> tuple[tuple[int, ...], bytes]:
    """Return the checksums of at most `count` blocks, and the blocks; ValueError for a malformed body."""
    each = _CRC_SIZE + block_size
    found = len(body) // each
    if len(body) % each or found > count:
        raise ValueError(f"{len(body)} bytes are not at most {count} blocks of {block_size} bytes with their checksums")
    return decode(body[:found * _CRC_SIZE], count), bytes(body[found * _CRC_SIZE:])
