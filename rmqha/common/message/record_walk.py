"""Stepping over bytes of the commit log by the first eight bytes of each record: TOTALSIZE and MAGICCODE. Pure.

That is enough to follow records, and to see what is no log. Whether a record is whole and good is told by `bulk.walk`
and `check_message_and_return_size`, which look at all of it.
"""
from collections.abc import Iterator

from rmqha.common.message.message_layout import BLANK, BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, Buffer

HEAD = BLANK  # a blank has nothing else


def walk(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Position, size and magic code of what begins at `position`, and of what follows it, before `end`.

    Nothing is checked. The last one is that whose size is not positive, or behind which the buffer has no whole head.
    """
    end = min(end, len(buffer) - HEAD.size + 1)
    while position < end:
        size, magic_code = HEAD.unpack_from(buffer, position)
        yield position, size, magic_code
        if size <= 0:
            return
        position += size


def fits(size: int, magic_code: int, room: int) -> bool:
    """Whether a record may begin so, or the blank that ends a file, where `room` bytes are left of the file."""
    return (magic_code == MESSAGE_MAGIC_CODE and HEAD.size < size <= room
            or magic_code == BLANK_MAGIC_CODE and size == room)


def is_blank(buffer: Buffer) -> bool:
    """Whether the buffer begins with a blank, whatever the size that it tells."""
    return len(buffer) >= HEAD.size and HEAD.unpack_from(buffer)[1] == BLANK_MAGIC_CODE
