"""Checks of records in commit log bytes, and preservation of the bytes that recovery truncates.

- `check_message_and_return_size`, `skip_good_records`: read records for dispatch and recovery; no file, no thread.
- `torn_records`, `torn_at_the_end`: records that a power loss may have torn where no CRC covers them; pure.
- `first_store_timestamp` to `newest_store_timestamp`: store times of records, found from any byte of the log: a record
  contains its own offset, so nothing else looks like one. Pure, except the two that read a store.
- `keep_rest`: saves to files in `diverged` what recovery is about to truncate, if it may contain good messages.
- `block_checksums`: checksums of blocks of the commit log, by which two replicas compare their logs.

Torn records. After a machine crash, any sector that had not been written yet may be missing from the disk. It then
reads as it was before: as zeros, from some byte on up to the sector's end. Most torn records are easy to detect. A
record without its first bytes or its lengths is not recognized as a record; one that lacks a part of its body fails
its CRC; one that lacks a part of its topic has NULs there, which no topic contains. Only the properties are covered by
no check. So a record that looks complete but may be torn has zeros in its properties up to the end of a sector, or up
to the end of the record. A complete record may also have such properties; its writer then records that it is complete
(`PositionsFile.note_whole`), so that recovery does not truncate a good message.

A slave writes records in pieces, and each piece may reach the disk without the next. On a slave, zeros in a record's
head, which are normal otherwise, may therefore be missing bytes too. A slave can afford false alarms, because its
master sends the truncated bytes again.

    the last good record | a bad one | whole records ...  | the next file of the log ...
                         ^ end       ^                    ^     each goes to diverged/<its offset>.<time>

After a clean stop all of the log was on disk, so bytes that do not fit at its end are damage, and `keep_rest` keeps
everything. After a crash a torn tail is expected, and it is dropped as in the original. But if a complete record
follows, the rest is kept as well: pages reach the disk in any order, and a flipped bit looks the same as a torn record.

Java: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize (4.9.8)
"""
from __future__ import annotations

import errno
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache

from rmqha.common import sys_flags
from rmqha.common.filesystem import replace_and_force
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_const
from rmqha.common.message.message import parse_int
from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import (
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    INT,
    LENGTHS,
    LENGTHS_SIZE,
    LONG,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    MIN_RECORD_LENGTH,
    PHYSICAL_OFFSET_POSITION,
    SYSFLAG_POSITION,
    V6_FLAGS,
    body_length_position,
    cal_msg_length,
    decode_text,
    store_timestamp_position,
    walk,
)
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.common.util_all import current_time_millis, offset_to_file_name, time_millis_to_human_string
from rmqha.store.bulk.bulk_layout import GOOD, Stop, record_at
from rmqha.store.delay_levels import DelayLevels
from rmqha.store.mapped_file import MappedFile, ensure_dir_ok
from rmqha.store.replicated_log import LogReader, get_log_bytes
from rmqha.store.results import DispatchRequest, SelectMappedBufferResult
from rmqha.store.store_marks import RecoveryBase
from rmqha.store.store_path_config_helper import get_diverged_folder

log = logging.getLogger("RocketmqStore")

_unpack_lengths = LENGTHS.unpack_from
_TRANSACTION_MASK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_WITHOUT_UNIT = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)
_KEYS = message_const.PROPERTY_KEYS
_UNIQ_KEY = message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_TAGS = message_const.PROPERTY_TAGS
_DELAY = message_const.PROPERTY_DELAY_TIME_LEVEL


def check_message_and_return_size(buffer: memoryview, position: int = 0, check_crc: bool = False,
                                  read_body: bool = True, delay_levels: DelayLevels | None = None) -> DispatchRequest:
    """Return a summary of the record at `position`; DispatchRequest explains its size and success.

    `delay_levels` turn the levels of the schedule topic's messages into delivery times. The CRC is checked only when
    both flags are set. Lengths are checked against the buffer, and memory is never allocated according to them.
    """
    stop, size, fields, topic_at, properties_at = record_at(buffer, position, check_crc and read_body)
    if stop != GOOD:
        return _no_message(stop, size, fields, buffer, topic_at, properties_at)
    request = DispatchRequest(size, True)
    (_, _, _, request.queue_id, request.consume_queue_offset, request.commit_log_offset, request.sys_flag,
     request.store_timestamp, request.prepared_transaction_offset, _) = fields
    request.topic = _topic(buffer[topic_at + 1:properties_at - 2].tobytes())
    if properties_at < position + size:
        _take_properties(request, buffer[properties_at:position + size].tobytes().decode("utf-8", "replace"),
                         delay_levels)
    return request


