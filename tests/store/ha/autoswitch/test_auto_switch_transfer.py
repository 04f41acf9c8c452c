"""The frames between replicas whose roles change."""
import itertools
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.store.ha import ha_transfer
from rmqha.store.ha.autoswitch import auto_switch_transfer as transfer
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.ha_transfer import TransferError

SEGMENT = 1 << 16
LONGS = st.integers(0, (1 << 63) - 1)


def decoder(data: bytes, capacity: int = 1 << 16) -> transfer.MasterFrameDecoder:
    """A decoder that has received `data`."""
    made = transfer.MasterFrameDecoder(capacity)
    made.writable(len(data))[:] = data
    made.received(len(data))
    return made


def runs_of(made: transfer.MasterFrameDecoder) -> list[tuple]:
    """Each run with its bytes."""
    return [(run.offset, run.epoch, run.epoch_start_offset, run.confirm_offset,
             bytes(made.view[run.start:run.start + run.length])) for run in made.runs(SEGMENT)]


def frame(offset: int, body: bytes, epoch: int, start: int, confirm: int = 0) -> bytes:
    """A transfer frame."""
    return transfer.encode_header(offset, len(body), EpochEntry(epoch, start), confirm) + body


def test_slave_frames_have_5_1_4s_layout():
    handshake = transfer.encode_slave_handshake(transfer.SlaveHandshake(True, False, 7))
    assert handshake == bytes.fromhex("00000001 0001 0000 0000000000000007")
    assert transfer.encode_report(0x1234) == bytes.fromhex("00000002 0000000000001234")


def test_master_frames_have_5_1_4s_layout():
    entries = [EpochEntry(1, 0), EpochEntry(3, 0x200)]
    assert transfer.encode_master_handshake(0x300, entries) == bytes.fromhex(
        "00000001 00000018 0000000000000300 00000003  00000001 0000000000000000  00000003 0000000000000200")
    assert transfer.encode_master_handshake(0, []) == bytes.fromhex("00000001 00000000 0000000000000000 ffffffff")
    assert frame(0x210, b"ab", 3, 0x200, 0x1FF) == bytes.fromhex(
        "00000002 00000002 0000000000000210 00000003 0000000000000200 00000000000001ff") + b"ab"


@settings(deadline=None)
@given(st.lists(st.one_of(LONGS, st.builds(transfer.SlaveHandshake, st.booleans(), st.booleans(), LONGS))),
       st.lists(st.integers(1, 40)))
def test_what_a_slave_sends_is_read_however_it_is_cut(sent, cuts):
    data = b"".join(transfer.encode_report(one) if isinstance(one, int) and not isinstance(one, tuple)
                    else transfer.encode_slave_handshake(one) for one in sent)
    reader, found = transfer.SlaveFrameDecoder(), []
    for cut in [*cuts, len(data)]:
        found += reader.feed(data[:cut])
        data = data[cut:]
    assert found == sent


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_a_slaves_bytes_are_frames_or_an_error(data):
    try:
        found = transfer.SlaveFrameDecoder().feed(data)
    except TransferError as error:
        assert "state" in str(error)
        return
    again = b"".join(transfer.encode_report(one) if not isinstance(one, tuple)
                     else struct.pack(">i", 1) + b"\0" * 12 for one in found)
    assert len(data) - 16 < len(again) <= len(data)


def test_contiguous_frames_of_one_epoch_and_file_are_one_run():
    data = (frame(0, b"aa", 1, 0, 1) + frame(2, b"bbb", 1, 0, 2) + frame(5, b"", 1, 0, 3) + frame(5, b"c", 2, 5, 4)
            + frame(6, b"d", 2, 5, 5))
    assert runs_of(decoder(data)) == [(0, 1, 0, 2, b"aabbb"), (5, 1, 0, 3, b""), (5, 2, 5, 5, b"cd")]


def test_a_run_ends_where_a_file_begins():
    data = frame(SEGMENT - 1, b"a", 1, 0) + frame(SEGMENT, b"b", 1, 0)
    assert [run[0] for run in runs_of(decoder(data))] == [SEGMENT - 1, SEGMENT]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.lists(st.integers(1, 70), max_size=40))
def test_log_bytes_are_read_however_the_frames_are_cut(bodies, cuts):
    data, offset = b"", 0
    for body in bodies:
        data += frame(offset, body, 1, 0)
        offset += len(body)
    made, got = transfer.MasterFrameDecoder(400), b""
    for cut in [*cuts, *[50] * (len(data) // 50 + 1)]:
        piece, data = data[:cut], data[cut:]
        made.writable(len(piece))[:len(piece)] = piece
        made.received(len(piece))
        for run in made.runs(SEGMENT):
            assert run.offset == len(got)
            got += bytes(made.view[run.start:run.start + run.length])
    assert got == b"".join(bodies)


@pytest.mark.parametrize("data, complaint", [
    (transfer.encode_master_handshake(0, []), "state 1"),
    (struct.pack(">iiqiqq", 4, 0, 0, 1, 0, 0), "state 4"),
    (struct.pack(">iiqiqq", 2, -1, 0, 1, 0, 0), "impossible size: -1"),
    (struct.pack(">iiqiqq", 2, (1 << 31) - 1, 0, 1, 0, 0), "impossible size"),
    (struct.pack(">iiqiqq", 2, (1 << 16) - 35, 0, 1, 0, 0), "impossible size"),
    (frame(-5, b"", 1, 0), "can't be of epoch 1"),
    (frame(-1, b"x", 1, 0), "can't be of epoch 1"),
    (frame(5, b"", 1, -1), "can't be of epoch 1"),
    (frame(5, b"1234", 1, 7), "can't be of epoch 1 from 7 on"),
    (frame(0, b"", -1, 0), "epoch -1 at 0 follows"),
    (frame(9, b"", 2, 5) + frame(9, b"", 1, 0), "epoch 1 at 0 follows epoch 2 at 5"),
    (frame(9, b"", 2, 5) + frame(9, b"", 2, 6), "epoch 2 at 6 follows epoch 2 at 5"),
    (frame(9, b"", 2, 5) + frame(9, b"", 3, 4), "epoch 3 at 4 follows epoch 2 at 5"),
])
def test_frames_that_can_not_be_are_an_error(data, complaint):
    with pytest.raises(TransferError, match=complaint):
        list(decoder(data).runs(SEGMENT))


def test_the_last_frame_of_an_epoch_may_name_the_next_one():
    assert runs_of(decoder(frame(3, b"ab", 2, 5) + frame(5, b"c", 2, 5))) == [(3, 2, 5, 0, b"abc")]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.one_of(*[st.just(16)] * 4, st.integers(0, 40)), st.sampled_from([0, 0, 0, 0, 1])),
                max_size=60), st.lists(st.integers(1, 600), min_size=1, max_size=10))
