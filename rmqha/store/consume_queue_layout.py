"""The unit of a consume queue file: pure, shared by writer, reader, recovery and tools.

    offset  bytes  field
    0       8      commit log offset of the record, signed
    8       4      size of the record in bytes, signed
    12      8      tags code: hash of TAGS sign-extended; a delivery time (ms) in SCHEDULE_TOPIC_XXXX; an address of the
                   extension file when it is below any 32-bit hash

Unit n of a queue lies at byte 20 n of the queue's address space. A unit is valid when offset >= 0 and size > 0. The
units in front of a first message whose index is not 0 are filled with (0, 2147483647, 0).

Search in a consume queue by the time at which messages were stored.
"""
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.mapped_file import MappedFile
    from rmqha.store.mapped_file_queue import MappedFileQueue


CQ_STORE_UNIT_SIZE = 20

CQ_UNIT = struct.Struct(">qiq")
assert CQ_UNIT.size == CQ_STORE_UNIT_SIZE

BLANK_POSITION = (0, 0x7FFF_FFFF)
PRE_BLANK_UNIT = CQ_UNIT.pack(*BLANK_POSITION, 0)

# A tags code at or below this is an address of the extension file (ConsumeQueueExt.MAX_ADDR).
MAX_EXT_ADDR = -(1 << 31) - 1

_COUNTED_AT_ONCE = 4096
_COUNTED_FIRST = 64  # most queues of very many have few units
_MANY_BLANKS = PRE_BLANK_UNIT * _COUNTED_AT_ONCE

pack_unit = CQ_UNIT.pack
unpack_unit: Callable[..., tuple[int, int, int]] = CQ_UNIT.unpack_from
iter_units: Callable[..., Iterator[tuple[int, int, int]]] = CQ_UNIT.iter_unpack


def is_ext_addr(tags_code: int) -> bool:
    """True when a unit's tags code is an address of the extension file."""
    return tags_code <= MAX_EXT_ADDR


def count_valid_units(buffer: bytes | memoryview) -> int:
    """Number of valid units from the beginning of `buffer` up to the first invalid one."""
    total = len(buffer) // CQ_STORE_UNIT_SIZE
    start, step = 0, _COUNTED_FIRST
    while start < total:
        stop = min(start + step, total)
        data = bytes(buffer[start * CQ_STORE_UNIT_SIZE:stop * CQ_STORE_UNIT_SIZE])
        if not _all_valid(data):
            for index, (offset, size, _tags_code) in enumerate(CQ_UNIT.iter_unpack(data), start):
                if offset < 0 or size <= 0:
                    return index
        start, step = stop, min(step * 4, _COUNTED_AT_ONCE)
    return total


