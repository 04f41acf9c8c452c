"""Streams cut anywhere, as a network does."""
from hypothesis import strategies as st


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` in pieces, some of which may be empty; a cut is any number."""
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in zip(at, at[1:], strict=False)]


CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)
