"""Replicas whose roles change: their handshake, frames, epochs and identities."""
import itertools
import os
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common import config_manager
from rmqha.common.config_manager import CheckpointFileError
from rmqha.store.ha import ha_transfer
from rmqha.store.ha.autoswitch import auto_switch_transfer as transfer
from rmqha.store.ha.autoswitch.auto_switch_transfer import (
    EpochsDifferError,
    EpochStep,
    MasterEpochGreeting,
    MasterHandshake,
    Refusal,
    SlaveEpochGreeting,
    SlaveHandshake,
    consistent_point,
)
from rmqha.store.ha.autoswitch.epoch_file_cache import (
    FIRST_MASTER_ID,
    LONG_MAX,
    BrokerMetadata,
    BrokerMetadataError,
    EpochEntry,
    EpochError,
    EpochFileCache,
    load_or_make,
)
from rmqha.store.ha.ha_transfer import TransferError
from tests.store.ha.support import CUTS, pieces

# The frames between replicas whose roles change.

SEGMENT = 1 << 16
LONGS = st.integers(0, (1 << 63) - 1)


def decoder(data: bytes, capacity: int = 1 << 16) -> transfer.MasterFrameDecoder:
    """Make a decoder that has received `data`."""
    made = transfer.MasterFrameDecoder(capacity)
    made.writable(len(data))[:] = data
    made.received(len(data))
    return made


def runs_of(made: transfer.MasterFrameDecoder) -> list[tuple]:
    """Return each run with its bytes."""
    return [(run.offset, run.epoch, run.epoch_start_offset, run.confirm_offset,
             bytes(made.view[run.start:run.start + run.length])) for run in made.runs(SEGMENT)]


def frame(offset: int, body: bytes, epoch: int, start: int, confirm: int = 0) -> bytes:
    """Make a transfer frame."""
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
def test_slave_frames_are_read_however_they_are_split(sent, cuts):
    data = b"".join(transfer.encode_report(one) if isinstance(one, int) and not isinstance(one, tuple)
                    else transfer.encode_slave_handshake(one) for one in sent)
    reader, found = transfer.SlaveFrameDecoder(), []
    for cut in [*cuts, len(data)]:
        found += reader.feed(data[:cut])
        data = data[cut:]
    assert found == sent


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_of_a_slave_are_frames_or_an_error(data):
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
def test_log_bytes_are_read_however_the_frames_are_split(bodies, cuts):
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
def test_impossible_frames_are_an_error(data, complaint):
    with pytest.raises(TransferError, match=complaint):
        list(decoder(data).runs(SEGMENT))


def test_the_frame_after_the_end_of_an_epoch_may_still_name_it():
    assert runs_of(decoder(frame(3, b"ab", 2, 5) + frame(5, b"c", 2, 5))) == [(3, 2, 5, 0, b"abc")]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.one_of(*[st.just(16)] * 4, st.integers(0, 40)), st.sampled_from([0, 0, 0, 0, 1])),
                max_size=60), st.lists(st.integers(1, 600), min_size=1, max_size=10))
def test_bodies_placed_side_by_side_are_read_like_any_others(monkeypatch, frames, cuts):
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


def test_an_epoch_may_end_among_bodies_placed_side_by_side(monkeypatch):
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


def test_a_handshake_is_read_once_it_is_complete():
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
    (struct.pack(">iiqi", 1, 0, -1, -1), "log end -1"),
    (struct.pack(">iiqi", 1, 0, 0, 4), "last epoch is 4"),
    (struct.pack(">iiqiiqiq", 1, 24, 0, 1, 2, 0, 1, 5), "not in ascending order: 1 at 5 follows 2 at 0"),
    (struct.pack(">iiqiiqiq", 1, 24, 0, 2, 1, 5, 2, 0), "not in ascending order: 2 at 0 follows 1 at 5"),
    (struct.pack(">iiqiiq", 1, 12, 0, 1, 1, -4), "not in ascending order"),
])
def test_impossible_handshakes_are_an_error(data, complaint):
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


def test_a_master_with_too_many_epochs_sends_only_the_newest():
    entries = [EpochEntry(epoch, epoch * 10) for epoch in range(1500)]
    handshake = transfer.decode_master_handshake(transfer.encode_master_handshake(20_000, entries))[0]
    assert handshake.entries == entries[500:]


# The master's handling of a slave's bytes, and a slave's handling of its master's epochs.

END = 700, (EpochEntry(1, 0), EpochEntry(3, 500))
SLAVE = SlaveHandshake(False, True, 2)
HELLO, REPORT = transfer.encode_slave_handshake(SLAVE), transfer.encode_report(400)


