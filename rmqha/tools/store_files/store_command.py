"""The group `rmqha store`, and its command `store du`: disk usage of a store, and its messages by topic."""
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import click

from rmqha.common.program import examples
from rmqha.common.units import size_text
from rmqha.tools.store_files.diff import diff_command
from rmqha.tools.store_files.dump import dump_command
from rmqha.tools.store_files.findings import commitlog_option
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.reading import LogEnd, LogRecord, whole_log
from rmqha.tools.store_files.rebuild import rebuild_command
from rmqha.tools.store_files.repair import repair_command
from rmqha.tools.store_files.verify import verify_command
from rmqha.tools.terminal import cell, emit, output_option, progress, put, render_table

_BLOCK = 512  # unit of st_blocks
_PER_TOPIC = ("consumequeue", "consumequeue_ext")
_KNOWN = ("commitlog", *_PER_TOPIC, "index", "config")


@dataclass
class Usage:
    """Disk usage of files: `apparent` bytes are their sizes, `used` bytes their blocks; holes have no blocks."""

    files: int = 0
    apparent: int = 0
    used: int = 0

    def add(self, stat: os.stat_result) -> None:
        """Count one file."""
        self.files += 1
        self.apparent += stat.st_size
        self.used += stat.st_blocks * _BLOCK


def usage(root: str, commit_log_paths: tuple[str, ...]) -> dict[str, Usage]:
    """Return part -> usage: commitlog, consumequeue/TOPIC for each topic, index, config, other."""
    parts: dict[str, Usage] = defaultdict(Usage)
    own = {os.path.realpath(path) for path in commit_log_paths}
    for path in commit_log_paths:
        for _, stat in _files(path, set()):
            parts["commitlog"].add(stat)
    for path, stat in _files(root, own):
        names = os.path.relpath(path, root).split(os.sep)
        if names[0] in _PER_TOPIC and len(names) > 2:
            parts[f"{names[0]}/{names[1]}"].add(stat)
        else:
            parts[names[0] if names[0] in _KNOWN and len(names) > 1 else "other"].add(stat)
    return dict(parts)


def _files(path: str, without: set[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder, except below the folders `without` and those deleted meanwhile."""
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if os.path.realpath(os.path.join(folder, name)) not in without)
        for name in sorted(names):
            file = os.path.join(folder, name)
            try:
                yield file, os.lstat(file)
            except FileNotFoundError:  # deleted meanwhile
                continue


def messages_by_topic(store: StoreReader) -> tuple[dict[str, tuple[int, int]], list[LogEnd]]:
    """Return topic -> (messages, bytes of their records) in the commit log, and its damaged places."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    holes: list[LogEnd] = []

    def on_hole(end: LogEnd, record: LogRecord) -> bool:
        holes.append(end)
        return True

    log = store.log
    with progress("count", log.files_end - log.min_offset) as come_to:
        for walk, records in whole_log(log, on_hole):
            for record in records:
                count = counts[record.topic]
                count[0] += 1
                count[1] += record.size
            come_to(walk.position - log.min_offset)
    return {topic: (count[0], count[1]) for topic, count in counts.items()}, holes


def _order(part: str) -> tuple[int, str]:
    head = part.split("/")[0]
    return (_KNOWN.index(head) if head in _KNOWN else len(_KNOWN)), part


def _print(parts: dict[str, Usage], total: Usage) -> None:
    rows = [(cell(part), str(each.files), size_text(each.used), size_text(each.apparent), str(each.used))
            for part, each in [*sorted(parts.items(), key=lambda item: _order(item[0])), ("total", total)]]
    headings = ("part", "files", "used", "apparent", "used bytes")
    put(render_table(headings, rows, set(headings[1:])))


@click.command("du", short_help="Show the disk usage of a store.", epilog=examples("rmqha store du ~/store --by-topic"))
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@click.option("--by-topic", is_flag=True, help="Also count the messages of each topic; reads the whole commit log.")
@commitlog_option
@output_option
def du_command(root: str, by_topic: bool, commitlog: tuple[str, ...], output: str) -> None:
    """Show the disk usage of the store at ROOT: used bytes are allocated blocks, apparent bytes are file sizes.

    Exit code 1 when --by-topic finds damage in the log.
    """
    store = StoreReader(root, commitlog)
    parts = usage(root, store.commit_log_paths)
    total = Usage(*(sum(getattr(part, name) for part in parts.values()) for name in ("files", "apparent", "used")))
    topics, holes = messages_by_topic(store) if by_topic else ({}, [])
    ranked = sorted(topics.items(), key=lambda item: -item[1][1])
    if output != "table":
        answer: dict[str, object] = {"root": root, "parts": {part: vars(each) for part, each in parts.items()},
                                     "total": vars(total)}
        if by_topic:
            answer["topics"] = {topic: {"messages": count, "bytes": size} for topic, (count, size) in ranked}
            answer["damagedOffsets"] = [end.offset for end in holes]
        emit(answer, output)
    else:
        _print(parts, total)
        if by_topic:
            rows = [(cell(topic), str(count), str(size), size_text(size)) for topic, (count, size) in ranked]
            put("\n" + render_table(("topic", "messages", "bytes", "size"), rows, {"messages", "bytes", "size"}))
    for end in holes:
        click.echo(f"damaged: no record at offset {end.offset}: {end.reason or 'nothing is there'}; see store verify",
                   err=True)
    if holes:
        raise SystemExit(1)


@click.group("store")
def store_group() -> None:
    """Inspect, compare, rebuild or repair a store on disk.

    A broker may be running on it. Only `rebuild --apply` and `repair --apply` change anything.
    """


for _command in (dump_command, verify_command, diff_command, rebuild_command, repair_command, du_command):
    store_group.add_command(_command)
