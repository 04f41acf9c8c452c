"""The unit of a consume queue file, for writer, reader, recovery and tools. Pure.

    offset  bytes  field
    0       8      commit log offset of the record, signed
    8       4      size of the record in bytes, signed
    12      8      tags code: hash of TAGS sign-extended; a delivery time (ms) in SCHEDULE_TOPIC_XXXX; an address of the
                   extension file when it is below any 32-bit hash

Unit n of a queue lies at byte 20 n of the queue's address space. A unit is valid if offset >= 0 and size > 0. If the
index of a queue's first message is not 0, the units before it are blanks: (0, 2147483647, 0).
"""
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from rmqha.common.texts import is_folder_name

CQ_STORE_UNIT_SIZE = 20

CQ_UNIT = struct.Struct(">qiq")
assert CQ_UNIT.size == CQ_STORE_UNIT_SIZE

BLANK_POSITION = (0, 0x7FFF_FFFF)
PRE_BLANK_UNIT = CQ_UNIT.pack(*BLANK_POSITION, 0)

# A tags code at or below this is an address in the extension file (ConsumeQueueExt.MAX_ADDR).
MAX_EXT_ADDR = -(1 << 31) - 1

_COUNTED_AT_ONCE = 4096
# Where there are very many queues, most have few units.
_COUNTED_FIRST = 64
_MANY_BLANKS = PRE_BLANK_UNIT * _COUNTED_AT_ONCE

pack_unit = CQ_UNIT.pack
unpack_unit: Callable[..., tuple[int, int, int]] = CQ_UNIT.unpack_from
iter_units: Callable[..., Iterator[tuple[int, int, int]]] = CQ_UNIT.iter_unpack


def is_ext_addr(tags_code: int) -> bool:
    """Return whether a unit's tags code is an address in the extension file."""
    return tags_code <= MAX_EXT_ADDR


def count_valid_units(buffer: bytes | memoryview) -> int:
    """Return the number of valid units from the beginning of `buffer` up to the first invalid one."""
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
    """Return the number of units before the first one that is invalid, or whose record is at or after `phy_offset`.

    The search is a bisection that begins at the front. Except in the second case below, the counted units are on the
    disk; after them, any sector may be missing. A unit that begins in the last bytes of a missing sector loses the
    first bytes of its offset. They read as zeros, and the small offset makes the unit look like a counted one. The
    search may end at such a unit:

    - If the unit before it, in the same sector, is missing too, the search was misled: return 0. The caller then counts
      the units one by one from the front.
    - Otherwise it is the first unit that was not flushed. It is counted as the last one, and the caller checks its
      record (`ConsumeQueueRecovery._is_mine`).
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
    """Return whether all units are valid. Each step checks one byte position of all units at once."""
    unit = CQ_STORE_UNIT_SIZE
    if not (units[::unit].isascii() and units[8::unit].isascii()):  # a sign bit
        return False
    any_bit = 0
    for at in range(8, 12):
        any_bit |= int.from_bytes(units[at::unit])
    return 0 not in any_bit.to_bytes(len(units) // unit)


def is_blank(offset: int, size: int) -> bool:
    """Return whether a unit refers to no record, because it is a blank or all zeros."""
    return size <= 0 or (offset, size) == BLANK_POSITION


def count_blank_units(buffer: bytes | memoryview) -> int:
    """Return the number of units at the beginning of `buffer` that refer to no record."""
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
    """Return the last of the units `lowest` to `number` that refers to a record, or -1."""
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
    """Return the number of the first of `count` units whose record is at or after a commit log offset, or `count`.

    It is a bisection, because the commit log offsets of a queue's units increase. A unit that refers to no record is
    treated as if it had the offset of the unit before it.
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
    """Return the number of the first unit whose record ends after a commit log offset, or the number of units."""
    if units and _end_of(units, 0) > phy_offset:  # the usual case
        return 0
    count = len(units) // CQ_STORE_UNIT_SIZE
    return bisect_right(range(count), phy_offset, key=lambda number: _end_of(units, number))


def _end_of(units: bytes | memoryview, number: int) -> int:
    offset, size, _ = unpack_unit(units, number * CQ_STORE_UNIT_SIZE)
    return offset + size


def is_safe_topic(topic: str) -> bool:
    """Return whether `topic` is the name of a single folder, and not of any other path."""
    return is_folder_name(topic)
