"""Checks of the records in commit log bytes, and keeping of the bytes that recovery cuts off.

- `check_message_and_return_size`, `skip_good_records`: read records for dispatch and recovery; no file, no thread.
- `torn_records`, `torn_at_the_end`: records that a loss of power may have torn where no CRC covers them; pure.
- `first_store_timestamp` to `newest_store_timestamp`: when records were stored, found from any byte of the log: a
  record contains its own offset, so nothing else looks like one. Pure, except the two that read a store.
- `keep_rest`: keeps in files of `diverged` what recovery is about to cut off, where good messages may be.
- `block_checksums`: checksums of blocks of the commit log, by which two replicas compare their logs.

Of the sectors that a crashed machine had not written yet, any may be missing from the disk: they read as they were
before, as zeros from some byte on up to the sector's end. A record without its first bytes or its lengths is not taken
for one, one without a part of its body has a wrong CRC, and one without a part of its topic has NULs there, which no
topic has. A record that looks whole and may not be has zeros in its properties up to the end of a sector, or of the
record. So does a whole record with such properties: its writer notes it (`PositionsFile.note_whole`).

A slave writes records in pieces, each of which may be on the disk without the next: there zeros in a head, otherwise
normal, may be missing bytes, too. A slave can afford false alarms: its master sends again what is cut off.

    the last good record | a bad one | whole records ...  | the next file of the log ...
                         ^ end       ^                    ^     each goes to diverged/<its offset>.<time>

After a clean stop all of the log was on the disk, so bytes that do not fit at its end are damage, and `keep_rest` keeps
everything. After a crash a torn tail is expected, and is dropped as in the original; but if a whole record follows, the
rest is kept as well. Pages reach the disk in any order, and a flipped bit looks the same.

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
    """Summary of the record at `position`; see DispatchRequest for what its size and success say.

    `delay_levels` turn the levels of the schedule topic's messages into delivery times. The CRC is only checked when
    both flags ask for it. Lengths are checked against the buffer; nothing is allocated by what they say.
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
    """Position, from `position` on, of the first record that `check_message_and_return_size` has to look at.

    That is a bad one, a blank, one with an IPv6 host, one that is not where it says, and one that is not dispatched
    yet, which `is_dispatched` tells by topic (bytes), queue id, queue offset and position in `buffer`. Prepared and
    rolled back ones are not asked for. Several times as fast as looking at everything in each record.
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
    """The blank rest of a file, or something that is neither; see `record_at`."""
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
    """Fill in what the properties say."""
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
            # Differs: such a message is dispatched like one without level; the original takes it for a damaged record,
            # and drops all that is behind it in the file.
            log.warning("a scheduled message has no delay level: %s", error)
            return
        if level > 0:
            request.tags_code = delay_levels.deliver_timestamp(level, request.store_timestamp)


SECTOR_SIZE = 512  # what a disk writes whole, or not at all
_LONGEST_REST = LENGTHS_SIZE + MAX_TOPIC_LENGTH + MAX_PROPERTIES_LENGTH
_CHECKED = MESSAGE_MAGIC_CODE_POSITION + INT.size  # a record needs at least these bytes to be told from the rest


def torn_records(buffer: memoryview, end: int, flushed: int, in_pieces: bool,
                 doubts_heads: bool = False) -> Iterator[tuple[int, int]]:
    """Position and size of the records of a commit log file that may be torn, of those that end behind `flushed`.

    Records that look whole follow each other from the file's beginning up to `end`. `in_pieces`: a slave wrote them,
    and `flushed` may lie in one. `doubts_heads`: zeros in a head may be missing bytes, see above.
    """
    # what is written as whole records is flushed as whole records
    for position, size in records(buffer, 0 if in_pieces else max(flushed, 0), end):
        if position + size > flushed and may_be_torn(buffer, position, size, doubts_heads):
            yield position, size


def may_be_torn(buffer: memoryview | bytes, position: int, size: int, doubts_heads: bool = False) -> bool:
    """Whether the record at `position`, a multiple of the sector's size being the beginning of one, looks torn."""
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
    """Whether a sector that ends between `begin` and `end` has a zero there."""
    first = begin // SECTOR_SIZE * SECTOR_SIZE + SECTOR_SIZE
    return any(buffer[at - 1] == 0 for at in range(first, end + 1, SECTOR_SIZE))


def torn_at_the_end(buffer: memoryview, end: int) -> int:
    """Where the last record before `end` begins if a sector that begins in its properties has nothing but zeros, up to
    its end or the record's; -1 if none has. That is what can be told of a log that nobody has taken notes of."""
    if not _has_hole(buffer, max(end - _LONGEST_REST, 0), end):
        return -1
    position = size = 0
    for position, size in records(buffer, 0, end):  # noqa: B007, the last ones are used below
        continue
    if position + size != end or not size:
        return -1
    length_at = position + body_length_position(_int_at(buffer, position + SYSFLAG_POSITION))
    topic_at = length_at + INT.size + _int_at(buffer, length_at)
    return position if _has_hole(buffer, topic_at + LENGTHS_SIZE + buffer[topic_at], position + size) else -1


