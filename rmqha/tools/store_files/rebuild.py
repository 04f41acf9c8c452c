"""`store rebuild`: build consume queues and index files from the commit log, to compare or to write them."""
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TypedDict, Unpack

import click

from rmqha.common.filesystem import fsync_path
from rmqha.common.message.message_layout import MIN_RECORD_LENGTH
from rmqha.common.program import examples
from rmqha.common.texts import is_folder_name
from rmqha.common.util_all import current_time_millis, time_millis_to_human_string, time_millis_to_human_string3
from rmqha.store import store_path_config_helper as paths
from rmqha.store.bulk.bulk_layout import Span
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, pack_unit
from rmqha.store.index.index_file import USUAL, Shape
from rmqha.tools.store_files import reading
from rmqha.tools.store_files.builders import (
    IndexBuilder,
    IndexComparer,
    IndexWriter,
    QueueBuilder,
    QueueComparer,
    QueueSink,
    QueueWriter,
)
from rmqha.tools.store_files.findings import (
    commitlog_option,
    common_file_size,
    delay_levels_option,
    index_shape,
    index_shape_options,
)
from rmqha.tools.store_files.readers import QueueKey, QueueReader, StoreReader
from rmqha.tools.store_files.reading import (
    DEFAULT_DELAY_LEVELS,
    Dispatcher,
    LogEnd,
    LogRecord,
    RunOfUnits,
    has_dead,
    runs_of,
    span_taker,
    whole_log,
)
from rmqha.tools.terminal import CannotAnswerError, cell, emit, output_option, progress, put, size_type

_DEFAULT_QUEUE_FILE_SIZE = 300_000 * CQ_STORE_UNIT_SIZE
_BUFFERS = 64 << 20  # bytes, of all queues together
_MAX_BUFFER = 64 << 10
_SHOWN = 20
_NEW = ".rebuild"
# The previous folder, until it is deleted.
_REPLACED = ".replaced"


@dataclass
class Built:
    """The result for one queue or index file. `state`: written, equal, missing, or the difference."""

    name: str
    units: int
    files: int
    state: str


@dataclass
class Rebuilt:
    """The result of a rebuild; `problems` are flaws of the log that affect the queues."""

    records: int = 0
    units: int = 0
    keys: int = 0
    endOffset: int = 0
    queues: list[Built] = field(default_factory=list)
    index: list[Built] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if all existing files equal the built ones."""
        return all(each.state in ("equal", "written") for each in [*self.queues, *self.index])


class RebuildOptions(TypedDict, total=False):
    """Options of a rebuild: see the command's options."""

    delay_levels: str
    queue_file_size: int | None
    skip_damage: bool


