"""Comparison of a slave's commit log with its master's when they connect, and the handling of a divergence.

- `introduction`: checksums of the end of a log, for the handshake.
- `compare_with_master`: finds the offset up to which both logs are identical, by checksums that the master compares.
- `ends_as_master`, `first_other_record`: the same for a master that compares no checksums, by single records from its
  main port. VIEW_MESSAGE_BY_ID, which RocketMQ supports too, returns the bytes of the record at an offset.
- `keep_end`: saves to a file the end of the log that the master does not have, before it is truncated.
- `Divergence`: the differences that a slave has found between its log or queues and its master's.

The problem: a power loss may remove the end of the master's log, while the slave keeps more of it. The master then
writes other records at the same offsets. If the slave simply continued at its end, as in 4.9, its log would contain
messages that the master never had, and lack others, for good.

The rule: such a difference begins at some record, and extends from there to the end of the slave's log. So the
comparison works backwards from the end. The last 64 MiB are compared in blocks of 64 KiB; as long as no record in a
window is identical, the window before it is compared. The first block that differs is then compared record by record.

Why that suffices: a record contains its own offset and its store time, so the same bytes at the same offset mean the
same record, written by the same put. And logs are only ever extended at the end, so if one record is identical, all
before it are. So the first block of each window is exactly one complete record: a part of a record could be identical
by chance, such as the body of a message that was sent again after the loss. Damage further back, before identical
records, is not found this way; that is left to scrubbing.
"""
from __future__ import annotations

import json
import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator

from rmqha.common.filesystem import fsync_path
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message import message_layout
from rmqha.common.message.message_layout import HEAD
from rmqha.common.texts import parse_json
from rmqha.common.util_all import current_time_millis, offset_to_file_name, time_millis_to_human_string
from rmqha.store.bulk import bulk
from rmqha.store.ha import ha_handshake
from rmqha.store.ha.ha_handshake import MAX_BLOCKS, Answer, Block, Comparison, Finding, Question, Range, Verdict
from rmqha.store.record_check import block_checksums
from rmqha.store.replicated_log import LogReader
from rmqha.store.store_path_config_helper import get_diverged_folder


def read_tail(log_reader: LogReader, offset: int, size: int) -> int | None:
    """Return the CRC32 of `size` bytes at commit log `offset`; None when the log does not hold them all."""
    crcs = block_checksums(log_reader, offset, size, 1)
    return crcs[0] if crcs else None


def introduction(log_reader: LogReader, identity: str) -> ha_handshake.Who:
    """Return a slave's introduction of itself and of its log."""
    end = log_reader.get_max_phy_offset()
    begin, size = ha_handshake.tail_place(end, max(0, log_reader.get_min_phy_offset()),
                                          log_reader.mapped_file_size)
    crc = read_tail(log_reader, begin, size) if size else 0
    return ha_handshake.Who(identity, end, size, crc) if crc is not None else ha_handshake.Who(identity, end, 0, 0)


_BLOCK = 64 * 1024  # bytes
_WINDOW = 64 * 1024 * 1024  # bytes that are always compared
# Limit if nothing is identical. For a log of another master, the first window would suffice.
_MAX_WINDOWS = 256


class ComparisonError(Exception):
    """The logs could not be compared, because one of them has changed meanwhile. Another attempt may succeed."""


def compare_with_master(log_reader: LogReader, held: Range) -> Comparison:
    """Compare this store's log with a master's that holds `held`. Nothing may be appended meanwhile.

    GOOD: it is a part of the master's log. NOT_HELD: the master has deleted the bytes that come next. DIVERGED: it has
    an end that the master does not have, whether or not the master has other bytes there. ComparisonError: the logs
    can't be compared now.
    """
    begin, end = max(0, log_reader.get_min_phy_offset()), log_reader.get_max_phy_offset()
    if end <= begin:
        return Finding(Verdict.GOOD, end)
    if end < held.min_offset:
        return Finding(Verdict.NOT_HELD, -1)
    low, high = max(begin, held.min_offset), min(end, held.max_offset)
    if low < high:
        same = yield from _Comparing(log_reader, low, high).same_up_to()
        if same < high or end > held.max_offset:
            return Finding(Verdict.DIVERGED, same)
    return Finding(Verdict.GOOD, end) if end <= held.max_offset else Finding(Verdict.DIVERGED, -1)