def skip_good_records(buffer: memoryview, position: int, end: int, file_from_offset: int, check_crc: bool,
                      is_dispatched: Callable[[bytes, int, int, int], bool]) -> int:
    """Return the position, from `position` on, of the first record that `check_message_and_return_size` has to check.

    That is a bad record, a blank, one with an IPv6 host, one whose offset is not its position, or one that is not
    dispatched yet. `is_dispatched` decides the latter by topic (bytes), queue id, queue offset and position in
    `buffer`; it is not called for prepared and rolled-back records. This is several times as fast as reading every
    field of each record.
    """
    unpack = _unpack_lengths
    while position + HEAD_LENGTH <= end:
        (total_size, magic_code, crc, queue_id, queue_offset, physical_offset, sys_flag,
         body_length) = unpack(buffer, position)
        topic_at = position + HEAD_LENGTH + body_length
        if magic_code != MESSAGE_MAGIC_CODE or sys_flag & V6_FLAGS or body_length < 0 or topic_at + LENGTHS_SIZE > end \
                or physical_offset != file_from_offset + position:
            break
        topic_length = buffer[topic_at]
        properties_at = topic_at + LENGTHS_SIZE + topic_length
        if topic_length > MAX_TOPIC_LENGTH or properties_at > end:
            break
        properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
        record_end = properties_at + properties_length
        if properties_length >= 0x8000 or record_end > end or record_end - position != total_size:
            break
        if check_crc and zlib.crc32(buffer[position + HEAD_LENGTH:topic_at]) & 0x7FFF_FFFF != crc and body_length:
            break
        if sys_flag & _TRANSACTION_MASK in _WITHOUT_UNIT or not is_dispatched(
                bytes(buffer[topic_at + 1:properties_at - 2]), queue_id, queue_offset, record_end):
            break
        position = record_end
    return position


def _no_message(stop: int, size: int, fields: tuple[int, ...], buffer: memoryview, topic_at: int,
                properties_at: int) -> DispatchRequest:
    """Return the summary of what is not a good record: a file's blank, or bytes that are neither; see `record_at`."""
    if stop == Stop.BAD_MAGIC:
        log.warning("found a illegal magic code 0x%x", fields[1] & 0xFFFF_FFFF)
    elif stop == Stop.BAD_CRC:
        log.warning("CRC check failed. bodyCRC=%s", fields[2])
    elif stop == Stop.LENGTH_MISMATCH:
        topic_length = buffer[topic_at]
        properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
        log.error("[BUG]read total count not equals msg total size. totalSize=%s, readTotalCount=%s, bodyLen=%s, "
                  "topicLen=%s, propertiesLength=%s", fields[0],
                  cal_msg_length(fields[6], fields[9], topic_length, properties_length),
                  fields[9], topic_length, properties_length)
    return DispatchRequest(size, stop == Stop.BLANK)


@lru_cache(maxsize=4096)
def _topic(data: bytes) -> str:
    return decode_text(data)


def _take_properties(request: DispatchRequest, text: str, delay_levels: DelayLevels | None) -> None:
    """Fill in the fields that come from the properties."""
    properties = request.properties_map = string2message_properties(text)
    get = properties.get
    request.keys = get(_KEYS)
    request.uniq_key = get(_UNIQ_KEY)
    tags = get(_TAGS)
    if tags:
        request.tags_code = string_hash_code(tags)
    if request.topic == RMQ_SYS_SCHEDULE_TOPIC and delay_levels is not None and _DELAY in properties:
        try:
            level = min(parse_int(properties[_DELAY]), delay_levels.max_level)
        except ValueError as error:
            # Differs: a message with an invalid delay level is dispatched like one without a level; the original
            # considers the record damaged, and drops everything after it in the file.
            log.warning("a scheduled message has an invalid delay level: %s", error)
            return
        if level > 0:
            request.tags_code = delay_levels.deliver_timestamp(level, request.store_timestamp)


# A disk writes a sector completely or not at all.
SECTOR_SIZE = 512
_LONGEST_REST = LENGTHS_SIZE + MAX_TOPIC_LENGTH + MAX_PROPERTIES_LENGTH
# A record needs at least these bytes to be recognized.
_CHECKED = MESSAGE_MAGIC_CODE_POSITION + INT.size


