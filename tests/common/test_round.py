"""Round: what one channel or service does at its end keeps nothing from the others."""
import pytest

from rmqha.common.futures import ANSWER, COUNT, REPLICATE, WAKE, Round, at_round_end


class Counted:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.times = 0

    def act(self) -> None:
        self.times += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("torn"), MemoryError(), SystemExit(1)])
def test_failure_of_one_does_not_stop_the_others(error, caplog):
    first, broken, third = Counted(), Counted(error), Counted()
    last_broken, last = Counted(error), Counted()
    with Round():
        for one in (first, broken, third):
            assert at_round_end(ANSWER, one.act)
        for one in (last_broken, last):
            assert at_round_end(WAKE, one.act)
    assert [one.times for one in (first, broken, third, last_broken, last)] == [1] * 5
    assert caplog.text.count("at the end of a round failed") == 2
    assert not at_round_end(ANSWER, first.act)  # the round is over


def test_failure_within_a_round_does_what_was_asked_for():
    queued = Counted()
    with pytest.raises(ValueError), Round():
        at_round_end(ANSWER, queued.act)
        raise ValueError
    assert queued.times == 1


def test_counts_and_wakes_are_behind_what_is_sent_each_in_the_order_asked_for():
    done = []
    with Round():
        for phase in (WAKE, ANSWER, COUNT, REPLICATE):
            assert at_round_end(phase, lambda phase=phase: done.append(phase))
        with Round():  # joins
            at_round_end(ANSWER, lambda: done.append("inner"))
        assert not done
    assert done == [ANSWER, REPLICATE, "inner", WAKE, COUNT]


def test_one_asked_for_twice_is_done_once():
    one = Counted()
    with Round():
        at_round_end(ANSWER, one.act)
        at_round_end(ANSWER, one.act)
    assert one.times == 1