def report_flaw(log_reader: LogReader, held: Range) -> Comparison:
    """Return the finding DIVERGED at this log's end: it reports to the master that its next record fails the checks.

    It asks no questions: the two logs are identical up to this log's end.
    """
    yield from ()
    return Finding(Verdict.DIVERGED, log_reader.get_max_phy_offset())


class _Comparing:
    """The comparison of the bytes from `low` to `high`, which both logs hold."""

    def __init__(self, log_reader: LogReader, low: int, high: int) -> None:
        self._log = log_reader
        self._low = low
        self._high = high

    def same_up_to(self) -> Generator[Question, Answer, int]:
        """Return the offset up to which both logs are identical.

        It is `high` if all compared bytes are identical and a record ends there, else the beginning of the first record
        that differs; -1 if nothing is known to be identical.
        """
        position = self._high
        for _ in range(_MAX_WINDOWS):
            start = record_start(self._log, max(self._low, position - _WINDOW))
            # A blank proves nothing, because all blanks of one size are identical.
            if start > self._low and is_blank(self._log, start):
                start = record_start(self._log, start - 1)
            if start < self._low:
                return -1
            # The first block is one complete record. A part of it proves nothing: a message that was sent again after a
            # loss may have its body at the same offset.
            sizes = [min(next(record_sizes(self._log, start, position)), position - start)]
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
        # The record that begins at `position` differs.
        if position < self._high:
            return self._known(position)
        # At the log's end, an incomplete record is possible.
        at_end = self._high == self._log.get_max_phy_offset()
        return self._high if at_end else self._known(record_start(self._log, self._high))

    def _known(self, offset: int) -> int:
        return offset if offset > self._low else -1

    def _first_different_record(self, start: int, size: int) -> Generator[Question, Answer, int]:
        """Return the offset of the first differing record, among those with bytes in a block that differs."""
        first = record_start(self._log, start)
        if first < self._low:
            return -1
        sizes = list(record_sizes(self._log, first, start + size))
        for at in range(0, len(sizes), MAX_BLOCKS):
            some = sizes[at:at + MAX_BLOCKS]
            equal = yield from self._ask(first, some)
            first += sum(some[:equal])
            if equal < len(some):
                return self._known(first)
        raise ComparisonError(f"the block at {start} differed, but its records do not")

    def _ask(self, offset: int, sizes: list[int]) -> Generator[Question, Answer, int]:
        """Ask the master for these blocks, and return how many are identical, from the first on."""
        blocks, at = [], offset
        for size in sizes:
            crc = read_tail(self._log, at, size)
            if crc is None:
                raise ComparisonError(f"{size} bytes at {at} no longer exist")
            blocks.append(Block(size, crc))
            at += size
        answer = yield Question(offset, blocks)
        if not 0 <= answer.equal <= len(blocks):
            raise ComparisonError(f"the master says that {answer.equal} of {len(blocks)} blocks are identical")
        if answer.equal < len(blocks) and answer.not_held and offset + sum(sizes[:answer.equal + 1]) <= self._high:
            raise ComparisonError(f"the master no longer holds {offset + sum(sizes[:answer.equal])}")
        return answer.equal


def record_start(log_reader: LogReader, offset: int) -> int:
    """Return the offset of the last record that begins at or before `offset`; the blank end of a file counts as one.

    -1 when the bytes before `offset` are not valid records.
    """
    segment_size = log_reader.mapped_file_size
    start = offset - offset % segment_size
    if start == offset:
        return offset
    result = log_reader.get_commit_log_data(start)
    if result is None:
        return -1
    with result:
        limit = min(offset - start, result.size)
        # In one call, up to a record that is not complete before the limit, or not known to be good.
        behind = bulk.walk(result.buffer, 0, limit).position
        for position, size, magic_code in message_layout.walk(result.buffer, behind, limit):
            if not message_layout.fits(size, magic_code, segment_size - position):
                break
            if position + size > limit:
                return start + position
            behind = position + size
    return start + behind if behind == limit else -1


