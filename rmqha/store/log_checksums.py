"""Checksums of blocks of the commit log, by which two replicas compare their logs."""
from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


def block_checksums(store: DefaultMessageStore, offset: int, block_size: int, count: int,
                    blocks: list[bytes] | None = None) -> list[int]:
    """CRC32 of each of `count` blocks from commit log `offset` on, up to the first that the log does not hold whole.

    `blocks` gets these blocks.
    """
    crcs: list[int] = []
    pieces: list[bytes] = []
    crc, missing = 0, block_size  # of the block that is begun
    while len(crcs) < count:
        result = store.get_commit_log_data(offset)
        if result is None:
            break
        with result:
            if result.start_offset != offset:  # for 0 the store gives its first file, wherever that begins
                break
            position = 0
            while position < result.size and len(crcs) < count:
                with result.buffer[position:position + missing] as piece:
                    crc = zlib.crc32(piece, crc)
                    if blocks is not None:
                        pieces.append(bytes(piece))
                    position, missing = position + len(piece), missing - len(piece)
                if not missing:
                    crcs.append(crc)
                    if blocks is not None:
                        blocks.append(b"".join(pieces))
                        pieces = []
                    crc, missing = 0, block_size
            offset += position
    return crcs
