"""Records that a loss of power may have torn where no CRC covers them. Pure.

Of the sectors that a crashed machine had not written yet, any may be missing from the disk: they read as they were
before, as zeros from some byte on up to the sector's end. A record without its first bytes or its lengths is not taken
for one, one without a part of its body has a wrong CRC, one without a part of its topic has NULs there, and no topic
has. What looks whole, and may not be, has zeros in its properties up to the end of a sector, or of the record. So does
a record that has such properties: its writer notes it (`PositionsFile.note_whole`).

A slave writes records in pieces, each of which may be on the disk without the next: there zeros in a head, which are
nothing special, may be missing bytes, too. A slave can afford doubts: its master sends again what is cut off.
"""
from collections.abc import Iterator

from rmqha.common.message.message_layout import (
    INT,
    LENGTHS_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    SYSFLAG_POSITION,
    body_length_position,
    walk,
)

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
