import itertools
import struct

import pytest
from hypothesis import HealthCheck, given, settings
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


def test_a_lone_record_larger_than_the_foreseen_ones_is_not_taken_from_the_places():
    """Its first bytes lie in front of the heads, the rest after them: only `runs` puts them together."""
    decoder, first = FrameDecoder(), bytes(at * 7 & 255 for at in range(5000))
    frame = ha_transfer.encode_header(0, 5000) + first
    decoder.writable(1 << 20)[:len(frame)] = frame
    decoder.received(len(frame))
    assert [run.length for run in decoder.runs(1 << 30)] == [5000]
    record = struct.pack(">ii", 6000, MESSAGE_MAGIC_CODE) + bytes(at * 11 & 255 for at in range(5992))
    decoder.received(fill(decoder.places(1 << 20, 1 << 30), ha_transfer.encode_header(5000, 6000) + record))
    assert decoder.take_record(5000, 1 << 20) == 0
    runs = [(run.offset, bytes(decoder.view[run.start:run.start + run.length])) for run in decoder.runs(1 << 30)]
    assert runs == [(5000, record)]


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


# Bodies side by side: the bytes of a stream are put where `places` says.

FRAME, FILE = 16, 16 * 20


@pytest.fixture
def foreseen_small(monkeypatch):
    monkeypatch.setattr(ha_transfer, "_MIN_FORESEEN", 8)


def fill(buffers: list[memoryview], stream: bytes) -> int:
    """As a socket does; how many bytes."""
    at = 0
    for buffer in buffers:
        part = stream[at:at + len(buffer)]
        buffer[:len(part)] = part
        at += len(part)
    return at


def decode_at_places(decoder, stream: bytes, cuts, segment_size: int = FILE) -> tuple[list, str, int]:
    """Runs with their bytes, the error that ended it, and how many reads went to places."""
    found, foreseen = [], 0
    try:
        while stream:
            cut = max(1, next(cuts))
            places = decoder.places(cut, segment_size)
            foreseen += bool(places)
            count = fill(places or [decoder.writable(cut)], stream[:cut])
            stream = stream[count:]
            decoder.received(count)
            found += [(run, bytes(decoder.view[run.start:run.start + run.length]))
                      for run in decoder.runs(segment_size)]
    except TransferError as error:
        return found, str(error), foreseen
    return found, "", foreseen


def placed(pieces) -> list[tuple[int, int]]:
    """Each byte with its offset."""
    return [(offset + at, byte) for offset, body in pieces for at, byte in enumerate(body)]


def frames_of(stream: bytes, capacity: int) -> tuple[list[tuple[int, bytes]], bool]:
    """Offset and body of each whole frame, and whether an impossible one follows."""
    found, at = [], 0
    while at + 12 <= len(stream):
        offset, size = ha_transfer.decode_header(stream, at)
        if not 0 <= size <= capacity - 12:
            return found, True
        if at + 12 + size > len(stream):
            break
        found.append((offset, stream[at + 12:at + 12 + size]))
        at += 12 + size
    return found, False


STREAM_SIZES = st.lists(st.one_of(*[st.just(FRAME)] * 5, st.integers(0, 2 * FRAME)), max_size=80)
CUTS = st.lists(st.integers(1, 500), min_size=1, max_size=10)


def stream_of(sizes: list[int]) -> bytes:
    stream, end = b"", 0
    for wanted in sizes:
        size = min(wanted, FILE - end % FILE)
        stream += ha_transfer.encode_header(end, size) + bytes(at & 255 for at in range(end, end + size))
        end += size
    return stream


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STREAM_SIZES, CUTS)
def test_bodies_side_by_side_are_the_log_whatever_the_sizes_and_cuts(foreseen_small, sizes, cuts):
    stream = stream_of(sizes)
    found, error, _foreseen = decode_at_places(FrameDecoder(2000), stream, itertools.cycle(cuts))
    assert not error
    assert placed((run.offset, body) for run, body in found) == placed(frames_of(stream, 2000)[0])
    assert all(len(body) <= FILE - run.offset % FILE for run, body in found)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STREAM_SIZES, CUTS, st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 7)), min_size=1, max_size=3))
def test_whatever_is_wrong_in_the_stream_is_read_as_without_places(foreseen_small, sizes, cuts, flips):
    stream = bytearray(stream_of(sizes))
    for at, bit in flips if stream else ():
        stream[at % len(stream)] ^= 1 << bit
    found, error, _foreseen = decode_at_places(FrameDecoder(2000), bytes(stream), itertools.cycle(cuts))
    expected, is_impossible = frames_of(bytes(stream), 2000)
    got, expected = placed((run.offset, body) for run, body in found), placed(expected)
    assert bool(error) is is_impossible
    assert got == (expected[:len(got)] if error else expected)


def test_frames_of_one_size_are_one_run_where_they_are(foreseen_small):
    stream = b"".join(ha_transfer.encode_frames(0, bytes(range(160)), FRAME))
    found, error, foreseen = decode_at_places(FrameDecoder(2000), stream, itertools.cycle([40, 200, 200]))
    assert [run for run, _body in found] == [Run(0, 12, 16), Run(16, 12, 112), Run(128, 12, 32)]
    assert not error and foreseen == 2


@pytest.mark.parametrize("last, pending, limit", [(FRAME, 0, 55), (FRAME, 17, 2000), (7, 0, 2000), (160, 0, 2000)])
def test_nothing_is_foreseen_of_few_small_or_other_frames_or_at_a_files_end(foreseen_small, last, pending, limit):
    decoder, stream = FrameDecoder(2000), ha_transfer.encode_header(0, last) + bytes(last)
    stream += (ha_transfer.encode_header(last, pending) + b"x") if pending else b""
    decoder.received(fill([decoder.writable(500)], stream))
    assert [run.length for run in decoder.runs(FILE)] == [last]
    assert decoder.places(limit, FILE) == []
    assert bool(decoder.places(2000, FILE)) is (limit < 2000)


def test_a_gap_among_frames_of_one_size_ends_the_run(foreseen_small):
    bodies = [(at * FRAME + (at >= 5) * 1000, bytes([at]) * FRAME) for at in range(8)]
    stream = b"".join(ha_transfer.encode_header(offset, FRAME) + body for offset, body in bodies)
    found, error, foreseen = decode_at_places(FrameDecoder(2000), stream, itertools.cycle([40, 500]), 1 << 20)
    assert [(run.offset, body) for run, body in found] == [
        (0, bodies[0][1]), (16, b"".join(body for _, body in bodies[1:5])),
        (1080, b"".join(body for _, body in bodies[5:]))]
    assert not error and foreseen == 1