def heard(data: list[bytes], is_master: bool = True) -> tuple[list[EpochStep], str, bool, bytes]:
    """Feed the pieces; return (steps, the error at the end, whether the greeting is over, the unread bytes)."""
    greeting, steps, error = MasterEpochGreeting(1, lambda: is_master, lambda: END), [], ""
    try:
        for piece in data:
            if greeting.is_over:
                greeting.rest += piece
            else:
                steps += greeting.receive(piece)
    except TransferError as what:
        error = str(what)
    return steps, error, greeting.is_over, greeting.rest


def test_master_sends_the_epochs_for_every_request_until_the_first_report():
    steps, error, is_over, rest = heard([HELLO + HELLO + REPORT + HELLO])
    assert steps == [EpochStep(SLAVE, transfer.encode_master_handshake(*END), END)] * 2
    assert (error, is_over, rest) == ("", True, REPORT + HELLO)


@pytest.mark.parametrize("said, is_master, refusal", [
    (transfer.encode_slave_handshake(SLAVE._replace(slave_id=1)), True, Refusal.SAME_BROKER),
    (HELLO, False, Refusal.NO_MASTER), (REPORT, True, Refusal.REPORTS_FIRST)])
def test_refused_slave_gets_no_reply(said, is_master, refusal):
    (step,), error, is_over, _rest = heard([said + HELLO], is_master)
    assert (step.refusal, step.reply, error, is_over) == (refusal, b"", "", True)


def test_frame_of_an_unexpected_state_is_an_error_after_the_good_frames():
    steps, error, is_over, _rest = heard([HELLO + struct.pack(">i", 3)])
    assert len(steps) == 1 and "has state 3" in error and not is_over


@settings(deadline=None)
@given(st.lists(st.sampled_from([HELLO, REPORT, transfer.encode_slave_handshake(SLAVE._replace(slave_id=1))]),
                max_size=5), st.binary(max_size=20), CUTS)
def test_the_result_does_not_depend_on_how_the_bytes_are_split(said, noise, cuts):
    data = b"".join(said) + noise
    whole, cut = heard([data]), heard(pieces(data, cuts))
    assert cut[:3] == whole[:3]
    assert cut[1] or cut[3] == whole[3]


@settings(deadline=None)
@given(CUTS, st.binary(max_size=30))
def test_slave_reads_the_epochs_and_nothing_after_them(cuts, behind):
    greeting = SlaveEpochGreeting(SLAVE)
    assert greeting.begin() == HELLO
    data, read = transfer.encode_master_handshake(*END) + behind, 0
    for piece in pieces(data, cuts):
        while piece and greeting.wanted:
            now, piece = piece[:greeting.wanted], piece[greeting.wanted:]
            greeting.receive(now)
            read += len(now)
    assert (greeting.handshake, read) == ((700, 3, [EpochEntry(1, 0), EpochEntry(3, 500)]), len(data) - len(behind))


def told(max_offset: int, *entries: tuple[int, int]) -> MasterHandshake:
    """Make the handshake of a master."""
    return MasterHandshake(max_offset, entries[-1][0] if entries else -1, [EpochEntry(*entry) for entry in entries])


def held(max_offset: int, *entries: tuple[int, int]) -> tuple[int, tuple[EpochEntry, ...]]:
    """Make the end and the epochs of the slave's log."""
    return max_offset, tuple(EpochEntry(*entry) for entry in entries)


@pytest.mark.parametrize("master, slave, expected_epoch, point", [
    (told(700, (1, 0), (3, 500)), held(0), None, 0),
    (told(700, (1, 0), (3, 500)), held(400, (1, 0)), None, 400),
    # The slave has more of epoch 1 than the master.
    (told(700, (1, 0), (3, 500)), held(600, (1, 0)), None, 500),
    # The slave's log is longer than the master's.
    (told(700, (1, 0), (3, 500)), held(900, (1, 0), (3, 500)), None, 700),
    (told(700, (1, 0), (3, 500)), held(800, (1, 0), (2, 450)), None, 450),
    # The master's epoch is older, and the operator has named a newer one.
    (told(300, (1, 0)), held(800, (1, 0), (4, 500)), 5, 300),
    # The slave wrote nothing under epoch 4.
    (told(300, (1, 0)), held(500, (1, 0), (4, 500)), None, 300)])
def test_slave_resumes_at_the_last_common_offset(master, slave, expected_epoch, point):
    assert consistent_point(master, slave, expected_epoch) == point


@pytest.mark.parametrize("master, slave, expected_epoch, complaint", [
    (told(700, (1, 0)), held(400), None, "has no epochs"),
    (told(300, (1, 0)), held(800, (1, 0), (4, 500)), None, "no longer the master"),
    (told(300, (1, 0)), held(800, (1, 0), (4, 500)), 4, "no longer the master"),
    (told(700, (5, 0)), held(400, (1, 0)), None, "no epoch in common: MASTER: 5 from 0 SLAVE: 1 from 0"),
    (told(0), held(400, (1, 0)), 5, "no epoch in common: MASTER: none SLAVE: 1 from 0")])
