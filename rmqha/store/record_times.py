"""When records were stored, found from any byte of the log: a record knows its own place, so that nothing else looks
like one. Pure functions, and two that read a store.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.common.message.message_layout import (
    INT,
    LONG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    MIN_RECORD_LENGTH,
    PHYSICAL_OFFSET_POSITION,
    SYSFLAG_POSITION,
    store_timestamp_position,
)

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

_MAGIC = INT.pack(MESSAGE_MAGIC_CODE)
_WINDOWS = (64 * 1024, 1024 * 1024, 20 * 1024 * 1024)  # bytes looked through; the last one holds the largest record


def first_store_timestamp(data: bytes, offset: int) -> int | None:
    """Store time (ms) of the first record that begins in `data`, whose first byte is at commit log `offset`."""
    at = data.find(_MAGIC)
    while at >= 0:
        found = _store_timestamp(data, at - MESSAGE_MAGIC_CODE_POSITION, offset)
        if found is not None:
            return found
        at = data.find(_MAGIC, at + 1)
    return None


def last_store_timestamp(data: bytes, offset: int) -> int | None:
    """Store time (ms) of the last record that begins in `data`, whose first byte is at commit log `offset`."""
    at = data.rfind(_MAGIC)
    while at >= 0:
        found = _store_timestamp(data, at - MESSAGE_MAGIC_CODE_POSITION, offset)
        if found is not None:
            return found
        at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
    return None


def store_timestamp_from(store: DefaultMessageStore, offset: int) -> int | None:
    """Store time (ms) of the first record at or behind `offset`; None when the log has none there."""
    file_size = store.message_store_config.mappedFileSizeCommitLog
    for begin in (offset, offset - offset % file_size + file_size):  # behind the last record of a file is only a blank
        for window in _WINDOWS:
            data = _log_bytes(store, begin, window)
            found = first_store_timestamp(data, begin)
            if found is not None:
                return found
            if len(data) < window:
                break
    return None


def newest_store_timestamp(store: DefaultMessageStore) -> int | None:
    """Store time (ms) of the last record of the log; None for an empty one."""
    end = store.get_max_phy_offset()
    file_size = store.message_store_config.mappedFileSizeCommitLog
    for window in _WINDOWS:
        begin = max(end - window, end - 1 - (end - 1) % file_size)
        found = last_store_timestamp(_log_bytes(store, begin, end - begin), begin) if end > 0 else None
        if found is not None or begin > end - window:
            return found
    return None


def _store_timestamp(data: bytes, start: int, offset: int) -> int | None:
    if start < 0 or len(data) - start < MIN_RECORD_LENGTH:
        return None
    if LONG.unpack_from(data, start + PHYSICAL_OFFSET_POSITION)[0] != offset + start:
        return None
    sys_flag = INT.unpack_from(data, start + SYSFLAG_POSITION)[0]
    stored: int = LONG.unpack_from(data, start + store_timestamp_position(sys_flag))[0]
    return stored


def _log_bytes(store: DefaultMessageStore, offset: int, size: int) -> bytes:
    result = store.get_commit_log_data(offset)
    if result is None:
        return b""
    with result:
        with result.buffer[:size] as view:
            return bytes(view)
