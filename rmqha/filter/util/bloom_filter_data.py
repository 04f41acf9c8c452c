"""The bits of one name in a bloom filter."""
from dataclasses import dataclass


@dataclass
class BloomFilterData:
    """The positions of the bits, and the number of bits of the filter that they are for.

    Java: org.apache.rocketmq.filter.util.BloomFilterData (4.9.8)
    """

    bitNum: int = 0
    bitPos: list[int] | None = None
