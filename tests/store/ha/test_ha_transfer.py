"""The byte stream between master and slave: frames, chains of records, splits, and the search for the first file."""
import itertools
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE
from rmqha.store.ha import ha_transfer
from rmqha.store.ha.first_file_search import FirstFileSearch, Found
from rmqha.store.ha.ha_transfer import (
    READ_MAX_BUFFER_SIZE,
    FrameDecoder,
    RecordChain,
    RecordChainError,
    ReportDecoder,
    Run,
    TransferError,
    follow_records,
)
from rmqha.store.ha.peers import send_whole
from tests.store.ha.support import record

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_report_is_8_bytes_big_endian():
    assert ha_transfer.encode_report(0x0102030405060708) == bytes(range(1, 9))


def test_header_is_offset_then_size():
    data = ha_transfer.encode_header(0x0102030405060708, 0x090A0B0C)
    assert data == bytes(range(1, 13))
    assert ha_transfer.decode_header(b"--" + data, 2) == (0x0102030405060708, 0x090A0B0C)


@settings(deadline=None)
@given(st.lists(INT64), st.data())
def test_reports_are_read_however_they_are_split(offsets, data):
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
def test_unsent_returns_the_remaining_bytes(buffers, sent):
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
def test_runs_equal_the_log_however_it_is_split(bodies, data):
    stream, log = b"", b""
    for body in bodies:
        # A frame never crosses a segment.
        body = body[:64 - len(log) % 64]
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
def test_take_record_accepts_only_a_frame_of_one_whole_record(data):
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


def test_take_record_refuses_a_record_larger_than_the_foreseen_ones():
    """Its first bytes lie before the headers, the rest after them: only `runs` joins them."""
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


# Bodies side by side: the bytes of a stream are stored at the positions that `places` returns.

FRAME, FILE = 16, 16 * 20


@pytest.fixture
def foreseen_small(monkeypatch):
    monkeypatch.setattr(ha_transfer, "_MIN_FORESEEN", 8)


def fill(buffers: list[memoryview], stream: bytes) -> int:
    """Fill the buffers as a socket does; return the number of bytes."""
    at = 0
    for buffer in buffers:
        part = stream[at:at + len(buffer)]
        buffer[:len(part)] = part
        at += len(part)
    return at


def decode_at_places(decoder, stream: bytes, cuts, segment_size: int = FILE) -> tuple[list, str, int]:
    """Return the runs with their bytes, the error that ended the stream, and the number of reads into places."""
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
    """Return each byte with its offset."""
    return [(offset + at, byte) for offset, body in pieces for at, byte in enumerate(body)]


def frames_of(stream: bytes, capacity: int) -> tuple[list[tuple[int, bytes]], bool]:
    """Return offset and body of each whole frame, and whether an impossible one follows."""
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
def test_bodies_side_by_side_equal_the_log_for_all_sizes_and_splits(foreseen_small, sizes, cuts):
    stream = stream_of(sizes)
    found, error, _foreseen = decode_at_places(FrameDecoder(2000), stream, itertools.cycle(cuts))
    assert not error
    assert placed((run.offset, body) for run, body in found) == placed(frames_of(stream, 2000)[0])
    assert all(len(body) <= FILE - run.offset % FILE for run, body in found)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STREAM_SIZES, CUTS, st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 7)), min_size=1, max_size=3))
def test_damaged_stream_is_read_as_without_places(foreseen_small, sizes, cuts, flips):
    stream = bytearray(stream_of(sizes))
    for at, bit in flips if stream else ():
        stream[at % len(stream)] ^= 1 << bit
    found, error, _foreseen = decode_at_places(FrameDecoder(2000), bytes(stream), itertools.cycle(cuts))
    expected, is_impossible = frames_of(bytes(stream), 2000)
    got, expected = placed((run.offset, body) for run, body in found), placed(expected)
    assert bool(error) is is_impossible
    assert got == (expected[:len(got)] if error else expected)


def test_frames_of_one_size_become_one_run_in_place(foreseen_small):
    stream = b"".join(ha_transfer.encode_frames(0, bytes(range(160)), FRAME))
    found, error, foreseen = decode_at_places(FrameDecoder(2000), stream, itertools.cycle([40, 200, 200]))
    assert [run for run, _body in found] == [Run(0, 12, 16), Run(16, 12, 112), Run(128, 12, 32)]
    assert not error and foreseen == 2


@pytest.mark.parametrize("last, pending, limit", [(FRAME, 0, 55), (FRAME, 17, 2000), (7, 0, 2000), (160, 0, 2000)])
def test_nothing_is_foreseen_for_few_or_small_frames_or_at_the_end_of_a_file(foreseen_small, last, pending, limit):
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


