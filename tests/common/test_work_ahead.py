"""Calls that are done ahead: each once, in the order of who takes them, and none behind the end."""
import threading

import pytest

from rmqha.common import threads as thread_pool
from rmqha.common.futures import WorkAhead, usable_cores
from tests.support.own_threads import own_threads


def test_a_machine_has_cores():
    assert 1 <= usable_cores() <= 8


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_each_call_is_done_once_and_gives_its_own_result(threads):
    done = []
    with WorkAhead("Ahead_", threads) as work:
        begun = [work.begin(lambda number=number: (done.append(number), number)[1]) for number in range(200)]
        assert [each.take() for each in begun] == list(range(200))
        assert begun[7].take() == 7
    assert sorted(done) == list(range(200))
    assert not any(thread.name.startswith("Ahead_") for thread in own_threads())


@pytest.mark.parametrize("threads", [0, 1])
def test_an_error_comes_to_who_takes_the_result(threads):
    with WorkAhead("Ahead_", threads) as work:
        failing = work.begin(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failing.take()
        assert work.begin(lambda: 5).take() == 5


def test_the_end_waits_for_what_was_begun_and_leaves_the_rest():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        assert go_on.wait(240)
        done.append(1)

    with WorkAhead("Ahead_", 1) as work:
        work.begin(first)
        rest = work.begin(lambda: done.append(2))
        assert begun.wait(240)
        threading.Timer(0.05, go_on.set).start()
    assert done == [1]
    rest.take()
    assert done == [1, 2]


def test_without_a_thread_who_takes_the_result_does_the_call(monkeypatch):
    def no_thread(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(thread_pool.threading.Thread, "start", no_thread)
    with WorkAhead("Ahead_", 2) as work:
        assert work.begin(threading.current_thread).take() is threading.current_thread()
