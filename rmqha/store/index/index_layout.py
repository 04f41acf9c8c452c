"""The layout of an index file, for writer, reader and tools. Pure.

    header 40 bytes:
        0   8  beginTimestamp     store time (ms) of the first entry
        8   8  endTimestamp       of the last
        16  8  beginPhyOffset     commit log offset of the first entry
        24  8  endPhyOffset       of the last
        32  4  hashSlotCount      slots in use
        36  4  indexCount         number of the next entry; entries are numbered from 1, and 0 on disk is read as 1
    slots, 4 bytes each: number of the newest entry of the slot, 0 without entries
    entries, 20 bytes each:
        0   4  key hash           abs(Java hash of "topic#key"), 0 for Integer.MIN_VALUE; the slot is hash % slots
        4   8  commit log offset
        12  4  time               whole seconds since beginTimestamp, 0 to 2147483647
        16  4  previous entry of the same slot, 0 without one
"""
import struct
from collections.abc import Iterator
from functools import lru_cache

from rmqha.common.java import uncached_hash_code

INDEX_HEADER_SIZE = 40
HASH_SLOT_SIZE = 4
INDEX_SIZE = 20
INVALID_INDEX = 0
MAX_INT = 0x7FFF_FFFF

HEADER = struct.Struct(">qqqqii")
assert HEADER.size == INDEX_HEADER_SIZE
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
assert ENTRY.size == INDEX_SIZE

_MASK = 0xFFFF_FFFF
# A key is hashed in pieces whose hashes are cached. The text before the last 12 characters repeats from key to key
# (topic, client). Unique keys end in 12 hexadecimal digits, of which each 4 have few values.
_PIECE = 4
_TAIL = 3 * _PIECE
# The longest text whose hash is cached, in characters; producers may send long keys.
_CACHED_LENGTH = 128
_SHIFT_4 = pow(31, _PIECE, 1 << 32)
_SHIFT_8 = pow(31, 2 * _PIECE, 1 << 32)
_SHIFT_12 = pow(31, _TAIL, 1 << 32)


def file_size(hash_slot_num: int, index_num: int) -> int:
    """Return the size in bytes of a file with the given numbers of slots and entries."""
    return INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE + index_num * INDEX_SIZE


_cached_hash = lru_cache(maxsize=65536)(uncached_hash_code)


def _piece_hash(text: str) -> int:
    return (_cached_hash(text) if len(text) <= _CACHED_LENGTH else uncached_hash_code(text)) & _MASK


def index_key_hash_method(key: str) -> int:
    """Return the hash of "topic#key", which is never negative.

    Java: org.apache.rocketmq.store.index.IndexFile#indexKeyHashMethod (4.9.8)
    """
    if len(key) > _TAIL and key.isascii():
        value = (_piece_hash(key[:-_TAIL]) * _SHIFT_12 + _piece_hash(key[-12:-8]) * _SHIFT_8
                 + _piece_hash(key[-8:-4]) * _SHIFT_4 + _piece_hash(key[-4:])) & _MASK
    else:
        value = uncached_hash_code(key) & _MASK
    if value > MAX_INT:
        value = 0x1_0000_0000 - value
    return value & MAX_INT  # abs(Integer.MIN_VALUE) is negative in Java, and becomes 0


def time_diff_seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the time field of an entry."""
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), MAX_INT)


def walk_chain(buffer: memoryview, hash_slot_num: int, index_count: int, slot: int,
               ) -> Iterator[tuple[int, int, int, int]]:
    """Yield (key hash, commit log offset, seconds, number) of the entries of a slot, newest first.

    Entries that are not counted yet, because they are just being added, are skipped. Each number must be lower than the
    one before; a damaged chain ends where it is not.
    """
    number = SLOT.unpack_from(buffer, INDEX_HEADER_SIZE + slot * HASH_SLOT_SIZE)[0]
    entries_at = INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE
    bound = (len(buffer) - entries_at) // INDEX_SIZE
    while index_count <= number < bound:
        bound, number = number, ENTRY.unpack_from(buffer, entries_at + number * INDEX_SIZE)[3]
    bound = min(bound, index_count)
    while INVALID_INDEX < number < bound:
        key_hash, phy_offset, seconds, previous = ENTRY.unpack_from(buffer, entries_at + number * INDEX_SIZE)
        yield key_hash, phy_offset, seconds, number
        bound, number = number, previous
