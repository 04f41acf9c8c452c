"""One record of the commit log, looked at whole: for whom takes it alone, and for the bulk kernel in Python. Pure."""
import zlib

from rmqha.common.message.message_layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    LENGTHS_SIZE,
    MAX_INT,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    SUMMARIES,
    V6_FLAGS,
)
from rmqha.store.bulk.bulk_layout import Stop

GOOD = -1
RecordAt = tuple[int, int, tuple[int, ...], int, int]
"""GOOD or the Stop; the size, -1 where it can't be told, 0 of a blank; what was read of the head (SUMMARY or BLANK);
the positions of the topic's length and of the properties, where both were read."""

_TRUNCATED: RecordAt = Stop.TRUNCATED, -1, (), 0, 0
_unpack_v4 = SUMMARIES[0].unpack_from


def record_at(buffer: memoryview, position: int, check_crc: bool) -> RecordAt:
    """The record at `position`. Lengths are checked against each other and the buffer; nothing is copied."""
    end = len(buffer)
    if position + HEAD_LENGTH <= end:
        fields = _unpack_v4(buffer, position)
        if fields[1] != MESSAGE_MAGIC_CODE:
            return _no_record(fields)
    elif position + BLANK.size <= end and (blank := BLANK.unpack_from(buffer, position))[1] != MESSAGE_MAGIC_CODE:
        return _no_record(blank)
    else:
        return _TRUNCATED
    body_at = position + HEAD_LENGTH
    if fields[6] & V6_FLAGS:
        head = SUMMARIES[fields[6] >> 4 & 3]
        body_at = position + head.size
        if body_at > end:
            return _TRUNCATED
        fields = head.unpack_from(buffer, position)
    body_length = fields[9]
    topic_at = body_at + body_length if body_length > 0 else body_at
    if topic_at + LENGTHS_SIZE > end:
        return _TRUNCATED
    if check_crc and body_length > 0 and zlib.crc32(buffer[body_at:topic_at]) & MAX_INT != fields[2]:
        return Stop.BAD_CRC, -1, fields, 0, 0
    topic_length = buffer[topic_at]
    properties_at = topic_at + LENGTHS_SIZE + topic_length
    if topic_length > MAX_TOPIC_LENGTH or properties_at > end:
        return _TRUNCATED
    properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
    record_end = properties_at + properties_length if properties_length < 0x8000 else properties_at
    if record_end > end:
        return _TRUNCATED
    total_size = fields[0]
    if total_size != record_end - position or body_length < 0 or properties_length >= 0x8000:
        return Stop.LENGTH_MISMATCH, total_size if total_size > 0 else -1, fields, topic_at, properties_at
    return GOOD, total_size, fields, topic_at, properties_at


def _no_record(fields: tuple[int, ...]) -> RecordAt:
    if fields[1] == BLANK_MAGIC_CODE:
        return Stop.BLANK, 0, fields, 0, 0
    return (Stop.BAD_MAGIC if fields[1] else Stop.UNWRITTEN), -1, fields, 0, 0
