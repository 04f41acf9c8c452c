"""The few rules of the Java platform that show in RocketMQ's bytes: int wrap, String.hashCode, HashMap order."""
from collections.abc import Iterable
from functools import lru_cache

# Longer texts come from strangers: a cache of them would be memory that a peer can fill.
_CACHED_LENGTH = 128  # characters
_CACHED_KEYS_LENGTH = 1024  # characters of all keys together



def int32(value: int) -> int:
    """`value` wrapped to a signed 32-bit integer."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def int64(value: int) -> int:
    """`value` wrapped to a signed 64-bit integer."""
    return ((value + 0x8000_0000_0000_0000) & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000


def string_of(text: str | None) -> str:
    """What Java writes where a text that may be null is joined to others."""
    return "null" if text is None else text


def uncached_hash_code(text: str) -> int:
    """`string_hash_code` without the cache, for texts that are seen once."""
    result = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            result = (31 * result + unit) & 0xFFFF_FFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2]):
            result = (31 * result + (high << 8 | low)) & 0xFFFF_FFFF
    return result - 0x1_0000_0000 if result & 0x8000_0000 else result


_cached_hash_code = lru_cache(maxsize=8192)(uncached_hash_code)


def string_hash_code(text: str) -> int:
    """Java's String.hashCode: signed 32 bits over the UTF-16 units. Short texts are cached: tags and names repeat.

    Java: java.lang.String#hashCode
    """
    return _cached_hash_code(text) if len(text) <= _CACHED_LENGTH else uncached_hash_code(text)


def _spread(text: str) -> int:
    unsigned = string_hash_code(text) & 0xFFFF_FFFF
    return unsigned ^ (unsigned >> 16)


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The distinct `keys`, put in this order into a new HashMap, in the order in which Java iterates over it.

    Buckets by the spread hash, within a bucket by insertion; the table starts at 16 and doubles above 3/4 full.
    A split keeps the order within a bucket, so the final table decides. Buckets of 8 and more become trees in
    tables from 64 on; the trees keep their insertion links, except that the root moves to the front: such clashes
    are out of reach of property names and are not modelled.

    Java: java.util.HashMap
    """
    distinct = tuple(dict.fromkeys(keys))
    if sum(map(len, distinct)) <= _CACHED_KEYS_LENGTH:
        return list(_cached_hash_map_order(distinct))
    return list(_hash_map_order(distinct))


def _hash_map_order(keys: tuple[str, ...]) -> tuple[str, ...]:
    capacity = 16
    while len(keys) > capacity * 3 // 4:
        capacity *= 2
    return tuple(sorted(keys, key=lambda key: _spread(key) & (capacity - 1)))


_cached_hash_map_order = lru_cache(maxsize=4096)(_hash_map_order)
