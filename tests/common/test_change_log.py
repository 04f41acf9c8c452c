"""What has changed since a state, and which states are known."""
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from rmqha.common.data_version import ChangeLog, entries_of, follows

NAMES = st.sampled_from("abcde")


class Table(RuleBasedStateMachine):
    """A copy that takes changes is equal to the table, whatever happened in between."""

    copies = Bundle("copies")

    @initialize()
    def begin(self):
        self.changes, self.table, self.counter = ChangeLog(), {}, 0

    @rule(name=NAMES)
    def put(self, name):
        self.counter += 1
        self.table[name] = self.counter
        self.changes.note([name])

    @rule(name=NAMES)
    def take_away(self, name):
        if self.table.pop(name, None) is not None:
            self.changes.note_all()

    @rule(target=copies)
    def copy(self):
        return self.changes.mark(), dict(self.table)

    @rule(target=copies, known=consumes(copies))
    def follow(self, known):
        mark, copied = known
        now, names = self.changes.mark(), self.changes.since(mark)
        if names is None:
            copied = dict(self.table)
        else:
            assert len(set(names)) == len(names)
            copied = copied | {name: self.table[name] for name in names}
        assert copied == self.table
        assert names is None or follows(mark, now)
        return now, copied


TestTable = Table.TestCase


def test_the_latest_change_comes_first_and_once():
    changes = ChangeLog()
    mark = changes.mark()
    changes.note("abca")
    assert changes.since(mark) == ["a", "c", "b"]
    assert changes.since(changes.mark()) == []


def test_a_state_from_before_something_went_is_not_known():
    changes = ChangeLog()
    changes.note("a")
    before = changes.mark()
    changes.note_all()
    assert changes.since(before) is None
    assert changes.since(changes.mark()) == []


@given(st.text() | st.from_regex(r"[0-9a-f]{32}\.[0-9]{1,5000}"))
def test_any_other_text_is_no_known_state(text):
    changes = ChangeLog()
    assert changes.since(text) is None
    assert not follows(text, changes.mark()) and not follows(changes.mark(), text)


@pytest.mark.parametrize("suffix", ["", "x", "-1", "1", "9" * 5000, "\u0661"])
def test_a_state_that_never_was_is_not_known(suffix):
    changes = ChangeLog()
    life = changes.mark().rpartition(".")[0]
    assert changes.since(f"{life}.{suffix}") is None


def test_one_state_follows_another_of_its_life_that_is_not_newer():
    changes, other = ChangeLog(), ChangeLog()
    first = changes.mark()
    changes.note("a")
    second = changes.mark()
    assert follows(first, first) and follows(first, second)
    assert not follows(second, first) and not follows(other.mark(), second)


def test_no_change_is_lost_between_threads():
    changes, copied, stopped = ChangeLog(), set(), threading.Event()

    def note(number):
        for each in range(2000):
            changes.note([f"{number}.{each}"])

    def follow():
        mark = changes.mark()
        while not stopped.is_set():
            now = changes.mark()
            copied.update(changes.since(mark))
            mark = now
        copied.update(changes.since(mark))

    threads = [threading.Thread(target=note, args=(number,)) for number in range(4)]
    follower = threading.Thread(target=follow)
    for thread in [follower, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    stopped.set()
    follower.join()
    assert copied == {f"{number}.{each}" for number in range(4) for each in range(2000)}


def test_entries_of_a_table_are_a_copy_without_those_that_are_gone():
    table = {"a": 1, "b": 0, "c": 3}
    assert entries_of(table, None) == table and entries_of(table, None) is not table
    assert entries_of(table, ["c", "gone", "b"]) == {"c": 3, "b": 0}
    assert entries_of(table, []) == {}
