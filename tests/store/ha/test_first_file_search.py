"""Masters of both kinds, with any files, asked for their first one."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha.first_file_search import FirstFileSearch, Found

SEGMENT = 1000


class Master:
    """A master with the files `first` to `last`; how it answers the first report of a connection."""

    def __init__(self, first: int, last: int, names_its_first: bool, last_size: int = 500) -> None:
        self.first, self.last, self.names_its_first = first, last, names_its_first
        self.end = last + last_size

    def answer(self, report: int) -> list[tuple[int, int]]:
        """(offset, size) of the frames that come."""
        start = report or self.last
        if self.first <= start < self.end:
            return [(start, min(100, self.end - start))]
        if self.names_its_first and not self.first <= start <= self.end:
            return [(self.end if start > self.end else self.first, 0)]
        return [(start, 0)]


def search_out(master: Master, search: FirstFileSearch) -> tuple[int, int]:
    """(first report of the connection that is followed, connections)."""
    for connections in range(1, 100):
        report = search.next_report()
        found = Found.WAIT
        for offset, size in master.answer(report):
            found = search.heard(offset, size)
        if found is Found.WAIT:
            found = search.nothing_came()
        if found is Found.FOLLOW:
            return report, connections
    raise AssertionError("it does not end")


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
    """Its log ends where the next file will begin."""
    master = Master(first, first, names_its_first, last_size=0)
    assert search_out(master, FirstFileSearch(SEGMENT))[0] == 0


def test_data_behind_a_heartbeat_is_taken():
    search = FirstFileSearch(SEGMENT)
    assert search.heard(5000, 10) is Found.AGAIN and search.next_report() == 1
    assert search.heard(1, 0) is Found.WAIT
    assert search.heard(1, 10) is Found.FOLLOW


def test_files_deleted_meanwhile_begin_the_search_anew():
    master, search = Master(0, 20 * SEGMENT, False), FirstFileSearch(SEGMENT)
    assert search.heard(*master.answer(search.next_report())[0]) is Found.AGAIN
    master.first, master.last, master.end = 30 * SEGMENT, 40 * SEGMENT, 40 * SEGMENT + 1
    assert search_out(master, search)[0] == 30 * SEGMENT + 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 1 << 40), st.integers(0, 100), st.booleans()), max_size=50))
def test_any_answers_leave_a_search_that_can_ask(answers):
    search = FirstFileSearch(SEGMENT)
    for offset, size, nothing in answers:
        if search.heard(offset, size) is Found.WAIT and nothing:
            search.nothing_came()
        assert search.next_report() >= 0