class Rebuild:
    """One pass over the log of `store`. `target`: the folder to build in; None compares with the existing files."""

    def __init__(self, store: StoreReader, target: str | None = None, *, delay_levels: str = DEFAULT_DELAY_LEVELS,
                 queue_file_size: int | None = None, with_index: bool = True, skip_damage: bool = False) -> None:
        self.store = store
        self.target = target
        self.skip_damage = skip_damage
        self.result = Rebuilt()
        self._dispatcher = Dispatcher(delay_levels, store.deleted_topics())
        self._readers = store.queues()[0]
        self._queue_file_size = _queue_file_size(self._readers, queue_file_size)
        for reader in self._readers.values():
            reader.file_size = self._queue_file_size
        self._builders: dict[QueueKey, QueueBuilder] = {}
        self._max_gap = (store.log.files_end - store.log.min_offset) // MIN_RECORD_LENGTH
        self._index_sinks: list[IndexComparer | IndexWriter] = []
        self._index_files = [reader for reader in store.index_files()[0] if not reader.is_empty] if with_index else []
        self._index_shape = self._shape()
        self._index = IndexBuilder(self._index_shape, self._index_sink) if with_index else None
        self._index_names: list[str] = []

    def _shape(self) -> Shape:
        shapes = [reader.shape for reader in self._index_files if reader.shape is not None]
        return self.store.index_shape or (shapes[0] if shapes else USUAL)

    def run(self, come_to: Callable[[int], None] = lambda position: None) -> Rebuilt:
        """Build everything."""
        log, result = self.store.log, self.result
        for walk, records in whole_log(log, self._on_hole, spans=span_taker(self._dispatcher, self._take)):
            for record in records:
                self._record(record)
            result.endOffset = walk.position
            come_to(walk.position - log.min_offset)
        self._finish_queues()
        self._finish_index()
        return result

    def _on_hole(self, end: LogEnd, record: LogRecord) -> bool:
        what = (f"the log is damaged: no record at offset {end.offset}: {end.reason or 'nothing is there'}; the next "
                f"one is at {record.offset}")
        if not self.skip_damage:
            raise CannotAnswerError(f"{what}. A replica may hold the bytes; --skip-damage continues after the damaged "
                                    "place and leaves blank entries in the queues.")
        self.result.problems.append(what)
        return True

    def _take(self, span: Span) -> bool:
        """Add a whole span if its units continue their queues; else return False."""
        runs = runs_of(span)
        if runs is None or has_dead(runs, self._dispatcher.marks) or not all(self._goes_on(run) for run in runs):
            return False
        self.result.records += span.count
        for run in runs:
            key = run.topic, run.queue_id
            (self._builders.get(key) or self._new_queue(key)).put_run(run.first_index, run.units)
        if self._index is not None:
            self._index.put_rows(span.keys)
        return True

    def _goes_on(self, run: RunOfUnits) -> bool:
        builder = self._builders.get((run.topic, run.queue_id))
        return run.first_index >= 0 if builder is None else builder.goes_on_at(run.first_index)

    def _record(self, record: LogRecord) -> None:
        result, properties = self.result, record.properties()
        result.records += 1
        for topic, queue_id, index, tags_code in self._dispatcher.units(record, properties):
            builder = self._builders.get((topic, queue_id)) or self._new_queue((topic, queue_id))
            problem = builder.put(index, pack_unit(record.offset, record.size, tags_code))
            if problem is not None:
                result.problems.append(f"queue {cell(topic)}/{queue_id} at offset {record.offset}: {problem}")
        if self._index is not None:
            for key in self._dispatcher.keys(record, properties):
                self._index.put(key, record.offset, record.store_timestamp)

    def _new_queue(self, key: QueueKey) -> QueueBuilder:
        buffer = max(min(_BUFFERS // (len(self._builders) + 1), _MAX_BUFFER), CQ_STORE_UNIT_SIZE)
        builder = self._builders[key] = QueueBuilder(self._queue_sink(key), self._queue_file_size, buffer,
                                                     self._max_gap)
        return builder

    def _queue_sink(self, key: QueueKey) -> QueueSink:
        topic, queue_id = key
        if self.target is None:
            return QueueComparer(self._readers.get(key), self.store.live)
        if not is_folder_name(topic) or queue_id < 0:
            raise CannotAnswerError(f"topic {topic!r}, queue {queue_id} in the log is not valid as a folder name; see "
                                    "store verify")
        folder = paths.get_store_path_consume_queue(self.target) + _NEW
        return QueueWriter(os.path.join(folder, topic, str(queue_id)), self._queue_file_size)

    def _index_sink(self) -> IndexComparer | IndexWriter:
        number = len(self._index_sinks)
        sink: IndexComparer | IndexWriter
        if self.target is None:
            reader = self._index_files[number] if number < len(self._index_files) else None
            sink = IndexComparer(reader, self.store.live and (reader is None or reader is self._index_files[-1]))
            self._index_names.append(reader.name if reader is not None else f"file {number + 1}")
        else:
            folder = paths.get_store_path_index(self.target) + _NEW
            os.makedirs(folder, exist_ok=True)
            self._index_names.append(self._new_name())
            sink = IndexWriter(os.path.join(folder, self._index_names[-1]), self._index_shape)
        self._index_sinks.append(sink)
        return sink

    def _new_name(self) -> str:
        """Return a new name for an index file: the creation time, like brokers use, and unique."""
        while (name := time_millis_to_human_string(current_time_millis())) in self._index_names:
            time.sleep(0.001)
        return name

    def _finish_queues(self) -> None:
        result = self.result
        for key, builder in sorted(self._builders.items()):
            builder.finish()
            result.units += builder.units
            state = (builder.sink.difference or "equal") if isinstance(builder.sink, QueueComparer) else "written"
            result.queues.append(Built(f"{key[0]}/{key[1]}", builder.units, builder.files, state))
        if self.target is not None:
            return
        for key, reader in sorted(self._readers.items()):
            if key not in self._builders and not self.store.live \
                    and reader.index_of_offset(self.store.log.min_offset) < reader.end_index():
                result.queues.append(Built(reader.name, 0, 0, "it has entries, but the log has no messages for it"))

    def _finish_index(self) -> None:
        if self._index is None:
            return
        self._index.finish()
        result = self.result
        result.keys = self._index.keys
        older = bool(self._index_files) and self._index_files[0].head.begin_phy_offset < self.store.log.min_offset
        if older and self.target is None:
            result.notes.append("the index begins before the log: its files can't be compared byte by byte, see store "
                                "verify")
            return
        for name, sink in zip(self._index_names, self._index_sinks):
            state = (sink.difference or "equal") if isinstance(sink, IndexComparer) else "written"
            result.index.append(Built(name, self._entries_of(len(result.index)), 1, state))
        if self.target is None:
            result.index += [Built(reader.name, 0, 0, "it has entries, but the log has no keys for it")
                             for reader in self._index_files[len(self._index_sinks):]]

    def _entries_of(self, number: int) -> int:
        per_file = self._index_shape.entries - 1
        return min(per_file, self.result.keys - number * per_file)


def _queue_file_size(readers: dict[QueueKey, QueueReader], told: int | None) -> int:
    size = told or common_file_size(readers) or _DEFAULT_QUEUE_FILE_SIZE
    if size % CQ_STORE_UNIT_SIZE:
        raise CannotAnswerError(f"{size} is not a multiple of an entry's size, {CQ_STORE_UNIT_SIZE}: give the broker's "
                                "mappedFileSizeConsumeQueue with --consume-queue-file-size")
    return size


class Placing:
    """Moves the built folders into place; existing folders are moved aside, never overwritten.

    `replace`: an existing folder is deleted once the new one is in place.
    """

    def __init__(self, target: str, with_index: bool, replace: bool = False) -> None:
        self.replace = replace
        self.folders = [paths.get_store_path_consume_queue(target)]
        if with_index:
            self.folders.append(paths.get_store_path_index(target))

    def prepare(self, force: bool) -> None:
        """Prepare the folders; CannotAnswerError when files exist and neither `force` nor `replace` is given."""
        for folder in self.folders:
            if os.path.isdir(folder) and os.listdir(folder) and not (force or self.replace):
                raise CannotAnswerError(f"{folder} already has files. --replace deletes them, --force moves the folder "
                                        "aside and keeps it, and --out writes the new files to another "
                                        "folder.")
            if os.path.isdir(folder + _NEW):
                shutil.rmtree(folder + _NEW)  # of an interrupted rebuild

    def put(self) -> list[str]:
        """Move the new folders into place; return lines that describe the changes."""
        done = []
        for folder in self.folders:
            if not os.path.isdir(folder + _NEW):
                # The log no longer contains anything of this kind.
                if self.replace and os.path.isdir(folder):
                    done += self._replaced(folder)
                continue
            if os.path.isdir(folder) and self.replace:
                done += self._replaced(folder)
            elif os.path.isdir(folder) and os.listdir(folder):
                aside = before = f"{folder}.before-{time_millis_to_human_string3(current_time_millis())}"
                for number in count(1):
                    if not os.path.exists(aside):
                        break
                    # Another rebuild in the same second used the name.
                    aside = f"{before}-{number}"
                os.rename(folder, aside)
                done.append(f"{aside}: the previous files")
            os.rename(folder + _NEW, folder)
            done.append(f"{folder}: written")
            fsync_path(os.path.dirname(folder))
        self._delete_replaced()
        return done

    def _replaced(self, folder: str) -> list[str]:
        """Move aside a folder that will be deleted; report it unless it is empty."""
        if os.path.isdir(folder + _REPLACED):
            shutil.rmtree(folder + _REPLACED)  # of an interrupted rebuild
        os.rename(folder, folder + _REPLACED)
        return [f"{folder}: the previous files are deleted"] if os.listdir(folder + _REPLACED) else []

    def _delete_replaced(self) -> None:
        """Delete the replaced folders. Only when all new ones are in place: until then they are the only copy."""
        for folder in self.folders if self.replace else ():
            if os.path.isdir(folder + _REPLACED):
                shutil.rmtree(folder + _REPLACED)


def _forget_divergence(root: str) -> None:
    """Delete the mark of a slave that found its queues diverged: they match its log again."""
    path = paths.get_diverged_file(root)
    if os.path.exists(path):
        os.unlink(path)


def apply(store: StoreReader, target: str, force: bool, with_index: bool, come_to: Callable[[int], None],
          replace: bool = False, **options: Unpack[RebuildOptions]) -> Rebuilt:
    """Lock out brokers, build in `target`, and move the result into place."""
    os.makedirs(target, exist_ok=True)
    lock = paths.get_lock_file(target)
    with ExitStack() as stack:
        if os.path.realpath(target) == os.path.realpath(store.root) or os.path.exists(lock):
            stack.enter_context(reading.held(lock))
            # From now on no broker appends to it.
            store.log = store.log_now()
        return write_all(store, target, force, with_index, come_to, replace, **options)


def write_all(store: StoreReader, target: str, force: bool, with_index: bool, come_to: Callable[[int], None],
              replace: bool = False, **options: Unpack[RebuildOptions]) -> Rebuilt:
    """Build in `target` and move the result into place; the caller locks out brokers."""
    placing = Placing(target, with_index, replace)
    placing.prepare(force)
    result = Rebuild(store, target, with_index=with_index, **options).run(come_to)
    result.written = placing.put()
    if os.path.realpath(target) == os.path.realpath(store.root):
        _forget_divergence(target)
    return result


def _print(result: Rebuilt, applied: bool) -> None:
    odd = [("queue", each) for each in result.queues if each.state not in ("equal", "written")]
    odd += [("index", each) for each in result.index if each.state not in ("equal", "written")]
    for kind, each in odd[:_SHOWN]:
        put(f"{kind} {cell(each.name)}: {each.state}")
    if len(odd) > _SHOWN:
        put(f"... and {len(odd) - _SHOWN} more; -o json shows all")
    for problem in result.problems[:_SHOWN]:
        put(f"problem {problem}")
    if len(result.problems) > _SHOWN:
        put(f"... and {len(result.problems) - _SHOWN} problems more; -o json shows all")
    for note in result.notes:
        put(f"note {note}")
    put(f"{result.records} records up to offset {result.endOffset}: {result.units} entries in "
        f"{sum(each.files for each in result.queues)} files of {len(result.queues)} queues, {result.keys} keys in "
        f"{sum(each.files for each in result.index)} index files")
    for line in result.written:
        put(line)
    if not applied:
        put("the existing files are equal" if result.equal else "the existing files differ; --apply rewrites them")


@click.command("rebuild", short_help="Build consume queues and index from the commit log.", epilog=examples(
    "rmqha store rebuild ~/store            # compare only; nothing is changed",
    "rmqha store rebuild ~/store --apply"))
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@click.option("--apply", "apply_", is_flag=True, help="Write the files; without this option they are only compared.")
@click.option("--out", type=click.Path(file_okay=False),
              help="Write to OUT/consumequeue and OUT/index instead of ROOT.")
@click.option("--force", is_flag=True, help="With --apply: move existing folders aside and keep them.")
@click.option("--replace", is_flag=True, help="With --apply: delete existing folders once the new ones are in place; "
              "for a backup that is repeated.")
@click.option("--no-index", is_flag=True, help="Build only the consume queues.")
@click.option("--skip-damage", is_flag=True, help="Continue after damaged places of the log.")
@click.option("--consume-queue-file-size", type=size_type(CQ_STORE_UNIT_SIZE),
              help="The broker's mappedFileSizeConsumeQueue; by default the size of the existing files.")
@click.option("--file-size", type=size_type(1),
              help="The size of commit log files; by default the most frequent size.")
@commitlog_option
@delay_levels_option
@index_shape_options
@output_option
def rebuild_command(root: str, apply_: bool, out: str | None, force: bool, replace: bool, no_index: bool,
                    skip_damage: bool, consume_queue_file_size: int | None, file_size: int | None,
                    commitlog: tuple[str, ...], delay_levels: str, index_slots: int | None,
                    index_entries: int | None, output: str) -> None:
    """Build the consume queues and the index of the store at ROOT from its commit log.

    Without --apply nothing is written: exit code 0 when the existing files equal the built ones, 1 when not. In ROOT
    itself it writes only when no broker runs on it; existing files are replaced only with --replace or --force. Exit
    code 1 also when the log is damaged.
    """
    if (out is not None or force or replace) and not apply_:
        raise CannotAnswerError("--out, --force and --replace need --apply")
    if force and replace:
        raise CannotAnswerError("--force and --replace exclude each other: the first keeps existing files, the second "
                                "deletes them")
    store = StoreReader(root, commitlog, index_shape(index_slots, index_entries), file_size)
    options: RebuildOptions = {"delay_levels": delay_levels, "queue_file_size": consume_queue_file_size,
                               "skip_damage": skip_damage}
    with progress("rebuild", store.log.files_end - store.log.min_offset) as come_to:
        if apply_:
            result = apply(store, out or root, force, not no_index, come_to, replace, **options)
        else:
            result = Rebuild(store, with_index=not no_index, **options).run(come_to)
    if output != "table":
        emit({"root": root, "applied": apply_, "equal": None if apply_ else result.equal, **asdict(result)}, output)
    else:
        _print(result, apply_)
    if result.problems or not (apply_ or result.equal):
        raise SystemExit(1)
