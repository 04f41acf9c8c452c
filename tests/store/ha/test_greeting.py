"""The greeting of two rmqha peers: its verdicts however its bytes are split, and frames whose size arrives damaged."""
import random
import struct
import threading
import zlib
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha import ha_handshake, master_connection
from rmqha.store.ha.ha_handshake import (
    ASK,
    Answer,
    Block,
    Finding,
    HandshakeError,
    Judgement,
    MasterGreeting,
    Question,
    Range,
    SlaveGreeting,
    Verdict,
    Who,
    WhoCompares,
)
from rmqha.store.ha.log_comparison import ComparisonError, compare_with_master, introduction, read_tail
from rmqha.store.ha.master_connection import OffsetMasterConnection
from rmqha.store.ha.peers import HAConnectionState
from tests.fast_ways.compare_ha import record
from tests.store.ha.support import CUTS, FakeMaster, FakeStore, pieces, running
from tests.store.ha.test_log_comparison import first_other, store_of
from tests.support.wait import wait_until

# Both sides of the greeting, without a connection: every verdict, every split of the bytes, and contradictory bytes.

LOG = bytes(range(256)) * 8
HELD = Range(256, len(LOG))
REPORT = struct.pack(">q", 1000)


def crc_of(offset: int, size: int) -> int | None:
    """Compute the checksum that a master returns which has deleted the first 256 bytes of LOG."""
    held = HELD.min_offset <= offset and offset + size <= HELD.max_offset
    return zlib.crc32(LOG[offset:offset + size]) if held else None


def master() -> MasterGreeting:
    return MasterGreeting(lambda: HELD, crc_of)


def block(offset: int, size: int) -> Block:
    return Block(size, zlib.crc32(LOG[offset:offset + size]))


def who(end: int, size: int, crc: int | None = None) -> bytes:
    crc = zlib.crc32(LOG[end - size:end]) if crc is None else crc
    return ha_handshake.encode_who(Who("c/b/1", end, size, crc))


def compares(end: int, begin: int = 0) -> bytes:
    return ha_handshake.encode_who_compares(WhoCompares("c/b/1", begin, end))


def asks(offset: int, *blocks: Block) -> bytes:
    return ha_handshake.encode_question(Question(offset, list(blocks)))


def finds(verdict: Verdict, same_up_to: int) -> bytes:
    return ha_handshake.encode_finding(Finding(verdict, same_up_to))


def heard(data: list[bytes], greeting: MasterGreeting | None = None) -> tuple[list, str, bool, bytes]:
    """Feed the pieces; return (steps, the error at the end, whether the greeting is over, the unread bytes)."""
    greeting, steps, error = greeting or master(), [], ""
    try:
        for piece in data:
            if greeting.is_over:
                # The reader of reports would get these bytes.
                greeting.rest += piece
            else:
                steps += greeting.receive(piece)
    except HandshakeError as what:
        error = str(what)
    return steps, error, greeting.is_over, greeting.rest


# The slave's bytes after ASK, and the judgement.
JUDGED = [
    (who(2048, 100), Judgement(Verdict.GOOD, 2048, None)),
    (who(0, 0), Judgement(Verdict.GOOD, 0, None)),
    # The master has deleted the slave's tail, so nothing contradicts it.
    (who(256, 100), Judgement(Verdict.GOOD, 256, None)),
    (who(2048, 100, 1), Judgement(Verdict.DIVERGED, 2048, None)),
    (who(2049, 100), Judgement(Verdict.NOT_HELD, 2049, None)),
    (who(255, 100), Judgement(Verdict.NOT_HELD, 255, None)),
    (compares(1000) + asks(300, block(300, 700)) + finds(Verdict.GOOD, 1000), Judgement(Verdict.GOOD, 1000, 1000)),
    (compares(0) + finds(Verdict.GOOD, 0), Judgement(Verdict.GOOD, 0, 0)),
    # The master holds none of the slave's log any more.
    (compares(256) + finds(Verdict.GOOD, 256), Judgement(Verdict.GOOD, 256, 256)),
    # The slave has not asked a question.
    (compares(1000) + finds(Verdict.GOOD, 1000), Judgement(Verdict.DIVERGED, 1000, 1000)),
    (compares(1000) + asks(300, block(300, 600)) + finds(Verdict.GOOD, 1000),
     # The question does not reach the slave's end.
     Judgement(Verdict.DIVERGED, 1000, 1000)),
    (compares(1000) + asks(300, block(300, 700)) + asks(400, Block(600, 1)) + finds(Verdict.GOOD, 1000),
     # The last answer was negative.
     Judgement(Verdict.DIVERGED, 1000, 1000)),
    (compares(3000) + finds(Verdict.GOOD, 3000), Judgement(Verdict.NOT_HELD, 3000, 3000)),
    (compares(3000) + finds(Verdict.DIVERGED, 700), Judgement(Verdict.DIVERGED, 3000, 700)),
    (compares(100) + finds(Verdict.NOT_HELD, -1), Judgement(Verdict.NOT_HELD, 100, -1)),
]


