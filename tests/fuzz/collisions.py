"""Integers for which CPython's dicts and sets look in the same places.

An integer hashes to itself. Where its place is taken, the next one is 5 * place + 1 + what is left of the hash, and of
that five bits fewer are left each time. So most of the numbers here take the places that follow one another when
nothing is left; the others, which walk, meet only taken places until then, and walk along half of these. Pure; written
from what CPython does, and sharing no code with rmqha.
"""
import functools
import random

MORE_BITS = 10  # that a number which walks has, beside those of its place: they leave few steps, and enough numbers


@functools.cache
def colliding(places: int, walkers: int | None = None) -> list[int]:
    """As many integers as a dict of so many places holds (a power of two); of them `walkers` walk, or a quarter."""
    count = places * 2 // 3
    walkers = count // 4 if walkers is None else min(walkers, count // 4)
    rng, mask, bits = random.Random(places), places - 1, places.bit_length() + MORE_BITS
    order: dict[int, int] = {}  # by place: how many stand before it on the walk
    place = 1
    for number in range(count - walkers):
        order[place] = number
        place = (5 * place + 1) & mask
    found, last = dict.fromkeys(order), len(order) // 2
    while len(found) < count:
        number = left = rng.getrandbits(bits)
        place = number & mask
        while place in order and left >> 5:
            left >>= 5
            place = (5 * place + left + 1) & mask
        place = (5 * place + 1) & mask
        if order.get(place, last) < last:
            found[number] = None
    return list(found)
