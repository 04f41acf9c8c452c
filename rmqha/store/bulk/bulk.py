"""The bulk kernel as callers call it: arguments are checked here, results get their names.

The work is done by the compiled one, which lets other threads run meanwhile, or by its twin, `bulk_python`.
"""
from collections.abc import Sequence

from rmqha.common.message.message_layout import Buffer
from rmqha.native import kernels
from rmqha.store.bulk import bulk_python
from rmqha.store.bulk.bulk_layout import (
    DEFAULT_LIMIT,
    KEY,
    MAX_LIMIT,
    RUN,
    IndexCounters,
    Run,
    Span,
    Stop,
    TopicShare,
    Walk,
)

_MAX_OFFSET = (1 << 62) - 1

_kernel = kernels.BULK.module or bulk_python


def is_compiled() -> bool:
    """Whether the compiled kernel is used. Its twin in Python is no faster than going record by record."""
    return _kernel is not bulk_python


def walk(buffer: Buffer, start: int, end: int, check_crc: bool = False, file_from_offset: int | None = None,
         keeps_gil: bool = False) -> Walk:
    """Step over the records of `buffer[start:end]`, checking them as `check_message_and_return_size` does.

    With `file_from_offset`, where the buffer begins in the commit log, it stops with ODD in front of a record whose
    PHYSICALOFFSET is not its place, or, with `check_crc`, whose QUEUEOFFSET is negative. Nothing outside the span is
    looked at. `keeps_gil` is for bytes that were just received, of which no page is on a disk: up to 2 MiB are walked
    while other threads wait. ValueError when the span does not lie in the buffer.
    """
    _check_span(buffer, start, end)
    _check_offset(file_from_offset or 0)
    count, position, stop, size = _kernel.walk(buffer, start, end, check_crc,
                                               -1 if file_from_offset is None else file_from_offset, keeps_gil)
    return Walk(count, position, Stop(stop), size)


def is_record(record: Buffer, offset: int) -> bool:
    """Whether these bytes, just received, are one whole and good record for commit log offset `offset`; see `walk`."""
    count, position, _stop, _size = _kernel.walk(record, 0, len(record), True, offset, True)
    return (count, position) == (1, len(record))


def scan(buffer: Buffer, start: int, end: int, file_from_offset: int, check_crc: bool = False,
         delays: Sequence[int] | None = None, multi_dispatch: bool = False, limit: int = DEFAULT_LIMIT) -> Span:
    """Step over at most `limit` records of `buffer[start:end]`, and tell what dispatching needs of them.

    The buffer begins at `file_from_offset` of the commit log. `delays`: ms of delay level 1, 2, ... for the delivery
    times of the schedule topic; None when there is no schedule. `multi_dispatch`: look for further queues.

    It stops with ODD in front of a record that only the single-record path takes: text that is no UTF-8 in its topic
    or in TAGS, KEYS or UNIQ_KEY, further queues (INNER_MULTI_DISPATCH), a delay level that is not a number, a delivery
    time beyond 64 bits, or a PHYSICALOFFSET that is not its place. Prepared and rolled back records have no unit,
    rolled back ones no keys.

    ValueError when the span does not lie in the buffer, or the limit is not from 1 to MAX_LIMIT.
    """
    _check_span(buffer, start, end)
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"a limit of {limit} is not from 1 to {MAX_LIMIT}")
    _check_offset(file_from_offset)
    count, position, stop, size, topics, records, runs, units, keys = _kernel.scan(
        buffer, start, end, file_from_offset, check_crc, delays, multi_dispatch, limit)
    return Span(count, position, Stop(stop), size, [TopicShare(*topic) for topic in topics], records,
                [Run(*run) for run in RUN.iter_unpack(runs)], units, keys)


def put_keys(buffer: Buffer, hash_slot_num: int, index_num: int, counters: IndexCounters, keys: bytes, first: int = 0,
             last: int | None = None, first_entry: int = 0) -> tuple[int, IndexCounters]:
    """Add keys `first` to `last` (exclusive) of a scan to the index file mapped at `buffer`, as `IndexFile.put_key`.

    `counters` are those that the file has in memory. Returns the number of the first key that had no room (`last` when
    all had; the caller goes on with it in a new file) and the counters as they are then; they are in the buffer too,
    when at least one key was added. A buffer that holds the entries from `first_entry` on behind the slots, and not
    those before, will do as well. Entries come first, the counters last: readers see none of it before the end.

    ValueError when the buffer is smaller than the file, the keys are not there, or the counters are no counters.
    """
    last = len(keys) // KEY.size if last is None else last
    if not 0 <= first <= last <= len(keys) // KEY.size:
        raise ValueError(f"keys {first} to {last} of {len(keys) // KEY.size}")
    done, *after = _kernel.put_keys(buffer, hash_slot_num, index_num, tuple(counters), keys, first, last,
                                   first_entry)
    return done, IndexCounters(*after)


def _check_span(buffer: Buffer, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise ValueError(f"bytes {start} to {end} of {len(buffer)}")


def _check_offset(file_from_offset: int) -> None:
    if not 0 <= file_from_offset <= _MAX_OFFSET:
        raise ValueError(f"a commit log does not begin at {file_from_offset}")
