"""`store repair`: replace the damaged records of a stopped slave by its master's.

    compare --> the master's copies, each checked --> save the old bytes --> write --> queues and index, if they need it

`Planner` finds the records that differ from the master's, and `Repair` replaces them.
"""
from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from rmqha.common.filesystem import fsync_path, open_regular
from rmqha.common.message.message_layout import BLANK, BLANK_MAGIC_CODE, HEAD_LENGTH, HEADS
from rmqha.common.program import examples
from rmqha.common.util_all import current_time_millis, offset_to_file_name, time_millis_to_human_string
from rmqha.store import store_path_config_helper as paths
from rmqha.tools.connection import connected
from rmqha.tools.replication.log_match import (
    BLOCK,
    Copy,
    Place,
    copy_of,
    differing_blocks,
    first_difference,
    in_unread_rest,
    place_of,
)
from rmqha.tools.store_files import reading, rebuild
from rmqha.tools.store_files.findings import commitlog_option, delay_levels_option, index_shape, index_shape_options
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.reading import CommitLogReader, whole_log
from rmqha.tools.store_files.verify import Verification
from rmqha.tools.terminal import CannotAnswerError, cell, counted, duration_type, emit, output_option, progress, put

if TYPE_CHECKING:
    from rmqha.tools.replication.log_match import LogSide


# Differing records in a row, before checking whether this is another log.
_MAX_RUN = 1000
_MAX_NAMED = 20
_SET_UP_AGAIN = "Set the slave up again: stop it, move its store aside, and start it with an empty one"


class StoreSide:
    """The log of a stopped broker, as one side of a comparison. A truncated file is read as if filled with zeros."""

    def __init__(self, log: CommitLogReader) -> None:
        self.name = "the store"
        self.log = log
        self.begin, self.end, self.file_size = log.min_offset, log.files_end, log.file_size

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """Return the CRC32 of each block."""
        data = memoryview(self.read(offset, block_size * count))
        return tuple(zlib.crc32(data[at:at + block_size]) for at in range(0, len(data), block_size))

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the log."""
        parts = []
        while size > 0:
            room = min(size, self.file_size - offset % self.file_size)
            parts.append(self.log.read(offset, room).ljust(room, b"\0"))
            offset, size = offset + room, size - room
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


@dataclass(frozen=True)
class Damaged:
    """A record, or the blank of a file, that differs from the master's; `what`: the parts that differ."""

    offset: int
    size: int
    topic: str
    queueId: int
    queueOffset: int
    what: tuple[str, ...]
    # The fault of the slave's copy; "" when its CRC and lengths are right.
    reason: str

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + self.size

    def text(self) -> str:
        """Return the record as one line."""
        who = f"record at {self.offset}, topic {cell(self.topic)}, queue {self.queueId}, queue offset " \
              f"{self.queueOffset}, {self.size} bytes" if self.topic else f"blank at {self.offset}"
        return f"{who}; different: {', '.join(self.what)}" \
            + (f"; the slave's copy: {self.reason}" if self.reason else "")


@dataclass
class Plan:
    """The plan of a repair; with `problems` it changes nothing."""

    begin: int = 0
    end: int = 0
    damaged: list[Damaged] = field(default_factory=list)
    # Files that differ after their blank, in bytes that are never read.
    rests: int = 0
    # Reasons why the repair can't begin.
    problems: list[str] = field(default_factory=list)
    # Flaws for which the master no longer has a copy.
    beyond: list[str] = field(default_factory=list)


