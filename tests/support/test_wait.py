"""Waiting for facts: what counts as waited for."""
import pytest

from tests.support import wait


class Clock:
    """Stands for the module time: each sleep takes what comes next, the last one again and again."""

    def __init__(self, *sleeps_s):
        self.now_s, self.looks, self._sleeps_s = 50.0, 0, list(sleeps_s)

    def monotonic(self):
        return self.now_s

    def sleep(self, _seconds):
        self.looks += 1
        self.now_s += self._sleeps_s.pop(0) if len(self._sleeps_s) > 1 else self._sleeps_s[0]


@pytest.mark.parametrize("sleeps_s, looks", [
    ([1.0], 61), ([5.0], 13), ([300.0, 1.0], 62), ([1.0, 6.0, 700.0, 1.0], 63)])
def test_pauses_of_the_process_do_not_count(monkeypatch, sleeps_s, looks):
    clock = Clock(*sleeps_s)
    monkeypatch.setattr(wait, "time", clock)
    monkeypatch.setattr(wait, "_stolen_s", lambda: 0.0)
    with pytest.raises(AssertionError, match="not within 60000 ms: it rains"):
        wait.wait_until(lambda: False, 60_000, "it rains")
    assert clock.looks == looks


def test_stolen_time_counts_four_times(monkeypatch):
    clock = Clock(1.0)
    monkeypatch.setattr(wait, "time", clock)
    monkeypatch.setattr(wait, "_stolen_s", lambda: min(10.0, clock.looks / 2))
    with pytest.raises(AssertionError):
        wait.wait_until(lambda: False, 60_000)
    assert clock.looks == 101
    assert wait.wait_until(lambda: "its value") == "its value"


def test_what_is_over_too_soon_did_not_last(monkeypatch):
    clock = Clock(0.4)
    monkeypatch.setattr(wait, "time", clock)
    with pytest.raises(AssertionError, match="over after 0.400 s, not after 0.5 s at least"), wait.lasting(0.5):
        clock.sleep(1)
    with wait.lasting(0.5):
        clock.sleep(1)
        clock.sleep(1)