def test_bodies_side_by_side_are_read_as_others(monkeypatch, frames, cuts):
    monkeypatch.setattr(ha_transfer, "_MIN_FORESEEN", 8)
    stream, offset, epoch, start, expected = b"", 0, 1, 0, []
    for number, (size, step) in enumerate(frames):
        if step:
            epoch, start = epoch + 1, offset
        stream += frame(offset, bytes([number]) * size, epoch, start, number)
        expected += [(offset + at, epoch, start, number) for at in range(size)]
        offset += size
    made, got, confirmed = transfer.MasterFrameDecoder(4000), [], -1
    for cut in itertools.cycle(cuts):
        if not stream:
            break
        for place in made.places(cut, SEGMENT) or [made.writable(cut)]:
            part, stream = stream[:len(place)], stream[len(place):]
            place[:len(part)] = part
            made.received(len(part))
        for run in made.runs(SEGMENT):
            got += [(run.offset + at, run.epoch, run.epoch_start_offset, made.view[run.start + at])
                    for at in range(run.length)]
            confirmed = run.confirm_offset
    assert got == expected and confirmed == len(frames) - 1


def test_an_epoch_ends_among_bodies_side_by_side(monkeypatch):
    monkeypatch.setattr(ha_transfer, "_MIN_FORESEEN", 8)
    made = decoder(frame(0, b"a" * 16, 1, 0, 0))
    assert len(runs_of(made)) == 1
    places = made.places(1000, SEGMENT)
    for number in range(1, 5):
        epoch, start = (1, 0) if number < 3 else (2, 48)
        data = frame(number * 16, b"%d" % number * 16, epoch, start, number)
        made.received(len(data))
        while data:
            place, *places = places
            place[:], data = data[:len(place)], data[len(place):]
    assert runs_of(made) == [(16, 1, 0, 2, b"1" * 16 + b"2" * 16), (48, 2, 48, 4, b"3" * 16 + b"4" * 16)]


def test_a_handshake_is_read_once_it_is_whole():
    data = transfer.encode_master_handshake(900, [EpochEntry(1, 0), EpochEntry(2, 500), EpochEntry(3, 500)])
    for size in range(len(data)):
        known = len(data) if size >= 20 else 20
        assert transfer.decode_master_handshake(data[:size]) == (None, known)
    handshake = (900, 3, [EpochEntry(1, 0), EpochEntry(2, 500), EpochEntry(3, 500)])
    assert transfer.decode_master_handshake(data + b"more") == (handshake, len(data))


@pytest.mark.parametrize("data, complaint", [
    (frame(0, b"", 1, 0), "state 2"),
    (struct.pack(">iiqi", 1, -12, 0, -1), "-12 bytes of epochs"),
    (struct.pack(">iiqi", 1, 13, 0, -1), "13 bytes of epochs"),
    (struct.pack(">iiqi", 1, 1 << 30, 0, -1), "bytes of epochs"),
    (struct.pack(">iiqi", 1, 0, -1, -1), "ends at -1"),
    (struct.pack(">iiqi", 1, 0, 0, 4), "last epoch is 4"),
    (struct.pack(">iiqiiqiq", 1, 24, 0, 1, 2, 0, 1, 5), "do not rise: 1 at 5 follows 2 at 0"),
    (struct.pack(">iiqiiqiq", 1, 24, 0, 2, 1, 5, 2, 0), "do not rise: 2 at 0 follows 1 at 5"),
    (struct.pack(">iiqiiq", 1, 12, 0, 1, 1, -4), "do not rise"),
])
def test_handshakes_that_can_not_be_are_an_error(data, complaint):
    with pytest.raises(TransferError, match=complaint):
        transfer.decode_master_handshake(data)


@settings(deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_of_a_master_are_frames_or_an_error(data, handshake):
    made = decoder(data, 512)
    try:
        if handshake:
            transfer.decode_master_handshake(data)
        for run in made.runs(SEGMENT):
            assert 0 <= run.length <= 512 and run.start + run.length <= 512
    except TransferError as error:
        assert str(error)


def test_a_master_names_its_newest_epochs_when_it_has_more_than_a_slave_takes():
    entries = [EpochEntry(epoch, epoch * 10) for epoch in range(1500)]
    handshake = transfer.decode_master_handshake(transfer.encode_master_handshake(20_000, entries))[0]
    assert handshake.entries == entries[500:]
