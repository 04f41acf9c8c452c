"""A record that a loss of power has torn behind its body, where no CRC covers it. Pure.

Of the sectors that a crashed machine had not written yet, any may be missing from the disk: they read as zeros. A
record without its head or its lengths is none, one without a part of its body has a wrong CRC. One whose properties go
over into a missing sector looks whole. As the next record would begin in that sector, too, only the last one can.
"""
from rmqha.common.message.message_layout import (INT, MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH, MESSAGE_MAGIC_CODE,
                                                 MESSAGE_MAGIC_CODE_POSITION, SYSFLAG_POSITION, body_length_position)

SECTOR_SIZE = 512  # what a disk writes whole, or not at all
_LENGTHS = 3  # bytes of topic length and properties length
_LONGEST_REST = _LENGTHS + MAX_TOPIC_LENGTH + MAX_PROPERTIES_LENGTH


def find_torn_record(buffer: memoryview, end: int) -> int:
    """Where the last record before `end` begins if a sector of its properties is missing; -1 if none is.

    `buffer` is a commit log file; records that look whole follow each other from its beginning up to `end`.
    """
    if not _has_hole(buffer, max(end - _LONGEST_REST, 0), end):
        return -1
    position, size = 0, _int_at(buffer, 0)
    while size > 0 and position + size < end:
        position += size
        size = _int_at(buffer, position)
    if position + size != end or _int_at(buffer, position + MESSAGE_MAGIC_CODE_POSITION) != MESSAGE_MAGIC_CODE:
        return -1  # the blank at a file's end
    length_at = position + body_length_position(_int_at(buffer, position + SYSFLAG_POSITION))
    topic_at = length_at + INT.size + _int_at(buffer, length_at)
    return position if _has_hole(buffer, topic_at + _LENGTHS + buffer[topic_at], end) else -1


def _has_hole(buffer: memoryview, begin: int, end: int) -> bool:
    """Whether a sector that begins between `begin` and `end` has nothing but zeros up to its end, or to `end`."""
    first = -(-begin // SECTOR_SIZE) * SECTOR_SIZE
    return any(not any(buffer[at:min(at + SECTOR_SIZE, end)]) for at in range(first, end, SECTOR_SIZE))


def _int_at(buffer: memoryview, position: int) -> int:
    return INT.unpack_from(buffer, position)[0]
