"""The job `audit`: compares masters' commit logs with those of their slaves, byte by byte, range by range in parallel.

Both stores must be readable where the tasks run: on this machine, or mounted at the same place on all. The brokers may
be running.
"""
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

import numpy as np
from pyspark.sql import SparkSession

from rmqha.common.filesystem import Segment, pread
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log.log_ends import log_end
from rmqha.pipeline.log.log_scan import (
    Block,
    ByteRange,
    Hole,
    LogFiles,
    VanishedError,
    find_logs,
    open_file,
    scan_range,
)
from rmqha.pipeline.log.ranges import cut
from rmqha.pipeline.progress import MOST_TASKS, Progress, merge_tasks, run_tasks

# Of either log: both stay in the core's cache.
_BLOCK = 1 << 20
RANGE_BYTES = 128 << 20
_BLANK_HEAD = 8
# The most places that are listed.
MOST_PLACES = 1000
# Topic, queue id -> number of messages, first and last offset in the queue.
Counts = dict[tuple[str, int], list[int]]


class Around(TypedDict):
    """A record."""

    offset: int
    size: int
    topic: str
    queueId: int
    queueOffset: int


@dataclass
class Difference:
    """The first byte that differs in a range, and the record around it (in the master)."""

    offset: int
    master_file: str
    slave_file: str
    position: int
    record: Around | None = None

    @property
    def text(self) -> str:
        """The difference in one line."""
        around = ""
        if self.record:
            around = (f", byte {self.offset - self.record['offset']} of the record at {self.record['offset']} "
                      f"({self.record['topic']}, queue {self.record['queueId']}, index {self.record['queueOffset']})")
        return (f"offset {self.offset}: {self.slave_file} differs from {self.master_file} at byte {self.position}"
                f"{around}")


