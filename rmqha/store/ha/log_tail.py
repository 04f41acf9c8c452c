"""Checksums of the end of a log, for the handshake."""
from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.store.ha import ha_handshake
from rmqha.store.log_checksums import block_checksums

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


def read_tail(store: DefaultMessageStore, offset: int, size: int) -> int | None:
    """CRC32 of `size` bytes at commit log `offset`; None when the log does not hold them all."""
    crcs = block_checksums(store, offset, size, 1)
    return crcs[0] if crcs else None


def introduction(store: DefaultMessageStore, identity: str) -> ha_handshake.Who:
    """What a slave says of itself and of its log."""
    end = store.get_max_phy_offset()
    begin, size = ha_handshake.tail_place(end, max(0, store.get_min_phy_offset()),
                                          store.message_store_config.mappedFileSizeCommitLog)
    crc = read_tail(store, begin, size) if size else 0
    return ha_handshake.Who(identity, end, size, crc) if crc is not None else ha_handshake.Who(identity, end, 0, 0)
