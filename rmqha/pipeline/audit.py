"""The job `audit`: the commit logs of masters against those of their slaves, byte by byte, range by range in parallel.

Both stores must be readable where the tasks run: on this machine, or mounted at the same place on all. The brokers may
be running.
"""
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

import numpy as np
from pyspark.sql import SparkSession

from rmqha.common.segment_files import Segment, pread
from rmqha.pipeline.log_files import LogFiles, find_logs
from rmqha.pipeline.log_scan import Block, ByteRange, Hole, VanishedError, log_end, open_file, scan_range
from rmqha.pipeline.options import PipelineError
from rmqha.pipeline.ranges import cut

_BLOCK = 4 << 20
RANGE_BYTES = 64 << 20
_BLANK_HEAD = 8
Progress = Callable[[int, int], None]
Counts = dict[tuple[str, int], list[int]]  # topic, queue id -> messages, first and last offset of the queue


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
        """One line."""
        around = ""
        if self.record:
            around = (f", byte {self.offset - self.record['offset']} of the record at {self.record['offset']} "
                      f"({self.record['topic']}, queue {self.record['queueId']}, index {self.record['queueOffset']})")
        return (f"offset {self.offset}: {self.slave_file} differs from {self.master_file} at byte {self.position}"
                f"{around}")


@dataclass
class Audit:
    """What a master and a slave have in common. `problems` is empty when the slave is a true copy of all it should
    have; `notes` say what is worth knowing.
    """

    master: str
    slave: str
    broker: str = ""  # its name, when the pair was found through a name server
    master_range: tuple[int, int] = (0, 0)
    slave_range: tuple[int, int] = (0, 0)
    common: tuple[int, int] = (0, 0)
    behind: int = 0  # bytes that the slave lacks at the end
    compared: int = 0  # bytes
    messages: int = 0  # of the master in the common range
    queues: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # topic -> queue id -> messages, first, last
    queue_differences: list[str] = field(default_factory=list)
    difference: Difference | None = None
    differences: int = 0  # ranges that differ
    bad: list[str] = field(default_factory=list)  # places without a record, or with a wrong CRC
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class RangePair(NamedTuple):
    """The same range of both logs."""

    master: ByteRange
    slave: ByteRange


class RangeAudit(NamedTuple):
    """What a task found in one range."""

    compared: int
    difference: Difference | None
    master: Counts
    slave: Counts
    bad: list[str]
    vanished: str | None = None  # the file that was gone, so nothing was compared


def audit(spark: SparkSession, master: str, slave: str, come_to: Progress = lambda done, total: None,
          range_bytes: int = RANGE_BYTES, broker: str = "") -> Audit:
    """Compare two stores. PipelineError when one is not a store."""
    found = Audit(master, slave, broker)
    ours, theirs = _ends(found)
    begin = max(found.master_range[0], found.slave_range[0])
    end = max(min(found.master_range[1], found.slave_range[1]), begin)
    found.common = begin, end
    _compare_ranges(found, ours, theirs)
    pairs = list(_pairs(found, ours, theirs, range_bytes))
    sums: tuple[Counts, Counts] = {}, {}
    results = spark.sparkContext.parallelize(pairs, max(len(pairs), 1)).map(audit_range).toLocalIterator() \
        if pairs else iter(())
    for number, result in enumerate(results, 1):
        _take(found, result, sums)
        come_to(number, len(pairs))
    _conclude(found, sums)
    return found


def _ends(found: Audit) -> tuple[LogFiles, LogFiles]:
    """The files of both, and how far they go. The brokers may be writing: what the master had before the slave was
    looked at, the slave should have; and the slave is ahead of nothing that the master has had since.
    """
    ours = _one_log(found.master)
    master_end = log_end(ours)
    theirs = _one_log(found.slave)
    slave_end = log_end(theirs)
    if slave_end > master_end:
        ours = _one_log(found.master)
        master_end = min(max(log_end(ours, master_end), master_end), slave_end)
    found.master_range, found.slave_range = (ours.min_offset, master_end), (theirs.min_offset, slave_end)
    return ours, theirs


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
        found.problems.append(f"the slave is {slave_last - last} bytes ahead: {_file_at(theirs, last)} goes on at "
                              f"offset {last}, where the master's log ends")
    if slave_first > first and theirs.segments:
        found.notes.append(f"the slave begins at offset {slave_first}, the master at {first}")