def torn_records(buffer: memoryview, end: int, flushed: int, in_pieces: bool,
                 doubts_heads: bool = False) -> Iterator[tuple[int, int]]:
    """Yield position and size of the records of a commit log file that end after `flushed` and may be torn.

    Records that look complete follow each other from the file's beginning up to `end`. `in_pieces`: a slave wrote them,
    and `flushed` may be inside one. `doubts_heads`: zeros in a head may be missing bytes, see the module.
    """
    # Records that are written whole are flushed whole, so `flushed` is a record boundary.
    for position, size in records(buffer, 0 if in_pieces else max(flushed, 0), end):
        if position + size > flushed and may_be_torn(buffer, position, size, doubts_heads):
            yield position, size


def may_be_torn(buffer: memoryview | bytes, position: int, size: int, doubts_heads: bool = False) -> bool:
    """Return whether the record at `position` looks torn; sectors begin at multiples of their size in `buffer`."""
    length_at = position + body_length_position(_int_at(buffer, position + SYSFLAG_POSITION))
    body_at, end = length_at + INT.size, position + size
    topic_at = body_at + _int_at(buffer, length_at)
    properties_at = topic_at + LENGTHS_SIZE + buffer[topic_at]
    if 0 in bytes(buffer[topic_at + 1:properties_at - 2]):
        return True
    if doubts_heads and _ends_with_zero(buffer, position + _CHECKED, body_at):
        return True
    return end > properties_at and (buffer[end - 1] == 0 or _ends_with_zero(buffer, properties_at, end))


def _ends_with_zero(buffer: memoryview | bytes, begin: int, end: int) -> bool:
    """Return whether the last byte of any sector that ends between `begin` and `end` is zero."""
    first = begin // SECTOR_SIZE * SECTOR_SIZE + SECTOR_SIZE
    return any(buffer[at - 1] == 0 for at in range(first, end + 1, SECTOR_SIZE))


def torn_at_the_end(buffer: memoryview, end: int) -> int:
    """Return the position of the last record before `end` if it looks torn, else -1.

    It looks torn if a sector that begins in its properties consists of zeros up to the sector's or the record's end.
    Nothing more can be found out about a log for which no flush positions were recorded.
    """
    if not _has_hole(buffer, max(end - _LONGEST_REST, 0), end):
        return -1
    position = size = 0
    for position, size in records(buffer, 0, end):  # noqa: B007, the last values are used below
        continue
    if position + size != end or not size:
        return -1
    length_at = position + body_length_position(_int_at(buffer, position + SYSFLAG_POSITION))
    topic_at = length_at + INT.size + _int_at(buffer, length_at)
    return position if _has_hole(buffer, topic_at + LENGTHS_SIZE + buffer[topic_at], position + size) else -1