def test_slave_reports_why_it_does_not_follow(master, slave, expected_epoch, complaint):
    with pytest.raises(EpochsDifferError, match=complaint):
        consistent_point(master, slave, expected_epoch)


# Epochs, and their file in 5.1.4's format.

# Captured from 5.1.4: changeToMaster(1), 100 messages, changeToMaster(2).
JAVA_FILE = b"2\n901660701\n1-0\n2-10390\n"


def cache_of(*entries: tuple[int, int], path: str | None = None) -> EpochFileCache:
    """Make a cache with these (epoch, start offset)."""
    made = EpochFileCache(path)
    made.init_cache_from_entries(EpochEntry(*entry) for entry in entries)
    return made


def pairs(cache: EpochFileCache) -> list[tuple[int, int]]:
    """Return (epoch, start offset) of each entry."""
    return [entry[:2] for entry in cache.get_all_entries()]


def test_file_of_java_is_read_and_written(tmp_path):
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(JAVA_FILE)
    cache = EpochFileCache(str(path))
    cache.init_cache_from_file()
    assert cache.get_all_entries() == (EpochEntry(1, 0, 10390), EpochEntry(2, 10390, LONG_MAX))
    path.unlink()
    cache.init_cache_from_entries(cache.get_all_entries())
    assert path.read_bytes() == JAVA_FILE


def test_each_change_is_in_the_file_and_the_previous_state_in_the_copy(tmp_path):
    path = tmp_path / "epochs"
    cache = cache_of((1, 0), path=str(path))
    assert cache.append_entry(EpochEntry(2, 100))
    again = EpochFileCache(str(path))
    again.init_cache_from_file()
    assert pairs(again) == [(1, 0), (2, 100)]
    path.unlink()
    again.init_cache_from_file()
    assert pairs(again) == [(1, 0)]


def test_a_damaged_file_is_replaced_by_its_copy_and_two_damaged_ones_are_refused(tmp_path):
    path = tmp_path / "epochs"
    cache = cache_of((1, 0), path=str(path))
    cache.append_entry(EpochEntry(2, 100))
    path.write_bytes(path.read_bytes().replace(b"2-100", b"2-101"))
    again = EpochFileCache(str(path))
    again.init_cache_from_file()
    assert pairs(again) == [(1, 0)]
    (tmp_path / "epochs.bak").write_bytes(b"")
    with pytest.raises(CheckpointFileError, match="checksum.*epochs.bak: it ends before its third line"):
        again.init_cache_from_file()
    os.unlink(tmp_path / "epochs.bak")
    with pytest.raises(CheckpointFileError, match="checksum"):
        again.init_cache_from_file()


def test_a_file_whose_epochs_decrease_is_refused_by_name(tmp_path):
    path = tmp_path / "epochs"
    path.write_text(config_manager.encode(["2-50", "1-100"]))
    with pytest.raises(EpochError, match="epochs: epoch 1 at 100 follows epoch 2 at 50"):
        EpochFileCache(str(path)).init_cache_from_file()


def test_an_empty_cache_stays_empty(tmp_path):
    path = tmp_path / "epochs"
    cache = cache_of((1, 0), (2, 50), path=str(path))
    cache.truncate_suffix_by_offset(0)
    again = EpochFileCache(str(path))
    again.init_cache_from_file()
    assert again.entry_size == 0 and again.last_epoch() == -1 and again.last_entry() is None


def test_the_checksum_0_is_not_checked():
    assert config_manager.decode("1\n0\n7-7000\n") == ["7-7000"]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20)))
def test_entries_survive_a_round_trip(lines):
    assert config_manager.decode(config_manager.encode(lines)) == lines


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_entries_or_an_error(text):
    try:
        lines = config_manager.decode(text)
    except ValueError as error:
        assert str(error)
    else:
        assert int(text.split("\n")[0]) == len(lines)


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(0, 40), st.integers(0, 40))
def test_any_damage_to_the_file_is_detected(tmp_path_factory, noise, start, length):
    path = tmp_path_factory.mktemp("epochs") / "epochs"
    whole = b"3\n2084911310\n1-0\n2-100\n4-5000\n"
    cache = cache_of((1, 0), (2, 100), (4, 5000), path=str(path))
    assert path.read_bytes().split(b"\n")[2:] == whole.split(b"\n")[2:]
    good = path.read_bytes()
    path.write_bytes(good[:start] + noise + good[start + length:])
    try:
        cache.init_cache_from_file()
    except (CheckpointFileError, EpochError) as error:
        assert str(path) in str(error)
    else:
        assert pairs(cache) == [(1, 0), (2, 100), (4, 5000)] or path.read_bytes().split(b"\n")[1].strip(b"0") == b""