def _file_at(log: LogFiles, offset: int) -> str:
    return next((segment.path for segment in reversed(log.segments) if segment.start <= offset), log.path)


def _pairs(found: Audit, ours: LogFiles, theirs: LogFiles, size: int) -> Iterator[RangePair]:
    """Ranges of the common part; a problem for each file that one side lacks."""
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
    """Compare one range of both logs, and count what is in it. Runs in a task."""
    try:
        return _audited(pair)
    except VanishedError:
        path = next((span.path for span in pair if not os.path.exists(span.path)), pair.slave.path)
        return RangeAudit(0, None, {}, {}, [], path)


def _audited(pair: RangePair) -> RangeAudit:
    bad: list[str] = []
    offset = first_difference(pair)
    counts = count_records(pair.master, bad)
    same = offset is None
    other = counts if same else count_records(pair.slave, bad)
    difference = None
    if offset is not None and not _in_blank_rest(pair, offset):
        difference = Difference(offset, pair.master.path, pair.slave.path, offset - pair.master.file_start,
                                record_around(pair.master, offset))
    return RangeAudit(pair.master.end - pair.master.begin, difference, counts, other, bad)


def first_difference(pair: RangePair) -> int | None:
    """The offset of the first byte that differs."""
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
    """Messages of each queue in a range; places without a record or with a wrong CRC go to `bad`."""
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
    """The record that holds the byte at `offset`; None when none does."""
    for found in scan_range(span, False):
        if isinstance(found, Hole) or found.rows["offset"][0] > offset:
            continue
        row = found.rows[int(np.searchsorted(found.rows["offset"], offset, side="right")) - 1]
        if row["offset"] <= offset < row["offset"] + row["size"]:
            return {"offset": int(row["offset"]), "size": int(row["size"]), "topic": found.topics[row["topic"]],
                    "queueId": int(row["queueId"]), "queueOffset": int(row["queueOffset"])}
    return None


def _in_blank_rest(pair: RangePair, offset: int) -> bool:
    """Whether the byte lies behind the blank that ends a file in both logs: nobody reads it."""
    ends = [_records_end(span) for span in pair]
    return ends[0] == ends[1] and offset >= ends[0] + _BLANK_HEAD


def _records_end(span: ByteRange) -> int:
    """Offset behind the last record of a range; its end when something else than a blank follows."""
    position = span.begin
    for found in scan_range(span, False):
        if isinstance(found, Hole):
            return span.end
        position = int(found.rows["offset"][-1] + found.rows["size"][-1])
    return position


def _take(found: Audit, result: RangeAudit, sums: tuple[Counts, Counts]) -> None:
    if result.vanished is not None:
        found.notes.append(f"{result.vanished} was deleted while it was read: it was not compared to its end")
    found.compared += result.compared
    found.bad += result.bad
    for counts, more in zip(sums, (result.master, result.slave)):
        for name, count in more.items():
            _add(counts, name, count)
    if result.difference is not None:
        found.differences += 1
        if found.difference is None or result.difference.offset < found.difference.offset:
            found.difference = result.difference


def _conclude(found: Audit, sums: tuple[Counts, Counts]) -> None:
    ours, theirs = sums
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
    found.problems += sorted(set(found.bad))
    found.notes = sorted(set(found.notes))


def _counted(count: list[int] | None) -> str:
    return "no messages" if count is None else f"{count[0]} messages, {count[1]} to {count[2]}"


def audit_all(spark: SparkSession, pairs: Iterable[tuple[str, str, str]], come_to: Progress) -> list[Audit]:
    """Audits of several pairs of master and slave, each with the name of the broker."""
    return [audit(spark, master, slave, come_to, broker=broker) for master, slave, broker in pairs]
