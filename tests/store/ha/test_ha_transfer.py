import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE
from rmqha.store.ha import ha_transfer
from rmqha.store.ha.ha_transfer import READ_MAX_BUFFER_SIZE, FrameDecoder, ReportDecoder, Run, TransferError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_report_is_8_bytes_big_endian():
    assert ha_transfer.encode_report(0x0102030405060708) == bytes(range(1, 9))


def test_header_is_offset_then_size():
    data = ha_transfer.encode_header(0x0102030405060708, 0x090A0B0C)
    assert data == bytes(range(1, 13))
    assert ha_transfer.decode_header(b"--" + data, 2) == (0x0102030405060708, 0x090A0B0C)


@settings(deadline=None)
@given(st.lists(INT64), st.data())
def test_reports_survive_any_cut(offsets, data):
    stream, decoder, found = struct.pack(f">{len(offsets)}q", *offsets), ReportDecoder(), []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        found += decoder.feed(memoryview(stream)[:count])
        stream = stream[count:]
    assert found == offsets


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=300), st.integers(1, 100), st.integers(0, 1 << 62))
def test_frames_hold_the_body_in_order_and_none_is_above_the_batch_size(body, batch_size, offset):
    stream = b"".join(ha_transfer.encode_frames(offset, memoryview(body), batch_size))
    found, position = b"", 0
    while position < len(stream):
        at, size = ha_transfer.decode_header(stream, position)
        assert at == offset + len(found) and 0 < size <= batch_size
        found += stream[position + 12:position + 12 + size]
        position += 12 + size
    assert found == body


@settings(deadline=None)
@given(st.lists(st.binary(max_size=5)), st.integers(0, 40))
def test_unsent_is_what_remains(buffers, sent):
    whole = b"".join(buffers)
    assert b"".join(ha_transfer.unsent(list(buffers), sent)) == whole[sent:]


def decode(stream: bytes, cuts, segment_size: int, capacity: int = 200) -> list[tuple[int, bytes]]:
    decoder, found = FrameDecoder(capacity), []
    while stream:
        space = decoder.writable(max(1, next(cuts)))
        count = min(len(space), len(stream))
        assert count, "no room although a frame fits"
        space[:count] = stream[:count]
        stream = stream[count:]
        decoder.received(count)
        found += [(run.offset, bytes(decoder.view[run.start:run.start + run.length]))
                  for run in decoder.runs(segment_size)]
    return found


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=20), st.data())
def test_runs_are_the_log_whatever_the_cut(bodies, data):
    stream, log = b"", b""
    for body in bodies:
        body = body[:64 - len(log) % 64]  # a frame never crosses a segment
        stream += ha_transfer.encode_header(len(log), len(body)) + body
        log += body
    cuts = iter(lambda: data.draw(st.integers(1, 300)), None)
    found = decode(stream, cuts, 64)
    at = 0
    for offset, body in found:
        assert offset == at
        assert len(body) <= 64 - offset % 64 or not body
        at += len(body)
    assert b"".join(body for _offset, body in found) == log


def test_contiguous_frames_of_one_read_are_one_run():
    stream = b"".join(ha_transfer.encode_frames(64, memoryview(b"abcdefgh"), 3))
    assert decode(stream, iter([100]), 1000) == [(64, b"abcdefgh")]


def test_a_run_ends_at_the_segment():
    stream = ha_transfer.encode_header(60, 4) + b"abcd" + ha_transfer.encode_header(64, 2) + b"ef"
    assert decode(stream, iter([100]), 64) == [(60, b"abcd"), (64, b"ef")]


def record_frame(offset=700, size=40, magic=MESSAGE_MAGIC_CODE):
    return ha_transfer.encode_header(offset, size) + struct.pack(">ii", size, magic) + bytes(size - 8)


@pytest.mark.parametrize("data", [
    record_frame()[:-1], record_frame()[:12], record_frame()[:7], record_frame() + b"x",
    record_frame() + record_frame(740), record_frame(offset=701), record_frame(magic=BLANK_MAGIC_CODE),
    record_frame(magic=0), record_frame(size=300), record_frame(size=8),
    ha_transfer.encode_header(700, 0), ha_transfer.encode_header(700, 80) + record_frame()[12:] * 2,
    ha_transfer.encode_header(700, 39) + record_frame()[12:51], b""], ids=lambda data: str(len(data)))
def test_only_a_frame_of_one_whole_record_is_taken(data):
    decoder = FrameDecoder()
    decoder.writable(len(data))[:] = data
    decoder.received(len(data))
    assert decoder.take_record(700, 300) == 0
    assert len(decoder.writable(READ_MAX_BUFFER_SIZE)) == READ_MAX_BUFFER_SIZE - len(data)
    frame = record_frame(size=299)
    decoder = FrameDecoder()
    for _ in range(2):
        decoder.writable(len(frame))[:] = frame
        decoder.received(len(frame))
        assert decoder.take_record(700, 300) == 299
        assert bytes(decoder.view[ha_transfer.HEADER.size:len(frame)]) == frame[ha_transfer.HEADER.size:]


def test_frames_with_a_gap_are_two_runs():
    stream = ha_transfer.encode_header(0, 2) + b"ab" + ha_transfer.encode_header(5, 2) + b"cd"
    assert decode(stream, iter([100]), 64) == [(0, b"ab"), (5, b"cd")]


def test_heartbeat_is_an_empty_run():
    decoder = FrameDecoder(100)
    decoder.writable(12)[:] = ha_transfer.encode_header(77, 0)
    decoder.received(12)
    assert list(decoder.runs(64)) == [Run(77, 12, 0)]


@pytest.mark.parametrize("size", [-1, -13, 2**31 - 1, 4 * 1024 * 1024, ha_transfer.MAX_BODY_SIZE + 1, -2**31])
def test_impossible_frame_size_is_an_error(size):
    decoder = FrameDecoder()
    decoder.writable(12)[:] = ha_transfer.encode_header(0, size)
    decoder.received(12)
    with pytest.raises(TransferError, match=str(size)):
        list(decoder.runs(64))


def test_the_largest_frame_fits():
    decoder = FrameDecoder()
    decoder.writable(12)[:] = ha_transfer.encode_header(0, ha_transfer.MAX_BODY_SIZE)
    decoder.received(12)
    assert list(decoder.runs(1 << 30)) == []
    while len(decoder.writable(1 << 20)):
        decoder.received(len(decoder.writable(1 << 20)))
    assert [run.length for run in decoder.runs(1 << 30)] == [ha_transfer.MAX_BODY_SIZE]
    assert len(decoder.writable(1 << 30)) == ha_transfer.READ_MAX_BUFFER_SIZE


@settings(deadline=None)
@given(st.binary(max_size=400), st.data())
def test_any_bytes_give_runs_or_an_error(stream, data):
    try:
        decode(stream, iter(lambda: data.draw(st.integers(1, 300)), None), 64)
    except TransferError as error:
        assert "impossible size" in str(error)