SEGMENT = 1000


def log_of(sizes: list[int]) -> bytes:
    data = b""
    for size in sizes:
        room = SEGMENT - len(data) % SEGMENT
        if size + 8 > room:
            data += struct.pack(">ii", room, BLANK_MAGIC_CODE).ljust(room, b"\0")
        data += record(size)
    return data


def follow_all(data: bytes, cuts: list[int], base: int = 0) -> RecordChain:
    chain, at = RecordChain(base), 0
    for cut in [*cuts, len(data)]:
        cut = min(max(cut, at), len(data))
        chain = follow_records(chain, base + at, memoryview(b"##" + data), at + 2, cut - at, SEGMENT)
        at = cut
    return chain


@settings(deadline=None)
@given(st.lists(st.integers(9, 400), max_size=20), st.lists(st.integers(0, 5000)).map(sorted))
def test_whole_records_end_at_the_logs_end_for_all_splits(sizes, cuts):
    data = log_of(sizes)
    assert follow_all(data, cuts, 7 * SEGMENT) == RecordChain(7 * SEGMENT + len(data))


@settings(deadline=None)
@given(st.lists(st.integers(9, 400), min_size=1, max_size=20), st.lists(st.integers(0, 5000)).map(sorted), st.data())
def test_a_wrong_magic_is_found_and_named(sizes, cuts, data):
    log = log_of(sizes)
    starts, at = [], 0
    while at < len(log):
        starts.append(at)
        at += struct.unpack_from(">i", log, at)[0]
    flaw = data.draw(st.sampled_from(starts))
    log = log[:flaw + 5] + bytes([log[flaw + 5] ^ 0x10]) + log[flaw + 6:]
    with pytest.raises(RecordChainError, match=f"no valid record at commit log offset {flaw}"):
        follow_all(log, cuts)


@pytest.mark.parametrize("size", [0, 8, -1, 2**31 - 1, SEGMENT + 1])
def test_an_absurd_size_is_found(size):
    with pytest.raises(RecordChainError, match=f"size {size}"):
        follow_all(struct.pack(">ii", size, -626843481) + b"x" * 50, [])


def test_a_blank_that_ends_before_its_segment_is_found():
    with pytest.raises(RecordChainError):
        follow_all(record(100) + struct.pack(">ii", 100, BLANK_MAGIC_CODE), [])


@settings(deadline=None)
@given(st.binary(max_size=100), st.lists(st.integers(0, 100)).map(sorted))
def test_any_bytes_give_a_chain_or_an_error(data, cuts):
    try:
        chain = follow_all(data, cuts)
    except RecordChainError as error:
        assert "no valid record" in str(error)
    else:
        assert chain.next_record + len(chain.head) >= len(data)


HOST = layout.host_to_bytes(("10.0.0.1", 10911))
BIG_SEGMENT = 1 << 16


def real_log(bodies: list[int]) -> bytearray:
    """Make records as the broker writes them, in files of BIG_SEGMENT bytes."""
    data = bytearray()
    for size in bodies:
        length = layout.cal_msg_length(0, size, 1, 4)
        room = BIG_SEGMENT - len(data) % BIG_SEGMENT
        if length + layout.END_FILE_MIN_BLANK_LENGTH > room:
            data += layout.encode_blank(room)
        data += layout.encode_record(7, 0, 0, 0, len(data), 0, 1, HOST, 1, HOST, 0, 0, b"b" * size,
                                     layout.encode_topic("T"), b"a\x01b\x02")
    return data


def outcome(data: bytes, cuts: list[int], bulk_bytes: int) -> RecordChain | str:
    chain, at = RecordChain(0), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ha_transfer, "_BULK_BYTES", bulk_bytes)
        for cut in [*cuts, len(data)]:
            cut = min(cut, at - at % BIG_SEGMENT + BIG_SEGMENT, len(data))
            if cut > at:
                try:
                    chain = follow_records(chain, at, memoryview(data), at, cut - at, BIG_SEGMENT)
                except RecordChainError as error:
                    return str(error)
                at = cut
    return chain


@settings(deadline=None)
@given(st.lists(st.integers(0, 9000), min_size=1, max_size=30), st.lists(st.integers(0, 250_000)).map(sorted),
       st.none() | st.tuples(st.integers(0, 200_000), st.integers(1, 255)))
def test_bulk_and_plain_implementation_agree(bodies, cuts, flip):
    data = real_log(bodies)
    if flip is not None:
        data[flip[0] % len(data)] ^= flip[1]
    cuts = sorted([*cuts, *range(BIG_SEGMENT, len(data), BIG_SEGMENT)])
    assert outcome(data, cuts, 0) == outcome(data, cuts, 1 << 60)


