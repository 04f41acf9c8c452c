"""Comparing a log with that of a master which compares no checksums: by single records that its main port shows.

VIEW_MESSAGE_BY_ID, which RocketMQ knows as well, gives the bytes of the record at an offset. A record names its place
and the time when it was stored: where one is the same, so are all before it.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.message.message_layout import HEAD
from rmqha.store.ha.log_comparison import ComparisonError, is_blank, record_sizes, record_start

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

_WINDOW = 64 * 1024 * 1024  # bytes that are searched for the first other record

# The master's record at an offset: b"" when it has none there and has deleted none, None when it can't be told.
AskRecord = Callable[[int], bytes | None]


def ends_as_master(store: DefaultMessageStore, end: int, ask: AskRecord) -> bool | None:
    """Whether the last record before `end` is the master's, too; None when it can't be told."""
    start = _last_record(store, end)
    if start < 0:
        return None
    theirs = ask(start)
    return None if theirs is None else theirs == _record(store, start)


def first_other_record(store: DefaultMessageStore, end: int, ask: AskRecord) -> int:
    """Where the first record before `end` begins that is not the master's; -1 when no record is known to be the same.

    ComparisonError: it can't be told now.
    """
    low = max(0, store.get_min_phy_offset())
    first = record_start(store, max(low, end - _WINDOW))
    starts, at = [], first
    for size in record_sizes(store, first, end) if first >= low else ():
        if not is_blank(store, at):  # no main port shows one
            starts.append(at)
        at += size

    def is_other(start: int) -> bool:
        theirs = ask(start)
        if theirs is None:
            raise ComparisonError(f"the master does not tell what it has at {start}")
        return theirs != _record(store, start)
    index = bisect_left(starts, True, key=is_other)
    return starts[index] if 0 < index < len(starts) else -1


def _last_record(store: DefaultMessageStore, end: int) -> int:
    """Where the last record begins that is whole before `end`; -1 when there is none."""
    start = record_start(store, end)
    while start >= max(0, store.get_min_phy_offset()):
        record = _record(store, start) if start < end and not is_blank(store, start) else b""
        if len(record) >= HEAD.size and HEAD.unpack_from(record)[0] == len(record) <= end - start:
            return start
        if start == 0:
            return -1
        start = record_start(store, start - 1)
    return -1


def _record(store: DefaultMessageStore, start: int) -> bytes:
    """The record that begins at `start`, as far as it is there."""
    result = store.get_commit_log_data(start)
    if result is None:
        return b""
    with result:
        return bytes(result.buffer[:next(record_sizes(store, start, start + 1))])
