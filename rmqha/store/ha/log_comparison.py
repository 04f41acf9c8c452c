"""Finding out up to where a slave's log is the same as its master's, by checksums that the master compares.

A loss of power may take the end of the master's log, and leave the slave more of it; what the master writes then lies
at the same offsets. So what is different ends where the slave's log does, and begins somewhere before. The last bytes
are compared in blocks, those before them while no record is the same, and in the first block that is different record
by record. A record names its place and the time when it was stored: where one is the same, so are all before it.
"""
from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from rmqha.common.message import message_layout
from rmqha.store.bulk import bulk
from rmqha.store.ha.greeting import Comparison
from rmqha.store.ha.ha_handshake import MAX_BLOCKS, Answer, Block, Finding, Question, Range, Verdict
from rmqha.store.ha.log_tail import read_tail

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

_BLOCK = 64 * 1024  # bytes
_WINDOW = 64 * 1024 * 1024  # bytes that are always compared
_MAX_WINDOWS = 256  # when nothing is the same; a log of another master is found out by the first one


class ComparisonError(Exception):
    """The logs could not be compared: one of the two has changed meanwhile. Another attempt may do."""


def compare_with_master(store: DefaultMessageStore, held: Range) -> Comparison:
    """What to make of this store's log beside a master's that holds `held`. Nobody appends meanwhile.

    GOOD: it is a part of the master's. NOT_HELD: the master has deleted what comes next. DIVERGED: it has an end that
    the master does not have, whether or not the master has other bytes there. ComparisonError: it can't be told now.
    """
    begin, end = max(0, store.get_min_phy_offset()), store.get_max_phy_offset()
    if end <= begin:
        return Finding(Verdict.GOOD, end)
    if end < held.min_offset:
        return Finding(Verdict.NOT_HELD, -1)
    low, high = max(begin, held.min_offset), min(end, held.max_offset)
    if low < high:
        same = yield from _Comparing(store, low, high).same_up_to()
        if same < high or end > held.max_offset:
            return Finding(Verdict.DIVERGED, same)
    return Finding(Verdict.GOOD, end) if end <= held.max_offset else Finding(Verdict.DIVERGED, -1)


def report_flaw(store: DefaultMessageStore, held: Range) -> Comparison:
    """Find DIVERGED at this log's end, for a master whose next record fails its checks.

    Nothing is asked: the two logs are the same as far as this one reaches.
    """
    yield from ()
    return Finding(Verdict.DIVERGED, store.get_max_phy_offset())


class _Comparing:
    """Of what both hold, the bytes from `low` to `high`."""

    def __init__(self, store: DefaultMessageStore, low: int, high: int) -> None:
        self._store = store
        self._low = low
        self._high = high

    def same_up_to(self) -> Generator[Question, Answer, int]:
        """`high` when all that was compared is the same and a record ends there, else where the first other record
        begins; -1 when nothing is known to be the same."""
        position = self._high
        for _ in range(_MAX_WINDOWS):
            start = record_start(self._store, max(self._low, position - _WINDOW))
            if start > self._low and is_blank(self._store, start):  # one is like the other
                start = record_start(self._store, start - 1)
            if start < self._low:
                return -1
            # The first block is one whole record. Less of it says nothing: what is sent again after a loss may have its
            # body at the same place.
            sizes = [min(next(record_sizes(self._store, start, position)), position - start)]
            sizes += [min(_BLOCK, position - at) for at in range(start + sizes[0], position, _BLOCK)]
            equal = yield from self._ask(start, sizes)
            if equal:
                break
            position = start
            if start == self._low:
                return -1
        else:
            return -1
        if equal < len(sizes):
            return (yield from self._first_different_record(start + sum(sizes[:equal]), sizes[equal]))
        if position < self._high:
            return self._known(position)  # the record that begins there is another one
        at_end = self._high == self._store.get_max_phy_offset()  # a record of which only a part came may be there
        return self._high if at_end else self._known(record_start(self._store, self._high))

    def _known(self, offset: int) -> int:
        return offset if offset > self._low else -1

    def _first_different_record(self, start: int, size: int) -> Generator[Question, Answer, int]:
        """Of the records that have bytes in a block that is different."""
        first = record_start(self._store, start)
        if first < self._low:
            return -1
        sizes = list(record_sizes(self._store, first, start + size))
        for at in range(0, len(sizes), MAX_BLOCKS):
            some = sizes[at:at + MAX_BLOCKS]
            equal = yield from self._ask(first, some)
            first += sum(some[:equal])
            if equal < len(some):
                return self._known(first)
        raise ComparisonError(f"the block at {start} was different, and its records are not")

    def _ask(self, offset: int, sizes: list[int]) -> Generator[Question, Answer, int]:
        """How many of these blocks the master holds, too, from the first on."""
        blocks, at = [], offset
        for size in sizes:
            crc = read_tail(self._store, at, size)
            if crc is None:
                raise ComparisonError(f"{size} bytes at {at} are gone")
            blocks.append(Block(size, crc))
            at += size
        answer = yield Question(offset, blocks)
        if not 0 <= answer.equal <= len(blocks):
            raise ComparisonError(f"the master says that {answer.equal} of {len(blocks)} blocks are the same")
        if answer.equal < len(blocks) and answer.not_held and offset + sum(sizes[:answer.equal + 1]) <= self._high:
            raise ComparisonError(f"the master no longer holds {offset + sum(sizes[:answer.equal])}")
        return answer.equal


def record_start(store: DefaultMessageStore, offset: int) -> int:
    """Where the last record begins that begins at or before `offset`; the blank end of a file counts as one.

    -1 when the bytes in front of it are no records.
    """
    segment_size = store.message_store_config.mappedFileSizeCommitLog
    start = offset - offset % segment_size
    if start == offset:
        return offset
    result = store.get_commit_log_data(start)
    if result is None:
        return -1
    with result:
        limit = min(offset - start, result.size)
        # In one call, up to a record that does not lie whole before the limit, or is not known whole and good
        behind = bulk.walk(result.buffer, 0, limit).position
        for position, size, magic_code in message_layout.walk(result.buffer, behind, limit):
            if not message_layout.fits(size, magic_code, segment_size - position):
                break
            if position + size > limit:
                return start + position
            behind = position + size
    return start + behind if behind == limit else -1


def is_blank(store: DefaultMessageStore, offset: int) -> bool:
    """Whether the blank end of a file begins at `offset`."""
    result = store.get_commit_log_data(offset)
    if result is None:
        return False
    with result:
        return message_layout.is_blank(result.buffer)


def record_sizes(store: DefaultMessageStore, first: int, end: int) -> Iterator[int]:
    """The sizes of the records from `first` on, where one begins, to the one that holds the byte before `end`.

    The last one is cut at the log's end.
    """
    segment_size = store.message_store_config.mappedFileSizeCommitLog
    while first < end:
        result = store.get_commit_log_data(first)
        if result is None:
            raise ComparisonError(f"what was at {first} is gone")
        with result:
            behind, limit, room = 0, min(result.size, end - first), segment_size - first % segment_size
            for position, size, magic_code in message_layout.walk(result.buffer, 0, limit):
                if not message_layout.fits(size, magic_code, room - position):
                    break
                behind = min(position + size, result.size)
                yield behind - position
            if behind < limit:  # what is no record is one piece
                yield result.size - behind
                behind = result.size
            first += behind
