"""The job `rebuild`: builds consume queues and index files from the commit log, many ranges of it in parallel.

A task scans a range, writes the units of its messages to their places in the queue files, and writes the keys to its
own file. Each message contains its index in the queue, so no task waits for another. Then the index is built from the
keys in the order of the log, so that its bytes equal those that a broker wrote.

Large index files are built by several tasks, each with a share of the keys. An entry refers to the previous entry in
its slot. Within a share that entry is known at once; the first entry of a share in a slot gets it in a second round,
from the earlier shares (`mend_share`).
"""
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
from pyspark.sql import SparkSession

from rmqha.common.filesystem import pread
from rmqha.common.texts import is_folder_name
from rmqha.common.units import DELAY_LEVELS
from rmqha.common.util_all import offset2file_name
from rmqha.pipeline.format_options import MOST_LONG, PipelineError
from rmqha.pipeline.log import ranges
from rmqha.pipeline.log.log_ends import log_end
from rmqha.pipeline.log.log_scan import BLOCK, ByteRange, Hole, LogFiles, find_logs, scan_range
from rmqha.pipeline.progress import Progress, merge_tasks, run_tasks
from rmqha.store import store_path_config_helper as paths
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters, Span, Stop
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, PRE_BLANK_UNIT, first_unit_at
from rmqha.store.index.index_file import USUAL
from rmqha.store.index.index_layout import HASH_SLOT_SIZE, HEADER, INDEX_HEADER_SIZE, INDEX_SIZE, file_size
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.store_path_config_helper import read_deleted_topics

# Keys of one share. Files are not divided into shares if there are enough files for all cores.
SHARE, MOST_SHARES, ENOUGH_FILES = 1 << 20, 8, 64
# Comes after the name of an index file, and before the number of a share: the share's slots.
_SLOTS = ".slots-"
_ENTRY = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("time", ">i4"), ("previous", ">i4")])
assert _ENTRY.itemsize == INDEX_SIZE
KeyFiles = tuple[tuple[str, int], ...]  # path and number of keys of each, in the order of the log


class IndexFile(NamedTuple):
    """One index file: `keys` keys, beginning with number `first` of all keys."""

    path: str
    first: int
    keys: int
    slots: int
    entries: int


class Share(NamedTuple):
    """The share `number` of `shares` of an index file: `keys` keys, beginning with number `first` of the file, from 0.
    """

    file: IndexFile
    parts: KeyFiles
    number: int
    shares: int
    first: int
    keys: int


