"""Which records of a stopped slave's log are not its master's."""
from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqha.common.message.message_layout import BLANK, HEAD_LENGTH, HEADS
from rmqha.tools.ha.log_match import (
    BLOCK,
    Copy,
    Place,
    copy_of,
    differing_blocks,
    first_difference,
    in_unread_rest,
    place_of,
)
from rmqha.tools.store.errors import StoreToolError
from rmqha.tools.store.log_reader import CommitLogReader, whole_log
from rmqha.tools.store.output import cell

if TYPE_CHECKING:
    from rmqha.tools.ha.log_sides import LogSide

_MAX_RUN = 1000  # records that differ on end, before it is asked whether the log is another one
_MAX_NAMED = 20
_SET_UP_AGAIN = "Set the slave up again: stop it, move its store aside, and start it with an empty one"


class StoreSide:
    """The log of a stopped broker, as one side of a comparison. Where a file is cut off, it has zeros."""

    def __init__(self, log: CommitLogReader) -> None:
        self.name = "the store"
        self.log = log
        self.begin, self.end, self.file_size = log.min_offset, log.files_end, log.file_size

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """CRC32 of each block."""
        data = memoryview(self.read(offset, block_size * count))
        return tuple(zlib.crc32(data[at:at + block_size]) for at in range(0, len(data), block_size))

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the log."""
        parts = []
        while size > 0:
            room = min(size, self.file_size - offset % self.file_size)
            parts.append(self.log.read(offset, room).ljust(room, b"\0"))
            offset, size = offset + room, size - room
        return b"".join(parts)

    def close(self) -> None:
        """Nothing is kept open."""


@dataclass(frozen=True)
class Damaged:
    """A record (or the blank of a file) that is not the master's; `what`: its parts that differ."""

    offset: int
    size: int
    topic: str
    queueId: int
    queueOffset: int
    what: tuple[str, ...]
    reason: str  # what is wrong with the slave's copy; "" when its CRC and lengths are right

    @property
    def end(self) -> int:
        """Offset behind it."""
        return self.offset + self.size

    def text(self) -> str:
        """One line."""
        who = f"record at {self.offset}, topic {cell(self.topic)}, queue {self.queueId}, queue offset " \
              f"{self.queueOffset}, {self.size} bytes" if self.topic else f"blank at {self.offset}"
        return f"{who}; different: {', '.join(self.what)}" \
            + (f"; the slave's copy: {self.reason}" if self.reason else "")


@dataclass
class Plan:
    """What a repair has to do; with `problems` it does nothing."""

    begin: int = 0
    end: int = 0
    damaged: list[Damaged] = field(default_factory=list)
    rests: int = 0  # files that differ behind their blank, where nobody reads
    problems: list[str] = field(default_factory=list)  # what keeps it from beginning
    beyond: list[str] = field(default_factory=list)  # flaws of which the master has no copy any more