def is_blank(log_reader: LogReader, offset: int) -> bool:
    """Return whether the blank end of a file begins at `offset`."""
    result = log_reader.get_commit_log_data(offset)
    if result is None:
        return False
    with result:
        return message_layout.is_blank(result.buffer)


def record_sizes(log_reader: LogReader, first: int, end: int) -> Iterator[int]:
    """Yield the sizes of the records from `first` on, where one begins, to the one that contains the byte before `end`.

    The last one is cut at the log's end.
    """
    segment_size = log_reader.mapped_file_size
    while first < end:
        result = log_reader.get_commit_log_data(first)
        if result is None:
            raise ComparisonError(f"the bytes at {first} no longer exist")
        with result:
            behind, limit, room = 0, min(result.size, end - first), segment_size - first % segment_size
            for position, size, magic_code in message_layout.walk(result.buffer, 0, limit):
                if not message_layout.fits(size, magic_code, room - position):
                    break
                behind = min(position + size, result.size)
                yield behind - position
            # Bytes that are not a record count as one piece.
            if behind < limit:
                yield result.size - behind
                behind = result.size
            first += behind


# Returns the master's record at an offset; b"" if it has none there and has deleted none; None if that is not known.
AskRecord = Callable[[int], bytes | None]


def ends_as_master(log_reader: LogReader, end: int, ask: AskRecord) -> bool | None:
    """Return whether the master has the same last record before `end`; None when that can't be determined."""
    start = _last_record(log_reader, end)
    if start < 0:
        return None
    theirs = ask(start)
    return None if theirs is None else theirs == _record(log_reader, start)


def first_other_record(log_reader: LogReader, end: int, ask: AskRecord) -> int:
    """Return the offset of the first record before `end` that differs from the master's.

    -1 when no record is known to be identical. ComparisonError: that can't be determined now.
    """
    low = max(0, log_reader.get_min_phy_offset())
    first = record_start(log_reader, max(low, end - _WINDOW))
    starts, at = [], first
    for size in record_sizes(log_reader, first, end) if first >= low else ():
        # The main port does not return blanks.
        if not is_blank(log_reader, at):
            starts.append(at)
        at += size

    def is_other(start: int) -> bool:
        theirs = ask(start)
        if theirs is None:
            raise ComparisonError(f"the master does not return its record at {start}")
        return theirs != _record(log_reader, start)
    index = bisect_left(starts, True, key=is_other)
    return starts[index] if 0 < index < len(starts) else -1


def _last_record(log_reader: LogReader, end: int) -> int:
    """Return the offset of the last complete record before `end`; -1 when there is none."""
    start = record_start(log_reader, end)
    while start >= max(0, log_reader.get_min_phy_offset()):
        record = _record(log_reader, start) if start < end and not is_blank(log_reader, start) else b""
        if len(record) >= HEAD.size and HEAD.unpack_from(record)[0] == len(record) <= end - start:
            return start
        if start == 0:
            return -1
        start = record_start(log_reader, start - 1)
    return -1


def _record(log_reader: LogReader, start: int) -> bytes:
    """Return the record that begins at `start`, as far as the log holds it."""
    result = log_reader.get_commit_log_data(start)
    if result is None:
        return b""
    with result:
        return bytes(result.buffer[:next(record_sizes(log_reader, start, start + 1))])


log = logging.getLogger("RocketmqStore")