def records(buffer: memoryview, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield position and size of the records from `position` on, where one begins. The records are not checked."""
    for at, size, magic_code in walk(buffer, position, end):
        if size <= 0 or magic_code != MESSAGE_MAGIC_CODE:
            # the blank at the file's end
            return
        yield at, size


def _has_hole(buffer: memoryview, begin: int, end: int) -> bool:
    """Return whether a sector that begins between `begin` and `end` consists of zeros up to its end, or to `end`."""
    first = -(-begin // SECTOR_SIZE) * SECTOR_SIZE
    return any(not any(buffer[at:min(at + SECTOR_SIZE, end)]) for at in range(first, end, SECTOR_SIZE))


def _int_at(buffer: memoryview | bytes, position: int) -> int:
    value: int = INT.unpack_from(buffer, position)[0]
    return value


_MAGIC = INT.pack(MESSAGE_MAGIC_CODE)
# Numbers of bytes that are searched; the last one holds the largest record.
_WINDOWS = (64 * 1024, 1024 * 1024, 20 * 1024 * 1024)


def first_store_timestamp(data: bytes, offset: int) -> int | None:
    """Return the store time (ms) of the first record that begins in `data`, whose first byte is at log `offset`."""
    at = data.find(_MAGIC)
    while at >= 0:
        found = _store_timestamp(data, at - MESSAGE_MAGIC_CODE_POSITION, offset)
        if found is not None:
            return found
        at = data.find(_MAGIC, at + 1)
    return None


def last_store_timestamp(data: bytes, offset: int) -> int | None:
    """Return the store time (ms) of the last record that begins in `data`, whose first byte is at log `offset`."""
    at = data.rfind(_MAGIC)
    while at >= 0:
        found = _store_timestamp(data, at - MESSAGE_MAGIC_CODE_POSITION, offset)
        if found is not None:
            return found
        at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
    return None


def store_timestamp_from(log_reader: LogReader, offset: int) -> int | None:
    """Return the store time (ms) of the first record at or after `offset`; None when the log has no record there."""
    file_size = log_reader.mapped_file_size
    # Only a blank may follow the last record of a file, so the next file is searched too.
    for begin in (offset, offset - offset % file_size + file_size):
        for window in _WINDOWS:
            data = get_log_bytes(log_reader, begin, window)
            found = first_store_timestamp(data, begin)
            if found is not None:
                return found
            if len(data) < window:
                break
    return None


def newest_store_timestamp(log_reader: LogReader) -> int | None:
    """Return the store time (ms) of the last record of the log; None for an empty log."""
    end, file_size = log_reader.get_max_phy_offset(), log_reader.mapped_file_size
    for window in _WINDOWS:
        begin = max(end - window, end - 1 - (end - 1) % file_size)
        found = last_store_timestamp(get_log_bytes(log_reader, begin, end - begin), begin) if end > 0 else None
        if found is not None or begin > end - window:
            return found
    return None


def _store_timestamp(data: bytes, start: int, offset: int) -> int | None:
    if start < 0 or len(data) - start < MIN_RECORD_LENGTH:
        return None
    if LONG.unpack_from(data, start + PHYSICAL_OFFSET_POSITION)[0] != offset + start:
        return None
    sys_flag = INT.unpack_from(data, start + SYSFLAG_POSITION)[0]
    stored: int = LONG.unpack_from(data, start + store_timestamp_position(sys_flag))[0]
    return stored


_MAGIC_PATTERN = re.compile(re.escape(INT.pack(MESSAGE_MAGIC_CODE)))
_HEAD = MESSAGE_MAGIC_CODE_POSITION + INT.size  # bytes
_PART = ".rest.part"
# bytes that are copied at a time
_STEP = 1 << 20
# zeros kept after the last byte that is not zero, because a record may end with zeros
_ZEROS = 64 << 10


class RestNotKeptError(Exception):
    """The bytes to be truncated can't be saved: nothing was changed, and the store does not open."""


def keep_rest(mapped_files: list[MappedFile], root: str, end: int, base: RecoveryBase) -> None:
    """Save what is worth keeping of the log of the store at `root`, before it is truncated at `end`. Raise
    RestNotKeptError if that fails.

    Differs: what follows after a damaged record is saved before the log is truncated there. The original drops it even
    after a clean stop, so one flipped bit in the last file deletes all newer messages.
    """
    files = [file for file in mapped_files if file.file_from_offset + file.file_size > end]
    pieces = [(file.file_from_offset, file, list(file.data_extents(max(end - file.file_from_offset, 0))))
              for file in files]
    last = _last_byte(pieces)
    if last < end:
        return
    whole = _first_whole_record(pieces, end)
    if whole < 0 and not (base.was_stopped and _is_damage(files[0], end, last, base)):
        return
    kept = _write(get_diverged_folder(root), pieces, _runs(pieces, end, whole, last))
    log.error("truncating the log at %s: the record there is damaged or misplaced%s. The %s bytes from there on are "
              "kept in %s. Read them with `rmqha store dump` and resend the messages that matter; or, before any new "
              "message is put, copy the log of a replica, which has the messages undamaged", end,
              f", and complete records follow, the first at {whole}" if whole >= 0 else "", last + 1 - end,
              ", ".join(kept))


_Piece = tuple[int, MappedFile, list[tuple[int, int]]]
"""Offset of a file, the file, and its data extents."""


def _last_byte(pieces: list[_Piece]) -> int:
    """Return the offset of the last byte that is not zero; -1 if all are zero."""
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
    """Return the offset of the first complete record after `end` that contains this offset; -1 if there is none."""
    for start, file, extents in pieces:
        buffer = file.slice_byte_buffer()
        for begin, stop in extents:
            for found in _MAGIC_PATTERN.finditer(buffer, begin, stop):
                at = found.start() - MESSAGE_MAGIC_CODE_POSITION
                if start + at > end and at + HEAD_LENGTH <= file.file_size \
                        and LONG.unpack_from(buffer, at + PHYSICAL_OFFSET_POSITION)[0] == start + at \
                        and record_at(buffer, at, True)[0] == GOOD:
                    return start + at
    return -1


def _is_damage(file: MappedFile, end: int, last: int, base: RecoveryBase) -> bool:
    """Return whether the bytes at `end` after a clean stop are damage: they were a record, or should be zeros."""
    at = end - file.file_from_offset
    if at + _HEAD > file.file_size:
        return base.is_noted
    buffer = file.slice_byte_buffer()
    size, magic_code = (INT.unpack_from(buffer, at + place)[0] for place in (0, MESSAGE_MAGIC_CODE_POSITION))
    if magic_code == BLANK_MAGIC_CODE and size == file.file_size - at:
        # a slave's blank, which its master sends again
        return False
    if base.is_noted and base.by_slave and last < base.log_flushed < end + max(size, _HEAD):
        # the slave was stopped in the middle of the record
        return False
    return base.is_noted or magic_code == MESSAGE_MAGIC_CODE


def _runs(pieces: list[_Piece], end: int, whole: int, last: int) -> list[tuple[int, int]]:
    """Return begin and end of each part that is saved to a file of its own.

    Each file of the log has its own part or parts, and bytes that begin with a complete record are separate from those
    that can't be read. The zeros with which a record may end become a hole in the file.
    """
    runs = []
    stop = min(last + 1 + _ZEROS, pieces[-1][0] + pieces[-1][1].file_size)
    for start, file, extents in pieces:
        if extents and start <= last:
            begin, behind = max(start, end), min(start + file.file_size, stop)
            cuts = [begin, whole, behind] if begin < whole < behind else [begin, behind]
            runs += list(zip(cuts, cuts[1:]))
    return runs


def _write(folder: str, pieces: list[_Piece], runs: list[tuple[int, int]]) -> list[str]:
    """Write parts of the log to files named after their offsets, and force them to disk. RestNotKeptError."""
    needed = sum(stop - begin for _start, _file, extents in pieces for begin, stop in extents)
    time = time_millis_to_human_string(current_time_millis())
    paths = [os.path.join(folder, f"{offset_to_file_name(begin)}.{time}") for begin, _stop in runs]
    try:
        ensure_dir_ok(folder, os.pathsep)
        # left by a start that was killed
        _remove_parts(folder)
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
            f"the log has a damaged record at {runs[0][0]} and has to be truncated there. Up to {needed} bytes after "
            f"that offset may contain good messages, but can't be saved in {folder}: {error}. Nothing was changed. "
            "Free some space there (older files in that folder can be moved away), or move the log's files from offset "
            f"{pieces[0][0]} on away to continue without them") from error
    return paths


