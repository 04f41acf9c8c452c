"""Checksums of blocks of the commit log, by which two replicas compare their logs."""
from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


def block_checksums(store: DefaultMessageStore, offset: int, block_size: int, count: int) -> list[int]:
    """CRC32 of each of `count` blocks from commit log `offset` on, up to the first that the log does not hold whole."""
    crcs: list[int] = []
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
                    position, missing = position + len(piece), missing - len(piece)
                if not missing:
                    crcs.append(crc)
                    crc, missing = 0, block_size
            offset += position
    return crcs