class Planner:
    """One comparison of a store's log with its master's."""

    def __init__(self, log: CommitLogReader, master: LogSide, come_to: Callable[[int], None]) -> None:
        self._log = log
        self._slave = StoreSide(log)
        self._master = master
        self._come_to = come_to
        self._plan = Plan()

    def run(self) -> Plan:
        """Compare the range that both logs hold."""
        log, master, plan = self._log, self._master, self._plan
        if log.file_size != master.file_size:
            raise CannotAnswerError(f"the store's log files have {log.file_size} bytes, but those of {master.name} "
                                    f"have {master.file_size}: they are not replicas of one log")
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
                self._plan.problems.append(f"files are missing from offset {before.start + self._log.file_size} to "
                                           f"{behind.start}. {_SET_UP_AGAIN}")

    def _chain_end(self) -> int:
        """Return the offset after the last record, continuing over damage before it."""
        for segment in reversed(self._log.folder.segments):
            last = None
            for walk, _records in whole_log(self._log, lambda _end, _found: True, begin=segment.start):
                last = walk
            if last is not None:
                return last.end.offset
        return self._log.min_offset

    def _look_before(self, begin: int) -> None:
        """Find the flaws before the range that the master holds."""
        beyond = self._plan.beyond
        position = self._log.min_offset
        while position < begin and len(beyond) < _MAX_NAMED:
            walk = self._log.walk(position, check_crc=True)
            for records in walk:
                beyond += [f"record at {record.offset}, topic {cell(record.topic)}, queue {record.queue_id}, queue "
                           f"offset {record.queue_offset}: its body CRC is wrong"
                           for record in records if not record.crc_ok and record.offset < begin]
                if walk.position >= begin:
                    return
            if walk.end.offset >= begin:
                return
            beyond.append(f"no record at {walk.end.offset}: {walk.end.reason or 'nothing is there'}")
            found = self._log.next_record(walk.end.offset, walk.last_store_timestamp)
            position = begin if found is None else found.offset

    def _compare(self, begin: int, end: int) -> None:
        # Everything before `done` is decided; `run_begin` is where the current run of differing records begins.
        done, run_begin = begin, begin
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
        """Record the difference at `at`; return the offset at which to continue."""
        plan = self._plan
        if in_unread_rest(self._master, self._slave, at, place):
            plan.rests += 1
            return place.end
        if place.is_blank:
            head = self._slave.read(place.start, BLANK.size)
            if head == self._master.read(place.start, BLANK.size):
                # The rest of a blank is never read if its head is right.
                plan.rests += 1
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
                if mine.is_good else "This store's copy is damaged too: look for a third replica or a backup")
        self._plan.problems.append(f"{self._master.name} itself has a damaged copy of the record at {offset}: "
                                   f"{reason}. {todo}")

    def _refuse_another_log(self, begin: int, end: int) -> None:
        """Refuse a range whose records are all complete, but differ from the master's: that is not damage."""
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
            raise CannotAnswerError(f"from offset {begin} on the store holds complete records that differ from those "
                                    f"of {self._master.name}: it is another log, or has diverged; it is not damaged. "
                                    "Is that its master? To repair a slave that has diverged, use rmqha ha rejoin")

    def _look_behind(self, end: int) -> None:
        """Check records with damaged heads: the log seems to end before them."""
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
        """Return the offset after the last nonzero byte from `begin` to the end of the master's log; else `begin`."""
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
    """Yield (begin, end) of each run of adjacent records."""
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
    """Return the file that holds an offset, and the position in it."""
    segment = log.folder.segments[log.folder.at(offset)]
    return os.path.realpath(segment.path), offset - segment.start


# Bytes fetched before they are written.
_BATCH = 64 << 20
_SHOWN = 20
_GONE_FROM_MASTERS = "no master holds these records any longer: set the slave up again with an empty store"


@dataclass
class Repaired:
    """The result of a repair. `clean`: the result of `store verify` afterwards; None: not applied, or not begun."""

    plan: Plan
    kept: list[str] = field(default_factory=list)
    written: int = 0  # records
    rebuilt: list[str] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    clean: bool | None = None

    @property
    def exit_code(self) -> int:
        """The exit code: 1 as long as the store has a fault."""
        plan = self.plan
        return int(bool(plan.problems or plan.beyond or self.flaws or (plan.damaged and not self.clean)))