@pytest.mark.parametrize("said, judgement", JUDGED)
def test_master_judges_the_slaves_log(said, judgement):
    steps, error, is_over, rest = heard([ASK + said + REPORT])
    assert (steps[-1].judgement, error, is_over, rest) == (judgement, "", True, REPORT)
    assert steps[-1].reply == ha_handshake.encode_verdict(judgement.verdict, HELD)
    assert [step.judgement for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert (steps[0].said, steps[0].reply) == (None, ha_handshake.encode_hello(HELD))


@pytest.mark.parametrize("question, answer", [
    (asks(300, block(300, 10), block(310, 20)), Answer(2, False)),
    (asks(300, block(300, 10), Block(20, 1)), Answer(1, False)),
    (asks(2000, block(2000, 48), Block(1, 1)), Answer(1, True)),
    (asks(100, block(100, 10)), Answer(0, True))])
def test_master_answers_the_number_of_equal_blocks(question, answer):
    steps, _error, is_over, _rest = heard([ASK + compares(1000) + question])
    assert (steps[-1].reply, is_over) == (ha_handshake.encode_answer(answer), False)


@pytest.mark.parametrize("said", [REPORT, struct.pack(">qq", -1, 1000)[8:], b"\xff" * 7 + b"\0", b"\0"])
def test_peer_that_does_not_ask_for_a_greeting_gets_no_reply(said):
    assert heard([said]) == ([], "", True, said)


def test_peer_that_asks_and_does_not_wait_gets_the_hello():
    steps, error, is_over, rest = heard([ASK, REPORT])
    assert ([step.reply for step in steps], error, is_over, rest) == (
        [ha_handshake.encode_hello(HELD)], "", True, REPORT)


@pytest.mark.parametrize("said, complaint", [
    (asks(300, block(300, 700)), "out of order: Question"), (finds(Verdict.GOOD, 0), "out of order: Finding"),
    (compares(1000) + compares(1000), "out of order: WhoCompares"), (compares(1000) + who(1000, 10), "order: Who"),
    (b"RMQH\0\3" + bytes(40), "invalid introduction"), (b"RMQF\0\x09" + bytes(8), "unknown finding"),
    (compares(1000) + b"RMQC" + bytes(12), "invalid question")])
def test_unexpected_bytes_are_an_error_after_the_valid_ones(said, complaint):
    steps, error, is_over, _rest = heard([ASK + said])
    assert complaint in error and not is_over
    assert steps[0].reply == ha_handshake.encode_hello(HELD)
    assert not any(step.judgement for step in steps)


def test_number_of_questions_is_limited(monkeypatch):
    monkeypatch.setattr("rmqha.store.ha.ha_handshake._MAX_QUESTIONS", 3)
    steps, error, _is_over, _rest = heard([ASK + compares(1000) + asks(300, block(300, 1)) * 4])
    assert len(steps) == 2 + 3 and "more than 3 questions" in error


SAID = st.sampled_from([said for said, _judgement in JUDGED] + [
    REPORT, ASK, compares(9), asks(300, block(300, 7)), b"RMQ", b"RMQH\0\1" + b"\xff" * 18, b"\xff"])


@settings(deadline=None)
@given(st.booleans(), st.lists(SAID, max_size=4), st.binary(max_size=20), CUTS)
def test_the_result_does_not_depend_on_how_the_bytes_are_split(asked, said, noise, cuts):
    data = (ASK if asked else b"") + b"".join(said) + noise
    whole, cut = heard([data]), heard(pieces(data, cuts))
    assert cut[:3] == whole[:3]
    # After an error the rest does not matter.
    assert cut[1] or cut[3] == whole[3]


@settings(deadline=None)
@given(st.binary(max_size=200), CUTS)
def test_any_bytes_are_reports_a_greeting_or_an_error(noise, cuts):
    steps, error, is_over, rest = heard(pieces(ASK + noise, cuts))
    assert steps and (error or is_over or len(rest) <= len(noise))
    assert is_over or error or ha_handshake.is_greeting(rest)


# The slave's side, and both sides together.


def talk(slave: SlaveGreeting, theirs: MasterGreeting, cuts: list[int]) -> list[Judgement]:
    """Let the two exchange pieces until neither has more to send; return the master's judgements."""
    to_master, judged, cut = slave.begin(), [], iter(cuts * 1000)
    while to_master:
        to_slave = b""
        for piece in pieces(to_master, [next(cut, 0)]):
            for step in theirs.receive(piece):
                to_slave += step.reply
                judged += [step.judgement] if step.judgement else []
        to_master = b""
        for piece in pieces(to_slave, [next(cut, 0)]):
            while piece:
                now, piece = piece[:slave.wanted], piece[slave.wanted:]
                assert now, "the master sends more than the slave expects"
                to_master += slave.receive(now)
    return judged


def greeting_of(store: FakeStore) -> MasterGreeting:
    return MasterGreeting(store.ha_service.held_range, partial(read_tail, store))


def comparing(store: FakeStore) -> SlaveGreeting:
    end = store.get_max_phy_offset()
    return SlaveGreeting(lambda: WhoCompares("c/b/1", 0, end), partial(compare_with_master, store))


RECORDS = st.lists(st.tuples(st.integers(200, 3000), st.integers(0, 3)), max_size=12)


@settings(deadline=None, max_examples=60)
@given(RECORDS, RECORDS, RECORDS, CUTS)
def test_both_sides_reach_the_same_correct_verdict(common, ours, theirs, cuts):
    slave_store, master_store = store_of([*common, *ours]), store_of([*common, *theirs])
    slave = comparing(slave_store)
    (judged,) = talk(slave, greeting_of(master_store), cuts)
    end = slave_store.get_max_phy_offset()
    is_part = master_store.log()[:end] == slave_store.log()
    assert (judged.verdict, slave.verdict) == ((Verdict.GOOD,) * 2 if is_part else (Verdict.DIVERGED,) * 2)
    assert (judged.slave_end, slave.end, slave.held) == (end, end, master_store.ha_service.held_range())
    assert judged.same_up_to == slave.same_up_to
    if not is_part and slave.same_up_to >= 0:
        assert slave.same_up_to == first_other(slave_store, master_store)


@settings(deadline=None, max_examples=60)
@given(RECORDS, RECORDS, RECORDS, CUTS)
def test_one_checksum_is_judged_by_the_master_alone(common, ours, theirs, cuts):
    slave_store, master_store = store_of([*common, *ours]), store_of([*common, *theirs])
    slave = SlaveGreeting(partial(introduction, slave_store, "c/b/1"))
    (judged,) = talk(slave, greeting_of(master_store), cuts)
    assert slave.verdict is judged.verdict and judged.same_up_to is None and slave.same_up_to == -1
    end = slave_store.get_max_phy_offset()
    if end > master_store.get_max_phy_offset():
        assert slave.verdict is Verdict.NOT_HELD
    elif end:
        assert (slave.verdict is Verdict.GOOD) == (master_store.log()[:end] == slave_store.log())


@pytest.mark.parametrize("said", [
    b"\xff" * 12, struct.pack(">qi", 0, 100), ha_handshake.encode_verdict(Verdict.GOOD, HELD),
    struct.pack(">qi4shqq", -1, 22, b"RMQX", 1, 0, 0), struct.pack(">qi4shqq", -1, 22, b"RMQH", 9, 0, 0)])
def test_invalid_hello_is_an_error(said):
    slave = comparing(store_of([(300, 1)]))
    with pytest.raises(HandshakeError):
        slave.receive(said)
    assert not slave.is_heard and slave.verdict is None


def test_answer_or_verdict_out_of_turn_is_an_error():
    for wrong in (ha_handshake.encode_verdict(Verdict.GOOD, HELD), ha_handshake.encode_hello(HELD)):
        slave = comparing(store_of([(300, 1)]))
        slave.receive(ha_handshake.encode_hello(Range(0, 300)))
        with pytest.raises(HandshakeError):
            slave.receive(wrong)
        assert slave.is_heard and slave.verdict is None


def test_contradictory_answers_are_an_error():
    slave = comparing(store_of([(300, 1)] * 5))
    slave.receive(ha_handshake.encode_hello(Range(0, 5000)))
    with pytest.raises(ComparisonError):
        slave.receive(ha_handshake.encode_answer(Answer(7000, False)))


def test_nothing_is_expected_after_the_verdict():
    slave = comparing(FakeStore())
    assert slave.wanted == 34
    assert slave.receive(ha_handshake.encode_hello(HELD)) == compares(0) + finds(Verdict.GOOD, 0)
    assert slave.wanted == 30
    assert slave.receive(ha_handshake.encode_verdict(Verdict.GOOD, HELD)[:10]) == b"" and slave.wanted == 20
    slave.receive(ha_handshake.encode_verdict(Verdict.GOOD, HELD)[10:])
    assert (slave.verdict, slave.wanted) == (Verdict.GOOD, 0)


# A frame or a record whose size arrives damaged: its end never comes, and the slave must not wait for it forever.


@pytest.fixture
def slave():
    store = FakeStore(haVerifyRecords=True, haHandshakeEnable="false", haHousekeepingInterval=200,
                      haSendHeartbeatInterval=20)
    with running(store):
        yield store


def heartbeats_until_closed(peer, offset: int) -> None:
    """Send heartbeats, as a master does that has nothing more to send."""
    stop = threading.Event()

    def beat() -> None:
        try:
            while not stop.wait(0.02):
                peer.send_frame(offset)
        except OSError:
            return
    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        assert peer.is_closed(120)
    finally:
        stop.set()
        beating.join()


def damaged_frame(good: bytes) -> bytes:
    """Make a frame whose header announces a thousand bytes too many."""
    return struct.pack(">qi", 0, len(good) + 1000) + good


def damaged_record(good: bytes) -> bytes:
    """Make a record whose size is a thousand bytes too large."""
    return struct.pack(">qi", 0, len(good)) + struct.pack(">i", len(good) + 1000) + good[4:]


@pytest.mark.parametrize("damaged", [damaged_frame, damaged_record])
def test_endless_frame_or_record_is_fetched_again_and_then_reported(slave, damaged):
    good = record(random.Random(1), 0, 500)
    with FakeMaster() as master:
        slave.ha_service.update_master_address(master.address)
        client = slave.ha_service.ha_client
        # A connection whose heartbeats arrive too late ends without a judgement, hence the loop.
        while client.verify_failures < 2:
            with master.accept() as peer:
                peer.send(damaged(good))
                heartbeats_until_closed(peer, len(good))
        # The next connection brings no heartbeats.
        slave.message_store_config.haHousekeepingInterval = 20_000
        wait_until(lambda: client.state is HAConnectionState.DIVERGED)
        assert slave.get_max_phy_offset() == 0 and client.verify_failures == 2
        assert "does not arrive completely" in client.last_error
        with master.accept() as peer:
            peer.send_frame(0, good)
            wait_until(lambda: slave.log() == good)
            wait_until(lambda: client.state is HAConnectionState.TRANSFER)


def test_slow_stream_is_not_a_stall(monkeypatch):
    """With a clock of the test: a kilobyte in each interval is a slow link; less is only heartbeats."""
    now, flaws = [0], []
    monkeypatch.setattr(master_connection, "time", SimpleNamespace(monotonic_ns=lambda: now[0] * 1_000_000))
    connection = object.__new__(OffsetMasterConnection)
    connection.config, connection._within, connection._received = SimpleNamespace(haHousekeepingInterval=100), None, 0
    connection.master_address, connection._verifier = "m", SimpleNamespace(end=7)
    connection.store = SimpleNamespace(get_max_phy_offset=lambda: 7)
    connection.client = SimpleNamespace(record_is_flawed=lambda address, flaw: flaws.append((address, flaw.offset)))
    for _ in range(20):
        now[0] += 60
        connection._received += 600
        connection._look_for_stall()
    assert not flaws
    for _ in range(3):
        now[0] += 60
        connection._received += 12
        connection._look_for_stall()
    assert set(flaws) == {("m", 7)}
    flaws.clear()
    # A record that was waited for has arrived.
    connection._verifier.end = 8
    now[0] += 60
    connection._look_for_stall()
    now[0] += 60
    connection._look_for_stall()
    assert not flaws