def build_index(spark: SparkSession, files: Sequence[IndexFile], parts: KeyFiles,
                come_to: Progress | None = None) -> None:
    """Write all files, which do not exist yet."""
    shares: list[Share] = []
    for file in files:
        count = 1 if len(files) >= ENOUGH_FILES else min(-(-file.keys // SHARE), MOST_SHARES)
        bounds = [file.keys * number // count for number in range(count + 1)]
        shares += [Share(file, parts, number, count, begin, end - begin)
                   for number, (begin, end) in enumerate(zip(bounds, bounds[1:]))]
    for file in files:
        with open(file.path, "xb") as out:
            out.truncate(file_size(file.slots, file.entries))
    run_tasks(spark, put_share, shares, come_to)
    run_tasks(spark, mend_share, [share for share in shares if share.shares > 1])
    for share in shares:
        if share.shares > 1:
            os.unlink(_slots_path(share.file, share.number))


def put_share(share: Share) -> None:
    """Write the entries of a share, and its slots; into the file if it is the only share. Runs in a task."""
    file = share.file
    keys = read_keys(share.parts, file.first + share.first, share.keys)
    # Entries count from 1.
    entry = share.first + 1
    buffer = bytearray(INDEX_HEADER_SIZE + file.slots * HASH_SLOT_SIZE + share.keys * INDEX_SIZE)
    bulk.put_keys(buffer, file.slots, entry + share.keys, _counters(share), keys, first_entry=entry)
    entries_at = INDEX_HEADER_SIZE + file.slots * HASH_SLOT_SIZE
    view = memoryview(buffer)
    if share.shares > 1:
        with open(_slots_path(file, share.number), "wb") as out:
            out.write(view[INDEX_HEADER_SIZE:entries_at])
    fd = os.open(file.path, os.O_WRONLY | os.O_CLOEXEC)
    with open(fd, "wb"):
        # It has the file's last time and offset.
        if share.number == share.shares - 1:
            _write(fd, view[:INDEX_HEADER_SIZE if share.shares > 1 else entries_at], 0)
        _write(fd, view[entries_at:], entries_at + entry * INDEX_SIZE)


def _counters(share: Share) -> IndexCounters:
    """Return the values of the file's header before the share."""
    first = share.file.first + share.first
    before = KEY.unpack(read_keys(share.parts, first - 1, 1))[:2] if first else (0, 0)
    begin = before if not share.first else KEY.unpack(read_keys(share.parts, share.file.first, 1))[:2]
    return IndexCounters(begin[1], before[1], begin[0], before[0], 0, share.first + 1)


def mend_share(share: Share) -> None:
    """Link the first entry of each slot to the previous one in the earlier shares; the last share also writes the
    slots of the file. Runs in a task, after all shares have been written.
    """
    file = share.file
    slots = np.zeros(file.slots, ">i4")
    for number in range(share.number):
        _lay_over(slots, file, number)
    fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
    with open(fd, "r+b"):
        if share.number:
            at = INDEX_HEADER_SIZE + file.slots * HASH_SLOT_SIZE + (share.first + 1) * INDEX_SIZE
            entries = np.frombuffer(bytearray(pread(fd, share.keys * INDEX_SIZE, at)), _ENTRY)
            heads = entries["previous"] == 0
            entries["previous"][heads] = slots[entries["hash"][heads] % file.slots]
            _write(fd, entries.data.cast("B"), at)
        if share.number == share.shares - 1:
            _lay_over(slots, file, share.number)
            header = list(HEADER.unpack(pread(fd, INDEX_HEADER_SIZE, 0)))
            header[4] = int(np.count_nonzero(slots))
            _write(fd, memoryview(HEADER.pack(*header)), 0)
            _write(fd, slots.data.cast("B"), INDEX_HEADER_SIZE)


def _slots_path(file: IndexFile, number: int) -> str:
    folder, name = os.path.split(file.path)
    return os.path.join(os.path.dirname(folder), f"{name}{_SLOTS}{number}")


def _lay_over(slots: np.ndarray, file: IndexFile, number: int) -> None:
    """Replace slots with those that a later share has set."""
    newer = np.fromfile(_slots_path(file, number), ">i4")
    np.copyto(slots, newer, where=newer != 0)


def _write(fd: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        data, position = data[written:], position + written


def read_keys(parts: KeyFiles, first: int, count: int) -> bytes:
    """Return keys `first` to `first + count` of all keys."""
    found = []
    for path, size in parts:
        if count and first < size:
            take = min(count, size - first)
            with open(path, "rb") as file:
                file.seek(first * KEY.size)
                found.append(file.read(take * KEY.size))
            first, count = 0, count - take
        else:
            first -= min(first, size)
    return found[0] if len(found) == 1 else b"".join(found)


DEFAULT_QUEUE_FILE_SIZE = 300_000 * CQ_STORE_UNIT_SIZE
_KEYS = "keys"
# The most problems that are listed.
MOST_PROBLEMS = 1000
# Tasks for many small files.
SHARES = 128
# Units.
_BLANKS_OF_DRIVER = 1 << 20
ItemT = TypeVar("ItemT")


@dataclass
class Rebuilt:
    """The result of a rebuild. `equal`: whether the store's own files are the same; None if they were not compared."""

    root: str
    out: str
    records: int = 0
    units: int = 0
    keys: int = 0
    endOffset: int = 0
    queues: int = 0
    queueFiles: int = 0
    indexFiles: int = 0
    equal: bool | None = None
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Shape:
    """The sizes that the broker is configured with."""

    queue_file_size: int = DEFAULT_QUEUE_FILE_SIZE
    slots: int = USUAL.slots
    entries: int = USUAL.entries
    delays_ms: tuple[int, ...] = ()


class RangeTask(NamedTuple):
    """One range to scan. `number`: its place among the ranges. `marks`: deleted topic -> offset below which its records
    have no units.
    """

    number: int
    span: ByteRange
    out: str
    shape: Shape
    marks: dict[str, int]


class Stretch(NamedTuple):
    """Units of a queue with consecutive indices, found in the ranges of the log from `number` on."""

    number: int
    # The index in the queue.
    first: int
    count: int  # type: ignore[assignment]  # replaces a tuple's method


@dataclass
class Built:
    """The findings in one range, or in several."""

    records: int = 0
    # Topic, queue id -> stretches in the log's order.
    queues: dict[tuple[str, int], list[Stretch]] = field(default_factory=dict)
    # Number of the range -> number of keys.
    keys: dict[int, int] = field(default_factory=dict)
    # Offset and text; beyond MOST_PROBLEMS they are only counted.
    problems: list[tuple[int, str]] = field(default_factory=list)
    more_problems: int = 0

    def add(self, other: "Built") -> "Built":
        """Merge another one into this one. A queue without gaps has one stretch after its neighboring ranges are
        merged.
        """
        self.records += other.records
        for name, stretches in other.queues.items():
            self.queues[name] = _joined(self.queues.get(name, []) + stretches)
        self.keys.update(other.keys)
        self.problems = sorted(self.problems + other.problems)
        self.more_problems += other.more_problems + max(len(self.problems) - MOST_PROBLEMS, 0)
        del self.problems[MOST_PROBLEMS:]
        return self


def _joined(stretches: list[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    # The sort is stable: several may belong to one range.
    for each in sorted(stretches, key=lambda stretch: stretch.number):
        last = joined[-1] if joined else None
        if last is not None and last.first + last.count == each.first:
            joined[-1] = last._replace(count=last.count + each.count)
        else:
            joined.append(each)
    return joined


def parse_delays(levels: str | None = None) -> tuple[int, ...]:
    """Return the ms of each level of a messageDelayLevel. PipelineError if the text is not valid."""
    levels = MessageStoreConfig().messageDelayLevel if levels is None else levels
    try:
        delays = tuple(DELAY_LEVELS[level[-1:]] * int(level[:-1]) for level in levels.split())
        if not all(0 <= delay <= MOST_LONG for delay in delays):
            raise ValueError("beyond a long")
        return delays
    except (KeyError, ValueError):
        raise PipelineError(f"delay levels {levels[:200]!r}: give the broker's messageDelayLevel, numbers with s, m, "
                            "h or d, such as '1s 5s 10s'") from None


def rebuild(spark: SparkSession, root: str, out: str, shape: Shape, come_to: Progress | None = None, *,
            compare: bool = True, range_bytes: int = ranges.DEFAULT_PARTITION_BYTES) -> Rebuilt:
    """Build OUT/consumequeue and OUT/index from the commit log of the store at ROOT, and compare them with ROOT's.

    PipelineError if OUT has such folders, or ROOT is not a store.
    """
    logs = find_logs([root])
    queue_folder, index_folder = paths.get_store_path_consume_queue(out), paths.get_store_path_index(out)
    for folder in (queue_folder, index_folder):
        if os.path.isdir(folder) and os.listdir(folder):
            raise PipelineError(f"{folder} already has files: use another place to build in")
    work = os.path.join(out, ".rebuild")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, _KEYS))
    result = Rebuilt(root, out)
    log = logs[0]
    result.endOffset = log_end(log)
    try:
        marks = read_deleted_topics(root)
    except ValueError as error:
        raise PipelineError(str(error)) from None
    built = _scan_all(spark, log, result, lambda number, span: RangeTask(number, span, work, shape, marks),
                      range_bytes, come_to)
    _fill_gaps(spark, built, work, shape, result)
    result.indexFiles = _build_index(spark, built, work, shape, come_to)
    for folder in (queue_folder, index_folder):
        new = os.path.join(work, os.path.basename(folder))
        os.makedirs(new, exist_ok=True)
        if os.path.isdir(folder):
            os.rmdir(folder)
        os.rename(new, folder)
    shutil.rmtree(work)
    if compare:
        _compare(spark, root, out, result, shape)
    return result


def _scan_all(spark: SparkSession, log: LogFiles, result: Rebuilt, task_of: Callable[[int, ByteRange], RangeTask],
              range_bytes: int, come_to: Progress | None) -> Built:
    spans = ranges.ranges_of(log, log.min_offset, result.endOffset, range_bytes, True)
    tasks = [task_of(number, span) for number, span in enumerate(spans)]
    built = merge_tasks(spark, build_range, tasks, Built.add, come_to) or Built()
    result.records = built.records
    result.keys = sum(built.keys.values())
    result.problems += [text for _, text in built.problems]
    if built.more_problems:
        result.problems.append(f"and {built.more_problems} further places without a record")
    return built


def build_range(task: RangeTask) -> Built:
    """Scan a range: write units to their places, and keys to a file. Runs in a task."""
    writer = UnitWriter(os.path.join(task.out, "consumequeue"), task.shape.queue_file_size)
    built = Built()
    stretches: dict[tuple[str, int], list[Stretch]] = {}
    keys = 0
    with open(os.path.join(task.out, _KEYS, f"{task.number:08d}"), "wb") as key_file:
        for span in _spans(task.span, task.shape, built.problems):
            built.records += span.count
            for run in span.runs:
                name = span.topics[run.topic].name
                first = run.first_unit * CQ_STORE_UNIT_SIZE
                units = span.units[first:first + run.count * CQ_STORE_UNIT_SIZE]
                dead = first_unit_at(units, run.count, task.marks.get(name, 0))
                if dead < run.count:
                    stretches.setdefault((name, run.queue_id), []).append(
                        Stretch(task.number, run.queue_offset + dead, run.count - dead))
                    writer.write(name, run.queue_id, run.queue_offset + dead, units[dead * CQ_STORE_UNIT_SIZE:])
            key_file.write(span.keys)
            keys += len(span.keys) // KEY.size
    writer.close()
    built.queues = {name: _joined(found) for name, found in stretches.items()}
    built.keys[task.number] = keys
    return Built().add(built)


def _spans(span: ByteRange, shape: Shape, problems: list[tuple[int, str]]) -> Iterator[Span]:
    """Yield the kernel's results over a range, whether it begins at a record or not."""
    for found in scan_range(span, False):
        if isinstance(found, Hole):
            problems.append((found.offset, f"{found.path} at byte {found.offset - found.file_start} (offset "
                                           f"{found.offset}): {found.reason}, {found.size} bytes"))
            continue
        begin = int(found.rows["offset"][0]) - found.base
        end = int(found.rows["offset"][-1] + found.rows["size"][-1]) - found.base
        stop = Stop.LIMIT
        # A scan ends early if there are very many keys.
        while stop is Stop.LIMIT:
            scanned = bulk.scan(found.data, begin, end, found.base, False, shape.delays_ms, True)
            begin, stop = scanned.position, scanned.stop
            if scanned.count:
                yield scanned
        if stop is not Stop.END:
            raise PipelineError(f"{span.path} at byte {found.base + begin - span.file_start}: this record needs the "
                                "dispatch of single records (text that is not UTF-8, light message queues, or a delay "
                                "level that is not a number): use `rmqha store rebuild`")


class UnitWriter:
    """Writes units to their places in queue files, as several tasks do at the same time; keeps a few files open."""

    _MAX_OPEN = 64

    def __init__(self, folder: str, size: int) -> None:
        self._folder, self._size = folder, size
        self._files: dict[str, int] = {}

    def write(self, topic: str, queue_id: int, index: int, data: bytes) -> None:
        """Write units of a queue from `index` on. PipelineError if the topic is not a valid folder name."""
        if not is_folder_name(topic) or queue_id < 0 or index < 0:
            raise PipelineError(f"topic {topic!r}, queue {queue_id}, index {index} in the log can't be put into files")
        folder = os.path.join(self._folder, topic, str(queue_id))
        address, view = index * CQ_STORE_UNIT_SIZE, memoryview(data)
        while view:
            position = address % self._size
            part = view[:self._size - position]
            os.pwrite(self._open(folder, address - position), part, position)
            address, view = address + len(part), view[len(part):]

    def _open(self, folder: str, start: int) -> int:
        path = os.path.join(folder, offset2file_name(start))
        fd = self._files.get(path)
        if fd is None:
            if len(self._files) >= self._MAX_OPEN:
                self.close()
            os.makedirs(folder, exist_ok=True)
            fd = self._files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(fd, self._size)
        return fd

    def close(self) -> None:
        """Close the files."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


class Blanks(NamedTuple):
    """Units without a message, from index `first` of a queue on."""

    topic: str
    queue_id: int
    first: int
    count: int  # type: ignore[assignment]  # replaces a tuple's method


def _fill_gaps(spark: SparkSession, built: Built, work: str, shape: Shape, result: Rebuilt) -> None:
    """Write blanks before the first unit of each queue, as brokers do; report gaps and repeated indices as problems."""
    per_file = shape.queue_file_size // CQ_STORE_UNIT_SIZE
    blanks: list[Blanks] = []
    for (topic, queue_id), stretches in sorted(built.queues.items()):
        begin = following = stretches[0].first
        if begin % per_file:
            blanks.append(Blanks(topic, queue_id, begin - begin % per_file, begin % per_file))
        for _, first, count in stretches:
            if first < following:
                result.problems.append(f"queue {topic}/{queue_id}: index {first} follows {following - 1}: use `rmqha "
                                       "store rebuild`, which decides message by message")
            elif first > following:
                result.problems.append(f"queue {topic}/{queue_id}: index {first} follows {following - 1}")
                blanks.append(Blanks(topic, queue_id, following, first - following))
            following = max(following, first + count)
            result.units += count
        result.queues += 1
        result.queueFiles += (following - 1) // per_file - begin // per_file + 1
    folder, size = os.path.join(work, "consumequeue"), shape.queue_file_size
    if sum(each.count for each in blanks) < _BLANKS_OF_DRIVER:
        write_blanks(folder, size, blanks)
    else:
        run_tasks(spark, partial(write_blanks, folder, size), _spread(blanks))


def _spread(items: Sequence[ItemT]) -> list[list[ItemT]]:
    """Distribute the items over at most SHARES tasks. Neighbors, which may be similar, go to different tasks."""
    return [list(items[first::SHARES]) for first in range(min(SHARES, len(items)))]


def write_blanks(folder: str, size: int, blanks: list[Blanks]) -> None:
    """Write blanks to the queue files, of `size` bytes each. Runs in a task."""
    writer = UnitWriter(folder, size)
    most = size // CQ_STORE_UNIT_SIZE
    for topic, queue_id, first, count in blanks:
        for begin in range(first, first + count, most):
            writer.write(topic, queue_id, begin, PRE_BLANK_UNIT * min(most, first + count - begin))
    writer.close()


def _build_index(spark: SparkSession, built: Built, work: str, shape: Shape, come_to: Progress | None) -> int:
    parts = tuple((os.path.join(work, _KEYS, f"{number:08d}"), keys) for number, keys in sorted(built.keys.items()))
    total, per_file = sum(count for _, count in parts), shape.entries - 1
    folder = os.path.join(work, "index")
    os.makedirs(folder, exist_ok=True)
    files = [IndexFile(os.path.join(folder, f"{number:017d}"), first, min(per_file, total - first), shape.slots,
                       shape.entries)
             for number, first in enumerate(range(0, total, per_file))]
    build_index(spark, files, parts, come_to)
    return len(files)


def _compare(spark: SparkSession, root: str, out: str, result: Rebuilt, shape: Shape) -> None:
    built, own = paths.get_store_path_consume_queue(out), paths.get_store_path_consume_queue(root)
    pairs = [(os.path.join(folder, name), os.path.join(own, os.path.relpath(folder, built), name), CQ_STORE_UNIT_SIZE)
             for folder, _, names in os.walk(built) for name in sorted(names)]
    ours, theirs = (sorted(entry.path for entry in os.scandir(folder)) if os.path.isdir(folder) else []
                    for folder in (paths.get_store_path_index(out), paths.get_store_path_index(root)))
    theirs = [path for path in theirs if not _is_unused(path)]
    pairs += [(one, other, 0) for one, other in zip(ours, theirs)]
    if len(ours) != len(theirs):
        result.differences.append(f"{len(ours)} index files were built, the store has {len(theirs)}")
    result.differences += sorted(chain.from_iterable(run_tasks(spark, file_differences, _spread(pairs))))
    result.equal = not result.differences


def _is_unused(path: str) -> bool:
    """Return whether an index file was created but has no entry."""
    with open(path, "rb") as file:
        return not any(file.read(INDEX_HEADER_SIZE - 4))


def file_differences(pairs: list[tuple[str, str, int]]) -> list[str]:
    """Return the differences of several files. Runs in a task."""
    return [difference for difference in map(file_difference, pairs) if difference]


def file_difference(pair: tuple[str, str, int]) -> str | None:
    """Return where an existing file differs from the one that was built, or None.

    Units at the front of messages that are no longer in the log, where the built file has blanks, count as equal.
    """
    built, own, unit = pair
    try:
        with open(built, "rb") as one, open(own, "rb") as other:
            return _content_difference(one, other, own, unit)
    except FileNotFoundError:
        return f"{own} is missing"


def _content_difference(one: BinaryIO, other: BinaryIO, own: str, unit: int) -> str | None:
    size, position = BLOCK // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE, 0
    while True:
        mine, theirs = one.read(size), other.read(size)
        if unit:
            blanks = mine[:_blanks_at_front(mine)]
            mine, theirs = mine[len(blanks):], theirs[len(blanks):]
        if mine != theirs:
            length = min(len(mine), len(theirs))
            different = np.flatnonzero(np.frombuffer(mine, np.uint8, length) != np.frombuffer(theirs, np.uint8, length))
            at = int(different[0]) if len(different) else length
            return f"{own} differs from what was built at byte {position + (len(blanks) if unit else 0) + at}"
        if not mine and not (unit and blanks):
            return None
        position += size


def _blanks_at_front(data: bytes) -> int:
    count = 0
    while data[count:count + CQ_STORE_UNIT_SIZE] == PRE_BLANK_UNIT:
        count += CQ_STORE_UNIT_SIZE
    return count


def common_queue_file_size(root: str) -> int:
    """Return the most frequent size of the store's consume queue files; without any, the broker's default."""
    sizes = Counter(os.path.getsize(os.path.join(folder, name))
                    for folder, _, names in os.walk(paths.get_store_path_consume_queue(root)) for name in names)
    return sizes.most_common(1)[0][0] if sizes else DEFAULT_QUEUE_FILE_SIZE
