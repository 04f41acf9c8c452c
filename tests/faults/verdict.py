"""The invariants after a fault, checked with the files alone."""
import os
import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tests.faults.drawn_messages import crc_of
from tests.faults.pair_broker import Broker
from tests.faults.senders import Acknowledged
from tests.support import store_compare
from tests.support.wait import wait_until

# One broker's commit log as the oracle reads it, from the files alone: each record once, and again after a change.
#
#     commit log files --store_compare.record_at--> names and places of messages, what the queues must hold, first flaw
#
# A grown log is read from the end of its last record, if that record, and the blank that closes its file, are
# unchanged. A log that was truncated, set up from scratch or overwritten is read from the beginning. A broker that was
# killed between the blank and the next file removes the blank, and a smaller record may fit there. Changes further to
# the front are found by the comparison of master and slave, and by a new copy at the end of a life.

# Topic, queue, queue offset, offset in the log, CRC as in Acknowledged.
Place = tuple[str, int, int, int, int]
# Offset in the log, size, tags code (None if it is not in the log).
Unit = tuple[int, int, int | None]
_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")  # size and magic
_PREPARED_OR_ROLLED_BACK = (0x4, 0xC)
_TRANSACTION_MASK = 0xC


class LogCopy:
    """The part of the log in `folder` that was read so far, from `begin` to `end`."""

    def __init__(self, folder: Path):
        self.folder = folder
        # of all its files; 0: not known yet
        self._file_size = 0
        self.forget()

    def forget(self) -> None:
        """Read the whole log the next time, for example after a loss of power, which may have changed anything."""
        self.begin = self.end = 0
        self.count = 0  # records
        # name of a message -> its places
        self.places: defaultdict[str, list[Place]] = defaultdict(list)
        # the units that each must have
        self.queues: defaultdict[tuple[str, int], dict[int, Unit]] = defaultdict(dict)
        # The first index of a queue that was given twice, or after a higher one.
        self.repeated = ""
        # The reason why the bytes at `end` are not a complete record; "" at the end of the log.
        self.flaw = ""
        # Offset, size and CRC of the bytes of the last record, with the head of the blank after it.
        self._last = (0, 0, 0)

    def read(self, limit: int | None = None) -> None:
        """Continue reading up to the first incomplete record, not beyond `limit`, the end that the broker reports."""
        files = store_compare.segments(self.folder)
        if limit is not None and self.end > limit or self.count and not self._is_as_it_was(files):
            self.forget()
        if not self.count:
            self.begin = self.end = min(files, default=0)
        self.flaw = ""
        for start, file in files.items():
            size = file.stat().st_size
            if start + size <= self.end:
                continue
            if start > self.end:
                self.flaw = f"the file of {self.end} is missing"
                return
            with open(file, "rb") as log:
                log.seek(self.end - start)
                self._read_file(log.read(), limit)
            if self.end != start + size:
                return

    def _is_as_it_was(self, files: dict[int, Path]) -> bool:
        offset, size, crc = self._last
        return self.begin == min(files, default=0) and \
            zlib.crc32(store_compare.read_range(self.folder, offset, offset + size)) == crc

    def _read_file(self, data: bytes, limit: int | None) -> None:
        """Read the rest of a file, from `end` on: its records, and the blank that closes it."""
        at, start, last, blank = 0, self.end, -1, -1
        # the rest of a slave's last record may be under way
        known = len(data) if limit is None else min(len(data), limit - start)
        while at + _HEAD.size <= known:
            total, magic = _HEAD.unpack_from(data, at)
            if magic == store_compare.BLANK_MAGIC:
                blank, self.end = at, start + len(data)
                break
            if magic != store_compare.MESSAGE_MAGIC or at + total > known:
                break
            try:
                self._take(store_compare.record_at(data, at, start))
            except (AssertionError, struct.error, UnicodeDecodeError) as failure:
                self.flaw = f"the record at {start + at} can't be read: {failure}"
            if self.flaw:
                break
            last, at = at, at + total
            self.end = start + at
        if last >= 0:
            (size,) = _SIZE.unpack_from(data, last)
            self._last = start + last, size, zlib.crc32(data[last:last + size])
        offset, size, crc = self._last
        if blank >= 0 and offset + size == start + blank:
            self._last = offset, size + _HEAD.size, zlib.crc32(data[blank:blank + _HEAD.size], crc)

    def _take(self, record: store_compare.Record) -> None:
        if not record.crc_ok or record.physical_offset != record.offset:
            what = "has another body than its CRC is of" if not record.crc_ok else f"says {record.physical_offset}"
            self.flaw = f"the record at {record.offset}, of {record.size} bytes, {what}"
            return
        self.count += 1
        properties = record.properties
        self.places[properties.get("KEYS", "")].append(
            (record.topic, record.queue_id, record.queue_offset, record.offset,
             crc_of(record.body, properties.get("TAGS", ""), properties.get("FILLING", ""))))
        if record.sys_flag & _TRANSACTION_MASK in _PREPARED_OR_ROLLED_BACK:
            return
        queue = self.queues[record.topic, record.queue_id]
        before = next(reversed(queue), -1)
        if record.queue_offset <= before and not self.repeated:
            when = "twice" if record.queue_offset in queue else f"after {before}"
            self.repeated = f"{record.topic}/{record.queue_id}: index {record.queue_offset} {when}"
        queue[record.queue_offset] = record.offset, record.size, store_compare.tags_code(record)

    def log_end(self) -> int:
        """Return the present end of the log: after the last record, or the blank that closes a file. Only sizes and
        magics are read, and nothing is kept."""
        return self._end_from(self._known())[1]

    def followed_end(self) -> Callable[[], int]:
        """Return a function like `log_end`, to be called repeatedly while the log only grows.

        The last record is read again each time: a head in two cache lines may be seen with half of its size, because
        the lines are written one after the other.
        """
        last = self._known()

        def now() -> int:
            nonlocal last
            last, end = self._end_from(last)
            return end
        return now

    def _known(self) -> int:
        """Return the end of the part that was read, if it is unchanged."""
        files = store_compare.segments(self.folder)
        return self.end if self.count and self._is_as_it_was(files) else min(files, default=0)

    def _end_from(self, last: int) -> tuple[int, int]:
        """Return the start of the last record, and the end of the log, if a record or a file begins at `last`."""
        size = self._file_size = self._file_size or next((f.stat().st_size for f in self.folder.glob("[0-9]*")), 0)
        end = last
        while size:
            start = end - end % size
            try:
                in_file, found = _end_in_file(self.folder / f"{start:020d}", end - start, size)
            except FileNotFoundError:
                break
            if found != end - start:
                last, end = start + in_file, start + found
            if found < size:
                break
        return last, end