def test_only_newer_epochs_are_added():
    cache = cache_of((1, 0), (3, 100))
    assert not cache.append_entry(EpochEntry(3, 200))
    assert not cache.append_entry(EpochEntry(2, 200))
    assert not cache.append_entry(EpochEntry(4, 99))
    assert cache.append_entry(EpochEntry(4, 100))
    assert cache.get_all_entries()[1:] == (EpochEntry(3, 100, 100), EpochEntry(4, 100, LONG_MAX))


def test_an_offset_belongs_to_the_last_epoch_that_begins_no_later():
    cache = cache_of((1, 10), (3, 100), (4, 100), (7, 150))
    found = [cache.find_epoch_entry_by_offset(offset) for offset in (9, 10, 99, 100, 149, 150, 1 << 40)]
    assert [entry and entry.epoch for entry in found] == [None, 1, 1, 4, 4, 7, 7]
    assert cache.get_entry(3).end_offset == 100 and cache.get_entry(2) is None


@pytest.mark.parametrize("local, local_end, other, other_end, point", [
    ([(1, 0)], 50, [(1, 0)], 80, 50),
    ([(1, 0)], 80, [(1, 0)], 50, 50),
    ([(1, 0), (2, 50)], 80, [(1, 0), (3, 60)], 90, 50),
    ([(1, 0), (2, 70)], 80, [(1, 0), (3, 60)], 90, 60),
    ([(1, 0), (2, 50), (4, 80)], 90, [(1, 0), (2, 50), (5, 70)], 99, 70),
    ([(1, 0), (2, 50)], 80, [(1, 0), (2, 60)], 90, 50),
    ([(1, 0)], 50, [(2, 0)], 80, -1),
    ([(2, 10)], 50, [(2, 20)], 80, -1),
    ([], 50, [(2, 20)], 80, -1),
])
def test_logs_agree_up_to_the_end_of_the_newest_common_epoch(local, local_end, other, other_end, point):
    one, two = cache_of(*local), cache_of(*other)
    one.set_last_epoch_entry_end_offset(local_end)
    two.set_last_epoch_entry_end_offset(other_end)
    assert one.find_consistent_point(two) == two.find_consistent_point(one) == point


def test_epochs_can_be_truncated_at_either_end():
    entries = (1, 0), (2, 50), (4, 100), (6, 100), (7, 150)
    cache = cache_of(*entries)
    cache.truncate_suffix_by_offset(100)
    assert pairs(cache) == [(1, 0), (2, 50)] and cache.last_entry().end_offset == LONG_MAX
    cache = cache_of(*entries)
    cache.truncate_prefix_by_offset(100)
    assert pairs(cache) == [(6, 100), (7, 150)]
    cache.truncate_prefix_by_offset(1 << 50)
    assert pairs(cache) == [(7, 150)]


# The identity of a replica.


def test_an_identity_survives_later_changes_of_the_configuration(tmp_path):
    path = str(tmp_path / "brokerIdentity")
    assert load_or_make(path, "C", "broker-a", 2).broker_id == 2
    assert (tmp_path / "brokerIdentity").read_text() == "C#broker-a#2"
    assert load_or_make(path, "C", "broker-a", 0).broker_id == 2


def test_the_first_master_gets_a_unique_id(tmp_path):
    assert load_or_make(str(tmp_path / "brokerIdentity"), "C", "broker-a", 0).broker_id == FIRST_MASTER_ID


def test_the_identity_of_another_broker_is_refused(tmp_path):
    path = str(tmp_path / "brokerIdentity")
    load_or_make(path, "C", "broker-a", 2)
    with pytest.raises(BrokerMetadataError, match="belongs to broker broker-a.*, but this broker is broker-b"):
        load_or_make(path, "C", "broker-b", 2)


@pytest.mark.parametrize("text", ["", "C#a", "C#a#x", "C#a#-1", "C#a#1#2", "C#a#" + "9" * 30])
def test_a_damaged_identity_is_refused_by_name(tmp_path, text):
    path = tmp_path / "brokerIdentity"
    path.write_text(text)
    with pytest.raises(BrokerMetadataError, match="brokerIdentity: .* is not a valid cluster#name#id"):
        load_or_make(str(path), "C", "a", 1)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_an_identity_or_an_error(text):
    try:
        metadata = BrokerMetadata.decode_from_str(text)
    except BrokerMetadataError:
        return
    assert BrokerMetadata.decode_from_str(metadata.encode_to_str()) == metadata
