import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import BLANK_MAGIC_CODE
from rmqha.store.ha import ha_transfer
from rmqha.store.ha.ha_transfer import RecordChain, RecordChainError, follow_records
from tests.store.ha.support import record

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
def test_whole_records_end_at_the_logs_end_whatever_the_cuts(sizes, cuts):
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
    with pytest.raises(RecordChainError, match=f"at commit log offset {flaw} is no record"):
        follow_all(log, cuts)


@pytest.mark.parametrize("size", [0, 8, -1, 2**31 - 1, SEGMENT + 1])
def test_an_absurd_size_is_found(size):
    with pytest.raises(RecordChainError, match=f"size {size}"):
        follow_all(struct.pack(">ii", size, -626843481) + b"x" * 50, [])


def test_a_blank_that_does_not_reach_the_segments_end_is_found():
    with pytest.raises(RecordChainError):
        follow_all(record(100) + struct.pack(">ii", 100, BLANK_MAGIC_CODE), [])


@settings(deadline=None)
@given(st.binary(max_size=100), st.lists(st.integers(0, 100)).map(sorted))
def test_any_bytes_give_a_chain_or_an_error(data, cuts):
    try:
        chain = follow_all(data, cuts)
    except RecordChainError as error:
        assert "is no record" in str(error)
    else:
        assert chain.next_record + len(chain.head) >= len(data)


HOST = layout.host_to_bytes(("10.0.0.1", 10911))
BIG_SEGMENT = 1 << 16


def real_log(bodies: list[int]) -> bytearray:
    """Records as the broker writes them, in files of BIG_SEGMENT bytes."""
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
def test_bulk_and_plain_way_say_the_same(bodies, cuts, flip):
    data = real_log(bodies)
    if flip is not None:
        data[flip[0] % len(data)] ^= flip[1]
    cuts = sorted([*cuts, *range(BIG_SEGMENT, len(data), BIG_SEGMENT)])
    assert outcome(data, cuts, 0) == outcome(data, cuts, 1 << 60)
