"""The answer to GET_COMMIT_LOG_CHECKSUMS: for each block from the first on a CRC32, in 4 bytes, big-endian.

It ends in front of the first block that the log does not hold whole. Where the bytes are asked for, too, those of these
blocks follow.
"""
import struct
from collections.abc import Sequence

from rmqha.common.lazy_tuples import NamedTuple

_CRC_SIZE = 4


class LogChecksums(NamedTuple):
    """The range of a broker's commit log, and the CRC32 of each block that was asked for and is there."""

    min_offset: int
    max_offset: int
    crcs: tuple[int, ...]


def encode(crcs: Sequence[int]) -> bytes:
    """The body of the answer."""
    return struct.pack(f">{len(crcs)}I", *crcs)


def decode(body: bytes | memoryview, count: int) -> tuple[int, ...]:
    """The checksums of at most `count` blocks; ValueError when the body has another form."""
    size = len(body)
    if size % _CRC_SIZE or size > count * _CRC_SIZE:
        raise ValueError(f"{size} bytes are not the checksums of at most {count} blocks")
    return struct.unpack(f">{size // _CRC_SIZE}I", body)


def decode_with_bytes(body: bytes | memoryview, count: int, block_size: int) -> tuple[tuple[int, ...], bytes]:
    """The checksums of at most `count` blocks, and the blocks; ValueError when the body has another form."""
    each = _CRC_SIZE + block_size
    found = len(body) // each
    if len(body) % each or found > count:
        raise ValueError(f"{len(body)} bytes are not at most {count} blocks of {block_size} bytes with their checksums")
    return decode(body[:found * _CRC_SIZE], count), bytes(body[found * _CRC_SIZE:])
