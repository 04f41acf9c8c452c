"""Walking from record to record over log bytes that arrive in pieces. Pure.

Each record begins with its size (int32) and its magic (int32); the end of a file is a blank record that reaches
exactly to the file's end. Frames are not aligned to records, so a piece may begin and end anywhere.
"""
from typing import NamedTuple

from rmqha.common.message.message_layout import HEAD, MESSAGE_MAGIC_CODE, fits
from rmqha.store.bulk import bulk

_BULK_BYTES = 4096


class RecordChainError(ValueError):
    """The bytes at a record's place are no record."""


class RecordChain(NamedTuple):
    """Where the next record begins, and its first bytes when they came at the end of the last piece."""

    next_record: int  # commit log offset
    head: bytes = b""  # 0 to 7 bytes


class FollowedRecords:
    """Up to where a slave has followed the records that it got, over its connections. One thread's."""

    __slots__ = ("chain", "end", "is_checked")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The log ends elsewhere now, with a whole record."""
        self.chain = RecordChain(-1)  # where the next record begins, as of `end`
        self.end = -1  # commit log offset; -1: nothing was followed
        self.is_checked = True  # the log ends with a whole record, or within a file's blank


def follow_records(chain: RecordChain, offset: int, data: memoryview, start: int, length: int,
                   segment_size: int) -> RecordChain:
    """The chain behind `length` bytes at `data[start]`, which lie at commit log `offset` right behind the last piece.

    RecordChainError names the offset of the first flaw; `chain` is still good then.
    """
    position = chain.next_record - offset  # of the next record's head, relative to `start`
    if position < 0:
        head = chain.head + bytes(data[start:start + min(length, HEAD.size - len(chain.head))])
        if len(head) < HEAD.size:
            return RecordChain(chain.next_record, head)
        size, magic = HEAD.unpack(head)
        _check(size, magic, chain.next_record, segment_size)
        position += size
    if length - position > _BULK_BYTES and bulk.is_compiled():
        # In one call, up to a record that is odd; the loop below judges that one, and goes on.
        position = bulk.walk(data, start + position, start + length).position - start
    unpack_from, room = HEAD.unpack_from, segment_size - (offset + position) % segment_size
    while position + HEAD.size <= length:
        size, magic = unpack_from(data, start + position)
        if magic != MESSAGE_MAGIC_CODE or not HEAD.size < size < room:
            _check(size, magic, offset + position, segment_size)
        position += size
        room = (room - size) or segment_size
    rest = bytes(data[start + position:start + length]) if position < length else b""
    return RecordChain(offset + position, rest)


def _check(size: int, magic: int, at: int, segment_size: int) -> None:
    if not fits(size, magic, segment_size - at % segment_size):
        raise RecordChainError(f"at commit log offset {at} is no record: size {size}, magic {magic & 0xFFFFFFFF:#x}")
