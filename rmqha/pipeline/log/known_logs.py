"""Which log is which, and how far a stream has come in each: pure but for the few bytes that it reads of the logs.

A log is known by bytes that it had, not by the path of its folder: what was written once never changes, until the
broker deletes the file or a crash cuts the log off. A stream keeps of each log

    head    the first bytes of the file that holds the last byte taken: the log's identity. With nothing taken yet, the
            head of the first record; nothing for a log without records, which is known by its path alone
    tail    the last bytes taken, unless they are a blank: when they have changed, the log was cut off and written anew

and finds the log by them wherever it is mounted. A master and its slave have the same bytes, so a path that still leads
to the right bytes comes before all others. An offset of a stream, as Spark keeps it:

    {"version": 2, "logs": {id: {"path": folder, "begin": where the batch begins, "offset": where it ends,
                                 "head": [offset, bytes, hash] or null, "tail": the same}}}

Version 1, {"logs": {folder: offset}}, is read as well. `begin` is there because Spark does not keep where the first
batch of a query began: it asks again when the batch has to be repeated, and the answer may be another one then.
"""
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rmqha.common.filesystem import Segment, read_at
from rmqha.common.message.message_layout import HEAD_LENGTH
from rmqha.pipeline.log.log_files import LogFiles
from rmqha.pipeline.log.log_scan import VanishedError, is_record, open_file, whole_file
from rmqha.pipeline.options import PipelineError, is_long

VERSION = 2
HEAD_BYTES, TAIL_BYTES = 4096, 512
_DIGEST_BYTES = 8

Offset = dict[str, Any]  # of a stream: what its reader says of it, as Spark keeps it


class Anchor(NamedTuple):
    """Bytes of a log that are not to change: where they begin, how many they are, and their hash."""

    offset: int
    size: int
    digest: str


class KnownLog(NamedTuple):
    """How far a stream has come in one log. `begin`: of the batch that ends at `offset`; None when nobody noted it."""

    path: str
    begin: int | None
    offset: int
    head: Anchor | None = None
    tail: Anchor | None = None


class Recognised(NamedTuple):
    """The logs of a stream: those that are there, by id; those that are new; why others are missing, by id."""

    here: dict[str, LogFiles]
    new: list[LogFiles]
    missing: dict[str, str]


def decode(offset: Offset) -> dict[str, KnownLog]:
    """The logs of an offset by id. PipelineError when it is none of this format."""
    try:
        version, logs = offset["version"], offset["logs"]
        if version == 1:
            return {f"path:{path}": KnownLog(path, None, _number(taken)) for path, taken in logs.items()}
        if version == VERSION:
            return {str(name): _decode_log(each) for name, each in logs.items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"the checkpoint's offset is damaged ({type(error).__name__} {error}): "
                            f"{offset!s:.1000}") from error
    raise PipelineError(f"the checkpoint's offset has version {version!r:.100}; this release reads 1 and {VERSION}")


def _decode_log(each: Mapping[str, Any]) -> KnownLog:
    begin = each["begin"]
    return KnownLog(str(each["path"]), None if begin is None else _number(begin), _number(each["offset"]),
                    _decode_anchor(each["head"]), _decode_anchor(each["tail"]))


def _decode_anchor(value: Any) -> Anchor | None:
    if value is None:
        return None
    offset, size, digest = value
    return Anchor(_number(offset), _number(size), str(digest))


def _number(value: Any) -> int:
    if not is_long(value, 0):
        raise ValueError(f"{value!r:.100} is not an offset")
    return int(value)


def encode(logs: Mapping[str, KnownLog]) -> Offset:
    """The offset of these logs."""
    return {"version": VERSION, "logs": {
        name: {"path": each.path, "begin": each.begin, "offset": each.offset,
               "head": None if each.head is None else list(each.head),
               "tail": None if each.tail is None else list(each.tail)} for name, each in logs.items()}}


def segment_with(log: LogFiles, offset: int) -> Segment | None:
    """The file that has the byte at `offset`."""
    number = bisect_right(log.segments, offset, key=lambda segment: segment.start) - 1
    return log.segments[number] if number >= 0 and offset < log.segments[number].end else None


