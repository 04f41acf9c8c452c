"""A Bloom filter of names: a miss is always right, a hit is wrong with a configured probability.

- `BitsArray`: the array of bits.
- `murmur3_128_low`: the lower half of MurmurHash3 (x64, 128 bits, seed 0), equal to Guava's
  `murmur3_128().hashString(..).asLong()`.
- `BloomFilter`: the filter.
"""
import math
import struct

from rmqha.common.java import int32
from rmqha.common.lazy_dataclasses import dataclass


class BitsArray:
    """An array of bits; bit 0 is the lowest bit of byte 0. Not thread-safe.

    Java: org.apache.rocketmq.filter.util.BitsArray (4.9.8)
    """

    __slots__ = ("bytes", "bit_length")

    def __init__(self, data: bytes | bytearray, bit_length: int) -> None:
        self.bytes = bytearray(data)
        self.bit_length = bit_length

    @staticmethod
    def create(bit_length: int) -> "BitsArray":
        """Return an array with all bits clear."""
        return BitsArray(bytes(-(-bit_length // 8)), bit_length)

    @staticmethod
    def of(data: bytes) -> "BitsArray":
        """Return an array with a copy of the bits of `data`. ValueError for empty data."""
        if not data:
            raise ValueError("Bytes is empty!")
        return BitsArray(data, len(data) * 8)

    def set_bit(self, bit_pos: int, is_set: bool) -> None:
        """Set or clear a bit. ValueError outside the array."""
        self._check_bit_position(bit_pos)
        if is_set:
            self.bytes[bit_pos // 8] |= 1 << bit_pos % 8
        else:
            self.bytes[bit_pos // 8] &= ~(1 << bit_pos % 8)

    def get_bit(self, bit_pos: int) -> bool:
        """Return a bit. ValueError outside the array."""
        self._check_bit_position(bit_pos)
        return self.bytes[bit_pos // 8] & 1 << bit_pos % 8 != 0

    def _check_bit_position(self, bit_pos: int) -> None:
        if bit_pos >= self.bit_length:
            raise ValueError(f"BitPos is greater than {self.bit_length}")
        if bit_pos < 0:
            raise ValueError("BitPos is less than 0")

    def __str__(self) -> str:
        lines = []
        for index in range(len(self.bytes) - 1, -1, -1):
            highest = 7
            if index == len(self.bytes) - 1 and self.bit_length % 8 > 0:
                # One bit too many, as in Java.
                highest = self.bit_length % 8
            lines += [("1" if self.bytes[index] & 1 << bit else "0") for bit in range(highest, -1, -1)]
            if index % 8 == 0:
                lines.append("\n")
        return "".join(lines)


_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK = struct.Struct("<QQ")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix_k1(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_k2(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK, 33) * _C1 & _MASK


def _final_mix(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3_128_low(data: bytes) -> int:
    """Return the first 64 bits of the hash, unsigned.

    Java: com.google.common.hash.Hashing#murmur3_128
    """
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for k1, k2 in _BLOCK.iter_unpack(data[:whole]):
        h1 = ((_rotate(h1 ^ _mix_k1(k1), 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 = ((_rotate(h2 ^ _mix_k2(k2), 31) + h1) * 5 + 0x38495AB5) & _MASK
    if len(data) > whole:
        k1, k2 = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
        h1, h2 = h1 ^ _mix_k1(k1), h2 ^ _mix_k2(k2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_final_mix(h1) + _final_mix(h2)) & _MASK


@dataclass
class BloomFilterData:
    """The bit positions of a name, and the number of bits of the filter that they belong to.

    Java: org.apache.rocketmq.filter.util.BloomFilterData (4.9.8)
    """

    bitNum: int = 0
    bitPos: list[int] | None = None


class BloomFilter:
    """A filter of `m` bits, `k` of them per name. With `n` names in it, `f` percent of all other names are false hits.

    Java: org.apache.rocketmq.filter.util.BloomFilter (4.9.8)
    """

    def __init__(self, f: int, n: int) -> None:
        if not 1 <= f < 100:
            raise ValueError("f must be greater or equal than 1 and less than 100")
        if n < 1:
            raise ValueError("n must be greater than 0")
        self.f = f
        self.n = n
        error_rate = f / 100.0
        self.k = math.ceil(_log_mn(0.5, error_rate))
        if self.k < 1:
            raise ValueError("Hash function num is less than 1, maybe you should change the value of error rate or "
                             "bit num!")
        bits = math.ceil(n * _log_mn(2, 1 / error_rate) * _log_mn(2, math.e))
        self.m = 8 * math.ceil(bits / 8)

    @staticmethod
    def create_by_fn(f: int, n: int) -> "BloomFilter":
        """Return a filter for an error rate in percent (1 to 99) and a number of names. ValueError."""
        return BloomFilter(f, n)

    def calc_bit_positions(self, text: str) -> list[int]:
        """Return the bit positions of a name, by double hashing."""
        hash64 = murmur3_128_low(text.encode("utf-8", "replace"))
        hash1, hash2 = int32(hash64), int32(hash64 >> 32)
        positions = []
        for index in range(1, self.k + 1):
            combined = int32(hash1 + int32(index * hash2))
            positions.append((~combined if combined < 0 else combined) % self.m)
        return positions

    def generate(self, text: str) -> BloomFilterData:
        """Return the bit positions of a name as data to store."""
        return BloomFilterData(self.m, self.calc_bit_positions(text))

    def hash_to(self, filter_data: BloomFilterData, bits: BitsArray) -> None:
        """Add a name. ValueError when `filter_data` or `bits` belong to another filter."""
        self._check(filter_data, bits)
        for position in filter_data.bitPos:  # type: ignore[union-attr]  # checked by _check
            bits.set_bit(position, True)

    def is_hit(self, filter_data: BloomFilterData, bits: BitsArray) -> bool:
        """Return False if a name was certainly not added, True if it probably was.

        ValueError when `filter_data` or `bits` belong to another filter.
        """
        self._check(filter_data, bits)
        return all(bits.get_bit(position)
                   for position in filter_data.bitPos)  # type: ignore[union-attr]  # checked by _check

    def _check(self, filter_data: BloomFilterData, bits: BitsArray) -> None:
        if not self.is_valid(filter_data):
            raise ValueError(f"Bloom filter data may not belong to this filter! {filter_data}, {self}")
        if bits.bit_length != self.m:
            raise ValueError(f"Length({bits.bit_length}) of bits in BitsArray is not equal to {self.m}!")

    def is_valid(self, filter_data: BloomFilterData | None) -> bool:
        """Return whether `filter_data` can belong to this filter."""
        return (filter_data is not None and filter_data.bitNum == self.m and filter_data.bitPos is not None
                and len(filter_data.bitPos) == self.k)

    def __str__(self) -> str:
        return f"f: {self.f}, n: {self.n}, k: {self.k}, m: {self.m}"


def _log_mn(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
