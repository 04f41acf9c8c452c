"""Up to where a slave's log is its master's: any divergence is found, and where it begins."""
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import BLANK_MAGIC_CODE
from rmqha.store.ha import log_comparison
from rmqha.store.ha.ha_handshake import Answer, Finding, Question, Range, Verdict
from rmqha.store.ha.log_comparison import ComparisonError, compare_with_master, read_tail, record_start
from tests.store.ha.support import SEGMENT, FakeStore, record


def answer(store: FakeStore, question: Question) -> Answer:
    """A master's answer, by the book."""
    offset = question.offset
    for number, block in enumerate(question.blocks):
        crc = read_tail(store, offset, block.size)
        if crc != block.crc:
            return Answer(number, crc is None)
        offset += block.size
    return Answer(len(question.blocks), False)


def compare(slave: FakeStore, master: FakeStore) -> Finding:
    return answered(slave, master.ha_service.held_range(), lambda question: answer(master, question))


def answered(slave: FakeStore, held: Range, ask: Callable[[Question], Answer]) -> Finding:
    """What the slave finds of a master that `ask` speaks for."""
    comparison = compare_with_master(slave, held)
    said = None
    while True:
        try:
            question = comparison.send(said)
        except StopIteration as stop:
            return stop.value
        said = ask(question)


def store_of(records: list[tuple[int, int]]) -> FakeStore:
    """Records of (size, seed)."""
    store = FakeStore()
    for size, seed in records:
        store.put(size, seed)
    return store


def first_other(slave: FakeStore, master: FakeStore) -> int:
    """Where the slave's first record begins that the master does not have: by looking at all bytes."""
    mine, theirs, at = slave.log(), master.log(), 0
    while at < len(mine):
        size = struct.unpack_from(">i", mine, at)[0]
        if mine[at:at + size] != theirs[at:at + size]:
            return at
        at += size
    return at


@pytest.fixture(params=[(64, 64 * 1024 * 1024), (512, 1024), (64 * 1024, 64 * 1024 * 1024)],
                ids=["small blocks", "small windows", "as it is"])
def sizes(request, monkeypatch):
    monkeypatch.setattr(log_comparison, "_BLOCK", request.param[0])
    monkeypatch.setattr(log_comparison, "_WINDOW", request.param[1])


COMMON = [(1000, number) for number in range(90)]  # more than a file


@pytest.mark.parametrize("lost, written", [
    ([(1000, 200)], [(1000, 201)] * 3), ([(1000, 200)] * 5, [(1000, 201)] * 9), ([(1000, 200)] * 5, [(700, 201)] * 9),
    ([(333, 1), (1000, 200)], [(333, 1), (1000, 7), (1000, 8)]), ([(1000, 200)] * 70, [(1000, 201)] * 90),
    ([(60_000, 200)], [(60_000, 201)]), ([(500, 9)] * 3, []), ([(1000, 200)] * 5, [(900, 201)])],
    ids=["equal sizes, overtaken", "more of it", "other sizes", "behind a same one", "over a file's end", "one large",
         "ahead", "ahead, and other bytes"])
def test_divergence_is_found_and_its_beginning(sizes, lost, written):
    slave, master = store_of([*COMMON, *lost]), store_of([*COMMON, *written])
    expected = first_other(slave, master)
    assert compare(slave, master) == (Verdict.DIVERGED, expected)
    assert expected < slave.get_max_phy_offset()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(100, 3000), st.integers(0, 3)), min_size=1, max_size=80),
       st.lists(st.tuples(st.integers(100, 3000), st.integers(4, 7)), max_size=30),
       st.lists(st.tuples(st.integers(100, 3000), st.integers(8, 11)), max_size=30))
def test_any_two_logs_with_a_common_beginning(common, lost, written):
    slave, master = store_of([*common, *lost]), store_of([*common, *written])
    finding, expected = compare(slave, master), first_other(slave, master)
    end = slave.get_max_phy_offset()
    if expected == end and end <= master.get_max_phy_offset():
        assert finding == (Verdict.GOOD, end)
    else:
        assert finding.verdict is Verdict.DIVERGED
        assert finding.same_up_to == expected
        assert slave.log()[:expected] == master.log()[:expected]


def test_part_of_a_record_at_the_slaves_end_is_good():
    master = store_of(COMMON)
    slave = FakeStore()
    slave.segments = {0: bytearray(master.log()[:12_345])}
    assert compare(slave, master) == (Verdict.GOOD, 12_345)


def test_log_of_another_master_has_nothing_in_common(sizes):
    slave, master = store_of([(1000, number + 7) for number in range(90)]), store_of(COMMON)
    assert compare(slave, master) == (Verdict.DIVERGED, -1)


def test_tail_in_a_file_that_has_just_begun_is_compared_beyond_it():
    """The bytes behind the last file's beginning alone may be equal by chance: a record begins with its size."""
    slave, master = store_of([(1000, number) for number in range(66)]), store_of([(1000, 9) for _ in range(70)])
    slave.segments[SEGMENT] = bytearray(master.segments[SEGMENT][:9])
    assert compare(slave, master).verdict is Verdict.DIVERGED


def test_masters_deleted_files_are_not_asked_for():
    master = store_of([*COMMON, *COMMON])
    slave = FakeStore()
    slave.segments = {at: bytearray(data) for at, data in master.segments.items()}
    del master.segments[0]
    assert compare(slave, master) == (Verdict.GOOD, slave.get_max_phy_offset())


def test_slave_that_ends_before_the_masters_first_file_is_not_held():
    master = store_of([*COMMON, *COMMON])
    slave = store_of(COMMON[:3])
    del master.segments[0]
    assert compare(slave, master) == (Verdict.NOT_HELD, -1)


@pytest.mark.parametrize("count", [0, 3])
def test_empty_slave_is_good(count):
    assert compare(FakeStore(), store_of(COMMON[:count])) == (Verdict.GOOD, 0)


def test_slave_of_an_empty_master_has_diverged():
    assert compare(store_of(COMMON[:3]), FakeStore()) == (Verdict.DIVERGED, -1)


@pytest.mark.parametrize("said", [Answer(-1, False), Answer(1 << 20, False), Answer(0, True)])
def test_impossible_answer_is_an_error(said):
    with pytest.raises(ComparisonError):
        answered(store_of(COMMON), Range(0, 1 << 40), lambda _question: said)


def test_master_that_changes_its_mind_is_an_error():
    """A block is different, and then its records are the same."""
    asked = []

    def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer(len(question.blocks) - (len(asked) == 1), False)
    with pytest.raises(ComparisonError):
        answered(store_of(COMMON), Range(0, 1 << 40), ask)
    assert len(asked) == 2


def test_record_start_knows_the_blank_end_of_a_file():
    store = store_of(COMMON)
    blank = store.log().index(struct.pack(">i", BLANK_MAGIC_CODE)) - 4
    assert [record_start(store, at) for at in (blank - 1, blank, blank + 5, SEGMENT - 1, SEGMENT, SEGMENT + 1)] == [
        blank - 1000, blank, blank, blank, SEGMENT, SEGMENT]


def test_record_start_of_what_is_no_log_is_unknown():
    store = FakeStore()
    store.segments = {0: bytearray(b"x" * 5000)}
    assert record_start(store, 3000) == -1 and record_start(store, 0) == 0


def test_large_record_is_one():
    slave, master = store_of([*COMMON[:3], (60_000, 1)]), store_of([*COMMON[:3], (60_000, 2)])
    assert record(60_000, 1) != record(60_000, 2)
    assert compare(slave, master) == (Verdict.DIVERGED, 3000)