@dataclass
class Audit:
    """The comparison of a master and a slave. `problems` is empty if the slave is a true copy of all it should have;
    `notes` has other useful observations.
    """

    master: str
    slave: str
    # Its name, if the pair was found through a name server.
    broker: str = ""
    master_range: tuple[int, int] = (0, 0)
    slave_range: tuple[int, int] = (0, 0)
    common: tuple[int, int] = (0, 0)
    # Bytes that the slave lacks at the end.
    behind: int = 0
    # Bytes.
    compared: int = 0
    # The master's messages in the common range.
    messages: int = 0
    # Topic -> queue id -> number of messages, first and last offset.
    queues: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    queue_differences: list[str] = field(default_factory=list)
    difference: Difference | None = None
    # The number of ranges that differ.
    differences: int = 0
    # Places without a record, or with a wrong CRC.
    bad: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True without problems."""
        return not self.problems


class RangePair(NamedTuple):
    """The same range of both logs."""

    master: ByteRange
    slave: ByteRange


@dataclass
class RangeAudit:
    """The findings of tasks in one range, or in several."""

    compared: int = 0
    # The first one.
    difference: Difference | None = None
    # The number of ranges that differ.
    differences: int = 0
    master: Counts = field(default_factory=dict)
    # None: the same as the master's.
    slave: Counts | None = None
    # Places beyond MOST_PLACES are only counted.
    bad: list[str] = field(default_factory=list)
    more_bad: int = 0
    # Files that were deleted meanwhile, so nothing was compared.
    vanished: set[str] = field(default_factory=set)

    def add(self, other: "RangeAudit") -> "RangeAudit":
        """Merge another one into this one. It stays small: there may be many ranges with many problems."""
        if self.slave is not None or other.slave is not None:
            self.slave = _added(copied(self.master) if self.slave is None else self.slave,
                                other.master if other.slave is None else other.slave)
        _added(self.master, other.master)
        self.compared += other.compared
        self.differences += other.differences
        self.difference = min((each for each in (self.difference, other.difference) if each),
                              key=lambda each: each.offset, default=None)
        self.bad += other.bad
        self.more_bad += other.more_bad + max(len(self.bad) - MOST_PLACES, 0)
        del self.bad[MOST_PLACES:]
        self.vanished |= other.vanished
        return self


def copied(counts: Counts) -> Counts:
    """Return a copy that can be changed on its own."""
    return {name: list(count) for name, count in counts.items()}


def _added(counts: Counts, more: Counts) -> Counts:
    for name, count in more.items():
        _add(counts, name, count)
    return counts


class _Sides(NamedTuple):
    """The files of a master and of its slave, and the ends of their logs."""

    master: LogFiles
    slave: LogFiles
    master_end: int
    slave_end: int


def audit(spark: SparkSession, master: str, slave: str, come_to: Progress | None = None,
          range_bytes: int | None = None, broker: str = "") -> Audit:
    """Compare two stores. PipelineError if one is not a store."""
    return audit_all(spark, [(master, slave, broker)], come_to, range_bytes)[0]


def audit_all(spark: SparkSession, pairs: Iterable[tuple[str, str, str]], come_to: Progress | None = None,
              range_bytes: int | None = None) -> list[Audit]:
    """Audit several pairs of master and slave, each with the name of the broker; all ranges are processed at once. By
    default a range has RANGE_BYTES, and more if there is so much data that the plan itself would become large.
    """
    audits = [Audit(master, slave, broker) for master, slave, broker in pairs]
    all_sides = _all_sides(spark, audits)
    total = sum(sides.master_end - sides.master.min_offset for sides in all_sides)
    size = range_bytes or max(RANGE_BYTES, total // (4 * MOST_TASKS))
    tasks: list[_Task] = []
    for number, (found, sides) in enumerate(zip(audits, all_sides, strict=True)):
        ours, theirs = sides.master, sides.slave
        found.master_range = ours.min_offset, sides.master_end
        found.slave_range = theirs.min_offset, sides.slave_end
        begin = max(found.master_range[0], found.slave_range[0])
        found.common = begin, max(min(found.master_range[1], found.slave_range[1]), begin)
        _compare_ranges(found, ours, theirs)
        tasks += [_Task(number, pair) for pair in _pairs(found, ours, theirs, size)]
    results = merge_tasks(spark, _run, tasks, _merged, come_to) or {}
    for number, found in enumerate(audits):
        _conclude(found, results.get(number) or RangeAudit())
    return audits


class _Task(NamedTuple):
    """A range of the audit with this number."""

    audit: int
    pair: RangePair


def _run(task: _Task) -> dict[int, RangeAudit]:
    return {task.audit: audit_range(task.pair)}


def _merged(results: dict[int, RangeAudit], more: dict[int, RangeAudit]) -> dict[int, RangeAudit]:
    for number, result in more.items():
        results[number] = results[number].add(result) if number in results else result
    return results


def _all_sides(spark: SparkSession, audits: list[Audit]) -> list[_Sides]:
    """Return both sides of each pair. First the ends of all logs are searched for in parallel, which takes long. Then
    each pair is checked again, from there on and in the order that matters.
    """
    paths = [(found.master, found.slave) for found in audits]
    ends = run_tasks(spark, log_end, [_one_log(path) for pair in paths for path in pair])
    looks = [_Look(*pair, *ends[2 * number:2 * number + 2]) for number, pair in enumerate(paths)]
    return [_look(each) for each in looks] if len(looks) < 2 else run_tasks(spark, _look, looks)


class _Look(NamedTuple):
    """The paths of two stores, and ends that their logs already had."""

    master: str
    slave: str
    master_end: int
    slave_end: int


def _look(seen: _Look) -> _Sides:
    """Return the files of both, and their present ends. Records after unwritten bytes were searched for before. The
    brokers may be writing, so the order matters: all that the master had before the slave is checked, the slave should
    have; and the slave is not ahead of anything that the master has had since.
    """
    ours = _one_log(seen.master)
    master_end = log_end(ours, seen.master_end, behind_unwritten=False)
    theirs = _one_log(seen.slave)
    slave_end = log_end(theirs, seen.slave_end, behind_unwritten=False)
    if slave_end > master_end:
        ours = _one_log(seen.master)
        master_end = min(max(log_end(ours, master_end, behind_unwritten=False), master_end), slave_end)
    return _Sides(ours, theirs, master_end, slave_end)


def _one_log(path: str) -> LogFiles:
    logs = find_logs([path])
    if len(logs) != 1:
        raise PipelineError(f"{path} is {len(logs)} commit logs; an audit compares one with one")
    return logs[0]


def _compare_ranges(found: Audit, ours: LogFiles, theirs: LogFiles) -> None:
    (first, last), (slave_first, slave_last) = found.master_range, found.slave_range
    if not theirs.segments and ours.segments:
        found.problems.append(f"{theirs.path} has no commit log files; the master has offsets {first} to {last}")
    elif slave_last < first or slave_first > last:
        found.problems.append(f"the logs have nothing in common: the master has offsets {first} to {last}, the slave "
                              f"{slave_first} to {slave_last}")
    found.behind = max(last - slave_last, 0)
    if found.behind and theirs.segments:
        file = _file_at(theirs, slave_last)
        found.problems.append(f"the slave is {found.behind} bytes behind: {file} ends at offset {slave_last}, the "
                              f"master's log at {last}")
    if slave_last > last:
        found.problems.append(f"the slave is {slave_last - last} bytes ahead: {_file_at(theirs, last)} continues at "
                              f"offset {last}, where the master's log ends")
    if slave_first > first and theirs.segments:
        found.notes.append(f"the slave begins at offset {slave_first}, the master at {first}")


def _file_at(log: LogFiles, offset: int) -> str:
    return next((segment.path for segment in reversed(log.segments) if segment.start <= offset), log.path)


def _pairs(found: Audit, ours: LogFiles, theirs: LogFiles, size: int) -> Iterator[RangePair]:
    """Yield the ranges of the common part; add a problem for each file that one side lacks."""
    begin, end = found.common
    for mine in ours.segments:
        low, high = max(mine.start, begin), min(mine.end, end)
        if low >= high:
            continue
        other = next((segment for segment in theirs.segments if segment.start <= low < segment.end), None)
        if other is None or other.end < high:
            found.problems.append(f"offsets {low if other is None else other.end} to {high} are missing in the slave: "
                                  f"there is no {theirs.path}/{low if other is None else other.end:020d}")
            if other is None:
                continue
            high = other.end
        for start, stop in cut(low, high, size):
            yield RangePair(_range(mine, start, stop, low, found.master_range[1]),
                            _range(other, start, stop, low, found.slave_range[1]))
    for other in theirs.segments:
        if begin <= other.start < end and not any(mine.start <= other.start < mine.end for mine in ours.segments):
            found.problems.append(f"offsets {other.start} to {other.end} are missing in the master: there is no "
                                  f"{ours.path}/{other.start:020d}")


def _range(segment: Segment, start: int, stop: int, first: int, log_stop: int) -> ByteRange:
    return ByteRange(segment.path, segment.start, start, stop, min(segment.end, max(log_stop, stop)), start == first)


def audit_range(pair: RangePair) -> RangeAudit:
    """Compare one range of both logs, and count its messages. Runs in a task."""
    try:
        return _audited(pair)
    except VanishedError:
        path = next((span.path for span in pair if not os.path.exists(span.path)), pair.slave.path)
        return RangeAudit(vanished={path})


def _audited(pair: RangePair) -> RangeAudit:
    found = RangeAudit(pair.master.end - pair.master.begin)
    offset = first_difference(pair)
    found.master = count_records(pair.master, found.bad)
    if offset is not None:
        found.slave = count_records(pair.slave, found.bad)
        if not _in_blank_rest(pair, offset):
            found.differences = 1
            found.difference = Difference(offset, pair.master.path, pair.slave.path, offset - pair.master.file_start,
                                          record_around(pair.master, offset))
    return RangeAudit().add(found)


def first_difference(pair: RangePair) -> int | None:
    """Return the offset of the first byte that differs."""
    one, other = open_file(pair.master.path, pair.master.begin), open_file(pair.slave.path, pair.slave.begin)
    with open(one, "rb"), open(other, "rb"):
        position = pair.master.begin
        while position < pair.master.end:
            size = min(_BLOCK, pair.master.end - position)
            mine = pread(one, size, position - pair.master.file_start)
            theirs = pread(other, size, position - pair.slave.file_start)
            if mine != theirs:
                length = min(len(mine), len(theirs))
                one_half, other_half = (np.frombuffer(data, np.uint8, length) for data in (mine, theirs))
                unequal = np.flatnonzero(one_half != other_half)
                return position + (int(unequal[0]) if len(unequal) else length)
            if not mine:
                return None
            position += len(mine)
    return None


def count_records(span: ByteRange, bad: list[str]) -> Counts:
    """Count the messages of each queue in a range; places without a record or with a wrong CRC are added to `bad`."""
    counts: Counts = {}
    for found in scan_range(span, True):
        if isinstance(found, Hole):
            bad.append(_place(found.path, found.file_start, found.offset, found.reason))
            continue
        if not found.crc_ok:
            bad.append(_place(span.path, span.file_start, int(found.rows["offset"][0]), "the CRC of the body is wrong"))
        _count(found, counts)
    return counts


def _place(path: str, file_start: int, offset: int, what: str) -> str:
    return f"{path} at byte {offset - file_start} (offset {offset}): {what}"


def _count(block: Block, counts: Counts) -> None:
    keys = block.rows["topic"].astype(np.int64) << 32 | block.rows["queueId"]
    for key in np.unique(keys):
        offsets = block.rows["queueOffset"][keys == key]
        name = block.topics[int(key) >> 32], int(key) & 0xFFFF_FFFF
        _add(counts, name, [len(offsets), int(offsets.min()), int(offsets.max())])


def _add(counts: Counts, name: tuple[str, int], more: list[int]) -> None:
    had = counts.get(name)
    counts[name] = more if had is None else [had[0] + more[0], min(had[1], more[1]), max(had[2], more[2])]


def record_around(span: ByteRange, offset: int) -> Around | None:
    """Return the record that holds the byte at `offset`, or None."""
    for found in scan_range(span, False):
        if isinstance(found, Hole) or found.rows["offset"][0] > offset:
            continue
        row = found.rows[int(np.searchsorted(found.rows["offset"], offset, side="right")) - 1]
        if row["offset"] <= offset < row["offset"] + row["size"]:
            return {"offset": int(row["offset"]), "size": int(row["size"]), "topic": found.topics[row["topic"]],
                    "queueId": int(row["queueId"]), "queueOffset": int(row["queueOffset"])}
    return None


def _in_blank_rest(pair: RangePair, offset: int) -> bool:
    """Return whether the byte is after the blank that ends a file in both logs, where no byte matters."""
    ends = [_records_end(span) for span in pair]
    return ends[0] == ends[1] and offset >= ends[0] + _BLANK_HEAD


def _records_end(span: ByteRange) -> int:
    """Return the offset after a range's last record, or the range's end if anything but a blank follows."""
    position = span.begin
    for found in scan_range(span, False):
        if isinstance(found, Hole):
            return span.end
        position = int(found.rows["offset"][-1] + found.rows["size"][-1])
    return position


def _conclude(found: Audit, result: RangeAudit) -> None:
    found.notes += [f"{path} was deleted while it was read: it was not compared to its end"
                    for path in result.vanished]
    found.compared, found.differences, found.difference = result.compared, result.differences, result.difference
    ours = result.master
    theirs = ours if result.slave is None else result.slave
    found.messages = sum(count[0] for count in ours.values())
    for (topic, queue_id), count in sorted(ours.items()):
        found.queues.setdefault(topic, {})[str(queue_id)] = count
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            found.queue_differences.append(f"{name[0]}, queue {name[1]}: {_counted(ours.get(name))} in the master, "
                                           f"{_counted(theirs.get(name))} in the slave")
    if found.difference is not None:
        found.problems.append(f"the logs differ from {found.difference.text}"
                              + (f"; {found.differences} ranges differ" if found.differences > 1 else ""))
    found.problems += found.queue_differences
    found.bad = result.bad
    found.problems += sorted(set(found.bad))
    if result.more_bad:
        found.problems.append(f"and {result.more_bad} further places without a record or with a wrong CRC")
    found.notes = sorted(set(found.notes))


def _counted(count: list[int] | None) -> str:
    return "no messages" if count is None else f"{count[0]} messages, {count[1]} to {count[2]}"