def keep_end(log_reader: LogReader, root: str, offset: int) -> str:
    """Save the end of the log of the store at `root`, from `offset` on, to a file before it is truncated.

    The file is on disk when the function returns its path. Nothing may be appended meanwhile. OSError when the file
    can't be written.
    """
    end = log_reader.get_max_phy_offset()
    folder = get_diverged_folder(root)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{offset_to_file_name(offset)}.{time_millis_to_human_string(current_time_millis())}")
    at = offset
    with open(path, "xb") as file:
        while (result := log_reader.get_commit_log_data(at)) is not None:
            with result:
                file.write(result.buffer)
                at += result.size
        file.flush()
        os.fsync(file.fileno())
    fsync_path(folder)
    log.warning("truncating the log at %d, it ended at %d; the truncated bytes are kept in %s", offset, end, path)
    return path


_MAX_REASON = 1000  # characters


class Diverged(NamedTuple):
    """A finding; `offset` is the commit log offset of the first difference."""

    offset: int
    reason: str


class Divergence:
    """The first finding of each of three kinds, and the number of findings in the queues. Safe from any thread.

    - The log: the handshake finds other bytes, or an end that the master does not have. This is checked again at each
      connect, and forgotten when the logs match.
    - A record: a record from the master fails its checks, twice. It is fetched again every few seconds, and the finding
      is forgotten when a good one arrives.
    - The queues: a record's queue offset is not the next one of its queue. This is saved in the file at `path`, because
      the queue stays wrong until it is rebuilt.

    The original logs "Build consume queue repeatedly" and "logic queue order maybe wrong", and continues.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()  # guards everything below
        self._log: Diverged | None = None
        self._record: Diverged | None = None
        self._queues: Diverged | None = None
        # number of records whose queue offset did not fit, since the store was created or repaired
        self.queue_count = 0

    @property
    def found(self) -> Diverged | None:
        """The most important finding: that of the log, which is the cause, before that of the queues; None if none."""
        return self._log or self._record or self._queues

    @property
    def found_in_log(self) -> Diverged | None:
        """The finding of the last handshake."""
        return self._log

    def load(self) -> None:
        """Load the finding from before the last start."""
        try:
            with open(self._path, "rb") as file:
                known = parse_json(file.read(), "its text")
            with self._lock:
                self._queues = Diverged(int(known["offset"]), str(known["reason"]))
                self.queue_count = int(known["count"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("can't read %s (%s); it is unknown whether the queues of this slave had diverged", self._path,
                      error)

    def log_differs(self, offset: int, reason: str) -> None:
        """Record that the log differs from the master's from `offset` on."""
        with self._lock:
            self._log = Diverged(offset, reason)

    def log_fits(self) -> None:
        """Record that the log was compared with the master's, and is a part of it."""
        with self._lock:
            self._log = None

    def record_is_flawed(self, offset: int, reason: str) -> None:
        """Record that the master's record at `offset` fails its checks every time it is received."""
        with self._lock:
            self._record = Diverged(offset, reason)

    def record_is_good(self) -> None:
        """Record that the record reported by `record_is_flawed` was received undamaged."""
        with self._lock:
            self._record = None

    def queue_does_not_fit(self, offset: int, reason: str) -> None:
        """Record that the record at `offset` does not have the next offset of its queue."""
        with self._lock:
            self.queue_count += 1
            if self._queues is not None:
                return
            self._queues = found = Diverged(offset, reason)
            log.error("this slave's queues differ from its master's: %s. Stop the slave and rebuild its queues with "
                      "`rmqha store rebuild --apply --force`, or set it up from scratch", reason)
            self._write(found)

    def cut_off(self, offset: int) -> None:
        """Handle a truncation of log and queues at `offset`: findings from there on referred to truncated records."""
        self.log_fits()
        queues = self._queues
        if queues is not None and queues.offset >= offset:
            self.queues_are_mended()

    def queues_are_mended(self) -> None:
        """Forget the finding, because all queues after it were rebuilt."""
        with self._lock:
            self._queues, self.queue_count = None, 0
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                log.debug("no finding was saved")

    def _write(self, found: Diverged) -> None:
        try:
            known = {"offset": found.offset, "reason": found.reason[:_MAX_REASON], "count": self.queue_count}
            with open(self._path, "w", encoding="utf-8") as file:
                json.dump(known, file)
        except OSError as error:
            log.error("can't write %s: %s", self._path, error)
