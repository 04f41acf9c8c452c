"""`store diff`: compare a master's store with its slave's, over the range that both hold."""
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from rmqha.common.filesystem import Segment
from rmqha.common.message.message_layout import BLANK, MAX_HEAD_LENGTH, decode_header
from rmqha.common.program import examples
from rmqha.store.consume_queue_layout import CQ_UNIT
from rmqha.tools.store_files.dump import message_object
from rmqha.tools.store_files.readers import UNIT, QueueKey, QueueReader, StoreReader, ext_position
from rmqha.tools.store_files.reading import BlockEnd, CommitLogReader, LogRecord, scan_block
from rmqha.tools.terminal import CannotAnswerError, cell, emit, output_option, progress, put, to_json

_BLOCK = 1 << 20
_SHOWN = 16  # bytes
_SETTLE_S = 0.05
_CHUNK_UNITS = 65536


@dataclass
class Diff:
    """The common range of two stores and their differences; offsets are of the log."""

    begin: int = 0
    end: int = 0
    end_a: int = 0
    end_b: int = 0
    offset: int | None = None  # of the first differing byte
    record: dict[str, Any] = field(default_factory=dict)  # the record around it
    # Files that differ after their blank, in bytes that are never read.
    blank_bytes: int = 0
    queues: int = 0
    units: int = 0
    # Queues of running brokers that lag: only their common part is compared.
    lagging: int = 0
    differences: list[str] = field(default_factory=list)


def diff_stores(a: StoreReader, b: StoreReader, come_to: Callable[[int], None] = lambda position: None) -> Diff:
    """Compare two stores."""
    found = Diff(end_a=a.log.log_end(), end_b=b.log.log_end())
    found.begin = max(a.log.min_offset, b.log.min_offset)
    found.end = max(min(found.end_a, found.end_b), found.begin)
    if a.log.folder.segments and b.log.folder.segments and min(found.end_a, found.end_b) < found.begin:
        found.differences.append(
            f"the logs have nothing in common: A holds offsets {a.log.min_offset} to {found.end_a}, B "
            f"{b.log.min_offset} to {found.end_b}")
    _diff_logs(a.log, b.log, found, come_to)
    _diff_queues(a, b, found)
    return found


def _diff_logs(a: CommitLogReader, b: CommitLogReader, found: Diff,
               come_to: Callable[[int], None]) -> None:
    offset = found.begin
    while offset < found.end:
        size = min(_BLOCK, found.end - offset)
        mine, theirs = a.read(offset, size), b.read(offset, size)
        if mine != theirs and (a.live or b.live):
            # A slave may have received only a part of a record.
            time.sleep(_SETTLE_S)
            mine, theirs = a.read(offset, size), b.read(offset, size)
        size = min(len(mine), len(theirs))
        if not size:
            found.offset = offset
            found.differences.append(f"the logs differ at offset {offset}: no file holds it in "
                                     f"{'A' if not mine else 'B'}")
            return
        if mine[:size] != theirs[:size]:
            at = offset + _first_difference(mine, theirs)
            skip_to = _behind_blank(a, b, at)
            if skip_to is None:
                _describe(a, b, at, found)
                return
            found.blank_bytes += 1
            size = skip_to - offset
        offset += size
        come_to(offset - found.begin)


def _first_difference(one: bytes, other: bytes) -> int:
    """Return the first difference of two blocks that differ, by binary search."""
    low, high = 0, min(len(one), len(other))
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] != other[low:middle]:
            high = middle
        else:
            low = middle
    return low


def _record_around(log: CommitLogReader, offset: int) -> tuple[int, bool]:
    """Return the start of the record that holds byte `offset`, and whether it is a blank."""
    segment = log.folder.segments[log.folder.at(offset)]
    start = segment.start
    for record in _records_of(log, segment):
        if offset < record.offset + record.size:
            return record.offset, False
        start = record.offset + record.size
    return start, scan_block(log.read(start, BLANK.size), start).end is BlockEnd.BLANK