def _end_in_file(file: Path, at: int, size: int) -> tuple[int, int]:
    """Return the same for a file, from the record at `at` on."""
    last = at
    descriptor = os.open(file, os.O_RDONLY)
    try:
        while len(head := os.pread(descriptor, _HEAD.size, at)) == _HEAD.size:
            total, magic = _HEAD.unpack(head)
            if magic == store_compare.BLANK_MAGIC:
                return at, size
            if magic != store_compare.MESSAGE_MAGIC or total <= 0 or at + total > size:
                break
            last, at = at, at + total
        return last, at
    finally:
        os.close(descriptor)


# The invariants after a fault, checked with the files alone by LogCopy and the oracle tests/support/store_compare.py.
#
#     A  each acknowledged message exists once, at its acknowledged place, with its body and its properties
#     B  the logs of master and slave have the same bytes in their common range, and complete records up to their ends:
#        each body matches its CRC, acknowledged or not
#     C  queue offsets have no gap and no repeat, and the consume queues on disk equal a rebuild from the log
#        (on the original: have at least the units of the rebuild)
#     E  each request was answered within its deadline

_SHOWN = 3
_SETTLE_MS = 60_000
# For data that a slave is about to write.
_WRITE_MS = 10_000
_JAVA_IS_ASKED_EACH_S = 0.1


class Violation(AssertionError):
    """A violated invariant."""


class Repeat(Violation):
    """A violation of invariant C: an index was given twice, by any master."""


def check_acknowledged(broker: Broker, copy: LogCopy, acknowledged: dict[str, Acknowledged], where: str = "",
                       limit: int | None = None) -> int:
    """Check invariant A on one log, from its first file up to `limit`, as in LogCopy.read; return the message count.

    No acknowledged message may be after an incomplete record. The last record may be incomplete while a broker writes,
    or where it was killed.
    """
    copy.read(limit)
    wanted = {name: placed for name, placed in acknowledged.items() if placed.offset >= copy.begin}
    lost = {name: copy.places.get(name, []) for name, placed in wanted.items()
            if copy.places.get(name) != [placed.place()]}
    if lost:
        first = [f"{name} at {acknowledged[name]}, found {places}" for name, places in list(lost.items())[:_SHOWN]]
        raise Violation(f"A: {len(lost)} of {len(wanted)} acknowledged messages are not on the {broker.base_name}"
                        f"{where}, whose whole records end at {copy.end} ({copy.flaw or 'no flaw'}): "
                        + "; ".join(first))
    return len(wanted)