def anchor_at(log: LogFiles, offset: int, size: int) -> Anchor | None:
    """An anchor of bytes within one file; None where they are not, or are nothing but zeros."""
    data = _read(log, offset, size)
    return Anchor(offset, size, _digest(data)) if data.strip(b"\0") else None


def head_of(log: LogFiles, offset: int) -> Anchor | None:
    """The head of a log that was taken up to `offset`."""
    segment = segment_with(log, offset - 1) if offset > log.min_offset else None
    if segment is not None:
        return anchor_at(log, segment.start, min(HEAD_BYTES, offset - segment.start))
    segment = segment_with(log, log.min_offset)
    return anchor_at(log, segment.start, HEAD_LENGTH) if segment is not None and _has_record(segment) else None


def _has_record(segment: Segment) -> bool:
    """Whether a whole record begins the file."""
    try:
        fd = open_file(segment.path, segment.start)
    except VanishedError:
        return False
    with open(fd, "rb", closefd=True):
        return is_record(fd, whole_file(segment), segment.start)


def tail_of(log: LogFiles, offset: int) -> Anchor | None:
    """The tail of a log that was taken up to `offset`; None where a file ends: what is before may be a blank, which a
    broker may still be writing.
    """
    segment = segment_with(log, offset)
    size = 0 if segment is None else min(TAIL_BYTES, offset - segment.start)
    return anchor_at(log, offset - size, size) if size else None


def has(log: LogFiles, anchor: Anchor) -> bool | None:
    """Whether a log has these bytes; None when the file that had them was deleted."""
    data = _read(log, anchor.offset, anchor.size)
    if not data:
        return False if log.segments and anchor.offset >= log.files_end else None
    return _digest(data) == anchor.digest


def _read(log: LogFiles, offset: int, size: int) -> bytes:
    """Bytes of one file; fewer where it ends, b"" where it has vanished."""
    segment = segment_with(log, offset)
    return b"" if segment is None else read_at(segment.path, offset - segment.start, size)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def recognise(known: Mapping[str, KnownLog], found: Iterable[LogFiles]) -> Recognised:
    """Tell the logs at hand apart: the same path with the right bytes, other paths with them, and then the same path
    where nothing can be compared any more.
    """
    here: dict[str, LogFiles] = {}
    left = {log.path: log for log in found}

    def claim(is_it: Callable[[str, KnownLog], LogFiles | None]) -> None:
        for name, each in known.items():
            if name not in here and (log := is_it(name, each)) is not None:
                here[name] = left.pop(log.path)

    def at_its_path(wanted: bool | None) -> Callable[[str, KnownLog], LogFiles | None]:
        def is_it(_name: str, each: KnownLog) -> LogFiles | None:
            log = left.get(each.path)
            return log if log is not None and _is(log, each) is wanted else None
        return is_it

    claim(at_its_path(True))
    claim(lambda _name, each: next((log for log in left.values() if _is(log, each) is True), None))
    claim(at_its_path(None))
    missing = {name: _why_missing(each, left.get(each.path)) for name, each in known.items() if name not in here}
    return Recognised(here, list(left.values()), missing)


def _is(log: LogFiles, known: KnownLog) -> bool | None:
    """Whether this is the log; None when there is nothing to tell it by."""
    return None if known.head is None else has(log, known.head)


def _why_missing(known: KnownLog, other: LogFiles | None) -> str:
    what = (f"{known.path}: the log of which the stream has taken all up to offset {known.offset} is not there any "
            "more, nor under another of the paths given")
    return what if other is None else f"{what}; what lies there now is another log, or was cut off"


def new_name(log: LogFiles, head: Anchor | None, taken: Iterable[str]) -> str:
    """An id for a log: by its bytes, or by its path while it has none."""
    first = f"path:{log.path}" if head is None else head.digest
    names, number = set(taken), 1
    name = first
    while name in names:
        number += 1
        name = f"{first}.{number}"
    return name