class Repair:
    """One repair of the store at `store.root`; the caller locks out brokers."""

    def __init__(self, store: StoreReader, master: LogSide, delay_levels: str) -> None:
        self._store = store
        self._master = master
        self._delay_levels = delay_levels

    def plan(self, come_to: Callable[[int], None]) -> Repaired:
        """Compare the logs without changing anything."""
        return Repaired(Planner(self._store.log, self._master, come_to).run())

    def apply(self, come_to: Callable[[int], None]) -> Repaired:
        """Compare the logs, and replace differing records by the master's."""
        result = self.plan(come_to)
        if result.plan.problems:
            return result
        for batch in _batches(result.plan.damaged):
            self._write([(each, self._fetched(each)) for each in batch], result)
        self._settle_queues(result)
        return result

    def _fetched(self, damaged: Damaged) -> bytes:
        """Return the master's bytes, checked again: the master's store may be damaged too."""
        data = self._master.read(damaged.offset, damaged.size)
        if damaged.topic:
            reason = copy_of(data, damaged.offset).reason
        else:
            reason = "" if BLANK.unpack(data)[1] == BLANK_MAGIC_CODE else "it is not the blank that ends a file"
        if reason:
            raise CannotAnswerError(f"{self._master.name} sent other bytes at {damaged.offset} than before: {reason}. "
                                    "Run the command again")
        return data

    def _write(self, batch: list[tuple[Damaged, bytes]], result: Repaired) -> None:
        log = self._store.log
        for begin, end in runs_of([each for each, _data in batch]):
            result.kept.append(self._keep(begin, log.read(begin, end - begin)))
        fsync_path(paths.get_diverged_folder(self._store.root))
        files: dict[str, int] = {}
        try:
            for damaged, data in batch:
                path, position = path_at(log, damaged.offset)
                if path not in files:
                    files[path] = open_regular(path, os.O_WRONLY)
                    if os.fstat(files[path]).st_size < log.file_size:
                        os.ftruncate(files[path], log.file_size)
                _write_at(files[path], data, position)
                result.written += 1
            for fd in files.values():
                os.fsync(fd)
        finally:
            for fd in files.values():
                os.close(fd)

    def _keep(self, offset: int, data: bytes) -> str:
        """Save the replaced bytes to a file named after their offset, and force it to disk."""
        folder = paths.get_diverged_folder(self._store.root)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder,
                            f"{offset_to_file_name(offset)}.{time_millis_to_human_string(current_time_millis())}")
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _settle_queues(self, result: Repaired) -> None:
        """Rebuild queues and index if needed: damaged records may have been dispatched wrongly, or not at all."""
        only_bodies = all(each.what == ("body",) for each in result.plan.damaged)
        if only_bodies and not result.plan.beyond:
            result.clean = not self._flaws()
            if result.clean:
                return
        try:
            built = rebuild.write_all(self._reopened(), self._store.root, True, True, lambda _position: None,
                                      delay_levels=self._delay_levels)
            result.rebuilt, result.flaws = built.written, self._flaws()
        except CannotAnswerError as error:
            result.flaws = [error.message]
        result.clean = not result.flaws

    def _flaws(self) -> list[str]:
        found = Verification(self._reopened(), limit=_SHOWN, delay_levels=self._delay_levels).run()
        return [flaw.text() for flaw in found.flaws]

    def _reopened(self) -> StoreReader:
        """Return the store with its present files; this process holds its lock."""
        store = StoreReader(self._store.root, self._store.commit_log_paths, self._store.index_shape,
                            self._store.file_size)
        store.live, store.crashed = False, self._store.crashed
        store.log = store.log_now()
        return store


def _batches(damaged: list[Damaged]) -> Iterator[list[Damaged]]:
    batch: list[Damaged] = []
    size = 0
    for each in damaged:
        if batch and size + each.size > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size
    if batch:
        yield batch


