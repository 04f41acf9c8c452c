"""The interface of the bulk kernel: it checks the arguments and names the fields of the results.

The fast path and its plain twin
-------------------------------
The kernel reads untrusted bytes (a log after a crash, a piece from another broker), and it runs for nearly every
message, so it has to be both fast and exact. It exists twice: compiled from C (rmqha/native), where it lets other
threads run meanwhile, and in Python (`bulk_python`), for installations without a C compiler. A store must look the same
with both, on two replicas as well as before and after a reinstallation. Three rules keep them equal:

- Both are called through the functions here. These check spans, offsets and limits, so that the C code never gets an
  index outside a buffer. The rows are defined once, in `bulk_layout`, and a version number (`rmqha.native.kernels`)
  prevents the use of an extension that was compiled for other rows.
- Both process only common records. Before a record that needs more (text that is not UTF-8, further queues, a record at
  the wrong place) they stop with ODD, and the caller processes this record on the single-record path. So rare cases
  have one implementation, in Python.
- The twin is the reference. It is short, and the tests compare the compiled kernel with it, result by result, on random
  and on damaged input (tests/store/bulk, tests/fuzz/test_native_twins.py).

The twin is not faster than going record by record, so dispatch and recovery use spans only if `is_compiled`.
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
    """Return whether the compiled kernel is used."""
    return _kernel is not bulk_python


def walk(buffer: Buffer, start: int, end: int, check_crc: bool = False, file_from_offset: int | None = None,
         keeps_gil: bool = False) -> Walk:
    """Walk over the records of `buffer[start:end]`, with the checks of `check_message_and_return_size`.

    With `file_from_offset`, the buffer's offset in the commit log, it stops with ODD before a record whose
    PHYSICALOFFSET is not its place, or, with `check_crc`, whose QUEUEOFFSET is negative. No byte outside the span is
    read. `keeps_gil` is for bytes that were just received, so that no page has to be read from a disk: up to 2 MiB are
    walked while other threads wait. Raise ValueError if the span is not within the buffer.
    """
    _check_span(buffer, start, end)
    _check_offset(file_from_offset or 0)
    count, position, stop, size = _kernel.walk(buffer, start, end, check_crc,
                                               -1 if file_from_offset is None else file_from_offset, keeps_gil)
    return Walk(count, position, Stop(stop), size)


def is_record(record: Buffer, offset: int) -> bool:
    """Return whether these bytes, just received, are exactly one good record for commit log offset `offset`."""
    count, position, _stop, _size = _kernel.walk(record, 0, len(record), True, offset, True)
    return (count, position) == (1, len(record))


def scan(buffer: Buffer, start: int, end: int, file_from_offset: int, check_crc: bool = False,
         delays: Sequence[int] | None = None, multi_dispatch: bool = False, limit: int = DEFAULT_LIMIT) -> Span:
    """Walk over at most `limit` records of `buffer[start:end]`, and return everything that their dispatch needs.

    The buffer begins at `file_from_offset` of the commit log. `delays`: ms of delay level 1, 2, ... for the delivery
    times of the schedule topic; None without a schedule. `multi_dispatch`: check for further queues.

    It stops with ODD before a record that only the single-record path can process: one with text that is not UTF-8 in
    its topic or in TAGS, KEYS or UNIQ_KEY, with further queues (INNER_MULTI_DISPATCH), a delay level that is not a
    number, a delivery time beyond 64 bits, or a PHYSICALOFFSET that is not its place. Prepared and rolled back records
    have no unit, rolled back ones no keys.

    Raise ValueError if the span is not within the buffer, or if the limit is not from 1 to MAX_LIMIT.
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
    """Add keys `first` to `last` (exclusive) of a scan to the index file mapped at `buffer`, like `IndexFile.put_key`.

    `counters` are the file's counters in memory. Return the number of the first key that did not fit (or `last`; the
    caller continues with it in a new file) and the new counters. If at least one key was added, they are written to the
    buffer too. The buffer may also have, after the slots, only the entries from `first_entry` on. Entries are written
    first and the counters last, so readers see the new entries only at the end.

    Raise ValueError if the buffer is smaller than the file, the keys do not exist, or the counters are invalid.
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
        raise ValueError(f"{file_from_offset} is not a valid offset for a commit log file")
