"""A bloom filter: says for certain that a name was not put in, and nearly for certain that it was."""
import math
from dataclasses import dataclass

from rmqha.common.java import int32
from rmqha.filter.util.bits_array import BitsArray
from rmqha.filter.util.murmur3 import murmur3_128_low


@dataclass
class BloomFilterData:
    """The positions of the bits, and the number of bits of the filter that they are for.

    Java: org.apache.rocketmq.filter.util.BloomFilterData (4.9.8)
    """

    bitNum: int = 0
    bitPos: list[int] | None = None


class BloomFilter:
    """`k` bits of `m` for each name, so that with `n` names `f` per cent of the others are taken for one of them.

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
        """A filter for an error rate in per cent (1 to 99) and a number of names. ValueError."""
        return BloomFilter(f, n)

    def calc_bit_positions(self, text: str) -> list[int]:
        """The bits of a name, by double hashing."""
        hash64 = murmur3_128_low(text.encode("utf-8", "replace"))
        hash1, hash2 = int32(hash64), int32(hash64 >> 32)
        positions = []
        for index in range(1, self.k + 1):
            combined = int32(hash1 + int32(index * hash2))
            positions.append((~combined if combined < 0 else combined) % self.m)
        return positions

    def generate(self, text: str) -> BloomFilterData:
        """The bits of a name, to be kept."""
        return BloomFilterData(self.m, self.calc_bit_positions(text))

    def hash_to(self, filter_data: BloomFilterData, bits: BitsArray) -> None:
        """Put a name in. ValueError when `filter_data` or `bits` belong to another filter."""
        self._check(filter_data, bits)
        for position in filter_data.bitPos:  # type: ignore[union-attr]  # _check has looked
            bits.set_bit(position, True)

    def is_hit(self, filter_data: BloomFilterData, bits: BitsArray) -> bool:
        """Whether a name was put in, perhaps. ValueError when `filter_data` or `bits` belong to another filter."""
        self._check(filter_data, bits)
        return all(bits.get_bit(position)
                   for position in filter_data.bitPos)  # type: ignore[union-attr]  # _check has looked

    def _check(self, filter_data: BloomFilterData, bits: BitsArray) -> None:
        if not self.is_valid(filter_data):
            raise ValueError(f"Bloom filter data may not belong to this filter! {filter_data}, {self}")
        if bits.bit_length != self.m:
            raise ValueError(f"Length({bits.bit_length}) of bits in BitsArray is not equal to {self.m}!")

    def is_valid(self, filter_data: BloomFilterData | None) -> bool:
        """Whether `filter_data` can be of this filter."""
        return (filter_data is not None and filter_data.bitNum == self.m and filter_data.bitPos is not None
                and len(filter_data.bitPos) == self.k)

    def __str__(self) -> str:
        return f"f: {self.f}, n: {self.n}, k: {self.k}, m: {self.m}"


def _log_mn(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
