"""MurmurHash3, x64, 128 bits, seed 0: the lower half, as Guava's `murmur3_128().hashString(..).asLong()` gives it."""
import struct

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
    """The first 64 bits of the hash, unsigned.

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
