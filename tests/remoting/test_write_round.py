"""write_round: what one channel or service does at its end keeps nothing from the others."""
import pytest

from rmqha.remoting.write_round import flush_at_end_of_round, write_round


class Flushed:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.times = 0

    def flush(self) -> None:
        self.times += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("torn"), MemoryError(), SystemExit(1)])
def test_failure_of_one_flush_does_not_stop_the_others(error, caplog):
    first, broken, third = Flushed(), Flushed(error), Flushed()
    last_broken, last = Flushed(error), Flushed()
    with write_round():
        for one in (first, broken, third):
            assert flush_at_end_of_round(one)
        for one in (last_broken, last):
            assert flush_at_end_of_round(one, last=True)
    assert [one.times for one in (first, broken, third, last_broken, last)] == [1] * 5
    assert caplog.text.count("at the end of a round failed") == 2
    assert not flush_at_end_of_round(first)  # the round is over


def test_failure_within_a_round_flushes_what_was_queued():
    queued = Flushed()
    with pytest.raises(ValueError), write_round():
        flush_at_end_of_round(queued)
        raise ValueError
    assert queued.times == 1
