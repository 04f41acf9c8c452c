"""An array of bits."""


class BitsArray:
    """Bit 0 is the lowest bit of byte 0. Not safe for threads.

    Java: org.apache.rocketmq.filter.util.BitsArray (4.9.8)
    """

    __slots__ = ("bytes", "bit_length")

    def __init__(self, data: bytes | bytearray, bit_length: int) -> None:
        self.bytes = bytearray(data)
        self.bit_length = bit_length

    @staticmethod
    def create(bit_length: int) -> "BitsArray":
        """All bits clear."""
        return BitsArray(bytes(-(-bit_length // 8)), bit_length)

    @staticmethod
    def of(data: bytes) -> "BitsArray":
        """A copy of all bits of `data`. ValueError for none."""
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
        """A bit. ValueError outside the array."""
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
                highest = self.bit_length % 8  # one too many, as in the original
            lines += [("1" if self.bytes[index] & 1 << bit else "0") for bit in range(highest, -1, -1)]
            if index % 8 == 0:
                lines.append("\n")
        return "".join(lines)
