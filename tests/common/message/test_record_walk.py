"""Everybody who steps from record to record takes the same steps, and judges alike: held against readers that were
written for the test alone, in logs of records, blanks and bytes that are neither."""
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import HEAD, fits, is_blank, walk
from rmqha.store import record_check
from rmqha.store.ha.ha_transfer import RecordChain, RecordChainError, follow_records
from rmqha.store.ha.log_comparison import record_sizes, record_start
from tests.store.ha.support import FakeStore

MESSAGE, BLANK = struct.pack(">I", 0xDAA320A7), struct.pack(">I", 0xCBD43194)
SEGMENT = 512
HOST = layout.host_to_bytes(("10.0.0.1", 10911))


def good_record(body_length: int) -> bytes:
    body = b"b" * body_length
    return layout.encode_record(layout.body_crc32(body), 0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, body,
                                layout.encode_topic("T"), b"a\x01b\x02")


def head(size: int, magic: bytes, length: int) -> bytes:
    """A record or blank that says `size`, and takes `length` bytes."""
    return struct.pack(">i", size) + magic + bytes(max(length - 8, 0))


SIZES = st.integers(-1, 120) | st.sampled_from([SEGMENT, SEGMENT + 1, 2**31 - 1, -2**31])
PIECES = st.one_of(
    st.integers(0, 60).map(good_record),
    st.integers(9, 120).map(lambda size: head(size, MESSAGE, size)),
    st.builds(head, SIZES, st.sampled_from([MESSAGE, BLANK, bytes(4), b"\xda\xa3 \xa8"]), st.integers(8, 120)),
    st.binary(max_size=20), st.integers(0, 40).map(bytes), st.just("to the end"))


@st.composite
def logs(draw):
    """The bytes of one file, which may end anywhere."""
    data = b""
    for piece in draw(st.lists(PIECES, max_size=8)):
        data += head(SEGMENT - len(data), BLANK, SEGMENT - len(data)) if isinstance(piece, str) else piece
    return data[:draw(st.integers(0, SEGMENT) | st.just(SEGMENT))]


def number(data: bytes, position: int) -> int:
    return int.from_bytes(data[position:position + 4], "big", signed=True)


def size_there(data: bytes, position: int, room: int) -> int:
    """The size of the record or blank; 0 for none, or half a head."""
    size, magic = number(data, position), data[position + 4:position + 8]
    whole = len(data) - position >= 8
    return size if whole and (magic == MESSAGE and 8 < size <= room or magic == BLANK and size == room) else 0


def store_of(data: bytes) -> FakeStore:
    store = FakeStore(mappedFileSizeCommitLog=SEGMENT)
    store.segments[0] = bytearray(data)
    return store


@settings(deadline=None)
@given(logs(), st.integers(0, SEGMENT))
def test_torn_records_looks_at_records_up_to_what_is_none(data, end):
    expected, at = [], 0
    while at < end and len(data) - at >= 8 and number(data, at) > 0 and data[at + 4:at + 8] == MESSAGE:
        expected.append((at, number(data, at)))
        at += number(data, at)
    assert list(record_check.records(memoryview(data), 0, end)) == expected


@settings(deadline=None)
@given(logs(), st.integers(1, SEGMENT - 1))
def test_comparison_finds_where_a_record_starts(data, offset):
    limit, at, expected = min(offset, len(data)), 0, None
    while at < limit and expected is None:
        size = size_there(data, at, SEGMENT - at)
        if not size:
            expected = -1
        elif at + size > limit:
            expected = at
        at += size
    expected = at if expected is None else expected
    assert record_start(store_of(data), offset) == (expected if data else -1)


@settings(deadline=None)
@given(logs().filter(len), st.data())
def test_comparison_takes_what_is_no_record_as_one_piece(data, choose):
    first = choose.draw(st.integers(0, len(data) - 1))
    end = choose.draw(st.integers(first, len(data)))
    expected, at = [], first
    while at < end:
        size = size_there(data, at, SEGMENT - at) or len(data) - at
        expected.append(min(size, len(data) - at))
        at += expected[-1]
    assert list(record_sizes(store_of(data), first, end)) == expected


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, SEGMENT)).map(sorted))
@example(head(SEGMENT, BLANK, SEGMENT), [3])
def test_slave_follows_the_chain_up_to_the_first_flaw(data, cuts):
    at = 0
    while len(data) - at >= 8 and size_there(data, at, SEGMENT - at):
        at += number(data, at)
    flaw = at if len(data) - at >= 8 else -1
    chain, begin, found = RecordChain(0), 0, -1
    try:
        for cut in [min(cut, len(data)) for cut in cuts] + [len(data)]:
            chain = follow_records(chain, begin, memoryview(data), begin, cut - begin, SEGMENT)
            begin = cut
    except RecordChainError as error:
        found = int(str(error).split()[4])
    assert found == flaw
    if flaw < 0:
        assert chain == RecordChain(at, data[at:])


@settings(deadline=None)
@given(logs(), st.integers(0, 100), st.integers(0, SEGMENT))
@example(head(20, MESSAGE, 8), 0, 8)
@example(head(20, MESSAGE, 8)[:7], 0, 8)
def test_walk_tells_heads_and_checks_nothing(data, position, end):
    expected, at = [], position
    while at < end and len(data) - at >= 8:
        expected.append((at, number(data, at), number(data, at + 4)))
        if number(data, at) <= 0:
            break
        at += number(data, at)
    assert list(walk(data, position, end)) == expected


@pytest.mark.parametrize("size, magic, room, does", [
    (9, MESSAGE, 9, True), (8, MESSAGE, 9, False), (10, MESSAGE, 9, False), (-9, MESSAGE, 9, False),
    (8, BLANK, 8, True), (9, BLANK, 10, False), (11, BLANK, 10, False), (9, bytes(4), 9, False)])
def test_what_fits(size, magic, room, does):
    assert fits(size, number(magic, 0), room) is does


def test_blank_is_told_by_its_magic_code_alone():
    assert is_blank(head(-5, BLANK, 8)) and not is_blank(head(8, MESSAGE, 8))
    assert not is_blank(head(8, BLANK, 8)[:7]) and HEAD.size == 8
