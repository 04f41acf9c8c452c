"""What recovery is about to cut off from the log, where good messages may lie: in a file of `diverged` first.

    the last good record | a bad one | whole records ...  | the next file of the log ...
                         ^ end       ^                    ^     each goes to diverged/<its offset>.<time>

After a clean stop all of the log was on the disk, so what does not fit at its end is damage: everything is kept. After
a crash a torn tail is what is to be expected, and goes as in the original; but where a whole record follows, the rest
is kept as well. Pages come to the disk in any order, and a flipped bit looks the same.
"""
from __future__ import annotations

import errno
import logging
import os
import re
from typing import TYPE_CHECKING

from rmqha.common.filesystem import replace_and_force
from rmqha.common.message.message_layout import (
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    INT,
    LONG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    PHYSICAL_OFFSET_POSITION,
)
from rmqha.common.util_all import current_time_millis, offset_to_file_name, time_millis_to_human_string
from rmqha.store.bulk.record_at import GOOD, record_at
from rmqha.store.config.store_path_config_helper import get_diverged_folder
from rmqha.store.mapped_file import MappedFile, ensure_dir_ok
from rmqha.store.recovery_base import RecoveryBase

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

_MAGIC = re.compile(re.escape(INT.pack(MESSAGE_MAGIC_CODE)))
_HEAD = MESSAGE_MAGIC_CODE_POSITION + INT.size  # bytes
_PART = ".rest.part"
_STEP = 1 << 20  # bytes that are copied at a time
_ZEROS = 64 << 10  # behind the last byte that is not zero: a record may end with some


class RestNotKeptError(Exception):
    """What would be cut off can't be kept: nothing was changed, and the store does not open."""


def keep_rest(store: DefaultMessageStore, end: int, base: RecoveryBase) -> None:
    """The log is to be cut off at `end`: keep what is worth it. RestNotKeptError.

    Differs: the original drops it, after a clean stop, too, so that one flipped bit in the last file takes all newer
    messages along.
    """
    files = [file for file in store.commit_log.mapped_file_queue.mapped_files
             if file.file_from_offset + file.file_size > end]
    pieces = [(file.file_from_offset, file, list(file.data_extents(max(end - file.file_from_offset, 0))))
              for file in files]
    last = _last_byte(pieces)
    if last < end:
        return
    whole = _first_whole_record(pieces, end)
    if whole < 0 and not (base.was_stopped and _is_damage(files[0], end, last, base)):
        return
    kept = _write(store, pieces, _runs(pieces, end, whole, last))
    log.error("the log is cut off at %s: the record there is damaged, or does not belong there%s. What lay behind, %s "
              "bytes, is kept in %s. Read it with `rmqha store dump`, and send again what is worth it; or, before "
              "anything is put, take the log of a replica, which has the messages whole", end,
              f", and whole records follow, the first at {whole}" if whole >= 0 else "", last + 1 - end,
              ", ".join(kept))


_Piece = tuple[int, MappedFile, list[tuple[int, int]]]
"""Offset of a file, the file, and where it has data."""


def _last_byte(pieces: list[_Piece]) -> int:
    """Offset of the last byte that is not zero; -1 for none."""
    for start, file, extents in reversed(pieces):
        buffer = file.slice_byte_buffer()
        for begin, stop in reversed(extents):
            for at in range(stop, begin, -_STEP):
                low = max(at - _STEP, begin)
                data = bytes(buffer[low:at]).rstrip(b"\0")
                if data:
                    return start + low + len(data) - 1
    return -1


def _first_whole_record(pieces: list[_Piece], end: int) -> int:
    """Offset of the first record behind `end` that is whole, and lies where it says; -1 for none."""
    for start, file, extents in pieces:
        buffer = file.slice_byte_buffer()
        for begin, stop in extents:
            for found in _MAGIC.finditer(buffer, begin, stop):
                at = found.start() - MESSAGE_MAGIC_CODE_POSITION
                if start + at > end and at + HEAD_LENGTH <= file.file_size \
                        and LONG.unpack_from(buffer, at + PHYSICAL_OFFSET_POSITION)[0] == start + at \
                        and record_at(buffer, at, True)[0] == GOOD:
                    return start + at
    return -1


