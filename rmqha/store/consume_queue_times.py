"""Search in a consume queue by the time at which messages were stored."""
from typing import TYPE_CHECKING

from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, filled_unit_before, is_blank, unpack_unit

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.mapped_file import MappedFile
    from rmqha.store.mapped_file_queue import MappedFileQueue


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