def _remove_parts(folder: str) -> None:
    for name in os.listdir(folder):
        if name.endswith(_PART):
            os.unlink(os.path.join(folder, name))


def _copy(pieces: list[_Piece], begin: int, end: int, path: str) -> None:
    """Copy the log from `begin` to `end`, leaving holes for zeros."""
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


def block_checksums(log_reader: LogReader, offset: int, block_size: int, count: int,
                    blocks: list[bytes] | None = None) -> list[int]:
    """Return the CRC32 of each of `count` blocks from log `offset` on, ending before the first block that the log does
    not hold completely.

    If `blocks` is given, the blocks themselves are appended to it.
    """
    crcs: list[int] = []
    pieces: list[bytes] = []
    # of the current block
    crc, missing = 0, block_size
    while len(crcs) < count:
        result = log_reader.get_commit_log_data(offset)
        if result is None:
            break
        with result:
            # For offset 0 the store returns its first file, wherever that begins.
            if result.start_offset != offset:
                break
            position = 0
            while position < result.size and len(crcs) < count:
                with result.buffer[position:position + missing] as piece:
                    crc = zlib.crc32(piece, crc)
                    if blocks is not None:
                        pieces.append(bytes(piece))
                    position, missing = position + len(piece), missing - len(piece)
                if not missing:
                    crcs.append(crc)
                    if blocks is not None:
                        blocks.append(b"".join(pieces))
                        pieces = []
                    crc, missing = 0, block_size
            offset += position
    return crcs


def end_of_whole_records(read: Callable[[int], SelectMappedBufferResult | None], begin: int, max_offset: int,
                         file_size: int) -> int:
    """Return the offset at which the last complete record of a log ends; `max_offset` unless its end is incomplete.

    The log has files of `file_size` bytes and ends at `max_offset`. The search begins at `begin`, where a record
    begins. `read` returns the bytes from an offset on.
    """
    offset = begin
    while offset < max_offset:
        result = read(offset)
        if result is None:
            break
        next_file = offset + file_size - offset % file_size
        with result:
            position, end_of_file = _whole_records(result.buffer, result.size)
        if end_of_file and next_file > max_offset:
            # the blank is incomplete
            return offset + position
        if not end_of_file and position < result.size:
            return offset + position
        offset = next_file if end_of_file else offset + position
    return min(offset, max_offset)


def _whole_records(buffer: memoryview, size: int) -> tuple[int, bool]:
    """Return the position after the last complete record, and whether the file's blank begins there."""
    position = 0
    while position < size:
        request = check_message_and_return_size(buffer, position, False, False)
        if not request.success:
            return position, False
        if request.msg_size == 0:
            return position, True
        position += request.msg_size
    return position, False