def _is_damage(file: MappedFile, end: int, last: int, base: RecoveryBase) -> bool:
    """Whether what lies at `end` after a clean stop was a record, or is in a log whose rest we know to be zero."""
    at = end - file.file_from_offset
    if at + _HEAD > file.file_size:
        return base.is_noted
    buffer = file.slice_byte_buffer()
    size, magic_code = (INT.unpack_from(buffer, at + place)[0] for place in (0, MESSAGE_MAGIC_CODE_POSITION))
    if magic_code == BLANK_MAGIC_CODE and size == file.file_size - at:
        return False  # a slave's, which its master sends again
    if base.is_noted and base.by_slave and last < base.log_flushed < end + max(size, _HEAD):
        return False  # the slave was stopped in the middle of it
    return base.is_noted or magic_code == MESSAGE_MAGIC_CODE


def _runs(pieces: list[_Piece], end: int, whole: int, last: int) -> list[tuple[int, int]]:
    """Begin and end of what goes to a file each: no file of the log shares one with another, and what begins with a
    whole record is apart from what can't be read. The zeros with which a record may end are a hole."""
    runs = []
    stop = min(last + 1 + _ZEROS, pieces[-1][0] + pieces[-1][1].file_size)
    for start, file, extents in pieces:
        if extents and start <= last:
            begin, behind = max(start, end), min(start + file.file_size, stop)
            cuts = [begin, whole, behind] if begin < whole < behind else [begin, behind]
            runs += list(zip(cuts, cuts[1:]))
    return runs


def _write(store: DefaultMessageStore, pieces: list[_Piece], runs: list[tuple[int, int]]) -> list[str]:
    """Write parts of the log to files that are named after their offsets; on the disk at the end. RestNotKeptError."""
    folder = get_diverged_folder(store.message_store_config.storePathRootDir)
    needed = sum(stop - begin for _start, _file, extents in pieces for begin, stop in extents)
    time = time_millis_to_human_string(current_time_millis())
    paths = [os.path.join(folder, f"{offset_to_file_name(begin)}.{time}") for begin, _stop in runs]
    try:
        ensure_dir_ok(folder, os.pathsep)
        _remove_parts(folder)  # of a start that was killed
        room = os.statvfs(folder)
        if needed > room.f_bavail * room.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
        for path, (begin, stop) in zip(paths, runs, strict=True):
            _copy(pieces, begin, stop, path + _PART)
        for path in paths:
            replace_and_force(path + _PART, path)
    except OSError as error:
        if os.path.isdir(folder):
            _remove_parts(folder)
        raise RestNotKeptError(
            f"the log has a damaged record at {runs[0][0]}, and is to be cut off there. Up to {needed} bytes behind it "
            f"may hold good messages, and can't be kept in {folder}: {error}. Nothing was changed. Make room there "
            f"(older files of that folder can be moved away), or move the log's files from offset {pieces[0][0]} on "
            "away to go on without them") from error
    return paths


def _remove_parts(folder: str) -> None:
    for name in os.listdir(folder):
        if name.endswith(_PART):
            os.unlink(os.path.join(folder, name))


def _copy(pieces: list[_Piece], begin: int, end: int, path: str) -> None:
    """The log from `begin` to `end`, without what is zero."""
    with open(path, "wb") as copy:
        for start, file, extents in pieces:
            buffer = file.slice_byte_buffer()
            for low, high in extents:
                stop = min(high, end - start)
                for at in range(max(low, begin - start), stop, _STEP):
                    data = bytes(buffer[at:min(at + _STEP, stop)])
                    if data.strip(b"\0"):
                        copy.seek(start + at - begin)
                        copy.write(data)
        copy.truncate(end - begin)
        copy.flush()
        os.fsync(copy.fileno())