def _records_of(log: CommitLogReader, segment: Segment) -> Iterator[LogRecord]:
    """Yield the records of one file."""
    for records in log.walk(segment.start):
        if records[0].offset >= segment.start + log.file_size:
            return
        yield from records


def _behind_blank(a: CommitLogReader, b: CommitLogReader, offset: int) -> int | None:
    """Return the end of the file if `offset` is in the unread rest after the blank of both logs, else None."""
    start, blank = _record_around(a, offset)
    if not blank or offset < start + BLANK.size or _record_around(b, offset) != (start, True):
        return None
    return a.folder.segments[a.folder.at(offset)].start + a.file_size


def _describe(a: CommitLogReader, b: CommitLogReader, offset: int, found: Diff) -> None:
    start, blank = _record_around(a, offset)
    found.offset = offset
    found.record = {"offset": start, "byte": offset - start, "a": a.read(offset, _SHOWN).hex(),
                    "b": b.read(offset, _SHOWN).hex()}
    what = f"the logs differ at offset {offset}: {found.record['a']} in A, {found.record['b']} in B"
    if blank:
        found.differences.append(f"{what}; byte {offset - start} of the blank at {start} in A")
        return
    message = found.record["message"] = _message(a, start)
    other = found.record["otherMessage"] = _message(b, start)
    found.record["fields"] = _different_fields(a, b, start)
    topic = f", queue {cell(message['topic'])}/{message['queueId']} index {message['queueOffset']}" if message else ""
    fields = ", ".join(found.record["fields"]) or ("the body or properties" if message and other else "not decodable")
    found.differences.append(f"{what}; byte {offset - start} of the record at {start}{topic}; different: {fields}")


def _message(log: CommitLogReader, offset: int) -> dict[str, Any] | None:
    try:
        return message_object(log, offset)
    except CannotAnswerError:  # no record there: None reports that
        return None


def _different_fields(a: CommitLogReader, b: CommitLogReader, offset: int) -> list[str]:
    """Return the names of the head fields that differ, with both values."""
    mine, theirs = a.read(offset, MAX_HEAD_LENGTH), b.read(offset, MAX_HEAD_LENGTH)
    if len(mine) < MAX_HEAD_LENGTH or len(theirs) < MAX_HEAD_LENGTH:
        return []
    pairs = zip(decode_header(mine)._asdict().items(), decode_header(theirs))
    return [f"{name} {_value(one)} and {_value(other)}" for (name, one), other in pairs if one != other]