# Small pieces are sent completely, however little the socket accepts.


class Narrow:
    """A socket that accepts as many bytes as the list says; None means that it is full."""

    def __init__(self, *takes: int | None) -> None:
        self.takes = list(takes)
        self.sent = b""

    def send(self, data: bytes) -> int:
        count = self.takes.pop(0) if self.takes else len(data)
        if count is None:
            raise BlockingIOError
        self.sent += data[:count]
        return min(count, len(data))


@pytest.mark.parametrize("takes", [(), (1, 2), (3, None, 1, None), (None, None)])
def test_all_bytes_are_sent_in_order(takes):
    sock = Narrow(*takes)
    send_whole(sock, b"greeting")
    assert sock.sent == b"greeting"


def test_full_socket_is_tried_three_times():
    sock = Narrow(2, None, None, None)
    with pytest.raises(BlockingIOError):
        send_whole(sock, b"greeting")
    assert (sock.sent, sock.takes) == (b"gr", [])


def test_callback_decides_how_long_to_wait():
    sock, waits = Narrow(*[None] * 9), []
    send_whole(sock, b"greeting", lambda: waits.append(1) or True)
    assert (sock.sent, len(waits)) == (b"greeting", 9)
    with pytest.raises(BlockingIOError):
        send_whole(Narrow(None), b"greeting", lambda: False)


# The search for the first file of a master: masters of both kinds, with any files.

SEGMENT = 1000


class Master:
    """A master with the files `first` to `last`, which answers the first report of a connection."""

    def __init__(self, first: int, last: int, names_its_first: bool, last_size: int = 500) -> None:
        self.first, self.last, self.names_its_first = first, last, names_its_first
        self.end = last + last_size

    def answer(self, report: int) -> list[tuple[int, int]]:
        """Return (offset, size) of the frames that the master sends."""
        start = report or self.last
        if self.first <= start < self.end:
            return [(start, min(100, self.end - start))]
        if self.names_its_first and not self.first <= start <= self.end:
            return [(self.end if start > self.end else self.first, 0)]
        return [(start, 0)]


def search_out(master: Master, search: FirstFileSearch) -> tuple[int, int]:
    """Search to the end; return (first report of the connection that is followed, number of connections)."""
    for connections in range(1, 100):
        report = search.next_report()
        found = Found.WAIT
        for offset, size in master.answer(report):
            found = search.heard(offset, size)
        if found is Found.WAIT:
            found = search.nothing_came()
        if found is Found.FOLLOW:
            return report, connections
    raise AssertionError("the search does not end")


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.booleans())
def test_first_file_of_any_master_is_found(first, more, names_its_first):
    master = Master(first * SEGMENT, (first + more) * SEGMENT, names_its_first)
    report, connections = search_out(master, FirstFileSearch(SEGMENT))
    assert report == 0 and more == 0 or report == master.first + 1
    assert connections <= (4 if names_its_first else 4 + (first + more).bit_length())


def test_most_masters_take_two_connections():
    master = Master(0, 50 * SEGMENT, False)
    assert search_out(master, FirstFileSearch(SEGMENT)) == (1, 2)


@pytest.mark.parametrize("names_its_first", [False, True])
@pytest.mark.parametrize("first", [0, 7000])
def test_master_whose_last_file_is_empty_is_followed(first, names_its_first):
    """The master's log ends where the next file will begin."""
    master = Master(first, first, names_its_first, last_size=0)
    assert search_out(master, FirstFileSearch(SEGMENT))[0] == 0


def test_data_after_a_heartbeat_is_accepted():
    search = FirstFileSearch(SEGMENT)
    assert search.heard(5000, 10) is Found.AGAIN and search.next_report() == 1
    assert search.heard(1, 0) is Found.WAIT
    assert search.heard(1, 10) is Found.FOLLOW


def test_search_starts_over_when_files_are_deleted_meanwhile():
    master, search = Master(0, 20 * SEGMENT, False), FirstFileSearch(SEGMENT)
    assert search.heard(*master.answer(search.next_report())[0]) is Found.AGAIN
    master.first, master.last, master.end = 30 * SEGMENT, 40 * SEGMENT, 40 * SEGMENT + 1
    assert search_out(master, search)[0] == 30 * SEGMENT + 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 1 << 40), st.integers(0, 100), st.booleans()), max_size=50))
def test_search_can_continue_after_any_answers(answers):
    search = FirstFileSearch(SEGMENT)
    for offset, size, nothing in answers:
        if search.heard(offset, size) is Found.WAIT and nothing:
            search.nothing_came()
        assert search.next_report() >= 0