class Planner:
    """One comparison of a store's log with its master's."""

    def __init__(self, log: CommitLogReader, master: LogSide, come_to: Callable[[int], None]) -> None:
        self._log = log
        self._slave = StoreSide(log)
        self._master = master
        self._come_to = come_to
        self._plan = Plan()

    def run(self) -> Plan:
        """Compare all that both hold."""
        log, master, plan = self._log, self._master, self._plan
        if log.file_size != master.file_size:
            raise StoreToolError(f"the store's log files have {log.file_size} bytes, those of {master.name} "
                                 f"{master.file_size}: they are not replicas of one log")
        self._check_files()
        if plan.problems:
            return plan
        slave_end = self._chain_end()
        plan.begin, plan.end = max(log.min_offset, master.begin), min(slave_end, master.end)
        if plan.begin > plan.end:
            plan.problems.append(f"the logs have nothing in common: the store holds {log.min_offset} to {slave_end}, "
                                 f"{master.name} {master.begin} to {master.end}. {_SET_UP_AGAIN}")
            return plan
        self._look_before(plan.begin)
        self._compare(plan.begin, plan.end)
        self._look_behind(plan.end)
        return plan

    def _check_files(self) -> None:
        segments = self._log.folder.segments
        for before, behind in zip(segments, segments[1:], strict=False):
            if behind.start != before.start + self._log.file_size:
                self._plan.problems.append(f"there is no file from offset {before.start + self._log.file_size} to "
                                           f"{behind.start}. {_SET_UP_AGAIN}")

    def _chain_end(self) -> int:
        """Offset behind the last record, over all damage before it."""
        for segment in reversed(self._log.folder.segments):
            last = None
            for walk, _records in whole_log(self._log, lambda _end, _found: True, begin=segment.start):
                last = walk
            if last is not None:
                return last.end.offset
        return self._log.min_offset

    def _look_before(self, begin: int) -> None:
        """What is wrong in front of what the master holds."""
        beyond = self._plan.beyond
        position = self._log.min_offset
        while position < begin and len(beyond) < _MAX_NAMED:
            walk = self._log.walk(position, check_crc=True)
            for records in walk:
                beyond += [f"record at {record.offset}, topic {cell(record.topic)}, queue {record.queue_id}, queue "
                           f"offset {record.queue_offset}: its body has another CRC than it says"
                           for record in records if not record.crc_ok and record.offset < begin]
                if walk.position >= begin:
                    return
            if walk.end.offset >= begin:
                return
            beyond.append(f"no record at {walk.end.offset}: {walk.end.reason or 'nothing is there'}")
            found = self._log.next_record(walk.end.offset, walk.last_store_timestamp)
            position = begin if found is None else found.offset

    def _compare(self, begin: int, end: int) -> None:
        done, run_begin = begin, begin  # all before `done` is decided; where those that differ on end begin
        in_run = 0
        for low, high in differing_blocks(self._master, self._slave, begin, end, self._come_to):
            while (at := first_difference(self._master, self._slave, max(low, done), high)) is not None:
                place = place_of(self._master, at)
                if place.start > done or not in_run:
                    run_begin, in_run = place.start, 0
                in_run += 1
                done = self._note(at, place, high)
                if in_run == _MAX_RUN:
                    self._refuse_another_log(run_begin, done)
        if in_run > 1 and done >= end:
            self._refuse_another_log(run_begin, end)

    def _note(self, at: int, place: Place, high: int) -> int:
        """Take down what differs at `at`; where to continue."""
        plan = self._plan
        if in_unread_rest(self._master, self._slave, at, place):
            plan.rests += 1
            return place.end
        if place.is_blank:
            head = self._slave.read(place.start, BLANK.size)
            if head == self._master.read(place.start, BLANK.size):
                plan.rests += 1  # nobody reads there once the head of the blank is right
            else:
                plan.damaged.append(Damaged(place.start, BLANK.size, "", 0, 0, ("blank",), ""))
            return place.end
        if place.reason:
            held = place_of(self._slave, place.start)
            self._bad_master(place.start, place.reason, copy_of(self._slave.read(place.start, held.size), place.start))
            return max(high, held.end)
        mine, theirs = (copy_of(side.read(place.start, place.size), place.start) for side in (self._slave,
                                                                                            self._master))
        if not theirs.is_good:
            self._bad_master(place.start, theirs.reason, mine)
        else:
            plan.damaged.append(_damaged(place.start, mine, theirs))
        return place.end

    def _bad_master(self, offset: int, reason: str, mine: Copy) -> None:
        if len(self._plan.problems) >= _MAX_NAMED:
            return
        todo = ("This store's copy is good: make this slave the master, or restore the master's file from it"
                if mine.is_good else "This store's copy is not good either: look for a third replica or a backup")
        self._plan.problems.append(f"{self._master.name} has a bad copy of the record at {offset} itself: {reason}. "
                                   f"{todo}")

    def _refuse_another_log(self, begin: int, end: int) -> None:
        """StoreToolError when the records of a range are whole, but none is the master's: that is no damage."""
        heads, position = 0, begin
        while position < end:
            record = self._log.record_at(position)
            if record is None:
                if heads and self._log.goes_on_at(position):  # the blank of a file
                    position += self._log.file_size - position % self._log.file_size
                    continue
                return
            size = min(HEAD_LENGTH, self._master.end - position)
            if not record.crc_ok or record.physical_offset != position \
                    or self._slave.read(position, size) == self._master.read(position, size):
                return
            heads, position = heads + 1, position + record.size
        if heads > 1:
            raise StoreToolError(f"from offset {begin} on the store holds whole records that are not those of "
                                 f"{self._master.name}: it is another log, or has diverged, and is not damaged. Is "
                                 "that its master? The way back for a slave that has diverged is rmqha ha rejoin")

    def _look_behind(self, end: int) -> None:
        """Records whose heads are damaged, so that the log seems to end before them."""
        written = self._written_end(end)
        while end < written:
            place = place_of(self._master, end)
            size = BLANK.size if place.is_blank else place.size
            if place.reason or place.start != end or end + size > self._slave.end:
                return
            if self._slave.read(end, size) != self._master.read(end, size):
                self._note(end, place, end)
            self._plan.end = end = place.end

    def _written_end(self, begin: int) -> int:
        """Offset behind the last byte that is not zero, from `begin` to where the master's log ends; else `begin`."""
        high = min(self._master.end, self._slave.end)
        while high > begin:
            size = min(BLOCK, high - begin)
            found = len(self._slave.read(high - size, size).rstrip(b"\0"))
            if found:
                return high - size + found
            high -= size
        return begin


def _damaged(offset: int, mine: Copy, theirs: Copy) -> Damaged:
    record = theirs.record
    assert record is not None  # the copy is good
    body = HEADS[record.sys_flag >> 4 & 3].size
    parts = {"head": (0, body), "body": (body, body + record.body_length),
             "topic or properties": (body + record.body_length, len(theirs.data))}
    what = tuple(name for name, (low, high) in parts.items() if mine.data[low:high] != theirs.data[low:high])
    return Damaged(offset, record.size, record.topic, record.queue_id, record.queue_offset, what, mine.reason)


def runs_of(damaged: list[Damaged]) -> Iterator[tuple[int, int]]:
    """(begin, end) of what lies on end."""
    begin = end = -1
    for each in damaged:
        if each.offset != end:
            if end > begin:
                yield begin, end
            begin = each.offset
        end = each.end
    if end > begin:
        yield begin, end


def path_at(log: CommitLogReader, offset: int) -> tuple[str, int]:
    """The file that holds an offset, and the position in it."""
    segment = log.folder.segments[log.folder.at(offset)]
    return os.path.realpath(segment.path), offset - segment.start