def check_records(broker: Broker, copy: LogCopy, end: int) -> int:
    """Check the second half of invariant B: a log without writers has complete records with correct CRCs up to its end.
    Return the number of records."""
    copy.read(end)
    if copy.flaw or copy.end != end:
        raise Violation(f"B: the log of the {broker.base_name} ends at {end}, its whole records at {copy.end}: "
                        f"{copy.flaw or 'nothing is there'}")
    return copy.count


def check_queues(broker: Broker, copy: LogCopy | None = None) -> int:
    """Check invariant C on an idle broker, after everything is dispatched; return the number of units."""
    copy = copy or LogCopy(broker.commit_log)
    copy.read(broker.log_end())
    if copy.repeated:
        raise Repeat(f"C on the {broker.base_name}: {copy.repeated}")
    for (topic, queue_id), expected in copy.queues.items():
        if len(expected) != max(expected) - min(expected) + 1:
            raise Violation(f"C on the {broker.base_name}: {topic}/{queue_id} has a gap in {min(expected)}.."
                            f"{max(expected)}: {len(expected)} messages")
    count = sum(map(len, copy.queues.values()))
    try:
        if broker.kind != "rmqha":
            wait_until(lambda: _holds(broker, copy), _SETTLE_MS // 2, f"{count} units dispatched")
        else:
            wait_until(lambda: store_compare.unit_count(broker.store) >= count, _SETTLE_MS, f"{count} units dispatched")
            _check_units(broker, copy)
    except AssertionError as failure:
        raise Violation(f"C on the {broker.base_name}: {failure}") from failure
    return count


def _check_units(broker: Broker, copy: LogCopy) -> None:
    on_disk = store_compare.queues_on_disk(broker.store)
    assert set(on_disk) == set(copy.queues), f"queues in one only: {set(on_disk) ^ set(copy.queues)}"
    for key, expected in copy.queues.items():
        found = dict(store_compare.units(on_disk[key]))
        wrong = [index for index in sorted(found.keys() | expected.keys())
                 if not _is_same(found.get(index), expected.get(index))]
        assert not wrong, (f"{key}: {len(wrong)} units differ, the first has index {wrong[0]}: {found.get(wrong[0])} "
                           f"on disk, {expected.get(wrong[0])} from the log")


def _is_same(found: tuple | None, expected: tuple | None) -> bool:
    if found is None or expected is None:
        return False
    return found[:2] == expected[:2] and expected[2] in (None, found[2])


def _holds(broker: Broker, copy: LogCopy) -> bool:
    """Return whether all rebuilt units are on disk. After a recovery the original keeps old units after them."""
    for (topic, queue_id), expected in copy.queues.items():
        found = dict(store_compare.units(broker.store / "consumequeue" / topic / str(queue_id)))
        for index, unit in expected.items():
            if found.get(index, (None, None))[:2] != unit[:2]:
                return False
    return True


def end_of(broker: Broker, copy: LogCopy) -> Callable[[], int]:
    """Return a function that finds the end of a growing log: from its files, incrementally, or from a Java broker, not
    too often."""
    if broker.ends_by_its_files:
        return copy.followed_end()

    def asked() -> int:
        time.sleep(_JAVA_IS_ASKED_EACH_S)
        return broker.log_end()
    return asked


def _equal_range(master: Broker, slave: Broker, end: int) -> tuple[int, int]:
    """Return the common range of both logs, which is the same in both once the slave has written all of it: the head of
    its last record is in the file before the last byte, and the end of a growing log is found by heads."""
    differs: list[AssertionError] = []

    def compared() -> tuple[int, int] | None:
        try:
            return store_compare.compare_commit_logs(master.commit_log, slave.commit_log, end)
        except AssertionError as failure:
            differs[:] = [failure]
            return None
    try:
        return cast(tuple[int, int], wait_until(compared, _WRITE_MS))
    except AssertionError:
        raise Violation(f"B: {differs[0]}") from differs[0]


def check_equal(master: Broker, slave: Broker, copies: dict[str, LogCopy]) -> tuple[int, int]:
    """Check invariant B once the slave has caught up with an idle master; return the common range."""
    end, its_end = end_of(master, copies["master"])(), end_of(slave, copies["slave"])
    try:
        wait_until(lambda: its_end() >= end, _SETTLE_MS, f"the slave's log at {end}")
    except AssertionError as failure:
        raise Violation(f"B: the slave stays at {its_end()}: {failure}") from failure
    behind = end_of(slave, copies["slave"])()
    if behind != end:
        raise Violation(f"B: the slave's log ends at {behind}, beyond the master's {end}")
    begin, end = _equal_range(master, slave, end)
    for broker in (master, slave):
        check_records(broker, copies[broker.base_name], end)
    return begin, end