def _value(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _diff_queues(a: StoreReader, b: StoreReader, found: Diff) -> None:
    mine, theirs = a.queues()[0], b.queues()[0]
    for key in sorted(mine.keys() | theirs.keys()):
        found.queues += 1
        _diff_queue(key, mine.get(key), theirs.get(key), found, a.live or b.live)


def _diff_queue(key: QueueKey, mine: QueueReader | None, theirs: QueueReader | None, found: Diff,
                live: bool) -> None:
    """Compare the units that point into the range that both logs hold."""
    name = f"{cell(key[0])}/{key[1]}"
    spans = [(0, 0) if reader is None else (reader.index_of_offset(found.begin), reader.index_of_offset(found.end))
             for reader in (mine, theirs)]
    lengths = [high - low for low, high in spans]
    if not any(lengths):
        return
    if live and (not all(lengths) or spans[0][1] != spans[1][1]):
        found.lagging += 1
        spans = [(low, min(spans[0][1], spans[1][1])) for low, _ in spans]
        lengths = [max(high - low, 0) for low, high in spans]
        if not all(lengths):
            return
    if mine is None or theirs is None or not all(lengths):
        side = "A" if lengths[0] else "B"
        found.differences.append(f"queue {name} is only in {side}: {max(lengths)} entries of messages that both logs "
                                 "hold")
        return
    if spans[0] != spans[1]:
        found.differences.append(f"queue {name} has the messages of the common range at indices {spans[0][0]} to "
                                 f"{spans[0][1] - 1} in A, {spans[1][0]} to {spans[1][1] - 1} in B")
    low, high = max(spans[0][0], spans[1][0]), min(spans[0][1], spans[1][1])
    for index in range(low, high, _CHUNK_UNITS):
        count = min(_CHUNK_UNITS, high - index)
        one, other = mine.read(index, count), theirs.read(index, count)
        found.units += count
        if one != other and (difference := _unit_difference(one, other, index)) is not None:
            number, unit, other_unit = difference
            path, position = mine.position(number)
            found.differences.append(f"queue {name} differs at index {number} ({path} at {position}): {unit} in A, "
                                     f"{other_unit} in B")
            return


def _unit_difference(one: bytes, other: bytes, index: int
                     ) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Return the first difference of units; addresses in extension files are each side's own, and are not compared."""
    size = min(len(one), len(other)) // UNIT * UNIT
    for number, (mine, theirs) in enumerate(zip(CQ_UNIT.iter_unpack(one[:size]), CQ_UNIT.iter_unpack(other[:size])),
                                            index):
        ext = ext_position(mine[2]) is not None or ext_position(theirs[2]) is not None
        if mine != theirs and not (ext and mine[:2] == theirs[:2]):
            return number, mine, theirs
    return None


def _print(found: Diff) -> None:
    for difference in found.differences:
        put(f"DIFFERENT {difference}")
    if found.record:
        for side, name in (("A", "message"), ("B", "otherMessage")):
            if found.record.get(name):
                put(f"{side}: {cell(to_json(found.record[name]))}")
    if found.lagging:
        put(f"note {found.lagging} queues of a running broker lag behind the other's")
    if found.blank_bytes:
        put(f"note the unread rests of {found.blank_bytes} files differ")
    lag = found.end_a - found.end_b
    put(f"common range {found.begin} to {found.end}, {found.end - found.begin} bytes; {found.units} entries of "
        f"{found.queues} queues; B is " + (f"{lag} bytes behind A" if lag > 0 else
                                           f"{-lag} bytes ahead of A" if lag < 0 else "level with A"))
    put("equal" if not found.differences else f"{len(found.differences)} differences")


@click.command("diff", short_help="Compare a master's store with a slave's, byte by byte.", epilog=examples(
    "rmqha store diff /mnt/master/store /mnt/slave/store"))
@click.argument("a", type=click.Path(exists=True, file_okay=False))
@click.argument("b", type=click.Path(exists=True, file_okay=False))
@click.option("--commitlog-a", multiple=True, type=click.Path(exists=True, file_okay=False),
              help="The folder of A's commit log, if it is not A/commitlog. Can be repeated.")
@click.option("--commitlog-b", multiple=True, type=click.Path(exists=True, file_okay=False), help="The same for B.")
@output_option
def diff_command(a: str, b: str, commitlog_a: tuple[str, ...], commitlog_b: tuple[str, ...], output: str) -> None:
    """Compare the stores at A, the master's, and B, the slave's.

    Compares the commit logs byte by byte over the range of offsets that both hold, and the consume queues over the same
    range. Exit code 0 when they are equal, 1 when not.
    """
    stores = StoreReader(a, commitlog_a), StoreReader(b, commitlog_b)
    total = min(store.log.files_end for store in stores) - max(store.log.min_offset for store in stores)
    with progress("diff", total) as come_to:
        found = diff_stores(*stores, come_to)
    if output != "table":
        emit({"equal": not found.differences, "a": a, "b": b, "begin": found.begin, "end": found.end,
              "endA": found.end_a, "endB": found.end_b, "offset": found.offset, "record": found.record or None,
              "unreadRestsThatDiffer": found.blank_bytes, "queues": found.queues, "units": found.units,
              "laggingQueues": found.lagging, "differences": found.differences}, output)
    else:
        _print(found)
    if found.differences:
        raise SystemExit(1)