def records(buffer: memoryview, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Position and size of the records from one's beginning on; none of them is checked."""
    for at, size, magic_code in walk(buffer, position, end):
        if size <= 0 or magic_code != MESSAGE_MAGIC_CODE:
            return  # the blank at the file's end
        yield at, size


def _has_hole(buffer: memoryview, begin: int, end: int) -> bool:
    """Whether a sector that begins between `begin` and `end` has nothing but zeros up to its end, or to `end`."""
    first = -(-begin // SECTOR_SIZE) * SECTOR_SIZE
    return any(not any(buffer[at:min(at + SECTOR_SIZE, end)]) for at in range(first, end, SECTOR_SIZE))


def _int_at(buffer: memoryview | bytes, position: int) -> int:
    value: int = INT.unpack_from(buffer, position)[0]
    return value


_MAGIC = INT.pack(MESSAGE_MAGIC_CODE)
_WINDOWS = (64 * 1024, 1024 * 1024, 20 * 1024 * 1024)  # bytes looked through; the last one holds the largest record


def first_store_timestamp(data: bytes, offset: int) -> int | None:
    """Store time (ms) of the first record that begins in `data`, whose first byte is at commit log `offset`."""
    at = data.find(_MAGIC)
    while at >= 0:
        found = _store_timestamp(data, at - MESSAGE_MAGIC_CODE_POSITION, offset)
        if found is not None:
            return found
        at = data.find(_MAGIC, at + 1)
    return None


def last_store_timestamp(data: bytes, offset: int) -> int | None:
    """Store time (ms) of the last record that begins in `data`, whose first byte is at commit log `offset`."""
    at = data.rfind(_MAGIC)
    while at >= 0:
        found = _store_timestamp(data, at - MESSAGE_MAGIC_CODE_POSITION, offset)
        if found is not None:
            return found
        at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
    return None


def store_timestamp_from(log_reader: LogReader, offset: int) -> int | None:
    """Store time (ms) of the first record at or behind `offset`; None when the log has none there."""
    file_size = log_reader.mapped_file_size
    for begin in (offset, offset - offset % file_size + file_size):  # behind the last record of a file is only a blank
        for window in _WINDOWS:
            data = get_log_bytes(log_reader, begin, window)
            found = first_store_timestamp(data, begin)
            if found is not None:
                return found
            if len(data) < window:
                break
    return None


def newest_store_timestamp(log_reader: LogReader) -> int | None:
    """Store time (ms) of the last record of the log; None for an empty one."""
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
_STEP = 1 << 20  # bytes that are copied at a time
_ZEROS = 64 << 10  # behind the last byte that is not zero: a record may end with some


class RestNotKeptError(Exception):
    """What would be cut off can't be kept: nothing was changed, and the store does not open."""


def keep_rest(mapped_files: list[MappedFile], root: str, end: int, base: RecoveryBase) -> None:
    """The log of the store at `root` is to be cut off at `end`: keep what is worth it. RestNotKeptError.

    Differs: the original drops it, after a clean stop, too, so that one flipped bit in the last file takes all newer
    messages along.
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
            for found in _MAGIC_PATTERN.finditer(buffer, begin, stop):
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


def _write(folder: str, pieces: list[_Piece], runs: list[tuple[int, int]]) -> list[str]:
    """Write parts of the log to files that are named after their offsets; on the disk at the end. RestNotKeptError."""
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


def block_checksums(log_reader: LogReader, offset: int, block_size: int, count: int,
                    blocks: list[bytes] | None = None) -> list[int]:
    """CRC32 of each of `count` blocks from commit log `offset` on, up to the first that the log does not hold whole.

    `blocks` gets these blocks.
    """
    crcs: list[int] = []
    pieces: list[bytes] = []
    crc, missing = 0, block_size  # of the block that is begun
    while len(crcs) < count:
        result = log_reader.get_commit_log_data(offset)
        if result is None:
            break
        with result:
            if result.start_offset != offset:  # for 0 the store gives its first file, wherever that begins
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
    """Where the last whole record ends of a log with files of `file_size` bytes that ends at `max_offset`, looking from
    `begin` on, where one begins; `max_offset` when nothing is cut off. `read` gives the bytes from an offset on."""
    offset = begin
    while offset < max_offset:
        result = read(offset)
        if result is None:
            break
        next_file = offset + file_size - offset % file_size
        with result:
            position, end_of_file = _whole_records(result.buffer, result.size)
        if end_of_file and next_file > max_offset:
            return offset + position  # of the blank only a part is there
        if not end_of_file and position < result.size:
            return offset + position
        offset = next_file if end_of_file else offset + position
    return min(offset, max_offset)


def _whole_records(buffer: memoryview, size: int) -> tuple[int, bool]:
    """Position behind the last whole record, and whether the file's blank is there."""
    position = 0
    while position < size:
        request = check_message_and_return_size(buffer, position, False, False)
        if not request.success:
            return position, False
        if request.msg_size == 0:
            return position, True
        position += request.msg_size
    return position, False