def count_sure_units(buffer: bytes | memoryview, phy_offset: int) -> int:
    """Number of units before the first one that is not valid, or points at or behind a commit log offset.

    A bisection that begins in front. All of those units are on the disk; behind them any sectors may be missing: a unit
    that lacks the first bytes of its offset looks like one of those before, but then the one in front of it is missing,
    or the last of them. In doubt 0.
    """
    def is_unsure(number: int) -> bool:
        offset, size, _ = CQ_UNIT.unpack_from(buffer, number * CQ_STORE_UNIT_SIZE)
        return size <= 0 or not 0 <= offset < phy_offset

    total, bound = len(buffer) // CQ_STORE_UNIT_SIZE, 1
    while bound < total and not is_unsure(bound - 1):
        bound *= 2
    bound = min(bound, total)
    count = bisect_left(range(bound), True, bound // 2, key=is_unsure)
    return 0 if count > 1 and is_unsure(count - 2) else count


def _all_valid(units: bytes) -> bool:
    """Whether all units are valid, looking at the bytes of one place of all units at once."""
    unit = CQ_STORE_UNIT_SIZE
    if not (units[::unit].isascii() and units[8::unit].isascii()):  # a sign bit
        return False
    any_bit = 0
    for at in range(8, 12):
        any_bit |= int.from_bytes(units[at::unit])
    return 0 not in any_bit.to_bytes(len(units) // unit)


def is_blank(offset: int, size: int) -> bool:
    """Whether a unit points at no record: it fills a place, or is all zeros."""
    return size <= 0 or (offset, size) == BLANK_POSITION


def count_blank_units(buffer: bytes | memoryview) -> int:
    """Number of units at the beginning of `buffer` that point at no record."""
    total = len(buffer) // CQ_STORE_UNIT_SIZE
    for start in range(0, total, _COUNTED_AT_ONCE):
        data = bytes(buffer[start * CQ_STORE_UNIT_SIZE:min(start + _COUNTED_AT_ONCE, total) * CQ_STORE_UNIT_SIZE])
        if data == _MANY_BLANKS[:len(data)]:
            continue
        for index, (offset, size, _tags_code) in enumerate(CQ_UNIT.iter_unpack(data), start):
            if not is_blank(offset, size):
                return index
    return total


def filled_unit_before(buffer: bytes | memoryview, number: int, lowest: int = 0) -> int:
    """The last of the units `lowest` to `number` that points at a record; -1 when none does."""
    while number >= lowest:
        begin = max(lowest, number + 1 - _COUNTED_AT_ONCE)
        data = bytes(buffer[begin * CQ_STORE_UNIT_SIZE:(number + 1) * CQ_STORE_UNIT_SIZE])
        if data != _MANY_BLANKS[:len(data)]:
            for at in range(number, begin - 1, -1):
                if not is_blank(*CQ_UNIT.unpack_from(buffer, at * CQ_STORE_UNIT_SIZE)[:2]):
                    return at
        number = begin - 1
    return -1


def first_unit_at(buffer: bytes | memoryview, count: int, phy_offset: int) -> int:
    """Number of the first of `count` units that points at or behind a commit log offset; `count` when none does.

    A bisection: the units of a queue point ever further into the commit log. Units that point at no record count with
    the one before them.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        offset, size, _ = CQ_UNIT.unpack_from(buffer, middle * CQ_STORE_UNIT_SIZE)
        filled = filled_unit_before(buffer, middle, low) if is_blank(offset, size) else middle
        if filled >= 0 and CQ_UNIT.unpack_from(buffer, filled * CQ_STORE_UNIT_SIZE)[0] >= phy_offset:
            high = filled
        else:
            low = middle + 1
    return low


def first_unit_behind(units: bytes | memoryview, phy_offset: int) -> int:
    """Number of the first unit whose record ends behind a commit log offset; how many they are when none does."""
    if units and _end_of(units, 0) > phy_offset:  # as a rule
        return 0
    count = len(units) // CQ_STORE_UNIT_SIZE
    return bisect_right(range(count), phy_offset, key=lambda number: _end_of(units, number))


def _end_of(units: bytes | memoryview, number: int) -> int:
    offset, size, _ = unpack_unit(units, number * CQ_STORE_UNIT_SIZE)
    return offset + size


def file_by_time(files: "MappedFileQueue", commit_log: "CommitLog", timestamp: int) -> "MappedFile | None":
    """The file to search: the first whose last message was stored at or after `timestamp` (ms), else the last one.

    Differs: the original goes by when the files were modified. Of a mapped file that is when the first byte was written
    since it was last flushed, of a copied one when it was copied. Here that is only where the search begins.
    """
    begin = files.get_mapped_file_by_time(timestamp)
    if begin is None:
        return None
    candidates = files.mapped_files
    at = candidates.index(begin) if begin in candidates else 0
    while at > 0 and _last_time(candidates[at - 1], commit_log) >= timestamp:
        at -= 1
    while at + 1 < len(candidates) and 0 <= _last_time(candidates[at], commit_log) < timestamp \
            and 0 <= _first_time(candidates[at + 1], commit_log) <= timestamp:
        at += 1
    return candidates[at]


def unit_by_time(buffer: memoryview, low: int, commit_log: "CommitLog", min_physic_offset: int,
                 timestamp: int) -> int | None:
    """Position in a file's units, from `low` on, of the message stored nearest to `timestamp`; None when one is gone.

    A bisection; units of messages in front of `min_physic_offset` are passed over.
    """
    high = len(buffer) - CQ_STORE_UNIT_SIZE
    left_offset = right_offset = -1
    left_time = right_time = -1
    while high >= low:
        middle = (low + high) // (2 * CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        phy_offset, size, _ = unpack_unit(buffer, middle)
        if is_blank(phy_offset, size):
            # Differs: it has the time of the unit before; the original goes to the beginning of the queue
            filled = filled_unit_before(buffer, middle // CQ_STORE_UNIT_SIZE, low // CQ_STORE_UNIT_SIZE)
            if filled < 0:
                low = middle + CQ_STORE_UNIT_SIZE
                continue
            middle = filled * CQ_STORE_UNIT_SIZE
            phy_offset, size, _ = unpack_unit(buffer, middle)
        if phy_offset < min_physic_offset:
            low, left_offset = middle + CQ_STORE_UNIT_SIZE, middle
            continue
        store_time = commit_log.pickup_store_timestamp(phy_offset, size)
        if store_time < 0:
            return None
        if store_time == timestamp:
            return middle
        if store_time > timestamp:
            high, right_offset, right_time = middle - CQ_STORE_UNIT_SIZE, middle, store_time
        else:
            low, left_offset, left_time = middle + CQ_STORE_UNIT_SIZE, middle, store_time
    if left_time == -1:
        # Differs: without a right neighbour either (all units expired) the original returns a negative offset.
        return right_offset if right_offset >= 0 else max(left_offset, 0)
    if right_time == -1:
        return left_offset
    return right_offset if abs(timestamp - left_time) > abs(timestamp - right_time) else left_offset


def _last_time(mapped_file: "MappedFile", commit_log: "CommitLog") -> int:
    return _time_of(mapped_file, commit_log, -1)


def _first_time(mapped_file: "MappedFile", commit_log: "CommitLog") -> int:
    return _time_of(mapped_file, commit_log, 0)


def _time_of(mapped_file: "MappedFile", commit_log: "CommitLog", unit: int) -> int:
    """When the message of the first unit (0), or of the last filled one (-1), was stored; -1 when that is not known."""
    result = mapped_file.select_mapped_buffer(0)
    if result is None:
        return -1
    with result:
        last = len(result.buffer) // CQ_STORE_UNIT_SIZE - 1
        number = unit if unit == 0 else filled_unit_before(result.buffer, last)
        if not 0 <= number <= last:
            return -1
        phy_offset, size, _ = unpack_unit(result.buffer, number * CQ_STORE_UNIT_SIZE)
    return -1 if is_blank(phy_offset, size) else commit_log.pickup_store_timestamp(phy_offset, size)
