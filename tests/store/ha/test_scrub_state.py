"""How far a slave was compared: rounds, ages by a clock of the test's, differences, and the file."""
import json

import pytest

from rmqha.store.ha.scrub_state import Difference, ScrubState

HOUR = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state(tmp_path, clock):
    return ScrubState(str(tmp_path / "scrub.json"), clock)


def test_nothing_is_known_before_the_first_look(state):
    assert state.unscrubbed_ms() == -1 and state.is_round_due(HOUR)


def test_age_is_that_of_the_oldest_byte_that_was_never_compared(state, clock):
    state.log_is(0, 1000)
    state.begin_round(0)
    clock.now += 5000
    state.log_is(0, 2000)
    assert state.unscrubbed_ms() == 5000
    state.compared(1000, 1000)
    clock.now += 100
    assert state.unscrubbed_ms() == 5100, "appended at some time after the first look, which is 5,100 ms ago"
    state.compared(2000, 1000)
    assert state.unscrubbed_ms() == 0 and state.rounds == 1 and state.compared_bytes == 2000
    clock.now += 7000
    state.log_is(0, 3000)
    clock.now += 10
    assert 0 < state.unscrubbed_ms() <= 7110


def test_bytes_that_were_compared_are_due_again_with_the_next_round(state, clock):
    state.log_is(0, 1000)
    state.begin_round(0)
    state.compared(1000, 1000)
    assert not state.is_round_due(HOUR)
    clock.now += HOUR // 2
    assert state.is_round_due(HOUR) and state.unscrubbed_ms() == 0
    state.begin_round(0)
    assert state.unscrubbed_ms() == HOUR // 2 and not state.is_round_due(HOUR)
    clock.now += 60
    state.compared(500, 500)
    assert state.unscrubbed_ms() == HOUR // 2 + 60 and state.rounds == 1
    state.compared(1000, 500)
    assert state.unscrubbed_ms() == 0 and state.rounds == 2


def test_a_log_that_was_cut_off_or_deleted_is_followed(state):
    state.log_is(0, 5000)
    state.begin_round(0)
    state.compared(4000, 4000)
    state.log_is(0, 3000)
    assert state.position == 3000 and state.unscrubbed_ms() == 0
    state.log_is(3500, 9000)
    assert state.position == 3500


def test_a_clock_that_goes_back_begins_a_round_rather_than_none(state, clock):
    state.log_is(0, 10)
    state.begin_round(0)
    state.compared(10, 10)
    clock.now -= 10 * HOUR
    assert state.is_round_due(HOUR) and state.unscrubbed_ms() == 0


def test_samples_stay_few_and_the_age_an_upper_bound(state, clock):
    state.log_is(0, 1)
    state.begin_round(0)
    state.compared(1, 1)
    begun = clock.now
    for end in range(2, 5000):
        clock.now += 1000
        state.log_is(0, end)
    assert len(state._samples) <= 256
    assert state.unscrubbed_ms() <= clock.now - begun
    state.compared(4000, 3999)
    age = clock.now - (begun + 3999 * 1000)
    assert age <= state.unscrubbed_ms() <= age + 64 * 1000


def difference(offset: int) -> Difference:
    return Difference(offset, 100, f"at {offset}", "slave")


def test_each_difference_is_kept_once_and_at_most_a_hundred(state):
    assert state.differs(difference(7)) and not state.differs(difference(7))
    assert all(state.differs(difference(1000 + at)) for at in range(150))
    assert len(state.found) == 100 and state.differences == 151 and state.first_difference == 7
    state.keep(each for each in state.found if each.offset == 1000)
    assert state.found == (difference(1000),) and state.differences == 1


def test_all_of_it_outlives_a_restart(state, clock, tmp_path):
    state.load()
    state.log_is(0, 1000)
    state.begin_round(0)
    state.compared(600, 600)
    state.differs(difference(5))
    state.save()
    clock.now += 4000
    again = ScrubState(str(tmp_path / "scrub.json"), clock)
    again.load()
    assert (again.position, again.found, again.unscrubbed_ms()) == (600, (difference(5),), 4000)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"found": 3}', '{"found": [{}]}', "\x00" * 100,
                                  json.dumps({"position": -1, "roundBegin": 0, "roundStarted": 0, "lastRoundBegan": 0,
                                              "lastRoundEnd": 0, "more": 0, "samples": [], "found": []})])
def test_a_file_that_is_damaged_begins_with_a_new_round(state, tmp_path, text, caplog):
    (tmp_path / "scrub.json").write_text(text)
    state.load()
    assert state.is_round_due(HOUR) and not state.found
    assert "scrubbing begins with a new round" in caplog.text