def _write_at(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written


def _print(result: Repaired, master: str, applied: bool) -> None:
    plan = result.plan
    for each in plan.damaged[:_SHOWN]:
        put(f"DIFFERENT {each.text()}")
    if len(plan.damaged) > _SHOWN:
        put(f"... and {len(plan.damaged) - _SHOWN} more; -o json shows all")
    for problem in plan.problems:
        put(f"PROBLEM {problem}")
    for flaw in plan.beyond:
        put(f"LOST {flaw}")
    if plan.rests:
        put(f"note the unread rests of {counted(plan.rests, 'file')} differ")
    for path in result.kept[:_SHOWN]:
        put(f"{path}: the replaced bytes")
    if len(result.kept) > _SHOWN:
        put(f"... and {len(result.kept) - _SHOWN} more in the same folder")
    for line in result.rebuilt:
        put(line)
    for flaw in result.flaws:
        put(f"FLAW {flaw}")
    put(f"compared {plan.begin} to {plan.end}, {max(plan.end - plan.begin, 0)} bytes, with {master}: "
        f"{_verdict(result, applied)}")


def _verdict(result: Repaired, applied: bool) -> str:
    plan = result.plan
    what = counted(len(plan.damaged), "record") + (" differs" if len(plan.damaged) == 1 else " differ")
    if plan.problems:
        return f"{what}; nothing was written because of the problems above"
    if plan.beyond:
        what += f"; flaws before offset {plan.begin}, where the master's log begins: {_GONE_FROM_MASTERS}"
    if not applied:
        return f"{what}; --apply replaces them by the master's" if plan.damaged else what
    clean = "the store is clean" if result.clean else "the store is not clean, see store verify"
    return f"{what}; {result.written} replaced by the master's; {clean}"


@click.command("repair", short_help="Replace a slave's damaged records with its master's.", epilog=examples(
    "rmqha store repair ~/store --master 10.0.0.1:10911            # show only",
    "rmqha store repair ~/store --master 10.0.0.1:10911 --apply"))
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@click.option("--master", required=True, metavar="HOST:PORT", help="The running master's listenPort.")
@click.option("--apply", "apply_", is_flag=True, help="Write the master's records. Without it, only show them.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, type=duration_type(0.1, 600),
              help="Seconds to wait for each answer of the master.")
@commitlog_option
@delay_levels_option
@index_shape_options
@output_option
def repair_command(root: str, master: str, apply_: bool, timeout_s: float, commitlog: tuple[str, ...],
                   delay_levels: str, index_slots: int | None, index_entries: int | None, output: str) -> None:
    """Compare the log of the stopped slave at ROOT with its master's, and show the records that differ.

    With --apply, replace them by the master's, and rebuild consume queues and index if they need it. Replaced bytes are
    kept in ROOT/diverged. If the master's own copy of a record is damaged, nothing is written. Exit code 0 when the
    logs are equal, or the store is repaired and clean; 1 when not.

    A running rmqha broker is asked for checksums; a RocketMQ broker is read through its HA port, without acknowledging
    anything.
    """
    from rmqha.tools.replication.log_match import log_side

    lock = paths.get_lock_file(root)
    if reading.is_held(lock):
        raise CannotAnswerError(f"{lock} is held: a broker runs on this store. Stop it; check ha --deep compares a "
                                "running slave")
    store = StoreReader(root, commitlog, index_shape(index_slots, index_entries))
    with connected(None, timeout_s) as admin, reading.held(lock), \
            closing(log_side(admin, master, "master")) as side, \
            progress("repair", store.log.files_end - store.log.min_offset) as shown:
        def come_to(offset: int) -> None:
            shown(offset - store.log.min_offset)
        repair = Repair(store, side, delay_levels)
        result = repair.apply(come_to) if apply_ else repair.plan(come_to)
    if output != "table":
        emit(_report(root, side.name, apply_, result), output)
    else:
        _print(result, side.name, apply_)
    if result.exit_code:
        raise SystemExit(result.exit_code)


def _report(root: str, master: str, applied: bool, result: Repaired) -> dict[str, Any]:
    """Return the result for JSON and YAML."""
    plan = result.plan
    return {"root": root, "master": master, "applied": applied, "begin": plan.begin, "end": plan.end,
            "damaged": [asdict(each) for each in plan.damaged], "problems": plan.problems, "lost": plan.beyond,
            "unreadRestsThatDiffer": plan.rests, "kept": result.kept, "written": result.written,
            "rebuilt": result.rebuilt, "flaws": result.flaws, "clean": result.clean}
