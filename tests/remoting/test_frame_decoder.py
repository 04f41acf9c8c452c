"""Frames out of a byte stream, however it is cut."""
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH, FrameDecoder, FrameError
from tests.support.tiers import drawn


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def collect(decoder: FrameDecoder, data: bytes) -> list[bytes]:
    return [bytes(frame) for frame in decoder.feed(data)]


@given(st.lists(st.binary(min_size=4, max_size=60), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies, cuts):
    stream = b"".join(map(framed, bodies))
    decoder, frames, position, turn = FrameDecoder(), [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        frames += collect(decoder, stream[position:position + size])
        position, turn = position + size, turn + 1
    assert frames == bodies and decoder.buffered == 0


def test_the_read_buffer_may_be_reused_after_a_feed():
    buffer = bytearray(framed(b"first") + framed(b"second")[:6])
    decoder = FrameDecoder()
    assert collect(decoder, memoryview(buffer)) == [b"first"]
    buffer[:] = b"x" * len(buffer)
    assert collect(decoder, framed(b"second")[6:]) == [b"second"]


@pytest.mark.parametrize("length", [0, 1, 3, -1, -2**31, FRAME_MAX_LENGTH - 3, 2**31 - 1])
def test_length_that_no_frame_has_is_refused_after_the_frames_before_it(length):
    decoder = FrameDecoder()
    frames = decoder.feed(framed(b"good") + struct.pack(">i", length) + b"rest")
    assert bytes(next(frames)) == b"good"
    with pytest.raises(FrameError):
        next(frames)


def test_frame_of_exactly_16_mib_is_accepted():
    body = bytes(FRAME_MAX_LENGTH - 4)
    decoder, stream = FrameDecoder(), framed(body)
    frames = []
    for position in range(0, len(stream), 1 << 18):
        frames += [len(frame) for frame in decoder.feed(stream[position:position + (1 << 18)])]
    assert frames == [len(body)]


def test_memory_follows_what_arrived_and_not_what_was_promised():
    decoder = FrameDecoder()
    assert collect(decoder, struct.pack(">i", FRAME_MAX_LENGTH - 4) + b"abc") == []
    assert decoder.buffered == 7


@settings(max_examples=drawn(200))
@given(st.lists(st.binary(max_size=100)))
def test_any_bytes_are_frames_or_refused(pieces):
    decoder = FrameDecoder()
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                assert len(frame) >= 4
    except FrameError as error:
        assert "frame length" in str(error)
    else:
        assert decoder.buffered <= sum(map(len, pieces))
