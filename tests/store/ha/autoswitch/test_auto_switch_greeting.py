"""What a master whose role can change makes of a slave's bytes, and a slave of its master's epochs."""
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.ha_transfer import TransferError
from tests.store.ha.cuts import CUTS, pieces

END = 700, (EpochEntry(1, 0), EpochEntry(3, 500))
SLAVE = SlaveHandshake(False, True, 2)
HELLO, REPORT = transfer.encode_slave_handshake(SLAVE), transfer.encode_report(400)


def heard(data: list[bytes], is_master: bool = True) -> tuple[list[EpochStep], str, bool, bytes]:
    """(what came of the pieces, the error at its end, whether it is over, what is left)."""
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


def test_slave_is_told_the_epochs_as_often_as_it_asks_until_it_reports():
    steps, error, is_over, rest = heard([HELLO + HELLO + REPORT + HELLO])
    assert steps == [EpochStep(SLAVE, transfer.encode_master_handshake(*END), END)] * 2
    assert (error, is_over, rest) == ("", True, REPORT + HELLO)


@pytest.mark.parametrize("said, is_master, refusal", [
    (transfer.encode_slave_handshake(SLAVE._replace(slave_id=1)), True, Refusal.SAME_BROKER),
    (HELLO, False, Refusal.NO_MASTER), (REPORT, True, Refusal.REPORTS_FIRST)])
def test_slave_that_can_not_be_served_is_told_nothing(said, is_master, refusal):
    (step,), error, is_over, _rest = heard([said + HELLO], is_master)
    assert (step.refusal, step.reply, error, is_over) == (refusal, b"", "", True)


def test_frame_of_another_state_is_an_error_behind_what_was_good():
    steps, error, is_over, _rest = heard([HELLO + struct.pack(">i", 3)])
    assert len(steps) == 1 and "has state 3" in error and not is_over


@settings(deadline=None)
@given(st.lists(st.sampled_from([HELLO, REPORT, transfer.encode_slave_handshake(SLAVE._replace(slave_id=1))]),
                max_size=5), st.binary(max_size=20), CUTS)
def test_what_comes_of_the_bytes_does_not_depend_on_their_cuts(said, noise, cuts):
    data = b"".join(said) + noise
    whole, cut = heard([data]), heard(pieces(data, cuts))
    assert cut[:3] == whole[:3]
    assert cut[1] or cut[3] == whole[3]


@settings(deadline=None)
@given(CUTS, st.binary(max_size=30))
def test_slave_reads_the_epochs_and_nothing_behind_them(cuts, behind):
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
    """What a master says."""
    return MasterHandshake(max_offset, entries[-1][0] if entries else -1, [EpochEntry(*entry) for entry in entries])


def held(max_offset: int, *entries: tuple[int, int]) -> tuple[int, tuple[EpochEntry, ...]]:
    """What the slave holds."""
    return max_offset, tuple(EpochEntry(*entry) for entry in entries)


@pytest.mark.parametrize("master, slave, expected_epoch, point", [
    (told(700, (1, 0), (3, 500)), held(0), None, 0),
    (told(700, (1, 0), (3, 500)), held(400, (1, 0)), None, 400),
    (told(700, (1, 0), (3, 500)), held(600, (1, 0)), None, 500),  # it has more of epoch 1 than the master had
    (told(700, (1, 0), (3, 500)), held(900, (1, 0), (3, 500)), None, 700),  # more than the master
    (told(700, (1, 0), (3, 500)), held(800, (1, 0), (2, 450)), None, 450),
    (told(300, (1, 0)), held(800, (1, 0), (4, 500)), 5, 300),  # older, and the operator wants it
    (told(300, (1, 0)), held(500, (1, 0), (4, 500)), None, 300)])  # nothing was written under epoch 4
def test_slave_goes_on_where_both_are_the_same(master, slave, expected_epoch, point):
    assert consistent_point(master, slave, expected_epoch) == point


@pytest.mark.parametrize("master, slave, expected_epoch, complaint", [
    (told(700, (1, 0)), held(400), None, "knows no epochs"),
    (told(300, (1, 0)), held(800, (1, 0), (4, 500)), None, "no longer the master"),
    (told(300, (1, 0)), held(800, (1, 0), (4, 500)), 4, "no longer the master"),
    (told(700, (5, 0)), held(400, (1, 0)), None, "no epoch in common: MASTER: 5 from 0 SLAVE: 1 from 0"),
    (told(0), held(400, (1, 0)), 5, "no epoch in common: MASTER: none SLAVE: 1 from 0")])
def test_slave_says_why_it_does_not_follow(master, slave, expected_epoch, complaint):
    with pytest.raises(EpochsDifferError, match=complaint):
        consistent_point(master, slave, expected_epoch)
