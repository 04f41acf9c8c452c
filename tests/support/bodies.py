"""Message bodies that can be computed again from (seed, index, size); the Java twin is java/src/.../Bodies.java."""
import random
import struct

_PERIOD = 1009


class Bodies:
    """The bodies of one seed: `of(index, size)`; from 8 bytes on a body begins with its index."""

    def __init__(self, seed: int):
        table = bytearray()
        for _ in range(_PERIOD):
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            table.append(seed >> 16 & 0xFF)
        self._table = bytes(table)

    def of(self, index: int, size: int) -> bytes:
        """The body of message `index` with `size` bytes."""
        start = index * 31 % _PERIOD
        body = (self._table * ((start + size) // _PERIOD + 1))[start:start + size]
        return struct.pack(">q", index) + body[8:] if size >= 8 else body


def mixed_sizes(count: int, seed: int) -> list[int]:
    """Sizes of 1 byte to 1 MiB: most small, 2 in 100 up to 64 KiB, 1 in 200 up to 1 MiB; both ends are in."""
    rng = random.Random(seed)
    sizes = []
    for _ in range(count):
        kind = rng.random()
        top = 1 << 20 if kind < 0.005 else 1 << 16 if kind < 0.025 else 2048
        sizes.append(rng.randint(1, top))
    sizes[0], sizes[count // 2] = 1, 1 << 20
    return sizes


def small_sizes(count: int, seed: int, low: int = 1, high: int = 1500) -> list[int]:
    """Sizes drawn evenly between `low` and `high` bytes."""
    rng = random.Random(seed)
    return [rng.randint(low, high) for _ in range(count)]
