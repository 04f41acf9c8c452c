"""Recent answers for many viewers: kept, asked again in the background, forgotten after a change."""
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from rmqha.tools.view import answers as answers_module
from rmqha.tools.view.answers import SHARE, Answers
from tests.support.wait import stays, wait_until


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Server:
    """Answers with the number of the request, when it may."""

    def __init__(self, clock: Clock) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.takes_s = 0.0
        self.may = threading.Event()
        self.may.set()
        self._clock = clock

    def __call__(self) -> int:
        self.asked += 1
        number, error = self.asked, self.error
        assert self.may.wait(60)
        self._clock.now_s += self.takes_s
        if error is not None:
            raise error
        return number


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(answers_module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
def answers():
    made = Answers()
    yield made
    made.shutdown()


@pytest.fixture
def server(clock):
    made = Server(clock)
    yield made
    made.may.set()


def idle(answers: Answers) -> bool:
    return not answers._asking


def test_new_answer_is_not_asked_again(answers, clock, server):
    assert [answers.get("q", 5.0, server) for _ in range(3)] == [1, 1, 1]
    assert answers.has("q") and not answers.has("other")
    clock.now_s += 5.0
    assert not answers.has("q") and answers.get("q", 5.0, server) == 2


def test_older_answer_is_returned_at_once_while_a_thread_asks_again(answers, clock, server):
    assert answers.get("q", 5.0, server, 60.0) == 1
    clock.now_s += 6.0
    server.may.clear()
    assert [answers.get("q", 5.0, server, 60.0) for _ in range(3)] == [1, 1, 1]
    wait_until(lambda: server.asked == 2, 60_000, "asked again, once")
    server.may.set()
    wait_until(lambda: idle(answers), 60_000, "the new answer")
    assert answers.get("q", 5.0, server, 60.0) == 2 == server.asked


def test_error_is_raised_when_the_last_answer_is_too_old(answers, clock, server):
    assert answers.get("q", 5.0, server, 60.0) == 1
    server.error = KeyError("away")
    for _ in range(6):  # beyond the 5 s each time, and within the 60 s
        clock.now_s += 10.0
        assert answers.get("q", 5.0, server, 60.0) == 1
        wait_until(lambda: idle(answers), 60_000, "another attempt")
        attempts = server.asked
        assert answers.get("q", 5.0, server, 60.0) == 1 and server.asked == attempts  # not at once
    clock.now_s += 10.0
    with pytest.raises(KeyError, match="away"):
        answers.get("q", 5.0, server, 60.0)
    server.error = None
    assert answers.get("q", 5.0, server, 60.0) == server.asked


@pytest.mark.parametrize("error", [None, KeyError("away")])
def test_viewers_that_ask_the_same_at_once_share_one_request(answers, server, error):
    server.error = error
    server.may.clear()
    results = []

    def view() -> None:
        try:
            results.append(answers.get("q", 5.0, server))
        except KeyError as raised:
            results.append(raised)
    with ExitStack() as stack:
        for _ in range(8):
            thread = threading.Thread(target=view)
            thread.start()
            stack.callback(thread.join)
        wait_until(lambda: server.asked, 60_000, "asked")
        stays(lambda: server.asked == 1, 50)
        server.may.set()
    assert results == [error or 1] * 8 and server.asked == 1


def test_answer_from_before_a_change_is_neither_kept_nor_given(answers, clock, server):
    assert answers.get("q", 5.0, server, 60.0) == 1
    clock.now_s += 6.0
    server.may.clear()
    assert answers.get("q", 5.0, server, 60.0) == 1
    wait_until(lambda: server.asked == 2, 60_000, "asked before the change")
    answers.forget()
    assert not answers.has("q")
    found = []
    thread = threading.Thread(target=lambda: found.append(answers.get("q", 5.0, server, 60.0)))
    thread.start()
    wait_until(lambda: server.asked == 3, 60_000, "asked after the change")
    server.may.set()
    thread.join(60)
    assert found == [3] and answers.get("q", 5.0, server, 60.0) == 3


def test_slow_answers_are_asked_for_less_often(answers, clock, server):
    server.takes_s = 4.0
    assert answers.get("q", 5.0, server, 60.0) == 1
    clock.now_s += 4.0 / SHARE - 1
    assert answers.get("q", 5.0, server, 60.0) == 1 == server.asked
    clock.now_s += 2.0
    assert answers.get("q", 5.0, server, 60.0) == 1
    wait_until(lambda: server.asked == 2, 60_000, "asked again")


def test_answer_that_may_not_be_old_is_asked_for_again_however_slow_it_is(answers, clock, server):
    server.takes_s = 4.0
    assert answers.get("q", 1.0, server) == 1
    clock.now_s += 1.0
    assert answers.get("q", 1.0, server) == 2


def test_viewer_does_not_wait_for_busy_threads(answers, clock, server):
    assert answers.get("q", 5.0, server, 60.0) == 1
    busy = threading.Event()
    for _ in range(answers_module._THREADS):
        answers.later(lambda: busy.wait(60))
    try:
        clock.now_s += 6.0
        assert answers.get("q", 5.0, server, 60.0) == 1  # and a thread will ask again
        clock.now_s += 60.0
        assert answers.get("q", 5.0, server, 60.0) == 2 == server.asked
    finally:
        busy.set()
    wait_until(lambda: not answers._pool.queue_size(), 60_000, "the threads are idle")
    stays(lambda: server.asked == 2, 50)


def test_number_of_answers_is_bounded(answers, monkeypatch):
    monkeypatch.setattr(answers_module, "_MAX_ANSWERS", 3)
    for number in range(5):
        answers.get(number, 60.0, lambda number=number: number)
    assert [answers.has(number) for number in range(5)] == [False, False, True, True, True]


def test_after_the_shutdown_the_last_answers_are_still_given(answers, clock, server):
    assert answers.get("q", 5.0, server, 60.0) == 1
    answers.shutdown()
    clock.now_s += 6.0
    answers.later(server)
    assert answers.get("q", 5.0, server, 60.0) == 1 == server.asked
